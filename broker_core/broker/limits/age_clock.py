# SPDX-License-Identifier: Apache-2.0
"""``AgeClock``: the time by which messages and ledgers are old enough to be deleted or passed over.

A wall clock that is set wrong makes every message old at once: a clock that jumps 70 years ahead would end the time to
live of all messages within one check. So ages are not taken from the wall clock as it is. While it agrees with the
clock that counts the seconds since the machine started, to within ``clockJumpToleranceSeconds``, it is believed, slow
corrections included. When it jumps further ahead, ages go on from the time before the jump, and the broker's log says
so, until the clock comes back or the broker is started again: restarting it accepts the new time.
A clock that jumps back makes messages younger, which deletes nothing, and is believed at once.

Delayed messages and time stamps keep to the wall clock; only what cannot be undone is held back.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Final

from broker_core.base.clock import Clock

logger = logging.getLogger(__name__)

_MS: Final = 1000


class AgeClock:
    """The wall clock as far as it is believed. ``held`` is true while it is not."""

    def __init__(self, clock: Clock, tolerance_s: int) -> None:
        self.held = False
        self._clock = clock
        self._tolerance_ms = tolerance_s * _MS
        self._started_ms = self._start_by_wall()

    def now_ms(self) -> int:
        """Milliseconds since the epoch, as ``Clock.now_ms``, but never a jump ahead."""
        started_ms = self._start_by_wall()
        ahead_ms = started_ms - self._started_ms
        self._tell(ahead_ms)
        if not self.held and ahead_ms >= -self._tolerance_ms:
            self._started_ms = started_ms  # a slow correction, which the next comparison starts from
        return self._clock.now_ms() - max(ahead_ms, 0) if self.held else self._clock.now_ms()

    def _start_by_wall(self) -> int:
        """When the machine started, by the wall clock: the same at any time unless that clock was set."""
        return self._clock.now_ms() - round(self._clock.uptime() * _MS)

    def _tell(self, ahead_ms: int) -> None:
        if self.held == (ahead_ms > self._tolerance_ms):
            return
        self.held = not self.held
        if self.held:
            logger.warning(
                "the wall clock jumped ahead by=%s effect=%s",
                timedelta(milliseconds=ahead_ms),
                "time to live, retention by age, quotas by age and the end of unused subscriptions go on from the time "
                "before; set it right, or restart the broker if it is right",
            )
        else:
            logger.warning("the wall clock is back and ages follow it again within_s=%d", self._tolerance_ms // _MS)
