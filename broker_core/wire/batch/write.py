# SPDX-License-Identifier: Apache-2.0
"""Kernels that write batches: how large each message gets, where to split, and the bytes themselves.

Sizing and writing are two passes over the same rows, so that the memory is taken once and exactly. A message is: size
(4 bytes, big endian), SingleMessageMetadata with its fields in the order of their numbers, as protobuf writes them, and
the payload. Columns are as in ``arrays.ByteColumn``: data, offsets, presence.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from broker_core.wire.batch.compiled import ZERO, helper, int64, kernel

Bytes = NDArray[np.uint8]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

SIZE_BYTES: Final = 4
_TAG_PROPERTY: Final = 0x0A
_TAG_KEY: Final = 0x12
_TAG_PAYLOAD_SIZE: Final = 0x18
_TAG_EVENT_TIME: Final = 0x28
_TAG_KEY_IS_BASE64: Final = 0x30
_TAG_ORDERING_KEY: Final = 0x3A
_TAG_SEQUENCE_ID: Final = 0x40
_TAG_NULL_VALUE: Final = 0x48


@helper
def _varint_size(value: int) -> Any:
    """Bytes of ``value`` as a varint; a negative number takes ten."""
    size = ZERO + 1
    while value < 0 or value > 0x7F:
        value = value >> 7 & 0x01FFFFFFFFFFFFFF
        size += 1
    return size


@helper
def _bytes_size(count: int) -> Any:
    """Bytes of a field of ``count`` bytes, with tag and length."""
    return 1 + _varint_size(count) + count


@helper
def _length(offsets: Int32s, present: Bytes, row: int) -> Any:
    """Length of a value, 0 if it is null."""
    return int64(offsets[row + 1]) - int64(offsets[row]) if present[row] else ZERO


@kernel
def size_rows(
    key_offsets: Int32s,
    key_present: Bytes,
    keys_are_base64: Bytes,
    value_offsets: Int32s,
    value_present: Bytes,
    ordering_offsets: Int32s,
    ordering_present: Bytes,
    property_rows: Int32s,
    name_offsets: Int32s,
    text_offsets: Int32s,
    event_times: Int64s,
    sequence_ids: Int64s,
    metadata_sizes: Int64s,
    payload_sizes: Int64s,
    key_sizes: Int64s,
) -> None:
    """For each row: bytes of its SingleMessageMetadata, of its payload, and of both its keys alone."""
    for row in range(payload_sizes.size):
        payload = _length(value_offsets, value_present, row)
        size = 1 + _varint_size(payload) + 1 + _varint_size(sequence_ids[row])
        for i in range(property_rows[row], property_rows[row + 1]):
            name = int64(name_offsets[i + 1]) - int64(name_offsets[i])
            text = int64(text_offsets[i + 1]) - int64(text_offsets[i])
            size += _bytes_size(_bytes_size(name) + _bytes_size(text))
        keys = ZERO
        if key_present[row]:
            keys += _bytes_size(_length(key_offsets, key_present, row))
            if keys_are_base64[row]:
                size += 2
        if ordering_present[row]:
            keys += _bytes_size(_length(ordering_offsets, ordering_present, row))
        if event_times[row] != 0:
            size += 1 + _varint_size(event_times[row])
        if not value_present[row]:
            size += 2
        metadata_sizes[row] = size + keys
        payload_sizes[row] = payload
        key_sizes[row] = keys


@kernel
def split_rows(
    metadata_sizes: Int64s,
    payload_sizes: Int64s,
    key_sizes: Int64s,
    messages_max: int,
    bytes_max: int,
    starts: Int64s,
    entry_sizes: Int64s,
) -> Any:
    """Cut the rows into entries and return their number; entry e begins with row ``starts[e]`` and ends with the next.

    ``entry_sizes`` gets the bytes of the members of each. The keys of the first row count twice, because the entry
    repeats them. A row that exceeds ``bytes_max`` makes an entry of its own.
    """
    entries = ZERO
    messages = ZERO
    taken = ZERO
    starts[0] = 0
    for row in range(payload_sizes.size):
        size = SIZE_BYTES + metadata_sizes[row] + payload_sizes[row]
        if messages > 0 and (messages == messages_max or taken + size > bytes_max):
            entries += 1
            messages = ZERO
        if messages == 0:
            starts[entries] = row
            entry_sizes[entries] = 0
            taken = key_sizes[row]
        messages += 1
        taken += size
        entry_sizes[entries] += size
    entries += 1
    starts[entries] = payload_sizes.size
    return entries


@helper
def _put_varint(out: Bytes, at: int, value: int) -> int:
    while value < 0 or value > 0x7F:
        out[at] = value & 0x7F | 0x80
        value = value >> 7 & 0x01FFFFFFFFFFFFFF
        at += 1
    out[at] = value
    return at + 1


@helper
def _put_bytes(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    """Copy ``data[start:end]``; indexes that cannot be negative are what makes the compiler use wide moves."""
    to, source = np.uint64(at), np.uint64(start)
    for i in range(np.uint64(end - start)):
        out[to + i] = data[source + i]
    return at + end - start


@helper
def _put_field(out: Bytes, at: int, tag: int, data: Bytes, start: int, end: int) -> Any:
    out[at] = tag
    at = _put_varint(out, at + 1, end - start)
    return _put_bytes(out, at, data, start, end)


@helper
def _put_u32(out: Bytes, at: int, value: int) -> int:
    out[at] = value >> 24 & 0xFF
    out[at + 1] = value >> 16 & 0xFF
    out[at + 2] = value >> 8 & 0xFF
    out[at + 3] = value & 0xFF
    return at + 4


@kernel
def write_rows(
    starts: Int64s,
    places: Int64s,
    key_data: Bytes,
    key_offsets: Int32s,
    key_present: Bytes,
    keys_are_base64: Bytes,
    value_data: Bytes,
    value_offsets: Int32s,
    value_present: Bytes,
    ordering_data: Bytes,
    ordering_offsets: Int32s,
    ordering_present: Bytes,
    property_rows: Int32s,
    name_data: Bytes,
    name_offsets: Int32s,
    text_data: Bytes,
    text_offsets: Int32s,
    event_times: Int64s,
    sequence_ids: Int64s,
    metadata_sizes: Int64s,
    payload_sizes: Int64s,
    out: Bytes,
) -> None:
    """Write the messages of each entry e, rows ``starts[e]`` to ``starts[e + 1]``, to ``out`` from ``places[e]``.

    An entry whose place is negative is left out.
    """
    entry = ZERO
    at = places[0]
    for row in range(payload_sizes.size):
        if row == starts[entry + 1]:
            entry += 1
            at = places[entry]
        if at < 0:
            continue
        at = _put_u32(out, at, metadata_sizes[row])
        for i in range(property_rows[row], property_rows[row + 1]):
            name_start, name_end = int64(name_offsets[i]), int64(name_offsets[i + 1])
            text_start, text_end = int64(text_offsets[i]), int64(text_offsets[i + 1])
            out[at] = _TAG_PROPERTY
            at = _put_varint(out, at + 1, _bytes_size(name_end - name_start) + _bytes_size(text_end - text_start))
            at = _put_field(out, at, 0x0A, name_data, name_start, name_end)
            at = _put_field(out, at, 0x12, text_data, text_start, text_end)
        if key_present[row]:
            start, end = int64(key_offsets[row]), int64(key_offsets[row + 1])
            at = _put_field(out, at, _TAG_KEY, key_data, start, end)
        out[at] = _TAG_PAYLOAD_SIZE
        at = _put_varint(out, at + 1, payload_sizes[row])
        if event_times[row] != 0:
            out[at] = _TAG_EVENT_TIME
            at = _put_varint(out, at + 1, event_times[row])
        if keys_are_base64[row]:
            out[at] = _TAG_KEY_IS_BASE64
            out[at + 1] = 1
            at += 2
        if ordering_present[row]:
            start, end = int64(ordering_offsets[row]), int64(ordering_offsets[row + 1])
            at = _put_field(out, at, _TAG_ORDERING_KEY, ordering_data, start, end)
        out[at] = _TAG_SEQUENCE_ID
        at = _put_varint(out, at + 1, sequence_ids[row])
        if not value_present[row]:
            out[at] = _TAG_NULL_VALUE
            out[at + 1] = 1
            at += 2
        start = int64(value_offsets[row])
        at = _put_bytes(out, at, value_data, start, start + payload_sizes[row])
