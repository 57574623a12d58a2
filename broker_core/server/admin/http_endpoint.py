# SPDX-License-Identifier: Apache-2.0
"""The HTTP/1.1 port of a broker: connections, as h11 reads them, whose requests go to an ASGI application. The scope of
a request has the certificate of its client, DER, as ``certificate``; None without TLS or without one.

A client has a bounded time for each request, for the next one, and for taking any part of an answer. Its input is read
a little in each turn of the loop. A broken request gets a 400, or the end of the connection where its answer has begun.
Sources: RFC 9112; the ASGI specification 3.0, HTTP; h11's documentation.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import unquote_to_bytes

import h11
from starlette.types import ASGIApp, Message, Scope

from broker_core.server.admin.answers import refusal
from broker_core.server.listening_port import ListeningPort
from broker_core.server.security.tls_connection import client_certificate

logger = logging.getLogger(__name__)

READ_BYTES: Final = 2048
"""Bytes of one connection that are read in a turn. Cut into the smallest possible chunks, so many take ten
milliseconds."""

_HEAD_BYTES_MAX: Final = 64 * 1024
"""The longest head of a request."""

_CONNECTIONS_MAX: Final = 128
"""Connections that HTTP clients may hold. A further one replaces the one that has kept the broker waiting longest;
only where all of them are being answered it is told to come back (503)."""

_CLIENT_S: Final = 15
"""A client has so long for its whole request, for its next one, and for taking any part of an answer."""

_CLOSE_S: Final = 1.0
"""Requests in progress get this long when the broker stops."""

_BUSY: Final = refusal(503, "too many requests are being answered; try again later")


class HttpConnection(asyncio.Protocol):
    """A connection from its first byte to its end: its input in small pieces, its output with back pressure.

    ``client_s``: seconds for a request, for the next one, and for taking any part of an answer.
    """

    def __init__(self, app: ASGIApp, client_s: float, endpoint: HttpEndpoint) -> None:
        self._app, self._client_s, self._endpoint = app, client_s, endpoint
        self._loop = asyncio.get_running_loop()
        self._http = h11.Connection(h11.SERVER, _HEAD_BYTES_MAX)
        self._transport: asyncio.Transport
        self._unread = b""
        self._has_input, self._has_room, self._is_lost = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._deadline = self._loop.time() + client_s
        self._has_ended = False
        self._is_idle = True
        self._is_last = False
        self.waiting_since: float | None = None
        """Since when the broker waits for the client; None while the client waits for the broker."""

    # -- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._has_room.set()
        self.waiting_since = self._loop.time()
        self._endpoint.made(self)
        self._serving = self._loop.create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        self._unread += data
        self._transport.pause_reading()
        self._has_input.set()

    def eof_received(self) -> bool:
        self._has_ended = True
        self._has_input.set()
        return True  # a client that has nothing more to send may still wait for its answer

    def pause_writing(self) -> None:
        self._has_room.clear()

    def resume_writing(self) -> None:
        self._has_room.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._has_ended = True
        for event in (self._is_lost, self._has_input, self._has_room):
            event.set()

    # -- called by the endpoint

    @property
    def peer(self) -> tuple[str, int] | None:
        """The client's address and port."""
        return _address(self._transport.get_extra_info("peername"))

    def give_up(self) -> None:
        """End a connection that waits for its client."""
        if self._has_room.is_set():
            self._transport.close()
        else:
            self._transport.abort()  # the rest of the answer would never be taken

    def finish(self) -> None:
        """End the connection behind the answer that is under way, or at once."""
        self._is_last = True
        if self._is_idle:
            self._transport.close()

    # -- requests

    async def _serve(self) -> None:
        """Answer requests until the client goes, breaks the protocol or takes too long."""
        try:
            while (request := await self._request()) is not None and await self._answer(request):
                self._http.start_next_cycle()
                self._is_idle = True
                self._deadline = self._loop.time() + self._client_s
        except h11.RemoteProtocolError as error:
            await self.refuse(error)
        finally:
            await self._end()
            self._endpoint.lost(self)

    async def _request(self) -> h11.Request | None:
        """The next request; None where the connection has ended."""
        event = await self.next_event()
        return event if isinstance(event, h11.Request) and not self._is_last else None

    async def _answer(self, request: h11.Request) -> bool:
        """Have the application answer; False where no further request can follow."""
        exchange = _Exchange(self, request, self._scope(request))
        app = _BUSY if self._endpoint.is_crowded() else self._app
        try:
            await app(exchange.scope, exchange.receive, exchange.send)
        except Exception:  # its client gets no answer, or has it; the broker goes on
            logger.exception("request failed method=%s path=%s", exchange.scope["method"], exchange.scope["path"])
        while self._http.our_state is h11.DONE and self._http.their_state is h11.SEND_BODY:
            await self.next_event()  # the application needed no body, or not all of it
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE and not self._is_last

    def _scope(self, request: h11.Request) -> Scope:
        path, _, query = request.target.partition(b"?")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": request.http_version.decode("ascii"),
            "method": request.method.decode("ascii"),
            "scheme": "http" if self._transport.get_extra_info("ssl_object") is None else "https",
            "path": unquote_to_bytes(path).decode("utf-8", "replace"),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": list(request.headers),
            "client": self.peer,
            "server": _address(self._transport.get_extra_info("sockname")),
            "certificate": client_certificate(self._transport),
        }

    # -- events, each read and written under the client's time

    async def next_event(self) -> h11.Event | None:
        """The next piece of what the client sends; None at its end. RemoteProtocolError where that is broken."""
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                await self.write(h11.InformationalResponse(status_code=100, headers=[]))
            await self._read()
        return event if isinstance(event, h11.Event) and not isinstance(event, h11.ConnectionClosed) else None

    async def write(self, event: h11.Event) -> None:
        """Send a part of an answer, and wait until most of what was sent is taken. A client that has gone gets none."""
        if self._transport.is_closing():
            return
        if data := self._http.send(event):
            self._transport.write(data)
        if not self._has_room.is_set():
            self.waiting_since = self._loop.time()
            if not await self._in_time(self._has_room, self.waiting_since + self._client_s):
                self._transport.abort()
            self.waiting_since = None

    async def refuse(self, error: h11.RemoteProtocolError) -> None:
        """Tell the client that its request is broken, unless it has begun to get an answer, and end the connection."""
        error.__traceback__ = None  # a frame of h11 in it has the error: a circle that would keep the connection
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            text = f"{error}\n".encode()
            headers = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(text)))]
            headers.append(("Connection", "close"))
            await self.write(h11.Response(status_code=error.error_status_hint, headers=headers))
            await self.write(h11.Data(data=text))
            await self.write(h11.EndOfMessage())
        self._transport.close()

    async def until_lost(self) -> None:
        """Return when the connection has ended."""
        await self._is_lost.wait()

    async def _read(self) -> None:
        """Hand the next bytes to h11; none, which is the end, where the client has gone or its time is over."""
        self.waiting_since = self._loop.time()
        if not await self._in_time(self._has_input, self._deadline):
            self._transport.close()
        self.waiting_since = None
        piece, self._unread = self._unread[:READ_BYTES], self._unread[READ_BYTES:]
        if self._is_idle and piece:
            self._is_idle = False  # the request begins, for which the client has all the time again
            self._deadline = self._loop.time() + self._client_s
        self._http.receive_data(piece)
        if not self._unread and not self._has_ended and not self._transport.is_closing():
            self._has_input.clear()
            self._transport.resume_reading()
        await asyncio.sleep(0)  # a turn for everybody else

    async def _end(self) -> None:
        """Close; the client has the usual time to take the end of its answer."""
        self._transport.close()
        self.waiting_since = self._loop.time()
        if not await self._in_time(self._is_lost, self.waiting_since + self._client_s):
            self._transport.abort()
            await self.until_lost()

    async def _in_time(self, event: asyncio.Event, deadline: float) -> bool:
        """Wait for ``event``; False if it did not come until ``deadline`` (seconds of the loop's clock)."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                return await event.wait()
        return False


class _Exchange:
    """One request and its answer in the words of ASGI."""

    def __init__(self, connection: HttpConnection, request: h11.Request, scope: Scope) -> None:
        self._connection = connection
        self._is_head = request.method == b"HEAD"
        self._has_body = True
        self._head: h11.Response | None = None
        self.scope = scope

    async def receive(self) -> Message:
        """A piece of the body; behind its end, the end of the connection."""
        if not self._has_body:
            await self._connection.until_lost()
            return {"type": "http.disconnect"}
        try:
            event = await self._connection.next_event()
        except h11.RemoteProtocolError as error:
            await self._connection.refuse(error)
            event = None
        self._has_body = isinstance(event, h11.Data)
        if event is None:
            return {"type": "http.disconnect"}
        body = bytes(event.data) if isinstance(event, h11.Data) else b""
        return {"type": "http.request", "body": body, "more_body": self._has_body}

    async def send(self, message: Message) -> None:
        """Send a piece of the answer; its head leaves with the first piece."""
        if message["type"] == "http.response.start":
            status = HTTPStatus(message["status"])
            headers = message.get("headers", [])
            self._head = h11.Response(status_code=status, headers=headers, reason=status.phrase.encode())
            return
        head, self._head = self._head, None
        if head is not None:
            await self._connection.write(head)
        if (body := message.get("body", b"")) and not self._is_head:
            await self._connection.write(h11.Data(data=body))
        if not message.get("more_body", False):
            await self._connection.write(h11.EndOfMessage())


def _address(name: Any) -> tuple[str, int] | None:
    """The host and port of a socket's name."""
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) else None


