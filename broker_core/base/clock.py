# SPDX-License-Identifier: Apache-2.0
"""The time seam: the only module of the product that may import ``time``.

State machines take a ``Clock``; they never sleep and never ask the operating system. Code that has a thread for itself
takes a ``BlockingClock``. Wall time (``now_ms``) goes into
stored data and due times of messages; monotonic time (``monotonic``) measures durations and cannot be stepped.
``broker_core.testing`` has the virtual clock.
"""

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Time as a state machine may know it."""

    def now_ms(self) -> int:
        """Wall clock, integer milliseconds since the epoch. May jump in both directions."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary origin, never decreasing. Only differences mean anything."""

    def uptime(self) -> float:
        """As ``monotonic``, with another origin, and it goes on while the machine sleeps, where the system can tell."""


class BlockingClock(Clock, Protocol):
    """The clock of code that has a thread for itself, and may therefore wait."""

    def sleep(self, seconds: float) -> None:
        """Return when so many seconds of monotonic time have passed."""


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def uptime(self) -> float:
        # macOS and others have no such clock; there a sleep is taken for a jump of the wall clock.
        return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class TimerHandle(Protocol):
    """A timer that was armed."""

    def cancel(self) -> None:
        """Disarm it; harmless if it has fired or was cancelled."""


class Timers(Protocol):
    """Runs a callback later, on the same thread as everything else of the state machine that armed it."""

    def call_later(self, delay_s: float, callback: Callable[[], None], /) -> TimerHandle:
        """Call ``callback`` once, not before ``delay_s`` seconds of monotonic time have passed.

        0 means as soon as possible, but never from inside this call. An asyncio event loop has this method, and may
        fire a little early; code that must not asks its clock again.
        """
