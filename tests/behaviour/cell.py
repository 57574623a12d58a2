# SPDX-License-Identifier: Apache-2.0
"""``Cell``: one client and one server, and the short words in which behaviours are written."""

from __future__ import annotations

import itertools
import json
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, Unpack

from tests.behaviour.access import Access
from tests.behaviour.interface import (
    EARLIEST,
    PATIENCE_MS,
    SILENCE_MS,
    AnyClient,
    AnyConsumer,
    AnyProducer,
    AnyReader,
    AnyTableView,
    ConsumerChoice,
    Fields,
    Id,
    Outgoing,
    ProducerChoice,
    Received,
    RefusedError,
)
from tests.behaviour.schemas import SchemaChoice
from tests.client.conftest import Service, admin_path

LOOK_MS: Final = 50
"""How long to look at one of several consumers before looking at the next."""

_MARK: Final = uuid.uuid4().hex[:8]
_numbers = itertools.count()


class Cell:
    """One client kind on one service. What it makes is closed with it."""

    def __init__(self, client_kind: str, service: Service, make: Callable[[str, Access], AnyClient]) -> None:
        self.client_kind = client_kind
        self.service = service
        self._make = make
        self._clients: list[AnyClient] = []
        self._shared: AnyClient | None = None

    def topic(self, partitions: int = 0) -> str:
        """A topic that no other behaviour uses; partitioned if asked."""
        name = f"persistent://public/default/behaviour-{_MARK}-{next(_numbers)}"
        if partitions:
            self.service.create_partitioned(name, partitions)
        return name

    def topic_where_consumers_may_hold(self, unacked: int) -> str:
        """A topic of a namespace of its own, where a consumer may have so many messages unacknowledged."""
        namespace = self.namespace("produce", "consume")
        self.service.admin("POST", f"namespaces/{namespace}/maxUnackedMessagesPerConsumer", str(unacked))
        return f"persistent://{namespace}/t"

    def namespace(self, *actions: str) -> str:
        """A new namespace, in which clients may do this much."""
        name = f"public/behaviour-{_MARK}-{next(_numbers)}"
        self.service.admin("PUT", f"namespaces/{name}")
        if actions:
            self.service.grant(name, *actions)
        return name

    def new_client(self, access: Access | None = None, service_url: str = "") -> AnyClient:
        """One more client, which the behaviour may close as if its program had ended.

        ``access`` and ``service_url``: where they are not those of the service.
        """
        made = self._make(service_url or self.service.service_url, access or self.service.access)
        self._clients.append(made)
        return made

    @property
    def client(self) -> AnyClient:
        """The client that everything is made from unless it is said otherwise."""
        if self._shared is None:
            self._shared = self.new_client()
        return self._shared

    def producer(self, topic: str, **choice: Any) -> AnyProducer:
        """``choice``: fields of ``ProducerChoice``."""
        return self.client.producer(topic, ProducerChoice(**choice))

    def consumer(
        self, topics: str | Sequence[str], subscription: str = "s", client: AnyClient | None = None, **choice: Any
    ) -> AnyConsumer:
        """``choice``: fields of ``ConsumerChoice``; ``client`` if not the shared one."""
        names = [topics] if isinstance(topics, str) else topics
        return (client or self.client).consumer(names, subscription, ConsumerChoice(**choice))

    def reader(
        self,
        topic: str,
        start: Id | str = EARLIEST,
        *,
        inclusive: bool = False,
        rollback_s: int = 0,
        compacted: bool = False,
        schema: SchemaChoice | None = None,
    ) -> AnyReader:
        return self.client.reader(
            topic, start, inclusive=inclusive, rollback_s=rollback_s, compacted=compacted, schema=schema
        )

    def table_view(self, topic: str, schema: SchemaChoice | None = None) -> AnyTableView:
        return self.client.table_view(topic, schema)

    def send(self, topic: str, values: Iterable[str | None], **fields: Unpack[Fields]) -> list[Id]:
        """Send ``values`` one by one, each an entry of its own."""
        producer = self.producer(topic)
        ids = [producer.send(Outgoing(value=value, **fields)) for value in values]
        producer.close()
        return ids

    def send_batch(self, topic: str, values: Iterable[str], **fields: Unpack[Fields]) -> None:
        """Send ``values`` as one entry."""
        producer = self.producer(topic, batching=True)
        producer.send_together([Outgoing(value=value, **fields) for value in values])
        producer.close()

    def admin(self, method: str, topic: str, path: str, body: str | None = None) -> bytes:
        """One admin request about a topic."""
        return self.service.admin(method, f"{admin_path(topic)}/{path}".rstrip("/"), body)

    def registry(self, method: str, topic: str, path: str = "schema", body: object = None) -> Any:
        """One admin request about the schemas of a topic, and its answer."""
        name = admin_path(topic).partition("/")[2]
        answer = self.service.admin(method, f"schemas/{name}/{path}", None if body is None else json.dumps(body))
        return json.loads(answer) if answer else None

    def versions(self, topic: str) -> list[int]:
        """The versions of a topic's schema that the registry lists."""
        return [each["version"] for each in self.registry("GET", topic, "schemas")["getSchemaResponses"]]

    def backlog(self, topic: str, subscription: str = "s") -> int:
        """How many messages the server has not seen acknowledged yet."""
        stats = json.loads(self.admin("GET", topic, "stats"))
        return int(stats["subscriptions"][subscription]["msgBacklog"])

    def close(self) -> None:
        for client in self._clients:
            with suppress(RefusedError):  # the behaviour may have closed it
                client.close()


def take(source: AnyConsumer | AnyReader, count: int) -> list[Received]:
    """The next ``count`` messages."""
    messages: list[Received] = []
    for _ in range(count):
        message = source.receive(PATIENCE_MS)
        assert message is not None, f"{len(messages)} of {count} messages came: {values(messages)}"
        messages.append(message)
    return messages


def take_values(source: AnyConsumer | AnyReader, count: int) -> list[str]:
    return values(take(source, count))


def take_and_ack(consumer: AnyConsumer, count: int) -> list[Received]:
    """The next ``count`` messages, acknowledged one by one."""
    messages = take(consumer, count)
    for message in messages:
        consumer.ack(message)
    return messages


def take_all(source: AnyConsumer | AnyReader, silence_ms: int = SILENCE_MS) -> list[Received]:
    """Everything that comes until nothing does for a while."""
    messages: list[Received] = []
    while (message := source.receive(silence_ms)) is not None:
        messages.append(message)
    return messages


def take_all_of(consumers: Sequence[AnyConsumer], count: int) -> list[list[Received]]:
    """What each of ``consumers`` gets of ``count`` messages that must come, and of any others until nothing comes."""
    taken: list[list[Received]] = [[] for _ in consumers]
    patient_until = time.monotonic() + PATIENCE_MS / 1000
    while sum(map(len, taken)) < count:
        assert time.monotonic() < patient_until, f"of {count} messages came: {[values(each) for each in taken]}"
        for mine, consumer in zip(taken, consumers, strict=True):
            mine += take_all(consumer, LOOK_MS)
    for mine, consumer in zip(taken, consumers, strict=True):
        mine += take_all(consumer)
    return taken


def typed_values(messages: Iterable[Received]) -> list[Any]:
    """The values of messages that were read by a schema."""
    return [json.loads(message.value) for message in messages]


def typed(value: Any, **fields: Unpack[Fields]) -> Outgoing:
    """A message to be sent by a schema."""
    return Outgoing(value=json.dumps(value), **fields)


def values(messages: Iterable[Received]) -> list[str]:
    return [message.value for message in messages]
