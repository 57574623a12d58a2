# SPDX-License-Identifier: Apache-2.0
"""``BucketTracker``: one dispatcher's way through the delayed index of its topic.

The index is shared and does not know who was given what; all that a dispatcher has of its own is how far it has come,
``passed_key``, and for each bucket a cursor. Keys alone say whether the read or the index gives a delayed entry:

- Entries that the index had seen when the dispatcher began (``_base``): those up to ``_start_key`` are sent when they
  are read from the log, those beyond it by the index, also if they were not read yet. So a restart need not read
  100 million entries before it can deliver the first.
- All others: an entry up to ``passed_key`` is sent when it is read; beyond it the index gives it, if it was read by
  then.

So each is given exactly once between two rewinds (semantics I6.5), without a bit of memory for any entry. Two small
sets hold the exceptions: entries that were due when they were read, though the index had not come to them
(``_sent_before``), and those that it has passed but that are early again because the clock was set back (``_early``).

While delays are switched off, what is read is sent and neither indexed nor noted as seen; of the first kind above it is
none the less the index's. Which parts of the log that was is known by their ends (``UnheldParts``).

Source: PIP-195; semantics 6.2, 6.4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Protocol

from pyroaring import BitMap

from broker_core.base.clock import Clock, Timers
from broker_core.base.errors import NotAllowedError
from broker_core.base.positions import Position
from broker_core.base.settings import Settings
from broker_core.broker.delayed.bucket import BucketCursor, key_of, last_key_of_ms, left_after, position_of, time_of
from broker_core.broker.delayed.index import BucketLimits, DelayedIndex
from broker_core.broker.delayed.tracker import AckState, DelayedTracker, DueRule, InMemoryTracker
from broker_core.broker.positions import last_of_run
from broker_core.storage.bucket_snapshot import BucketSnapshot, DamagedBucketError
from broker_core.storage.buckets import BucketStore
from broker_core.storage.ledger import StoredEntry
from broker_core.storage.topic_log import TopicLog
from broker_core.wire.entry_peek import deliver_at_ms, may_be_delayed

HORIZON_MS = 60_000
"""Entries of the mutable bucket due within this time are kept in order; the others are looked through once a time."""

_STALE_PER_CALL = 10_000
"""Entries gone by in one call because they are acknowledged or will be read; some 10 ms."""


class BucketTracker(DelayedTracker):
    """A view of the delayed index.

    Attributes:
        passed_key: Everything up to this is in the hands of the dispatcher, or will be when it is read.
    """

    def __init__(self, index: DelayedIndex, due: DueRule, timers: Timers, cursor: AckState) -> None:
        super().__init__(due, timers)
        self.passed_key = -1
        self._index = index
        self._cursor = cursor
        self._base: dict[int, BitMap] = {}
        self._start_key = -1
        self._near: list[int] = []
        self._horizon_key = -1
        self._cursors: list[tuple[int, int, BucketCursor]] = []
        self._early: list[int] = []
        self._early_keys: set[int] = set()
        self._sent_before: set[int] = set()
        self._unheld = UnheldParts()
        self._highest = Position(-1, -1)
        self._counted_after = cursor.mark_delete
        self._skipping: tuple[int, BitMap] | None = None
        self._more = False
        self._attached = False
        index.attach(self)
        if index.ready:
            self._begin()

    def _begin(self) -> None:
        index = self._index
        self._attached = True
        self.passed_key = self._start_key = max(last_key_of_ms(self._due.cutoff_ms()), index.passed_key)
        self._horizon_key = self.passed_key
        self._base = {ledger: seen.copy() for ledger, seen in index.seen.items()}
        for bucket in list(index.buckets):
            self._enter(bucket)
        self._counted_after = self._cursor.mark_delete
        self.delayed_entries += index.mutable.count_after(self.passed_key, self._counted_after)
        for _key, _number, cursor in list(self._cursors):
            self.delayed_entries += _left_in(cursor, self._counted_after)
        index.drop_passed()

    # -- the index tells

    def index_ready(self) -> None:
        """Recovery is over."""
        self._begin()
        if self._wake is not None:
            self._wake()
            self.arm()

    def take_note(self, ledger: int, entries: Sequence[int], times_ms: Sequence[int]) -> None:
        """Entries of ``ledger`` are new in the mutable bucket."""
        passed, horizon_ms = self.passed_key, time_of(self._horizon_key)
        if min(times_ms) > horizon_ms:
            return
        rows = zip(times_ms, entries, strict=True)
        near = [key_of(time_ms, ledger, entry) for time_ms, entry in rows if time_ms <= horizon_ms]
        near = [key for key in near if passed < key <= self._horizon_key]
        if len(near) * 8 > len(self._near):
            self._near += near
            heapify(self._near)
        else:
            for key in near:
                heappush(self._near, key)

    def bucket_sealed(self, bucket: BucketSnapshot) -> None:
        """The mutable bucket is empty now, and its entries are in ``bucket``."""
        self._near.clear()
        if self._attached:
            self._enter(bucket)

    def buckets_replaced(self, gone: Sequence[BucketSnapshot], by: BucketSnapshot | None) -> None:
        """The bucket ``by`` holds the entries of ``gone``; None: no subscription needs them any more."""
        left = [each for each in self._cursors if each[2].bucket not in gone]
        if len(left) != len(self._cursors):
            self._cursors = left
            heapify(self._cursors)
        if by is not None and self._attached:
            self._enter(by)

    def _enter(self, bucket: BucketSnapshot) -> None:
        try:
            cursor = BucketCursor(bucket, self.passed_key)
        except DamagedBucketError as error:
            self._index.rebuild(bucket, error)
            return
        if cursor.key is not None:
            heappush(self._cursors, (cursor.key, bucket.number, cursor))

    # -- entries that are read

    @property
    def paused(self) -> bool:
        return not self._attached

    def hold_back(self, entries: list[StoredEntry]) -> list[StoredEntry]:
        if not self._due.holding:
            return self._hold_no_more(entries)
        self._unheld.end(entries[0].position)
        numbers: list[tuple[int, int]] = []
        if may_be_delayed([each.body for each in entries]):
            numbers = [(number, at) for number, each in enumerate(entries) if (at := deliver_at_ms(each.body))]
        held: Sequence[int] = ()
        if numbers:
            held = self._add_many(entries, numbers)
            self.arm()
        self.seen(entries)
        if not held:
            return entries
        if len(held) == len(entries):
            return []
        apart = set(held)
        return [entry for number, entry in enumerate(entries) if number not in apart]

    def _hold_no_more(self, entries: list[StoredEntry]) -> list[StoredEntry]:
        """Delays are switched off: of ``entries`` only those wait that the index gives anyway (semantics 6.1.9)."""
        self._unheld.begin(entries[0].position)
        held = {
            each.position
            for each in entries
            if each.position.entry in self._base.get(each.position.ledger, ())
            and key_of(deliver_at_ms(each.body), *each.position) > self._start_key
        }
        return [each for each in entries if each.position not in held] if held else entries

    def _add_many(self, entries: list[StoredEntry], numbers: list[tuple[int, int]]) -> list[int]:
        ledger, last = entries[-1].position
        if entries[0].position.ledger == ledger and entries[0].position.entry + len(entries) == last + 1:
            ids = [entries[number].position.entry for number, _ in numbers]
            if self.add_many(ledger, ids, [at for _, at in numbers]):
                return [number for number, _ in numbers]
        return [number for number, at in numbers if self.add(entries[number].position, at)]

    def add_many(self, ledger: int, entries: Sequence[int], times_ms: Sequence[int]) -> bool:
        """``add`` for rising entries of one ledger, if all of them are new to everybody and none is due.

        False: at least one may not be, and nothing was done.
        """
        first, base, seen = entries[0], self._base.get(ledger), self._index.seen.get(ledger)
        if (
            (base is not None and base.max() >= first)
            or (seen is not None and seen.max() >= first)
            or min(times_ms) <= max(self._due.cutoff_ms(), time_of(self.passed_key))
        ):
            return False
        self._index.add_new(ledger, entries, times_ms)
        self._highest = max(self._highest, Position(ledger, entries[-1]))
        self.delayed_entries += len(entries)
        return True

    def add(self, position: Position, deliver_at: int) -> bool:
        key = key_of(deliver_at, *position)
        base = self._base.get(position.ledger)
        if base is not None and position.entry in base:
            return key > self._start_key or self._is_early(key)
        if key > self.passed_key:
            cutoff_key = last_key_of_ms(self._due.cutoff_ms())
            if key <= cutoff_key:
                self._look_further(cutoff_key)
                if self._first_key(cutoff_key) is None:
                    self.passed_key = cutoff_key
                elif key not in self._sent_before:
                    self._sent_before.add(key)
                    self._index.add(deliver_at, position)
                    return False
        self._index.add(deliver_at, position)
        if key <= self.passed_key:
            return self._is_early(key)
        if key in self._sent_before:
            if time_of(key) <= self._due.cutoff_ms():
                return False
            self._sent_before.remove(key)  # read again, so it was not sent; and the clock was set back
        if position > self._highest:
            self._highest = position
            self.delayed_entries += 1
        return True

    def add_again(self, position: Position, deliver_at: int) -> bool:
        key = key_of(deliver_at, *position)
        if key <= max(self.passed_key, last_key_of_ms(self._due.cutoff_ms())) or key in self._sent_before:
            return self._is_early(key)
        # The index gives it yet, if it knows it: a transaction has acknowledged it before its time, and was aborted.
        if position.entry in self._base.get(position.ledger, ()):
            return True
        is_known = position.entry in self._index.seen.get(position.ledger, ()) and not self._unheld.has(position)
        return is_known or self._is_early(key)

    def _is_early(self, key: int) -> bool:
        """Hold an entry that is this dispatcher's if its time is to come (again)."""
        if time_of(key) <= self._due.cutoff_ms() or not self._due.holding:
            return False
        if key not in self._early_keys:
            self._early_keys.add(key)
            heappush(self._early, key)
            self.delayed_entries += 1
        return True

    def seen(self, entries: Sequence[StoredEntry]) -> None:
        if not entries:
            return
        ledger, last = entries[-1].position
        first = entries[0].position
        if first.ledger == ledger and first.entry + len(entries) == last + 1:
            self._index.note_seen(ledger, first.entry, last + 1)

    # -- entries that need not be read

    def skip_held(self, start: Position) -> Position:
        base = self._base.get(start.ledger)
        if base is None or start.entry not in base:
            return start
        held = self._held(start.ledger, base)
        return start if start.entry not in held else Position(start.ledger, last_of_run(held, start.entry) + 1)

    def _held(self, ledger: int, base: BitMap) -> BitMap:
        """The entries of one ledger that the index gives, read or not; fewer if a bucket is damaged."""
        if self._skipping is None or self._skipping[0] != ledger:
            try:
                held = self._index.held_entries(ledger, self._start_key) & base
            except DamagedBucketError:
                held = BitMap()
            self._skipping = (ledger, held)
        return self._skipping[1]

    # -- entries whose time has come

    def take_due(self, entries_max: int, read_position: Position) -> list[Position]:
        if not self._attached:
            return []
        cutoff_ms = self._due.cutoff_ms()
        cutoff_key = last_key_of_ms(cutoff_ms)
        self._look_further(cutoff_key)
        given: list[Position] = []
        left = _STALE_PER_CALL
        while len(given) < entries_max and left:
            key = self._next(cutoff_key)
            if key is None:
                self.passed_key = max(self.passed_key, cutoff_key)
                break
            left -= 1
            if key < 0:
                continue
            position = position_of(key)
            if self._is_mine(key, position, read_position) and not self._cursor.is_acked(position):
                given.append(position)
        self._more = not left
        self.arm()
        return given

    def _look_further(self, cutoff_key: int) -> None:
        """Put in order what the mutable bucket has for the next while."""
        if cutoff_key < self._horizon_key:
            return
        horizon_key = last_key_of_ms(time_of(cutoff_key) + HORIZON_MS)
        self._near += self._index.mutable.keys_between(max(self._horizon_key, self.passed_key), horizon_key)
        heapify(self._near)
        self._horizon_key = horizon_key

    def _first_key(self, cutoff_key: int) -> int | None:
        """The lowest key of the index up to ``cutoff_key`` that was not passed."""
        while True:
            near = self._near[0] if self._near else cutoff_key + 1
            if not self._cursors or self._cursors[0][0] > min(near, cutoff_key):
                return near if near <= cutoff_key else None
            key, _number, cursor = self._cursors[0]
            if cursor.loaded:
                return key
            self._load(cursor)

    def _next(self, cutoff_key: int) -> int | None:
        """Pass the lowest key up to ``cutoff_key``; None: there is none; -1: it was sent before."""
        key = self._first_key(cutoff_key)
        if self._early and self._early[0] <= cutoff_key and (key is None or self._early[0] < key):
            self.delayed_entries -= 1
            self._early_keys.discard(self._early[0])
            return heappop(self._early)
        if key is None:
            return None
        if self._near and self._near[0] == key:
            heappop(self._near)
        else:
            self._advance()
        self.passed_key = max(self.passed_key, key)
        if key in self._sent_before:
            self._sent_before.remove(key)
            return -1
        position = position_of(key)
        if self._unheld.has(position) and position.entry not in self._base.get(position.ledger, ()):
            return -1  # sent although the index has it, or will be
        if self.delayed_entries and self._is_counted(position):
            self.delayed_entries -= 1
        return key

    def _load(self, cursor: BucketCursor) -> None:
        try:
            cursor.load()
        except DamagedBucketError as error:
            self._index.rebuild(cursor.bucket, error)
            return
        assert cursor.key is not None
        heapreplace(self._cursors, (cursor.key, cursor.bucket.number, cursor))

    def _advance(self) -> None:
        """Go by the first key of the first cursor."""
        key, number, cursor = self._cursors[0]
        try:
            cursor.pop()
        except DamagedBucketError as error:
            self.passed_key = max(self.passed_key, key)
            self._index.rebuild(cursor.bucket, error)
            return
        if cursor.key is not None:
            heapreplace(self._cursors, (cursor.key, number, cursor))
            return
        heappop(self._cursors)
        self.passed_key = max(self.passed_key, key)
        self._index.drop_passed()

    def _is_mine(self, key: int, position: Position, read_position: Position) -> bool:
        """Whether the index gives this entry. If not it will be read, and be sent then."""
        if key > self._start_key:
            base = self._base.get(position.ledger)
            if base is not None and position.entry in base:
                return True
        return position < read_position

    def _is_counted(self, position: Position) -> bool:
        """Whether ``delayed_entries`` counts it: what the subscription had acknowledged at its start it never did."""
        if position <= self._counted_after:
            return False
        base = self._base.get(position.ledger)
        return position <= self._highest or (base is not None and position.entry in base)

    def passed_over(self, mark_delete: Position) -> None:
        known = [Position(ledger, seen.max()) for ledger, seen in self._base.items() if seen]
        if mark_delete >= max([self._highest, *known, *map(position_of, self._early)]):
            self._counted_after = mark_delete
            self._early.clear()
            self._early_keys.clear()
            self.delayed_entries = 0

    def next_ms(self) -> int | None:
        if not self._attached:
            return None
        if self._more:
            return 0
        keys = [heap[0] for heap in (self._near, self._early) if heap]
        if self._cursors:
            keys.append(self._cursors[0][0])
        times = [time_of(key) for key in keys]
        if len(self._index.mutable):
            times.append(time_of(self._horizon_key))
        return min(times, default=None)

    def _fire(self) -> None:
        self._more = False  # if the dispatcher cannot go on when it is woken, looking again at once would be in vain
        super()._fire()

    def close(self) -> None:
        super().close()
        self._index.detach(self)
        self._near.clear()
        self._cursors.clear()
        self._base.clear()


