# SPDX-License-Identifier: Apache-2.0
"""Which partition each row goes to: a hash of the key as it travels, modulo the partitions, as our producer and the
official clients do it for single messages (``base.hashing.partition_of_key``); and which rows share a key.

The key of a group is the ordering key of a row if it has one, else its key in the form in which it travels; rows
without either are a group too. Whole columns are compared by Arrow's dictionaries, without Python for each row.
Source: Pulsar docs, "Key_Shared - batching"; semantics 2.10.2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.base.hashing import HASHING_SCHEME_DEFAULT, HashingScheme
from broker_core.wire.batch.columns import narrow, numbers, plain_column, presence, values_of
from broker_core.wire.batch.sent_keys import hash_keys, sent_keys
from broker_core.wire.core.rows import deal_keyless, partitions_of_hashes, sort_rows

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]


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


def _sorted_rows(place_of_row: Int32s, counts: Int64s) -> list[Int64s]:
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
