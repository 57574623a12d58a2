# SPDX-License-Identifier: Apache-2.0
"""Which partition each row goes to: a hash of the key as it travels, modulo the partitions, as our producer and the
official clients do it for single messages (``base.hashing.partition_of_key``).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.base.hashing import HASHING_SCHEME_DEFAULT, HashingScheme
from broker_core.wire.batch.columns import numbers
from broker_core.wire.batch.keys import hash_keys
from broker_core.wire.batch.sent_keys import sent_keys
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
