# SPDX-License-Identifier: Apache-2.0
"""Several entries in one buffer, for kernels to walk: where they lie anyway if one block of memory holds them all in
their order (``wire.frame_blocks``), else copied one behind the other. Does not look into them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.wire.entry import BytesLike


class Together(NamedTuple):
    """Entry i is ``data[starts[i]:ends[i]]``. What lies between them is anybody's."""

    data: BytesLike
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


def put_together(bodies: Sequence[BytesLike]) -> Together:
    """At least one body."""
    sizes = np.array([len(body) for body in bodies], np.int64)
    first = bodies[0]
    if isinstance(first, memoryview) and all(share_memory(first, body) for body in bodies):
        block = memoryview(first.obj)
        starts = np.array([pa.py_buffer(body).address for body in bodies], np.int64) - pa.py_buffer(block).address
        ends = starts + sizes
        if (starts[1:] >= ends[:-1]).all():  # Columns are gathered, and payloads replaced, from front to back.
            return Together(block, starts, ends)
    ends = np.cumsum(sizes)
    return Together(b"".join(bodies), ends - sizes, ends)


def lies_in_block(body: BytesLike) -> bool:
    """Whether it keeps memory that others may lie in, rather than bytes of its own."""
    return isinstance(body, memoryview) and not isinstance(body.obj, bytes)


def share_memory(one: BytesLike, other: BytesLike) -> bool:
    """Whether both lie in one block, so that they need not be copied to be decoded together."""
    return isinstance(one, memoryview) and isinstance(other, memoryview) and one.obj is other.obj
