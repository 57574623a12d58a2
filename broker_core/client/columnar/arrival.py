# SPDX-License-Identifier: Apache-2.0
"""``Arrival``: how a task waits for what a broker pushes, and learns that nothing comes any more.

The protocol does not say that a range or a topic has been pushed to its end. So a reader waits until it has been
quiet for ``QUIET_S``, and then asks the broker. Owns the waiting and the length of the quiet time; must not know what
comes, which its user keeps in a buffer of its own.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

QUIET_S: Final = 0.25
"""After this long without an entry the broker is asked whether there are more."""


class Arrival:
    """One task waits at a time; what came while no task waited is not remembered."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._awaited: asyncio.Future[None] | None = None

    def tell(self) -> None:
        """Something has come, or nothing will come any more: wake the task that waits."""
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(None)

    async def came(self) -> bool:
        """Return as soon as something comes; false if it stays quiet."""
        self._awaited = self._loop.create_future()
        try:
            async with asyncio.timeout(QUIET_S):
                await self._awaited
                return True
        except TimeoutError:
            return False
        finally:
            self._awaited = None

    async def came_or(self, answer: asyncio.Task[Any]) -> None:
        """Return as soon as something comes, or ``answer`` has ended."""
        self._awaited = self._loop.create_future()
        try:
            await asyncio.wait((self._awaited, answer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._awaited = None
