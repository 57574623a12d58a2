# SPDX-License-Identifier: Apache-2.0
"""Rows to be written, in the one shape that the kernels take, whatever Arrow types the caller has for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.base.errors import RowError, UsageError
from broker_core.base.limits import SENT_NUMBER_MAX
from broker_core.wire.batch.columns import (
    ByteColumn,
    bad_type,
    byte_column,
    is_text_type,
    is_valid,
    narrow,
    plain_column,
    presence,
    row_of_element,
    values_of,
)
from broker_core.wire.batch.sent_keys import is_text, sent_keys

_OF_MS: Final = {"us": 1000, "ns": 1_000_000}
"""How many of a finer unit of time are a millisecond."""

ENCODED_COLUMNS: Final = (
    *("key", "key_is_bytes", "value", "ordering_key", "properties", "event_time", "deliver_at", "sequence_id"),
)
"""The columns that ``encode_entries`` takes; each may be missing."""


@dataclass(frozen=True, slots=True)
class Rows:
    """``property_rows[i]`` to ``property_rows[i + 1]`` are the properties of row i.

    ``event_times`` and ``delivery_times`` are milliseconds since the epoch; 0 means none.
    """

    count: int
    keys: ByteColumn
    keys_are_base64: NDArray[np.uint8]
    values: ByteColumn
    ordering_keys: ByteColumn
    property_rows: NDArray[np.int32]
    property_names: ByteColumn
    property_values: ByteColumn
    event_times: NDArray[np.int64]
    delivery_times: NDArray[np.int64]
    sequence_ids: NDArray[np.int64] | None
    """None: the caller did not choose them."""

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> Rows:
        """Read ``batch``; UsageError for a column that cannot be sent, or has a type that cannot."""
        unknown = sorted(set(batch.schema.names) - set(ENCODED_COLUMNS))
        if unknown:
            raise UsageError(
                f"column {unknown[0]!r} cannot be sent", hint=f"a message takes {', '.join(ENCODED_COLUMNS)}"
            )
        keys = sent_keys(batch)
        return cls(
            batch.num_rows,
            keys.text,
            keys.is_base64,
            byte_column(plain_column(batch, "value"), "value", batch.num_rows),
            byte_column(plain_column(batch, "ordering_key"), "ordering_key", batch.num_rows),
            *_properties(plain_column(batch, "properties"), batch.num_rows),
            _times(batch, "event_time"),
            _times(batch, "deliver_at"),
            _sequence_ids(batch),
        )


def _properties(array: pa.Array | None, rows: int) -> tuple[NDArray[np.int32], ByteColumn, ByteColumn]:
    if array is None:
        return np.zeros(rows + 1, np.int32), ByteColumn.nulls(0), ByteColumn.nulls(0)
    wanted = "map<string, string>, or list of struct<key: string, value: string>"
    kind = array.type
    if pa.types.is_map(kind):
        names, values = array.keys, array.items
    elif pa.types.is_list(kind) and pa.types.is_struct(kind.value_type) and kind.value_type.num_fields == 2:
        names, values = array.values.flatten()  # What is in a pair that is null is null as well.
    else:
        raise bad_type("properties", kind, wanted)
    if not is_text_type(names.type) or not is_text_type(values.type):
        raise bad_type("properties", kind, wanted)
    offsets = values_of(array.offsets)
    if array.null_count and np.diff(offsets)[presence(array) == 0].any():
        # A null list owns elements; Arrow's own flatten leaves them out, and so the offsets must be made anew.
        return _properties(pa.array([row or [] for row in array.to_pylist()], array.type), rows)
    first, last = int(offsets[0]), int(offsets[-1])
    for part, what in ((names, "name"), (values, "value")):
        sent = part.slice(first, last - first)
        if sent.null_count:
            row = row_of_element(offsets, first + int(np.flatnonzero(presence(sent) == 0)[0]))
            raise RowError(row, f"has a property without a {what}", hint="leave such properties out")
    names, values = (narrow(part, "properties", pa.string()) for part in (names, values))
    for part, what in ((names, "name"), (values, "value")):
        _check_text(part.slice(first, last - first), what, offsets)
    return offsets, ByteColumn.of(names), ByteColumn.of(values)


def _check_text(part: pa.Array, what: str, offsets: NDArray[np.int32]) -> None:
    """RowError if one is not UTF-8: whoever made these texts may not have looked, and some clients fail at them."""
    if is_valid(part):
        return
    column = ByteColumn.of(part)
    at = int(np.flatnonzero(~is_text(column))[0])
    row = row_of_element(offsets, at + int(offsets[0]))
    raise RowError(row, f"has a property whose {what} is {column.get(at)!r}, which is not UTF-8", hint="encode it")


def _sequence_ids(batch: pa.RecordBatch) -> NDArray[np.int64] | None:
    array = plain_column(batch, "sequence_id")
    if array is None or array.null_count == len(array):
        return None
    if not pa.types.is_integer(array.type):
        raise bad_type("sequence_id", array.type, "integer")
    if array.null_count:
        row = int(np.flatnonzero(presence(array) == 0)[0])
        raise RowError(row, "has no sequence id, and others have one", hint="give one to every row, or to none")
    ids = values_of(array.cast(pa.int64(), safe=False))  # Too large an unsigned one is negative here.
    wrong = np.flatnonzero((ids < 0) | (ids > SENT_NUMBER_MAX))
    if wrong.size:
        row = int(wrong[0])
        raise RowError(row, f"has the sequence id {array[row]}", hint=f"they are numbers from 0 to {SENT_NUMBER_MAX}")
    return ids


def _times(batch: pa.RecordBatch, name: str) -> NDArray[np.int64]:
    """Whole milliseconds: of what lies between two the earlier one, also before 1970, where Arrow takes the later."""
    array = plain_column(batch, name)
    if array is None:
        return np.zeros(batch.num_rows, np.int64)
    if pa.types.is_timestamp(array.type) and array.type.unit in _OF_MS:
        times = values_of(array.cast(pa.int64())) // _OF_MS[array.type.unit]
    elif pa.types.is_timestamp(array.type):
        times = _milliseconds(array.cast(pa.int64()), name, 1000 if array.type.unit == "s" else 1)
    elif pa.types.is_integer(array.type):
        times = _milliseconds(array, name, 1)
    else:
        raise bad_type(name, array.type, "timestamp, or integer milliseconds")
    return np.where(presence(array), times, 0) if array.null_count else times


def _milliseconds(array: pa.Array, name: str, unit_ms: int) -> NDArray[np.int64]:
    """Integers, of ``unit_ms`` each, in 64 bits; RowError for the first that these do not hold."""
    found = values_of(array.cast(pa.int64(), safe=False))
    if unit_ms == 1 and not pa.types.is_uint64(array.type):
        return found
    wrong = found < 0 if unit_ms == 1 else found * unit_ms // unit_ms != found  # What is too large wraps around.
    rows = np.flatnonzero(wrong & (presence(array) != 0))
    if rows.size:
        row = int(rows[0])
        raise RowError(row, f"has the {name} {array[row]}", hint="its milliseconds must fit into 64 bits with a sign")
    return found * unit_ms
