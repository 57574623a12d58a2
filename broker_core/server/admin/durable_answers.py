# SPDX-License-Identifier: Apache-2.0
"""ASGI middleware: no answer begins to leave before every change that it may speak of is durable.

Handlers change the catalogue at once and say so; the next group commit makes it durable. If that fails, their answer is
dropped, and the broker stops.
"""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from broker_core.base.errors import StorageError
from broker_core.storage.commit import GroupCommit


class DurableAnswers:
    """Holds the answers of an application back until ``commits`` has recorded all changes."""

    def __init__(self, app: ASGIApp, commits: GroupCommit) -> None:
        self._app = app
        self._commits = commits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_when_durable(message: Message) -> None:
            if message["type"] == "http.response.start":
                await self._recorded()
            await send(message)

        await self._app(scope, receive, send_when_durable)

    async def _recorded(self) -> None:
        recorded: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def tell(error: StorageError | None) -> None:
            if recorded.done():
                return
            if error is None:
                recorded.set_result(None)
            else:
                recorded.set_exception(error)

        self._commits.when_recorded(tell)
        await recorded
