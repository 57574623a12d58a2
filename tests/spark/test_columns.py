# SPDX-License-Identifier: Apache-2.0
"""Decoded messages become exactly the columns that Spark checks for."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from broker_core.base.errors import ConfigError
from broker_core.base.positions import MessageId
from broker_core.wire.batch import decode_entries, encode_entries
from broker_core.wire.entry import EntryRef
from broker_core.wire.proto.pulsar_api_pb2 import MessageIdData
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.rows.columns import ColumnMaker, id_bytes, id_texts
from pulsarish_spark.rows.schema import ALL_COLUMNS, PULSAR_SPARK_COLUMNS, TopicColumns, check_user_schema

KEY = TopicPartition("persistent://public/default/t", 3)


OF_MESSAGES = TopicColumns(ALL_COLUMNS)


def decoded(rows: pa.RecordBatch, *, index: int = -1, messages_max: int = 1000) -> pa.RecordBatch:
    """What an executor gets of ``rows`` after a trip through entries; ``index`` of the first message, -1 unknown."""
    entries = []
    sealed = encode_entries(
        rows, producer_name="p", first_sequence_id=0, publish_time_ms=1_700_000_000_123, messages_max=messages_max
    )
    for number, entry in enumerate(sealed):
        last = -1 if index < 0 else index + entry.highest_sequence_id
        entries.append(EntryRef(5, number, bytes(entry.body), last))
    return decode_entries(entries, TopicColumns().decoded())


def made(rows: pa.RecordBatch, *, partitioned: bool = True, index: int = 100) -> pa.RecordBatch:
    return ColumnMaker(KEY, OF_MESSAGES, partitioned=partitioned).make(decoded(rows, index=index))


def test_every_column_has_the_type_and_the_value_that_users_expect() -> None:
    """Spark compares types, order and nullability of the first batch exactly."""
    rows = pa.record_batch(
        {
            "key": pa.array(["k", None]),
            "value": pa.array([b"v", None]),
            "properties": pa.array([[("a", "1"), ("b", "2")], []], pa.map_(pa.string(), pa.string())),
            "event_time": pa.array([1_600_000_000_001, 0]),
            "ordering_key": pa.array([b"o", None]),
        }
    )
    batch = made(rows)
    assert batch.schema == OF_MESSAGES.arrow_schema()
    batch.validate(full=True)
    published = datetime.fromtimestamp(1_700_000_000.123, UTC)
    happened = datetime.fromtimestamp(1_600_000_000.001, UTC)
    assert batch.slice(0, 1).to_pylist() == [
        {
            "key": b"k",
            "value": b"v",
            "topic": KEY.topic,
            "partition": 3,
            "offset": 100,
            "timestamp": published,
            "timestampType": 0,
            "message_id": "5:0:3:0",
            "publish_time": published,
            "event_time": happened,
            "properties": [("a", "1"), ("b", "2")],
            "ordering_key": b"o",
            "key_is_bytes": False,
            "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": b"2"}],
            "producer_name": "p",
            "sequence_id": 0,
            "schema_version": None,
            "replicated_from": None,
            "redelivery_count": None,
        }
    ]
    second = batch.slice(1, 1).to_pylist()[0]
    assert [second[name] for name in ("key", "key_is_bytes", "value", "event_time", "properties", "headers")] == [
        None,
        None,
        None,
        None,
        [],
        None,
    ]


def test_headers_keep_what_a_map_of_properties_cannot() -> None:
    """Kafka's headers may repeat a name, and the sink writes them so."""
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
    pairs = [{"key": "a", "value": "1"}, {"key": "b", "value": "ü"}, {"key": "a", "value": "2"}]
    batch = made(pa.record_batch({"value": pa.array([b"v", b"w"]), "properties": pa.array([pairs, []], kind)}))
    batch.validate(full=True)
    assert batch.column("headers").to_pylist() == [
        [{"key": pair["key"], "value": pair["value"].encode()} for pair in pairs],
        None,
    ]
    assert batch.column("properties").to_pylist() == [[("a", "2"), ("b", "ü")], []]


@pytest.mark.parametrize(("suffix", "number"), [("-partition-7", 7), ("-partition-x", -1), (f"-partition-{2**31}", -1)])
def test_a_partition_that_is_read_as_a_topic_has_its_number(suffix: str, number: int) -> None:
    """1.4.4: as other clients see it; a number that is none of 32 bits is part of a name."""
    key = TopicPartition(KEY.topic + suffix, 0)
    columns = TopicColumns(("message_id", "partition", "__topic"))
    rows = decoded(pa.record_batch({"value": pa.array([b"v"])}), messages_max=1)
    (row,) = ColumnMaker(key, columns, partitioned=False).make(rows).to_pylist()
    assert row == {"message_id": f"5:0:{number}", "partition": max(number, 0), "__topic": key.topic}


def test_a_topic_without_partitions_has_ids_without_a_partition() -> None:
    """1.4.4: -1 stands for no partition in the text of an id; the column partition is Kafka's and says 0."""
    batch = ColumnMaker(KEY._replace(partition=0), TopicColumns(), partitioned=False).make(
        decoded(pa.record_batch({"value": pa.array([b"v"])}), messages_max=1)
    )
    row = batch.to_pylist()[0]
    assert (row["message_id"], row["partition"], row["offset"]) == ("5:0:-1", 0, None)


numbers = st.integers(0, 2**63 - 1)
ids = st.tuples(numbers, numbers, st.integers(-1, 2**31 - 1))


