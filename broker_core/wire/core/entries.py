# SPDX-License-Identifier: Apache-2.0
"""Kernels that walk entries: where each field of each message lies, without copying one byte.

A kernel that finds a flaw returns its number (``FLAWS`` has the words) together with the entry and the message.
Positions of a column are written as "start, end, start, end" after a leading 0, and never decrease: ``place_values``
and ``copy_values`` make an Arrow column of what lies there. What is done against hostile input is in ``fields``.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from broker_core.wire.core import uncompiled as cython

if cython.compiled:
    from cython.cimports.broker_core.wire.core import fields as pb
else:
    from broker_core.wire.core import fields as pb

from broker_core.wire.core.fields import table
from broker_core.wire.core.uncompiled import kernel

# -- slots of one metadata message; a field of bytes takes two, start and end
_PROPERTY = cython.declare(cython.int, 1)
_KEY = cython.declare(cython.int, 3)
_ORDERING_KEY = cython.declare(cython.int, 5)
_PRODUCER = cython.declare(cython.int, 7)
_REPLICATED = cython.declare(cython.int, 9)
_SCHEMA = cython.declare(cython.int, 11)
_ENCRYPTION = cython.declare(cython.int, 13)
_PAYLOAD_SIZE = cython.declare(cython.int, 15)
_EVENT_TIME = cython.declare(cython.int, 16)
_KEY_IS_BASE64 = cython.declare(cython.int, 17)
_SEQUENCE_ID = cython.declare(cython.int, 18)
_NULL_VALUE = cython.declare(cython.int, 19)
_NULL_KEY = cython.declare(cython.int, 20)
_COMPACTED_OUT = cython.declare(cython.int, 21)
_PUBLISH_TIME = cython.declare(cython.int, 22)
_COMPRESSION = cython.declare(cython.int, 23)
_UNCOMPRESSED_SIZE = cython.declare(cython.int, 24)
_MESSAGES = cython.declare(cython.int, 25)
_MARKER = cython.declare(cython.int, 26)
_CHUNKS = cython.declare(cython.int, 27)

_METADATA = cython.declare(
    bytes,
    table(
        {
            2: _SEQUENCE_ID,
            3: _PUBLISH_TIME,
            8: _COMPRESSION,
            9: _UNCOMPRESSED_SIZE,
            11: _MESSAGES,
            12: _EVENT_TIME,
            17: _KEY_IS_BASE64,
            20: _MARKER,
            25: _NULL_VALUE,
            27: _CHUNKS,
            30: _NULL_KEY,
        },
        {1: _PRODUCER, 4: _PROPERTY, 5: _REPLICATED, 6: _KEY, 13: _ENCRYPTION, 16: _SCHEMA, 18: _ORDERING_KEY},
    ),
)
"""MessageMetadata."""
_MEMBER = cython.declare(
    bytes,
    table(
        {
            3: _PAYLOAD_SIZE,
            4: _COMPACTED_OUT,
            5: _EVENT_TIME,
            6: _KEY_IS_BASE64,
            8: _SEQUENCE_ID,
            9: _NULL_VALUE,
            10: _NULL_KEY,
        },
        {1: _PROPERTY, 2: _KEY, 7: _ORDERING_KEY},
    ),
)
"""SingleMessageMetadata."""
_metadata_slots = cython.declare(cython.p_const_uchar)
_metadata_slots = _METADATA
_member_slots = cython.declare(cython.p_const_uchar)
_member_slots = _MEMBER

Head = cython.struct(
    metadata_start=cython.longlong,
    metadata_end=cython.longlong,
    payload_start=cython.longlong,
    payload_end=cython.longlong,
    producer_start=cython.longlong,
    producer_end=cython.longlong,
    replicated_start=cython.longlong,
    replicated_end=cython.longlong,
    schema_start=cython.longlong,
    schema_end=cython.longlong,
    kind=cython.longlong,
    messages=cython.longlong,
    compression=cython.longlong,
    uncompressed_size=cython.longlong,
    sequence_id=cython.longlong,
    publish_time=cython.longlong,
    event_time=cython.longlong,
    rows=cython.longlong,
)
POSITIONS = (
    *("metadata_start", "metadata_end", "payload_start", "payload_end", "producer_start", "producer_end"),
    *("replicated_start", "replicated_end", "schema_start", "schema_end"),
)
"""Fields of a head that are positions in the joined buffer. Of what an entry does not have both are the same."""
HEAD = (*POSITIONS, "kind", "messages", "compression", "uncompressed_size", "sequence_id", "publish_time", "event_time",
    "rows")  # fmt: skip
"""All fields of a head. ``rows``: how many of its messages are rows, which the walk of these notes; 0 before."""

SINGLE = 0
BATCH = 1
MARKER = 2
_SINGLE = cython.declare(cython.longlong, SINGLE)
_BATCH = cython.declare(cython.longlong, BATCH)
_MARKER_KIND = cython.declare(cython.longlong, MARKER)

HAS_KEY = 1
HAS_VALUE = 2
HAS_ORDERING_KEY = 4
KEY_IS_BASE64 = 8
"""Flags of a message."""

MEMBER_BYTES_MIN = 6
"""Size field, and the tag and value of payload_size: no message of a batch takes less."""
_MEMBER_BYTES_MIN = cython.declare(cython.longlong, MEMBER_BYTES_MIN)

# -- flaws of an entry, beside those of a message
_LACKS_REQUIRED = cython.declare(cython.int, 5)
_SIZES = cython.declare(cython.int, 6)
_METADATA_TOO_LARGE = cython.declare(cython.int, 7)
_BATCH_CUT = cython.declare(cython.int, 8)
_BATCH_LONGER = cython.declare(cython.int, 9)
_PAYLOAD_SIZE_WRONG = cython.declare(cython.int, 10)
_MESSAGES_WRONG = cython.declare(cython.int, 11)
IS_CHUNK = 12
IS_ENCRYPTED = 13
FLAWS = {
    pb.CUT: "a metadata field runs past the end of its message",
    pb.VARINT_TOO_LONG: "a number in its metadata has too many bytes",
    pb.BAD_TAG: "its metadata holds an impossible tag, or the group encoding",
    pb.HALF_PAIR: "a property lacks its key or its value",
    _LACKS_REQUIRED: "its metadata lacks a required field",
    _SIZES: "it is shorter than its own sizes say",
    _METADATA_TOO_LARGE: "its metadata is larger than allowed",
    _BATCH_CUT: "the batch ends before the number of messages that it states",
    _BATCH_LONGER: "the batch goes on behind the number of messages that it states",
    _PAYLOAD_SIZE_WRONG: "the size of a payload is negative or reaches past the end of the batch",
    _MESSAGES_WRONG: "it states a number of messages that is not positive, or that cannot fit into it",
    IS_CHUNK: "it is a chunk of a larger message, and chunks cannot be read as columns",
    IS_ENCRYPTED: "it is encrypted",
}
_IS_CHUNK = cython.declare(cython.int, IS_CHUNK)
_IS_ENCRYPTED = cython.declare(cython.int, IS_ENCRYPTED)

_LOW_32 = cython.declare(cython.longlong, 0xFFFFFFFF)
_BIT_31 = cython.declare(cython.longlong, 0x80000000)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _has(seen: cython.longlong, slot: cython.int) -> cython.bint:
    return seen >> slot & 1 != 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _int32(value: cython.longlong) -> cython.longlong:
    """The value of an int32 field, from its varint."""
    low: cython.longlong = value & _LOW_32
    return low - ((low & _BIT_31) << 1)


# -- heads


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _walk_head(
    data: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    metadata_bytes_max: cython.longlong,
    fields: cython.p_longlong,
    head: cython.pointer[Head],
) -> cython.int:
    """Fill ``head`` from the entry in ``data[at:end]``."""
    if end - at >= 6 and data[at] == 0x0E and data[at + 1] == 0x01:
        at += 6
    if end - at < 4:
        return _SIZES
    size = pb.u32(data, at)
    at += 4
    if size > metadata_bytes_max:
        return _METADATA_TOO_LARGE
    if size > end - at:
        return _SIZES
    flaw, seen, _ = pb.walk_fields(data, at, at + size, _metadata_slots, fields, cython.NULL, cython.NULL, 0, 0)
    if flaw != pb.SOUND:
        return flaw
    if not (_has(seen, _PRODUCER) and _has(seen, _SEQUENCE_ID) and _has(seen, _PUBLISH_TIME)):
        return _LACKS_REQUIRED
    if _has(seen, _CHUNKS) and _int32(fields[_CHUNKS]) > 1:
        return _IS_CHUNK
    head.metadata_start = at
    head.metadata_end = at + size
    head.payload_start = at + size
    head.payload_end = end
    head.producer_start = fields[_PRODUCER]
    head.producer_end = fields[_PRODUCER + 1]
    head.replicated_start = fields[_REPLICATED] if _has(seen, _REPLICATED) else at
    head.replicated_end = fields[_REPLICATED + 1] if _has(seen, _REPLICATED) else at
    head.schema_start = fields[_SCHEMA] if _has(seen, _SCHEMA) else at
    head.schema_end = fields[_SCHEMA + 1] if _has(seen, _SCHEMA) else at
    head.compression = _int32(fields[_COMPRESSION]) if _has(seen, _COMPRESSION) else 0
    head.uncompressed_size = fields[_UNCOMPRESSED_SIZE] & _LOW_32 if _has(seen, _UNCOMPRESSED_SIZE) else 0
    head.sequence_id = fields[_SEQUENCE_ID]
    head.publish_time = fields[_PUBLISH_TIME]
    head.event_time = fields[_EVENT_TIME] if _has(seen, _EVENT_TIME) else 0
    head.kind = _BATCH if _has(seen, _MESSAGES) else _SINGLE
    head.messages = _int32(fields[_MESSAGES]) if _has(seen, _MESSAGES) else 1
    if _has(seen, _MARKER):
        head.kind = _MARKER_KIND
    elif _has(seen, _ENCRYPTION):
        return _IS_ENCRYPTED
    return pb.SOUND


@kernel
def walk_heads(
    data: cython.const[cython.uchar][::1],
    starts: cython.const[cython.longlong][::1],
    ends: cython.const[cython.longlong][::1],
    metadata_bytes_max: cython.longlong,
    heads: Head[::1],
) -> tuple[int, int]:
    """Fill ``heads``, which are zeros, from the entries in ``data``; entry i is ``data[starts[i]:ends[i]]``.

    Returns the first flaw and its entry.
    """
    source: cython.p_const_uchar = cython.address(data[0]) if cython.compiled else data
    entry: cython.Py_ssize_t = -1
    flaw: cython.int = pb.SOUND
    if cython.compiled:
        fields: cython.longlong[28]
    else:
        fields = [0] * 28
    with cython.nogil:
        for entry in range(starts.shape[0]):
            flaw = _walk_head(
                source,
                starts[entry],
                ends[entry],
                metadata_bytes_max,
                fields,
                cython.address(heads[entry]) if cython.compiled else heads[entry],
            )
            if flaw != pb.SOUND:
                break
    return flaw, entry if flaw != pb.SOUND else -1


@kernel
def count_rows(heads: Head[::1]) -> tuple[int, int, int]:
    """First flaw, its entry, and how many rows the entries claim; no claim exceeds what its payload can hold."""
    rows: cython.longlong = 0
    for entry in range(heads.shape[0]):
        if heads[entry].kind == _MARKER_KIND:
            continue
        messages = heads[entry].messages
        if heads[entry].kind == _BATCH and (
            messages < 1 or messages * _MEMBER_BYTES_MIN > heads[entry].payload_end - heads[entry].payload_start
        ):
            return _MESSAGES_WRONG, entry, rows
        rows += messages
    return pb.SOUND, -1, rows


# -- rows


@cython.cclass
class _Rows:
    """The columns that ``walk_rows`` fills in, and how far it is."""

    keys: cython.int[::1]
    values: cython.int[::1]
    ordering_keys: cython.int[::1]
    event_times: cython.longlong[::1]
    sequence_ids: cython.longlong[::1]
    flags: cython.uchar[::1]
    entries: cython.int[::1]
    batch_indexes: cython.int[::1]
    property_offsets: cython.int[::1]
    names: cython.p_int
    texts: cython.p_int
    room: cython.Py_ssize_t
    row: cython.Py_ssize_t
    properties: cython.Py_ssize_t


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _note_span(
    spans: cython.p_int, row: cython.Py_ssize_t, present: cython.bint, start: cython.longlong, end: cython.longlong
) -> cython.void:
    if not present:
        start = end = spans[2 * row]
    spans[2 * row + 1] = start
    spans[2 * row + 2] = end


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _note_row(
    rows: _Rows,
    entry: cython.Py_ssize_t,
    batch_index: cython.int,
    fields: cython.p_longlong,
    seen: cython.longlong,
    value_start: cython.longlong,
    value_end: cython.longlong,
    sequence_id: cython.longlong,
) -> cython.void:
    """Write what was found about one message."""
    row: cython.Py_ssize_t = rows.row
    has_key: cython.bint = _has(seen, _KEY) and not (_has(seen, _NULL_KEY) and fields[_NULL_KEY] != 0)
    has_value: cython.bint = not (_has(seen, _NULL_VALUE) and fields[_NULL_VALUE] != 0)
    has_ordering_key: cython.bint = _has(seen, _ORDERING_KEY)
    flags: cython.int = 0
    keys: cython.p_int = cython.address(rows.keys[0]) if cython.compiled else rows.keys
    values: cython.p_int = cython.address(rows.values[0]) if cython.compiled else rows.values
    ordering_keys: cython.p_int = cython.address(rows.ordering_keys[0]) if cython.compiled else rows.ordering_keys
    _note_span(keys, row, has_key, fields[_KEY], fields[_KEY + 1])
    _note_span(values, row, has_value, value_start, value_end)
    _note_span(ordering_keys, row, has_ordering_key, fields[_ORDERING_KEY], fields[_ORDERING_KEY + 1])
    if has_key:
        flags |= 1
        if _has(seen, _KEY_IS_BASE64) and fields[_KEY_IS_BASE64] != 0:
            flags |= 8
    if has_value:
        flags |= 2
    if has_ordering_key:
        flags |= 4
    rows.flags[row] = flags
    rows.event_times[row] = fields[_EVENT_TIME] if _has(seen, _EVENT_TIME) else 0
    rows.sequence_ids[row] = fields[_SEQUENCE_ID] if _has(seen, _SEQUENCE_ID) else sequence_id
    rows.entries[row] = entry
    rows.batch_indexes[row] = batch_index
    rows.row = row + 1
    rows.property_offsets[row + 1] = rows.properties


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _walk_batch(
    rows: _Rows,
    data: cython.p_const_uchar,
    entry: cython.Py_ssize_t,
    at: cython.longlong,
    end: cython.longlong,
    messages: cython.longlong,
    sequence_id: cython.longlong,
    fields: cython.p_longlong,
) -> tuple[cython.int, cython.Py_ssize_t]:
    """Write the rows of the batch in ``data[at:end]``; returns flaw and message."""
    for message in range(messages):
        if end - at < 4:
            return _BATCH_CUT, message
        size = pb.u32(data, at)
        at += 4
        if size > end - at:
            return _BATCH_CUT, message
        flaw, seen, count = pb.walk_fields(
            data, at, at + size, _member_slots, fields, rows.names, rows.texts, rows.room, rows.properties
        )
        if flaw != pb.SOUND:
            return flaw, message
        if not _has(seen, _PAYLOAD_SIZE):
            return _LACKS_REQUIRED, message
        at += size
        size = _int32(fields[_PAYLOAD_SIZE])
        if size < 0 or size > end - at:
            return _PAYLOAD_SIZE_WRONG, message
        at += size
        if _has(seen, _COMPACTED_OUT) and fields[_COMPACTED_OUT] != 0:
            continue
        rows.properties = count
        _note_row(rows, entry, message, fields, seen, at - size, at, sequence_id)
    return pb.SOUND if at == end else _BATCH_LONGER, messages


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _walk_single(
    rows: _Rows,
    data: cython.p_const_uchar,
    entry: cython.Py_ssize_t,
    head: cython.pointer[Head],
    fields: cython.p_longlong,
) -> cython.int:
    """Write the row of an entry that is one message."""
    flaw, seen, rows.properties = pb.walk_fields(
        data, head.metadata_start, head.metadata_end, _metadata_slots, fields, rows.names, rows.texts, rows.room,
        rows.properties,
    )  # fmt: skip
    if flaw == pb.SOUND:
        _note_row(rows, entry, -1, fields, seen, head.payload_start, head.payload_end, head.sequence_id)
    return flaw


@kernel
def walk_rows(
    data: cython.const[cython.uchar][::1],
    heads: Head[::1],
    keys: cython.int[::1],
    values: cython.int[::1],
    ordering_keys: cython.int[::1],
    names: cython.int[::1],
    texts: cython.int[::1],
    event_times: cython.longlong[::1],
    sequence_ids: cython.longlong[::1],
    flags: cython.uchar[::1],
    entries: cython.int[::1],
    batch_indexes: cython.int[::1],
    property_offsets: cython.int[::1],
) -> tuple[int, int, int, int, int]:
    """Write a row for every message of every entry, in order, but none for markers and compacted-out messages, and
    how many these are into ``heads``.

    For R rows at most: ``keys``, ``values`` and ``ordering_keys`` are spans of 2R + 1 positions, ``property_offsets``
    has R + 1, others R numbers. ``names`` and ``texts``, 2P + 1 positions each, take the first P properties; the rest
    are counted only, so that the caller can make room. Returns flaw, entry, message, rows, properties.
    """
    source: cython.p_const_uchar = cython.address(data[0]) if cython.compiled else data
    rows: _Rows = _Rows()
    entry: cython.Py_ssize_t = -1
    message: cython.Py_ssize_t = -1
    flaw: cython.int = pb.SOUND
    if cython.compiled:
        fields: cython.longlong[28]
    else:
        fields = [0] * 28
    rows.keys, rows.values, rows.ordering_keys = keys, values, ordering_keys
    rows.event_times, rows.sequence_ids, rows.flags = event_times, sequence_ids, flags
    rows.entries, rows.batch_indexes, rows.property_offsets = entries, batch_indexes, property_offsets
    rows.names = cython.address(names[0]) if cython.compiled else names
    rows.texts = cython.address(texts[0]) if cython.compiled else texts
    rows.room = (names.shape[0] - 1) // 2
    rows.row = rows.properties = 0
    keys[0] = values[0] = ordering_keys[0] = names[0] = texts[0] = property_offsets[0] = 0
    with cython.nogil:
        for entry in range(heads.shape[0]):
            first = rows.row
            if heads[entry].kind == _BATCH:
                flaw, message = _walk_batch(
                    rows, source, entry, heads[entry].payload_start, heads[entry].payload_end, heads[entry].messages,
                    heads[entry].sequence_id, fields,
                )  # fmt: skip
            elif heads[entry].kind == _SINGLE:
                message = -1
                flaw = _walk_single(
                    rows, source, entry, cython.address(heads[entry]) if cython.compiled else heads[entry], fields
                )
            if flaw != pb.SOUND:
                break
            heads[entry].rows = rows.row - first
    if flaw != pb.SOUND:
        return flaw, entry, message, rows.row, rows.properties
    return pb.SOUND, -1, -1, rows.row, rows.properties


@kernel
def has_repeated_names(
    data: cython.const[cython.uchar][::1],
    names: cython.const[cython.int][::1],
    property_offsets: cython.const[cython.int][::1],
    compared_max: cython.int,
) -> bool:
    """Whether a message has two properties of one name, or more than ``compared_max`` properties at all."""
    for row in range(property_offsets.shape[0] - 1):
        first, last = property_offsets[row], property_offsets[row + 1]
        if last - first > compared_max:
            return True
        for a in range(first, last):
            start = names[2 * a + 1]
            size = names[2 * a + 2] - start
            for b in range(a + 1, last):
                other = names[2 * b + 1]
                if names[2 * b + 2] - other != size:
                    continue
                i = 0
                while i < size and data[start + i] == data[other + i]:
                    i += 1
                if i == size:
                    return True
    return False


# -- columns


@kernel
def place_values(spans: cython.const[cython.int][::1], offsets: cython.int[::1]) -> None:
    """Where each value of ``spans`` begins behind those before it, and where the last one ends."""
    end: cython.int = 0
    offsets[0] = 0
    for row in range(offsets.shape[0] - 1):
        end += spans[2 * row + 2] - spans[2 * row + 1]
        offsets[row + 1] = end


@kernel
def copy_values(
    data: cython.const[cython.uchar][::1], spans: cython.const[cython.int][::1], values: cython.uchar[::1]
) -> None:
    """Copy the values of ``spans`` to ``values``, which has room for them and no more."""
    source: cython.p_const_uchar = cython.address(data[0]) if cython.compiled else data
    out: cython.p_uchar = cython.address(values[0]) if cython.compiled else values
    at: cython.Py_ssize_t = 0
    with cython.nogil:
        for row in range((spans.shape[0] - 1) // 2):
            at = pb.put_bytes(out, at, source, spans[2 * row + 1], spans[2 * row + 2])
