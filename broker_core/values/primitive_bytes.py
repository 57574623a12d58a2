# SPDX-License-Identifier: Apache-2.0
"""Columns as values of primitive schemas: big endian, whole columns at a time. ``primitives`` reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.base.errors import RowError
from broker_core.schemas.info import SchemaType
from broker_core.wire.batch import columns as cols

_Words: TypeAlias = NDArray[Any]

_DAY_NANOS: Final = 86_400_000_000_000
_DAY_MICROS: Final = _DAY_NANOS // 1000
_DAY_MS: Final = 86_400_000

_ZONED: Final = pa.timestamp("us", "UTC")
_OF_DAY: Final = pa.time64("ns")
_ZONELESS: Final = pa.timestamp("us")
_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_FLOATS: Final = (pa.float32(), pa.float64())


class _Form(NamedTuple):
    """The columns that are written as a type, the last of them being its own, the numbers that a value is made of, and
    how they are made of the column's. ``is_of_day``: the column has nanoseconds of a day."""

    columns: tuple[pa.DataType, ...]
    words: np.dtype[Any]
    made: Callable[[_Words], tuple[_Words, ...]]
    is_of_day: bool = False


def _one(word: str) -> np.dtype[Any]:
    return np.dtype([("value", word)])


def _two(word: str) -> np.dtype[Any]:
    return np.dtype([("value", ">i8"), ("nanos", word)])


def _same(values: _Words) -> tuple[_Words, ...]:
    return (values,)


def _milliseconds(values: _Words) -> tuple[_Words, ...]:
    return (values // 1000,)


def _seconds(values: _Words) -> tuple[_Words, ...]:
    return values // 1_000_000, values % 1_000_000 * 1000


def _days(values: _Words) -> tuple[_Words, ...]:
    return values // _DAY_MICROS, values % _DAY_MICROS * 1000


def _of_day(values: _Words) -> tuple[_Words, ...]:
    return (values // 1_000_000 % _DAY_MS,)


_FORMS: Final[Mapping[SchemaType, _Form]] = {
    SchemaType.BOOLEAN: _Form((pa.bool_(),), _one("u1"), _same),
    SchemaType.INT8: _Form(_INTEGERS[:1], _one("i1"), _same),
    SchemaType.INT16: _Form(_INTEGERS[:2], _one(">i2"), _same),
    SchemaType.INT32: _Form(_INTEGERS[:3], _one(">i4"), _same),
    SchemaType.INT64: _Form(_INTEGERS, _one(">i8"), _same),
    SchemaType.FLOAT: _Form((*_INTEGERS[:2], *_FLOATS[:1]), _one(">f4"), _same),
    SchemaType.DOUBLE: _Form((*_INTEGERS[:3], *_FLOATS), _one(">f8"), _same),
    SchemaType.DATE: _Form((_ZONED,), _one(">i8"), _milliseconds),
    SchemaType.TIMESTAMP: _Form((_ZONED,), _one(">i8"), _milliseconds),
    SchemaType.TIME: _Form((_OF_DAY, pa.int64()), _one(">i8"), _of_day, is_of_day=True),
    SchemaType.INSTANT: _Form((_ZONED,), _two(">i4"), _seconds),
    SchemaType.LOCAL_DATE: _Form((pa.date32(),), _one(">i8"), _same),
    SchemaType.LOCAL_TIME: _Form((_OF_DAY, pa.int64()), _one(">i8"), _same, is_of_day=True),
    SchemaType.LOCAL_DATE_TIME: _Form((_ZONELESS,), _two(">i8"), _days),
}


def takes(kind: SchemaType, arrow: pa.DataType) -> bool:
    """Whether columns of this type are written as ``kind``."""
    if kind is SchemaType.STRING:
        return bool(pa.types.is_string(arrow))
    if kind not in _FORMS:
        return bool(pa.types.is_binary(arrow) or (kind.is_bytes and pa.types.is_string(arrow)))
    return _like(arrow) in _FORMS[kind].columns


def encode_primitive(kind: SchemaType, rows: pa.Array) -> pa.Array:
    """The values of ``rows``, binary, whose type ``kind`` takes; null is null. RowError for a time of no day."""
    if kind not in _FORMS:
        return rows.cast(pa.binary())
    form = _FORMS[kind]
    if not len(rows):
        return pa.nulls(0, pa.binary())
    present = cols.presence(rows).astype(np.bool_)
    values = _numbers(rows, form.columns[-1])
    if form.is_of_day:
        _check_times(values, present)
    parts = form.made(values[present])
    words = np.zeros(int(present.sum()), form.words)
    for name, part in zip(form.words.fields or (), parts, strict=True):
        words[name] = part
    offsets = np.zeros(len(rows) + 1, np.int32)
    offsets[1:] = np.cumsum(present) * form.words.itemsize
    buffers = [cols.validity(present), pa.py_buffer(offsets), pa.py_buffer(words.view(np.uint8))]
    return pa.Array.from_buffers(pa.binary(), len(rows), buffers)


def _check_times(nanos: _Words, present: NDArray[np.bool_]) -> None:
    wrong = np.flatnonzero(present & ((nanos < 0) | (nanos >= _DAY_NANOS)))
    if wrong.size:
        row = int(wrong[0])
        raise RowError(row, f"cannot be written: the value is {int(nanos[row])}, which is no nanosecond of a day")


def _like(arrow: pa.DataType) -> pa.DataType:
    """Types of times that are alike to every schema are one."""
    if pa.types.is_timestamp(arrow):
        return _ZONELESS if arrow.tz is None else _ZONED
    return _OF_DAY if pa.types.is_time(arrow) else arrow


def _numbers(rows: pa.Array, own: pa.DataType) -> _Words:
    """The numbers of a column; what a null holds is not defined."""
    if pa.types.is_boolean(own):
        return cols.flags_of(rows).astype(np.uint8)
    # Times of a day come as such, or as their nanoseconds.
    wanted = _like(rows.type) if own == pa.int64() and pa.types.is_time(rows.type) else own
    plain = rows if rows.type == wanted else rows.cast(wanted, safe=False)
    bits = np.dtype(f"{'f' if pa.types.is_floating(own) else 'i'}{wanted.bit_width // 8}")
    return np.frombuffer(plain.buffers()[1], bits)[plain.offset : plain.offset + len(plain)]
