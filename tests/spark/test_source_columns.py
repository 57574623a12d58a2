# SPDX-License-Identifier: Apache-2.0
"""Columns of the source against what official clients sent, on all three brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pulsar
import pytest

from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata
from tests.spark.batches import batch_reader
from tests.spark.brokers import Broker

pytestmark = pytest.mark.spark


def read(cell: Broker, topic: str, **options: str) -> list[dict[str, Any]]:
    """All rows of a topic, those of a partition in their order."""
    reader = batch_reader(cell, topic, **options)
    return [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]


@contextmanager
def official(cell: Broker) -> Iterator[pulsar.Client]:
    """The official Python client, quiet."""
    client = pulsar.Client(cell.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        yield client
    finally:
        client.close()


@pytest.mark.parametrize("batched", [False, True])
def test_producer_and_sequence_id_are_as_sent(cell: Broker, topic: str, batched: bool) -> None:
    """In an entry of its own or in a batch; numbers that the application chose need not follow each other."""
    with official(cell) as client:
        producer = client.create_producer(topic, producer_name="flights-7", batching_enabled=batched)
        for number in (3, 10, 2**40):
            producer.send_async(b"v", lambda *_: None, sequence_id=number)
        producer.flush()
    rows = read(cell, topic, columns="producer_name,sequence_id,schema_version,replicated_from")
    assert [(row["producer_name"], row["sequence_id"]) for row in rows] == [
        ("flights-7", 3),
        ("flights-7", 10),
        ("flights-7", 2**40),
    ]
    assert {(row["schema_version"], row["replicated_from"]) for row in rows} == {(None, None)}


def test_schema_version_and_cluster_are_those_of_the_message(cell: Broker, topic: str) -> None:
    """The metadata as a replicator of an Apache Pulsar writes it, beside a message without."""
    name = f"persistent://public/default/{cell.create(topic, 0)}"
    with RawClient(cell.service_url) as raw:
        must_succeed(raw.open_producer(name, name="east-to-here"))
        for number in range(2):
            metadata = MessageMetadata(producer_name="east-to-here", sequence_id=number, publish_time=1)
            if number:
                metadata.schema_version, metadata.replicated_from = (12).to_bytes(8, "big"), "east"
            raw.send_entry(0, number, seal_entry(metadata.SerializeToString(), b"v"))
            assert raw.next_command().HasField("send_receipt")
    rows = read(cell, topic, columns="sequence_id,schema_version,replicated_from")
    assert [tuple(row.values()) for row in rows] == [(0, None, None), (1, 12, "east")]


def test_pulsar_sparks_ids_are_those_of_the_official_client(cell: Broker, topic: str) -> None:
    """The bytes are those that the client itself writes of the same message, for single messages and in batches."""
    cell.create(topic, 2)
    with official(cell) as client:
        reader = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        for batched in (False, True):
            producer = client.create_producer(topic, batching_enabled=batched)
            for number in range(20):
                producer.send_async(str(number).encode(), lambda *_: None, partition_key=str(number))
            producer.flush()
        expected = set()
        for _ in range(40):
            message = reader.receive(60_000)
            expected.add((message.topic_name(), message.message_id().serialize(), message.data()))
    rows = read(cell, topic, columnNames="pulsar-spark")
    assert len(expected) == 40
    assert {(row["__topic"], row["__messageId"], row["value"]) for row in rows} == expected


def test_filters_of_a_kafka_job_find_the_name_that_it_gave(cell: Broker, topic: str) -> None:
    """The column topic says what the option says, topic by topic."""
    cell.send(topic, ["1"])
    assert {row["topic"] for row in read(cell, topic, topicNames="as-given")} == {topic}
    full = f"persistent://public/default/{topic}"
    assert {row["topic"] for row in read(cell, full, topicNames="as-given")} == {full}
    assert {row["topic"] for row in read(cell, full, topicNames="short")} == {topic}
    assert {row["topic"] for row in read(cell, topic)} == {full}
