# SPDX-License-Identifier: Apache-2.0
"""What every HTTP request must pass before a handler sees it.

There is no authentication yet, so the port is for this machine only, and "this machine" includes any web page open
in a browser on it. Two checks keep pages out: the Host must be a name of the loopback address (a page that rebinds
its own name to 127.0.0.1 keeps that name in Host), and a request that a page of another site caused is refused
(Origin, Sec-Fetch-Site; every current browser sends one of them with anything that can change something).

Topic names may contain an encoded slash. Routes therefore match the path as it was sent, still encoded; handlers
decode each part.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from broker_core.server.admin.answers import refusal

BODY_BYTES_MAX: Final = 256 * 1024
"""Largest request body. Policies and subscription properties are far smaller."""


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
        problem = _foreign(headers)
        if problem:
            await refusal(403, problem)(scope, receive, send)
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
