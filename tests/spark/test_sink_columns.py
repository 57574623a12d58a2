# SPDX-License-Identifier: Apache-2.0
"""The sink's columns: what is refused with which words, and how rows find their topic."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from broker_core.base.errors import ConfigError
from pulsarish_spark.options import Side, read_options, write_options
from pulsarish_spark.options.value_writing import value_writing_of
from pulsarish_spark.sink.columns import check_columns, lifted
from pulsarish_spark.sink.rows import Destination, split_by_topic


def columns(ddl: str) -> StructType:
    """A schema from its text; Spark's own parser needs a running session."""
    return StructType(
        [StructField(name, TYPES[kind]) for name, kind in (part.split(" ", 1) for part in ddl.split(", "))]
    )


TYPES: Final[dict[str, DataType]] = {
    "string": StringType(),
    "binary": BinaryType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "timestamp": TimestampType(),
    "struct<a:int>": StructType([StructField("a", IntegerType())]),
    "map<string,string>": MapType(StringType(), StringType()),
    "array<struct<key:string,value:binary>>": ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}

ERRORS = [
    (
        "k string",
        (
            "the sink takes no column k; it takes key, key_is_bytes, value, topic, partition, properties, headers, "
            "event_time, deliver_at, deliver_after, ordering_key, sequence_id; drop or rename it"
        ),
    ),
    ("value string, eventtime timestamp", 'the sink takes no column eventtime; did you mean "event_time"?'),
    ("key string", """there is no column value among key; example: df.selectExpr("to_json(struct(*)) AS value")"""),
    (
        "value struct<a:int>",
        (
            "column value is struct<a:int>, but the sink takes string or binary; "
            'example: df.withColumn("value", to_json("value"))'
        ),
    ),
    (
        "value int",
        (
            "column value is int, but the sink takes string or binary; "
            'example: df.withColumn("value", expr("CAST(value AS string)"))'
        ),
    ),
    ("value string, value binary", "there are several columns value; drop or rename all but one"),
    (
        "value string, event_time string",
        (
            "column event_time is string, but the sink takes timestamp; "
            'example: df.withColumn("event_time", expr("CAST(event_time AS timestamp)"))'
        ),
    ),
    (
        "value string, deliver_after string",
        (
            "column deliver_after is string, but the sink takes interval day to second or bigint; "
            'example: df.withColumn("deliver_after", expr("CAST(deliver_after AS interval day to second)"))'
        ),
    ),
    (
        "value string, headers map<string,string>",
        (
            "column headers is map<string,string>, but the sink takes array<struct<key:string,value:binary>>; "
            'example: df.withColumn("headers", expr("CAST(map_entries(headers) AS '
            'array<struct<key:string,value:binary>>)"))'
        ),
    ),
]


@pytest.mark.parametrize(("schema", "text"), ERRORS)
def test_rows_that_cannot_be_written_are_refused_before_anything_is(schema: str, text: str) -> None:
    """One line that names the column, its type, and the way out."""
    with pytest.raises(ConfigError) as caught:
        check_columns(columns(schema), "t")
    assert str(caught.value) == text


def test_a_topic_must_come_from_somewhere() -> None:
    """An option or a column."""
    with pytest.raises(ConfigError) as caught:
        check_columns(columns("value string"), "")
    assert str(caught.value) == (
        'there is neither an option topic nor a column topic; example: .option("topic", "flights")'
    )
    check_columns(columns("value string, topic string"), "")


def test_rows_of_the_source_can_be_written_as_they_are() -> None:
    """A topic is copied without a select."""
    source = (
        "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int, "
        "message_id string, publish_time timestamp, event_time timestamp, properties map<string,string>, "
        "ordering_key binary, key_is_bytes boolean, headers array<struct<key:string,value:binary>>"
    )
    check_columns(columns(source), "t")


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.record_batch(columns)


def test_the_option_topic_beats_the_column() -> None:
    """As in Kafka's sink."""
    rows = batch(value=pa.array(["a"]), topic=pa.array(["x"]))
    assert [(topic, partitions) for topic, _, partitions in split_by_topic(rows, "y", Destination)] == [("y", None)]


def test_rows_go_to_the_topic_and_partition_that_they_name() -> None:
    """A null partition leaves the choice to the key; a topic may be called in several ways, and by a partition."""
    rows = batch(
        value=pa.array(["a", "b", "c", "d", "e"]),
        topic=pa.array(["x", "y", "xx", "x", "x2"]),
        partition=pa.array([None, 0, None, 1, None], pa.int32()),
    )
    places = {"x": Destination("x"), "xx": Destination("x"), "x2": Destination("x", 2), "y": Destination("y")}
    found = {
        topic: (chosen.column("value").to_pylist(), [] if partitions is None else partitions.tolist())
        for topic, chosen, partitions in split_by_topic(rows, "", places.__getitem__)
    }
    assert found == {"x": (["a", "c", "d", "e"], [-1, -1, 1, 2]), "y": (["b"], [0])}


WITHOUT_PANDAS = """
import sys
import pyarrow as pa
from pulsarish_spark.sink.rows import Destination, message_rows, split_by_topic

for rows in pa.ipc.open_stream(sys.stdin.buffer.read()):
    for topic, chosen, partitions in split_by_topic(rows, "", Destination):
        print(topic, partitions, message_rows(chosen, "auto").num_rows)
print("pandas" in sys.modules)
"""


