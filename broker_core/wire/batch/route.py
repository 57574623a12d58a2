# SPDX-License-Identifier: Apache-2.0
"""Which partition each row goes to: murmur3 of the key as it travels, as our producer and the Java client's
``Murmur3_32Hash`` do it for single messages (``base.hashing.partition_of_key``).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.wire.batch.arrays import ByteColumn
from broker_core.wire.batch.columns import numbers
from broker_core.wire.batch.compiled import ZERO, helper, int64, kernel
from broker_core.wire.batch.rows import key_column

Bytes = NDArray[np.uint8]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

_MASK: Final = 0xFFFFFFFF


@helper
def _times(a: int, b: int) -> Any:
    """The low 32 bits of a product of 32-bit numbers, without overflowing 64 bits."""
    return (a & 0xFFFF) * b + (((a >> 16) * b & 0xFFFF) << 16) & _MASK


@helper
def _rotate(value: int, count: int) -> Any:
    return (value << count | value >> 32 - count) & _MASK


@helper
def _murmur3(data: Bytes, start: int, end: int) -> Any:
    """MurmurHash3 x86 32 bit, seed 0."""
    h = ZERO
    at = start
    while end - at >= 4:
        k = int64(data[at]) | int64(data[at + 1]) << 8 | int64(data[at + 2]) << 16 | int64(data[at + 3]) << 24
        h ^= _times(_rotate(_times(k, 0xCC9E2D51), 15), 0x1B873593)
        h = _times(_rotate(h, 13), 5) + 0xE6546B64 & _MASK
        at += 4
    k = ZERO
    for i in range(end - at):
        k |= int64(data[at + i]) << 8 * i
    h ^= _times(_rotate(_times(k, 0xCC9E2D51), 15), 0x1B873593)
    h ^= end - start
    h = _times(h ^ h >> 16, 0x85EBCA6B)
    h = _times(h ^ h >> 13, 0xC2B2AE35)
    return h ^ h >> 16


@kernel
def partitions_of_keys(
    data: Bytes, offsets: Int32s, present: Bytes, partitions: int, partition_of_row: Int32s, counts: Int64s
) -> Any:
    """Fill in the partition of each row that has a key, -1 for others; ``counts`` takes rows by partition.

    Returns how many rows have no key.
    """
    keyless = ZERO
    for row in range(present.size):
        if present[row]:
            partition = (_murmur3(data, int64(offsets[row]), int64(offsets[row + 1])) & 0x7FFFFFFF) % partitions
            partition_of_row[row] = partition
            counts[partition] += 1
        else:
            partition_of_row[row] = -1
            keyless += 1
    return keyless


@kernel
def deal_keyless(partition_of_row: Int32s, keyless: int, first: int, partitions: int, counts: Int64s) -> None:
    """Give the rows without a key to the partitions in runs of equal length, beginning with ``first``."""
    dealt = ZERO
    for row in range(partition_of_row.size):
        if partition_of_row[row] < 0:
            partition = (first + dealt * partitions // keyless) % partitions
            partition_of_row[row] = partition
            counts[partition] += 1
            dealt += 1


@kernel
def sort_rows(partition_of_row: Int32s, next_place: Int64s, sorted_rows: Int64s) -> None:
    """Write row numbers by partition, in order within each; ``next_place`` holds where each partition begins."""
    for row in range(partition_of_row.size):
        partition = partition_of_row[row]
        sorted_rows[next_place[partition]] = row
        next_place[partition] += 1


def route_rows(keys: pa.Array | None, partitions: int, *, rows: int, keyless_first: int = 0) -> list[pa.Array]:
    """For each partition the numbers of its rows, ascending, as an int64 array to ``take`` with.

    ``keys``: string, or binary (routed by its base64 text, as it travels), of ``rows`` values; None if there are none.
    Rows without a key are dealt out in long runs, so that batches stay large, the first run to ``keyless_first``.
    """
    column = ByteColumn.nulls(rows) if keys is None else key_column(keys, rows)[0]
    partition_of_row = np.empty(rows, np.int32)
    counts = np.zeros(partitions, np.int64)
    keyless = partitions_of_keys(*column.arrays, partitions, partition_of_row, counts)
    if keyless:
        deal_keyless(partition_of_row, keyless, keyless_first % partitions, partitions, counts)
    sorted_rows = np.empty(rows, np.int64)
    ends = np.cumsum(counts)
    sort_rows(partition_of_row, ends - counts, sorted_rows)
    return [numbers(part) for part in np.split(sorted_rows, ends[:-1])]
