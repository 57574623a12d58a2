# SPDX-License-Identifier: Apache-2.0
"""The HTTP port: uvicorn's protocol and an ASGI application, on the broker's own event loop.

uvicorn's ``Server`` is left out: it takes over signals and wakes up ten times a second. What it does besides,
listening and closing, is here.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from broker_core.server.listening_port import ListeningPort

_CONCURRENT_REQUESTS_MAX: Final = 128
"""Connections that HTTP clients may hold; further ones are told to come back (503)."""

_IDLE_SECONDS: Final = 15
"""An HTTP connection without a request is closed after this long."""

_CLOSE_SECONDS: Final = 1.0
"""Requests in progress get this long when the broker stops."""


class HttpEndpoint:
    """The HTTP port of a broker."""

    def __init__(self, app: ASGIApp) -> None:
        self._config = Config(
            app,
            http=H11Protocol,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            limit_concurrency=_CONCURRENT_REQUESTS_MAX,
            timeout_keep_alive=_IDLE_SECONDS,
        )
        self._config.load()
        self._state = ServerState()
        self._port = ListeningPort()
        self.connections_made = 0

    async def bind(self, host: str, port: int) -> int:
        """Take the port without serving yet. Returns it; it is new for ``port`` 0. OSError if it cannot be had."""
        return await self._port.bind(self._protocol, host, port)

    async def start(self) -> None:
        """Serve from now on."""
        await self._port.start()

    @property
    def connections_open(self) -> int:
        return len(self._state.connections)

    async def close(self) -> None:
        """Accept no more, let requests in progress end for a moment, close."""
        self._port.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(list(self._state.tasks), timeout=_CLOSE_SECONDS)

    def _protocol(self) -> asyncio.Protocol:
        self.connections_made += 1
        nothing: dict[str, Any] = {}
        return H11Protocol(config=self._config, server_state=self._state, app_state=nothing)
