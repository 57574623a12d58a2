# SPDX-License-Identifier: Apache-2.0
"""ASGI middleware: a line of the log for each HTTP request that is refused, with the reason that its client is told."""

from __future__ import annotations

import logging
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger(__name__)

_REFUSED_FROM: Final = 400
"""The first status that means a refusal."""

_SHOWN_BYTES_MAX: Final = 400
"""How much of a path or an answer is logged; a reason is a sentence or two."""


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
