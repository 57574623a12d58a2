# SPDX-License-Identifier: Apache-2.0
"""Values of JSON schemas as Arrow columns: the text is JSON, the schema is Avro's.

Arrow's reader takes all rows at once where they are what it expects. Rows that are not, and those without a field that
has a default other than null, are read one by one by the wider rules of clients: numbers may be texts, bytes are base64
or text, a field that is absent has its default or is null, and one that the schema does not have is left out.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Callable
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

from broker_core.schemas.avro.json_branches import shows_as_it_is
from broker_core.schemas.avro.json_numbers import loaded
from broker_core.schemas.avro.types import Array, Enum, Field, Fixed, Map, NoDefault, Primitive, Record, Union
from broker_core.values.decoding import Decoded, Flaw, uuid_text
from broker_core.values.targets import DURATION, Target, columns_of
from broker_core.wire.batch import columns as cols

_SIZES: Final = {"int": 31, "long": 63}
_LONGS: Final = 1 << 63
_DIGITS: Final = Context(prec=76)
_PIECE_ROWS: Final = 128
"""Rows that are read one by one because of one of them."""
_PATH_MAX: Final = 150
_VALUE_MAX: Final = 40
_TOGETHER: Final = frozenset(("boolean", "int", "long", "float", "double", "string"))
"""Types that Arrow reads from JSON as they are."""


class _MisfitError(ValueError):
    """A value is not what the schema says; the text begins with its path."""


def decode_json(target: Target, values: pa.Array) -> Decoded:
    """Read ``values``, binary, into the columns of ``target``; null is null, and so is a row with a flaw."""
    if not _is_read_together(target):
        return _one_by_one(target, values)
    together = _read_together(target, values)
    if together is not None:
        return Decoded(together, [])
    if len(values) <= _PIECE_ROWS:
        return _one_by_one(target, values)
    pieces = [decode_json(target, values.slice(at, _PIECE_ROWS)) for at in range(0, len(values), _PIECE_ROWS)]
    flaws = [
        Flaw(number * _PIECE_ROWS + flaw.row, flaw.reason)
        for number, piece in enumerate(pieces)
        for flaw in piece.flaws
    ]
    return Decoded(pa.concat_arrays([each.rows for each in pieces]), flaws)


def _one_by_one(target: Target, values: pa.Array) -> Decoded:
    rows: list[Any] = []
    flaws: list[Flaw] = []
    load = loaded if any(pa.types.is_decimal(each.arrow) for each in columns_of(target)) else json.loads
    for number, text in enumerate(values.to_pylist()):
        try:
            rows.append(None if text is None else _shown(target, _loaded(text, load), ""))
        except _MisfitError as misfit:
            rows.append(None)
            flaws.append(Flaw(number, str(misfit)))
    return Decoded(pa.array(rows, target.arrow), flaws)


# -- all rows at once


class _NotTogetherError(Exception):
    """A row has to be read by the wider rules."""


def _is_read_together(target: Target) -> bool:
    """Whether Arrow's reader has the types of this schema."""
    match target.avro:
        case Record():
            return bool(target.parts) and all(map(_is_read_together, target.parts))
        case Array():
            return _is_read_together(target.parts[0])
        case Enum():
            return True
        case Primitive():
            return target.avro.kind in _TOGETHER
        case _:
            return False


def _read_together(target: Target, values: pa.Array) -> pa.Array | None:
    """All rows, or None if one of them is null, or anything that Arrow's reader does not take."""
    joined = _joined_rows(values) if isinstance(target.avro, Record) else None
    if joined is None:
        return None
    options = arrow_json.ParseOptions(
        explicit_schema=pa.schema(list(_as_json(target))), unexpected_field_behavior="ignore"
    )
    # One block: rows may be larger than the default of it.
    reading = arrow_json.ReadOptions(use_threads=False, block_size=joined.size + 1)
    try:
        found = arrow_json.read_json(pa.BufferReader(joined), reading, options)
        if found.num_rows != len(values):
            return None
        columns = [_joined(column) for column in found.columns]
        return _restored(target, pa.StructArray.from_arrays(columns, names=list(target.names)))
    except (pa.ArrowInvalid, _NotTogetherError):
        return None


def _as_json(target: Target) -> pa.DataType:
    """The type that Arrow's reader is asked for: symbols are text, and times are numbers."""
    match target.avro:
        case Record():
            return pa.struct([(name, _as_json(each)) for name, each in zip(target.names, target.parts, strict=True)])
        case Array():
            return pa.list_(_as_json(target.parts[0]))
        case Primitive():
            return {"int": pa.int32(), "long": pa.int64()}.get(target.avro.kind, target.arrow)
    return pa.string()


