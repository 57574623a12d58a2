# SPDX-License-Identifier: Apache-2.0
"""Entries that wait for a point in time, each with its own. Pure: time and timers are injected.

``NackTracker`` waits for the delay of negative acknowledgements. Due times are rounded up to whole grains, so that
entries of nearly the same time are handed out together. Owns one timer. Invariants: an entry is handed out once for
each ``add``, in [due, due + grain], never early; the latest due time of an entry counts; an entry whose messages were
all discarded is not handed out. Source: semantics 4.3.4 to 4.3.6.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Final

from broker_core.base.clock import Clock, TimerHandle, Timers
from broker_core.base.positions import MessageId, Position
from broker_core.client.settings.policies import RedeliveryBackoff

WHOLE_ENTRY: Final = -1
"""Stands for all messages of an entry, as a batch index and as a set of them."""

_NOISE_DIGITS: Final = 6
"""Decimals of a millisecond that mean something; below is the noise of adding floating-point seconds."""

_SOON_S: Final = 0.001
"""A timer that fired a little early is armed again for at least this long."""


class DuePositions:
    """``on_due`` is called with the positions whose time has come, in the order in which they were added."""

    def __init__(self, grain_ms: int, clock: Clock, timers: Timers, on_due: Callable[[list[Position]], None]) -> None:
        self._grain_ms = grain_ms
        self._clock = clock
        self._timers = timers
        self._on_due = on_due
        self._slot_of: dict[Position, int] = {}
        self._slots: dict[int, dict[Position, int]] = {}
        self._order: list[int] = []
        self._timer: TimerHandle | None = None
        self._timer_slot = -1

    def __len__(self) -> int:
        return len(self._slot_of)

    def __contains__(self, position: object) -> bool:
        return position in self._slot_of

    def add(self, position: Position, delay_s: float, batch_index: int = WHOLE_ENTRY) -> None:
        """Hand ``position`` out after ``delay_s``, for the sake of one message of it or of all."""
        due_ms = round((self._clock.monotonic() + delay_s) * 1000, _NOISE_DIGITS)
        slot = math.ceil(due_ms / self._grain_ms)
        messages = WHOLE_ENTRY if batch_index < 0 else 1 << batch_index
        before = self._slot_of.get(position)
        if before is not None:
            messages |= self._slots[before].pop(position)
            slot = max(slot, before)
        self._slot_of[position] = slot
        members = self._slots.get(slot)
        if members is None:
            members = self._slots[slot] = {}
            heapq.heappush(self._order, slot)
        members[position] = messages
        self._arm()

    def discard(self, position: Position, batch_index: int = WHOLE_ENTRY) -> None:
        """One message of the entry, or all, need not come again."""
        slot = self._slot_of.get(position)
        if slot is None:
            return
        members = self._slots[slot]
        if batch_index >= 0:
            members[position] &= ~(1 << batch_index)
        if batch_index < 0 or not members[position]:
            del members[position]
            del self._slot_of[position]

    def discard_before(self, position: Position) -> None:
        """No entry before ``position`` need come again."""
        for each in [each for each in self._slot_of if each < position]:
            self.discard(each)

    def clear(self) -> None:
        """Forget all."""
        self._slot_of.clear()
        self._slots.clear()
        self._order.clear()
        self._disarm()

    def _arm(self) -> None:
        """Be woken at the first slot, if there is one."""
        if not self._order or self._order[0] == self._timer_slot:
            return
        self._disarm()
        self._timer_slot = self._order[0]
        wait_s = self._timer_slot * self._grain_ms / 1000 - self._clock.monotonic()
        self._timer = self._timers.call_later(max(wait_s, _SOON_S), self._fire)

    def _disarm(self) -> None:
        self._timer_slot = -1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer, self._timer_slot = None, -1
        now_ms = round(self._clock.monotonic() * 1000, _NOISE_DIGITS)
        due: list[Position] = []
        while self._order and self._order[0] * self._grain_ms <= now_ms:
            due += self._slots.pop(heapq.heappop(self._order))
        for each in due:
            del self._slot_of[each]
        self._arm()
        if due:
            self._on_due(due)


class NackTracker(DuePositions):
    """Negative acknowledgements that wait; ``redeliver`` is called with the positions whose delay is over.

    Invariants: an entry is asked for once per nack and never before its delay (the latest nack counts); an ack of a
    nacked message takes the nack back. Source: PIP-393 for the precision, which here makes a nack later, never earlier.
    ``delay``: seconds, the same for all, or by redelivery count. ``precision_bits``: due times are rounded up to
    multiples of 2 to the power of this many milliseconds, so that nacks of about the same time make one request.
    """

    def __init__(
        self,
        delay: float | RedeliveryBackoff,
        precision_bits: int,
        clock: Clock,
        timers: Timers,
        redeliver: Callable[[list[Position]], None],
    ) -> None:
        super().__init__(1 << precision_bits, clock, timers, redeliver)
        self._delay = delay

    def nack(self, message_id: MessageId, redelivery_count: int = 0) -> None:
        """Ask for the entry of a message again when its delay is over."""
        delay = self._delay
        delay_s = delay.delay_s(redelivery_count) if isinstance(delay, RedeliveryBackoff) else delay
        self.add(message_id.position, delay_s, message_id.batch_index)

    def discard_through(self, message_id: MessageId) -> None:
        """A message and all before it were acknowledged."""
        position = message_id.position
        self.discard_before(position)
        if message_id.batch_index < 0:
            self.discard(position)
        for index in range(message_id.batch_index + 1):
            self.discard(position, index)
