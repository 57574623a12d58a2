# SPDX-License-Identifier: Apache-2.0
"""HTTP requests act one after the other, a few milliseconds in a turn of the loop, so that many of them delay no other
work of the broker for long.

A request waits for its turn before its handler begins (``OneATurn``), and again whenever it has worked for a while
(``in_turns``).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator
from typing import Final, TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

_STRETCH_S: Final = 0.003
"""How long a request may work without a pause."""

T = TypeVar("T")


class TurnQueue:
    """The requests that wait for a turn of the loop, in order; each turn goes to one of them."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._scheduled = False

    async def turn(self) -> None:
        """Return when it is the caller's turn."""
        loop = asyncio.get_running_loop()
        mine = loop.create_future()
        self._waiting.append(mine)
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._next, loop)
        await mine

    async def in_turns(self, steps: Generator[None, None, T]) -> T:
        """The result of ``steps``, between which others have their turns."""
        clock = asyncio.get_running_loop().time
        until_s = clock() + _STRETCH_S
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            if clock() >= until_s:
                await self.turn()
                until_s = clock() + _STRETCH_S

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            first = self._waiting.popleft()
            if not first.done():  # else its client is gone
                first.set_result(None)
                break
        self._scheduled = bool(self._waiting)
        if self._scheduled:
            loop.call_soon(self._next, loop)


class OneATurn:
    """ASGI middleware: no two requests begin in one turn."""

    def __init__(self, app: ASGIApp, queue: TurnQueue) -> None:
        self._app = app
        self._queue = queue

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._queue.turn()
        await self._app(scope, receive, send)
