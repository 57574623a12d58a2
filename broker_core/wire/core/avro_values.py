# SPDX-License-Identifier: Apache-2.0
"""Avro values to columns, by a program that is made once for a pair of schemas: the writer's, and the columns wanted.

A program is a list of nodes, ``WORDS`` numbers each; a node reads one value and says into which column. A column has
*cells*, in the order of values: a number as it is, a float as its bits, text and bytes as ``start << 32 | size`` in the
source, a list as the number of items up to its end. Columns of records hold presence only. A value that is null has a
cell in its column and in all below it, but not in those of items.

Input is hostile: a row that is not what its schema says leaves nulls behind and is told with a flaw. Every read is
guarded by the end of the row. Steps are counted: two billion items that take no bytes are a claim of five bytes, and
records within records can be read over in a billion steps that take none.
"""

from __future__ import annotations

import struct

try:
    import cython
except ImportError:
    from broker_core.wire.core import uncompiled as cython

from broker_core.wire.core.uncompiled import kernel

if cython.compiled:
    from cython.cimports.broker_core.wire.core import fields as pb
    from cython.cimports.libc.string import memcpy
else:
    from broker_core.wire.core import fields as pb

# -- nodes: kind, column or -1 to read over, and up to three numbers
_NOTHING = cython.declare(cython.int, 0)
_NULL = cython.declare(cython.int, 1)
_INT = cython.declare(cython.int, 2)
_LONG = cython.declare(cython.int, 3)
_FLOAT = cython.declare(cython.int, 4)
_DOUBLE = cython.declare(cython.int, 5)
_BOOLEAN = cython.declare(cython.int, 6)
_TEXT = cython.declare(cython.int, 7)
_FIXED = cython.declare(cython.int, 8)
_ENUM = cython.declare(cython.int, 9)
_UNION = cython.declare(cython.int, 10)
_RECORD = cython.declare(cython.int, 11)
_ARRAY = cython.declare(cython.int, 12)
_MAP = cython.declare(cython.int, 13)
_DEFAULT = cython.declare(cython.int, 14)
_UNREADABLE = cython.declare(cython.int, 15)
KINDS = {
    "nothing": _NOTHING,  # reads no bytes and fills no column
    "null": _NULL,  # reads no bytes; a null in the column and in all below it
    "int": _INT,  # how the number becomes a cell
    "long": _LONG,  # the same
    "float": _FLOAT,  # the same
    "double": _DOUBLE,
    "boolean": _BOOLEAN,
    "text": _TEXT,
    "fixed": _FIXED,  # the size
    "enum": _ENUM,  # where in ``lists`` the cells of its symbols are, and how many; -1 is a symbol that is not known
    "union": _UNION,  # where in ``lists`` the nodes of its branches are, and how many
    "record": _RECORD,  # where in ``lists`` the nodes of its fields are, and how many
    "array": _ARRAY,  # the node of its items
    "map": _MAP,  # the node of its values, and that of its keys
    "unreadable": _UNREADABLE,  # whatever is written: what is wanted cannot be made of it
    "default": _DEFAULT,  # where in the source the default is, where that ends, and the node that reads it
}
WORDS = 5

# -- how a number becomes a cell
_PLAIN = cython.declare(cython.int, 0)
_TIMES_1000 = cython.declare(cython.int, 1)
_BY_1000 = cython.declare(cython.int, 2)
_TO_DOUBLE = cython.declare(cython.int, 3)
SCALES = {"plain": _PLAIN, "times 1000": _TIMES_1000, "by 1000": _BY_1000, "to double": _TO_DOUBLE}

# -- flaws of a row
_SOUND = cython.declare(cython.int, 0)
_CUT = cython.declare(cython.int, 1)
_TOO_LONG = cython.declare(cython.int, 2)
_OUT_OF_RANGE = cython.declare(cython.int, 3)
_NEGATIVE = cython.declare(cython.int, 4)
_NO_BRANCH = cython.declare(cython.int, 5)
_NO_SYMBOL = cython.declare(cython.int, 6)
_TOO_DEEP = cython.declare(cython.int, 7)
_TOO_MANY = cython.declare(cython.int, 8)
_LEFT_OVER = cython.declare(cython.int, 9)
_UNWANTED = cython.declare(cython.int, 10)
FLAWS = {
    _CUT: "it ends too early",
    _TOO_LONG: "a number has too many bytes",
    _OUT_OF_RANGE: "a number is too large",
    _NEGATIVE: "a length is negative",
    _NO_BRANCH: "a union has no such branch",
    _NO_SYMBOL: "an enum has no such symbol",
    _TOO_DEEP: "it is nested too deep",
    _TOO_MANY: "it claims too many items for its size",
    _LEFT_OVER: "bytes are left over behind it",
    _UNWANTED: "its schema has what the wanted one cannot take",
}

