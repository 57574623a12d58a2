# SPDX-License-Identifier: Apache-2.0
"""Keys given as bytes travel as base64 text with a flag; kernels for both ways, and one that knows text from bytes.

Standard alphabet. Padding is written always and needed never; what is padded must be padded right. Source: Pulsar's
``partition_key_b64_encoded``; RFC 4648; RFC 3629.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.wire.batch.arrays import ByteColumn
from broker_core.wire.batch.compiled import ZERO, helper, int64, kernel

Bytes = NDArray[np.uint8]
Int32s = NDArray[np.int32]

_ALPHABET: Final = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_NOT_BASE64: Final = 255
_VALUES: Final = np.full(256, _NOT_BASE64, np.uint8)
_VALUES[_ALPHABET] = np.arange(64)
_VALUES.flags.writeable = False
_PAD: Final = 0x3D


@kernel
def decode_marked(data: Bytes, offsets: Int32s, marked: Bytes, values: Bytes, out: Bytes, out_offsets: Int32s) -> int:
    """Decode the rows that are marked and copy the others; returns the first row that is not base64, or -1.

    ``out`` must hold as many bytes as ``data`` has between the first and the last offset.
    """
    at = 0
    out_offsets[0] = 0
    for row in range(marked.size):
        start, end = offsets[row], offsets[row + 1]
        if not marked[row]:
            for i in range(start, end):
                out[at] = data[i]
                at += 1
            out_offsets[row + 1] = at
            continue
        if end > start and (end - start) % 4 == 0 and data[end - 1] == _PAD:
            end -= 1
            if data[end - 1] == _PAD:
                end -= 1
        if (end - start) % 4 == 1:
            return row
        bits = ZERO
        count = 0
        for i in range(start, end):
            value = int64(values[data[i]])
            if value == _NOT_BASE64:
                return row
            bits = (bits << 6 | value) & 0xFFFF
            count += 6
            if count >= 8:
                count -= 8
                out[at] = bits >> count & 0xFF
                at += 1
        out_offsets[row + 1] = at
    return -1


@kernel
def encode_marked(
    data: Bytes, offsets: Int32s, marked: Bytes, alphabet: Bytes, out: Bytes, out_offsets: Int32s
) -> None:
    """Encode the rows that are marked and copy the others.

    ``out`` must hold four bytes for every three of a row that is marked, rounded up, and the others as they are.
    """
    at = 0
    out_offsets[0] = 0
    for row in range(marked.size):
        start, end = offsets[row], offsets[row + 1]
        if not marked[row]:
            for i in range(start, end):
                out[at] = data[i]
                at += 1
            out_offsets[row + 1] = at
            continue
        for i in range(start, end, 3):
            left = end - i
            bits = int64(data[i]) << 16
            if left > 1:
                bits |= int64(data[i + 1]) << 8
            if left > 2:
                bits |= int64(data[i + 2])
            out[at] = alphabet[bits >> 18]
            out[at + 1] = alphabet[bits >> 12 & 0x3F]
            out[at + 2] = alphabet[bits >> 6 & 0x3F] if left > 1 else _PAD
            out[at + 3] = alphabet[bits & 0x3F] if left > 2 else _PAD
            at += 4
        out_offsets[row + 1] = at


@helper
def _character_size(data: Bytes, at: int, end: int) -> Any:
    """Bytes of the character of UTF-8 at ``at``; 0 if there is none."""
    first = int64(data[at])
    if first < 0x80:
        return ZERO + 1
    size = ZERO + 2 + (first >= 0xE0) + (first >= 0xF0)
    if first < 0xC2 or first > 0xF4 or at + size > end:
        return ZERO
    second = int64(data[at + 1])
    if (first == 0xE0 and second < 0xA0) or (first == 0xF0 and second < 0x90):
        return ZERO  # it would fit into fewer bytes
    if (first == 0xED and second > 0x9F) or (first == 0xF4 and second > 0x8F):
        return ZERO  # half a surrogate pair, or behind the last character
    for i in range(at + 1, at + size):
        if data[i] >> 6 != 2:
            return ZERO
    return size


@kernel
def mark_text(data: Bytes, offsets: Int32s, marked: Bytes) -> None:
    """Mark the rows that are UTF-8."""
    for row in range(marked.size):
        at, end = int64(offsets[row]), int64(offsets[row + 1])
        size = ZERO + 1
        while at < end and size > 0:
            size = _character_size(data, at, end)
            at += size
        marked[row] = at >= end


def decode_base64(keys: pa.Array, marked: NDArray[np.bool_]) -> pa.Array | int:
    """``keys`` (binary) with the marked rows decoded, or the number of the first row that is not base64."""
    column = ByteColumn.of(keys)
    out = np.empty(column.bytes_count, np.uint8)
    offsets = np.empty(len(keys) + 1, np.int32)
    bad_row = decode_marked(column.data, column.offsets, marked.view(np.uint8), _VALUES, out, offsets)
    return int(bad_row) if bad_row >= 0 else column.replace(offsets, out).to_arrow(pa.binary())


def encode_base64(keys: ByteColumn, marked: NDArray[np.uint8]) -> ByteColumn:
    """``keys`` as they travel, with the marked rows encoded; nulls stay null."""
    sizes = np.diff(keys.offsets).astype(np.int64)
    out = np.empty(int(np.where(marked, (sizes + 2) // 3 * 4, sizes).sum()), np.uint8)
    offsets = np.empty(len(sizes) + 1, np.int32)
    encode_marked(keys.data, keys.offsets, marked, _ALPHABET, out, offsets)
    return keys.replace(offsets, out)


def is_text(keys: ByteColumn) -> NDArray[np.bool_]:
    """Which of ``keys`` are UTF-8; what is said of a null means nothing."""
    marked = np.empty(len(keys.present), np.uint8)
    mark_text(keys.data, keys.offsets, marked)
    return marked.view(np.bool_)
