# SPDX-License-Identifier: Apache-2.0
"""The HTTP port: uvicorn's protocol and an ASGI application, on the broker's own event loop.

uvicorn's ``Server`` is left out: it takes over signals and wakes up ten times a second. What it does besides,
listening and closing, is here.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import h11
from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from broker_core.server.listening_port import ListeningPort

logger = logging.getLogger(__name__)

_CONCURRENT_REQUESTS_MAX: Final = 128
"""Connections that HTTP clients may hold. A further one replaces the one that has kept the broker waiting longest;
only where all of them are being answered it is told to come back (503)."""

_CLIENT_S: Final = 15
"""A client has so long for its whole request, for its next one, and for taking any part of an answer."""

_CLOSE_S: Final = 1.0
"""Requests in progress get this long when the broker stops."""

_BYTES_A_TURN: Final = 2048
"""Bytes of one connection that are read in a turn. Cut into the smallest possible chunks, so many take ten
milliseconds."""


class _Connection(H11Protocol):
    """uvicorn's, which gives up waiting for a further request only. This one gives up waiting for anything that a
    client owes, takes much input in several turns of the loop, makes room for new connections, and ends whatever its
    client breaks."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        super().connection_made(transport)
        self._unread = b""
        self._deadline: asyncio.TimerHandle | None = None
        self._idle = True
        self.waiting_since: float | None = None
        self._wait_for_client()
        while len(self.connections) >= _CONCURRENT_REQUESTS_MAX and self._make_room():
            pass

    def connection_lost(self, exc: Exception | None) -> None:
        self._unread = b""
        self._client_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._idle:
            self._client_came()  # it begins its request, for which it has all the time again
        self._idle = False
        waits = bool(self._unread)
        self._unread += data
        if not waits:
            self._read_on()

    def on_response_complete(self) -> None:
        self._idle = True
        super().on_response_complete()
        self._client_came()
        self._wait_for_client()

    def send_400_response(self, msg: str) -> None:
        """Tell the client that its request is broken, unless it has begun to get an answer already. A handler that
        still works on that request cannot answer it any more."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None:
            cycle.disconnected = True
            cycle.message_event.set()

    def shutdown(self) -> None:
        if not self.transport.is_closing():
            super().shutdown()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_client()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._client_came()
        self._wait_for_client()

    def _read_on(self) -> None:
        piece, self._unread = self._unread[:_BYTES_A_TURN], self._unread[_BYTES_A_TURN:]
        if not piece:
            return
        if not self.transport.is_closing():
            self._act_on(piece)
        if self.transport.is_closing():
            self._unread = b""
        self._wait_for_client()
        if self._unread:
            self.transport.pause_reading()
            self.loop.call_soon(self._read_on)
        elif not self.flow.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def _act_on(self, piece: bytes) -> None:
        try:
            super().data_received(piece)
        except BaseException:
            self.transport.abort()  # else no code would read on, or notice that the client has gone
            raise

    def _wait_for_client(self) -> None:
        """Have a deadline exactly while the broker waits for the client."""
        cycle: RequestResponseCycle | None = self.cycle  # None until the first request, whatever its type says
        answering = cycle is not None and not cycle.response_complete and not cycle.more_body
        if (answering and not self.flow.write_paused) or self._unread:
            self._client_came()
        elif self._deadline is None:
            self.waiting_since = self.loop.time()
            self._deadline = self.loop.call_later(self.timeout_keep_alive, self._give_up)

    def _client_came(self) -> None:
        self.waiting_since = None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._client_came()
        if self.flow.write_paused or self.transport.is_closing():
            self.transport.abort()  # what is written would never be taken
        else:
            self.transport.close()
            self._wait_for_client()  # until it has taken what is written

    def _make_room(self) -> bool:
        """End the connection that has kept us waiting longest; False if there is none but this."""
        others = [each for each in self.connections if isinstance(each, _Connection) and each is not self]
        waiting = [each for each in others if each.waiting_since is not None]
        if not waiting:
            return False
        longest = min(waiting, key=lambda each: each.waiting_since or 0.0)
        self.connections.discard(longest)
        longest._give_up()
        logger.info(
            "connection closed for another one peer=%s reason=%s",
            longest.client,
            f"{_CONCURRENT_REQUESTS_MAX} HTTP connections are open, and this one kept the broker waiting longest",
        )
        return True


class HttpEndpoint:
    """The HTTP port of a broker."""

    def __init__(self, app: ASGIApp, *, idle_s: int = _CLIENT_S) -> None:
        self._config = Config(
            app,
            http=H11Protocol,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            ws="none",
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
            await asyncio.wait(list(self._state.tasks), timeout=_CLOSE_S)

    def _protocol(self) -> asyncio.Protocol:
        self.connections_made += 1
        nothing: dict[str, Any] = {}
        return _Connection(config=self._config, server_state=self._state, app_state=nothing)
