# SPDX-License-Identifier: Apache-2.0
"""``DelayedIndex``: what is delayed in one topic, kept once for all its subscriptions.

One mutable bucket in memory takes what is read; when it is full it becomes an immutable bucket on disk. Each
subscription has a view (``bucket_tracker``) that goes through all of it in order of time; a bucket is deleted when
every view has passed its last key, and then all its entries are due, so that a dispatcher that reads
them again sends them at once.

Invariants:
- Of the entries in ``seen``, those that are delayed and whose keys are beyond ``passed_key`` are in the mutable bucket
  or in exactly one of ``buckets`` (semantics I6.5). Everything else is learned by reading the log.
- ``passed_key`` is never above the lowest view (``floor``).
- The index is derived from the log: losing any part of it only means to read again (semantics 6.4.6).

A bucket usually holds whole ledgers, but a ledger with very many delayed entries is spread over several, or memory
would grow with it. Source: PIP-195; semantics 6.4, 6.5.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from pyroaring import BitMap

from broker_core.base.clock import Timers
from broker_core.base.errors import StorageError
from broker_core.base.positions import Position
from broker_core.base.settings import Settings
from broker_core.broker.delayed.bucket import (
    MutableBucket,
    index_of,
    key_of,
    last_key,
    merge,
    neighbours_to_merge,
    passed_key,
    positions_through,
    time_of,
)
from broker_core.storage.bucket_snapshot import BucketSnapshot, Contents, DamagedBucketError, encode_bucket
from broker_core.storage.buckets import BucketStore
from broker_core.storage.ledger import StoredEntry, UnreadableEntryError
from broker_core.wire.entry_peek import deliver_at_ms

logger = logging.getLogger(__name__)

RECOVERED_PER_TURN: Final = 32
"""Buckets opened in one turn of the loop; takes some milliseconds."""

_REBUILD_ENTRIES: Final = 1000
_REBUILD_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BucketLimits:
    """When a bucket is sealed and how it is cut into segments; see the settings of the same names."""

    min_index_count: int
    segment_step_ms: int
    segment_indexes_max: int
    buckets_max: int

    @classmethod
    def of(cls, settings: Settings) -> BucketLimits:
        return cls(
            settings.delayed_delivery_min_index_count_per_bucket,
            settings.delayed_delivery_max_time_step_per_bucket_snapshot_segment_seconds * 1000,
            settings.delayed_delivery_max_indexes_per_bucket_snapshot_segment,
            settings.delayed_delivery_max_num_buckets,
        )


class ReadsLog(Protocol):
    """The log of the topic, for reading again what a damaged bucket held."""

    def read(self, start: Position, entries_max: int, bytes_max: int) -> list[StoredEntry]: ...


class IndexView(Protocol):
    """One subscription's way through the index: a ``BucketTracker``, which says what each method is for."""

    passed_key: int

    def index_ready(self) -> None: ...
    def take_note(self, ledger: int, entries: Sequence[int], times_ms: Sequence[int]) -> None: ...
    def bucket_sealed(self, bucket: BucketSnapshot) -> None: ...
    def buckets_replaced(self, gone: Sequence[BucketSnapshot], by: BucketSnapshot | None) -> None: ...


