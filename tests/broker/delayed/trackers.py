# SPDX-License-Identifier: Apache-2.0
"""A delayed index on a simulated disk and a virtual clock, with trackers whose read positions a test moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.base.settings import Settings
from broker_core.broker.delayed.bucket_tracker import BucketTracker
from broker_core.broker.delayed.index import BucketLimits, DelayedIndex
from broker_core.broker.delayed.tracker import DelayedTracker, DueRule, InMemoryTracker
from broker_core.storage.ledger import StoredEntry
from broker_core.storage.store import Store
from broker_core.testing.sim_disk import Policy, SimDisk
from broker_core.testing.virtual_timers import VirtualTimers
from tests.broker.delayed.entries import delayed_body

BASE_MS = 1_700_000_000_000
END = Position(1 << 30, 0)
"""A read position behind everything."""


@dataclass
class Acked:
    """A cursor that knows nothing but what was acknowledged."""

    positions: set[Position] = field(default_factory=set)
    mark_delete: Position = POSITION_EARLIEST

    def is_acked(self, position: Position) -> bool:
        return position in self.positions


class NoLog:
    """A log without entries: what a bucket loses stays lost."""

    def read(self, start: Position, entries_max: int, bytes_max: int) -> list[StoredEntry]:
        return []


class Rig:
    """One topic's index and what is around it."""

    def __init__(
        self, *, min_index_count: int = 3, step_ms: int = 1000, indexes_max: int = 2, buckets_max: int = -1,
        strict: bool = True, tick_ms: int = 1,
    ) -> None:  # fmt: skip
        self.clock = VirtualTimers(BASE_MS)
        self.disk = SimDisk()
        self.limits = BucketLimits(min_index_count, step_ms, indexes_max, buckets_max)
        self.due = DueRule(self.clock, 0 if strict else tick_ms, tick_ms)
        self.oldest_needed = 0
        self.open()

    def open(self) -> None:
        self.store = Store.open(self.disk, "/data", self.clock, Settings())
        row = self.store.catalogue.topics.find("t") or self.store.catalogue.topics.create("t", 0)
        self.topic_id = row.id
        self.index = self.new_index()

    def new_index(self) -> DelayedIndex:
        return DelayedIndex(
            self.topic_id, self.store.buckets, NoLog(), self.clock, self.limits, lambda: self.oldest_needed
        )

    def settle(self) -> None:
        self.clock.run_due()
        while self.store.commits.pending:
            self.store.commits.commit_now()
            self.clock.run_due()

    def crash(self, seed: int = 0, policy: Policy = "random") -> None:
        """Lose power and start again on what the disk kept."""
        image = self.disk.crash(seed, policy)
        self.disk, self.clock = image, self.clock.stopped()
        self.due = DueRule(self.clock, self.due.early_ms, self.due.tick_ms)
        self.open()

    def tracker(self, acked: Acked | None = None) -> BucketTracker:
        return BucketTracker(self.index, self.due, self.clock, acked or Acked())

    def in_memory(self, look_ahead: int = 0, acked: Acked | None = None) -> InMemoryTracker:
        return InMemoryTracker(self.due, self.clock, acked or Acked(), look_ahead)


class LogOfDelayed:
    """A log of which the entries 0 and 1 of every ledger are there, delayed by some seconds."""

    def read(self, start: Position, entries_max: int, bytes_max: int) -> list[StoredEntry]:
        body = delayed_body(BASE_MS + 5000)
        return [StoredEntry(start, body, 1, 0, 0)] if start.entry < 2 else []


class RigWithLog(Rig):
    """What its buckets lose is found again."""

    def new_index(self) -> DelayedIndex:
        return DelayedIndex(
            self.topic_id, self.store.buckets, LogOfDelayed(), self.clock, self.limits, lambda: self.oldest_needed
        )


def add_all(tracker: DelayedTracker, times_ms: Sequence[int], ledger: int = 1, first: int = 0) -> list[bool]:
    """Add entries ``first`` ... of a ledger with these deliver-at times, counted from BASE_MS."""
    return [tracker.add(Position(ledger, first + i), BASE_MS + time_ms) for i, time_ms in enumerate(times_ms)]


def all_due(tracker: DelayedTracker, read_position: Position = END) -> list[Position]:
    """Everything that is due now, asked for in small portions."""
    found: list[Position] = []
    while given := tracker.take_due(3, read_position):
        found += given
    return found
