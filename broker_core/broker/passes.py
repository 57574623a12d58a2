# SPDX-License-Identifier: Apache-2.0
"""Bounded turns of work: how one busy subscription leaves room for all others.

A pass does a limited amount and says whether there is more; the rest runs in a later turn of the loop. Passes never
nest: a wish that arrives in the middle of one is noted and served right after it.
"""

from __future__ import annotations

from collections.abc import Callable

from broker_core.base.clock import TimerHandle, Timers


class Passes:
    """Runs ``work`` when kicked, and again as long as it returns true."""

    __slots__ = ("_again", "_running", "_scheduled", "_timers", "_work")

    def __init__(self, timers: Timers, work: Callable[[], bool]) -> None:
        self._timers = timers
        self._work = work
        self._running = False
        self._again = False
        self._scheduled: TimerHandle | None = None

    def kick(self) -> None:
        """One pass now, unless one is running or already due in the next turn."""
        if self._scheduled is not None:
            return
        if self._running:
            self._again = True
            return
        self._run()

    def kick_later(self) -> None:
        """One pass in the next turn, for those who are in the middle of something else."""
        if self._running:
            self._again = True
        elif self._scheduled is None:
            self._scheduled = self._timers.call_later(0, self._continue)

    def stop(self) -> None:
        """Forget the continuation; a later ``kick`` starts afresh."""
        self._again = False
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None

    def _run(self) -> None:
        self._running = True
        self._again = False
        try:
            more = self._work()
        finally:
            self._running = False
        if more or self._again:
            self._scheduled = self._timers.call_later(0, self._continue)

    def _continue(self) -> None:
        self._scheduled = None
        self._run()
