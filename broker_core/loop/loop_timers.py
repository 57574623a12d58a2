# SPDX-License-Identifier: Apache-2.0
"""``base.clock.Timers`` on an asyncio event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker_core.base.clock import TimerHandle


class LoopTimers:
    """Callbacks run on the loop's thread. A loop may fire a little early; code that must not asks its clock again."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> TimerHandle:
        """Call ``callback`` once, not from inside this call, even where ``delay_s`` is 0."""
        return self._loop.call_later(delay_s, callback)
