# SPDX-License-Identifier: Apache-2.0
"""Values of primitive schemas as Arrow columns: big endian, and of exactly the length that their type has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.schemas.info import SchemaType
from broker_core.values.decoding import Decoded, Flaw
from broker_core.wire.batch import columns as cols

_Words: TypeAlias = NDArray[Any]
_Valid: TypeAlias = NDArray[np.bool_]

_DAY_MS: Final = 86_400_000
_DAY_NS: Final = _DAY_MS * 1_000_000


class _Form(NamedTuple):
    """How values of a type become a column. ``words``: the numbers that a value is made of. ``first`` and ``last``:
    what the first of them may be, so that the column can hold it."""

    arrow: pa.DataType
    words: np.dtype[Any]
    column: Callable[[_Words, _Valid], pa.Array]
    first: int = -(1 << 63)
    last: int = (1 << 63) - 1


def _plain(arrow: pa.DataType, kind: str) -> Callable[[_Words, _Valid], pa.Array]:
    def column(words: _Words, valid: _Valid) -> pa.Array:
        values = np.ascontiguousarray(words["value"].astype(kind))
        return pa.Array.from_buffers(arrow, len(values), [cols.validity(valid), pa.py_buffer(values)])

    return column


def _micros(arrow: pa.DataType, micros: Callable[[_Words], NDArray[np.int64]]) -> Callable[[_Words, _Valid], pa.Array]:
    def column(words: _Words, valid: _Valid) -> pa.Array:
        values = np.ascontiguousarray(micros(words).astype(np.int64))
        return pa.Array.from_buffers(arrow, len(values), [cols.validity(valid), pa.py_buffer(values)])

    return column


def _of_milliseconds(words: _Words) -> NDArray[np.int64]:
    return words["value"].astype(np.int64) * 1000


def _of_seconds(words: _Words) -> NDArray[np.int64]:
    return words["value"].astype(np.int64) * 1_000_000 + words["nanos"].astype(np.int64) // 1000


def _of_days(words: _Words) -> NDArray[np.int64]:
    return words["value"].astype(np.int64) * (_DAY_MS * 1000) + words["nanos"].astype(np.int64) // 1000


def _of_day(words: _Words) -> NDArray[np.int64]:
    return words["value"].astype(np.int64) % _DAY_MS * 1_000_000


def _within(first: int) -> tuple[int, int]:
    return -first, first - 1


def _one(kind: str) -> np.dtype[Any]:
    return np.dtype([("value", kind)])


def _two(nanos: str) -> np.dtype[Any]:
    return np.dtype([("value", ">i8"), ("nanos", nanos)])


_LOCAL: Final = pa.timestamp("us")
# Times for which microseconds since 1970 have room in 64 bits, but for a day or more to spare.
_HELD_MS: Final = _within((1 << 63) // 1000 - _DAY_MS)
_HELD_S: Final = _within((1 << 63) // 1_000_000 - _DAY_MS)
_HELD_DAYS: Final = _within((1 << 63) // (_DAY_MS * 1000) - 1)
_UTC: Final = pa.timestamp("us", tz="UTC")
_FORMS: Final[Mapping[SchemaType, _Form]] = {
    SchemaType.BOOLEAN: _Form(pa.bool_(), _one("u1"), lambda words, valid: cols.booleans(words["value"] != 0, valid)),
    SchemaType.INT8: _Form(pa.int8(), _one("i1"), _plain(pa.int8(), "i1")),
    SchemaType.INT16: _Form(pa.int16(), _one(">i2"), _plain(pa.int16(), "<i2")),
    SchemaType.INT32: _Form(pa.int32(), _one(">i4"), _plain(pa.int32(), "<i4")),
    SchemaType.INT64: _Form(pa.int64(), _one(">i8"), _plain(pa.int64(), "<i8")),
    SchemaType.FLOAT: _Form(pa.float32(), _one(">f4"), _plain(pa.float32(), "<f4")),
    SchemaType.DOUBLE: _Form(pa.float64(), _one(">f8"), _plain(pa.float64(), "<f8")),
    SchemaType.DATE: _Form(_UTC, _one(">i8"), _micros(_UTC, _of_milliseconds), *_HELD_MS),
    SchemaType.TIMESTAMP: _Form(_UTC, _one(">i8"), _micros(_UTC, _of_milliseconds), *_HELD_MS),
    SchemaType.TIME: _Form(pa.int64(), _one(">i8"), _micros(pa.int64(), _of_day)),
    SchemaType.INSTANT: _Form(_UTC, _two(">i4"), _micros(_UTC, _of_seconds), *_HELD_S),
    SchemaType.LOCAL_DATE: _Form(pa.date32(), _one(">i8"), _plain(pa.date32(), "<i4"), *_within(1 << 31)),
    SchemaType.LOCAL_TIME: _Form(pa.int64(), _one(">i8"), _plain(pa.int64(), "<i8"), 0, _DAY_NS - 1),
    SchemaType.LOCAL_DATE_TIME: _Form(_LOCAL, _two(">i8"), _micros(_LOCAL, _of_days), *_HELD_DAYS),
}


def arrow_type(kind: SchemaType) -> pa.DataType:
    """The type of the column of a primitive type."""
    return pa.string() if kind is SchemaType.STRING else _FORMS[kind].arrow if kind in _FORMS else pa.binary()


def decode_primitive(kind: SchemaType, values: pa.Array) -> Decoded:
    """Read ``values``, binary; null is null, and so is a value of another length than its type has."""
    if kind is SchemaType.STRING:
        return Decoded(cols.text(values), [])
    if kind not in _FORMS:
        return Decoded(values, [])
    form = _FORMS[kind]
    data, offsets, present = cols.ByteColumn.of(values).arrays
    sizes = np.diff(offsets)
    given = present.view(np.bool_)
    valid = given & (sizes == form.words.itemsize)
    size = form.words.itemsize
    picked = np.zeros((len(valid), size), np.uint8)
    picked[valid] = data[offsets[:-1][valid][:, None] + np.arange(size)]
    words = picked.view(form.words)[:, 0]
    held = _is_held(form, words)
    flaws = [
        Flaw(
            row,
            f"it is no {kind.name}, or none that the column can hold"
            if valid[row]
            else f"it has {int(sizes[row])} bytes, and a {kind.name} has {size}",
        )
        for row in np.flatnonzero(given & ~(valid & held)).tolist()
    ]
    return Decoded(form.column(words, valid & held), flaws)


def _is_held(form: _Form, words: _Words) -> _Valid:
    """Whether the column can hold a value, and its nanoseconds are fewer than those of a day or a second."""
    value = words["value"]
    if value.dtype.kind != "i" or value.dtype.itemsize < 8:
        return np.ones(len(value), np.bool_)
    held = (value >= form.first) & (value <= form.last)
    if "nanos" in (form.words.names or ()):
        nanos = words["nanos"]
        held &= (nanos >= 0) & (nanos < (_DAY_NS if nanos.dtype.itemsize == 8 else 1_000_000_000))
    return held
