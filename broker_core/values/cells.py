# SPDX-License-Identifier: Apache-2.0
"""Cells of columns that are to be written, for ``wire.core.written_values``: whole columns at a time, out of Arrow's.

A cell that is no value of its schema is marked as a misfit: whether that matters is known when its row is written, as a
cell may stand below a null.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from broker_core.base.errors import UsageError
from broker_core.wire.batch import columns as cols
from broker_core.wire.batch.sent_keys import is_text
from broker_core.wire.core.written_values import MISFIT

Numbers: TypeAlias = NDArray[np.int64]

_SOURCE_BYTES_MAX: Final = (1 << 31) - 1
_DECIMAL_BYTES: Final = 16
_INT_MAX: Final = (1 << 31) - 1
_UUID: Final = re.compile(rb"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_UNSIGNED_MAX: Final = (1 << 32) - 1


class Cells:
    """The cells of all columns of some rows, and the source that some of them point into."""

    def __init__(self, columns: int, constants: bytes) -> None:
        self._source: list[NDArray[np.uint8]] = [np.frombuffer(constants or b"\0", np.uint8)]
        self._size = len(self._source[0])
        self._cells: list[Numbers] = [np.zeros(0, np.int64)] * columns
        self._present: list[NDArray[np.uint8]] = [np.zeros(0, np.uint8)] * columns

    def put(self, column: int, cells: Numbers, present: NDArray[np.uint8]) -> None:
        """Fill in a column."""
        self._cells[column], self._present[column] = cells, present

    def spans(self, data: NDArray[np.uint8], starts: Numbers, sizes: Numbers) -> Numbers:
        """Cells that point to ``data``, which becomes a part of the source."""
        base = self._size
        self._size += len(data)
        if self._size > _SOURCE_BYTES_MAX:
            raise UsageError("these rows have more than 2 GiB", hint="write fewer of them at once")
        self._source.append(data)
        return ((starts + base) << 32) | sizes

    @property
    def source(self) -> NDArray[np.uint8]:
        """The constants, and what cells point to."""
        return np.concatenate(self._source)

    @property
    def size_bytes(self) -> int:
        """Bytes that the rows take, about."""
        return self._size + 3 * sum(map(len, self._cells))

    @property
    def arrays(self) -> tuple[Numbers, Numbers, NDArray[np.uint8]]:
        """Where each column begins, all cells, and their presence: the order in which the kernel takes them."""
        sizes = np.array([len(each) for each in self._cells], np.int64)
        # One more, so that there is a first even without a row.
        cells, present = [*self._cells, np.zeros(1, np.int64)], [*self._present, np.zeros(1, np.uint8)]
        return np.cumsum(sizes) - sizes, np.concatenate(cells), np.concatenate(present)


Maker: TypeAlias = Callable[[pa.Array, Cells], tuple[Numbers, NDArray[np.uint8]]]
"""Makes the cells of a column, and says which are present."""


def presence_alone(array: pa.Array, _into: Cells) -> tuple[Numbers, NDArray[np.uint8]]:
    """A record: its cells say nothing but whether it is there."""
    return np.zeros(len(array), np.int64), cols.presence(array)


def ends(array: pa.Array, _into: Cells) -> tuple[Numbers, NDArray[np.uint8]]:
    """A list: the ends of its items, counted from the first item of the first row."""
    offsets = list_offsets(array)
    return (offsets[1:] - offsets[0]).astype(np.int64), cols.presence(array)


def list_offsets(array: pa.Array) -> NDArray[np.int32]:
    """The offsets of a list or map array, one more than it has rows."""
    if not len(array):
        return np.zeros(1, np.int32)
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]


def _values(array: pa.Array) -> NDArray[Any]:
    return cols.values_of(array) if len(array) else np.zeros(0, np.int64)


# -- numbers


def whole(kind: pa.DataType) -> Maker:
    """Numbers, and what Arrow has as numbers of this type."""

    def made(array: pa.Array, _into: Cells) -> tuple[Numbers, NDArray[np.uint8]]:
        plain = array if array.type == kind else array.cast(kind)
        return _values(plain).astype(np.int64), cols.presence(array)

    return made


def micros(kind: pa.DataType, unit: str) -> Maker:
    """Times in microseconds, or cut to milliseconds, or in nanoseconds, which do not reach as far."""

    def made(array: pa.Array, _into: Cells) -> tuple[Numbers, NDArray[np.uint8]]:
        plain = array if array.type == kind else array.cast(kind, safe=False)
        values, present = _values(plain.view(pa.int64())), cols.presence(array)
        if unit == "millis":
            return values // 1000, present
        if unit == "nanos":
            with np.errstate(over="ignore"):
                nanos = values * 1000
            return nanos, np.where(nanos // 1000 == values, present, present * MISFIT)
        return values.astype(np.int64), present

    return made


def of_day(unit: str) -> Maker:
    """Microseconds of the day, as numbers or times, or cut to milliseconds."""

    def made(array: pa.Array, into: Cells) -> tuple[Numbers, NDArray[np.uint8]]:
        if pa.types.is_time(array.type):
            array = array.cast(pa.time64("us"), safe=False).view(pa.int64())
        cells, present = whole(pa.int64())(array, into)
        if unit == "millis":
            cells = cells // 1000
            return cells, np.where(np.abs(cells) <= _INT_MAX, present, present * MISFIT)
        return cells, present

    return made


def bits(kind: pa.DataType) -> Maker:
    """Floating-point numbers as their bits."""

    def made(array: pa.Array, _into: Cells) -> tuple[Numbers, NDArray[np.uint8]]:
        plain = array if array.type == kind else array.cast(kind)
        integers = pa.int32() if kind == pa.float32() else pa.int64()
        return _values(plain.view(integers)).astype(np.int64), cols.presence(array)

    return made


def truth(array: pa.Array, _into: Cells) -> tuple[Numbers, NDArray[np.uint8]]:
    """Booleans."""
    if not len(array):
        return np.zeros(0, np.int64), np.zeros(0, np.uint8)
    return cols.flags_of(array).astype(np.int64), cols.presence(array)


def symbols(known: tuple[str, ...]) -> Maker:
    """Symbols of an enum as their numbers."""

    def made(array: pa.Array, _into: Cells) -> tuple[Numbers, NDArray[np.uint8]]:
        found = pc.index_in(array, value_set=pa.array(known, pa.string()))
        is_known, present = cols.presence(found), cols.presence(array)
        cells = np.where(is_known, _values(found), 0).astype(np.int64)
        return cells, np.where(is_known, present, present * MISFIT)

    return made


# -- bytes


def spans(array: pa.Array, into: Cells) -> tuple[Numbers, NDArray[np.uint8]]:
    """Text and bytes as they are."""
    data, offsets, present = cols.ByteColumn.of(array).arrays
    if not len(array):
        return np.zeros(0, np.int64), present
    first, last = int(offsets[0]), int(offsets[-1])
    starts = offsets[:-1].astype(np.int64)
    return into.spans(data[first:last], starts - first, offsets[1:] - starts), present


def text_spans(array: pa.Array, into: Cells) -> tuple[Numbers, NDArray[np.uint8]]:
    """Text that has to be UTF-8, as JSON is: Spark makes strings of any bytes."""
    cells, present = spans(array, into)
    if cols.is_valid(array):
        return cells, present
    return cells, np.where(is_text(cols.ByteColumn.of(array)), present, present * MISFIT)


def known_spans(known: tuple[str, ...]) -> Maker:
    """Symbols of an enum as text."""

    def made(array: pa.Array, into: Cells) -> tuple[Numbers, NDArray[np.uint8]]:
        return spans(array, into)[0], symbols(known)(array, into)[1]

    return made


def sized_spans(size: int) -> Maker:
    """Bytes of which there have to be ``size``."""

    def made(array: pa.Array, into: Cells) -> tuple[Numbers, NDArray[np.uint8]]:
        cells, present = spans(array, into)
        return cells, np.where((cells & _UNSIGNED_MAX) == size, present, present * MISFIT)

    return made


def texts(array: pa.Array, into: Cells) -> tuple[Numbers, NDArray[np.uint8]]:
    """Numbers and truth as JSON has them, decimals as text."""
    return spans(array.cast(pa.string()), into)


def float_texts(array: pa.Array, into: Cells) -> tuple[Numbers, NDArray[np.uint8]]:
    """Floating-point numbers as JSON, the shortest text of each; what is none is a text in it, as Java writes it."""
    shown = array.cast(pa.string())
    if not pc.all(pc.is_finite(array), min_count=0).as_py():
        shown = pc.if_else(pc.is_nan(array), '"NaN"', shown)
        for value, text in ((np.inf, '"Infinity"'), (-np.inf, '"-Infinity"')):
            shown = pc.if_else(pc.equal(array, pa.scalar(value, array.type)), text, shown)
    return spans(shown, into)


def decimals(kind: pa.DataType, size: int) -> Maker:
    """Decimals in two's complement, big endian: in ``size`` bytes, or, if that is 0, in as few as there can be."""

    def made(array: pa.Array, into: Cells) -> tuple[Numbers, NDArray[np.uint8]]:
        present = cols.presence(array)
        plain = array if array.type == kind else array.cast(kind)
        if not len(plain):
            return np.zeros(0, np.int64), present
        little = np.frombuffer(plain.buffers()[1], np.uint8).reshape(-1, _DECIMAL_BYTES)
        big = little[plain.offset : plain.offset + len(plain), ::-1]
        fill = np.where(big[:, 0] >= 0x80, 0xFF, 0).astype(np.uint8)
        if size > _DECIMAL_BYTES:
            big = np.concatenate([np.repeat(fill[:, None], size - _DECIMAL_BYTES, axis=1), big], axis=1)
        width = big.shape[1]
        firsts = _firsts(big, fill)
        starts = firsts if not size else np.full(len(big), width - size, np.int64)
        cells = into.spans(np.ascontiguousarray(big).ravel(), np.arange(len(big)) * width + starts, width - starts)
        return cells, np.where(firsts >= starts, present, present * MISFIT)

    return made


