# SPDX-License-Identifier: Apache-2.0
"""Columns between Arrow and the kernels, as numpy arrays: no row is touched in Python.

Memory is shared between numpy and Arrow by hand: ``pyarrow.array``, ``to_numpy`` and, in older versions, even
``to_pandas_dtype`` import pandas where it is installed, which takes a third of a second in each cold worker of Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.base.allocator import keep_some
from broker_core.base.errors import UsageError
from broker_core.wire.batch.schema import PROPERTIES_TYPE
from broker_core.wire.core.entries import copy_values, place_values

_DTYPES: Final = {pa.from_numpy_dtype(name).id: np.dtype(name) for name in ("int32", "int64")}
"""Arrow's integer types to numpy's."""

NO_TEXT: Final = pa.nulls(0, pa.string())


@dataclass(frozen=True, slots=True)
class ByteColumn:
    """Row i is ``data[offsets[i]:offsets[i + 1]]``, null unless ``present[i]``. A null row may have any length."""

    data: NDArray[np.uint8]
    offsets: NDArray[np.int32]
    present: NDArray[np.uint8]

    @classmethod
    def of(cls, array: pa.Array) -> ByteColumn:
        """A view of a binary or string array; nothing is copied."""
        rows = len(array)
        _, offsets, data = array.buffers()
        if rows == 0 or offsets is None:
            return cls.nulls(rows)
        return cls(
            np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8),
            np.frombuffer(offsets, np.int32)[array.offset : array.offset + rows + 1],
            presence(array),
        )

    @classmethod
    def nulls(cls, rows: int) -> ByteColumn:
        """A column that is null throughout."""
        return cls(np.empty(0, np.uint8), np.zeros(rows + 1, np.int32), np.zeros(rows, np.uint8))

    @property
    def arrays(self) -> tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.uint8]]:
        """Data, offsets, presence: the order in which kernels take them."""
        return self.data, self.offsets, self.present

    def get(self, row: int) -> bytes | None:
        """The value of one row; for the rare row that is not left to a kernel."""
        return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes() if self.present[row] else None

    def to_arrow(self, kind: pa.DataType) -> pa.Array:
        """The array again, of type ``kind`` (binary or string); ``offsets`` must start at the front of their memory."""
        buffers = [validity(self.present), pa.py_buffer(self.offsets), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(kind, len(self.present), buffers)


def presence(array: pa.Array) -> NDArray[np.uint8]:
    """1 for each row that is not null."""
    if array.null_count == 0:
        return np.ones(len(array), np.uint8)
    bits = np.unpackbits(np.frombuffer(array.buffers()[0], np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)]


def row_of_element(offsets: NDArray[np.int32], element: int) -> int:
    """The row of a list array, with these ``offsets``, whose list has ``element`` of its child array."""
    return int(np.searchsorted(offsets, element, side="right")) - 1


# -- to Arrow


def gather(
    data: NDArray[np.uint8], spans: NDArray[np.int32], count: int, valid: NDArray[np.bool_] | None = None
) -> pa.Array:
    """A binary array of ``count`` values out of ``data``; ``spans`` holds 0, then start and end of each.

    The memory is counted first and taken exactly; Arrow's ``take`` grows its buffer as it goes and costs twice as much.
    ``valid`` marks the values that are not null; the spans of the others are empty.
    """
    if count == 0:
        return pa.nulls(0, pa.binary())
    keep_some()
    offsets = np.empty(count + 1, np.int32)
    place_values(spans, offsets)
    values = np.empty(int(offsets[-1]), np.uint8)
    copy_values(data, spans, values)
    return pa.Array.from_buffers(pa.binary(), count, [validity(valid), pa.py_buffer(offsets), pa.py_buffer(values)])


def validity(valid: NDArray[np.bool_ | np.uint8] | None) -> pa.Buffer | None:
    """An Arrow validity bitmap, or None if nothing is null."""
    if valid is None or valid.all():
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def numbers(values: NDArray[Any], valid: NDArray[np.bool_] | None = None) -> pa.Array:
    """A primitive array over ``values``, without copying them."""
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [validity(valid), pa.py_buffer(values)])


def values_of(array: pa.Array) -> NDArray[Any]:
    """The values of an array of integers, without copying them; what a null holds is not defined."""
    values: NDArray[Any] = np.frombuffer(array.buffers()[1], _DTYPES[array.type.id])
    return values[array.offset : array.offset + len(array)]


def booleans(values: NDArray[np.bool_], valid: NDArray[np.bool_] | None = None) -> pa.Array:
    """A boolean array."""
    bits = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [validity(valid), bits])


def text(values: pa.Array) -> pa.Array:
    """Binary as string. Bytes that are not UTF-8 are replaced, as every client does when it shows them."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if v is None else v.decode(errors="replace") for v in values.to_pylist()], pa.string())


def flags_of(array: pa.Array) -> NDArray[np.bool_]:
    """The values of a boolean array; what a null holds is not defined."""
    bits = np.unpackbits(np.frombuffer(array.buffers()[1], np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].view(np.bool_)


def properties(keys: pa.Array, values: pa.Array, offsets: NDArray[np.int32], *, repeated: bool) -> pa.Array:
    """A map array; the properties of row i are those from ``offsets[i]`` to ``offsets[i + 1]``.

    ``repeated``: some row may have a key twice. The last value then wins, at the place of the first, as in a dict.
    """
    if not repeated:
        try:
            return pa.MapArray.from_arrays(numbers(offsets), keys.cast(pa.string()), values.cast(pa.string()))
        except pa.ArrowInvalid:  # not UTF-8: replacing bytes may make keys equal
            pass
    pairs = list(zip(text(keys).to_pylist(), text(values).to_pylist(), strict=True))
    rows = [dict(pairs[first:last]) for first, last in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]
    return pa.array([list(row.items()) for row in rows], PROPERTIES_TYPE)


# -- columns that a caller gives, of whatever Arrow type


def plain_column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """A column by its name, None if there is none or it is null throughout by its type."""
    at = batch.schema.get_field_index(name)
    if at < 0 or pa.types.is_null(batch.schema.field(at).type):
        return None
    column = batch.column(at)
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def is_text_type(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_bytes_type(kind: pa.DataType) -> bool:
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    return bool(binary or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind))


def byte_column(array: pa.Array | None, name: str, rows: int) -> ByteColumn:
    """``array`` (None: nulls throughout) as kernels take it; UsageError if it is neither text nor bytes."""
    if array is None:
        return ByteColumn.nulls(rows)
    if not is_text_type(array.type) and not is_bytes_type(array.type):
        raise bad_type(name, array.type, "string or binary")
    return ByteColumn.of(narrow(array, name, pa.string() if is_text_type(array.type) else pa.binary()))


def narrow(array: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
    """``array`` with offsets of 32 bits."""
    try:
        return array if array.type == kind else array.cast(kind)
    except pa.ArrowInvalid as error:
        raise UsageError(f"column {name!r} cannot be sent in one batch: {error}", hint="send fewer rows") from error


def is_valid(array: pa.Array) -> bool:
    """Whether ``array`` is sound, and UTF-8 if its type is text: Arrow does not look when it takes over memory."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def bad_type(name: str, kind: pa.DataType, wanted: str) -> UsageError:
    return UsageError(f"column {name!r} is of type {kind}", hint=f"give it the type {wanted}")