def _left_in(cursor: BucketCursor, counted_after: Position) -> int:
    try:
        return left_after(cursor, counted_after)
    except DamagedBucketError:
        return cursor.bucket.total - cursor.passed  # the cursor that comes to the damage reports it


class UnheldParts:
    """The parts of the log that one dispatcher has read while delays were switched off, in the order in which it read
    them. Their entries were sent and neither indexed nor noted as seen, and other dispatchers may have indexed them, so
    that nothing else tells. Invariant: at most the last part has no end yet."""

    def __init__(self) -> None:
        self._parts: list[tuple[Position, Position]] = []
        self._begun: Position | None = None

    def begin(self, at: Position) -> None:
        """The entry ``at`` and those behind it are read while delays are off. Does nothing within such a part."""
        if self._begun is None:
            self._begun = at

    def end(self, at: Position) -> None:
        """Delays are on, and the dispatcher comes back to ``at``, what it could not send: only what lies before that
        was sent."""
        if self._begun is not None:
            self._parts.append((self._begun, at))
            self._begun = None

    def has(self, position: Position) -> bool:
        """Whether it was read and sent so, if it was read."""
        if self._begun is not None and position >= self._begun:
            return True
        return any(first <= position < end for first, end in self._parts)


class DelaysHost(Protocol):
    """The topic, as far as delayed delivery is concerned."""

    topic_id: int
    log: TopicLog
    clock: Clock
    timers: Timers
    settings: Settings

    def start_over(self) -> None:
        """Have the topic loaded anew, not at once: something of it is lost that only reading its log can tell."""


