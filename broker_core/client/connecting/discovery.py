# SPDX-License-Identifier: Apache-2.0
"""Looking again and again whether something has come: partitions that were added, topics that match a pattern.

Owns the time between two looks; knows nothing of what is looked for. Invariants: one look at a time; a failure to look
is logged and changes nothing; after ``stop`` there is no look any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from broker_core.base.errors import PulsarishError

logger = logging.getLogger(__name__)


class Discovery:
    """Calls ``look`` every ``period_s`` seconds on the running loop. ``what`` names the owner in the log."""

    def __init__(self, what: str, period_s: float, look: Callable[[], Awaitable[None]]) -> None:
        self._what = what
        self._period_s = period_s
        self._look = look
        self._woken = asyncio.Event()
        self._looking = asyncio.Lock()
        self._task = asyncio.get_running_loop().create_task(self._look_for_ever())

    def wake(self) -> None:
        """Look at once; if a look is under way, once more behind it."""
        self._woken.set()

    async def at_rest(self) -> None:
        """Return when no look is under way."""
        async with self._looking:
            return

    async def stop(self) -> None:
        """Look no more; one that is under way is cut off."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _look_for_ever(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._period_s):
                    await self._woken.wait()
            self._woken.clear()
            try:
                async with self._looking:
                    await self._look()
            except PulsarishError as failure:
                logger.warning("discovery failed what=%r error=%s", self._what, failure)
