# SPDX-License-Identifier: Apache-2.0
"""Merging immutable buckets, where their number is limited: which ones, and what the new one holds.

Pure. Nothing is changed in place: the new bucket is written, takes over, and only then the old ones go. Source:
PIP-195; semantics 6.4.5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import merge as merge_sorted
from typing import Final

from pyroaring import BitMap

from broker_core.base.invariants import invariant
from broker_core.broker.delayed.bucket import BucketCursor, index_of, passed_key
from broker_core.storage.bucket_snapshot import BucketSnapshot, Contents, Coverage, DamagedBucketError, Indexes

MERGED_AT_ONCE: Final = (4, 3, 2)
"""So many neighbours become one; fewer where there are not enough."""


def neighbours_to_merge(
    buckets: Sequence[BucketSnapshot], mergeable: Callable[[BucketSnapshot], bool]
) -> list[BucketSnapshot]:
    """The adjacent buckets with the least in them; of equals those that are due first. Empty if there are none."""
    for width in MERGED_AT_ONCE:
        groups = [list(buckets[start : start + width]) for start in range(len(buckets) - width + 1)]
        groups = [group for group in groups if all(map(mergeable, group))]
        if groups:
            return min(groups, key=_weight)
    return []


def _weight(group: list[BucketSnapshot]) -> tuple[int, int]:
    return sum(bucket.total for bucket in group), min(map(_first_ms, group))


def _first_ms(bucket: BucketSnapshot) -> int:
    try:
        return bucket.segment(0).first_ms
    except DamagedBucketError:
        return -1  # merging the bucket will report the damage


def merge(buckets: Sequence[BucketSnapshot], after: int) -> Contents:
    """Everything in ``buckets`` that is beyond ``after``, once. Some of it must be. DamagedBucketError."""
    keys: list[int] = []
    for key in merge_sorted(*(_keys(bucket, after) for bucket in buckets)):
        if not keys or key != keys[-1]:
            keys.append(key)
    invariant(bool(keys), "buckets were merged that nobody needs")
    rows = [index_of(key) for key in keys]
    indexed: dict[int, BitMap] = {}
    for row in rows:
        indexed.setdefault(row.ledger, BitMap()).add(row.entry)
    seen: dict[int, BitMap] = {}
    for bucket in buckets:
        for ledger, covered in bucket.coverage().items():
            seen.setdefault(ledger, BitMap()).update(covered.seen)
    return Contents(
        Indexes([row.time_ms for row in rows], [row.ledger for row in rows], [row.entry for row in rows]),
        {ledger: Coverage(indexed.get(ledger, BitMap()), seen[ledger]) for ledger in sorted(seen)},
        index_of(max(after, *map(passed_key, buckets))),
        [bucket.number for bucket in buckets],
    )


def _keys(bucket: BucketSnapshot, after: int) -> list[int]:
    cursor = BucketCursor(bucket, after)
    keys = []
    while cursor.key is not None:
        if not cursor.loaded:
            cursor.load()
        keys.append(cursor.pop())
    return keys
