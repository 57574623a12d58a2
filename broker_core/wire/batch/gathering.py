# SPDX-License-Identifier: Apache-2.0
"""Values that lie apart, copied one behind the other, as Arrow's binary arrays want them.

Spans are a leading 0, then "start, end, start, end" of the values; they never decrease and lie inside of the data,
which the walk that wrote them has seen to. The kernels count first and take the memory exactly; Arrow's ``take`` grows
its buffer as it goes and costs twice as much. It does the work where kernels are not compiled: byte by byte in Python
would take seconds. There the spans are a valid offsets buffer of twice as many values, of which every other one is the
gap between two messages.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.base.allocator import keep_some
from broker_core.wire.batch.compiled import COMPILED, ZERO, int64, kernel

Bytes = NDArray[np.uint8]
Int32s = NDArray[np.int32]

_uint64: Final[Any] = np.uint64
"""For places in the copying loop: what cannot be negative is not looked at, so many bytes are moved at once."""


def gathered(data: Bytes, spans: Int32s, count: int) -> pa.Array:
    """A binary array without nulls of the ``count`` values, at least one, of ``spans``."""
    if not COMPILED:
        return _taken(data, spans, count)
    keep_some()
    offsets = np.empty(count + 1, np.int32)
    place_values(spans, offsets)
    values = np.empty(int(offsets[-1]), np.uint8)
    copy_values(data, spans, values)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(values)])


@kernel
def place_values(spans: Int32s, offsets: Int32s) -> None:
    """Where each value of ``spans`` begins behind those before it, and where the last one ends."""
    end = ZERO
    offsets[0] = 0
    for row in range(offsets.size - 1):
        end += int64(spans[2 * row + 2]) - int64(spans[2 * row + 1])
        offsets[row + 1] = end


@kernel
def copy_values(data: Bytes, spans: Int32s, values: Bytes) -> None:
    """Copy the values of ``spans`` to ``values``, which has room for them and no more."""
    at = _uint64(0)
    for row in range((spans.size - 1) // 2):
        start = _uint64(spans[2 * row + 1])
        size = _uint64(spans[2 * row + 2]) - start
        for i in range(size):
            values[at + i] = data[start + i]
        at += size


def _taken(data: Bytes, spans: Int32s, count: int) -> pa.Array:
    with_gaps = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(spans), pa.py_buffer(data)])
    odd = np.arange(1, 2 * count, 2, dtype=np.int32)
    return with_gaps.take(pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(odd)]))
