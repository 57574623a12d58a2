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
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from broker_core.server.listening_port import ListeningPort

_CONCURRENT_REQUESTS_MAX: Final = 128
"""Connections that HTTP clients may hold; further ones are told to come back (503)."""

_IDLE_SECONDS: Final = 15
"""An HTTP connection that owes a request, or the rest of one, is closed when nothing has come for so long."""

_CLOSE_SECONDS: Final = 1.0
"""Requests in progress get this long when the broker stops."""


class _Connection(H11Protocol):
    """uvicorn's, which gives up waiting for a further request only: for the first one, and for the rest of one that has
    begun, it would wait for ever, and so few connections would be all that the broker has for HTTP."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        super().connection_made(transport)
        self._wait_for_client()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)  # which ends the wait
        self._wait_for_client()

    def timeout_keep_alive_handler(self) -> None:
        self.transport.close()

    def _wait_for_client(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle  # None until the first request, whatever its type says
        answering = cycle is not None and not cycle.response_complete and not cycle.more_body
        if self.timeout_keep_alive_task is None and not answering and not self.flow.read_paused:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )


class HttpEndpoint:
    """The HTTP port of a broker."""

    def __init__(self, app: ASGIApp, *, idle_s: int = _IDLE_SECONDS) -> None:
        self._config = Config(
            app,
            http=H11Protocol,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            limit_concurrency=_CONCURRENT_REQUESTS_MAX,
            timeout_keep_alive=idle_s,
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
        return _Connection(config=self._config, server_state=self._state, app_state=nothing)
