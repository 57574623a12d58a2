# SPDX-License-Identifier: Apache-2.0
"""The HTTP port of a broker: an ASGI application on the event loop of the broker, and a bound on connections."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from starlette.types import ASGIApp

from broker_core.server.admin.http_connection import HttpConnection
from broker_core.server.listening_port import ListeningPort

logger = logging.getLogger(__name__)

_CONNECTIONS_MAX: Final = 128
"""Connections that HTTP clients may hold. A further one replaces the one that has kept the broker waiting longest;
only where all of them are being answered it is told to come back (503)."""

_CLIENT_S: Final = 15
"""A client has so long for its whole request, for its next one, and for taking any part of an answer."""

_CLOSE_S: Final = 1.0
"""Requests in progress get this long when the broker stops."""


class HttpEndpoint:
    """The HTTP port of a broker."""

    def __init__(self, app: ASGIApp, *, client_s: float = _CLIENT_S) -> None:
        self._app = app
        self._client_s = client_s
        self._connections: set[HttpConnection] = set()
        self._port = ListeningPort()
        self._all_gone = asyncio.Event()
        self.connections_made = 0

    async def bind(self, host: str, port: int) -> int:
        """Take the port without serving yet. Returns it; it is new for ``port`` 0. OSError if it cannot be had."""
        return await self._port.bind(self._connection, host, port)

    async def start(self) -> None:
        """Serve from now on."""
        await self._port.start()

    @property
    def connections_open(self) -> int:
        return len(self._connections)

    async def close(self) -> None:
        """Accept no more, let requests in progress end for a moment, close."""
        self._port.close()
        for connection in list(self._connections):
            connection.finish()
        deadline = asyncio.get_running_loop().time() + _CLOSE_S
        try:
            async with asyncio.timeout_at(deadline):
                while self._connections:
                    self._all_gone.clear()
                    await self._all_gone.wait()
        except TimeoutError:
            logger.info("requests cut off by the end of the broker connections=%d", len(self._connections))

    def _connection(self) -> HttpConnection:
        return HttpConnection(self._app, self._client_s, self._made, self._lost, self._is_crowded)

    def _made(self, connection: HttpConnection) -> None:
        self.connections_made += 1
        if len(self._connections) >= _CONNECTIONS_MAX:
            self._make_room()
        self._connections.add(connection)

    def _lost(self, connection: HttpConnection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._all_gone.set()

    def _is_crowded(self) -> bool:
        return len(self._connections) > _CONNECTIONS_MAX

    def _make_room(self) -> None:
        """End the connection that has kept the broker waiting longest, if there is one."""
        waiting = [(each.waiting_since, each) for each in self._connections if each.waiting_since is not None]
        if not waiting:
            return
        _, longest = min(waiting, key=lambda each: each[0])
        self._connections.discard(longest)
        longest.give_up()
        logger.info(
            "connection closed for another one peer=%s reason=%s",
            longest.peer,
            f"{_CONNECTIONS_MAX} HTTP connections are open, and this one kept the broker waiting longest",
        )
