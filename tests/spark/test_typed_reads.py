# SPDX-License-Identifier: Apache-2.0
"""Values with a schema as columns of Spark: batch, stream, queue and Arrow; several versions in a batch; evolution."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from broker_core.base.errors import ConfigError, PulsarishError
from broker_core.schemas.info import SchemaInfo, SchemaType
from pulsarish_spark import export_batch, read_arrow, replay
from tests.schemas.infos import key_value
from tests.spark.brokers import Broker
from tests.spark.conftest import failure
from tests.spark.queries import drain
from tests.spark.typed import CITY, ID, LARGER, NOTE, ORDER, avro_bytes, orders, record, send
from tests.values.protobuf_infos import everything, message_of

pytestmark = pytest.mark.spark


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("value.id").collect())


def read(cell: Broker, topic: str | None = None, **options: Any) -> Any:
    """A typed read without Spark, as a table."""
    given = {"valueFormat": "schema", "columns": "value", "service.url": cell.service_url, **options}
    return read_arrow(topic, **given).read_all()


def values(cell: Broker, topic: str, **options: Any) -> list[Any]:
    found: list[Any] = read(cell, topic, **options)["value"].to_pylist()
    return found


def spark_read(spark: SparkSession, cell: Broker, topic: str, **options: str) -> DataFrame:
    given = {"service.url": cell.service_url, "valueFormat": "schema", **options}
    return spark.read.format("pulsarish").options(**given).load(topic)


def spark_stream(spark: SparkSession, cell: Broker, topic: str, **options: str) -> DataFrame:
    given = {"service.url": cell.service_url, "valueFormat": "schema", "startingOffsets": "earliest", **options}
    return spark.readStream.format("pulsarish").options(**given).load(topic)


# -- each way of reading


def test_batch_of_two_versions_has_the_columns_of_the_newest(spark: SparkSession, cell: Broker, topic: str) -> None:
    """Each message is decoded by its own version, fields that it does not have have their defaults; a tombstone
    is null. All other columns stay as they are."""
    send(cell, topic, ORDER, orders(ORDER, 1, 2), key="k")
    send(cell, topic, LARGER, [*orders(LARGER, 3, note="n"), None])
    frame = spark_read(spark, cell, topic)
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert frame.schema["value"].dataType.simpleString() == "struct<id:bigint,city:string,note:string>"
    rows = {None if row.value is None else row.value.id: row for row in frame.collect()}
    assert rows[1].value == Row(id=1, city="c1", note="none")
    assert rows[3].value == Row(id=3, city="c3", note="n")
    assert bytes(rows[1].key) == b"k"
    assert rows[None].value is None
    assert len(rows) == 4
    assert frame.where("value.id > 1").count() == 2


def test_stream_keeps_its_columns_and_a_restart_has_the_new_ones(
    spark: SparkSession, cell: Broker, topic: str, tmp_path: Path
) -> None:
    """Rows of a newer version are made to fit the query that runs; made anew, it has the newest columns."""
    send(cell, topic, ORDER, orders(ORDER, 1))
    seen: list[tuple[list[str], list[int]]] = []

    def sink(batch: DataFrame, _: int) -> None:
        if found := ids(batch):
            seen.append((batch.select("value.*").columns, found))

    old = spark_stream(spark, cell, topic)
    drain(old, tmp_path, sink)
    send(cell, topic, LARGER, orders(LARGER, 2, note="n"))
    drain(old, tmp_path, sink)
    send(cell, topic, LARGER, orders(LARGER, 3, note="n"))
    drain(spark_stream(spark, cell, topic), tmp_path, sink)
    assert seen == [(["id", "city"], [1]), (["id", "city"], [2]), (["id", "city", "note"], [3])]


def test_shared_subscription_has_typed_values(spark: SparkSession, cell: Broker, topic: str, tmp_path: Path) -> None:
    """In queue mode, too."""
    send(cell, topic, ORDER, orders(ORDER, 1, 2))
    found: list[int] = []
    queue = {"subscriptionType": "Shared", "subscriptionName": "work", "availableNowQuietMs": "700"}
    drain(spark_stream(spark, cell, topic, **queue), tmp_path, lambda batch, _: found.extend(ids(batch)))
    assert sorted(found) == [1, 2]


def test_exported_batch_is_replayed_with_its_columns(
    spark: SparkSession, cell: Broker, topic: str, tmp_path: Path
) -> None:
    """The file has what a replay needs, with Spark and without."""
    send(cell, topic, ORDER, orders(ORDER, 1, 2))
    drain(spark_stream(spark, cell, topic), tmp_path / "checkpoint", lambda batch, _: batch.foreach(print))
    file = tmp_path / "batch.parquet"
    where: dict[str, Any] = {"service.url": cell.service_url, "valueFormat": "schema"}
    assert export_batch(tmp_path / "checkpoint", file, **where).rows == 2
    assert replay(file).read_all()["value"].to_pylist() == [{"id": each, "city": f"c{each}"} for each in (1, 2)]
    assert ids(spark.read.format("pulsarish").option("replayFile", str(file)).load()) == [1, 2]


# -- which schema


def test_pinned_version_and_schema_of_the_user(cell: Broker, topic: str) -> None:
    """The target is a version that is named, or a schema that the topic does not have."""
    send(cell, topic, ORDER, orders(ORDER, 1))
    send(cell, topic, LARGER, orders(LARGER, 2, note="n"))
    assert values(cell, topic, schemaVersion=0) == [{"id": 1, "city": "c1"}, {"id": 2, "city": "c2"}]
    wanted = record({"name": "id", "type": "double"}, NOTE).data.decode()
    found = values(cell, topic, valueFormat="avro", valueSchema=wanted)
    assert found == [{"id": 1.0, "note": "none"}, {"id": 2.0, "note": "n"}]


def test_pinned_version_is_that_of_the_topic_which_is_there_now(cell: Broker, topic: str) -> None:
    """Not that of a topic which had the name before, though this process has asked for it."""
    send(cell, topic, ORDER, orders(ORDER, 1))
    assert values(cell, topic, schemaVersion=0) == [{"id": 1, "city": "c1"}]
    cell.delete(topic)
    send(cell, topic, LARGER, orders(LARGER, 2, note="n"))
    assert values(cell, topic, schemaVersion=0) == [{"id": 2, "city": "c2", "note": "n"}]


def test_topic_without_a_schema_is_read_by_one_of_the_users(cell: Broker, topic: str) -> None:
    """Messages without a version were written by the schema of the query, unless an option says otherwise."""
    send(cell, topic, None, [b'{"id": 1, "city": "c", "more": 1}', None])
    options: Any = {"valueFormat": "json", "valueSchema": ORDER.data.decode()}
    assert values(cell, topic, **options) == [{"id": 1, "city": "c"}, None]
    assert values(cell, topic, **options, schemalessAs="null") == [None, None]
    with pytest.raises(PulsarishError, match=r"schema version none, cannot be decoded: .*schemalessAs is bad"):
        values(cell, topic, **options, schemalessAs="bad")
    assert values(cell, topic, **options, schemalessAs="bad", onBadRecord="skip") == [None]
    assert values(cell, topic, valueFormat="string")[1] is None


def test_schema_that_cannot_be_had_is_an_error_with_a_way_out(cell: Broker, topic: str) -> None:
    """No schema, no such version, no broker, different schemas of several topics."""
    send(cell, topic, None, [b"x"])
    with pytest.raises(ConfigError, match=r"has no schema; .*valueFormat.*avro.*raw"):
        read(cell, topic)
    send(cell, topic, ORDER, [])
    with pytest.raises(ConfigError, match="has no version 7 of its schema"):
        read(cell, topic, schemaVersion=7)
    with pytest.raises(ConfigError, match=r"asks the broker for the schema of .*, which failed: "):
        read(cell, topic, **{"service.url": "pulsar://127.0.0.1:1", "operationTimeoutMs": 200})
    send(cell, f"{topic}-other", LARGER, [])
    with pytest.raises(ConfigError, match=r"have different schemas, and a DataFrame has one; .*one by one"):
        read(cell, topics=f"{topic},{topic}-other")
    send(cell, f"{topic}-same", ORDER, orders(ORDER, 1))
    assert read(cell, topics=f"{topic},{topic}-same", schemalessAs="null").num_rows == 2


def test_topic_that_was_made_anew_has_other_versions(cell: Broker, topic: str) -> None:
    """Of the same numbers, and this process has read the former ones."""
    send(cell, topic, ORDER, orders(ORDER, 1))
    assert values(cell, topic) == [{"id": 1, "city": "c1"}]
    cell.delete(topic)
    other = record({"name": "count", "type": "int"}, {"name": "note", "type": "string"})
    send(cell, topic, other, [avro_bytes(other, {"count": 3, "note": "n"})])
    assert values(cell, topic) == [{"count": 3, "note": "n"}]


def test_spark_shows_the_reason_at_load(spark: SparkSession, cell: Broker, topic: str) -> None:
    """Where the DataFrame is made, not in its first task."""
    send(cell, topic, None, [b"x"])
    assert "has no schema" in failure(lambda: spark_read(spark, cell, topic))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"onBadRecord": "skip"}, "option onBadRecord means nothing where values are bytes"),
        ({"valueFormat": "avro"}, "valueFormat=avro needs a schema"),
        ({"valueFormat": "schema", "valueSchema": '"int"'}, "valueSchema means nothing with valueFormat=schema"),
        ({"valueFormat": "string", "schemaVersion": "1"}, "schemaVersion means nothing with valueFormat=string"),
        ({"valueFormat": "avro", "valueSchema": "{"}, 'option valueSchema="{" is not valid'),
        ({"valueFormat": "string", "onBadRecord": "dead-letter"}, "needs the topic that bad records go to"),
        ({"valueFormat": "thrift"}, "it takes one of raw, schema, avro, json, primitive, string"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, str], error: str) -> None:
    """Before any broker is asked."""
    with pytest.raises(ConfigError, match=error):
        read_arrow("t", **options, **{"service.url": "pulsar://127.0.0.1:1"})


# -- columns


def test_fields_may_stand_beside_other_columns(cell: Broker, topic: str) -> None:
    """A clash is refused, and so are names that differ only in case."""
    send(cell, topic, ORDER, [*orders(ORDER, 1), None])
    rows = read(cell, topic, columns="topic,value,partition", flattenValue="true", topicNames="short").to_pylist()
    assert rows[0] == {"topic": topic, "id": 1, "city": "c1", "partition": 0}
    assert rows[1]["id"] is None
    options: Any = {"valueFormat": "avro", "flattenValue": "true"}
    with pytest.raises(ConfigError, match="records without fields, so flattenValue leaves no column"):
        read(cell, topic, **options, valueSchema=record().data.decode())
    clash = record(ID, {"name": "Topic", "type": "int"}).data.decode()
    with pytest.raises(
        ConfigError, match="the field Topic of values clashes with the column topic; leave flattenValue"
    ):
        read(cell, topic, **options, columns="value,topic", valueSchema=clash)
    alike = record(ID, {"name": "ID", "type": "int", "default": 1}).data.decode()
    with pytest.raises(ConfigError, match="differ from each other only in case: ID"):
        read(cell, topic, **options, valueSchema=alike)


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
def test_keys_and_values_are_typed(spark: SparkSession, cell: Broker, topic: str, encoding: str) -> None:
    """KEY_VALUE gives both columns a type, wherever the key is; __key stays as it is."""
    schema = key_value(SchemaInfo(SchemaType.INT32), ORDER, encoding)
    key, (value,) = (7).to_bytes(4, "big"), orders(ORDER, 1)
    if encoding == "INLINE":
        joined = len(key).to_bytes(4, "big") + key + len(value).to_bytes(4, "big") + value
        send(cell, topic, schema, [joined])
    else:
        send(cell, topic, schema, [value, None], key=key)
    frame = spark_read(spark, cell, topic, columns="key,value")
    assert frame.schema.simpleString() == "struct<key:int,value:struct<id:bigint,city:string>>"
    rows = frame.collect()
    assert rows[0] == Row(key=7, value=Row(id=1, city="c1"))
    assert rows[1:] == ([] if encoding == "INLINE" else [Row(key=7, value=None)])


def test_values_that_are_not_read_are_not_decoded(cell: Broker, topic: str) -> None:
    """A column that is not read costs nothing, and cannot fail."""
    send(cell, topic, ORDER, [b"\xff"])
    assert read(cell, topic, columns="partition").to_pylist() == [{"partition": 0}]


def test_record_within_itself_takes_a_depth(cell: Broker, topic: str) -> None:
    """Refused with its path, or cut."""
    node = {"name": "next", "type": ["null", "Node"], "default": None}
    schema = record(ID, node, name="Node")
    send(cell, topic, schema, [b"\2\2\4\2\6\0"])
    with pytest.raises(ConfigError, match=r"values cannot be columns: next: record Node is within itself"):
        read(cell, topic)
    assert values(cell, topic, recursiveDepth=1) == [{"id": 1, "next": {"id": 2, "next": None}}]


def test_protobuf_messages_are_structs(spark: SparkSession, cell: Broker, topic: str) -> None:
    """By their descriptors: every type, with Spark's own, and the payload that is cut."""
    schema = everything()
    payload = message_of(
        schema,
        one_uint64=2**64 - 1,
        one_uint32=2**32 - 1,
        many_bytes=[b"b"],
        colour=2,
        inner={"x": 1},
        time={"seconds": 1, "nanos": 5000},
        took={"seconds": 90},
        wrapped={"value": 7},
        word="w",
        by_name={"a": {"x": 3}},
    )
    send(cell, topic, schema, [payload, payload[:-1], None])
    frame = spark_read(spark, cell, topic, columns="value", onBadRecord="null")
    row, cut, tombstone = frame.selectExpr(
        *("value.one_uint64", "value.one_uint32", "value.many_bytes[0]", "value.colour", "value.inner.x"),
        *("cast(value.time as string)", "extract(second from value.took)", "value.wrapped", "value.number"),
        *("value.word", "value.by_name['a'].x"),
    ).collect()
    expected = (Decimal(2**64 - 1), 2**32 - 1, b"b", "BLUE", 1, "1970-01-01 00:00:01.000005", 30, 7, None, "w", 3)
    assert tuple(bytes(each) if isinstance(each, bytearray) else each for each in row) == expected
    assert {*cut} == {*tombstone} == {None}


