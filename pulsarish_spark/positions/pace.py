# SPDX-License-Identifier: Apache-2.0
"""``minOffsetsPerTrigger`` and ``maxTriggerDelay``: whether the next batch waits until there is more to read.

Spark's Python sources have no limit that says so. A driver keeps a batch back by answering that nothing is new, and is
asked again at once. While a batch waits, the ends are looked at once a second only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker_core.base.clock import Clock
from pulsarish_spark.options import Amounts

LOOK_S: Final = 1.0
"""How often is looked whether enough has come: each look is a round trip for each partition."""


class Pace:
    """Used by one thread. Times are those of this process, so the first batch of each start runs at once."""

    def __init__(self, amounts: Amounts, clock: Clock) -> None:
        self._messages_min = amounts.messages_min
        self._delay_s_max = amounts.delay_s_max
        self._clock = clock
        self._ran_at: float | None = None
        self._waits_until: float | None = None

    def began(self) -> None:
        """A batch runs."""
        self._ran_at, self._waits_until = self._clock.monotonic(), None

    def is_due(self, messages: Callable[[], int]) -> bool:
        """Whether a batch of so many messages runs now."""
        now = self._clock.monotonic()
        if self._messages_min is None or self._ran_at is None or now - self._ran_at >= self._delay_s_max:
            return True
        if messages() >= self._messages_min:
            return True
        self._waits_until = min(now + LOOK_S, self._ran_at + self._delay_s_max)
        return False

    @property
    def waits(self) -> bool:
        """Whether a batch was found too small a moment ago."""
        return self._waits_until is not None and self._clock.monotonic() < self._waits_until