def _firsts(big: NDArray[np.uint8], fill: NDArray[np.uint8]) -> Numbers:
    """The first byte of each number that is needed: one bit of its sign has to stay."""
    same = big == fill[:, None]
    same[:, -1] = False
    firsts = np.argmin(same, axis=1).astype(np.int64)
    is_sign_lost = (big[np.arange(len(big)), firsts] >= 0x80) != (fill != 0)
    needed: Numbers = np.maximum(firsts - is_sign_lost, 0)
    return needed


def uuids(array: pa.Array, into: Cells) -> tuple[Numbers, NDArray[np.uint8]]:
    """UUIDs, given as text, in sixteen bytes. One by one: Arrow has no reader of hexadecimal digits."""
    found = [None if each is None else _uuid(each) for each in array.cast(pa.binary()).to_pylist()]
    cells, present = spans(pa.array([each or b"" for each in found], pa.binary()), into)
    given = cols.presence(array)
    return cells, np.where(np.array([each != b"" for each in found], np.bool_), given, present * MISFIT)


def _uuid(text: bytes) -> bytes:
    return bytes.fromhex(text.replace(b"-", b"").decode()) if _UUID.fullmatch(text) else b""


def uuid_spans(array: pa.Array, into: Cells) -> tuple[Numbers, NDArray[np.uint8]]:
    """UUIDs that stay text."""
    return spans(array, into)[0], uuids(array, into)[1]


def durations(array: pa.Array, into: Cells) -> tuple[Numbers, NDArray[np.uint8]]:
    """Months, days and milliseconds in twelve bytes, little endian."""
    parts = [array.field(name) for name in ("months", "days", "millis")]
    values = np.stack([_values(each) for each in parts], axis=1)
    fits = (values >= 0) & (values <= _UNSIGNED_MAX) & np.stack([cols.presence(each) != 0 for each in parts], axis=1)
    words = np.ascontiguousarray(values.astype("<u4"))
    starts = np.arange(len(words), dtype=np.int64) * 12
    cells = into.spans(words.view(np.uint8).ravel(), starts, np.full(len(words), 12, np.int64))
    present = cols.presence(array)
    return cells, np.where(fits.all(axis=1), present, present * MISFIT)