MS = 1_700_000_000_123
DAY = 10_957  # 2000-01-01
PRIMITIVES = [
    ("BOOLEAN", b"\1", "boolean", "true"),
    ("INT8", b"\xfe", "tinyint", "-2"),
    ("INT16", b"\1\2", "smallint", "258"),
    ("INT32", b"\xff\xff\xff\xff", "int", "-1"),
    ("INT64", (1).to_bytes(8, "big"), "bigint", "1"),
    ("FLOAT", bytes.fromhex("3fc00000"), "float", "1.5"),
    ("DOUBLE", bytes.fromhex("c004000000000000"), "double", "-2.5"),
    ("STRING", "é".encode(), "string", "é"),
    ("DATE", MS.to_bytes(8, "big"), "timestamp", "2023-11-14 22:13:20.123"),
    ("TIME", (1000).to_bytes(8, "big"), "bigint", "1000000000"),
    ("TIMESTAMP", MS.to_bytes(8, "big"), "timestamp", "2023-11-14 22:13:20.123"),
    ("INSTANT", (1).to_bytes(8, "big") + (5000).to_bytes(4, "big"), "timestamp", "1970-01-01 00:00:01.000005"),
    ("LOCAL_DATE", DAY.to_bytes(8, "big"), "date", "2000-01-01"),
    ("LOCAL_TIME", (10**9).to_bytes(8, "big"), "bigint", "1000000000"),
    ("LOCAL_DATE_TIME", DAY.to_bytes(8, "big") + (10**9).to_bytes(8, "big"), "timestamp_ntz", "2000-01-01 00:00:01"),
]


