# SPDX-License-Identifier: Apache-2.0
"""Values as JSON for people: what ``consume`` prints of a decoded message, ``produce --schema`` reads back.

Times are ISO texts, decimals and UUIDs texts, bytes base64; messages of Protobuf are in its own JSON. A line may also
have numbers for times, as payloads have them, and text for bytes. Fields that the schema does not have are refused, as
they are probably misspelt.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from uuid import UUID

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from broker_core.base.suggest import did_you_mean
from broker_core.client.schemas.key_values import KeyValue
from broker_core.client.schemas.logical_types import logical_name
from broker_core.client.schemas.misfit import Misfit, wanted
from broker_core.schemas.avro.types import Array, AvroType, Enum, Fixed, Map, Primitive, Record, Union
from broker_core.schemas.info import SchemaType


def to_plain(value: Any) -> Any:
    """A value that was decoded, as JSON has it."""
    match value:
        case str() | int() | None:
            return value
        case KeyValue():
            return {name: to_plain(each) for name, each in value._asdict().items()}
        case Message():
            return MessageToDict(value, preserving_proto_field_name=True)
        case dict():
            return {str(key): to_plain(each) for key, each in value.items()}
        case list() | tuple():
            return [to_plain(each) for each in value]
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return f"{value:f}"
        case UUID():
            return str(value)
        case _:
            return value


def from_plain(schema: AvroType, value: Any) -> Any:
    """JSON as a value to encode; Misfit where it cannot be one. Whatever is left to check, the encoder checks."""
    match schema:
        case Record():
            return _record(schema, value)
        case Union():
            return _union(schema, value)
        case Array():
            return [_within("[]", schema.items, each) for each in value] if isinstance(value, list) else value
        case Map():
            is_map = isinstance(value, dict)
            return {key: _within("{}", schema.values, each) for key, each in value.items()} if is_map else value
        case Enum():
            return value
        case _:
            return _leaf(schema, value)


def _within(name: str, schema: AvroType, value: Any) -> Any:
    try:
        return from_plain(schema, value)
    except Misfit as misfit:
        raise misfit.within(name) from None


def _record(schema: Record, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if unknown := sorted(value.keys() - schema.by_name.keys()):
        meant = did_you_mean(unknown[0], list(schema.by_name))
        raise Misfit(f"record {schema.name.full} has no such field{f', {meant}' if meant else ''}").within(unknown[0])
    return {name: _within(name, schema.by_name[name].type, each) for name, each in value.items()}


def _union(schema: Union, value: Any) -> Any:
    """The value for the branch that it fits; where several may take it, the encoder chooses."""
    branches = [each for each in schema.branches if each.kind != "null"]
    if value is None or not branches:
        return value
    if len(branches) == 1:
        return from_plain(branches[0], value)
    misfit: Misfit | None = None
    for each in sorted(branches, key=_is_other_than_text):
        if _may_be(each, value):
            try:
                return from_plain(each, value)
            except Misfit as found:
                misfit = misfit or found
    if misfit is not None:
        raise misfit
    return value


def _is_other_than_text(schema: AvroType) -> bool:
    """Of branches, those of text come first: a text is not bytes or a time where it may be a text."""
    return schema.kind not in ("string", "enum")


def _may_be(schema: AvroType, value: Any) -> bool:
    if isinstance(value, str) and logical_name(schema) in _TIMES:
        return True
    if isinstance(schema, Enum):
        return value in schema.symbols
    return schema.kind in _KINDS.get(float if isinstance(value, float) else type(value), ())


def primitive_from_plain(kind: SchemaType, value: Any) -> Any:
    """The same for a type that has no definition."""
    if kind in (SchemaType.FLOAT, SchemaType.DOUBLE) and isinstance(value, str) and value in _NOT_FINITE:
        return float(value)
    read = _PRIMITIVE_TIMES.get(kind)
    return value if read is None or not isinstance(value, str) else _time(read, value)


def _leaf(schema: Primitive | Fixed, value: Any) -> Any:
    """Texts as what they stand for."""
    if schema.kind in ("float", "double") and isinstance(value, str) and value in _NOT_FINITE:
        return float(value)
    if schema.kind in ("bytes", "fixed"):
        return _decimal(value) if logical_name(schema) == "decimal" else _bytes(schema, value)
    read = _TIMES.get(logical_name(schema))
    return value if read is None or not isinstance(value, str) else _time(read, value)


def _time(read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except ValueError as error:
        raise wanted("a date or time in the form of ISO 8601", text) from error


def _bytes(schema: Primitive | Fixed, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if logical_name(schema) == "uuid":
        with suppress(ValueError):
            return UUID(value).bytes
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return value.encode()


def _decimal(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    try:
        return Decimal(str(value))
    except InvalidOperation:
        raise wanted("a decimal", value) from None


_KINDS: Final[Mapping[type, tuple[str, ...]]] = {
    bool: ("boolean",),
    int: ("int", "long", "float", "double"),
    float: ("float", "double"),
    str: ("string", "bytes", "fixed"),
    list: ("array",),
    dict: ("record", "map"),
}
"""Branches of a union that a value of JSON may be."""

_NOT_FINITE: Final = ("NaN", "Infinity", "-Infinity")

_TIMES: Final[Mapping[str, Callable[[str], Any]]] = {
    "date": date.fromisoformat,
    "time-millis": time.fromisoformat,
    "time-micros": time.fromisoformat,
    **{f"{local}timestamp-{unit}": datetime.fromisoformat
       for local in ("", "local-") for unit in ("millis", "micros", "nanos")},
}  # fmt: skip

_PRIMITIVE_TIMES: Final[Mapping[SchemaType, Callable[[str], Any]]] = {
    **dict.fromkeys((SchemaType.DATE, SchemaType.TIMESTAMP, SchemaType.INSTANT), datetime.fromisoformat),
    **dict.fromkeys((SchemaType.TIME, SchemaType.LOCAL_TIME), time.fromisoformat),
    SchemaType.LOCAL_DATE: date.fromisoformat,
    SchemaType.LOCAL_DATE_TIME: datetime.fromisoformat,
}
