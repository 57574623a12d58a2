# SPDX-License-Identifier: Apache-2.0
"""``VirtualTimers``: timers that fire only when a test says that time passes. Deterministic, single-threaded.

Holds its own monotonic time, in step with a wall clock that it drives; callbacks run in order of due time, then of
arming.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from broker_core.base.invariants import invariant

TURNS_MAX = 100_000
"""Callbacks that may run without time passing before it must be a loop that never ends."""


class _Handle:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class VirtualTimers:
    """All seams of time in one object: ``Clock``, ``BlockingClock`` and ``Timers``."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._passed_ms = 0
        self._armed: list[tuple[int, int, _Handle]] = []
        self._serial = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._passed_ms / 1000

    def uptime(self) -> float:
        return self._passed_ms / 1000

    def sleep(self, seconds: float) -> None:
        """Let the time pass at once and run the timers that are due in it."""
        self.advance(round(seconds * 1000))

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> _Handle:
        invariant(delay_s >= 0, "a timer of %s s", delay_s)
        handle = _Handle(callback)
        self._serial += 1
        heapq.heappush(self._armed, (self._passed_ms + round(delay_s * 1000), self._serial, handle))
        return handle

    def run_due(self) -> int:
        """Run everything that is due now, and what that makes due; returns how many callbacks ran."""
        ran = 0
        while self.run_one():
            ran += 1
            invariant(ran < TURNS_MAX, "%s callbacks in one instant", ran)
        return ran

    def run_one(self) -> bool:
        """Run the next callback that is due now; false if there is none."""
        while self._armed and self._armed[0][0] <= self._passed_ms:
            handle = heapq.heappop(self._armed)[2]
            if handle.callback is not None:
                callback, handle.callback = handle.callback, None
                callback()
                return True
        return False

    def advance(self, ms: int) -> None:
        """Let ``ms`` milliseconds pass, running every timer at its time."""
        end = self._passed_ms + ms
        self.run_due()
        while self._armed and self._armed[0][0] <= end:
            self._step(self._armed[0][0])
            self.run_due()
        self._step(end)

    def stopped(self) -> VirtualTimers:
        """A clock that shows the same time and has no timers: what a new process finds after a crash."""
        other = VirtualTimers(self._now_ms)
        other._passed_ms = self._passed_ms
        return other

    def step_wall_clock(self, ms: int) -> None:
        """Let the wall clock jump, as when somebody sets it; timers do not notice."""
        self._now_ms += ms

    def _step(self, to_ms: int) -> None:
        self._now_ms += to_ms - self._passed_ms
        self._passed_ms = to_ms
