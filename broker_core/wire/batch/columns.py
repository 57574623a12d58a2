# SPDX-License-Identifier: Apache-2.0
"""Arrow arrays out of walked spans and back: no row is touched in Python.

Memory is shared between numpy and Arrow by hand: ``pyarrow.array``, ``to_numpy`` and, in older versions, even
``to_pandas_dtype`` import pandas where it is installed, which takes a third of a second in each cold worker of Spark.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.base.allocator import keep_some
from broker_core.wire.batch.schema import PROPERTIES_TYPE
from broker_core.wire.core.entries import copy_values, place_values

_DTYPES: Final = {pa.from_numpy_dtype(name).id: np.dtype(name) for name in ("int32", "int64")}
"""Arrow's integer types to numpy's."""

_NO_TEXT: Final = pa.nulls(0, pa.string())


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
    bitmap = None if valid is None else validity(valid)
    return pa.Array.from_buffers(pa.binary(), count, [bitmap, pa.py_buffer(offsets), pa.py_buffer(values)])


def validity(valid: NDArray[np.bool_]) -> pa.Buffer | None:
    """An Arrow validity bitmap, or None if nothing is null."""
    if valid.all():
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def numbers(values: NDArray[Any], valid: NDArray[np.bool_] | None = None) -> pa.Array:
    """A primitive array over ``values``, without copying them."""
    kind = pa.from_numpy_dtype(values.dtype)
    bitmap = None if valid is None else validity(valid)
    return pa.Array.from_buffers(kind, len(values), [bitmap, pa.py_buffer(values)])


def values_of(array: pa.Array) -> NDArray[Any]:
    """The values of an array of integers, without copying them; what a null holds is not defined."""
    values: NDArray[Any] = np.frombuffer(array.buffers()[1], _DTYPES[array.type.id])
    return values[array.offset : array.offset + len(array)]


def booleans(values: NDArray[np.bool_], valid: NDArray[np.bool_] | None = None) -> pa.Array:
    """A boolean array."""
    bitmap = None if valid is None else validity(valid)
    bits = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [bitmap, bits])


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
            return _map(offsets, keys.cast(pa.string()), values.cast(pa.string()))
        except pa.ArrowInvalid:  # not UTF-8: replacing bytes may make keys equal
            pass
    pairs = list(zip(text(keys).to_pylist(), text(values).to_pylist(), strict=True))
    rows = [dict(pairs[first:last]) for first, last in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]
    return pa.array([list(row.items()) for row in rows], PROPERTIES_TYPE)


def no_properties(offsets: NDArray[np.int32]) -> pa.Array:
    """A map array whose rows, one fewer than ``offsets``, are all empty."""
    return _map(offsets, _NO_TEXT, _NO_TEXT)


def _map(offsets: NDArray[np.int32], keys: pa.Array, items: pa.Array) -> pa.Array:
    return pa.MapArray.from_arrays(numbers(offsets), keys, items)
