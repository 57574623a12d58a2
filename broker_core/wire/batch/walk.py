# SPDX-License-Identifier: Apache-2.0
"""Kernels that walk entries: where each field of each message lies, without copying one byte.

One table-driven walker reads MessageMetadata and SingleMessageMetadata alike: a table maps a protobuf tag to a slot,
the walker stores the number, or start and end of the bytes, found under it. Semantics are protobuf's: unknown fields
and known numbers with another wire type are skipped, the last of a repeated scalar wins, 64-bit varints wrap. Stricter
than protobuf in one point: the group encoding, dead for a decade, is refused.

Input is hostile. Every read is guarded by the end of the innermost enclosing field; a size is compared with what is
left before it is added to a position, so that no sum can overflow. A kernel that finds a flaw returns its number
(``PROBLEMS`` has the words) together with the entry and the message.

Positions of a column are written as "start, end, start, end" after a leading 0, and never decrease: ``gathering``
copies what lies there.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from broker_core.wire.batch.compiled import ZERO, helper, int64, kernel

Bytes = NDArray[np.uint8]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

# -- slots of one metadata message; a field of bytes takes two, start and end
_PROPERTY: Final = 1
_KEY: Final = 2
_ORDERING_KEY: Final = 4
_PRODUCER: Final = 6
_PAYLOAD_SIZE: Final = 8
_EVENT_TIME: Final = 9
_KEY_IS_BASE64: Final = 10
_SEQUENCE_ID: Final = 11
_NULL_VALUE: Final = 12
_NULL_KEY: Final = 13
_COMPACTED_OUT: Final = 14
_PUBLISH_TIME: Final = 15
_COMPRESSION: Final = 16
_UNCOMPRESSED_SIZE: Final = 17
_MESSAGES: Final = 18
_MARKER: Final = 19
_CHUNKS: Final = 20
_ENCRYPTION: Final = 21
_REPLICATED: Final = 23
_SCHEMA: Final = 25
SLOTS: Final = 27

_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH: Final = 2
_FIXED32: Final = 5


def _table(slots: dict[tuple[int, int], int]) -> Bytes:
    table = np.zeros(256, np.uint8)
    for (number, wire_type), slot in slots.items():
        table[number << 3 | wire_type] = slot
    table.flags.writeable = False
    return table


METADATA_TABLE: Final = _table(
    {
        (1, _LENGTH): _PRODUCER,
        (2, _VARINT): _SEQUENCE_ID,
        (3, _VARINT): _PUBLISH_TIME,
        (4, _LENGTH): _PROPERTY,
        (5, _LENGTH): _REPLICATED,
        (6, _LENGTH): _KEY,
        (8, _VARINT): _COMPRESSION,
        (9, _VARINT): _UNCOMPRESSED_SIZE,
        (11, _VARINT): _MESSAGES,
        (12, _VARINT): _EVENT_TIME,
        (13, _LENGTH): _ENCRYPTION,
        (16, _LENGTH): _SCHEMA,
        (17, _VARINT): _KEY_IS_BASE64,
        (18, _LENGTH): _ORDERING_KEY,
        (20, _VARINT): _MARKER,
        (25, _VARINT): _NULL_VALUE,
        (27, _VARINT): _CHUNKS,
        (30, _VARINT): _NULL_KEY,
    }
)
MEMBER_TABLE: Final = _table(
    {
        (1, _LENGTH): _PROPERTY,
        (2, _LENGTH): _KEY,
        (3, _VARINT): _PAYLOAD_SIZE,
        (4, _VARINT): _COMPACTED_OUT,
        (5, _VARINT): _EVENT_TIME,
        (6, _VARINT): _KEY_IS_BASE64,
        (7, _LENGTH): _ORDERING_KEY,
        (8, _VARINT): _SEQUENCE_ID,
        (9, _VARINT): _NULL_VALUE,
        (10, _VARINT): _NULL_KEY,
    }
)

# -- rows of the array of heads, one column for each entry
HEAD_METADATA_START: Final = 0
HEAD_METADATA_END: Final = 1
HEAD_PAYLOAD_START: Final = 2
HEAD_PAYLOAD_END: Final = 3
HEAD_PRODUCER_START: Final = 4
HEAD_PRODUCER_END: Final = 5
HEAD_REPLICATED_START: Final = 6
HEAD_REPLICATED_END: Final = 7
HEAD_SCHEMA_START: Final = 8
HEAD_SCHEMA_END: Final = 9
HEAD_KIND: Final = 10
HEAD_MESSAGES: Final = 11
HEAD_COMPRESSION: Final = 12
HEAD_UNCOMPRESSED_SIZE: Final = 13
HEAD_SEQUENCE_ID: Final = 14
HEAD_PUBLISH_TIME: Final = 15
HEAD_EVENT_TIME: Final = 16
HEAD_ROWS: Final = 17
"""How many of its messages are rows, which the walk of these notes; 0 before."""
HEADS: Final = 18
HEAD_POSITIONS: Final = 10
"""The first of these rows are positions in the joined buffer. Of what an entry does not have both are the same."""

KIND_SINGLE: Final = 0
KIND_BATCH: Final = 1
KIND_MARKER: Final = 2

# -- rows of the array of spans, and bits of a message's flags
SPAN_KEY: Final = 0
SPAN_VALUE: Final = 1
SPAN_ORDERING_KEY: Final = 2
SPANS: Final = 3
FLAG_KEY: Final = 1
FLAG_VALUE: Final = 2
FLAG_ORDERING_KEY: Final = 4
FLAG_KEY_IS_BASE64: Final = 8

MEMBER_BYTES_MIN: Final = 6
"""Size field, and the tag and value of payload_size: no message of a batch takes less."""

# -- what can be wrong
_OK: Final = 0
_CUT: Final = 1
_VARINT_TOO_LONG: Final = 2
_TAG: Final = 3
_HALF_PROPERTY: Final = 4
_LACKS_REQUIRED: Final = 5
_SIZES: Final = 6
_METADATA_TOO_LARGE: Final = 7
_BATCH_CUT: Final = 8
_BATCH_LONGER: Final = 9
_PAYLOAD_SIZE_WRONG: Final = 10
_MESSAGES_WRONG: Final = 11
PROBLEM_CHUNK: Final = 12
PROBLEM_ENCRYPTED: Final = 13
PROBLEMS: Final = {
    _CUT: "a metadata field runs past the end of its message",
    _VARINT_TOO_LONG: "a number in its metadata has too many bytes",
    _TAG: "its metadata holds an impossible tag, or the group encoding",
    _HALF_PROPERTY: "a property lacks its key or its value",
    _LACKS_REQUIRED: "its metadata lacks a required field",
    _SIZES: "it is shorter than its own sizes say",
    _METADATA_TOO_LARGE: "its metadata is larger than allowed",
    _BATCH_CUT: "the batch ends before the number of messages that it states",
    _BATCH_LONGER: "the batch goes on behind the number of messages that it states",
    _PAYLOAD_SIZE_WRONG: "the size of a payload is negative or reaches past the end of the batch",
    _MESSAGES_WRONG: "it states a number of messages that is not positive, or that cannot fit into it",
    PROBLEM_CHUNK: "it is a chunk of a larger message, and chunks cannot be read as columns",
    PROBLEM_ENCRYPTED: "it is encrypted",
}


@helper
def _varint(buf: Bytes, at: int, end: int) -> tuple[Any, int]:
    """The value of the varint at ``at`` as a signed 64-bit number, and where it ends; -1 cut off, -2 too long."""
    value = ZERO
    shift = 0
    while shift < 70:
        if at >= end:
            return value, -1
        byte = int64(buf[at])
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return value, -2


@helper
def _skip(wire_type: int, at: int, end: int) -> int:
    """Where a field without a length of its own ends; -1 cut off, -3 not a wire type that exists."""
    if wire_type == _FIXED64:
        return at + 8 if end - at >= 8 else -1
    if wire_type == _FIXED32:
        return at + 4 if end - at >= 4 else -1
    return -3


@helper
def _problem(at: int) -> int:
    """The problem for a negative position."""
    if at == -1:
        return _CUT
    if at == -2:
        return _VARINT_TOO_LONG
    return _TAG


@helper
def _walk_property(buf: Bytes, at: int, end: int, spans: Int32s, count: int) -> int:
    """Note key and value of the KeyValue in ``buf[at:end]`` as number ``count``, if ``spans`` has room for it."""
    has = 0
    key_start = key_end = value_start = value_end = at
    while at < end:
        tag, at = _varint(buf, at, end)
        if at < 0 or tag < 8 or tag > 0xFFFFFFFF:
            return _problem(at) if at < 0 else _TAG
        wire_type = tag & 7
        if wire_type == _VARINT:
            _, at = _varint(buf, at, end)
        elif wire_type == _LENGTH:
            size, at = _varint(buf, at, end)
            if at >= 0 and (size < 0 or size > end - at):
                return _CUT
            if at >= 0:
                if tag == 0x0A:
                    key_start, key_end = at, at + size
                    has |= 1
                elif tag == 0x12:
                    value_start, value_end = at, at + size
                    has |= 2
                at += size
        else:
            at = _skip(wire_type, at, end)
        if at < 0:
            return _problem(at)
    if has != 3:
        return _HALF_PROPERTY
    if 2 * count + 2 < spans.shape[1]:
        spans[0, 2 * count + 1] = key_start
        spans[0, 2 * count + 2] = key_end
        spans[1, 2 * count + 1] = value_start
        spans[1, 2 * count + 2] = value_end
    return _OK


@helper
def _walk_fields(
    buf: Bytes, at: int, end: int, table: Bytes, fields: Int64s, properties: Int32s, count: int
) -> tuple[int, Any, int]:
    """Fill ``fields`` from the metadata message in ``buf[at:end]``.

    Returns the problem, a bit for each slot that was found, and the count of properties so far.
    """
    seen = ZERO
    while at < end:
        tag, at = _varint(buf, at, end)
        if at < 0 or tag < 8 or tag > 0xFFFFFFFF:
            return _problem(at) if at < 0 else _TAG, seen, count
        wire_type = tag & 7
        slot = int64(table[tag]) if tag < 256 else ZERO
        if wire_type == _VARINT:
            fields[slot], at = _varint(buf, at, end)
        elif wire_type == _LENGTH:
            size, at = _varint(buf, at, end)
            if at >= 0 and (size < 0 or size > end - at):
                return _CUT, seen, count
            if at >= 0:
                if slot == _PROPERTY:
                    problem = _walk_property(buf, at, at + size, properties, count)
                    if problem != _OK:
                        return problem, seen, count
                    count += 1
                else:
                    fields[slot] = at
                    fields[slot + 1] = at + size
                at += size
        else:
            at = _skip(wire_type, at, end)
        if at < 0:
            return _problem(at), seen, count
        seen |= int64(1) << slot
    return _OK, seen, count


@helper
def _int32(value: int) -> Any:
    """What an int32 field makes of a varint."""
    low = int64(value) & 0xFFFFFFFF
    return low - ((low & 0x80000000) << 1)


@helper
def _u32(buf: Bytes, at: int) -> Any:
    """Four bytes, big endian."""
    high = int64(buf[at]) << 24 | int64(buf[at + 1]) << 16
    return high | int64(buf[at + 2]) << 8 | int64(buf[at + 3])


@helper
def _note_bytes(heads: Int64s, which: int, entry: int, fields: Int64s, slot: int, seen: int, at: int) -> None:
    """Start and end of a field of bytes, or twice ``at``."""
    is_there = seen >> slot & 1 != 0
    heads[which, entry] = fields[slot] if is_there else at
    heads[which + 1, entry] = fields[slot + 1] if is_there else at


@helper
def _walk_head(
    buf: Bytes,
    at: int,
    end: int,
    metadata_bytes_max: int,
    table: Bytes,
    fields: Int64s,
    no_properties: Int32s,
    heads: Int64s,
    entry: int,
) -> int:
    """Fill one column of ``heads`` from the entry in ``buf[at:end]``."""
    if end - at >= 6 and buf[at] == 0x0E and buf[at + 1] == 0x01:
        at += 6
    if end - at < 4:
        return _SIZES
    size = _u32(buf, at)
    at += 4
    if size > metadata_bytes_max:
        return _METADATA_TOO_LARGE
    if size > end - at:
        return _SIZES
    problem, seen, _ = _walk_fields(buf, at, at + size, table, fields, no_properties, ZERO)
    if problem != _OK:
        return problem
    required = int64(1) << _PRODUCER | int64(1) << _SEQUENCE_ID | int64(1) << _PUBLISH_TIME
    if seen & required != required:
        return _LACKS_REQUIRED
    if seen >> _CHUNKS & 1 and _int32(fields[_CHUNKS]) > 1:
        return PROBLEM_CHUNK
    heads[HEAD_METADATA_START, entry] = at
    heads[HEAD_METADATA_END, entry] = at + size
    heads[HEAD_PAYLOAD_START, entry] = at + size
    heads[HEAD_PAYLOAD_END, entry] = end
    heads[HEAD_PRODUCER_START, entry] = fields[_PRODUCER]
    heads[HEAD_PRODUCER_END, entry] = fields[_PRODUCER + 1]
    _note_bytes(heads, HEAD_REPLICATED_START, entry, fields, _REPLICATED, seen, at)
    _note_bytes(heads, HEAD_SCHEMA_START, entry, fields, _SCHEMA, seen, at)
    heads[HEAD_COMPRESSION, entry] = _int32(fields[_COMPRESSION]) if seen >> _COMPRESSION & 1 else 0
    heads[HEAD_UNCOMPRESSED_SIZE, entry] = (
        fields[_UNCOMPRESSED_SIZE] & 0xFFFFFFFF if seen >> _UNCOMPRESSED_SIZE & 1 else 0
    )
    heads[HEAD_SEQUENCE_ID, entry] = fields[_SEQUENCE_ID]
    heads[HEAD_PUBLISH_TIME, entry] = fields[_PUBLISH_TIME]
    heads[HEAD_EVENT_TIME, entry] = fields[_EVENT_TIME] if seen >> _EVENT_TIME & 1 else 0
    heads[HEAD_KIND, entry] = KIND_BATCH if seen >> _MESSAGES & 1 else KIND_SINGLE
    heads[HEAD_MESSAGES, entry] = _int32(fields[_MESSAGES]) if seen >> _MESSAGES & 1 else 1
    if seen >> _MARKER & 1:
        heads[HEAD_KIND, entry] = KIND_MARKER
    elif seen >> _ENCRYPTION & 1:
        return PROBLEM_ENCRYPTED
    return _OK


@kernel
def walk_heads(
    buf: Bytes,
    starts: Int64s,
    ends: Int64s,
    metadata_bytes_max: int,
    table: Bytes,
    fields: Int64s,
    no_properties: Int32s,
    heads: Int64s,
) -> tuple[int, int]:
    """Fill ``heads`` (HEADS rows of zeros) from the entries in ``buf``; entry i is ``buf[starts[i]:ends[i]]``.

    ``fields`` is scratch of SLOTS numbers, ``no_properties`` of shape [2, 1]. Returns the first problem and its entry.
    """
    for entry in range(starts.size):
        at, end = starts[entry], ends[entry]
        problem = _walk_head(buf, at, end, metadata_bytes_max, table, fields, no_properties, heads, entry)
        if problem != _OK:
            return problem, entry
    return _OK, -1


@kernel
def count_rows(heads: Int64s) -> tuple[int, int, Any]:
    """First problem, its entry, and how many rows the entries claim; no claim exceeds what its payload can hold."""
    rows = ZERO
    for entry in range(heads.shape[1]):
        if heads[HEAD_KIND, entry] == KIND_MARKER:
            continue
        messages = heads[HEAD_MESSAGES, entry]
        if heads[HEAD_KIND, entry] == KIND_BATCH:
            payload_bytes = heads[HEAD_PAYLOAD_END, entry] - heads[HEAD_PAYLOAD_START, entry]
            if messages < 1 or messages * MEMBER_BYTES_MIN > payload_bytes:
                return _MESSAGES_WRONG, entry, rows
        rows += messages
    return _OK, -1, rows


@helper
def _note_span(spans: Int32s, which: int, row: int, present: bool, start: int, end: int) -> None:
    if present:
        spans[which, 2 * row + 1] = start
        spans[which, 2 * row + 2] = end
    else:
        spans[which, 2 * row + 1] = spans[which, 2 * row]
        spans[which, 2 * row + 2] = spans[which, 2 * row]


@helper
def _note_row(
    fields: Int64s,
    seen: int,
    row: int,
    value_start: int,
    value_end: int,
    sequence_id: int,
    spans: Int32s,
    numbers: Int64s,
    flags: Bytes,
) -> None:
    """Write what was found about one message."""
    has_key = seen >> _KEY & 1 != 0 and not (seen >> _NULL_KEY & 1 != 0 and fields[_NULL_KEY] != 0)
    has_value = not (seen >> _NULL_VALUE & 1 != 0 and fields[_NULL_VALUE] != 0)
    has_ordering_key = seen >> _ORDERING_KEY & 1 != 0
    _note_span(spans, SPAN_KEY, row, has_key, fields[_KEY], fields[_KEY + 1])
    _note_span(spans, SPAN_VALUE, row, has_value, value_start, value_end)
    _note_span(spans, SPAN_ORDERING_KEY, row, has_ordering_key, fields[_ORDERING_KEY], fields[_ORDERING_KEY + 1])
    flag = FLAG_KEY if has_key else 0
    if has_value:
        flag |= FLAG_VALUE
    if has_ordering_key:
        flag |= FLAG_ORDERING_KEY
    if has_key and seen >> _KEY_IS_BASE64 & 1 != 0 and fields[_KEY_IS_BASE64] != 0:
        flag |= FLAG_KEY_IS_BASE64
    flags[row] = flag
    numbers[0, row] = fields[_EVENT_TIME] if seen >> _EVENT_TIME & 1 else 0
    numbers[1, row] = fields[_SEQUENCE_ID] if seen >> _SEQUENCE_ID & 1 else sequence_id


@helper
def _walk_batch(
    buf: Bytes,
    heads: Int64s,
    entry: int,
    table: Bytes,
    fields: Int64s,
    row: int,
    spans: Int32s,
    numbers: Int64s,
    flags: Bytes,
    places: Int32s,
    property_offsets: Int32s,
    properties: Int32s,
    count: int,
) -> tuple[int, int, int, int]:
    """Write the rows of one batch; returns problem, message, next row and the count of properties so far."""
    at, end = heads[HEAD_PAYLOAD_START, entry], heads[HEAD_PAYLOAD_END, entry]
    for message in range(heads[HEAD_MESSAGES, entry]):
        if end - at < 4:
            return _BATCH_CUT, message, row, count
        size = _u32(buf, at)
        at += 4
        if size > end - at:
            return _BATCH_CUT, message, row, count
        problem, seen, count_after = _walk_fields(buf, at, at + size, table, fields, properties, count)
        if problem != _OK:
            return problem, message, row, count
        if seen >> _PAYLOAD_SIZE & 1 == 0:
            return _LACKS_REQUIRED, message, row, count
        at += size
        payload_size = _int32(fields[_PAYLOAD_SIZE])
        if payload_size < 0 or payload_size > end - at:
            return _PAYLOAD_SIZE_WRONG, message, row, count
        at += payload_size
        if seen >> _COMPACTED_OUT & 1 != 0 and fields[_COMPACTED_OUT] != 0:
            continue
        sequence_id = heads[HEAD_SEQUENCE_ID, entry]
        _note_row(fields, seen, row, at - payload_size, at, sequence_id, spans, numbers, flags)
        places[0, row] = entry
        places[1, row] = message
        count = count_after
        row += 1
        property_offsets[row] = count
    if at != end:
        return _BATCH_LONGER, heads[HEAD_MESSAGES, entry], row, count
    return _OK, -1, row, count


@kernel
def walk_rows(
    buf: Bytes,
    heads: Int64s,
    metadata_table: Bytes,
    member_table: Bytes,
    fields: Int64s,
    spans: Int32s,
    numbers: Int64s,
    flags: Bytes,
    places: Int32s,
    property_offsets: Int32s,
    properties: Int32s,
) -> tuple[int, int, int, int, int]:
    """Write a row for every message of every entry, in order, but none for markers and compacted-out messages, and
    how many these are into ``heads``.

    For R rows at most: ``spans`` int32[SPANS, 2R + 1], ``numbers`` int64[2, R] (event time, sequence id), ``flags``
    uint8[R], ``places`` int32[2, R] (entry, batch index), ``property_offsets`` int32[R + 1]. ``properties`` int32[2, 2P
    + 1] takes the first P properties (keys, values); the rest are counted only, so that the caller can make room.
    Returns problem, entry, message, rows, properties.
    """
    row = count = ZERO
    message = ZERO
    spans[0, 0] = spans[1, 0] = spans[2, 0] = 0
    properties[0, 0] = properties[1, 0] = 0
    property_offsets[0] = 0
    for entry in range(heads.shape[1]):
        kind = heads[HEAD_KIND, entry]
        first = row
        if kind == KIND_BATCH:
            problem, message, row, count = _walk_batch(
                buf, heads, entry, member_table, fields, row, spans, numbers, flags, places, property_offsets,
                properties, count,
            )  # fmt: skip
            if problem != _OK:
                return problem, entry, message, row, count
        elif kind == KIND_SINGLE:
            at, end = heads[HEAD_METADATA_START, entry], heads[HEAD_METADATA_END, entry]
            problem, seen, count = _walk_fields(buf, at, end, metadata_table, fields, properties, count)
            if problem != _OK:
                return problem, entry, -1, row, count
            start, end = heads[HEAD_PAYLOAD_START, entry], heads[HEAD_PAYLOAD_END, entry]
            _note_row(fields, seen, row, start, end, heads[HEAD_SEQUENCE_ID, entry], spans, numbers, flags)
            places[0, row] = entry
            places[1, row] = -1
            row += 1
            property_offsets[row] = count
        heads[HEAD_ROWS, entry] = row - first
    return _OK, -1, -1, row, count