def test_every_primitive_type_is_a_column_of_spark(spark: SparkSession, cell: Broker, topic: str) -> None:
    """By the topic's schema, and named by the user."""
    for name, payload, kind, shown in PRIMITIVES:
        one = f"{topic}-{name}"
        send(cell, one, SchemaInfo(SchemaType[name]), [payload, None])
        for form in ("schema", name.lower()):
            frame = spark_read(spark, cell, one, columns="value", valueFormat=form)
            assert frame.schema["value"].dataType.simpleString() == kind
            assert {row[0] for row in frame.selectExpr("cast(value as string)").collect()} == {shown, None}


NESTED = {
    "type": "record",
    "name": "All",
    "fields": [
        {"name": "yes", "type": "boolean"},
        {"name": "i", "type": "int"},
        {"name": "f", "type": "float"},
        {"name": "d", "type": "double"},
        {"name": "b", "type": "bytes"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "raw", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "lines", "type": {"type": "array", "items": json.loads(record(ID, CITY, name="Line").data)}},
        {"name": "one", "type": ["null", "string", "long"]},
        {"name": "wide", "type": ["null", "int", "long"]},
    ],
}
TYPES = (
    "struct<yes:boolean,i:int,f:float,d:double,b:binary,day:date,at:timestamp,local:timestamp_ntz,price:decimal(9,2),"
    "kind:string,raw:binary,tags:array<string>,counts:map<string,bigint>,lines:array<struct<id:bigint,city:string>>,"
    "one:struct<member0:string,member1:bigint>,wide:bigint>"
)


