# SPDX-License-Identifier: Apache-2.0
"""The columns of the source: Spark's type, the Arrow type that Spark checks each batch against, and what they mean.

A topic has a declaration of its columns, ``TopicColumns``; all of one source have the same names and Spark types, as a
DataFrame has one schema. A source has the seven columns of Spark's Kafka source, ``KAFKA_COLUMNS``, unless an option
names others. How a column gets its values is in ``columns``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from broker_core.base.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

    from pulsarish_spark.rows.typed_values import TypedValues

HEADERS_COLUMN: Final = "headers"
REDELIVERY_COLUMN: Final = "redelivery_count"
RAW_VALUE_COLUMN: Final = "raw_value"
BAD_RECORD_COLUMN: Final = "bad_record"

_TEXT_MAP: Final = "map<string,string>"
_HEADERS: Final = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its type in Spark's words, the decoder's columns that it is made from, and its meaning."""

    name: str
    type: str
    decoded: tuple[str, ...]
    meaning: str


COLUMNS: Final = (
    Column("key", "binary", ("key",), "key as bytes; null where the message has none"),
    Column("value", "binary", ("value",), "payload; null where the producer sent an explicit null"),
    Column("topic", "string", (), "full name of the topic, without the partition"),
    Column(
        "partition",
        "int",
        (),
        "partition number, also of a partition that is read as a topic; 0 where the topic has no partitions",
    ),
    Column(
        "offset", "bigint", ("index",), "index of the message in its partition; null where the broker does not tell"
    ),
    Column("timestamp", "timestamp", ("publish_time",), "publish time"),
    Column("timestampType", "int", (), "0: the producer's clock made the timestamp"),
    Column("message_id", "string", ("ledger", "entry", "batch_index"), "ledger:entry:partition[:batch]"),
    Column("publish_time", "timestamp", ("publish_time",), "publish time, by Pulsar's name"),
    Column(
        "event_time",
        "timestamp",
        ("event_time",),
        "event time; null where the producer gave none, or one that no timestamp holds",
    ),
    Column(
        "properties",
        _TEXT_MAP,
        ("properties",),
        "properties; empty where there are none; of several with one name the last",
    ),
    Column("ordering_key", "binary", ("ordering_key",), "ordering key; null where the message has none"),
    Column(
        "key_is_bytes",
        "boolean",
        ("key_is_bytes",),
        "true where the producer gave the key as bytes, false where as text; null where the message has no key",
    ),
    Column(
        HEADERS_COLUMN,
        _HEADERS,
        ("property_pairs",),
        "properties in the form of Kafka's headers: all of them in their order; null where there are none",
    ),
    Column("producer_name", "string", ("producer_name",), "name of the producer"),
    Column(
        "sequence_id",
        "bigint",
        ("sequence_id",),
        "number that the producer gave the message; they rise within a producer's messages to one partition",
    ),
    Column(
        "schema_version",
        "bigint",
        ("schema_version",),
        "version of the topic's schema that the producer wrote with; null where it had none",
    ),
    Column(
        "replicated_from",
        "string",
        ("replicated_from",),
        "cluster that the message was sent to, where geo-replication brought it here; else null",
    ),
    Column(
        REDELIVERY_COLUMN,
        "int",
        (),
        "how often the broker has given out the message before, in a query with a subscriptionType; else null",
    ),
    Column(RAW_VALUE_COLUMN, "binary", ("value",), "payload as bytes, beside a value that has a type; not in all"),
    Column(
        BAD_RECORD_COLUMN,
        "string",
        (),
        "why the value cannot be decoded, with valueFormat and onBadRecord=null; else null; not in all",
    ),
    Column("__key", "binary", ("key",), "as key"),
    Column("__topic", "string", (), "full name of the topic, with -partition-N where it has partitions"),
    Column(
        "__messageId",
        "binary",
        ("ledger", "entry", "batch_index", "batch_size"),
        "id in the binary form of the official clients: MessageId.fromByteArray and its like read it",
    ),
    Column("__publishTime", "timestamp", ("publish_time",), "as publish_time"),
    Column("__eventTime", "timestamp", ("event_time",), "as event_time"),
    Column("__messageProperties", _TEXT_MAP, ("properties",), "as properties"),
)

