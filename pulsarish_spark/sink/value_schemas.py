# SPDX-License-Identifier: Apache-2.0
"""The schemas that rows are written with: the topic's, the user's, or one that is made of the columns.

The driver finds the schema, has it added to the topic, and compares it with the columns, before the first task. Tasks
bring the same schema with their producers, so that each entry names its version. Where a column says which topic a row
goes to, the topics are known in the tasks alone, and all that happens there, before a topic's first row is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import types as sql

from broker_core.base.errors import ConfigError, IncompatibleSchemaError, PulsarishError, TopicNotFoundError, UsageError
from broker_core.base.names import TopicName
from broker_core.schemas.avro.parsing import parse
from broker_core.schemas.avro.types import Record
from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.schemas.key_value import SEPARATED, divided, pair_of
from broker_core.values.derived import Kind, primitive_of, schema_of
from broker_core.values.encoder import ValueEncoder
from pulsarish_spark.options.value_writing import ValueWriting
from pulsarish_spark.options.values import DEFINED, OF_TOPIC, PRIMITIVE, PRIMITIVES, RAW
from pulsarish_spark.sink.columns import lifted, own_name

if TYPE_CHECKING:
    from broker_core.client import Client

_PLAIN: Final[Mapping[type[sql.DataType], pa.DataType]] = {
    sql.BooleanType: pa.bool_(),
    sql.ByteType: pa.int8(),
    sql.ShortType: pa.int16(),
    sql.IntegerType: pa.int32(),
    sql.LongType: pa.int64(),
    sql.FloatType: pa.float32(),
    sql.DoubleType: pa.float64(),
    sql.StringType: pa.string(),
    sql.CharType: pa.string(),
    sql.VarcharType: pa.string(),
    sql.BinaryType: pa.binary(),
    sql.DateType: pa.date32(),
    sql.TimestampType: pa.timestamp("us", "UTC"),
    sql.TimestampNTZType: pa.timestamp("us"),
    sql.DayTimeIntervalType: pa.duration("us"),
}

_KEY: Final = "key"
_VALUE: Final = "value"


@dataclass(frozen=True, slots=True)
class ValueSchemas:
    """How rows with these columns get a schema. ``fixed``: the one of all rows, once the driver has found it."""

    writing: ValueWriting
    value: pa.DataType
    key: pa.DataType | None
    names: tuple[str, ...]
    fixed: SchemaInfo | None = None

    @classmethod
    def of(cls, writing: ValueWriting, schema: sql.StructType, column_names: str) -> ValueSchemas | None:
        """The schemas of such rows, None where values are bytes; ConfigError for a column that has no schema."""
        if not writing.is_typed:
            return None
        fields = {own_name(each.name, column_names): each for each in schema.fields}
        if writing.flatten:
            value = pa.struct([_arrow_field(fields[name], name) for name in lifted(list(fields))])
        else:
            value = _arrow_field(fields[_VALUE], _VALUE).type
        key = _arrow_field(fields[_KEY], _KEY).type if _KEY in fields else None
        return cls(writing, value, key, tuple(fields))

    def schema_of(self, client: Client, topic: str) -> SchemaInfo:
        """The schema of rows that go to ``topic``; ConfigError if there is none, or columns do not fit it."""
        if self.fixed is not None:
            return self.fixed
        info = self._of_topic(client, topic) if self.writing.format == OF_TOPIC else self._made(topic)
        self._check(info, topic)
        return info

    def encoder(self, info: SchemaInfo) -> ValueEncoder:
        """The encoder of these columns."""
        return ValueEncoder(info, column="" if self.writing.flatten else _VALUE)

    # -- where a schema comes from

    def _of_topic(self, client: Client, topic: str) -> SchemaInfo:
        found = client.get_schema(topic)
        if found is None:
            raise ConfigError(
                f"{topic} has no schema, so valueFormat=schema says nothing",
                hint='.option("valueFormat", "avro") makes one of the columns; or write bytes, without it',
            )
        return found.info

    def _made(self, topic: str) -> SchemaInfo:
        writing = self.writing
        name = writing.record_name or TopicName.parse(topic).base.local
        try:
            value = self._part(writing.format, self.value, name, "" if writing.flatten else _VALUE)
            if writing.key_format == RAW:
                return value
            if self.key is None:
                raise ConfigError("there is no column key, which keyFormat is for", hint="add it, or remove keyFormat")
            return pair_of(self._part(writing.key_format, self.key, f"{name}_key", _KEY, is_key=True), value, SEPARATED)
        except UsageError as flaw:
            raise ConfigError(flaw.message, hint=flaw.hint) from flaw

    def _part(self, form: str, arrow: pa.DataType, name: str, column: str, *, is_key: bool = False) -> SchemaInfo:
        if form == PRIMITIVE:
            return primitive_of(arrow, column=column)
        if form in PRIMITIVES:
            return SchemaInfo(PRIMITIVES[form])
        if self.writing.definition and not is_key:
            return SchemaInfo(DEFINED[form], self.writing.definition)
        kind: Kind = "avro" if form == "avro" else "json"
        return schema_of(arrow, kind=kind, name=name, namespace=self.writing.record_namespace, column=column)

    # -- whether columns fit it

    def _check(self, info: SchemaInfo, topic: str) -> None:
        is_pair = info.type is SchemaType.KEY_VALUE
        if is_pair and self.key is None:
            raise ConfigError(
                f"the schema of {topic} has keys and values, and there is no column key", hint="add the column key"
            )
        if not is_pair and self.key is not None and self.key not in (pa.string(), pa.binary()):
            raise ConfigError(
                f"column key is {self.key}, and the schema of {topic} says nothing of keys",
                hint='cast it to a string or binary, or give it a schema with .option("keyFormat", "primitive")',
            )
        self._check_lifted(divided(info).value if is_pair else info)
        try:
            self.encoder(info).check(pa.struct([(_KEY, self.key), (_VALUE, self.value)]) if is_pair else self.value)
        except PulsarishError as flaw:
            raise ConfigError(f"rows cannot be written to {topic}: {flaw.message}", hint=flaw.hint) from flaw

    def _check_lifted(self, value: SchemaInfo) -> None:
        """ConfigError where a column may be a field of the value, or say something of its message."""
        if not self.writing.flatten or not value.type.is_avro:
            return
        schema = parse(value.data)
        fields = schema.by_name if isinstance(schema, Record) else {}
        of_messages = set(self.names) - set(lifted(self.names))
        if clash := next(iter(sorted(of_messages & set(fields))), ""):
            raise ConfigError(
                f"column {clash} may be a field of the value, or say the {clash} of the message",
                hint="leave flattenValue out, and give the fields in a column value: struct(...) AS value",
            )


def with_schema(schemas: ValueSchemas, topic: str, client: Client) -> ValueSchemas:
    """``schemas`` with the one of all rows, which ``topic`` has then, that of the option; ConfigError if it cannot have
    it. Without the option they are found in the tasks."""
    if not topic:
        return schemas
    info = schemas.schema_of(client, topic)
    if not info.is_none and schemas.writing.format != OF_TOPIC:
        try:
            _add(client, topic, info)
        except IncompatibleSchemaError as refused:
            raise ConfigError(
                f"the schema of these rows cannot be added to {topic}: {refused.message}",
                hint='.option("valueFormat", "schema") writes with the schema that the topic has; columns that are '
                "never null, such as literals, have no default, and a valueSchema may give them one",
            ) from refused
    return replace(schemas, fixed=info)


def _add(client: Client, topic: str, info: SchemaInfo) -> None:
    """Have the topic take the schema. A topic that is not there is made as its first producer makes it."""
    try:
        client.get_or_create_schema(topic, info)
    except TopicNotFoundError:
        with client.create_producer(topic, schema=info):
            pass


# -- types of columns


def _arrow_field(field: sql.StructField, name: str) -> pa.Field:
    return pa.field(name, _arrow(field.dataType, name), field.nullable)


def _arrow(found: sql.DataType, path: str) -> pa.DataType:
    """The type that Spark gives tasks for a column; ConfigError for one that no schema has."""
    match found:
        case sql.StructType():
            parts = [(each, _arrow(each.dataType, f"{path}.{each.name}")) for each in found.fields]
            return pa.struct([pa.field(each.name, arrow, each.nullable) for each, arrow in parts])
        case sql.ArrayType():
            return pa.list_(pa.field("element", _arrow(found.elementType, f"{path}[]"), found.containsNull))
        case sql.MapType():
            key, value = _arrow(found.keyType, path), _arrow(found.valueType, f"{path}{{}}")
            return pa.map_(key, pa.field("value", value, found.valueContainsNull))
        case sql.DecimalType():
            return pa.decimal128(found.precision, found.scale)
    if type(found) in _PLAIN:
        return _PLAIN[type(found)]
    if found.typeName() == "time":  # Newer versions of Spark have it.
        return pa.time64("ns")
    raise ConfigError(
        f"column {path} is {found.simpleString()}, which no schema has",
        hint="cast it, to a string for example, or drop it",
    )