def test_every_avro_type_is_a_column_of_spark(spark: SparkSession, cell: Broker, topic: str) -> None:
    """The type table, through Spark itself, by values that another library wrote."""
    schema = SchemaInfo(SchemaType.AVRO, json.dumps(NESTED).encode())
    at = dt.datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=dt.UTC)
    local = dt.datetime(2026, 1, 2, 3, 4, 5, 6)  # noqa: DTZ001 - a local time has no zone
    value = {
        "yes": True,
        "i": 1,
        "f": 1.5,
        "d": 2.5,
        "b": b"b",
        "day": at.date(),
        "at": at,
        "local": local,
        "price": Decimal("12.34"),
        "kind": "B",
        "raw": b"1234",
        "tags": ["t", None],
        "counts": {"n": 3},
        "lines": [{"id": 1, "city": None}],
        "one": 5,
        "wide": 2**40,
    }
    send(cell, topic, schema, [avro_bytes(schema, value)] * 2)
    frame = spark_read(spark, cell, topic, columns="value")
    assert frame.schema["value"].dataType.simpleString() == TYPES
    row = frame.selectExpr("value.*", "cast(value.at as string) as at_text").first()
    assert row is not None
    found = row.asDict(recursive=True)
    assert found.pop("at_text") == "2026-01-02 03:04:05.006"
    found.pop("at")
    expected = {name: each for name, each in value.items() if name != "at"}
    assert found == expected | {"one": {"member0": None, "member1": 5}, "b": b"b", "raw": b"1234"}
