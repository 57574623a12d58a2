# SPDX-License-Identifier: Apache-2.0
"""ASGI middleware: the way of every HTTP request to a handler, and of its answer back.

*On the way in.* Web pages are open in browsers that reach the port, too. Two checks keep pages out: the Host must be a
name of the broker's (a page that rebinds its own name to the broker's address keeps it in Host), and a request that a
page of another site caused is refused (Origin, Sec-Fetch-Site; every current browser sends one of them with anything
that can change something). A header on which a check relies may be there once only: of two, another reader of the
request may go by the other one. Who the client is, ``identification`` finds out behind them.
A query that is no percent-encoded UTF-8 and a body in another encoding are refused for all routes: handlers would see
something else than what was sent. Topic names may contain an encoded slash, so routes match the path as it was sent,
still encoded; handlers decode each part.

*On the way back.* Handlers change the catalogue at once and say so; the next group commit makes it durable, and no
answer begins to leave before that. If it fails, the answer is dropped, and the broker stops. A refusal is logged with
the reason that its client is told.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Final, TypeVar
from urllib.parse import unquote_to_bytes, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from broker_core.base.settings import Settings
from broker_core.base.turns import Chore, Kind, Turns, Worker
from broker_core.server.admin.answers import begun, refusal
from broker_core.server.security.reach import is_called
from broker_core.storage.commit import GroupCommit

logger = logging.getLogger(__name__)

T = TypeVar("T")

BODY_BYTES_MAX: Final = 256 * 1024
"""Largest request body. Policies and subscription properties are far smaller."""

_ONCE: Final = (
    *("host", "origin", "sec-fetch-site", "content-encoding"),
    *("authorization", "x-pulsar-auth-method-name", "x-original-principal"),
)
"""Headers on which a check relies. HTTP's parser refuses a second Host and Content-Length by itself."""

_BAD_ESCAPE: Final = re.compile(b"%(?![0-9A-Fa-f]{2})")

_REFUSED_FROM: Final = 400
"""The first status that means a refusal."""

_SHOWN_BYTES_MAX: Final = 400
"""How much of a path or an answer is logged; a reason is a sentence or two."""


class TooLargeError(Exception):
    """The body turned out to be larger than allowed."""


class Guard:
    """ASGI middleware: loopback names only, no foreign pages, bodies of bounded size, encoded paths."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        status, problem = _refused(headers, scope["query_string"], self._settings)
        if problem:
            await refusal(status, problem)(scope, receive, send)
            return
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > BODY_BYTES_MAX:
            await refusal(413, f"a request body may have {BODY_BYTES_MAX} bytes")(scope, receive, send)
            return
        scope["path"] = scope["raw_path"].decode("ascii", "replace")
        await self._app(scope, _bounded(receive), send)


def _bounded(receive: Receive) -> Receive:
    left = BODY_BYTES_MAX

    async def receive_some() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise TooLargeError
        return message

    return receive_some


def _refused(headers: Headers, query: bytes, settings: Settings) -> tuple[int, str]:
    """Status and reason where no handler may see the request; the reason is "" where one may."""
    for name in _ONCE:
        if (count := len(headers.getlist(name))) > 1:
            return 400, f"the request has {count} headers {name.title()!r}; send one"
    if problem := _foreign(headers, settings):
        return 403, problem
    if (encoding := headers.get("content-encoding", "identity")) != "identity":
        return 415, f"a body in Content-Encoding {encoding[:80]!r} is not read; send it as it is, without this header"
    return 400, _unreadable(query)


def _unreadable(query: bytes) -> str:
    """Why the query cannot be read, or ""."""
    shown = query[:80].decode("ascii", "replace")
    if _BAD_ESCAPE.search(query):
        return f"the query {shown!r} has a % that is not written as %25"
    try:
        unquote_to_bytes(query).decode()
    except UnicodeDecodeError:
        return f"the query {shown!r} is not percent-encoded UTF-8 text"
    return ""


def _foreign(headers: Mapping[str, str], settings: Settings) -> str:
    """Why the request may come from a page of another site, or ""."""
    host = headers.get("host", "")
    if not is_called(_name_in(host), settings):
        names = settings.advertised_address or "127.0.0.1 or localhost"
        return f"Host {host[:80]!r} is not a name of this broker; use {names}"
    origin = headers.get("origin")
    if origin is not None and _netloc(origin) != host:
        return "requests from pages of other sites are refused (Origin)"
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return "requests from pages of other sites are refused (Sec-Fetch-Site)"
    return ""


def _netloc(origin: str) -> str:
    """The host and port of a page's origin; empty, which is no Host that passes, if it is no URL, such as "null"."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _name_in(host: str) -> str:
    """The name or address in a Host header, in small letters; "" if there is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


class DurableAnswers:
    """Holds the answers of an application back until ``commits`` has recorded all changes."""

    def __init__(self, app: ASGIApp, commits: GroupCommit) -> None:
        self._app = app
        self._commits = commits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_when_durable(message: Message) -> None:
            if message["type"] == "http.response.start":
                await begun(self._commits.when_recorded)
            await send(message)

        await self._app(scope, receive, send_when_durable)


class RefusalLog:
    """Logs what ``app`` refuses."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 0

        async def send_and_log(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif status >= _REFUSED_FROM:
                _tell(scope, status, message.get("body", b""))
                status = 0  # one line for one answer
            await send(message)

        await self._app(scope, receive, send_and_log)


def _tell(scope: Scope, status: int, body: bytes) -> None:
    client, path = scope.get("client"), scope.get("raw_path", b"")
    logger.info(
        "request refused peer=%s method=%s path=%s status=%d answer=%s",
        f"{client[0]}:{client[1]}" if client else "unknown",
        scope.get("method", ""),
        _shown(path),
        status,
        _shown(body),
    )


def _shown(text: bytes) -> str:
    return text[:_SHOWN_BYTES_MAX].decode("utf-8", "replace")


class RequestTurns:
    """Turns of the loop for HTTP requests, so that many of them delay no other work of the broker for long."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._one = asyncio.Lock()

    async def turn(self) -> None:
        """Return when it is the caller's turn; no two requests have theirs in one turn of the loop."""
        async with self._one:
            await self._result(self._turns.later, _nothing())

    async def in_turns(self, steps: Generator[None, None, T]) -> T:
        """The result of ``steps``, between which others have their turns."""
        return await self._result(self._turns.came, steps)

    async def _result(self, begin: Callable[[Worker], None], steps: Generator[None, None, T]) -> T:
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def work() -> Iterator[None]:
            try:
                found = yield from steps
            except Exception as error:  # noqa: BLE001 - whoever waits for the result gets it
                if not result.done():
                    result.set_exception(error)
            else:
                if not result.done():
                    result.set_result(found)

        begin(Chore(Kind.REQUESTS, work()))
        return await result


def _nothing() -> Generator[None, None, None]:
    yield from ()


class OneATurn:
    """ASGI middleware: no two requests begin in one turn of the loop."""

    def __init__(self, app: ASGIApp, turns: RequestTurns) -> None:
        self._app = app
        self._turns = turns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._turns.turn()
        await self._app(scope, receive, send)
