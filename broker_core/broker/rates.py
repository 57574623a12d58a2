# SPDX-License-Identifier: Apache-2.0
"""``Traffic``: messages and bytes counted for good, and their rates over the last while. For statistics only."""

from __future__ import annotations

from broker_core.base.clock import Clock

_WINDOW_S = 10.0
"""Length of a window. Rates are measured since the previous window began, over one to two windows once that much has
passed."""


class Traffic:
    """Two counters that the hot paths raise directly, and rates computed when somebody asks."""

    __slots__ = ("_clock", "_marks", "bytes", "messages")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.messages = 0
        self.bytes = 0
        now = clock.monotonic()
        self._marks = ((now, 0, 0), (now, 0, 0))

    def rates(self) -> tuple[float, float]:
        """(messages per second, bytes per second)."""
        now = self._clock.monotonic()
        older, newer = self._marks
        if now - newer[0] >= _WINDOW_S:
            older = newer
            self._marks = (older, (now, self.messages, self.bytes))
        passed_s = now - older[0]
        if passed_s <= 0:
            return 0.0, 0.0
        return (self.messages - older[1]) / passed_s, (self.bytes - older[2]) / passed_s

    @property
    def bytes_per_message(self) -> float:
        return self.bytes / self.messages if self.messages else 0.0
