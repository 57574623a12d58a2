# SPDX-License-Identifier: Apache-2.0
"""Keys as they travel: text as it is, bytes as base64 with a flag, as every client does it; their hashes and slots.

A text column holds texts and a binary one bytes, unless a second column says of a row which of both its key is. Which
partition a row goes to follows from what travels, so routing and writing both begin here.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.base.errors import RowError
from broker_core.base.hashing import HashingScheme, murmur3_unsigned
from broker_core.wire.batch.columns import (
    ByteColumn,
    bad_type,
    byte_column,
    flags_of,
    is_text_type,
    is_valid,
    plain_column,
    presence,
)
from broker_core.wire.core.keys import decode_marked, encode_marked, hash_rows, mark_text

_SCHEMES: Final[tuple[HashingScheme, ...]] = ("java", "murmur3", "boost", "go")
"""By the numbers that ``hash_rows`` has for them."""

SLOTS: Final = 1 << 16

_KEYLESS_HASH: Final = murmur3_unsigned(b"NONE_KEY")


class SentKeys(NamedTuple):
    """``text`` is what travels; ``is_base64`` is 1 where that stands for bytes."""

    text: ByteColumn
    is_base64: NDArray[np.uint8]


def sent_keys(batch: pa.RecordBatch) -> SentKeys:
    """The column key of ``batch``, string or binary; key_is_bytes is boolean, null where the type of key says it.

    RowError names the first row whose key is to travel as text and is not UTF-8.
    """
    rows = batch.num_rows
    keys, key_is_bytes = plain_column(batch, "key"), plain_column(batch, "key_is_bytes")
    column = byte_column(keys, "key", rows)
    if keys is None:
        return SentKeys(column, np.zeros(rows, np.uint8))
    marked = np.full(rows, not is_text_type(keys.type), np.bool_)
    if key_is_bytes is not None:
        if not pa.types.is_boolean(key_is_bytes.type):
            raise bad_type("key_is_bytes", key_is_bytes.type, "boolean")
        marked = np.where(presence(key_is_bytes), flags_of(key_is_bytes), marked)
    marked = marked.view(np.uint8) & column.present
    _check_texts(keys, column, column.present != marked)
    return SentKeys(encode_base64(column, marked) if marked.any() else column, marked)


def _check_texts(keys: pa.Array, column: ByteColumn, sent_as_text: NDArray[np.bool_]) -> None:
    """A string column is checked too: the library that made it may not have done so."""
    if not sent_as_text.any() or (is_text_type(keys.type) and is_valid(keys)):
        return
    wrong = np.flatnonzero(sent_as_text & ~is_text(column))
    if wrong.size:
        row = int(wrong[0])
        flaw = f"has the key {column.get(row)!r}, which is to be sent as text and is not UTF-8"
        raise RowError(row, flaw, hint="send it as bytes")


def hash_keys(keys: ByteColumn, scheme: HashingScheme) -> NDArray[np.int64]:
    """The hash of each key, 0 or more; -1 where there is none."""
    hashes = np.full(len(keys.present), -1, np.int64)
    hash_rows(*keys.arrays, _SCHEMES.index(scheme), hashes)
    return hashes


def decode_base64(keys: pa.Array, marked: NDArray[np.bool_]) -> pa.Array | int:
    """``keys`` (binary) with the marked rows decoded, or the number of the first row that is not base64."""
    column = ByteColumn.of(keys)
    out = np.empty(column.bytes_count, np.uint8)
    offsets = np.empty(len(keys) + 1, np.int32)
    bad_row = decode_marked(column.data, column.offsets, marked.view(np.uint8), out, offsets)
    return bad_row if bad_row >= 0 else column.replace(offsets, out).to_arrow(pa.binary())


def encode_base64(keys: ByteColumn, marked: NDArray[np.uint8]) -> ByteColumn:
    """``keys`` as they travel, with the marked rows encoded; nulls stay null."""
    sizes = np.diff(keys.offsets).astype(np.int64)
    out = np.empty(int(np.where(marked, (sizes + 2) // 3 * 4, sizes).sum()), np.uint8)
    offsets = np.empty(len(sizes) + 1, np.int32)
    encode_marked(keys.data, keys.offsets, marked, out, offsets)
    return keys.replace(offsets, out)


def is_text(keys: ByteColumn) -> NDArray[np.bool_]:
    """Which of ``keys`` are UTF-8; what is said of a null means nothing."""
    marked = np.empty(len(keys.present), np.uint8)
    mark_text(keys.data, keys.offsets, marked)
    return marked.view(np.bool_)


def slots_of(keys: pa.Array, ordering_keys: pa.Array) -> NDArray[np.int64]:
    """One number from 1 to 65535 for each row of two binary columns; slot 0 never occurs, as in Pulsar 4."""
    hashes = hash_keys(ByteColumn.of(ordering_keys), "murmur3")
    hashes = np.where(hashes < 0, hash_keys(ByteColumn.of(keys), "murmur3"), hashes)
    slots: NDArray[np.int64] = np.where(hashes < 0, _KEYLESS_HASH, hashes) & (SLOTS - 1)
    return np.maximum(slots, 1)