def test_rows_are_split_without_pandas() -> None:
    """Importing it takes a cold worker longer than a small task does; also with headers."""
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = batch(
        value=pa.array(["a", "b", "c"]),
        key=pa.array([b"text", b"\xff", None], pa.binary()),
        topic=pa.array(["x", "y", "x"]),
        partition=pa.array([None, 0, None], pa.int32()),
        headers=pa.array([[{"key": "a", "value": b"1"}], None, []], kind),
        properties=pa.array([[("a", "1")], [("b", "2")], None], pa.map_(pa.string(), pa.string())),
    )
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, rows.schema) as writer:
        writer.write(rows)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PANDAS], input=stream.getvalue().to_pybytes(), stdout=subprocess.PIPE, check=True
    )
    assert done.stdout.decode().split("\n") == ["x [-1 -1] 2", "y [0] 1", "False", ""]


def test_a_null_topic_is_an_error() -> None:
    """Dropping the row would be worse."""
    with pytest.raises(ConfigError, match="column topic is null in a row without a key, so it has nowhere to go"):
        split_by_topic(batch(value=pa.array(["a", "b"]), topic=pa.array(["x", None])), "", Destination)


def test_the_names_of_pulsar_spark_are_taken_where_the_option_says_so() -> None:
    """A frame of a pulsar-spark job is written as it is, its ids and publish times left out."""
    given = "__key binary, value binary, __topic string, __eventTime timestamp, __messageProperties map<string,string>"
    check_columns(columns(f"{given}, __messageId binary, __publishTime timestamp"), "", "pulsar-spark")
    check_columns(columns("value string, __eventTime long, partition int"), "t", "pulsar-spark")


@pytest.mark.parametrize(
    ("ddl", "names", "text"),
    [
        (
            "value string, __key string",
            "pulsarish",
            'the sink takes no column __key; it does with .option("columnNames", "pulsar-spark")',
        ),
        (
            "value string, __key int",
            "pulsar-spark",
            (
                "column __key is int, but the sink takes string or binary; "
                """example: df.withColumn("__key", expr("CAST(__key AS string)"))"""
            ),
        ),
        (
            "value string, __key string, key string",
            "pulsar-spark",
            "there are several columns __key and key; drop or rename all but one",
        ),
    ],
)
def test_columns_of_pulsar_spark_are_refused_by_their_own_names(ddl: str, names: str, text: str) -> None:
    """The user knows no other."""
    with pytest.raises(ConfigError) as caught:
        check_columns(columns(ddl), "t", names)
    assert str(caught.value) == text


# -- columns of values with a schema


TYPED: Final = value_writing_of({"valueFormat": "avro"})
LIFTED: Final = value_writing_of({"valueFormat": "avro", "flattenValue": True})


def test_value_of_a_schema_may_be_of_any_type_and_so_may_its_key() -> None:
    check_columns(columns("key string, value struct<a:int>"), "t", values=TYPED)
    for given in ({"valueFormat": "schema"}, {"valueFormat": "avro", "keyFormat": "primitive"}):
        check_columns(columns("key long, value struct<a:int>"), "t", values=value_writing_of(given))
    with pytest.raises(ConfigError, match="column key is bigint, but the sink takes string or binary"):
        check_columns(columns("key long, value string"), "t", values=TYPED)
    with pytest.raises(ConfigError, match="the sink takes no column a"):
        check_columns(columns("value string, a long"), "t", values=TYPED)


def test_columns_but_those_of_messages_are_fields() -> None:
    check_columns(columns("key string, id long, value long, __topic string"), "t", "pulsar-spark", LIFTED)
    assert lifted(["key", "id", "value", "topic"]) == ["id", "value"]
    for given, told in (
        ("key string", "there is no column that is a field of the value"),
        ("id long, timestamp timestamp", "column timestamp may be a field of the value, or that of a message"),
        ("id long, __key string", "the sink takes no column __key"),
        ("id long, key long", "column key is bigint, but the sink takes string or binary"),
    ):
        with pytest.raises(ConfigError, match=told):
            check_columns(columns(given), "t", values=LIFTED)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"recordName": "R"}, "option recordName means nothing where values are bytes"),
        ({"valueFormat": "raw", "keyFormat": "avro"}, "option keyFormat means nothing where values are bytes"),
        ({"valueFormat": "schema", "recordName": "R"}, "recordName means nothing here: no schema is made"),
        ({"valueFormat": "avro", "valueSchema": "{}", "recordNamespace": "a"}, "recordNamespace means nothing here"),
        ({"valueFormat": "int64", "valueSchema": "{}"}, "valueSchema means nothing with valueFormat=int64"),
        ({"valueFormat": "schema", "keyFormat": "avro"}, "keyFormat means nothing with valueFormat=schema"),
        ({"valueFormat": "avro", "keyFormat": "json", "keyForm": "text"}, "keyForm means nothing beside keyFormat"),
    ],
)
def test_options_of_values_that_mean_nothing_together_are_refused(given: dict[str, str], told: str) -> None:
    raw = {**given, "service.url": "pulsar://h:1"}
    if "valueSchema" in raw:
        raw["valueSchema"] = '"string"'
    with pytest.raises(ConfigError, match=told):
        write_options(raw, Side.BATCH_WRITE, {})


def test_primitive_of_the_column_is_no_way_to_read() -> None:
    with pytest.raises(ConfigError, match="valueFormat=primitive works in the sink alone"):
        read_options({"topic": "t", "service.url": "pulsar://h:1", "valueFormat": "primitive"}, Side.BATCH_READ, {})
