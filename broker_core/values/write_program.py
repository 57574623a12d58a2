# SPDX-License-Identifier: Apache-2.0
"""A program that writes columns as values, once it is made, and how its columns are taken out of Arrow's arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa

from broker_core.base.errors import RowError, UsageError
from broker_core.values.cells import Cells, Maker, list_offsets, presence_alone, spans
from broker_core.wire.batch import columns as cols
from broker_core.wire.core.written_values import ENDS, KINDS, WORDS, write_values

NO_COLUMN: Final = -1
_ROW_BYTES_MIN: Final = 16
"""Room for each row at the first attempt, beside what its cells take."""

_OUT_BYTES_MAX: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Column:
    """A column that cells are made of, and its parts: how each is taken out of it."""

    number: int
    make: Maker
    parts: Sequence[tuple[Callable[[pa.Array], pa.Array], Column]] = ()

    def fill(self, array: pa.Array, cells: Cells) -> None:
        """Make the cells of this column and of its parts."""
        cells.put(self.number, *self.make(array, cells))
        for taken, part in self.parts:
            part.fill(taken(array), cells)


@dataclass(slots=True)
class Program:
    """A program, once it is made. ``root``: its first node, and the column of rows."""

    constants: bytearray = field(default_factory=bytearray)
    columns: int = 0
    root: tuple[int, Column] | None = None
    _nodes: list[list[int]] = field(default_factory=list)
    _lists: list[int] = field(default_factory=list)
    _flaws: list[tuple[str, str]] = field(default_factory=list)

    def node(self, path: str, kind: str, column: int, *numbers: int, misfit: str = "") -> int:
        """Add a node; its number. ``misfit``: the flaw of a value that does not fit."""
        self._nodes.append([KINDS[kind], column, *numbers, *[0] * (WORDS - 2 - len(numbers))])
        self._flaws.append((path, misfit))
        return len(self._nodes) - 1

    def literal(self, data: bytes) -> int:
        """A node that writes these bytes."""
        start = len(self.constants)
        self.constants += data
        return self.node("", "literal", NO_COLUMN, start, len(self.constants))

    def listed(self, path: str, nodes: Sequence[int], kind: str = "record", column: int = NO_COLUMN) -> int:
        """A node of several: one after the other, or one of them."""
        self._lists += nodes
        count = len(nodes) // 2 if kind == "choice" else len(nodes)
        return self.node(path, kind, column, len(self._lists) - len(nodes), count)

    def write(self, rows: pa.Array) -> pa.Array:
        """The values of ``rows``, binary; a null row is null. RowError for the first row that is none of the schema."""
        assert self.root is not None
        node, column = self.root
        cells = Cells(self.columns, bytes(self.constants))
        column.fill(rows, cells)
        wanted = cols.presence(rows)
        offsets = np.zeros(len(rows) + 1, np.int32)
        room = cells.size_bytes + (len(self.constants) + _ROW_BYTES_MIN) * len(rows) + 1
        out = np.empty(min(room, _OUT_BYTES_MAX), np.uint8)
        source, (bases, numbers, present) = cells.source, cells.arrays
        nodes = np.array(self._nodes, np.int64).reshape(-1, WORDS)
        lists = np.array(self._lists or [0], np.int64)
        flaw = np.zeros(2, np.int64)
        row = 0
        while True:
            row = write_values(source, wanted, node, nodes, lists, bases, numbers, present, offsets, out, row, flaw)
            if flaw[0] == ENDS["written"]:
                break
            if flaw[0] != ENDS["no room"]:
                self._refuse(row, int(flaw[0]), int(flaw[1]))
            out = _larger(out, int(offsets[row]))
        data = pa.py_buffer(out[: int(offsets[-1])])
        return pa.Array.from_buffers(pa.binary(), len(rows), [cols.validity(wanted), pa.py_buffer(offsets), data])

    def _refuse(self, row: int, end: int, node: int) -> NoReturn:
        path, misfit = self._flaws[node]
        reasons = {
            ENDS["null"]: "is null, which its schema does not have",
            ENDS["no member"]: "has no member that is not null, which its schema does not have",
            ENDS["too many members"]: "has several members that are not null, and a union is one of them",
        }
        raise RowError(row, f"cannot be written: {path or 'the value'} {reasons.get(end, misfit)}")


def _larger(out: np.ndarray[Any, Any], used: int) -> np.ndarray[Any, Any]:
    if len(out) == _OUT_BYTES_MAX:
        raise UsageError("the values of these rows have more than 2 GiB", hint="write fewer of them at once")
    larger = np.empty(min(2 * len(out), _OUT_BYTES_MAX), np.uint8)
    larger[:used] = out[:used]
    return larger


def joining_program() -> Program:
    """The program that writes two payloads, the fields of a struct, as one: each behind its length, or -1 for none."""
    program = Program(columns=3)
    parts = [(field_of(number), Column(number + 1, spans)) for number in range(2)]
    nodes = [program.node("", "lengthed", part.number) for _, part in parts]
    program.root = (program.listed("", nodes), Column(0, presence_alone, parts))
    return program


# -- parts of arrays


def field_of(number: int) -> Callable[[pa.Array], pa.Array]:
    """Takes a field of structs by its number."""

    def taken(array: pa.Array) -> pa.Array:
        return array.field(number)

    return taken


def _cut(array: pa.Array, parts: pa.Array) -> pa.Array:
    """The items of these rows alone: an array may be a part of a longer one."""
    offsets = list_offsets(array)
    return parts.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


def list_items_of(array: pa.Array) -> pa.Array:
    """The items of lists."""
    return _cut(array, array.values)


def map_keys_of(array: pa.Array) -> pa.Array:
    """The keys of maps."""
    return _cut(array, array.keys)


def map_items_of(array: pa.Array) -> pa.Array:
    """The values of maps."""
    return _cut(array, array.items)
