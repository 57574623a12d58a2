# SPDX-License-Identifier: Apache-2.0
"""A TCP port that is taken before anybody is let in, so that its number is known while the broker still starts.

Knows nothing of what is spoken on it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Final

from broker_core.base.invariants import invariant

_BACKLOG_DEFAULT: Final = 100
"""Clients that may wait to be let in; asyncio's own default."""


class ListeningPort:
    """One port: ``bind``, ``start``, ``close``."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None

    async def bind(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int, backlog: int = _BACKLOG_DEFAULT
    ) -> int:
        """Take the port without accepting yet: clients wait. Returns it; it is new for ``port`` 0.

        OSError if it cannot be had.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(protocol, host, port, backlog=backlog, start_serving=False)
        for bound_socket in self._server.sockets:
            # Two who start at the same moment may both bind; only one may listen, and uvloop would not tell the other.
            with socket.socket(fileno=os.dup(bound_socket.fileno())) as same:
                same.listen(backlog)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def start(self) -> None:
        """Accept clients from now on; each gets a new ``protocol``."""
        invariant(self._server is not None, "start before bind")
        await self._server.start_serving()  # type: ignore[union-attr] # the line above

    def close(self) -> None:
        """Accept no more clients. Those that are there stay."""
        if self._server is not None:
            self._server.close()
