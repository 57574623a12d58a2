# SPDX-License-Identifier: Apache-2.0
"""``DelayedTracker`` holds delayed entries back from one dispatcher until they are due; ``InMemoryTracker`` is the
simpler kind.

Owns the common part of both kinds: looking for the time in an entry, what "due" means, and the one timer that wakes
the dispatcher. Contract with the dispatcher: each entry that was read is either returned by ``hold_back`` (send it now)
or comes out of ``take_due`` once; a dispatcher that forgets an entry reads it again.

Due means deliver-at <= now + tick, or <= now where delivery is strict. Source: Pulsar docs, "Delayed message delivery";
semantics 6.1.3, 6.2.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, Protocol

from pyroaring import BitMap

from broker_core.base.clock import Clock, TimerHandle, Timers
from broker_core.base.positions import Position
from broker_core.base.settings import Settings
from broker_core.storage.ledger import StoredEntry
from broker_core.wire.entry_peek import deliver_at_ms

LOOK_AGAIN_S: Final = 10.0
"""The longest sleep. Timers follow monotonic time; a wall clock that was set forward is noticed after this long."""

TICK_MIN_MS: Final = 10
"""A dispatcher that has no permits for what is due is not woken more often than this, however short the tick."""


class AckState(Protocol):
    """The cursor, as far as delayed delivery is concerned."""

    @property
    def mark_delete(self) -> Position: ...

    def is_acked(self, position: Position) -> bool: ...


@dataclass(frozen=True, slots=True)
class DueRule:
    """When an entry is due (semantics 6.1.3).

    Attributes:
        early_ms: How long before its time it may go; 0: strict.
        tick_ms: The dispatcher is woken at most once in this time.
        holding: Whether what is read from now on is held back; what is held back already keeps its time.
    """

    clock: Clock
    early_ms: int
    tick_ms: int
    holding: bool = True

    @classmethod
    def of(cls, clock: Clock, settings: Settings) -> DueRule:
        tick_ms = settings.delayed_delivery_tick_time_millis
        early_ms = 0 if settings.is_delayed_delivery_deliver_at_time_strict else tick_ms
        return cls(clock, early_ms, tick_ms, settings.delayed_delivery_enabled)

    def cutoff_ms(self) -> int:
        """Everything up to this deliver-at time is due now."""
        return self.clock.now_ms() + self.early_ms


class DelayedTracker(ABC):
    """One dispatcher's view of what is delayed. ``delayed_entries``: how many it holds back now."""

    delayed_entries: int = 0

    def __init__(self, due: DueRule, timers: Timers) -> None:
        self._due = due
        self._timers = timers
        self._wake: Callable[[], None] | None = None
        self._armed: TimerHandle | None = None
        self._armed_ms = 0
        self._fired_s = float("-inf")

    # -- for the dispatcher

    def start(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` from a timer when there may be something to do."""
        self._wake = wake
        self.arm()

    @property
    def paused(self) -> bool:
        """The dispatcher must not read on in the log now; it is woken when it may."""
        return False

    @abstractmethod
    def take_due(self, entries_max: int, read_position: Position) -> list[Position]:
        """Entries whose time has come, by time, then position. They are the dispatcher's from now on.

        ``read_position`` is the first entry of the log that the dispatcher has not read.
        """

    def skip_held(self, start: Position) -> Position:
        """``start``, or a later place if all entries before that are known to be held back and need not be read."""
        return start

    def hold_back(self, entries: list[StoredEntry]) -> list[StoredEntry]:
        """The ones of ``entries`` to be sent now (``entries`` itself if all). They are neighbours in the log,
        acknowledged or not."""
        return self._without_held(entries, self.add)

    def hold_back_again(self, entries: list[StoredEntry]) -> list[StoredEntry]:
        """As ``hold_back``, of entries that were given or sent before: all are to be sent, unless the clock was set
        back."""
        return self._without_held(entries, self.add_again)

    def _without_held(self, entries: list[StoredEntry], hold: Callable[[Position, int], bool]) -> list[StoredEntry]:
        held = {i for i, each in enumerate(entries) if (at := deliver_at_ms(each.body)) and hold(each.position, at)}
        if not held:
            return entries
        self.arm()
        return [entry for number, entry in enumerate(entries) if number not in held]

    def settings_changed(self, settings: Settings) -> None:
        """The tick may be another one, or delays be switched off (semantics 6.1.9): look again what is due now."""
        due = DueRule.of(self._due.clock, settings)
        if due == self._due:
            return
        self._due = due
        self._disarm()
        if self._wake is not None:
            self._wake()
            self.arm()

    @abstractmethod
    def passed_over(self, mark_delete: Position) -> None:
        """Everything up to ``mark_delete`` is acknowledged: if that is all that is held back, the count goes to zero.

        Where only a part is acknowledged, it is counted until it is due, as in Pulsar: to find out how many entries
        that are, all would have to be looked at.
        """

    def close(self) -> None:
        """The dispatcher ends. What it was not given stays unacknowledged and is read again by the next."""
        self._wake = None
        self._disarm()

    # -- for subclasses

    @abstractmethod
    def add(self, position: Position, deliver_at: int) -> bool:
        """Hold back an entry that was read from the log; false: it is due, send it now. Idempotent."""

    def add_again(self, position: Position, deliver_at: int) -> bool:
        """Hold back an entry that ``take_due`` gave; false, as always unless the clock was set back: send it."""
        return self.add(position, deliver_at)

    @abstractmethod
    def next_ms(self) -> int | None:
        """The earliest deliver-at time of what is held back, or a time before it; None if nothing is.

        0: there is something to do at once.
        """

    def arm(self) -> None:
        """See to it that the dispatcher is woken when the next entry is due, once in a tick (semantics 6.2.3)."""
        next_ms = self.next_ms() if self._wake is not None else None
        if self._armed is not None:
            if next_ms is not None and next_ms >= self._armed_ms:
                return
            self._disarm()
        if next_ms is None:
            return
        self._armed_ms = next_ms
        clock = self._due.clock
        wait_s = max(next_ms - clock.now_ms(), 0) / 1000
        tick_s = max(self._due.tick_ms, TICK_MIN_MS if next_ms <= clock.now_ms() else 0) / 1000
        rest_s = self._fired_s + tick_s - clock.monotonic() if next_ms else 0.0
        self._armed = self._timers.call_later(min(max(wait_s, rest_s), LOOK_AGAIN_S), self._fire)

    def _disarm(self) -> None:
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None

    def _fire(self) -> None:
        self._armed = None
        self._fired_s = self._due.clock.monotonic()
        if self._wake is not None:
            self._wake()
            self.arm()


class InMemoryTracker(DelayedTracker):
    """The delayed entries of one dispatcher in memory: time -> ledger -> bitmap of entries (semantics 6.3).

    Times are rounded down to a power of two below the tick, so that neighbours share a bitmap; an entry may come early
    by less than that step, on top of the tick. Strict delivery does not round. Memory grows with the number of delayed
    entries, and all of them are read again after a restart: for few delayed entries, or where nothing may be written.

    Where all entries have the same delay, later ones are due later: with many held back and none due, reading on is
    pointless (fixed-delay detection).
    """

    def __init__(self, due: DueRule, timers: Timers, cursor: AckState, look_ahead_entries: int) -> None:
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

    def next_ms(self) -> int | None:
        return self._times[0] if self._times else None


def _step_ms(due: DueRule) -> int:
    return 1 if due.early_ms == 0 else step_of_tick_ms(due.tick_ms)


def step_of_tick_ms(tick_ms: int) -> int:
    """Times are rounded down to this step: the greatest power of two that is not above the tick (semantics 6.3.1)."""
    return 1 << (max(tick_ms, 1).bit_length() - 1)
