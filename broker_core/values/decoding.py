# SPDX-License-Identifier: Apache-2.0
"""Values in Avro's binary form to an Arrow array: one walk over all rows, and then column by column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.schemas.avro.types import Array, Enum, Fixed, Map, Record, Union
from broker_core.values.decoded_cells import Cells, decimal_words, misfits_of
from broker_core.values.programs import Programs
from broker_core.values.targets import DURATION, Target, columns_of
from broker_core.wire.batch import columns as cols
from broker_core.wire.core.avro_values import read_values

_ITEMS_A_ROW: Final = 4
"""Items of a list for which there is room at the first attempt."""

_CELLS_AT_ONCE: Final = 4 << 20
"""Cells of one walk, where rows have no lists: a schema of thousands of columns takes few rows at a time."""
_LISTS_BYTES_AT_ONCE: Final = 1 << 20
"""Bytes of one walk, where rows have lists: a null in a list is a byte, and a cell for each field of its record."""


class Flaw(NamedTuple):
    """A row that cannot be read. ``reason``: why, behind the path of its field."""

    row: int
    reason: str


class Decoded(NamedTuple):
    """The rows, null where one has a flaw."""

    rows: pa.Array
    flaws: list[Flaw]


def decode(programs: Programs, values: pa.Array, starts: NDArray[np.int64]) -> Decoded:
    """Read ``values``, binary, each by the program that begins with the node ``starts[row]``, or -1 for a null."""
    columns = columns_of(programs.target)
    size = _rows_at_once(columns, values)
    if len(values) <= size:
        return _decode(programs, columns, values, starts)
    parts = []
    for at in range(0, len(values), size):
        part = _decode(programs, columns, values.slice(at, size), starts[at : at + size])
        parts.append(Decoded(part.rows, [Flaw(at + flaw.row, flaw.reason) for flaw in part.flaws]))
    return Decoded(pa.concat_arrays([each.rows for each in parts]), [flaw for each in parts for flaw in each.flaws])


def _rows_at_once(columns: list[Target], values: pa.Array) -> int:
    rows = max(_CELLS_AT_ONCE // len(columns), 1)
    _, offsets, _ = cols.ByteColumn.of(values).arrays
    size = int(offsets[-1] - offsets[0])
    if size <= _LISTS_BYTES_AT_ONCE or not any(each.is_list for each in columns):
        return rows
    return min(rows, max(len(values) * _LISTS_BYTES_AT_ONCE // size, 1))


def _decode(programs: Programs, columns: list[Target], values: pa.Array, starts: NDArray[np.int64]) -> Decoded:
    source, offsets, present = _with_constants(values, bytes(programs.constants))
    starts = np.where(present.view(np.bool_), starts, -1)
    within_lists = _within_lists(programs.target)
    rooms = np.array([len(starts) * (_ITEMS_A_ROW if each.column in within_lists else 1) for each in columns], np.int64)
    misfits: dict[int, str] = {}
    while True:
        cells, flaws, nodes = _walk(programs, columns, source, offsets, starts, rooms)
        if (cells.counts > rooms).any():
            rooms = np.maximum(rooms, cells.counts)
            continue
        found = misfits_of(programs.target, cells)
        if not found:
            break
        misfits |= found
        starts[list(found)] = -1
    flawed = np.flatnonzero(flaws).tolist()
    of_bytes = [Flaw(row, programs.told(int(nodes[row]), int(flaws[row]))) for row in flawed]
    return Decoded(_array(programs.target, cells), sorted([*of_bytes, *(Flaw(*each) for each in misfits.items())]))


def _with_constants(
    values: pa.Array, constants: bytes
) -> tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.uint8]]:
    """Data behind the constants, offsets into it, and presence."""
    data, offsets, present = cols.ByteColumn.of(values).arrays
    data = data[offsets[0] : offsets[-1]] if len(values) else data
    if not constants and len(data):
        return data, np.ascontiguousarray(offsets - offsets[0]), present
    constants = constants or b"\0"
    source = np.concatenate([np.frombuffer(constants, np.uint8), data])
    return source, offsets - offsets[0] + np.int32(len(constants)), present


def _within_lists(target: Target) -> set[int]:
    return {
        below.column for each in columns_of(target) if each.is_list for part in each.parts for below in columns_of(part)
    }


def _walk(
    programs: Programs,
    columns: list[Target],
    source: NDArray[np.uint8],
    offsets: NDArray[np.int32],
    starts: NDArray[np.int64],
    rooms: NDArray[np.int64],
) -> tuple[Cells, NDArray[np.int32], NDArray[np.int64]]:
    below = np.array([[each.last, each.parts[0].column if each.is_list else -1] for each in columns], np.int64)
    bases = np.cumsum(rooms) - rooms
    counts, before = np.zeros(len(columns), np.int64), np.zeros(len(columns), np.int64)
    cells, present = np.empty(int(rooms.sum()), np.int64), np.empty(int(rooms.sum()), np.uint8)
    flaws, nodes = np.zeros(len(starts), np.int32), np.zeros(len(starts), np.int64)
    read_values(
        *(source, offsets, starts, programs.nodes, programs.lists, below.ravel(), bases, rooms),
        *(counts, before, cells, present, flaws, nodes),
    )
    return Cells(source, bases, counts, cells, present), flaws, nodes


# -- columns


def _array(target: Target, cells: Cells) -> pa.Array:
    values, present = cells.of(target.column)
    match target.avro:
        case Record() | Union():
            parts = [_array(each, cells) for each in target.parts]
            return pa.Array.from_buffers(target.arrow, len(values), [cols.validity(present)], children=parts)
        case Array() | Map():
            return _list_array(target, cells, values, present)
        case Enum():
            return _enum_array(target.avro, values, present)
        case Fixed():
            return _fixed_array(target, cells, values, present)
    return _LEAVES[target.avro.kind](target, cells, values, present)


def _list_array(target: Target, cells: Cells, ends: NDArray[np.int64], present: NDArray[np.bool_]) -> pa.Array:
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends
    parts = [_array(each, cells) for each in target.parts]
    if isinstance(target.avro, Map):
        pairs = pa.StructArray.from_arrays(parts, fields=[target.arrow.key_field, target.arrow.item_field])
        parts = [pairs]
    return pa.Array.from_buffers(
        target.arrow, len(ends), [cols.validity(present), pa.py_buffer(offsets)], children=parts
    )


def _enum_array(enum: Enum, values: NDArray[np.int64], present: NDArray[np.bool_]) -> pa.Array:
    numbers = cols.numbers(values.astype(np.int32), present)
    return pa.DictionaryArray.from_arrays(numbers, pa.array(enum.symbols, pa.string())).dictionary_decode()


def _bytes_array(cells: Cells, values: NDArray[np.int64], present: NDArray[np.bool_]) -> pa.Array:
    spans = np.zeros(2 * len(values) + 1, np.int32)
    spans[1::2] = values >> 32
    spans[2::2] = (values >> 32) + (values & 0xFFFFFFFF)
    return cols.gather(cells.source, spans, len(values), present)


def _text(target: Target, cells: Cells, values: NDArray[np.int64], present: NDArray[np.bool_]) -> pa.Array:
    return cols.text(_bytes_array(cells, values, present))


def _bytes(target: Target, cells: Cells, values: NDArray[np.int64], present: NDArray[np.bool_]) -> pa.Array:
    if pa.types.is_decimal(target.arrow):
        return _decimal_array(target, cells, values, present)
    return _bytes_array(cells, values, present)


def _decimal_array(target: Target, cells: Cells, values: NDArray[np.int64], present: NDArray[np.bool_]) -> pa.Array:
    words = decimal_words(cells.source, values)
    return pa.Array.from_buffers(target.arrow, len(values), [cols.validity(present), pa.py_buffer(words)])


def _fixed_array(target: Target, cells: Cells, values: NDArray[np.int64], present: NDArray[np.bool_]) -> pa.Array:
    if pa.types.is_decimal(target.arrow):
        return _decimal_array(target, cells, values, present)
    plain = _bytes_array(cells, values, present)
    if target.arrow == DURATION:
        words = np.frombuffer(plain.fill_null(bytes(12)).buffers()[2] or b"", "<u4")[: 3 * len(values)].reshape(-1, 3)
        parts = [cols.numbers(words[:, part].astype(np.int64), present) for part in range(3)]
        return pa.Array.from_buffers(DURATION, len(values), [cols.validity(present)], children=parts)
    if pa.types.is_string(target.arrow):
        texts = [None if each is None else uuid_text(each) for each in plain.to_pylist()]
        return pa.array(texts, pa.string())
    return plain


def uuid_text(data: bytes) -> str:
    """A UUID as it is written for people."""
    text = data.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _number(target: Target, cells: Cells, values: NDArray[np.int64], present: NDArray[np.bool_]) -> pa.Array:
    width = target.arrow.bit_width
    plain = values.astype(np.int32) if width == 32 else np.ascontiguousarray(values)
    return pa.Array.from_buffers(target.arrow, len(values), [cols.validity(present), pa.py_buffer(plain)])


def _double(target: Target, cells: Cells, values: NDArray[np.int64], present: NDArray[np.bool_]) -> pa.Array:
    return cols.numbers(values.view(np.float64), present)


def _float(target: Target, cells: Cells, values: NDArray[np.int64], present: NDArray[np.bool_]) -> pa.Array:
    with np.errstate(over="ignore", invalid="ignore"):
        return cols.numbers(values.view(np.float64).astype(np.float32), present)


def _boolean(target: Target, cells: Cells, values: NDArray[np.int64], present: NDArray[np.bool_]) -> pa.Array:
    return cols.booleans(values == 1, present)


def _void(target: Target, cells: Cells, values: NDArray[np.int64], present: NDArray[np.bool_]) -> pa.Array:
    return pa.nulls(len(values), target.arrow)


_LEAVES: Final[Mapping[str, Any]] = {
    "int": _number,
    "long": _number,
    "float": _float,
    "double": _double,
    "boolean": _boolean,
    "string": _text,
    "bytes": _bytes,
    "null": _void,
}
