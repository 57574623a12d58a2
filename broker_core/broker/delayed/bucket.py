# SPDX-License-Identifier: Apache-2.0
"""Buckets of delayed entries: the mutable one; of immutable ones the keys, a cursor through one, merging several.

A *key* is a delayed entry as one integer whose order is (deliver-at time, ledger, entry): it compares and sorts several
times faster than a tuple, and a heap of keys holds no other object. Layout, high to low: milliseconds, 53 bits of
ledger, 32 bits of entry. Source: PIP-195; semantics 6.1.4, 6.4.3, 6.4.5.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from heapq import merge as merge_sorted
from operator import itemgetter
from typing import Final

from pyroaring import BitMap

from broker_core.base.invariants import invariant
from broker_core.base.positions import Position
from broker_core.storage.bucket_snapshot import (
    BucketSnapshot,
    Contents,
    Coverage,
    DamagedBucketError,
    Index,
    Indexes,
    Segment,
)

LEDGER_SHIFT: Final = 32
TIME_SHIFT: Final = 85
_LEDGER_MASK: Final = (1 << (TIME_SHIFT - LEDGER_SHIFT)) - 1
_ENTRY_MASK: Final = (1 << LEDGER_SHIFT) - 1
_POSITION_MASK: Final = (1 << TIME_SHIFT) - 1


def key_of(deliver_at_ms: int, ledger: int, entry: int) -> int:
    """``deliver_at_ms`` is not negative; neither are ledger and entry."""
    return deliver_at_ms << TIME_SHIFT | ledger << LEDGER_SHIFT | entry


def last_key_of_ms(ms: int) -> int:
    """The greatest key of that time: every index up to and including ``ms`` is at or below it."""
    return ms << TIME_SHIFT | _POSITION_MASK


def time_of(key: int) -> int:
    return key >> TIME_SHIFT


def position_of(key: int) -> Position:
    return Position(key >> LEDGER_SHIFT & _LEDGER_MASK, key & _ENTRY_MASK)


UNPACKED_MAX: Final = 32


def last_key(bucket: BucketSnapshot) -> int:
    """The greatest key in a bucket."""
    return key_of(*bucket.last)


def passed_key(bucket: BucketSnapshot) -> int:
    """Keys up to this may be missing in a bucket though their entries were seen; -1: none."""
    passed = bucket.passed
    return -1 if passed.time_ms < 0 else key_of(*passed)


def index_of(key: int) -> Index:
    """The inverse of ``key_of``; -1 is before all."""
    if key < 0:
        return Index(-1, 0, 0)
    return Index(time_of(key), key >> LEDGER_SHIFT & ((1 << TIME_SHIFT - LEDGER_SHIFT) - 1), key & 0xFFFFFFFF)


class BucketCursor:
    """The keys of one bucket in order, for one subscription. DamagedBucketError from anything that reads.

    A cursor holds one segment, packed, and only while its time is near; of that a few messages are unpacked at a time.
    So the memory does not depend on the size of the bucket.

    Attributes:
        bucket: What it reads.
        key: The next key, or while ``loaded`` is false one that is not above it; None: no key is left.
        loaded: The segment of the next key is in memory.
        passed: How many keys it has gone by.
    """

    __slots__ = ("_columns", "_number", "_row", "_segment", "_unpacked", "bucket", "key", "loaded")

    key: int | None
    loaded: bool

    def __init__(self, bucket: BucketSnapshot, after: int) -> None:
        """Stands before the first key greater than ``after``."""
        self.bucket = bucket
        self._columns: array[int] | None = None
        self._unpacked: list[int] = []
        self._row = 0
        numbers = range(bucket.segments)
        self._number = bisect_right(numbers, time_of(after) - 1, key=lambda number: bucket.segment(number).last_ms)
        self._segment: Segment | None = None
        self._enter()
        while self.key is not None and self.key <= after:
            if self.loaded:
                self.pop()
            else:
                self.load()

    @property
    def passed(self) -> int:
        return self.bucket.total if self._segment is None else self._segment.before + self._row

    def load(self) -> None:
        """Bring the current segment into memory: ``key`` is exact then."""
        segment = self._segment
        assert segment is not None
        self._columns = self.bucket.load(segment)
        self.loaded = True
        self._unpack()

    def pop(self) -> int:
        """The next key; the cursor, which must be loaded, moves on."""
        key = self._unpacked.pop()
        self._row += 1
        if self._unpacked:
            self.key = self._unpacked[-1]
        else:
            self._unpack()
        return key

    def _unpack(self) -> None:
        segment, columns = self._segment, self._columns
        assert segment is not None
        assert columns is not None
        if self._row == segment.count:
            self._number += 1
            self._enter()
            return
        rows = self.bucket.rows(segment, columns, self._row, min(self._row + UNPACKED_MAX, segment.count))
        self._unpacked = [
            time_ms << TIME_SHIFT | ledger << LEDGER_SHIFT | entry for time_ms, ledger, entry in zip(*rows, strict=True)
        ]
        self._unpacked.reverse()
        self.key = self._unpacked[-1]

    def _enter(self) -> None:
        """Stand before segment ``_number``, without loading it."""
        self._columns, self.loaded, self._row = None, False, 0
        if self._number >= self.bucket.segments:
            self._segment = self.key = None
            return
        self._segment = self.bucket.segment(self._number)
        self.key = key_of(self._segment.first_ms, 0, 0)


def left_after(cursor: BucketCursor, position: Position) -> int:
    """How many entries behind ``position`` a cursor has not gone by. Exact if those that it has gone by, some of a
    bucket through which ``position`` goes, lie before ``position``; else a little too high. DamagedBucketError."""
    bucket, passed = cursor.bucket, cursor.passed
    if min(bucket.ledgers) > position.ledger:
        return bucket.total - passed
    before = 0
    for ledger, covered in bucket.coverage().items():
        if ledger < position.ledger:
            before += len(covered.indexed)
        elif ledger == position.ledger and position.entry >= 0:
            before += covered.indexed.rank(position.entry)
    return bucket.total - max(before, passed)


def positions_through(bucket: BucketSnapshot, ledger: int, through: int) -> list[int]:
    """The entries of one ledger whose keys in ``bucket`` are up to ``through``. DamagedBucketError."""
    found: list[int] = []
    for number in range(bucket.segments):
        segment = bucket.segment(number)
        if segment.first_ms > time_of(through):
            break
        columns = bucket.load(segment)
        rows = bucket.rows(segment, columns, 0, segment.count)
        found += [
            entry for at, of, entry in zip(*rows, strict=True) if of == ledger and key_of(at, of, entry) <= through
        ]
    return found


MERGED_AT_ONCE: Final = (4, 3, 2)
"""Neighbours that become one; fewer where there are not enough."""


def neighbours_to_merge(
    buckets: Sequence[BucketSnapshot], mergeable: Callable[[BucketSnapshot], bool]
) -> list[BucketSnapshot]:
    """The adjacent buckets with the least in them; of equals those that are due first. Empty if there are none."""
    for width in MERGED_AT_ONCE:
        groups = [list(buckets[start : start + width]) for start in range(len(buckets) - width + 1)]
        groups = [group for group in groups if all(map(mergeable, group))]
        if groups:
            return min(groups, key=lambda group: (sum(each.total for each in group), min(map(_first_ms, group))))
    return []


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


class MutableBucket:
    """The newest delayed entries of a topic, in memory until there are enough for an immutable bucket: columns in order
    of arrival, 20 bytes an entry, sorted only when they are sealed. The entries seen meanwhile, delayed or not, become
    the coverage of the sealed bucket. ``last_ledger``: that of the newest entry, -1 if empty (semantics 6.4.1, 6.4.2).
    """

    __slots__ = ("_entries", "_indexed", "_ledgers", "_ordered", "_seen", "last_ledger", "times_ms")

    def __init__(self) -> None:
        self.times_ms: array[int] = array("q")
        self._ledgers: array[int] = array("q")
        self._entries: array[int] = array("I")
        self._indexed: dict[int, BitMap] = {}
        self._seen: dict[int, BitMap] = {}
        self._ordered = True
        self.last_ledger = -1

    def __len__(self) -> int:
        return len(self.times_ms)

    def extend(self, ledger: int, entries: Sequence[int], times_ms: Sequence[int]) -> None:
        """Entries of one ledger, rising, none of which is here."""
        if ledger < self.last_ledger or (ledger == self.last_ledger and entries[0] < self._entries[-1]):
            self._ordered = False
        self.times_ms.extend(times_ms)
        self._ledgers.extend(array("q", [ledger]) * len(entries))
        self._entries.extend(entries)
        self.last_ledger = ledger
        self._indexed.setdefault(ledger, BitMap()).update(entries)

    def seen(self, ledger: int, first: int, end: int) -> None:
        """Entries ``first`` to before ``end`` were looked at."""
        self._seen.setdefault(ledger, BitMap()).add_range(first, end)

    def keys_between(self, after: int, through: int) -> list[int]:
        """The keys in (after, through], in no order."""
        first_ms, last_ms = time_of(after), time_of(through)
        keys = [
            key_of(time_ms, ledger, entry)
            for time_ms, ledger, entry in zip(self.times_ms, self._ledgers, self._entries, strict=True)
            if first_ms <= time_ms <= last_ms
        ]
        return [key for key in keys if after < key <= through]

    def count_after(self, after: int, position: Position) -> int:
        """How many keys beyond ``after`` are of entries behind ``position``."""
        time_ms = time_of(after)
        return sum(
            [
                (each > time_ms or (each == time_ms and key_of(each, ledger, entry) > after))
                and (ledger, entry) > position
                for each, ledger, entry in zip(self.times_ms, self._ledgers, self._entries, strict=True)
            ]
        )

    def indexed(self, ledger: int) -> BitMap:
        """The delayed entries of one ledger."""
        return self._indexed.get(ledger, BitMap())

    def keep_after(self, after: int) -> None:
        """Drop the entries whose keys are up to ``after``."""
        time_ms = time_of(after)
        if not self.times_ms or min(self.times_ms) > time_ms:
            return
        kept = [
            (each, ledger, entry)
            for each, ledger, entry in zip(self.times_ms, self._ledgers, self._entries, strict=True)
            if each > time_ms or (each == time_ms and key_of(each, ledger, entry) > after)
        ]
        self.times_ms = array("q", [row[0] for row in kept])
        self._ledgers = array("q", [row[1] for row in kept])
        self._entries = array("I", [row[2] for row in kept])
        self.last_ledger = self._ledgers[-1] if self._ledgers else -1
        self._indexed = {}
        for ledger in set(self._ledgers):
            self._indexed[ledger] = BitMap([row[2] for row in kept if row[1] == ledger])

    def sorted(self) -> Indexes:
        """All entries by time, then position."""
        times, ledgers, entries = self.times_ms.tolist(), self._ledgers.tolist(), self._entries.tolist()
        if len(times) == 1:
            return Indexes(times, ledgers, entries)
        rows: Iterable[int] = range(len(times))
        if not self._ordered:
            rows = sorted(rows, key=lambda row: (ledgers[row], entries[row]))
        # Small integers sort twice as fast as large ones, and the sort is stable.
        first_ms = min(times)
        after_ms = [time_ms - first_ms for time_ms in times]
        in_order = itemgetter(*sorted(rows, key=after_ms.__getitem__))
        return Indexes(in_order(times), in_order(ledgers), in_order(entries))

    def coverage(self) -> dict[int, Coverage]:
        """The entries held and the entries seen, by ledger."""
        ledgers = sorted(self._indexed.keys() | self._seen.keys())
        return {
            ledger: Coverage(self.indexed(ledger), self._seen.get(ledger, BitMap()) | self.indexed(ledger))
            for ledger in ledgers
        }

    def forget_before(self, ledger: int) -> None:
        """Nothing that was seen before that ledger matters any more."""
        self._seen = {each: bitmap for each, bitmap in self._seen.items() if each >= ledger}
