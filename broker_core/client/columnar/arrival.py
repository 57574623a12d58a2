# SPDX-License-Identifier: Apache-2.0
"""``Arrival``: how a task waits for what a broker pushes, and learns that nothing comes any more.

The protocol does not say that a range or a topic has been pushed to its end. So a reader waits until it has been
quiet for ``QUIET_S``, and then asks the broker. Owns the waiting and the length of the quiet time; must not know what
comes, which its user keeps in a buffer of its own. ``Patience``: when what was promised has been awaited long enough.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

_TURNS: Final = 32
"""The first wait is such a part of the whole: less than two seconds, by default."""

QUIET_S: Final = 0.25
"""After this long without an entry the broker is asked whether there are more."""


class Patience:
    """How long entries are awaited that the broker says it has, before its reader is attached anew.

    Apache Pulsar may let a reader into a topic that it is just deleting, or closing, answer its questions, and never
    send anything, nor say that the topic is gone. A broker that is merely slow gets twice as long each time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_s: float) -> None:
        """``timeout_s``: how long the reader tries altogether."""
        self._loop = loop
        self._first_s = self._next_s = timeout_s / _TURNS
        self._until = loop.time() + self._next_s

    @property
    def left_s(self) -> float:
        """How long to wait until then."""
        return self._until - self._loop.time()

    @property
    def is_over(self) -> bool:
        return self.left_s <= 0

    def renew(self) -> None:
        """The reader is attached anew."""
        self._next_s *= 2
        self._until = self._loop.time() + self._next_s

    def reset(self) -> None:
        """Something has come."""
        self._next_s = self._first_s
        self._until = self._loop.time() + self._next_s


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