_DEPTH_MAX = cython.declare(cython.int, 200)
# A value may be read in so many steps; a step is a cell, or a value that is made of others. A schema may make much of a
# byte: a null stands for as many cells as its record has fields.
_STEPS_A_BYTE = cython.declare(cython.longlong, 64)
_STEPS_A_NODE = cython.declare(cython.longlong, 16)
_STEPS_MORE = cython.declare(cython.longlong, 4_096)
_STEPS_MAX = cython.declare(cython.longlong, 32 << 20)
_INT_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)
_LOW_63 = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
_THOUSANDS_MAX = cython.declare(cython.longlong, 9_223_372_036_854_775)


@cython.cclass
class _Walk:
    """A walk over rows: the program, the columns, and how it stands with the row that it is at."""

    data: cython.p_const_uchar
    nodes: cython.const[cython.longlong][:, ::1]
    lists: cython.const[cython.longlong][::1]
    below: cython.const[cython.longlong][::1]
    bases: cython.const[cython.longlong][::1]
    rooms: cython.const[cython.longlong][::1]
    counts: cython.longlong[::1]
    cells: cython.longlong[::1]
    present: cython.uchar[::1]
    end: cython.Py_ssize_t
    flaw: cython.int
    flawed_node: cython.longlong
    depth: cython.int
    steps_left: cython.longlong


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put(walk: _Walk, column: cython.longlong, cell: cython.longlong, present: cython.uchar) -> cython.void:
    """Add a cell to a column. Beyond its room it is only counted: the caller tries again with more."""
    count: cython.longlong = walk.counts[column]
    if count < walk.rooms[column]:
        walk.cells[walk.bases[column] + count] = cell
        walk.present[walk.bases[column] + count] = present
    walk.counts[column] = count + 1
    walk.steps_left -= 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put_null(walk: _Walk, column: cython.longlong) -> cython.void:
    """Add a null to a column and to those below it: ``below`` says up to which they go, or the column of items."""
    at: cython.longlong = column
    last: cython.longlong = walk.below[2 * column]
    items: cython.longlong
    while at <= last:
        items = walk.below[2 * at + 1]
        if items < 0:
            _put(walk, at, 0, 0)
            at += 1
        else:  # a list without items, and columns of its items that get nothing
            _put(walk, at, walk.counts[items], 0)
            at = walk.below[2 * at] + 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _fail(walk: _Walk, flaw: cython.int, node: cython.longlong) -> cython.Py_ssize_t:
    if walk.flaw == _SOUND:
        walk.flaw = flaw
        walk.flawed_node = node
    return -1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _bits(number: cython.double) -> cython.longlong:
    """A double as the number that has its bits."""
    cell: cython.longlong = 0
    if cython.compiled:
        memcpy(cython.address(cell), cython.address(number), 8)
    else:
        (cell,) = struct.unpack("<q", struct.pack("<d", number))
    return cell


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _float(bits: cython.longlong) -> cython.double:
    """The float that has these 32 bits."""
    low: cython.uint = bits
    number: cython.float = 0
    if cython.compiled:
        memcpy(cython.address(number), cython.address(low), 4)
    else:
        (number,) = struct.unpack("<f", struct.pack("<I", bits))
    return number


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _little_endian(data: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.int) -> cython.longlong:
    number: cython.ulonglong = 0
    byte: cython.ulonglong
    for i in range(size):
        byte = data[at + i]
        number |= byte << 8 * i
    if not cython.compiled:
        number = (number + (1 << 63)) % (1 << 64) - (1 << 63)
    return number


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _zigzag(walk: _Walk, node: cython.longlong, at: cython.Py_ssize_t) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """A number in zigzag, and where it ends; -1 if it has a flaw."""
    raw: cython.longlong
    byte: cython.longlong
    if at < walk.end:
        byte = walk.data[at]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), at + 1
    raw, at = pb.varint(walk.data, at, walk.end)
    if at < 0:
        return 0, _fail(walk, _CUT if at == -1 else _TOO_LONG, node)
    return ((raw >> 1) & _LOW_63) ^ -(raw & 1), at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _number(walk: _Walk, node: cython.longlong, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    number: cython.longlong
    column: cython.longlong = walk.nodes[node, 1]
    scale: cython.longlong = walk.nodes[node, 2]
    number, at = _zigzag(walk, node, at)
    if at < 0:
        return -1
    if walk.nodes[node, 0] == _INT and (number > _INT_MAX or number < -_INT_MAX - 1):
        return _fail(walk, _OUT_OF_RANGE, node)
    if column < 0:
        return at
    if scale == _TIMES_1000:
        if number > _THOUSANDS_MAX or number < -_THOUSANDS_MAX:
            return _fail(walk, _OUT_OF_RANGE, node)
        number = number * 1000
    elif scale == _BY_1000:
        number = (number - (999 if number < 0 else 0)) // 1000 if cython.compiled else number // 1000
    elif scale == _TO_DOUBLE:
        number = _bits(number)
    _put(walk, column, number, 1)
    return at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _fixed_number(walk: _Walk, node: cython.longlong, at: cython.Py_ssize_t, size: cython.int) -> cython.Py_ssize_t:
    """A float, a double or a boolean."""
    cell: cython.longlong
    if walk.end - at < size:
        return _fail(walk, _CUT, node)
    if walk.nodes[node, 1] >= 0:
        cell = _little_endian(walk.data, at, size)
        if walk.nodes[node, 2] == _TO_DOUBLE:
            cell = _bits(_float(cell))
        _put(walk, walk.nodes[node, 1], cell, 1)
    return at + size


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _span(walk: _Walk, node: cython.longlong, at: cython.Py_ssize_t, size: cython.longlong) -> cython.Py_ssize_t:
    """``size`` bytes as they are."""
    start: cython.longlong = at
    if size < 0:
        return _fail(walk, _NEGATIVE, node)
    if size > walk.end - at:
        return _fail(walk, _CUT, node)
    if walk.nodes[node, 1] >= 0:
        _put(walk, walk.nodes[node, 1], start << 32 | size, 1)
    return at + size


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _choice(walk: _Walk, node: cython.longlong, at: cython.Py_ssize_t) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """The item of ``lists`` for the number of a branch or a symbol, and where that number ends; -1 for a flaw."""
    number: cython.longlong
    number, at = _zigzag(walk, node, at)
    if at < 0:
        return 0, -1
    if number < 0 or number >= walk.nodes[node, 3]:
        return 0, _fail(walk, _NO_SYMBOL if walk.nodes[node, 0] == _ENUM else _NO_BRANCH, node)
    return walk.lists[walk.nodes[node, 2] + number], at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _items(walk: _Walk, node: cython.longlong, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """An array or a map: blocks of items behind their number; a negative one has its size behind it."""
    column: cython.longlong = walk.nodes[node, 1]
    number: cython.longlong
    size: cython.longlong
    number, at = _zigzag(walk, node, at)
    while at >= 0 and number != 0:
        if number < 0:
            number = -number
            size, at = _zigzag(walk, node, at)
            if at >= 0 and (size < 0 or number < 0):
                return _fail(walk, _NEGATIVE, node)
        while at >= 0 and number > 0:
            if walk.nodes[node, 0] == _MAP:
                at = _value(walk, walk.nodes[node, 3], at)
            if at >= 0:
                at = _value(walk, walk.nodes[node, 2], at)
            walk.steps_left -= 1
            if walk.steps_left < 0:
                return _fail(walk, _TOO_MANY, node)
            number -= 1
        if at >= 0:
            number, at = _zigzag(walk, node, at)
    if at >= 0 and column >= 0:
        _put(walk, column, walk.counts[walk.below[2 * column + 1]], 1)
    return at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _fields(walk: _Walk, node: cython.longlong, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    first: cython.longlong = walk.nodes[node, 2]
    if walk.nodes[node, 1] >= 0:
        _put(walk, walk.nodes[node, 1], 0, 1)
    for i in range(walk.nodes[node, 3]):
        at = _value(walk, walk.lists[first + i], at)
        if at < 0:
            return -1
    return at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _default(walk: _Walk, node: cython.longlong, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """The default of a field that was not written."""
    end: cython.Py_ssize_t = walk.end
    walk.end = walk.nodes[node, 3]
    walk.steps_left += _STEPS_A_BYTE * (walk.nodes[node, 3] - walk.nodes[node, 2])
    if _value(walk, walk.nodes[node, 4], walk.nodes[node, 2]) < 0:
        at = -1
    walk.end = end
    return at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _nested(walk: _Walk, node: cython.longlong, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """A value that is made of others."""
    kind: cython.longlong = walk.nodes[node, 0]
    choice: cython.longlong
    if walk.depth >= _DEPTH_MAX:
        return _fail(walk, _TOO_DEEP, node)
    walk.steps_left -= 1
    if walk.steps_left < 0:
        return _fail(walk, _TOO_MANY, node)
    walk.depth += 1
    if kind == _UNION:
        choice, at = _choice(walk, node, at)
        if at >= 0:
            at = _value(walk, choice, at)
    elif kind == _RECORD:
        at = _fields(walk, node, at)
    elif kind == _DEFAULT:
        at = _default(walk, node, at)
    else:
        at = _items(walk, node, at)
    walk.depth -= 1
    return at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _symbol(walk: _Walk, node: cython.longlong, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """A symbol of an enum. The writer may have one that the reader has not."""
    number: cython.longlong
    number, at = _choice(walk, node, at)
    if at >= 0 and walk.nodes[node, 1] >= 0:
        if number < 0:
            return _fail(walk, _NO_SYMBOL, node)
        _put(walk, walk.nodes[node, 1], number, 1)
    return at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _value(walk: _Walk, node: cython.longlong, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Read one value; where it ends, or -1 if it has a flaw."""
    kind: cython.longlong = walk.nodes[node, 0]
    number: cython.longlong
    if kind in (_LONG, _INT):
        return _number(walk, node, at)
    if kind == _TEXT:
        number, at = _zigzag(walk, node, at)
        return at if at < 0 else _span(walk, node, at, number)
    if kind == _DOUBLE:
        return _fixed_number(walk, node, at, 8)
    if kind == _FLOAT:
        return _fixed_number(walk, node, at, 4)
    if kind == _BOOLEAN:
        return _fixed_number(walk, node, at, 1)
    if kind == _FIXED:
        return _span(walk, node, at, walk.nodes[node, 2])
    if kind == _ENUM:
        return _symbol(walk, node, at)
    if kind == _NOTHING:
        return at
    if kind == _NULL:
        _put_null(walk, walk.nodes[node, 1])
        return at
    if kind == _UNREADABLE:
        return _fail(walk, _UNWANTED, node)
    return _nested(walk, node, at)


@kernel
def read_values(
    data: cython.const[cython.uchar][::1],
    offsets: cython.const[cython.int][::1],
    programs: cython.const[cython.longlong][::1],
    nodes: cython.const[cython.longlong][:, ::1],
    lists: cython.const[cython.longlong][::1],
    below: cython.const[cython.longlong][::1],
    bases: cython.const[cython.longlong][::1],
    rooms: cython.const[cython.longlong][::1],
    counts: cython.longlong[::1],
    before: cython.longlong[::1],
    cells: cython.longlong[::1],
    present: cython.uchar[::1],
    flaws: cython.int[::1],
    flawed_nodes: cython.longlong[::1],
) -> int:
    """Read row i, ``data[offsets[i]:offsets[i + 1]]``, by the node ``programs[i]``, or -1 for a null.

    Returns how many rows have a flaw.

    ``below``: for each column the last one below it, and the first column of its items, or -1 for one that is no list.
    ``bases`` and ``rooms``: where the cells of each column begin, and how many there is room for; ``counts`` takes how
    many there are, ``before`` is for the walk itself. ``flaws`` and ``flawed_nodes`` are filled in for each row.
    """
    walk: _Walk = _Walk()
    walk.data = cython.address(data[0]) if cython.compiled else data
    walk.nodes = nodes
    walk.lists = lists
    walk.below = below
    walk.bases = bases
    walk.rooms = rooms
    walk.counts = counts
    walk.cells = cells
    walk.present = present
    walk.steps_left = 0
    columns: cython.Py_ssize_t = counts.shape[0]
    at: cython.Py_ssize_t
    row: cython.Py_ssize_t
    column: cython.Py_ssize_t
    flawed: cython.Py_ssize_t = 0
    steps: cython.longlong
    with cython.nogil:
        for row in range(programs.shape[0]):
            flaws[row] = _SOUND
            if programs[row] < 0:
                _put_null(walk, 0)
                continue
            for column in range(columns):
                before[column] = counts[column]
            walk.flaw = _SOUND
            walk.depth = 0
            walk.end = offsets[row + 1]
            steps = _STEPS_A_BYTE * (walk.end - offsets[row]) + _STEPS_A_NODE * nodes.shape[0] + _STEPS_MORE
            walk.steps_left = min(steps, _STEPS_MAX)
            at = _value(walk, programs[row], offsets[row])
            if at >= 0 and at < walk.end:
                at = _fail(walk, _LEFT_OVER, programs[row])
            if at < 0:
                flawed += 1
                flaws[row] = walk.flaw
                flawed_nodes[row] = walk.flawed_node
                for column in range(columns):
                    counts[column] = before[column]
                _put_null(walk, 0)
    return flawed