@given(st.lists(ids, max_size=8).map(lambda found: [i for i in found for _ in range(2)]), st.integers(-1, 9999))
def test_the_text_of_an_id_is_that_of_message_id(found: list[tuple[int, int, int]], partition: int) -> None:
    """1.4.4: as MessageId writes it."""
    ledgers = pa.array([f[0] for f in found], pa.int64())
    entries = pa.array([f[1] for f in found], pa.int64())
    batches = pa.array([f[2] for f in found], pa.int32())
    expected = [str(MessageId(ledger, entry, partition, batch)) for ledger, entry, batch in found]
    columns = {"ledger": ledgers, "entry": entries, "batch_index": batches}
    texts = id_texts(pa.record_batch(columns), partition)
    texts.validate(full=True)
    assert texts.to_pylist() == expected


sized_ids = st.tuples(numbers, numbers, st.integers(-1, 2**31 - 2))


@given(st.lists(sized_ids, max_size=8), st.one_of(st.just(-1), st.integers(0, 2**31 - 1)))
def test_the_bytes_of_an_id_are_those_of_its_protobuf_message(
    found: list[tuple[int, int, int]], partition: int
) -> None:
    """Fields that an id does not have are left out."""
    ledgers, entries = (np.array([f[i] for f in found], np.int64) for i in (0, 1))
    batches, sizes = (np.array([f[2] + more for f in found], np.int32) for more in (0, 1))
    expected = []
    for ledger, entry, batch in found:
        message = MessageIdData(ledgerId=ledger, entryId=entry)
        if partition >= 0:
            message.partition = partition
        if batch >= 0:
            message.batch_index, message.batch_size = batch, batch + 1
        expected.append(message.SerializeToString())
    columns = {"ledger": ledgers, "entry": entries, "batch_index": batches, "batch_size": sizes}
    ids = id_bytes(pa.record_batch({name: pa.array(column) for name, column in columns.items()}), partition)
    ids.validate(full=True)
    assert ids.to_pylist() == expected


def test_pulsar_sparks_columns_are_the_same_messages_under_its_names() -> None:
    """The topic with its partition there, as it is called on the broker."""
    rows = decoded(
        pa.record_batch(
            {
                "key": pa.array([b"k"]),
                "value": pa.array([b"v"]),
                "event_time": pa.array([1_600_000_000_001]),
                "properties": pa.array([[("a", "1")]], pa.map_(pa.string(), pa.string())),
            }
        )
    )
    columns = TopicColumns(PULSAR_SPARK_COLUMNS)
    batch = ColumnMaker(KEY, columns, partitioned=True).make(rows)
    assert batch.schema == columns.arrow_schema()
    batch.validate(full=True)
    assert batch.to_pylist() == [
        {
            "value": b"v",
            "__key": b"k",
            "__topic": f"{KEY.topic}-partition-3",
            "__messageId": MessageIdData(
                ledgerId=5, entryId=0, partition=3, batch_index=0, batch_size=1
            ).SerializeToString(),
            "__publishTime": datetime.fromtimestamp(1_700_000_000.123, UTC),
            "__eventTime": datetime.fromtimestamp(1_600_000_000.001, UTC),
            "__messageProperties": [("a", "1")],
        }
    ]
    plain = ColumnMaker(KEY._replace(partition=0), TopicColumns(("__topic",)), partitioned=False).make(rows)
    assert plain.column("__topic").to_pylist() == [KEY.topic]


@pytest.mark.parametrize("rows", [1, 3, 20_000])
def test_constant_columns_are_as_long_as_the_batch(rows: int) -> None:
    """They are made once for the longest batch so far."""
    maker = ColumnMaker(KEY, TopicColumns(("topic", "partition", "timestampType")), partitioned=True)
    for count in (rows, 1, rows + 1):
        batch = maker.make(decoded(pa.record_batch({"value": pa.array([b"v"] * count)})))
        assert batch.num_rows == count
        assert batch.column("topic").unique().to_pylist() == [KEY.topic]
        assert batch.column("partition").unique().to_pylist() == [3]


@pytest.mark.parametrize("field", [StructField("value", StringType()), StructField("value", BinaryType(), False)])
def test_a_schema_that_is_not_the_source_s_own_is_refused_before_anything_is_read(field: StructField) -> None:
    """Also if it only forbids nulls: Spark would refuse every batch of rows, and not say why."""
    with pytest.raises(ConfigError, match=r"the one of this source, struct<value:binary>, all nullable; remove it"):
        check_user_schema(StructType([field]), ["value"])
    check_user_schema(StructType([StructField("value", BinaryType())]), ["value"])


def test_times_are_microseconds_up_to_the_last_that_64_bits_hold(caplog: pytest.LogCaptureFixture) -> None:
    """A producer may state any event time: what Spark cannot show is null and told, and stops no query."""
    last_ms = (2**63 - 1) // 1000

    def shown(*times: int) -> list[int | None]:
        rows = pa.record_batch({"value": pa.array([b"v"] * len(times), pa.binary()), "event_time": pa.array(times)})
        found: list[int | None] = made(rows).column("event_time").cast(pa.int64()).to_pylist()
        return found

    assert shown(0, last_ms, -last_ms, 0, 7) == [None, last_ms * 1000, -last_ms * 1000, None, 7000]
    assert not caplog.messages
    for beyond in (last_ms + 1, -last_ms - 1, 2**63 - 1, -(2**63)):
        caplog.clear()
        assert shown(1, beyond, 0, 2, beyond) == [1000, None, None, 2000, None]
        (told,) = caplog.messages
        assert f"column=event_time first_ms={beyond} " in told
