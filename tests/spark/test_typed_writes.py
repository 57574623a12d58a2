# SPDX-License-Identifier: Apache-2.0
"""Rows written with a schema: of their columns, of the topic, or of the user; keys, versions, refusals, guarantees."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pulsar
import pytest
from pulsar.schema import AvroSchema, JsonSchema, Long, Record, String
from pyspark.sql import DataFrame, SparkSession

from broker_core.client import Client
from broker_core.schemas.info import SchemaType, VersionedSchema
from tests.schemas.infos import INT32, key_value
from tests.spark.brokers import Broker
from tests.spark.conftest import failure
from tests.spark.queries import finish
from tests.spark.typed import CITY, ID, LARGER, ORDER, orders, record, send
from tests.values.protobuf_infos import everything

pytestmark = pytest.mark.spark


class Order(Record):  # type: ignore[misc]
    """Orders as the official client has them."""

    id = Long()
    city = String()


ROWS = (
    "SELECT * FROM VALUES (named_struct('id', 1L, 'city', 'Oslo')), (named_struct('id', 2L, 'city', null)) AS t(value)"
)


def save(frame: DataFrame, cell: Broker, topic: str, **options: str) -> None:
    given = {"service.url": cell.service_url, "topic": topic, "valueFormat": "avro"} | options
    frame.write.format("pulsarish").options(**given).mode("append").save()


def back(spark: SparkSession, cell: Broker, topic: str, **options: str) -> DataFrame:
    given = {"service.url": cell.service_url, "valueFormat": "schema"} | options
    return spark.read.format("pulsarish").options(**given).load(topic)


def latest(cell: Broker, topic: str) -> VersionedSchema:
    with Client(cell.service_url) as client:
        found = client.get_schema(topic)
    assert found is not None
    return found


def received(cell: Broker, topic: str, schema: Any, count: int) -> list[Any]:
    """Values as the official client has them."""
    client = pulsar.Client(cell.service_url)
    try:
        reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=schema)
        return [reader.read_next(30_000).value() for _ in range(count)]
    finally:
        client.close()


# -- what is written is read


@pytest.mark.parametrize("form", ["avro", "json"])
def test_each_type_makes_the_round_trip(spark: SparkSession, cell: Broker, topic: str, form: str) -> None:
    """Widths of whole numbers are Avro's two; all else comes back as it was."""
    frame = spark.sql(
        """SELECT named_struct(
            'a', true, 'b', cast(1 AS tinyint), 'c', cast(2 AS smallint), 'd', 3, 'e', 4L, 'f', cast(0.5 AS float),
            'g', -2.5D, 'h', 'é"', 'i', X'00FF', 'j', date'1969-12-31', 'k', timestamp'2026-01-02 03:04:05.678901',
            'l', timestamp_ntz'1900-01-02 03:04:05.678901', 'm', cast(-1.25 AS decimal(38, 2)),
            'n', array(1, null), 'o', map('x', named_struct('y', 1.5D)), 'p', cast(null AS string)) AS value"""
    )
    save(frame, cell, topic, valueFormat=form)
    found = back(spark, cell, topic)
    kinds = (
        "boolean,int,int,int,bigint,float,double,string,binary,date,timestamp,timestamp_ntz,decimal(38,2),array<int>"
    )
    struct = found.select("value.*").schema
    assert ",".join(each.dataType.simpleString() for each in struct.fields[:14]) == kinds
    value = found.collect()[0].value.asDict(recursive=True)
    assert value == frame.collect()[0].value.asDict(recursive=True)
    assert value["k"] == dt.datetime(2026, 1, 2, 3, 4, 5, 678901)  # noqa: DTZ001 - Spark's own, in the session's zone
    assert (value["m"], value["p"]) == (Decimal("-1.25"), None)


@pytest.mark.parametrize(("form", "schema"), [("avro", AvroSchema(Order)), ("json", JsonSchema(Order))])
def test_official_client_reads_rows(spark: SparkSession, cell: Broker, topic: str, form: str, schema: Any) -> None:
    """Its own schema of the same record reads them, on the topic that has the one of the columns."""
    save(spark.sql(ROWS).coalesce(1), cell, topic, valueFormat=form, recordName="Order")
    found = received(cell, topic, schema, 2)
    assert [(each.id, each.city) for each in found] == [(1, "Oslo"), (2, None)]


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("'x'", "STRING"),
        ("7L", "INT64"),
        ("cast(7 AS tinyint)", "INT8"),
        ("-2.5D", "DOUBLE"),
        ("true", "BOOLEAN"),
        ("date'2000-01-01'", "LOCAL_DATE"),
        ("timestamp'2026-01-02 03:04:05.678901'", "INSTANT"),
        ("timestamp_ntz'2026-01-02 03:04:05.678901'", "LOCAL_DATE_TIME"),
    ],
)
def test_plain_value_is_of_a_primitive_type(spark: SparkSession, cell: Broker, topic: str, sql: str, kind: str) -> None:
    frame = spark.sql(f"SELECT {sql} AS value UNION ALL SELECT null")
    save(frame, cell, topic, valueFormat="primitive")
    assert latest(cell, topic).info.type is SchemaType[kind]
    assert {each.value for each in back(spark, cell, topic).collect()} == {each.value for each in frame.collect()}


