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
    assert 'send it in chunks (.option("chunkingEnabled", "true")), or raise maxMessageSize' in str(told.value)
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
    assert write_options({"topic": "t", "service.url": "pulsar://h:1"} | given, Side.BATCH_WRITE, {}).writing == {
        "compression": "lz4",
        "message_routing_mode": "single_partition",
    }


def test_a_wrong_place_is_told_by_the_key_of_its_row(cell: Broker, topic: str) -> None:
    """A partition that is not there, a name that is none; nothing of the other rows is sent."""
    cell.create(topic, 2)
    partitions = pa.record_batch({"key": ["a", "b", None], "value": ["1", "2", "3"], "partition": [0, 7, 9]})
    with pytest.raises(
        ConfigError, match=f"column partition is 7 in the row with the key 'b', but topic .*{topic} has 2"
    ):
        write(cell, topic, partitions)
    with pytest.raises(ConfigError, match="column partition is 9 in a row without a key, but topic"):
        write(cell, topic, partitions.slice(2))
    names = pa.record_batch({"key": ["a", "b"], "value": ["1", "2"], "topic": [topic, "no/good"]})
    with pytest.raises(ConfigError, match="column topic is 'no/good' in the row with the key 'b': "):
        write(cell, "", names)
    assert read(cell, topic) == []


def test_a_copy_of_a_pulsar_spark_frame_is_written_with_its_names(cell: Broker, topic: str) -> None:
    """As it is: keys, properties, times in either form; rows go where __topic says."""
    other = f"{topic}-copy"
    when = pa.array([1_600_000_000_123_456, None], pa.timestamp("us", "UTC"))
    names = pa.array([[("a", "1")], []], pa.map_(pa.string(), pa.string()))
    rows = pa.record_batch(
        {"__key": [b"k", None], "value": [b"1", b"2"], "__eventTime": when, "__messageProperties": names}
    )
    write(cell, topic, rows, columnNames="pulsar-spark")
    found = read(cell, topic, columnNames="pulsar-spark")
    assert [row["__key"] for row in found] == [b"k", None]
    copied = pa.Table.from_pylist(found).combine_chunks().to_batches()[0]
    at = copied.schema.get_field_index("__topic")
    copied = copied.set_column(at, "__topic", pa.array([other] * 2))
    copied = copied.set_column(copied.schema.get_field_index("__messageProperties"), "__messageProperties", names)
    at = copied.schema.get_field_index("__eventTime")
    write(
        cell,
        "",
        copied.set_column(at, "__eventTime", pa.array([1_600_000_000_123, None], pa.int64())),
        columnNames="pulsar-spark",
    )
    again = read(cell, other, columnNames="pulsar-spark")
    same = ("__key", "value", "__eventTime", "__messageProperties")
    assert [[row[name] for name in same] for row in again] == [[row[name] for name in same] for row in found]


def test_little_room_for_what_is_not_confirmed_only_makes_it_slow(cell: Broker, topic: str) -> None:
    """Each entry goes alone then, one that is larger than the room too, and all are there in their order."""
    values = [str(number) for number in range(50)]
    rows = pa.record_batch({"value": [*values, "x" * 1000]})
    write(cell, topic, rows, memoryLimitBytes="1", batchingMaxMessages="3")
    assert [row["value"].decode() for row in read(cell, topic)] == [*values, "x" * 1000]


@pytest.mark.parametrize(
    "times",
    [
        pa.array([None, 1_000, 999, 0], pa.timestamp("us", "UTC")),
        pa.array([None, 1, 0, 0], pa.int64()),
    ],
)
def test_an_event_time_that_pulsar_cannot_keep_is_told_once(
    cell: Broker, topic: str, caplog: pytest.LogCaptureFixture, times: pa.Array
) -> None:
    """1.5: 0 ms since 1970 means none. The first row that has it is named, whatever comes behind it."""
    rows = pa.record_batch({"key": ["a", "b", "c", "d"], "value": ["1", "2", "3", "4"], "event_time": times})
    options = write_options({"topic": topic, "service.url": cell.service_url}, Side.BATCH_WRITE, {})
    write_rows(iter([rows.slice(0, 2), rows, rows]), options)
    (told,) = [text for text in (record.getMessage() for record in caplog.records) if "event time" in text]
    assert "column event_time is 1970-01-01T00:00:00Z in the row with the key 'c'" in told
    assert "read as null" in told
