# SPDX-License-Identifier: Apache-2.0
"""Negative acknowledgements that wait for their delay. Pure: time and timers are injected.

Owns one timer. Invariants: a message is asked for once per nack and never before its delay (the latest nack counts);
an ack in between cancels it. Source: semantics 4.3.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from broker_core.base.clock import Clock, TimerHandle, Timers
from broker_core.base.positions import Position

TICK_SECONDS: Final = 0.001
"""A timer that fires too early is armed again for at least this long."""


class NackTracker:
    """``redeliver`` is called with the positions whose delay is over."""

    def __init__(
        self, delay_s: float, clock: Clock, timers: Timers, redeliver: Callable[[list[Position]], None]
    ) -> None:
        self._delay_s = delay_s
        self._clock = clock
        self._timers = timers
        self._redeliver = redeliver
        # The delay is the same for all, so the order of insertion is the order of due times.
        self._due: OrderedDict[Position, float] = OrderedDict()
        self._timer: TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._due)

    def add(self, position: Position) -> None:
        """Ask for the entry at ``position`` again when the delay is over."""
        self._due[position] = self._clock.monotonic() + self._delay_s
        self._due.move_to_end(position)
        if self._timer is None:
            self._timer = self._timers.call_later(self._delay_s, self._fire)

    def discard(self, position: Position) -> None:
        """The entry was acknowledged after all."""
        self._due.pop(position, None)

    def discard_through(self, position: Position) -> None:
        """Everything up to ``position`` was acknowledged."""
        for each in [each for each in self._due if each <= position]:
            del self._due[each]

    def clear(self) -> None:
        """Forget all: they come again anyway, or never."""
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        ready: list[Position] = []
        while self._due:
            position, due = next(iter(self._due.items()))
            if due > now:
                self._timer = self._timers.call_later(max(due - now, TICK_SECONDS), self._fire)
                break
            del self._due[position]
            ready.append(position)
        if ready:
            self._redeliver(ready)
