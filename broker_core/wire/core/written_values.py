# SPDX-License-Identifier: Apache-2.0
"""Columns to values, row by row, by a program that is made once for a schema and the type of the columns.

A program is a list of nodes, ``WORDS`` numbers each; a node writes one value of one column. Columns have *cells*: a
number as it is, a float as its bits, text and bytes as ``start << 32 | size`` in the source, a list as the number of
items up to its end. Fields of a record have as many cells as the record, and items of a list as many as there are.

A node that meets a null which its schema does not have, or a cell that is marked as one that does not fit, is a flaw of
its row. Avro's binary form and JSON text differ in their nodes alone: JSON is made of literals and of texts.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from broker_core.wire.core import uncompiled as cython

from broker_core.wire.core.uncompiled import kernel

if cython.compiled:
    from cython.cimports.broker_core.wire.core import fields as pb
else:
    from broker_core.wire.core import fields as pb

# -- nodes: kind, column or -1, and up to three numbers
_NUMBER = cython.declare(cython.int, 0)
_BITS = cython.declare(cython.int, 1)
_TEXT = cython.declare(cython.int, 2)
_SPAN = cython.declare(cython.int, 3)
_LENGTHED = cython.declare(cython.int, 4)
_QUOTED = cython.declare(cython.int, 5)
_BASE64 = cython.declare(cython.int, 6)
_LITERAL = cython.declare(cython.int, 7)
_NULL = cython.declare(cython.int, 8)
_RECORD = cython.declare(cython.int, 9)
_OPTIONAL = cython.declare(cython.int, 10)
_CHOICE = cython.declare(cython.int, 11)
_BLOCK = cython.declare(cython.int, 12)
_JOINED = cython.declare(cython.int, 13)
_DIGITS = cython.declare(cython.int, 14)
KINDS = {
    "number": _NUMBER,  # a number in zigzag
    "digits": _DIGITS,  # a number as text
    "bits": _BITS,  # how many bytes of the cell, little endian
    "text": _TEXT,  # its size in zigzag, and the bytes
    "span": _SPAN,  # the bytes alone
    "lengthed": _LENGTHED,  # its size in four bytes, big endian, and the bytes; a null is the size -1
    "quoted": _QUOTED,  # a JSON text
    "base64": _BASE64,  # bytes as a JSON text
    "literal": _LITERAL,  # where in the source it begins, and where it ends
    "null": _NULL,  # takes no value at all: what an optional one has in place of it
    "record": _RECORD,  # where in ``lists`` the nodes of its parts are, and how many
    "optional": _OPTIONAL,  # the node for a null, which has no column, and that for a value
    "choice": _CHOICE,  # where in ``lists`` its columns and their nodes are, in turn, and how many
    "block": _BLOCK,  # the node of its items: their number in zigzag, items, and a zero
    "joined": _JOINED,  # the node of its items, and the characters before and after them: JSON
}
WORDS = 5

# -- presence of cells
_PRESENT = cython.declare(cython.uchar, 1)
MISFIT = 2
"""A cell that is no value of its schema."""

# -- why writing ended
_WRITTEN = cython.declare(cython.int, 0)
_NO_ROOM = cython.declare(cython.int, 1)
_UNWANTED_NULL = cython.declare(cython.int, 2)
_MISFIT = cython.declare(cython.int, 3)
_NO_MEMBER = cython.declare(cython.int, 4)
_TOO_MANY_MEMBERS = cython.declare(cython.int, 5)
ENDS = {
    "written": _WRITTEN,
    "no room": _NO_ROOM,
    "null": _UNWANTED_NULL,
    "misfit": _MISFIT,
    "no member": _NO_MEMBER,
    "too many members": _TOO_MANY_MEMBERS,
}

_LOW_32 = cython.declare(cython.longlong, 0xFFFFFFFF)


@cython.cclass
class _Walk:
    """A walk over rows: the program, the columns, and how it stands."""

    data: cython.p_const_uchar
    nodes: cython.const[cython.longlong][:, ::1]
    lists: cython.const[cython.longlong][::1]
    bases: cython.const[cython.longlong][::1]
    cells: cython.const[cython.longlong][::1]
    present: cython.const[cython.uchar][::1]
    out: cython.p_uchar
    room: cython.Py_ssize_t
    at: cython.Py_ssize_t
    end: cython.int
    node: cython.longlong


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _stop(walk: _Walk, end: cython.int, node: cython.longlong) -> cython.int:
    walk.end = end
    walk.node = node
    return -1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _has_room(walk: _Walk, size: cython.longlong) -> cython.int:
    """1 if ``size`` more bytes fit; else the caller has to come again with more memory."""
    if walk.room - walk.at >= size:
        return 1
    walk.end = _NO_ROOM
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put_zigzag(walk: _Walk, number: cython.longlong) -> cython.void:
    raw: cython.ulonglong = number
    sign: cython.ulonglong = number >> 63
    at: cython.Py_ssize_t = walk.at
    raw = (raw << 1) ^ sign
    while raw > 0x7F:
        walk.out[at] = (raw & 0x7F) | 0x80
        raw >>= 7
        at += 1
    walk.out[at] = raw
    walk.at = at + 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put_digits(walk: _Walk, number: cython.longlong) -> cython.void:
    """A number as decimal digits, from the last one to the first: there is room for twenty characters."""
    rest: cython.ulonglong = number
    places: cython.int = 1
    power: cython.ulonglong = 10
    if number < 0:
        walk.out[walk.at] = 0x2D
        walk.at += 1
        rest = -number if not cython.compiled else 0 - rest
    while places < 19 and rest >= power:
        places += 1
        power *= 10
    for i in range(places):
        walk.out[walk.at + places - 1 - i] = 0x30 + rest % 10
        rest = rest // 10
    walk.at += places


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put_bits(walk: _Walk, cell: cython.longlong, size: cython.longlong) -> cython.void:
    for i in range(size):
        walk.out[walk.at + i] = (cell >> 8 * i) & 0xFF
    walk.at += size


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put_span(walk: _Walk, start: cython.longlong, size: cython.longlong) -> cython.void:
    walk.at = pb.put_bytes(walk.out, walk.at, walk.data, start, start + size)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _escape(byte: cython.uchar) -> cython.uchar:
    """The letter behind the backslash, for a byte that JSON does not take as it is; u for one without a letter."""
    if byte >= 0x20:
        return byte
    if byte == 0x0A:
        return 0x6E
    if byte == 0x0D:
        return 0x72
    if byte == 0x09:
        return 0x74
    return 0x75


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _hex_digit(number: cython.uchar) -> cython.uchar:
    return 0x30 + number if number < 10 else 0x57 + number


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _base64_letter(number: cython.uint) -> cython.uchar:
    """The letter of six bits."""
    if number < 26:
        return 0x41 + number
    if number < 52:
        return 0x61 + number - 26
    if number < 62:
        return 0x30 + number - 52
    return 0x2B if number == 62 else 0x2F


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put_quoted(walk: _Walk, start: cython.longlong, size: cython.longlong) -> cython.void:
    """UTF-8 as a JSON text: what need not be escaped stays as it is."""
    at: cython.Py_ssize_t = walk.at
    byte: cython.uchar
    walk.out[at] = 0x22
    at += 1
    for i in range(start, start + size):
        byte = walk.data[i]
        if byte >= 0x20 and byte != 0x22 and byte != 0x5C:
            walk.out[at] = byte
            at += 1
            continue
        walk.out[at] = 0x5C
        walk.out[at + 1] = _escape(byte)
        at += 2
        if walk.out[at - 1] == 0x75:
            walk.out[at] = 0x30
            walk.out[at + 1] = 0x30
            walk.out[at + 2] = _hex_digit(byte >> 4)
            walk.out[at + 3] = _hex_digit(byte & 15)
            at += 4
    walk.out[at] = 0x22
    walk.at = at + 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put_base64(walk: _Walk, start: cython.longlong, size: cython.longlong) -> cython.void:
    at: cython.Py_ssize_t = walk.at
    word: cython.uint
    left: cython.longlong
    walk.out[at] = 0x22
    at += 1
    for i in range(start, start + size, 3):
        left = start + size - i
        word = walk.data[i] << 16
        if left > 1:
            word |= walk.data[i + 1] << 8
        if left > 2:
            word |= walk.data[i + 2]
        walk.out[at] = _base64_letter(word >> 18)
        walk.out[at + 1] = _base64_letter((word >> 12) & 63)
        walk.out[at + 2] = _base64_letter((word >> 6) & 63) if left > 1 else 0x3D
        walk.out[at + 3] = _base64_letter(word & 63) if left > 2 else 0x3D
        at += 4
    walk.out[at] = 0x22
    walk.at = at + 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _number(walk: _Walk, node: cython.longlong, cell: cython.longlong) -> cython.int:
    """A cell that is a number, in one of the forms that it has."""
    kind: cython.longlong = walk.nodes[node, 0]
    if not _has_room(walk, 20):
        return -1
    if kind == _NUMBER:
        _put_zigzag(walk, cell)
    elif kind == _BITS:
        _put_bits(walk, cell, walk.nodes[node, 2])
    else:
        _put_digits(walk, cell)
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _bytes(walk: _Walk, kind: cython.longlong, cell: cython.longlong) -> cython.int:
    """A cell that is bytes of the source, in one of the forms that they have."""
    start: cython.longlong = cell >> 32
    size: cython.longlong = cell & _LOW_32
    if kind == _TEXT:
        if not _has_room(walk, size + 10):
            return -1
        _put_zigzag(walk, size)
        _put_span(walk, start, size)
    elif kind == _QUOTED:
        if not _has_room(walk, size * 6 + 2):
            return -1
        _put_quoted(walk, start, size)
    elif kind == _BASE64:
        if not _has_room(walk, (size + 2) // 3 * 4 + 2):
            return -1
        _put_base64(walk, start, size)
    else:
        if not _has_room(walk, size + 4):
            return -1
        if kind == _LENGTHED:
            walk.at = pb.put_u32(walk.out, walk.at, size)
        _put_span(walk, start, size)
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _list(walk: _Walk, node: cython.longlong, at: cython.longlong, row: cython.longlong) -> cython.int:
    """A list whose items end where its cell says, and begin where those of the list before it end."""
    end: cython.longlong = walk.cells[at]
    begin: cython.longlong = 0 if row == 0 else walk.cells[at - 1]
    is_json: cython.int = walk.nodes[node, 0] == _JOINED
    item: cython.longlong = walk.nodes[node, 2]
    if not _has_room(walk, 12):
        return -1
    if is_json:
        _put_bits(walk, walk.nodes[node, 3], 1)
    elif end > begin:
        _put_zigzag(walk, end - begin)
    for i in range(begin, end):
        if is_json and i > begin:
            if not _has_room(walk, 1):
                return -1
            _put_bits(walk, 0x2C, 1)
        if _value(walk, item, i) < 0:
            return -1
    if not _has_room(walk, 1):
        return -1
    _put_bits(walk, walk.nodes[node, 4] if is_json else 0, 1)
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _parts(walk: _Walk, node: cython.longlong, row: cython.longlong) -> cython.int:
    first: cython.longlong = walk.nodes[node, 2]
    for i in range(walk.nodes[node, 3]):
        if _value(walk, walk.lists[first + i], row) < 0:
            return -1
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _member(walk: _Walk, node: cython.longlong, row: cython.longlong) -> cython.int:
    """The one member of a union that is not null."""
    first: cython.longlong = walk.nodes[node, 2]
    chosen: cython.longlong = -1
    for i in range(walk.nodes[node, 3]):
        if walk.present[walk.bases[walk.lists[first + 2 * i]] + row] != 0:
            if chosen >= 0:
                return _stop(walk, _TOO_MANY_MEMBERS, node)
            chosen = walk.lists[first + 2 * i + 1]
    if chosen < 0:
        return _stop(walk, _NO_MEMBER, node)
    return _value(walk, chosen, row)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _without_column(walk: _Walk, node: cython.longlong, row: cython.longlong) -> cython.int:
    """A node that has no cell of its own."""
    start: cython.longlong
    size: cython.longlong
    if walk.nodes[node, 0] == _RECORD:
        return _parts(walk, node, row)
    start = walk.nodes[node, 2]
    size = walk.nodes[node, 3] - start
    if not _has_room(walk, size):
        return -1
    _put_span(walk, start, size)
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _absent(walk: _Walk, node: cython.longlong, row: cython.longlong) -> cython.int:
    """A cell that is null."""
    kind: cython.longlong = walk.nodes[node, 0]
    if kind == _OPTIONAL:
        return _value(walk, walk.nodes[node, 2], row)
    if kind != _LENGTHED:
        return _stop(walk, _UNWANTED_NULL, node)
    if not _has_room(walk, 4):
        return -1
    _put_bits(walk, -1, 4)
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _value(walk: _Walk, node: cython.longlong, row: cython.longlong) -> cython.int:
    """Write one value; -1 if it cannot be, which ``end`` explains."""
    kind: cython.longlong = walk.nodes[node, 0]
    column: cython.longlong = walk.nodes[node, 1]
    at: cython.longlong
    if column < 0:
        return _without_column(walk, node, row)
    at = walk.bases[column] + row
    if walk.present[at] == 0:
        return _absent(walk, node, row)
    if kind == _OPTIONAL:
        return _value(walk, walk.nodes[node, 3], row)
    if walk.present[at] != _PRESENT:
        return _stop(walk, _MISFIT, node)
    if kind in (_NUMBER, _BITS, _DIGITS):
        return _number(walk, node, walk.cells[at])
    if kind == _RECORD:
        return _parts(walk, node, row)
    if kind in (_BLOCK, _JOINED):
        return _list(walk, node, at, row)
    if kind == _CHOICE:
        return _member(walk, node, row)
    if kind == _NULL:
        return _stop(walk, _MISFIT, node)
    return _bytes(walk, kind, walk.cells[at])


@kernel
def write_values(
    data: cython.const[cython.uchar][::1],
    wanted: cython.const[cython.uchar][::1],
    program: cython.longlong,
    nodes: cython.const[cython.longlong][:, ::1],
    lists: cython.const[cython.longlong][::1],
    bases: cython.const[cython.longlong][::1],
    cells: cython.const[cython.longlong][::1],
    present: cython.const[cython.uchar][::1],
    offsets: cython.int[::1],
    out: cython.uchar[::1],
    first: cython.longlong,
    flaw: cython.longlong[::1],
) -> int:
    """Write the rows from ``first`` on by the node ``program`` into ``out``, behind ``offsets[first]``; those that are
    not ``wanted`` take no bytes. Returns the row that is not written: for want of room, or because of a flaw.

    ``bases``: where the cells of each column begin. ``offsets`` takes the end of each row behind its start. ``flaw``
    takes why writing ended, one of ``ENDS``, and the node of a flaw.
    """
    walk: _Walk = _Walk()
    walk.data = cython.address(data[0]) if cython.compiled else data
    walk.nodes = nodes
    walk.lists = lists
    walk.bases = bases
    walk.cells = cells
    walk.present = present
    walk.out = cython.address(out[0]) if cython.compiled else out
    walk.room = out.shape[0]
    walk.at = offsets[first]
    walk.end = _WRITTEN
    walk.node = -1
    row: cython.Py_ssize_t = first
    rows: cython.Py_ssize_t = wanted.shape[0]
    with cython.nogil:
        while row < rows:
            if wanted[row] != 0 and _value(walk, program, row) < 0:
                break
            offsets[row + 1] = walk.at
            row += 1
    flaw[0] = walk.end
    flaw[1] = walk.node
    return row
