# SPDX-License-Identifier: Apache-2.0
"""Protobuf fields, read by a table and written: one walker for the metadata of entries and for the hot commands.

A table maps a tag to a slot; the walker stores the number, or start and end of the bytes, found under it. Semantics are
protobuf's: unknown fields and known numbers with another wire type are skipped, the last of a repeated scalar wins,
64-bit varints wrap. Stricter than protobuf in one point: the group encoding, dead for a decade, is refused.

Input is hostile. Every read is guarded by the end of the innermost enclosing field; a size is compared with what is
left before it is added to a position, so that no sum can overflow. Source: Protocol Buffers docs, "Encoding".
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from broker_core.wire.core import uncompiled as cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy

OTHER = cython.declare(cython.int, 0)
"""The slot of fields that a table does not have."""
NESTED = cython.declare(cython.int, 1)
"""The slot of a nested message that may be repeated, start and end; the next slot is its end."""

_VARINT = cython.declare(cython.int, 0)
_FIXED64 = cython.declare(cython.int, 1)
_LENGTH = cython.declare(cython.int, 2)
_FIXED32 = cython.declare(cython.int, 5)
_ONE = cython.declare(cython.longlong, 1)
_TAG_BYTES_MAX = cython.declare(cython.int, 5)
_TAG_MAX = cython.declare(cython.longlong, 0xFFFFFFFF)

# -- flaws of a message
SOUND = cython.declare(cython.int, 0)
CUT = cython.declare(cython.int, 1)
VARINT_TOO_LONG = cython.declare(cython.int, 2)
BAD_TAG = cython.declare(cython.int, 3)
HALF_PAIR = cython.declare(cython.int, 4)


def table(numbers: dict[int, int], texts: dict[int, int]) -> bytes:
    """The table of a message: the slots of its varint fields and of its fields of bytes, by their numbers."""
    slots = bytearray(256)
    for number, slot in numbers.items():
        slots[number << 3 | _VARINT] = slot
    for number, slot in texts.items():
        slots[number << 3 | _LENGTH] = slot
    return bytes(slots)


_PAIR_TABLE = cython.declare(bytes, table({}, {1: 2, 2: 4}))
"""KeyValue."""
_pair_table = cython.declare(cython.p_const_uchar)
_pair_table = _PAIR_TABLE
_PAIR_SEEN = cython.declare(cython.longlong, 1 << 2 | 1 << 4)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def signed(value: cython.ulonglong) -> cython.longlong:
    """The 64 low bits of ``value`` as a number with a sign."""
    if not cython.compiled:
        value = (value + (1 << 63)) % (1 << 64) - (1 << 63)
    return value


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def varint(
    data: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """The varint at ``at`` as a signed 64-bit number, and where it ends; -1 cut off, -2 too long."""
    value: cython.ulonglong = 0
    byte: cython.ulonglong
    shift: cython.int = 0
    while shift < 70:
        if at >= end:
            return 0, -1
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return signed(value), at
        shift += 7
    return 0, -2


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def u32(data: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.longlong:
    """Four bytes, big endian."""
    first: cython.longlong = data[at]
    return first << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _tag(
    data: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """The tag at ``at``, which is before ``end``, and where it ends; as ``varint``, or -3 for what cannot be a tag."""
    tag: cython.longlong = data[at]
    begin: cython.Py_ssize_t = at
    at += 1
    if tag >= 0x80:
        tag, at = varint(data, begin, end)
    if at < 0:
        return tag, at
    if tag < 8 or tag > _TAG_MAX or at - begin > _TAG_BYTES_MAX:
        return tag, -3
    return tag, at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _skip(wire_type: cython.int, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Where a field without a length of its own ends; -1 cut off, -3 not a wire type that exists."""
    if wire_type == _FIXED64:
        return at + 8 if end - at >= 8 else -1
    if wire_type == _FIXED32:
        return at + 4 if end - at >= 4 else -1
    return -3


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def field_end(
    data: cython.p_const_uchar, wire_type: cython.int, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Where the field of this type ends whose value begins at ``at``; negative if that is not before ``end``."""
    size: cython.longlong = 0
    if wire_type not in (_VARINT, _LENGTH):
        return _skip(wire_type, at, end)
    size, at = varint(data, at, end)
    if wire_type == _VARINT or at < 0:
        return at
    return at + size if 0 <= size <= end - at else -1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _flaw(at: cython.Py_ssize_t) -> cython.int:
    """The flaw behind a negative position."""
    return CUT if at == -1 else VARINT_TOO_LONG if at == -2 else BAD_TAG


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def walk_fields(
    data: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    slots: cython.p_const_uchar,
    fields: cython.p_longlong,
    names: cython.p_int,
    texts: cython.p_int,
    room: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
) -> tuple[cython.int, cython.longlong, cython.Py_ssize_t]:
    """Fill ``fields`` from the message in ``data[at:end]``.

    Nested messages are pairs of a name and a text: where they lie is noted in ``names`` and ``texts``, which take so
    many as there is ``room`` for, ``count`` of them taken; without room (-1) they are only noted as fields.
    Returns the flaw, a bit for each slot that was found, and the count.
    """
    seen: cython.longlong = 0
    while at < end:
        tag, at = _tag(data, at, end)
        if at < 0:
            return _flaw(at), seen, count
        wire_type = tag & 7
        slot = slots[tag] if tag < 256 else OTHER
        if wire_type == _VARINT:
            fields[slot], at = varint(data, at, end)
        elif wire_type == _LENGTH:
            size, at = varint(data, at, end)
            if at >= 0:
                if size < 0 or size > end - at:
                    return CUT, seen, count
                fields[slot] = at
                at += size
                fields[slot + 1] = at
                if slot == NESTED:
                    flaw = _walk_pair(data, at - size, at, names, texts, room, count)
                    if flaw != SOUND:
                        return flaw, seen, count
                    count += 1
        else:
            at = _skip(wire_type, at, end)
        if at < 0:
            return _flaw(at), seen, count
        seen |= _ONE << slot
    return SOUND, seen, count


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _walk_pair(
    data: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    names: cython.p_int,
    texts: cython.p_int,
    room: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
) -> cython.int:
    """Note name and text of the KeyValue in ``data[at:end]`` as number ``count``, if there is room for it."""
    if cython.compiled:
        fields: cython.longlong[6]
    else:
        fields = [0] * 6
    if room < 0:
        return SOUND
    flaw, seen, _ = walk_fields(data, at, end, _pair_table, fields, names, texts, -1, 0)
    if flaw != SOUND:
        return flaw
    if seen & _PAIR_SEEN != _PAIR_SEEN:
        return HALF_PAIR
    if count < room:
        names[2 * count + 1] = fields[2]
        names[2 * count + 2] = fields[3]
        texts[2 * count + 1] = fields[4]
        texts[2 * count + 2] = fields[5]
    return SOUND


# -- writing


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def varint_size(number: cython.longlong) -> cython.int:
    """Bytes of ``number`` as a varint; a negative one takes ten."""
    value: cython.ulonglong = number if cython.compiled else number % (1 << 64)
    size: cython.int = 1
    while value > 0x7F:
        value >>= 7
        size += 1
    return size


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def put_varint(out: cython.p_uchar, at: cython.Py_ssize_t, number: cython.longlong) -> cython.Py_ssize_t:
    """Write ``number``; where it ends."""
    value: cython.ulonglong = number if cython.compiled else number % (1 << 64)
    while value > 0x7F:
        out[at] = value & 0x7F | 0x80
        value >>= 7
        at += 1
    out[at] = value
    return at + 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def put_u32(out: cython.p_uchar, at: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    """Write four bytes, big endian; where they end."""
    out[at] = value >> 24 & 0xFF
    out[at + 1] = value >> 16 & 0xFF
    out[at + 2] = value >> 8 & 0xFF
    out[at + 3] = value & 0xFF
    return at + 4


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def put_bytes(
    out: cython.p_uchar,
    at: cython.Py_ssize_t,
    data: cython.p_const_uchar,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Copy ``data[start:end]``; where the copy ends."""
    if cython.compiled:
        memcpy(out + at, data + start, end - start)
    else:
        out[at : at + end - start] = data[start:end]
    return at + end - start