@dataclass(slots=True, eq=False, repr=False)
class DelayedIndex:
    """The delayed entries of one topic.

    Attributes:
        oldest_needed_ledger: Where the mark-delete position of the last subscription is.
        start_over: Called when only another index, in a later turn, can find out again what this one has lost.
        mutable: The newest ones.
        buckets: The others, oldest bucket first.
        seen: By ledger, the entries that were looked at; the index knows which of them are delayed.
        passed_key: Keys up to this may be missing.
        ready: What was stored before the start is known.
    """

    topic_id: int
    store: BucketStore
    log: ReadsLog
    timers: Timers
    limits: BucketLimits
    oldest_needed_ledger: Callable[[], int] = lambda: 0
    start_over: Callable[[], None] = lambda: None
    mutable: MutableBucket = field(default_factory=MutableBucket, init=False)
    buckets: list[BucketSnapshot] = field(default_factory=list, init=False)
    seen: dict[int, BitMap] = field(default_factory=dict, init=False)
    passed_key: int = field(default=-1, init=False)
    ready: bool = field(default=False, init=False)
    _views: list[IndexView] = field(default_factory=list, init=False)
    _seal_at: int = field(init=False)
    _unwritten: set[int] = field(default_factory=set, init=False)
    _merging: set[int] = field(default_factory=set, init=False)
    _rebuilding: bool = field(default=False, init=False)
    _closed: bool = field(default=False, init=False)
    _numbers: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._seal_at = self.limits.min_index_count
        self._numbers = self.store.numbers(self.topic_id)
        self._recover_some()

    # -- views

    def attach(self, view: IndexView) -> None:
        self._views.append(view)

    def detach(self, view: IndexView) -> None:
        self._views.remove(view)
        self.drop_passed()

    @property
    def floor(self) -> int:
        """Every view has passed all keys up to this."""
        return min([view.passed_key for view in self._views], default=self.passed_key)

    # -- entries that were read

    def knows(self, ledger: int, entry: int) -> bool:
        """Whether that entry was looked at before."""
        seen = self.seen.get(ledger)
        return seen is not None and entry in seen

    def add(self, time_ms: int, position: Position) -> None:
        """A delayed entry that was read; nothing happens if it is known (semantics 6.4.1.2)."""
        ledger, entry = position
        if self.knows(ledger, entry):
            return
        self.add_new(ledger, (entry,), (time_ms,))

    def add_new(self, ledger: int, entries: Sequence[int], times_ms: Sequence[int]) -> None:
        """Delayed entries of one ledger, rising, none of them known."""
        floor = self.floor
        if min(times_ms) <= time_of(floor):
            # No view will ask for keys that all have passed: one that is made later begins after them.
            rows = [
                (entry, at) for entry, at in zip(entries, times_ms, strict=True) if key_of(at, ledger, entry) > floor
            ]
            if len(rows) < len(entries):
                self.passed_key = max(self.passed_key, floor)
            if not rows:
                return
            entries, times_ms = [row[0] for row in rows], [row[1] for row in rows]
        held = len(self.mutable)
        if held >= self._seal_at and (ledger != self.mutable.last_ledger or held >= 2 * self._seal_at):
            self.seal()
        self.mutable.extend(ledger, entries, times_ms)
        self.seen.setdefault(ledger, BitMap()).update(entries)
        for view in self._views:
            view.take_note(ledger, entries, times_ms)

    def note_seen(self, ledger: int, first: int, end: int) -> None:
        """Entries ``first`` to before ``end`` of a ledger were looked at; the delayed ones were added."""
        seen = self.seen.get(ledger)
        if seen is None:
            if not self.seen and not self.mutable and not self.buckets:
                return  # nothing was ever delayed here, so there is nothing that reading could be spared
            seen = self.seen[ledger] = BitMap()
        seen.add_range(first, end)
        self.mutable.seen(ledger, first, end)

    # -- sealing (semantics 6.4.2)

    def seal(self) -> None:
        """Make the mutable bucket an immutable one, unless too few entries are left in it that some view has not
        passed."""
        mutable, floor = self.mutable, self.floor
        mutable.keep_after(floor)
        self.passed_key = max(self.passed_key, floor)
        if len(mutable) < self.limits.min_index_count:
            self._seal_at = len(mutable) + self.limits.min_index_count
            return
        self._seal_at = self.limits.min_index_count
        contents = Contents(mutable.sorted(), mutable.coverage(), index_of(self.passed_key))
        try:
            bucket = self._write(contents, self._written)
        except StorageError as error:
            # The store has failed and its owner was told: the broker stops. Until then memory serves (6.4.2.5).
            logger.error("delayed bucket not written topic_id=%s error=%s", self.topic_id, error)
            self._seal_at = 2 * len(mutable)
            return
        self.buckets.append(bucket)
        self.mutable = MutableBucket()
        for view in self._views:
            view.bucket_sealed(bucket)
        self._trim_passed_ledgers()

    def _write(self, contents: Contents, done: Callable[[BucketSnapshot], None]) -> BucketSnapshot:
        """Begin to write a bucket; until it is durable it is read from memory."""
        number = self.store.new_number()
        limits = self.limits
        data = encode_bucket(self.topic_id, number, contents, limits.segment_step_ms, limits.segment_indexes_max)
        bucket = BucketSnapshot(self.topic_id, number, len(data), lambda offset, size: data[offset : offset + size])
        self.store.write(self.topic_id, number, data, lambda: done(bucket))
        self._unwritten.add(number)
        return bucket

    def _written(self, bucket: BucketSnapshot) -> None:
        self._unwritten.discard(bucket.number)
        bucket.reading(self.store.reader(self.topic_id, bucket.number))
        if self._closed or bucket not in self.buckets:
            self.store.remove(self.topic_id, bucket.number)  # the topic may be loaded again and not know of it
        else:
            self._merge_if_due()

    # -- deleting (semantics 6.4.4)

    def drop_passed(self) -> None:
        """Delete the buckets that every view has passed."""
        if not self.buckets:
            return  # as a rule, and thousands of views may leave together
        floor = self.floor
        passed = [bucket for bucket in self.buckets if last_key(bucket) <= floor]
        if passed:
            self.passed_key = max(self.passed_key, *map(last_key, passed))
            self._drop(passed)

    def trim(self, ledger: int) -> None:
        """No entry before that ledger is needed any more; if one is read all the same, after a seek, it is looked at
        again, unless it is in a bucket that stays."""
        self.mutable.forget_before(ledger)
        gone = [bucket for bucket in self.buckets if max(bucket.ledgers) < ledger]
        if gone:
            self._drop(gone)
        for each in [each for each in self.seen if each < ledger]:
            indexed = self._indexed_elsewhere(each)
            if indexed:
                self.seen[each] = indexed
            else:
                del self.seen[each]

    def _trim_passed_ledgers(self) -> None:
        if self._rebuilding:
            return  # in the middle of a walk over the buckets, such as another trim; the next trim will do this
        oldest = self.oldest_needed_ledger()
        if any(max(bucket.ledgers) < oldest for bucket in self.buckets):
            self.trim(oldest)

    def clear(self) -> None:
        """The topic is gone: delete all buckets."""
        self._closed = True
        self._drop(list(self.buckets))
        self.mutable = MutableBucket()
        self.seen = {}

    def close(self) -> None:
        """The topic is unloaded: what is in memory is forgotten, and read again."""
        self._closed = True

    def _drop(self, buckets: Sequence[BucketSnapshot]) -> None:
        for view in self._views:
            view.buckets_replaced(buckets, None)
        for bucket in buckets:
            self.buckets.remove(bucket)
            if bucket.number not in self._unwritten:
                self.store.remove(self.topic_id, bucket.number)

    # -- merging (semantics 6.4.5)

    def _has_too_many(self) -> bool:
        return 0 < self.limits.buckets_max < len(self.buckets)

    def _merge_if_due(self) -> None:
        if self._closed or self._merging or not self._has_too_many():
            return
        self._trim_passed_ledgers()
        self.drop_passed()
        if not self._has_too_many():
            return
        chosen = neighbours_to_merge(self.buckets, lambda bucket: bucket.number not in self._unwritten)
        if not chosen:
            return
        self.passed_key = max(self.passed_key, self.floor)
        try:
            contents = merge(chosen, self.passed_key)
            self._merging = {bucket.number for bucket in chosen}
            self._write(contents, lambda bucket: self._merged(chosen, bucket))
        except DamagedBucketError as error:
            self._merging = set()
            for bucket in chosen:
                self.rebuild(bucket, error)
        except StorageError as error:
            logger.error("delayed buckets not merged topic_id=%s error=%s", self.topic_id, error)

    def _merged(self, old: Sequence[BucketSnapshot], bucket: BucketSnapshot) -> None:
        self._unwritten.discard(bucket.number)
        self._merging = set()
        bucket.reading(self.store.reader(self.topic_id, bucket.number))
        if self._closed or any(each not in self.buckets for each in old):
            self.store.remove(self.topic_id, bucket.number)
            self._merge_if_due()  # others may be too many still
            return
        place = self.buckets.index(old[0])
        self.buckets = [each for each in self.buckets if each not in old]
        self.buckets.insert(place, bucket)
        for view in self._views:
            view.buckets_replaced(old, bucket)
        for each in old:
            self.store.remove(self.topic_id, each.number)
        self._merge_if_due()

    # -- recovery (semantics 6.4.6)

    def _recover_some(self) -> None:
        """Open some of the stored buckets; the rest in a later turn. Until all are, nothing is read or given out."""
        if self._closed:
            return
        now, self._numbers = self._numbers[:RECOVERED_PER_TURN], self._numbers[RECOVERED_PER_TURN:]
        for number in now:
            try:
                bucket = self.store.open(self.topic_id, number)
                self._know_again(bucket)
            except DamagedBucketError as error:
                logger.error("delayed bucket given up topic_id=%s error=%s", self.topic_id, error)
                self.store.remove(self.topic_id, number)
        if self._numbers:
            self.timers.call_later(0, self._recover_some)
            return
        self._drop_merged()
        self.ready = True
        for view in list(self._views):
            view.index_ready()
        if self._has_too_many():  # A crash may have come before a merge was durable.
            self.timers.call_later(0, self._merge_if_due)  # The first views are attached behind this.

    def _know_again(self, bucket: BucketSnapshot) -> None:
        """Recover what ``seen`` was from one stored bucket: only the entries that the bucket holds are counted as seen.
        Others may have been in a bucket that is lost; to read an entry again without need does no harm."""
        for ledger, coverage in bucket.coverage().items():
            if coverage.indexed:
                self.seen.setdefault(ledger, BitMap()).update(coverage.indexed)
        self.passed_key = max(self.passed_key, passed_key(bucket))
        self.buckets.append(bucket)

    def _drop_merged(self) -> None:
        """A crash between writing a merged bucket and removing its parts leaves both."""
        replaced = {number for bucket in self.buckets for number in bucket.replaces}
        for bucket in [each for each in self.buckets if each.number in replaced]:
            self.buckets.remove(bucket)
            self.store.remove(self.topic_id, bucket.number)
        self.buckets.sort(key=lambda bucket: (min(bucket.ledgers), bucket.number))

    # -- damage

    def rebuild(self, bucket: BucketSnapshot, error: DamagedBucketError) -> None:
        """A bucket cannot be read: take what was in it from the log again.

        The disk may refuse an entry as it may have refused the bucket. No view would give out such an entry, because
        views do not read again what the index has seen. So all of them have to start over.
        """
        logger.error("delayed bucket read from the log again topic_id=%s error=%s", self.topic_id, error)
        if bucket not in self.buckets:
            return
        self._drop([bucket])
        outer, self._rebuilding = self._rebuilding, True
        for ledger in bucket.ledgers:
            known = self.seen.pop(ledger, BitMap())
            for entry in self._entries_of(ledger, known - self._indexed_elsewhere(ledger)):
                time_ms = deliver_at_ms(entry.body)
                if time_ms:
                    self.add(time_ms, entry.position)
            self.seen.setdefault(ledger, BitMap()).update(known)
        self._rebuilding = outer

    def _entries_of(self, ledger: int, wanted: BitMap) -> Iterator[StoredEntry]:
        """The ``wanted`` entries of a ledger that can be read."""
        number = wanted.min() if wanted else -1
        while number >= 0:
            try:
                entries = self.log.read(Position(ledger, number), _REBUILD_ENTRIES, _REBUILD_BYTES)
            except UnreadableEntryError as error:
                entries = []  # the entry is damaged, so no consumer can be given it, now or later
                if error.refused:
                    self.start_over()
                    return
            yield from (
                entry for entry in entries if entry.position.ledger == ledger and entry.position.entry in wanted
            )
            after = entries[-1].position.entry if entries and entries[-1].position.ledger == ledger else number
            number = wanted.next_set_bit(after + 1) if after < wanted.max() else -1

    def _indexed_elsewhere(self, ledger: int) -> BitMap:
        found = self.mutable.indexed(ledger).copy()
        for bucket in list(self.buckets):
            if ledger in bucket.ledgers:
                try:
                    found |= bucket.coverage()[ledger].indexed
                except DamagedBucketError as error:
                    self.rebuild(bucket, error)  # the entries that it held of this ledger are added by the caller
        return found

    # -- questions

    def held_entries(self, ledger: int, after: int) -> BitMap:
        """The entries of one ledger whose keys are beyond ``after`` and in a bucket. DamagedBucketError."""
        held = BitMap()
        for bucket in self.buckets:
            if ledger in bucket.ledgers and last_key(bucket) > after:
                indexed = bucket.coverage()[ledger].indexed
                if key_of(bucket.segment(0).first_ms, 0, 0) <= after:
                    indexed = indexed - BitMap(positions_through(bucket, ledger, after))
                held |= indexed
        return held

    def histogram(self, now_ms: int, step_ms: int) -> dict[int, int]:
        """How many entries fall due when: start of each step of time -> entries, from ``now_ms`` on.

        Entries in buckets are counted at the beginning of their segment, so they may appear earlier than they are due,
        by less than a segment's length.
        """
        found: dict[int, int] = {}

        def count(time_ms: int, entries: int) -> None:
            start = max(time_ms, now_ms) // step_ms * step_ms
            found[start] = found.get(start, 0) + entries

        for bucket in self.buckets:
            for segment in bucket.directory():
                if segment.last_ms >= now_ms:
                    count(segment.first_ms, segment.count)
        for time_ms in self.mutable.times_ms:
            if time_ms >= now_ms:
                count(time_ms, 1)
        return dict(sorted(found.items()))