def test_null_value_is_a_tombstone(spark: SparkSession, cell: Broker, topic: str) -> None:
    frame = spark.sql("SELECT 'k' AS key, if(id = 0, named_struct('id', id), null) AS value FROM range(2)")
    save(frame, cell, topic)
    assert {None if each.value is None else each.value.id for each in back(spark, cell, topic).collect()} == {0, None}
    raw = back(spark, cell, topic, valueFormat="raw").collect()
    assert {None if each.value is None else bytes(each.value) for each in raw} == {b"\x00", None}


def test_topic_is_copied_with_its_schema(spark: SparkSession, cell: Broker, topic: str) -> None:
    """Typed rows to a topic with another version of the schema; raw rows as bytes, as they always were."""
    send(cell, topic, ORDER, orders(ORDER, 1, 2), key="k")
    send(cell, f"{topic}-typed", LARGER, [])
    save(back(spark, cell, topic, columns="all"), cell, f"{topic}-typed", valueFormat="schema")
    rows = back(spark, cell, f"{topic}-typed", columns="all").collect()
    assert sorted((bytes(each.key), *each.value) for each in rows) == [(b"k", 1, "c1", "none"), (b"k", 2, "c2", "none")]
    assert {each.schema_version for each in rows} == {0}
    save(back(spark, cell, topic, columns="all", valueFormat="raw"), cell, f"{topic}-raw", valueFormat="raw")
    with Client(cell.service_url) as client:
        assert client.get_schema(f"{topic}-raw") is None


# -- versions


def test_second_run_with_one_more_column_is_the_next_version(spark: SparkSession, cell: Broker, topic: str) -> None:
    """By FULL, as columns that may be null have a default; the same columns are the same version."""
    frame = spark.sql(ROWS)
    save(frame, cell, topic)
    save(frame, cell, topic)
    assert latest(cell, topic).version == 0
    more = frame.selectExpr(
        "named_struct('id', value.id, 'city', value.city, 'note', concat(value.city, '!')) AS value"
    )
    save(more, cell, topic)
    assert latest(cell, topic).version == 1
    rows = back(spark, cell, topic, columns="value,schema_version").collect()
    assert sorted((each.schema_version, each.value.id, each.value.note) for each in rows if each.value.note) == [
        (1, 1, "Oslo!")
    ]
    assert len(rows) == 6


def test_incompatible_columns_are_refused_before_a_row(spark: SparkSession, cell: Broker, topic: str) -> None:
    """The error names field and strategy, and nothing is sent."""
    save(spark.sql(ROWS), cell, topic)
    told = failure(lambda: save(spark.sql("SELECT named_struct('id', 'one') AS value"), cell, topic))
    assert f"the schema of these rows cannot be added to persistent://public/default/{topic}: " in told
    assert "id" in told
    if cell.kind == "pulsarish":
        assert "not compatible with version 0 by FULL" in told
    assert back(spark, cell, topic).count() == 2


# -- schemas of the topic and of the user


def test_rows_go_out_with_the_schema_of_the_topic(spark: SparkSession, cell: Broker, topic: str) -> None:
    """Fields by their names, widened; those without a column have their default."""
    send(cell, topic, LARGER, [])
    save(spark.sql("SELECT named_struct('city', 'Oslo', 'id', 7) AS value"), cell, topic, valueFormat="schema")
    rows = back(spark, cell, topic, columns="value,schema_version").collect()
    assert [(tuple(each.value), each.schema_version) for each in rows] == [((7, "Oslo", "none"), 0)]


def test_users_schema_is_added_to_the_topic(spark: SparkSession, cell: Broker, topic: str) -> None:
    text = LARGER.data.decode()
    save(spark.sql("SELECT named_struct('id', 7) AS value"), cell, topic, valueFormat="json", valueSchema=text)
    assert (latest(cell, topic).info.type, json.loads(latest(cell, topic).info.data)) == (
        SchemaType.JSON,
        json.loads(text),
    )
    assert tuple(back(spark, cell, topic).collect()[0].value) == (7, None, "none")


