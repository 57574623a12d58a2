# SPDX-License-Identifier: Apache-2.0
"""Rows in groups of one key each, so that no entry need hold messages of two, as Key_Shared wants batches to be.

The key of a row is its ordering key if it has one, else its key in the form in which it travels; rows without either
are a group too. Whole columns are compared by Arrow's dictionaries; nothing is done for each row in Python.
Source: Pulsar docs, "Key_Shared - batching"; semantics 2.10.2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.wire.batch.arrays import presence
from broker_core.wire.batch.columns import values_of
from broker_core.wire.batch.sent_keys import sent_keys
from broker_core.wire.batch.typed import narrow, plain_column

Int64s = NDArray[np.int64]


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