def _restored(target: Target, array: pa.Array) -> pa.Array:
    """The column of what Arrow has read; _NotTogetherError."""
    match target.avro:
        case Record():
            parts = [_restored(each, array.field(at)) for at, each in enumerate(target.parts)]
            for field, part in zip(target.avro.fields, parts, strict=True):
                if part.null_count and not (isinstance(field.default, NoDefault) or field.default is None):
                    raise _NotTogetherError
            return pa.Array.from_buffers(target.arrow, len(array), [array.buffers()[0]], children=parts)
        case Array():
            items = _restored(target.parts[0], array.values)
            return pa.Array.from_buffers(target.arrow, len(array), array.buffers()[:2], children=[items])
        case Enum():
            if not pc.all(pc.is_in(array, pa.array([*target.avro.symbols, None], pa.string()))).as_py():
                raise _NotTogetherError
        case Primitive() if target.avro.kind in _SIZES and "logicalType" in target.avro.properties:
            return _timed(target, str(target.avro.properties["logicalType"]), array)
    return array


def _timed(target: Target, logical: str, array: pa.Array) -> pa.Array:
    """A column of times of what were numbers."""
    numbers = cols.values_of(array)
    if target.arrow.bit_width == 64:
        numbers = numbers.astype(np.int64)
        if logical.endswith("-millis"):
            if any(abs(each or 0) > _LONGS // 1000 - 1 for each in pc.min_max(array).as_py().values()):
                raise _NotTogetherError
            numbers = numbers * 1000
        elif logical.endswith("-nanos"):
            numbers = numbers // 1000
    return pa.Array.from_buffers(target.arrow, len(array), [array.buffers()[0], pa.py_buffer(numbers)])


def _joined_rows(values: pa.Array) -> pa.Buffer | None:
    """All rows as lines, or None if one is null, or no object in braces.

    Arrow's reader does not look at the ends of lines: a row must begin and end with a brace, as no value goes on
    with one behind another. A lone ``null`` ends its process, and it takes text for UTF-8 that is not.
    """
    data, offsets, _ = cols.ByteColumn.of(values).arrays
    if values.null_count or not len(values) or (offsets[1:] == offsets[:-1]).any():
        return None
    if (data[offsets[:-1]] != ord("{")).any() or (data[offsets[1:] - 1] != ord("}")).any():
        return None
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return None
    lines = pc.binary_join_element_wise(values, b"\n", b"")
    return lines.buffers()[2]


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


# -- one by one


def _loaded(text: bytes, load: Callable[[bytes], Any]) -> Any:
    try:
        return load(text)
    except (ValueError, RecursionError) as error:
        raise _MisfitError(f"it is not JSON: {error}") from error


def _shown(target: Target, value: Any, path: str, is_default: bool = False) -> Any:
    if value is None:
        return None
    match target.avro:
        case Record():
            return _record(target, target.avro, value, path, is_default)
        case Array():
            if not isinstance(value, list):
                raise _misfit(path, value, "an array")
            return [_shown(target.parts[0], each, f"{path}[{at}]", is_default) for at, each in enumerate(value)]
        case Map():
            if not isinstance(value, dict):
                raise _misfit(path, value, "a map")
            items = [(_text(key), each) for key, each in value.items()]
            return [(key, _shown(target.parts[1], each, f"{path}.{key}", is_default)) for key, each in items]
        case Union():
            return _member(target, value, path, is_default)
        case Enum():
            if value in target.avro.symbols:
                return value
            if target.avro.default is None:
                raise _misfit(path, value, f"a symbol of enum {target.avro.name.full}")
            return target.avro.default
        case Fixed():
            return _fixed(target, value, path, is_default)
    return _primitive(target, target.avro, value, path, is_default)


def _record(target: Target, record: Record, value: Any, path: str, is_default: bool = False) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _misfit(path, value, f"record {record.name.full}")
    shown = {}
    for each, part in zip(record.fields, target.parts, strict=True):
        below = f"{path}.{each.name}" if path else each.name
        if each.name in value:
            shown[each.name] = _shown(part, value[each.name], below, is_default)
        else:
            shown[each.name] = _default(part, each, below)
    return shown


def _default(target: Target, field: Field, path: str) -> Any:
    """The default of a field that is absent. Nobody has checked that it fits: one that does not is null."""
    try:
        return None if isinstance(field.default, NoDefault) else _shown(target, field.default, path, is_default=True)
    except _MisfitError:
        return None


def _member(target: Target, value: Any, path: str, is_default: bool = False) -> dict[str, Any]:
    """The first member that takes the value, and shows it as it is where one does: JSON does not say which."""
    members = zip(target.names, target.parts, strict=True)
    for name, part in sorted(members, key=lambda member: not shows_as_it_is(member[1].avro, value)):
        try:
            return {**dict.fromkeys(target.names), name: _shown(part, value, path, is_default)}
        except _MisfitError:
            continue
    raise _misfit(path, value, "a member of the union")


def _primitive(target: Target, schema: Primitive, value: Any, path: str, is_default: bool = False) -> Any:
    if pa.types.is_decimal(target.arrow):
        return _decimal(target, value, path, is_default)
    match schema.kind:
        case "boolean":
            if not isinstance(value, bool):
                raise _misfit(path, value, "a boolean")
            return value
        case "int" | "long":
            return _time(target, schema, _integer(schema.kind, value, path), path)
        case "float" | "double":
            return _double(value, path)
        case "bytes":
            return _bytes(value, path, is_default)
        case "string":
            if not isinstance(value, str):
                raise _misfit(path, value, "a text")
            return _text(value)
    raise _misfit(path, value, "null")


def _integer(kind: str, value: Any, path: str) -> int:
    try:
        number = int(value) if isinstance(value, str) or (isinstance(value, float) and value.is_integer()) else value
    except ValueError:
        number = None
    if (
        not isinstance(number, int)
        or isinstance(number, bool)
        or not -(1 << _SIZES[kind]) <= number < 1 << _SIZES[kind]
    ):
        raise _misfit(path, value, f"a number of type {kind}")
    return number


def _double(value: Any, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _misfit(path, value, "a number")
    try:
        return float(value)
    except (ValueError, OverflowError) as error:
        raise _misfit(path, value, "a number") from error


def _time(target: Target, schema: Primitive, number: int, path: str) -> Any:
    """A number in the unit of its column: a day, or microseconds."""
    logical = str(schema.properties.get("logicalType", ""))
    if target.arrow.bit_width == 32:
        return number
    micros = number * 1000 if logical.endswith("-millis") else number // 1000 if logical.endswith("-nanos") else number
    if not -_LONGS <= micros < _LONGS:
        raise _misfit(path, number, "a time that microseconds can say since 1970")
    return micros


def _fixed(target: Target, value: Any, path: str, is_default: bool) -> Any:
    if pa.types.is_decimal(target.arrow):
        return _decimal(target, value, path, is_default)
    if pa.types.is_string(target.arrow) and isinstance(value, str) and not is_default:
        return _text(value)
    data = _bytes(value, path, is_default)
    if isinstance(target.avro, Fixed) and len(data) != target.avro.size and not is_default:
        raise _misfit(path, value, f"{target.avro.size} bytes")
    if pa.types.is_string(target.arrow):
        return uuid_text(data.ljust(16, b"\0")[:16])
    return (
        dict(zip(DURATION.names, struct.unpack("<3I", data.ljust(12, b"\0")[:12]), strict=True))
        if target.arrow == DURATION
        else data
    )


def _bytes(value: Any, path: str, is_default: bool) -> bytes:
    """Base64, as clients in Java write it, or text, as those in Python do. A default of the schema has a character for
    each byte."""
    if not isinstance(value, str):
        raise _misfit(path, value, "bytes")
    if is_default:
        return value.encode("latin-1", "replace")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return value.encode("utf-8", "replace")


def _decimal(target: Target, value: Any, path: str, is_default: bool) -> Decimal:
    try:
        number = _number_of(target, value, path, is_default)
        quantized = number.quantize(Decimal(1).scaleb(-target.arrow.scale), context=_DIGITS)
    except (InvalidOperation, ValueError) as error:
        raise _misfit(path, value, "a decimal") from error
    if not quantized.is_finite() or len(quantized.as_tuple().digits) > target.arrow.precision:
        raise _misfit(path, value, f"a decimal of {target.arrow.precision} digits")
    return quantized


def _number_of(target: Target, value: Any, path: str, is_default: bool) -> Decimal:
    if is_default:
        return Decimal(int.from_bytes(_bytes(value, path, is_default), "big", signed=True)).scaleb(-target.arrow.scale)
    return Decimal(str(value)) if isinstance(value, int | float | str) else Decimal("NaN")


def _text(value: str) -> str:
    """Text that can be written. JSON may have halves of characters, which Java writes as question marks."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def _misfit(path: str, value: Any, wanted: str) -> _MisfitError:
    return _MisfitError(
        f"{_shortened(path, _PATH_MAX) or 'it'}: {_shortened(_told(value), _VALUE_MAX)} is not {wanted}"
    )


def _told(value: Any) -> str:
    """A value as JSON has it, but for what is within an array or an object."""
    if value and isinstance(value, list | dict):
        return "[...]" if isinstance(value, list) else "{...}"
    return json.dumps(value)


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}..."
