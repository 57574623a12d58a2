# SPDX-License-Identifier: Apache-2.0
"""Rows to be written, in the one shape that the kernels take, whatever Arrow types the caller has for them.

Text keys travel as they are; keys given as bytes travel as base64 with a flag, as every client does it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.base.errors import UsageError
from broker_core.wire.batch.arrays import ByteColumn, presence, readonly
from broker_core.wire.batch.columns import values_of
from broker_core.wire.batch.keys import encode_base64

ENCODED_COLUMNS: Final = ("key", "value", "ordering_key", "properties", "event_time", "deliver_at")
"""What ``encode_entries`` takes; every column may be missing."""


@dataclass(frozen=True, slots=True)
class Rows:
    """``property_rows[i]`` to ``property_rows[i + 1]`` are the properties of row i.

    ``event_times`` and ``delivery_times`` are milliseconds since the epoch; 0 means none.
    """

    count: int
    keys: ByteColumn
    keys_are_base64: bool
    values: ByteColumn
    ordering_keys: ByteColumn
    property_rows: NDArray[np.int32]
    property_names: ByteColumn
    property_values: ByteColumn
    event_times: NDArray[np.int64]
    delivery_times: NDArray[np.int64]

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> Rows:
        """Read ``batch``; UsageError for a column that cannot be sent, or has a type that cannot."""
        unknown = sorted(set(batch.schema.names) - set(ENCODED_COLUMNS))
        if unknown:
            raise UsageError(
                f"column {unknown[0]!r} cannot be sent", hint=f"a message takes {', '.join(ENCODED_COLUMNS)}"
            )
        keys, keys_are_bytes = key_column(_column(batch, "key"), batch.num_rows)
        return cls(
            batch.num_rows,
            keys,
            keys_are_bytes,
            _byte_column(_column(batch, "value"), "value", batch.num_rows),
            _byte_column(_column(batch, "ordering_key"), "ordering_key", batch.num_rows),
            *_properties(_column(batch, "properties"), batch.num_rows),
            _times(batch, "event_time"),
            _times(batch, "deliver_at"),
        )


def key_column(array: pa.Array | None, rows: int) -> tuple[ByteColumn, bool]:
    """Keys as they travel, and whether that is as base64."""
    column = _byte_column(array, "key", rows)
    if array is None or _is_text(array.type):
        return column, False
    return encode_base64(column), True


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    at = batch.schema.get_field_index(name)
    if at < 0 or pa.types.is_null(batch.schema.field(at).type):
        return None
    column = batch.column(at)
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    return bool(binary or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind))


def _byte_column(array: pa.Array | None, name: str, rows: int) -> ByteColumn:
    if array is None:
        return ByteColumn.nulls(rows)
    if not _is_text(array.type) and not _is_bytes(array.type):
        raise _bad_type(name, array.type, "string or binary")
    return ByteColumn.of(_narrow(array, name, pa.string() if _is_text(array.type) else pa.binary()))


def _narrow(array: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
    try:
        return array if array.type == kind else array.cast(kind)
    except pa.ArrowInvalid as error:
        raise UsageError(f"column {name!r} cannot be sent in one batch: {error}", hint="send fewer rows") from error


def _bad_type(name: str, kind: pa.DataType, wanted: str) -> UsageError:
    return UsageError(f"column {name!r} is of type {kind}", hint=f"give it the type {wanted}")


def _properties(array: pa.Array | None, rows: int) -> tuple[NDArray[np.int32], ByteColumn, ByteColumn]:
    if array is None:
        return readonly(np.zeros(rows + 1, np.int32)), ByteColumn.nulls(0), ByteColumn.nulls(0)
    wanted = "map<string, string>, or list of struct<key: string, value: string>"
    kind = array.type
    if pa.types.is_map(kind):
        names, values = array.keys, array.items
    elif pa.types.is_list(kind) and pa.types.is_struct(kind.value_type) and kind.value_type.num_fields == 2:
        pairs = array.values
        names, values = pairs.field(0), pairs.field(1)
    else:
        raise _bad_type("properties", kind, wanted)
    if not _is_text(names.type) or not _is_text(values.type):
        raise _bad_type("properties", kind, wanted)
    offsets = values_of(array.offsets)
    if array.null_count:
        # A null list may own elements; Arrow's own flatten leaves them out, and so the offsets must be made anew.
        return _properties(_without_nulls(array), rows)
    first, last = int(offsets[0]), int(offsets[-1])
    for part, what in ((names, "name"), (values, "value")):
        if part.slice(first, last - first).null_count:
            row = _first_null_row(part, offsets)
            raise UsageError(f"row {row} has a property without a {what}", hint="leave such properties out")
    return (
        readonly(offsets),
        ByteColumn.of(_narrow(names, "properties", pa.string())),
        ByteColumn.of(_narrow(values, "properties", pa.string())),
    )


def _without_nulls(array: pa.Array) -> pa.Array:
    return pa.array([row or [] for row in array.to_pylist()], array.type)


def _first_null_row(part: pa.Array, offsets: NDArray[np.int32]) -> int:
    nulls: NDArray[Any] = np.flatnonzero(part.is_null().to_numpy(zero_copy_only=False))
    at = nulls[np.searchsorted(nulls, offsets[0])]
    return int(np.searchsorted(offsets, at, side="right")) - 1


def _times(batch: pa.RecordBatch, name: str) -> NDArray[np.int64]:
    array = _column(batch, name)
    if array is None:
        return readonly(np.zeros(batch.num_rows, np.int64))
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("ms", array.type.tz), safe=False).cast(pa.int64())
    elif not pa.types.is_integer(array.type):
        raise _bad_type(name, array.type, "timestamp, or integer milliseconds")
    times = values_of(array := array.cast(pa.int64()))
    return readonly(np.where(presence(array), times, 0) if array.null_count else times)
