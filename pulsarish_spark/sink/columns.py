# SPDX-License-Identifier: Apache-2.0
"""The columns that the sink takes, checked before anything is written.

Names are those of the source, so a topic can be copied as it is; columns of the source that a broker makes itself
(offset, timestamp, ...) are left out. Any other column is an error: a misspelt ``event_time`` must not vanish. The
option columnNames says whose names they are, ours or pulsar-spark's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from broker_core.base.errors import ConfigError
from broker_core.base.suggest import did_you_mean
from pulsarish_spark.options.value_writing import ValueWriting

if TYPE_CHECKING:
    import pyarrow as pa

BYTES: Final = ValueWriting()

_TEXT_OR_BYTES: Final = "string or binary"
_HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"
_PROPERTIES_TYPE: Final = "map<string,string>"
_DELAY_TYPE: Final = "interval day to second or bigint"
_NUMBERS: Final = (ShortType, IntegerType, LongType)
_PLAIN_TYPES: Final[dict[str, tuple[type[DataType], ...]]] = {
    _TEXT_OR_BYTES: (StringType, BinaryType),
    _DELAY_TYPE: (DayTimeIntervalType, *_NUMBERS),
    "bigint": _NUMBERS,
    "boolean": (BooleanType,),
    "int": _NUMBERS,
    "string": (StringType,),
    "timestamp": (TimestampType,),
}

PULSAR_SPARK_NAMES: Final = {
    "__key": "key",
    "__topic": "topic",
    "__eventTime": "event_time",
    "__messageProperties": "properties",
    "__messageId": "message_id",
    "__publishTime": "publish_time",
}
"""Ours, by theirs; ``value`` is called the same."""

_NAMES: Final[dict[str, Mapping[str, str]]] = {"pulsar-spark": PULSAR_SPARK_NAMES, "pulsarish": {}}


class SinkColumn(NamedTuple):
    """The type that a column must have, in the words of error texts, and its meaning."""

    type_words: str
    meaning: str


SINK_COLUMNS: Final = {
    "key": SinkColumn(_TEXT_OR_BYTES, "key; decides the partition"),
    "key_is_bytes": SinkColumn(
        "boolean",
        "true: the key goes out as bytes, base64-encoded on its way; false: as text; null, or no such column: as text "
        "where it is UTF-8. The option keyForm beats it",
    ),
    "value": SinkColumn(
        _TEXT_OR_BYTES,
        "payload; null is sent as an explicit null. With valueFormat any type that the schema has, and so may the key",
    ),
    "topic": SinkColumn("string", "where the row goes, unless the option topic says so"),
    "partition": SinkColumn("int", "partition number; beats the key"),
    "properties": SinkColumn(_PROPERTIES_TYPE, "properties of the message"),
    "headers": SinkColumn(
        _HEADERS_TYPE,
        "the same in the form of Kafka's headers; order and duplicates are kept, values must be UTF-8. A row may have "
        "both if they say the same",
    ),
    "event_time": SinkColumn(
        "timestamp",
        "event time, cut to milliseconds. Exactly 1970-01-01T00:00:00Z is Pulsar's 0, which means none: it is read as "
        "null, and a warning of the task says so",
    ),
    "deliver_at": SinkColumn("timestamp", "not before this time, for Shared and Key_Shared consumers; null: at once"),
    "deliver_after": SinkColumn(
        _DELAY_TYPE,
        "the same as a time after sending: an interval, or milliseconds. A row may have one of both; the option "
        "deliverAfterMs is for rows that have neither",
    ),
    "ordering_key": SinkColumn(_TEXT_OR_BYTES, "decides the consumer of a Key_Shared subscription, instead of the key"),
    "sequence_id": SinkColumn(
        "bigint",
        "number of the message, from 0 on; rows of one task and partition must come with rising ones. Without the "
        "column, or null in all rows, they are numbered",
    ),
}

_LEFT_OUT: Final = frozenset(
    {
        "offset",
        "timestamp",
        "timestampType",
        "message_id",
        "publish_time",
        "producer_name",
        "schema_version",
        "replicated_from",
        "redelivery_count",
    }
)

MESSAGE_COLUMNS: Final = (
    *("key", "key_is_bytes", "value", "ordering_key", "properties", "event_time", "deliver_at", "sequence_id"),
)
"""The columns that an entry is made from; ``headers`` come as ``properties``."""


def lifted(names: Iterable[str]) -> list[str]:
    """The columns that are fields of the value with flattenValue: all but those of messages."""
    return [name for name in names if name == "value" or name not in SINK_COLUMNS]


def check_columns(
    schema: StructType, topic_option: str, column_names: str = "pulsarish", values: ValueWriting = BYTES
) -> None:
    """ConfigError unless rows of ``schema`` can be written; the options ``topic``, "" without it, and columnNames.

    Columns that a schema says the type of are not looked at.
    """
    given: dict[str, str] = {}
    typed = {name for name, is_typed in (("value", values.is_typed), ("key", values.may_type_keys)) if is_typed}
    for field in schema.fields:
        own = own_name(field.name, column_names)
        if own in given:
            names = [given[own]] if given[own] == field.name else [given[own], field.name]
            raise ConfigError(f"there are several columns {' and '.join(names)}", hint="drop or rename all but one")
        given[own] = field.name
        if values.flatten and own in _LEFT_OUT:
            raise ConfigError(
                f"column {field.name} may be a field of the value, or that of a message which the broker makes anew",
                hint="drop or rename it, or leave flattenValue out",
            )
        _check_name(field.name, own)
        if own not in typed and not (values.flatten and lifted([own])):
            _check_column(field, own)
    if values.flatten and not lifted(given):
        raise ConfigError("there is no column that is a field of the value", hint="leave flattenValue out")
    if "value" not in given and not values.flatten:
        raise ConfigError(
            f"there is no column value among {', '.join(given.values()) or 'no columns'}",
            hint='example: df.selectExpr("to_json(struct(*)) AS value")',
        )
    if not topic_option and "topic" not in given:
        raise ConfigError(
            "there is neither an option topic nor a column topic", hint='example: .option("topic", "flights")'
        )


def _check_name(name: str, own: str) -> None:
    if name in PULSAR_SPARK_NAMES and own == name:
        raise ConfigError(
            f"the sink takes no column {name}", hint='it does with .option("columnNames", "pulsar-spark")'
        )


def _check_column(field: StructField, own: str) -> None:
    """``own``: what the sink calls this column."""
    name, found = field.name, field.dataType
    if own not in SINK_COLUMNS and own not in _LEFT_OUT:
        raise ConfigError(
            f"the sink takes no column {name}",
            hint=did_you_mean(name, SINK_COLUMNS, otherwise=f"it takes {', '.join(SINK_COLUMNS)}; drop or rename it"),
        )
    if name == "__eventTime" and isinstance(found, LongType):
        return  # Milliseconds, as pulsar-spark takes them.
    if own in SINK_COLUMNS and not _fits(SINK_COLUMNS[own].type_words, found):
        raise ConfigError(
            f"column {name} is {found.simpleString()}, but the sink takes {SINK_COLUMNS[own].type_words}",
            hint=_conversion(name, own, found),
        )


def _fits(type_words: str, found: DataType) -> bool:
    match found:
        case MapType(keyType=StringType(), valueType=StringType()):
            return type_words == _PROPERTIES_TYPE
        case ArrayType(elementType=StructType(names=["key", "value"], fields=[key, value])):
            is_header = isinstance(key.dataType, StringType) and isinstance(value.dataType, BinaryType)
            return is_header and type_words == _HEADERS_TYPE
    return isinstance(found, _PLAIN_TYPES.get(type_words, ()))


def _conversion(name: str, own: str, found: DataType) -> str:
    """An example that makes what was found into what is wanted of the column that the sink calls ``own``."""
    wanted, made = SINK_COLUMNS[own].type_words, name
    if wanted == _TEXT_OR_BYTES:
        if isinstance(found, StructType | ArrayType | MapType):
            return f'example: df.withColumn("{name}", to_json("{name}"))'
        wanted = "string"
    if wanted == _DELAY_TYPE:
        wanted = "interval day to second" if isinstance(found, StringType) else "bigint"
    if own == "headers" and isinstance(found, MapType):
        made = f"map_entries({name})"
    return f'example: df.withColumn("{name}", expr("CAST({made} AS {wanted})"))'


def own_name(name: str, column_names: str) -> str:
    """The sink's name of a column that a user calls ``name``; ``column_names``: the option's value."""
    return _NAMES[column_names].get(name, name)


def with_own_names(rows: pa.RecordBatch, column_names: str) -> pa.RecordBatch:
    """``rows`` with the sink's names of columns."""
    if not _NAMES[column_names]:
        return rows
    return rows.rename_columns([own_name(name, column_names) for name in rows.schema.names])
