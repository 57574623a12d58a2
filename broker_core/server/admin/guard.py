# SPDX-License-Identifier: Apache-2.0
"""What every HTTP request must pass before a handler sees it.

There is no authentication yet, so the port is for this machine only, and "this machine" includes any web page open
in a browser on it. Two checks keep pages out: the Host must be a name of the loopback address (a page that rebinds
its own name to 127.0.0.1 keeps that name in Host), and a request that a page of another site caused is refused
(Origin, Sec-Fetch-Site; every current browser sends one of them with anything that can change something). A header on
which a check relies may be there once only: of two, another reader of the request may go by the other one.

A query that is no percent-encoded UTF-8 and a body in another encoding are refused here, for all routes: handlers would
see something else than what was sent.

Topic names may contain an encoded slash. Routes therefore match the path as it was sent, still encoded; handlers
decode each part.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote_to_bytes, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from broker_core.server.admin.answers import refusal

BODY_BYTES_MAX: Final = 256 * 1024
"""Largest request body. Policies and subscription properties are far smaller."""


_ONCE: Final = ("host", "origin", "sec-fetch-site", "content-encoding")
"""Headers on which a check relies. HTTP's parser refuses a second Host and Content-Length by itself."""

_BAD_ESCAPE: Final = re.compile(b"%(?![0-9A-Fa-f]{2})")


class TooLargeError(Exception):
    """The body turned out to be larger than allowed."""


class Guard:
    """ASGI middleware: loopback names only, no foreign pages, bodies of bounded size, encoded paths."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        status, problem = _refused(headers, scope["query_string"])
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


def _refused(headers: Headers, query: bytes) -> tuple[int, str]:
    """Status and reason where no handler may see the request; the reason is "" where one may."""
    for name in _ONCE:
        if (count := len(headers.getlist(name))) > 1:
            return 400, f"the request has {count} headers {name.title()!r}; send one"
    if problem := _foreign(headers):
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


def _foreign(headers: Mapping[str, str]) -> str:
    """Why the request does not come from this machine's own user, or ""."""
    host = headers.get("host", "")
    if not _is_loopback_name(host):
        return f"Host {host[:80]!r} is not a name of the loopback address; use 127.0.0.1 or localhost"
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


def _is_loopback_name(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
