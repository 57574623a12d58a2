# SPDX-License-Identifier: Apache-2.0
"""``InMemoryTracker``: everything that is delayed in memory: time -> ledger -> bitmap of entries.

Times are rounded down to a power of two below the tick, so that neighbours share a bitmap; an entry may come early by
less than that step, on top of the tick. Strict delivery does not round. Memory grows with what is delayed, and all of
it is read again after a restart: for few delayed entries, or where nothing may be written.

Where all entries have the same delay, later ones are due later: with many held back and none due, reading on is
pointless (fixed-delay detection). Source: Pulsar docs, "Delayed message delivery"; semantics 6.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from pyroaring import BitMap

from broker_core.base.clock import Timers
from broker_core.base.positions import Position
from broker_core.base.settings import Settings
from broker_core.broker.delayed.tracker import Acknowledged, DelayedTracker, DueRule
from broker_core.storage.ledger import StoredEntry


class InMemoryTracker(DelayedTracker):
    """The delayed entries of one dispatcher. Nothing outlives ``close``."""

    def __init__(self, due: DueRule, timers: Timers, cursor: Acknowledged, look_ahead_entries: int) -> None:
        """``look_ahead_entries``: held back at least before fixed-delay detection stops reading."""
        super().__init__(due, timers)
        self._cursor = cursor
        self._look_ahead = look_ahead_entries
        self._step_ms = _step_ms(due)
        self._times: list[int] = []
        self._entries: dict[int, dict[int, BitMap]] = {}
        self._latest_ms = 0
        self._monotone = True
        self._highest = Position(-1, -1)

    def settings_changed(self, settings: Settings) -> None:
        super().settings_changed(settings)
        self._step_ms = _step_ms(self._due)  # of what comes from now on

    @property
    def paused(self) -> bool:
        if not self._due.holding:
            return False
        return (
            self._monotone and self.delayed_entries >= self._look_ahead > 0 and self._times[0] > self._due.cutoff_ms()
        )

    def hold_back(self, entries: list[StoredEntry]) -> list[StoredEntry]:
        due = super().hold_back(entries)
        if due:
            self._monotone = False
        return due

    def add(self, position: Position, deliver_at: int) -> bool:
        if deliver_at <= self._due.cutoff_ms() or not self._due.holding:
            return False
        time_ms = deliver_at - deliver_at % self._step_ms
        ledgers = self._entries.get(time_ms)
        if ledgers is None:
            ledgers = self._entries[time_ms] = {}
            heappush(self._times, time_ms)
        bitmap = ledgers.get(position.ledger)
        if bitmap is None:
            bitmap = ledgers[position.ledger] = BitMap()
        elif position.entry in bitmap:
            return True
        bitmap.add(position.entry)
        if deliver_at < self._latest_ms - self._due.tick_ms:
            self._monotone = False
        self._latest_ms = max(self._latest_ms, deliver_at)
        self._highest = max(self._highest, position)
        self.delayed_entries += 1
        return True

    def add_again(self, position: Position, deliver_at: int) -> bool:
        return self.add(position, deliver_at)

    def take_due(self, entries_max: int, read_position: Position) -> list[Position]:
        cutoff_ms = self._due.cutoff_ms()
        given: list[Position] = []
        while self._times and self._times[0] <= cutoff_ms and len(given) < entries_max:
            ledgers = self._entries[self._times[0]]
            for ledger in sorted(ledgers):
                taken = ledgers[ledger][: entries_max - len(given)]
                ledgers[ledger] -= taken
                self.delayed_entries -= len(taken)
                positions = [Position(ledger, entry) for entry in taken]
                # An entry at or after the read position will be read, and it is due.
                given += [each for each in positions if each < read_position and not self._cursor.is_acked(each)]
                if ledgers[ledger]:
                    break
                del ledgers[ledger]
            if not ledgers:
                del self._entries[heappop(self._times)]
        if not self._times:
            self._monotone, self._latest_ms = True, 0
        self.arm()
        return given

    def passed_over(self, mark_delete: Position) -> None:
        if mark_delete >= self._highest:
            self._times.clear()
            self._entries.clear()
            self.delayed_entries = 0
            self._monotone, self._latest_ms = True, 0
            self.arm()

    def seen(self, entries: Sequence[StoredEntry]) -> None:
        """Entries that are not delayed need no memory here."""

    def next_ms(self) -> int | None:
        return self._times[0] if self._times else None


def _step_ms(due: DueRule) -> int:
    return 1 if due.early_ms == 0 else step_of_tick_ms(due.tick_ms)


def step_of_tick_ms(tick_ms: int) -> int:
    """What times are rounded down to: the greatest power of two that is not above the tick (semantics 6.3.1)."""
    return 1 << (max(tick_ms, 1).bit_length() - 1)
