# SPDX-License-Identifier: Apache-2.0
"""How rows of the sink go out, on all three brokers, as the official client sees them."""

from __future__ import annotations

import random

import pulsar
import pyarrow as pa
import pytest

from broker_core.base.errors import ConfigError
from pulsarish_spark.options import Side, write_options
from pulsarish_spark.sink.writer import write_rows
from tests.spark.brokers import Broker
from tests.spark.test_source_columns import official, read

pytestmark = pytest.mark.spark

MIB = 1024 * 1024


def write(cell: Broker, topic: str, rows: pa.RecordBatch, **options: str) -> None:
    """One task of the sink."""
    given = {"service.url": cell.service_url} | ({"topic": topic} if topic else {}) | options
    write_rows(iter([rows]), write_options(given, Side.BATCH_WRITE, {}))


def test_the_official_client_puts_large_values_together(cell: Broker, topic: str) -> None:
    """A value of 12 MiB in chunks, a tombstone and a small one beside it, in their order; the source reads them too."""
    sent = [random.Random(1).randbytes(12 * MIB), None, b"small"]
    rows = pa.record_batch({"key": pa.array(["a", "b", "c"]), "value": pa.array(sent, pa.binary())})
    write(cell, topic, rows, chunkingEnabled="true")
    with official(cell) as client:
        consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        found = [consumer.receive(60_000) for _ in sent]
        assert [(m.partition_key(), m.has_null_value(), m.data()) for m in found] == [
            ("a", False, sent[0]),
            ("b", True, b""),
            ("c", False, b"small"),
        ]
    assert [row["value"] for row in read(cell, topic)] == sent


def test_a_value_that_is_too_large_is_named_by_its_key_and_nothing_is_sent(cell: Broker, topic: str) -> None:
    """Rows of another topic came first, and would have stayed there."""
    topics = [f"{topic}-a", f"{topic}-b"]
    for each in topics:
        cell.create(each, 0)
    rows = pa.record_batch({"key": ["fine", "huge"], "topic": topics, "value": [b"v", bytes(6 * MIB)]})
    with pytest.raises(
        ConfigError, match="the row with the key 'huge' has a value of 6291456 bytes, more than"
    ) as told:
        write(cell, "", rows)
    assert "send it in chunks" in str(told.value)
    assert [read(cell, each) for each in topics] == [[], []]


def test_a_null_topic_is_told_by_the_key_of_its_row(cell: Broker, topic: str) -> None:
    """The option topic makes the column unimportant, nulls included."""
    rows = pa.record_batch({"key": ["x", "lost"], "topic": [topic, None], "value": [b"1", b"2"]})
    with pytest.raises(ConfigError, match="column topic is null in the row with the key 'lost', so it has nowhere to"):
        write(cell, "", rows)
    assert not cell.topic_exists(topic)
    write(cell, topic, rows)
    assert [row["value"] for row in read(cell, topic)] == [b"1", b"2"]


def test_sequence_ids_are_those_of_the_column(cell: Broker, topic: str) -> None:
    """In batches of one key each, with an ordering key; numbers that do not rise are refused."""
    rows = pa.record_batch(
        {
            "key": ["a", "b", "b"],
            "ordering_key": ["o", "p", "o"],
            "value": ["1", "2", "3"],
            "sequence_id": [4, 7, 2**40],
        }
    )
    write(cell, topic, rows, batchingType="key_based")
    found = read(cell, topic, columns="ordering_key,sequence_id,message_id")
    assert [(row["ordering_key"], row["sequence_id"]) for row in found] == [(b"o", 4), (b"p", 7), (b"o", 2**40)]
    assert len({row["message_id"].rpartition(":")[0] for row in found}) == 3
    falling = pa.record_batch({"key": ["first", "second"], "value": ["1", "2"], "sequence_id": [2, 2]})
    with pytest.raises(ConfigError, match="the row with the key 'second' has the sequence id 2, where 3 is the lowest"):
        write(cell, topic, falling)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pulsar.producer.cryptoKeyReader", "is not supported: messages are not encrypted here"),
        ("pulsar.producer.producerName", "is not possible: tasks write side by side"),
        ("pulsar.producer.maxPendingMessages", "is not needed: a task has its rows at hand"),
    ],
)
def test_options_of_the_java_producer_are_refused_with_the_reason(name: str, text: str) -> None:
    """Those that mean the same are taken."""
    with pytest.raises(ConfigError, match=f'option "{name}" {text}'):
        write_options({"topic": "t", name.lower(): "x"}, Side.BATCH_WRITE, {})
    given = {"pulsar.producer.compressiontype": "LZ4", "pulsar.producer.messageroutingmode": "SinglePartition"}
    assert write_options({"topic": "t", "service.url": "pulsar://h:1"} | given, Side.BATCH_WRITE, {}).writing() == {
        "compression": "lz4",
        "hashing_scheme": "java",
        "message_routing_mode": "single_partition",
    }