_BY_NAME: Final = {column.name: column for column in COLUMNS}
KNOWN_COLUMNS: Final = tuple(_BY_NAME)
KAFKA_COLUMNS: Final = KNOWN_COLUMNS[:7]
ALL_COLUMNS: Final = tuple(
    name for name in KNOWN_COLUMNS if not name.startswith("__") and name not in (RAW_VALUE_COLUMN, BAD_RECORD_COLUMN)
)
"""The word ``all`` of the option ``columns``: pulsar-spark's names, and raw values, would have the same twice."""
PULSAR_SPARK_COLUMNS: Final = (
    "value",
    "__key",
    "__topic",
    "__messageId",
    "__publishTime",
    "__eventTime",
    "__messageProperties",
)
"""The columns of a source that is asked for pulsar-spark's names."""


def _spark_type(name: str) -> DataType:
    from pyspark.sql import types

    return {
        "binary": types.BinaryType(),
        "boolean": types.BooleanType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "string": types.StringType(),
        "timestamp": types.TimestampType(),
        _TEXT_MAP: types.MapType(types.StringType(), types.StringType()),
        _HEADERS: types.ArrayType(types.StructType().add("key", "string").add("value", "binary")),
    }[name]


def _arrow_type(name: str) -> pa.DataType:
    import pyarrow as pa

    return {
        "binary": pa.binary(),
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "string": pa.string(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        _TEXT_MAP: pa.map_(pa.string(), pa.string()),
        _HEADERS: pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    }[name]


@dataclass(frozen=True, slots=True)
class TopicColumns:
    """The columns that the rows of one topic have. A task carries its own to the executors.

    ``shown_topic``: the text of the column topic, "" for the full name. ``typed``: None where values are bytes.
    """

    names: tuple[str, ...] = KNOWN_COLUMNS
    shown_topic: str = ""
    typed: TypedValues | None = None

    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema that Spark expects of each batch with these columns."""
        import pyarrow as pa

        typed = {} if self.typed is None else self.typed.columns()
        own = {name: [pa.field(name, _arrow_type(_BY_NAME[name].type))] for name in self.names}
        return pa.schema([field for name in self.names for field in typed.get(name, own[name])])

    def decoded(self) -> set[str]:
        """The columns that the decoder must give for these. At least one: rows without columns are not counted."""
        typed = set[str]() if self.typed is None else self.typed.decoded(self.names)
        return typed | {needed for name in self.names for needed in _BY_NAME[name].decoded} or {"ledger"}


def spark_schema(names: Sequence[str], typed: TypedValues | None = None) -> StructType:
    """The schema of a source whose topics have these columns."""
    from pyspark.sql.types import StructField, StructType

    if typed is None:
        return StructType([StructField(name, _spark_type(_BY_NAME[name].type)) for name in names])
    from pyspark.sql.pandas.types import from_arrow_type

    columns = TopicColumns(tuple(names), typed=typed).arrow_schema()
    return StructType([StructField(each.name, from_arrow_type(each.type, True)) for each in columns])


def check_user_schema(user: StructType, names: Sequence[str], typed: TypedValues | None = None) -> None:
    """ConfigError unless ``user``, which came from ``.schema(...)``, is what the options give anyway."""
    own = spark_schema(names, typed)
    if [(f.name, f.dataType, f.nullable) for f in user.fields] != [(f.name, f.dataType, True) for f in own.fields]:
        raise ConfigError(
            f"the schema given with .schema(...) is not the one of this source, {own.simpleString()}, all nullable",
            hint='remove it; .option("columns", "key,value") chooses columns, from_json(value, ...) parses them',
        )
