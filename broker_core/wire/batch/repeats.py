# SPDX-License-Identifier: Apache-2.0
"""The kernel that looks for properties which a message has twice, so that the common case need not be mended."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from broker_core.wire.batch.compiled import ZERO, int64, kernel

Bytes = NDArray[np.uint8]
Int32s = NDArray[np.int32]

_ONE: Final = int64(1)


@kernel
def has_repeated_keys(buf: Bytes, keys: Int32s, property_offsets: Int32s, rows: int, compared_max: int) -> Any:
    """1 if some message has two properties of one key, or more than ``compared_max`` properties at all, else 0."""
    for row in range(rows):
        first, last = property_offsets[row], property_offsets[row + 1]
        if last - first > compared_max:
            return _ONE
        for a in range(first, last):
            start, size = keys[2 * a + 1], keys[2 * a + 2] - keys[2 * a + 1]
            for b in range(a + 1, last):
                other = keys[2 * b + 1]
                if keys[2 * b + 2] - other != size:
                    continue
                same = True
                for i in range(size):
                    if buf[start + i] != buf[other + i]:
                        same = False
                        break
                if same:
                    return _ONE
    return ZERO
