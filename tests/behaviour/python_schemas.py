# SPDX-License-Identifier: Apache-2.0
"""Schemas and their values in the words of the official Python client, where records are classes."""

from __future__ import annotations

import enum
import functools
import importlib
import json
from typing import Any, Final

import pulsar.schema
from google.protobuf.message import Message

from tests.behaviour.interface import CannotExpressError
from tests.behaviour.schemas import SchemaChoice

FIELDS: Final = {
    "null": pulsar.schema.Null,
    "boolean": pulsar.schema.Boolean,
    "int": pulsar.schema.Integer,
    "long": pulsar.schema.Long,
    "float": pulsar.schema.Float,
    "double": pulsar.schema.Double,
    "bytes": pulsar.schema.Bytes,
    "string": pulsar.schema.String,
}
"""Primitive types of Avro -> fields of records."""


def schema_of(choice: SchemaChoice | None) -> Any:
    """The client's schema; that of bytes for none."""
    match choice and choice.type:
        case None | "BYTES":
            return pulsar.schema.BytesSchema()
        case "STRING":
            return pulsar.schema.StringSchema()
        case "AVRO":
            assert choice is not None
            return pulsar.schema.AvroSchema(_record_of(choice.definition))
        case "JSON":
            assert choice is not None
            return pulsar.schema.JsonSchema(_record_of(choice.definition))
        case "PROTOBUF_NATIVE":
            assert choice is not None
            return pulsar.schema.ProtobufNativeSchema(_message_class(choice.message))
        case _:
            raise CannotExpressError(f"a schema {choice and choice.type}")


def _message_class(name: str) -> type[Message]:
    package, _, message = name.rpartition(".")
    module = importlib.import_module(f"{package}.{message.lower()}_pb2")
    found: type[Message] = getattr(module, message)
    return found


@functools.cache
def _record_of(definition: str) -> Any:
    """The class of a record by its definition's text; producers take instances of their own class alone."""
    parsed = json.loads(definition)
    if parsed["type"] != "record":  # which the client does not look at
        return type("Other", (), {"schema": staticmethod(lambda: parsed)})
    return _record(parsed)


def _record(definition: dict[str, Any]) -> Any:
    """The class of a record, whose schema is ``definition`` again."""
    attributes = {field["name"]: _field(field) for field in definition["fields"]}
    kind = type(pulsar.schema.Record)
    made = kind(definition["name"], (pulsar.schema.Record,), attributes)
    made._avro_namespace = definition.get("namespace")
    return made


def _field(field: dict[str, Any]) -> Any:
    given, options = field["type"], {}
    if known := field.keys() - {"name", "type", "default"}:
        raise CannotExpressError(f"a field with {sorted(known)}")
    required = not isinstance(given, list)
    if not required:
        null, *others = given
        if null != "null" or len(others) != 1:
            raise CannotExpressError("a union of several types")
        given = others[0]
    if "default" in field:
        options = {"default": field["default"], "required_default": True}
    return _typed(given, required=required, **options)


def _typed(given: Any, **options: Any) -> Any:
    if isinstance(given, str):
        return FIELDS[given](**options)
    match given["type"]:
        case "array":
            return pulsar.schema.Array(_typed(given["items"]), **options)
        case "map":
            return pulsar.schema.Map(_typed(given["values"]), **options)
        case "enum":
            symbols = {symbol: symbol for symbol in given["symbols"]}
            return pulsar.schema.CustomEnum(enum.Enum(given["name"], symbols), **options)
        case "record":
            return _record(given)(**options)
        case other:
            raise CannotExpressError(f"a field of type {other}")


def value_of(choice: SchemaChoice | None, text: str | None) -> Any:
    """The value that the client is given for the JSON text of a behaviour; without a schema its bytes."""
    if choice is None or choice.type == "BYTES":
        return (text or "").encode()
    if text is None:
        raise CannotExpressError("no value of a schema")
    value = json.loads(text)
    if choice.type == "PROTOBUF_NATIVE":
        return _message_class(choice.message)(**value)
    if choice.type in ("AVRO", "JSON") and isinstance(value, dict):
        return _record_of(choice.definition)(**value)
    return value


def text_of(value: Any) -> str:
    """The JSON text of a value that the client gives out; bytes are a text as they are."""
    if isinstance(value, bytes):
        return value.decode()
    return json.dumps(_plain(value))


def _plain(value: Any) -> Any:
    match value:
        case pulsar.schema.Record():
            return {name: _plain(getattr(value, name)) for name in value._fields}
        case Message():
            return {"seconds": value.seconds, "nanos": value.nanos}  # type: ignore[attr-defined]
        case enum.Enum():
            return value.name
        case bytes():
            return value.decode("latin-1")
        case list():
            return [_plain(each) for each in value]
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case _:
            return value