class HttpEndpoint(ListeningPort[HttpConnection]):
    """The HTTP port of a broker."""

    def __init__(self, app: ASGIApp, *, client_s: float = _CLIENT_S) -> None:
        super().__init__(lambda: HttpConnection(app, client_s, self))

    def made(self, connection: HttpConnection) -> None:
        if len(self.connections) >= _CONNECTIONS_MAX:
            self._make_room()
        super().made(connection)

    def is_crowded(self) -> bool:
        """Whether one more request has no place; it is then told to come back (503)."""
        return len(self.connections) > _CONNECTIONS_MAX

    async def close(self) -> None:
        """Accept no more, let requests in progress end for a moment, close."""
        self.stop_listening()
        for connection in list(self.connections):
            connection.finish()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self.all_gone()
        except TimeoutError:
            logger.info("requests cut off by the end of the broker connections=%d", len(self.connections))

    def _make_room(self) -> None:
        """End the connection that has kept the broker waiting longest, if there is one."""
        waiting = [(each.waiting_since, each) for each in self.connections if each.waiting_since is not None]
        if not waiting:
            return
        _, longest = min(waiting, key=lambda each: each[0])
        self.connections.discard(longest)
        longest.give_up()
        logger.info(
            "connection closed for another one peer=%s reason=%s",
            longest.peer,
            f"{_CONNECTIONS_MAX} HTTP connections are open, and this one kept the broker waiting longest",
        )
