# SPDX-License-Identifier: Apache-2.0
"""Columns that can be written as types without parts, and how: the table of Avro's form, and of JSON's.

Types widen as far as nothing is lost: whole numbers to longer ones, and to floating-point ones that hold them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

from broker_core.schemas.avro.types import AvroType, Enum, Fixed, Primitive
from broker_core.values import cells
from broker_core.values.cells import Maker
from broker_core.values.targets import DURATION

_SYMBOLS_TOLD: Final = 8
NO_TEXT: Final = "is not UTF-8, and JSON has no other text"

_WHOLE: Final[Mapping[str, tuple[pa.DataType, ...]]] = {
    "int": (pa.int32(), pa.int16(), pa.int8(), pa.uint8(), pa.uint16()),
    "long": (pa.int64(), pa.int32(), pa.int16(), pa.int8(), pa.uint8(), pa.uint16(), pa.uint32()),
}
"""Columns of whole numbers that are written as each type; the first one is its own."""

_FLOATING: Final[Mapping[str, tuple[pa.DataType, ...]]] = {
    "float": (pa.float32(), pa.float16(), pa.int8(), pa.int16(), pa.uint8(), pa.uint16()),
    "double": (
        *(pa.float64(), pa.float32(), pa.float16()),
        *(pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32()),
    ),
}


class Leaf(NamedTuple):
    """How a column is written: a kind of node, its number, and the cells. ``misfit``: what is wrong with a value that
    is none of the type; ``is_exact``: nothing is widened."""

    kind: str
    make: Maker
    number: int = 0
    misfit: str = ""
    is_exact: bool = True


def avro_leaf(schema: AvroType, arrow: pa.DataType) -> Leaf | None:
    """How a column of type ``arrow`` becomes values of ``schema`` in Avro's binary form; None if it does not."""
    match schema:
        case Enum() if pa.types.is_string(arrow):
            return Leaf("number", cells.symbols(schema.symbols), misfit=_no_symbol(schema))
        case Fixed():
            return _fixed(schema, arrow)
        case Primitive():
            return _primitive(schema, arrow)
    return None


def json_leaf(schema: AvroType, arrow: pa.DataType) -> Leaf | None:
    """How a column of type ``arrow`` becomes values of ``schema`` in JSON; None if it does not."""
    plain = avro_leaf(schema, arrow)
    if plain is None or arrow == DURATION:
        return None
    if isinstance(schema, Enum):
        return plain._replace(kind="quoted", make=cells.known_spans(schema.symbols))
    if pa.types.is_decimal(arrow):
        # As text: a number of so many digits is cut where it is read as a floating-point one.
        return plain._replace(kind="quoted", make=cells.texts)
    if isinstance(schema, Fixed) and pa.types.is_string(arrow):
        return plain._replace(kind="quoted", make=cells.uuid_spans)
    if schema.kind in ("float", "double"):
        return plain._replace(kind="span", make=cells.float_texts)
    if schema.kind == "string":
        return plain._replace(kind="quoted", make=cells.text_spans, misfit=NO_TEXT)
    forms = {"number": "digits", "text": "base64", "span": "base64"}
    if schema.kind == "boolean":
        return plain._replace(kind="span", make=cells.texts)
    return plain._replace(kind=forms.get(plain.kind, plain.kind))


def _no_symbol(schema: Enum) -> str:
    known = ", ".join(schema.symbols[:_SYMBOLS_TOLD]) + (", ..." if len(schema.symbols) > _SYMBOLS_TOLD else "")
    return f"is no symbol of enum {schema.name.full}, which has {known}"


def _primitive(schema: Primitive, arrow: pa.DataType) -> Leaf | None:
    logical = _logical(schema)
    match schema.kind:
        case "int" | "long":
            return _whole(schema.kind, logical, arrow)
        case "float" | "double":
            kind = pa.float32() if schema.kind == "float" else pa.float64()
            size = kind.bit_width // 8
            known = arrow in _FLOATING[schema.kind]
            return Leaf("bits", cells.bits(kind), size, is_exact=arrow == kind) if known else None
        case "boolean":
            return Leaf("bits", cells.truth, 1) if pa.types.is_boolean(arrow) else None
        case "string":
            return Leaf("text", cells.spans) if pa.types.is_string(arrow) else None
        case "bytes":
            return _bytes(schema, logical, arrow)
    return Leaf("null", cells.presence_alone, misfit="is not null, and its schema has nothing else")


def _whole(kind: str, logical: str, arrow: pa.DataType) -> Leaf | None:
    name, _, unit = logical.rpartition("-")
    match kind, name:
        case "int", "" if logical == "date":
            return Leaf("number", cells.whole(pa.int32())) if pa.types.is_date32(arrow) else None
        case ("int", "time") | ("long", "time"):
            is_time = arrow == pa.int64() or pa.types.is_time(arrow)
            misfit = f"is no time of a day in {unit}"
            return Leaf("number", cells.of_day(unit), misfit=misfit) if is_time else None
        case "long", "timestamp" | "local-timestamp":
            zone = "UTC" if name == "timestamp" else None
            if not pa.types.is_timestamp(arrow) or (arrow.tz is None) != (zone is None):
                return None
            misfit = f"is a time that {unit} do not reach"
            return Leaf("number", cells.micros(pa.timestamp("us", arrow.tz), unit), misfit=misfit)
    if arrow not in _WHOLE[kind]:
        return None
    return Leaf("number", cells.whole(pa.int64()), is_exact=arrow == _WHOLE[kind][0])


def _bytes(schema: Primitive, logical: str, arrow: pa.DataType) -> Leaf | None:
    if logical == "decimal" and pa.types.is_decimal128(arrow):
        made = _decimal(schema.properties, arrow, 0)
        return None if made is None else Leaf("text", made)
    return Leaf("text", cells.spans) if pa.types.is_binary(arrow) else None


def _fixed(schema: Fixed, arrow: pa.DataType) -> Leaf | None:
    logical = _logical(schema)
    if logical == "decimal" and pa.types.is_decimal128(arrow):
        made = _decimal(schema.properties, arrow, schema.size)
        misfit = f"is a number that {schema.size} bytes do not hold"
        return None if made is None else Leaf("span", made, misfit=misfit)
    if logical == "uuid" and schema.size == 16 and pa.types.is_string(arrow):
        return Leaf("span", cells.uuids, misfit="is no UUID")
    if logical == "duration" and schema.size == 12 and arrow == DURATION:
        return Leaf("span", cells.durations, misfit="has months, days or milliseconds that 32 bits do not hold")
    if not pa.types.is_binary(arrow):
        return None
    return Leaf("span", cells.sized_spans(schema.size), misfit=f"has not the {schema.size} bytes of its schema")


def _decimal(properties: Mapping[str, Any], arrow: pa.Decimal128Type, size: int) -> Maker | None:
    """Decimals of this column as those of a schema, which has to have as many digits on either side of the point."""
    precision, scale = properties.get("precision"), properties.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 < precision <= 38:
        return None
    if not 0 <= scale <= precision or scale < arrow.scale or precision - scale < arrow.precision - arrow.scale:
        return None
    return cells.decimals(pa.decimal128(precision, scale), size)


def _logical(schema: Primitive | Fixed) -> str:
    return str(schema.properties.get("logicalType", ""))