class TopicDelays:
    """Delayed delivery of one topic: the kind of tracker that its dispatchers get, and the index that they share.

    ``index`` is None until the first dispatcher of a Shared or Key_Shared subscription comes, for only these hold
    messages back (semantics 6.1.2); a topic without them has none, and its buckets on disk are left alone.
    """

    def __init__(self, host: DelaysHost, store: BucketStore, oldest_needed_ledger: Callable[[], int]) -> None:
        """``oldest_needed_ledger``: the lowest ledger that any subscription of the topic may still read."""
        self.index: DelayedIndex | None = None
        self._host = host
        self._store = store
        self._oldest_needed_ledger = oldest_needed_ledger

    def tracker(self, cursor: AckState) -> DelayedTracker | None:
        """Make the tracker of a new Shared or Key_Shared dispatcher; None: delayed delivery is switched off."""
        host, settings = self._host, self._host.settings
        if not settings.delayed_delivery_enabled:
            return None
        due = DueRule.of(host.clock, settings)
        if settings.delayed_delivery_tracker_factory_class_name.endswith("InMemoryDelayedDeliveryTrackerFactory"):
            look_ahead = settings.delayed_delivery_fixed_delay_detection_lookahead
            return InMemoryTracker(due, host.timers, cursor, look_ahead)
        if self.index is None:
            limits = BucketLimits.of(settings)
            self.index = DelayedIndex(
                host.topic_id,
                self._store,
                host.log,
                host.timers,
                limits,
                self._oldest_needed_ledger,
                host.start_over,
            )
        return BucketTracker(self.index, due, host.timers, cursor)

    @property
    def limited(self) -> bool:
        """Whether there is a longest delay, so that ``refusal`` must be asked."""
        return self._host.settings.delayed_delivery_max_delay_in_millis > 0

    def refusal(self, body: bytes) -> NotAllowedError | None:
        """Why an entry may not be published: its delay is too long (semantics 6.1.6)."""
        max_ms = self._host.settings.delayed_delivery_max_delay_in_millis
        delay_ms = deliver_at_ms(body) - self._host.clock.now_ms() if max_ms else 0
        if delay_ms <= max_ms:
            return None
        return NotAllowedError(
            f"a message delayed by {delay_ms} ms was refused: the longest delay is {max_ms} ms",
            hint="send it later, or raise delayedDeliveryMaxDelayInMillis",
        )

    def trimmed(self, first_ledger: int) -> None:
        """The log begins with that ledger now."""
        if self.index is not None:
            self.index.trim(first_ledger)

    def histogram(self, step_ms: int) -> dict[int, int]:
        """Entries that fall due from now on: start of each step in milliseconds since the epoch -> how many."""
        return {} if self.index is None else self.index.histogram(self._host.clock.now_ms(), step_ms)

    def close(self) -> None:
        """The topic is unloaded. Its dispatchers are gone."""
        if self.index is not None:
            self.index.close()
            self.index = None

    def delete(self) -> None:
        """The topic is deleted."""
        if self.index is not None:
            self.index.clear()
            self.index = None
        self._store.remove_all(self._host.topic_id)