def test_columns_become_messages_of_protobuf(spark: SparkSession, cell: Broker, topic: str) -> None:
    """By the descriptor in the topic's schema; what is null is absent."""
    send(cell, topic, everything(), [])
    frame = spark.sql(
        """SELECT named_struct('one_int64', id, 'word', if(id = 0, 'w', null), 'took', interval 1 second, 'inners',
           array(named_struct('x', 1)), 'by_name', map('a', named_struct('x', 2))) AS value FROM range(2)"""
    )
    save(frame, cell, topic, valueFormat="schema")
    rows = back(spark, cell, topic).selectExpr("value.one_int64", "value.word", "value.inners.x", "value.by_name.a.x")
    assert sorted(map(tuple, rows.collect())) == [(0, "w", [1], 2), (1, None, [1], 2)]


@pytest.mark.parametrize(
    ("sql", "options", "told"),
    [
        ("SELECT named_struct('id', 'x') AS value", {"valueFormat": "schema"},
         "column value.id is string, which does not fit its schema, long"),
        ("SELECT named_struct('id', 1L, 'town', 'x') AS value", {"valueFormat": "schema"},
         "column value.town is none of record Order"),
        ("SELECT named_struct('city', 'x') AS value", {"valueFormat": "schema"},
         "there is no column value.id, and the schema has no default for it"),
        ("SELECT named_struct('id', cast(null AS bigint)) AS value", {"valueFormat": "schema"},
         "a row without a key cannot be written: value.id is null, which its schema does not have"),
        ("SELECT named_struct('id', 1L) AS value, 7 AS key", {"valueFormat": "schema"},
         "column key is int32, and the schema of"),
        ("SELECT named_struct('a', named_struct('b', interval 1 day)) AS value", {},
         "column value.a.b is duration[us], and Avro has no such type; cast it"),
        ("SELECT named_struct('a', map(1, 2)) AS value", {},
         "column value.a is map<int32, int32>, and keys of Avro's maps are strings"),
        ("SELECT null AS value", {}, "column value is void, which no schema has"),
        ("SELECT array(1) AS value", {"valueFormat": "primitive"},
         "column value is list<element: int32 not null>, and no primitive schema has such values"),
        ("SELECT 'x' AS value", {"valueFormat": "int64"}, "column value is string, which is not written as INT64"),
        ("SELECT 1L AS id, 'x' AS offset", {"flattenValue": "true"}, "column offset may be a field of the value, or"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_written_are_refused(
    spark: SparkSession, broker: Broker, topic: str, sql: str, options: dict[str, str], told: str
) -> None:
    """Before the first row, naming the column; what only a row shows, before its batch is sent."""
    send(broker, topic, ORDER, [])
    assert told in failure(lambda: save(spark.sql(sql), broker, topic, **options))
    assert back(spark, broker, topic).count() == 0


def test_topic_without_a_schema_has_none_to_write_with(spark: SparkSession, broker: Broker, topic: str) -> None:
    told = failure(lambda: save(spark.sql(ROWS), broker, topic, valueFormat="schema"))
    assert f"{topic} has no schema, so valueFormat=schema says nothing" in told


# -- keys, fields beside others, topics in a column


def test_keys_have_a_schema_of_their_own(spark: SparkSession, cell: Broker, topic: str) -> None:
    """Pairs with separate keys: the encoded key is the key of the message, so that it decides the partition."""
    cell.create(topic, 3)
    frame = spark.sql("SELECT id AS key, named_struct('id', id) AS value FROM range(9)")
    save(frame, cell, topic, keyFormat="primitive")
    save(frame, cell, topic, valueFormat="schema", keyForm="text")  # A form of keys means those that are text or bytes.
    info = latest(cell, topic).info
    assert (info.type, info.properties["kv.encoding.type"]) == (SchemaType.KEY_VALUE, "SEPARATED")
    rows = back(spark, cell, topic, columns="key,value,partition").collect()
    assert sorted((each.key, each.value.id) for each in rows) == [(each, each) for each in range(9) for _ in "ab"]
    assert len({(each.key, each.partition) for each in rows}) == 9


def test_row_is_named_by_its_key_of_any_type(spark: SparkSession, broker: Broker, topic: str) -> None:
    send(broker, topic, key_value(INT32, ORDER, "SEPARATED"), [])
    frame = spark.sql("SELECT 7 AS key, named_struct('id', cast(null AS bigint)) AS value")
    told = failure(lambda: save(frame, broker, topic, valueFormat="schema"))
    assert "the row with the key '7' cannot be written: value.id is null, which its schema does not have" in told


def test_keys_that_are_records_make_the_round_trip(spark: SparkSession, broker: Broker, topic: str) -> None:
    frame = spark.sql("SELECT named_struct('a', id) AS key, named_struct('id', id) AS value FROM range(2)")
    save(frame, broker, topic, valueFormat="json", keyFormat="avro", recordName="R")
    assert sorted((each.key.a, each.value.id) for each in back(spark, broker, topic).collect()) == [(0, 0), (1, 1)]
    assert '"name":"R_key"' in latest(broker, topic).info.data.decode(errors="replace")


def test_pairs_of_the_topic_are_written_inline(spark: SparkSession, broker: Broker, topic: str) -> None:
    """The key is in the payload, and the message has none."""
    send(broker, topic, key_value(record(ID, name="K"), record(CITY)), [])
    frame = spark.sql("SELECT named_struct('id', id) AS key, named_struct('city', 'Oslo') AS value FROM range(2)")
    save(frame, broker, topic, valueFormat="schema")
    rows = back(spark, broker, topic).collect()
    assert sorted((each.key.id, each.value.city) for each in rows) == [(0, "Oslo"), (1, "Oslo")]
    assert {each.key for each in back(spark, broker, topic, valueFormat="raw").collect()} == {None}
    told = failure(lambda: save(frame.select("value"), broker, topic, valueFormat="schema"))
    assert f"the schema of persistent://public/default/{topic} has keys and values, and there is no column key" in told


def test_fields_stand_beside_the_columns_of_messages(spark: SparkSession, broker: Broker, topic: str) -> None:
    frame = spark.sql("SELECT 'k' AS key, 1L AS id, 'Oslo' AS city, 2 AS value")
    save(frame, broker, topic, flattenValue="true")
    rows = back(spark, broker, topic, columns="key,value", flattenValue="true").collect()
    assert [(bytes(each.key), each.id, each.city, each.value) for each in rows] == [(b"k", 1, "Oslo", 2)]


def test_column_that_may_be_a_field_or_the_messages_is_refused(spark: SparkSession, broker: Broker, topic: str) -> None:
    send(broker, topic, record(ID, {"name": "key", "type": "string", "default": ""}), [])
    frame = spark.sql("SELECT 'k' AS key, 1L AS id")
    told = failure(lambda: save(frame, broker, topic, valueFormat="schema", flattenValue="true"))
    assert "column key may be a field of the value, or say the key of the message" in told


def test_each_topic_of_a_column_gets_its_schema(spark: SparkSession, broker: Broker, topic: str) -> None:
    """The record is named by its topic; a topic that has a schema may keep it."""
    frame = spark.sql(f"SELECT concat('{topic}-', id) AS topic, named_struct('id', id) AS value FROM range(4)")
    given = {"service.url": broker.service_url, "valueFormat": "avro"}
    frame.write.format("pulsarish").options(**given).mode("append").save()
    assert json.loads(latest(broker, f"{topic}-3").info.data)["name"] == f"{topic}-3".replace("-", "_")
    frame.write.format("pulsarish").options(**given | {"valueFormat": "schema"}).mode("append").save()
    assert [each.value.id for each in back(spark, broker, f"{topic}-2").collect()] == [2, 2]


# -- streams and guarantees


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_streams_write_values_with_a_schema(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path, guarantee: str
) -> None:
    """Each micro-batch with the version of its columns."""
    send(broker, topic, ORDER, orders(ORDER, *range(5)))
    stream = spark.readStream.format("pulsarish").options(
        **{"service.url": broker.service_url, "valueFormat": "schema", "startingOffsets": "earliest"}
    )
    given = {"service.url": broker.service_url, "topic": f"{topic}-out", "valueFormat": "json"}
    for number in range(2):
        query = stream.load(topic).select("value").writeStream.format("pulsarish").options(**given)
        query = query.option("deliveryGuarantee", guarantee).option("checkpointLocation", str(tmp_path))
        finish(query.trigger(availableNow=True).start())
        if not number:
            send(broker, topic, ORDER, orders(ORDER, 5))
    rows = back(spark, broker, f"{topic}-out", columns="value,schema_version").collect()
    assert sorted((each.value.id, each.schema_version) for each in rows) == [(each, 0) for each in range(6)]


def test_stream_of_columns_that_no_schema_has_is_refused(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    rows = spark.readStream.format("rate").load().selectExpr("named_struct('a', interval 1 day) AS value")
    given = {"service.url": broker.service_url, "topic": topic, "valueFormat": "avro"}
    query = rows.writeStream.format("pulsarish").options(**given).option("checkpointLocation", str(tmp_path))
    assert "column value.a is duration[us], and Avro has no such type" in failure(lambda: finish(query.start()))
