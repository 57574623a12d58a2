# SPDX-License-Identifier: Apache-2.0
"""Columns of text or bytes, whatever Arrow type the caller has for them, as kernels take them."""

from __future__ import annotations

import pyarrow as pa

from broker_core.base.errors import UsageError
from broker_core.wire.batch.arrays import ByteColumn


def plain_column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """A column by its name, None if there is none or it is null throughout by its type."""
    at = batch.schema.get_field_index(name)
    if at < 0 or pa.types.is_null(batch.schema.field(at).type):
        return None
    column = batch.column(at)
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def is_text_type(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_bytes_type(kind: pa.DataType) -> bool:
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    return bool(binary or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind))


def byte_column(array: pa.Array | None, name: str, rows: int) -> ByteColumn:
    """``array`` (None: nulls throughout) as kernels take it; UsageError if it is neither text nor bytes."""
    if array is None:
        return ByteColumn.nulls(rows)
    if not is_text_type(array.type) and not is_bytes_type(array.type):
        raise bad_type(name, array.type, "string or binary")
    return ByteColumn.of(narrow(array, name, pa.string() if is_text_type(array.type) else pa.binary()))


def narrow(array: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
    """``array`` with offsets of 32 bits."""
    try:
        return array if array.type == kind else array.cast(kind)
    except pa.ArrowInvalid as error:
        raise UsageError(f"column {name!r} cannot be sent in one batch: {error}", hint="send fewer rows") from error


def is_valid(array: pa.Array) -> bool:
    """Whether ``array`` is sound, and UTF-8 if its type is text: Arrow does not look when it takes over memory."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def bad_type(name: str, kind: pa.DataType, wanted: str) -> UsageError:
    return UsageError(f"column {name!r} is of type {kind}", hint=f"give it the type {wanted}")
