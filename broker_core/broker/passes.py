# SPDX-License-Identifier: Apache-2.0
"""Bounded turns of work: how busy subscriptions leave room for all else.

A pass does a limited amount and says whether there is more. In a turn of the loop each subscription has one, and more
while the turn is young; the rest runs in a later one. Passes never nest: a wish that arrives in the middle of one is
noted and served right after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker_core.base.clock import Clock, TimerHandle, Timers

PASSES_A_TURN: Final = 8
"""Of one subscription. A turn of the loop, and writing to each connection at its end, cost about as much as a pass of
small entries."""

_TURN_S: Final = 0.004
"""Of all subscriptions together. Passes of large entries take as long as this alone."""


class Turn:
    """A turn of the loop. All subscriptions of a broker share it: while it is young there is time for more passes."""

    __slots__ = ("_clock", "_timers", "_until_s")

    def __init__(self, timers: Timers, clock: Clock) -> None:
        self._timers = timers
        self._clock = clock
        self._until_s: float | None = None

    def begin(self) -> None:
        """Somebody works in it; it may have begun before."""
        if self._until_s is None:
            self._until_s = self._clock.monotonic() + _TURN_S
            self._timers.call_later(0, self._end)

    @property
    def is_over(self) -> bool:
        return self._until_s is None or self._clock.monotonic() >= self._until_s

    def _end(self) -> None:
        """Whoever works next does so in another turn."""
        self._until_s = None


class Passes:
    """Runs ``work`` when kicked, and again as long as it returns true."""

    __slots__ = ("_again", "_had_enough", "_running", "_scheduled", "_timers", "_turn", "_work")

    def __init__(self, timers: Timers, turn: Turn, work: Callable[[], bool]) -> None:
        self._timers = timers
        self._turn = turn
        self._work = work
        self._running = False
        self._again = False
        self._had_enough = False
        self._scheduled: TimerHandle | None = None

    def kick(self) -> None:
        """Work now, unless that is going on or already due in the next turn."""
        if self._scheduled is not None:
            return
        if self._running:
            self._again = True
            return
        self._run()

    def kick_later(self) -> None:
        """Work soon, for those in the middle of something else: after the pass that is running, or in the next turn."""
        if self._running:
            self._again = True
        elif self._scheduled is None:
            self._scheduled = self._timers.call_later(0, self._continue)

    def end_turn(self) -> None:
        """This pass is the last one of this turn: the next one may have better luck, when others had theirs."""
        self._had_enough = True

    def stop(self) -> None:
        """Forget the continuation; a later ``kick`` starts afresh."""
        self._again = False
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None

    def _run(self) -> None:
        """Some passes; what is left after them is for the next turn."""
        self._had_enough = False
        self._turn.begin()
        for _ in range(PASSES_A_TURN):
            if not self._pass():
                return
            if self._had_enough or self._turn.is_over:
                break
        self._scheduled = self._timers.call_later(0, self._continue)

    def _pass(self) -> bool:
        """One of them; whether there is more to do."""
        self._running = True
        self._again = False
        try:
            more = self._work()
        finally:
            self._running = False
        return more or self._again

    def _continue(self) -> None:
        self._scheduled = None
        self._run()
