# SPDX-License-Identifier: Apache-2.0
"""Keys as they travel, text as it is, bytes as base64 with a flag, as every client does it; and what follows from them.

A text column holds texts and a binary one bytes, unless a second column says of a row which of both its key is. The
partition of a row is a hash of its key as it travels, modulo the partitions, as our producer and the official clients
do it for single messages (``base.hashing.partition_of_key``).

The key of a group is the ordering key of a row if it has one, else its key in the form in which it travels; rows
without either are a group too. Whole columns are compared by Arrow's dictionaries, without Python for each row.
Source: Pulsar docs, "Key_Shared - batching"; semantics 2.10.2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.base.errors import RowError
from broker_core.base.hashing import HASHING_SCHEME_DEFAULT, HashingScheme, murmur3_unsigned
from broker_core.wire.batch.columns import (
    ByteColumn,
    bad_type,
    byte_column,
    flags_of,
    is_text_type,
    is_valid,
    narrow,
    numbers,
    plain_column,
    presence,
    values_of,
)
from broker_core.wire.core.keys import decode_marked, encode_marked, hash_rows, mark_text
from broker_core.wire.core.rows import deal_keyless, partitions_of_hashes, sort_rows

Int64s = NDArray[np.int64]

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
    out = np.empty(int(column.offsets[-1] - column.offsets[0]), np.uint8)
    offsets = np.empty(len(keys) + 1, np.int32)
    bad_row = decode_marked(column.data, column.offsets, marked.view(np.uint8), out, offsets)
    return bad_row if bad_row >= 0 else replace(column, data=out, offsets=offsets).to_arrow(pa.binary())


def encode_base64(keys: ByteColumn, marked: NDArray[np.uint8]) -> ByteColumn:
    """``keys`` as they travel, with the marked rows encoded; nulls stay null."""
    sizes = np.diff(keys.offsets).astype(np.int64)
    out = np.empty(int(np.where(marked, (sizes + 2) // 3 * 4, sizes).sum()), np.uint8)
    offsets = np.empty(len(sizes) + 1, np.int32)
    encode_marked(keys.data, keys.offsets, marked, out, offsets)
    return replace(keys, data=out, offsets=offsets)


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


# -- partitions of rows


def route_rows(
    rows: pa.RecordBatch,
    partitions: int,
    *,
    keyless_first: int = 0,
    keyless_spread: bool = True,
    scheme: HashingScheme = HASHING_SCHEME_DEFAULT,
) -> list[pa.Array]:
    """For each partition the numbers of its rows, ascending, as an int64 array to ``take`` with.

    ``rows`` are as ``encode_entries`` takes them. Those without a key are dealt out in long runs, so that batches stay
    large, the first run to ``keyless_first``; or all go there, without ``keyless_spread``.
    """
    count = rows.num_rows
    partition_of_row = np.empty(count, np.int32)
    counts = np.zeros(partitions, np.int64)
    hashes = hash_keys(sent_keys(rows).text, scheme)
    keyless = partitions_of_hashes(hashes, partitions, partition_of_row, counts)
    if keyless and keyless_spread:
        deal_keyless(partition_of_row, keyless, keyless_first % partitions, partitions, counts)
    elif keyless:
        partition_of_row[partition_of_row < 0] = keyless_first % partitions
        counts[keyless_first % partitions] += keyless
    return [numbers(part) for part in _sorted_rows(partition_of_row, counts)]


def rows_by_place(place_of_row: NDArray[np.integer], places: int) -> list[Int64s]:
    """For each of ``places``, which are numbers from 0, the numbers of its rows, ascending."""
    return _sorted_rows(place_of_row.astype(np.int32), np.bincount(place_of_row, minlength=places))


def _sorted_rows(place_of_row: NDArray[np.int32], counts: Int64s) -> list[Int64s]:
    sorted_rows = np.empty(place_of_row.size, np.int64)
    ends = np.cumsum(counts)
    sort_rows(place_of_row, ends - counts, sorted_rows)
    return np.split(sorted_rows, ends[:-1])


# -- groups of one key each, as Key_Shared wants batches to be


class KeyGroups(NamedTuple):
    """``order``: the rows, group by group, those of a group in their order. ``borders``: places in ``order`` where
    another group begins, the first not counted."""

    order: Int64s
    borders: Int64s


def key_groups(rows: pa.RecordBatch) -> KeyGroups:
    """The groups of ``rows`` in the order of their first rows.

    Where rows have chosen their sequence ids, which must rise, they keep their order, and a group is a run of one key.
    """
    first_rows = _first_rows(rows)
    chosen = plain_column(rows, "sequence_id")
    keeps = chosen is not None and chosen.null_count < len(chosen)
    order = np.arange(rows.num_rows) if keeps else np.argsort(first_rows, kind="stable")
    borders = np.flatnonzero(np.diff(first_rows[order])) + 1
    return KeyGroups(order, borders)


def _first_rows(rows: pa.RecordBatch) -> Int64s:
    """For each row the number of the first row with the same key."""
    keys, has_key, _ = _codes(rows, "key")
    ordering_keys, has_ordering_key, several = _codes(rows, "ordering_key")
    groups = np.where(has_key, 2 * keys + sent_keys(rows).is_base64 + 1, 0) + several
    groups = np.where(has_ordering_key, ordering_keys, groups)
    _, first, group = np.unique(groups, return_index=True, return_inverse=True)
    found: Int64s = first[group]
    return found


def _codes(rows: pa.RecordBatch, name: str) -> tuple[Int64s, NDArray[np.bool_], int]:
    """A number for each value of a column, whether a row has one, and how many different ones there are."""
    column = plain_column(rows, name)
    if column is None:
        return np.zeros(rows.num_rows, np.int64), np.zeros(rows.num_rows, np.bool_), 0
    encoded = narrow(column, name, pa.binary()).dictionary_encode()
    codes = values_of(encoded.indices).astype(np.int64)
    return codes, presence(column) != 0, len(encoded.dictionary)
