# SPDX-License-Identifier: Apache-2.0
"""Columns of keys: their hashes, base64 in which keys of bytes travel, and what of them is UTF-8 (``core.keys``)."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.base.hashing import HashingScheme
from broker_core.wire.batch.arrays import ByteColumn
from broker_core.wire.core.keys import decode_marked, encode_marked, hash_rows, mark_text

_SCHEMES: Final[tuple[HashingScheme, ...]] = ("java", "murmur3", "boost", "go")
"""By the numbers that ``hash_rows`` has for them."""


def hash_keys(keys: ByteColumn, scheme: HashingScheme) -> NDArray[np.int64]:
    """The hash of each key, 0 or more; -1 where there is none."""
    hashes = np.full(len(keys.present), -1, np.int64)
    hash_rows(*keys.arrays, _SCHEMES.index(scheme), hashes)
    return hashes


def decode_base64(keys: pa.Array, marked: NDArray[np.bool_]) -> pa.Array | int:
    """``keys`` (binary) with the marked rows decoded, or the number of the first row that is not base64."""
    column = ByteColumn.of(keys)
    out = np.empty(column.bytes_count, np.uint8)
    offsets = np.empty(len(keys) + 1, np.int32)
    bad_row = decode_marked(column.data, column.offsets, marked.view(np.uint8), out, offsets)
    return bad_row if bad_row >= 0 else column.replace(offsets, out).to_arrow(pa.binary())


def encode_base64(keys: ByteColumn, marked: NDArray[np.uint8]) -> ByteColumn:
    """``keys`` as they travel, with the marked rows encoded; nulls stay null."""
    sizes = np.diff(keys.offsets).astype(np.int64)
    out = np.empty(int(np.where(marked, (sizes + 2) // 3 * 4, sizes).sum()), np.uint8)
    offsets = np.empty(len(sizes) + 1, np.int32)
    encode_marked(keys.data, keys.offsets, marked, out, offsets)
    return keys.replace(offsets, out)


def is_text(keys: ByteColumn) -> NDArray[np.bool_]:
    """Which of ``keys`` are UTF-8; what is said of a null means nothing."""
    marked = np.empty(len(keys.present), np.uint8)
    mark_text(keys.data, keys.offsets, marked)
    return marked.view(np.bool_)
