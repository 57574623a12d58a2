# SPDX-License-Identifier: Apache-2.0
"""The connectors that Spark cases are measured with, behind one interface: ours, and Spark's own for Kafka.

A ``Connector`` says how to name the format, which options read or write a topic, how a topic is made, and which
processes serve it. ``KafkaConnector`` exists twice in a run: at its defaults, and as somebody who knows Kafka's
consumer would set it. Ours too: as it comes, with the seven columns that Kafka's source and ``python limit`` have, and
with six of Pulsar's beside them, because Spark works for every column of every row; and it reads from Apache Pulsar as
well as from ours.
"""

from __future__ import annotations

import contextlib
import functools
import time
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from benchmarks.kafka.recipe import KafkaBroker
from broker_core.base.names import TopicName
from broker_core.client.admin import AdminApi

_TOPIC_TIMEOUT_S: Final = 30.0

KAFKA_TUNED: Final = {
    # At the defaults a task waits out a long poll of 500 ms at the end of its partition, polls 500 records at a time,
    # and a partition is one task.
    "minPartitions": "2",
    "kafka.fetch.max.wait.ms": "20",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.max.poll.records": "5000",
}

OUR_SIDE: Final = "pulsarish"
KAFKA_SIDE: Final = "kafka"
TUNED_SIDE: Final = "kafka tuned"
APACHE_SIDE: Final = "from apache pulsar"
WIDE_SIDE: Final = "pulsarish, 13 columns"
THIRTEEN_COLUMNS: Final = {
    "columns": "key,value,topic,partition,offset,timestamp,timestampType,"
    "message_id,publish_time,event_time,properties,ordering_key,key_is_bytes"
}


class Connector(Protocol):
    """One side of a comparison."""

    @property
    def side(self) -> str:
        """Its name in tables."""
        ...

    @property
    def format(self) -> str:
        """The word for ``spark.read.format``."""
        ...

    @property
    def server_pids(self) -> list[int]:
        """Processes whose CPU time counts beside Spark's."""
        ...

    def create_topic(self, name: str, partitions: int) -> None:
        """Make an empty topic."""
        ...

    def source_options(self, topic: str) -> dict[str, str]:
        """Options to read ``topic`` from its beginning."""
        ...

    def sink_options(self, topic: str) -> dict[str, str]:
        """Options to write to ``topic``."""
        ...

    def pump_arguments(self, topic: str) -> list[str]:
        """Arguments of ``benchmarks.pump`` for ``topic``."""
        ...


class PulsarBroker(Protocol):
    """A running broker that speaks Pulsar's protocol: ours, or Apache Pulsar."""

    @property
    def pid(self) -> int: ...

    @property
    def service_url(self) -> str: ...

    @property
    def http_url(self) -> str: ...


@dataclass(frozen=True, slots=True)
class PulsarishConnector:
    """Our source and sink on ``broker``."""

    broker: PulsarBroker
    side: str = OUR_SIDE
    read_options: dict[str, str] = field(default_factory=dict)
    write_options: dict[str, str] = field(default_factory=dict)
    format: str = "pulsarish"

    @property
    def server_pids(self) -> list[int]:
        return [self.broker.pid]

    def create_topic(self, name: str, partitions: int) -> None:
        with AdminApi(self.broker.http_url, timeout_s=_TOPIC_TIMEOUT_S) as admin:
            admin.create_topic(TopicName.parse(name), partitions)

    def source_options(self, topic: str) -> dict[str, str]:
        options = {"service.url": self.broker.service_url, "topic": topic, "startingOffsets": "earliest"}
        return options | self.read_options

    def sink_options(self, topic: str) -> dict[str, str]:
        return {"service.url": self.broker.service_url, "topic": topic} | self.write_options

    def pump_arguments(self, topic: str) -> list[str]:
        return ["pulsarish", self.broker.service_url, topic]


@dataclass(frozen=True, slots=True)
class KafkaConnector:
    """Spark's Kafka source and sink on a broker of ``benchmarks.kafka``."""

    broker: KafkaBroker
    side: str = KAFKA_SIDE
    read_tuning: dict[str, str] = field(default_factory=dict)
    format: str = "kafka"

    @property
    def server_pids(self) -> list[int]:
        return [self.broker.pid]

    def create_topic(self, name: str, partitions: int) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.cimpl import NewTopic

        admin = _kafka_admin(self.broker.bootstrap)
        created = admin.create_topics([NewTopic(name, partitions, 1)])
        with contextlib.suppress(KafkaException):  # the other Kafka row of the same run has made it
            created[name].result()
        deadline = time.monotonic() + _TOPIC_TIMEOUT_S
        while not _has_leaders(admin, name, partitions):  # a producer that comes earlier may wait for two minutes
            if time.monotonic() > deadline:
                raise TimeoutError(f"Kafka's topic {name} has no leaders after {_TOPIC_TIMEOUT_S:.0f} s")
            time.sleep(0.05)

    def source_options(self, topic: str) -> dict[str, str]:
        options = {"kafka.bootstrap.servers": self.broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        return options | self.read_tuning

    def sink_options(self, topic: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.broker.bootstrap, "topic": topic}

    def pump_arguments(self, topic: str) -> list[str]:
        return ["kafka", self.broker.bootstrap, topic]


@functools.cache
def _kafka_admin(bootstrap: str) -> Any:
    """One client a broker, kept: its answers are lost when it is collected."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap})


def _has_leaders(admin: Any, name: str, partitions: int) -> bool:
    found = admin.list_topics(name, timeout=_TOPIC_TIMEOUT_S).topics[name].partitions.values()
    return len(found) == partitions and all(partition.leader >= 0 for partition in found)
