# SPDX-License-Identifier: Apache-2.0
"""A clock and timers that a test moves by hand: no waiting, same result every time.

``VirtualClock`` is both the ``Clock`` and the ``Timers`` of ``broker_core.base.clock``::

    clock = VirtualClock()
    clock.call_later(60, lambda: print("a minute"))
    clock.advance(90)          # prints; clock.monotonic() went through 60 and is 90 now

Wall time and monotonic time move together, except when ``step_wall`` moves the wall clock alone, as an operator or a
time server would.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Final

from broker_core.base.invariants import invariant

START_MS: Final = 1_700_000_000_000
"""Wall time at which a virtual clock starts unless told otherwise: 14 November 2023."""


class _Timer:
    __slots__ = ("callback", "cancelled")

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class VirtualClock:
    """Time that only ``advance`` moves."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self._wall_ms = float(now_ms)
        self._monotonic = 0.0
        self._timers: list[tuple[float, int, _Timer]] = []
        self._order = itertools.count()

    def now_ms(self) -> int:
        """Wall clock, integer milliseconds."""
        return int(self._wall_ms)

    def monotonic(self) -> float:
        """Seconds since this clock was made."""
        return self._monotonic

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> _Timer:
        """Arm a timer; it fires inside ``advance``. Timers of one moment fire in the order they were armed."""
        timer = _Timer(callback)
        heapq.heappush(self._timers, (self._monotonic + max(delay_s, 0.0), next(self._order), timer))
        return timer

    def advance(self, seconds: float) -> None:
        """Let time pass and fire what is due, also timers that fired timers arm, each at its own moment."""
        invariant(seconds >= 0, "time does not go back; step_wall moves the wall clock")
        end = self._monotonic + seconds
        while self._timers and self._timers[0][0] <= end:
            due, _, timer = heapq.heappop(self._timers)
            self._move_to(max(due, self._monotonic))
            if not timer.cancelled:
                timer.callback()
        self._move_to(end)

    def run_due(self) -> None:
        """Fire what is due now."""
        self.advance(0)

    def step_wall(self, seconds: float) -> None:
        """Move the wall clock alone, in either direction."""
        self._wall_ms += seconds * 1000

    @property
    def timers_armed(self) -> int:
        """Timers that have not fired and were not cancelled."""
        return sum(not timer.cancelled for _, _, timer in self._timers)

    def _move_to(self, monotonic: float) -> None:
        self._wall_ms += (monotonic - self._monotonic) * 1000
        self._monotonic = monotonic
