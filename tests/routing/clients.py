# SPDX-License-Identifier: Apache-2.0
"""The official clients, asked where they send keys.

Each key goes to each of the partitioned topics, by producers as they come, but for the hashing scheme where one is
named. What is read is the partition in the id that the broker confirmed.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import pulsar

from broker_core.base.hashing import HashingScheme
from broker_core.wire.proto.pulsar_api_pb2 import MessageIdData
from tests.behaviour import go_client, java_client
from tests.behaviour.driver import Driver
from tests.routing.keys import BYTES, TEXTS

Routes: TypeAlias = "dict[str | bytes, list[int]]"
"""The partitions of each key, in the order of the topics."""


class Client(NamedTuple):
    """An official client with the option that it was given ("": none), and the scheme that is to be the same here."""

    name: str
    option: str
    scheme: HashingScheme

    def __str__(self) -> str:
        return f"{self.name} {self.option}".strip()


CLIENTS: Final = (
    Client("java", "", "java"),
    Client("java", "Murmur3_32Hash", "murmur3"),
    Client("python", "", "boost"),
    Client("go", "", "go"),
    Client("go", "Murmur3_32Hash", "murmur3"),
)


def keys_of(client: Client) -> Sequence[str | bytes]:
    """The keys that ``client`` can send: the Java client alone has keys as bytes."""
    return [*TEXTS, *BYTES] if client.name == "java" else TEXTS


def driven_routes(driver: Driver, url: str, topics: Sequence[str], keys: Sequence[str | bytes], option: str) -> Routes:
    """A client in a process of the behaviour suite."""
    client = driver.ask("client", url=url)
    messages = [
        {"value": ""} | ({"key": k} if isinstance(k, str) else {"key_bytes": base64.b64encode(k).decode()})
        for k in keys
    ]
    routes: Routes = {key: [] for key in keys}
    for topic in topics:
        defaults = {"batching": True, "chunking": False, "compression": "none", "access_mode": "Shared"}
        made = driver.ask(
            "producer", client=client, topic=topic, batching_by_key=False, hashing_scheme=option or None, **defaults
        )
        sent = driver.ask("send_together", producer=made["object"], messages=messages)
        for key, message_id in zip(keys, sent, strict=True):
            routes[key].append(MessageIdData.FromString(base64.b64decode(message_id)).partition)
        driver.ask("close", objects=[made["object"]])
    return routes


def python_routes(url: str, topics: Sequence[str], keys: Sequence[str]) -> Routes:
    """The Python client, which is the C++ client and offers no choice of the hash."""
    routes: Routes = {key: [] for key in keys}
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        for topic in topics:
            producer = client.create_producer(topic, batching_enabled=False)
            for key in keys:
                routes[key].append(producer.send(b"", partition_key=key).partition())
    finally:
        client.close()
    return routes


def versions() -> dict[str, str]:
    """Which releases of the clients the programs here ask for."""
    pom = (java_client.HERE / "pom.xml").read_text()
    requirements = (go_client.SOURCES / "go.mod").read_text().splitlines()
    requirement = next(line for line in requirements if "pulsar-client-go" in line)
    return {
        "java": pom.partition("<pulsar.version>")[2].partition("<")[0],
        "python": pulsar.__version__,
        "go": requirement.split()[-1],
    }
