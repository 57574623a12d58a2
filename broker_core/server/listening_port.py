# SPDX-License-Identifier: Apache-2.0
"""A TCP port and the connections that clients have to it. The port is taken before anybody is let in, so that its
number is known while the broker still starts. Knows nothing of what is spoken on it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Generic, TypeVar

from broker_core.base.invariants import invariant

C = TypeVar("C", bound=asyncio.BaseProtocol)


class ListeningPort(Generic[C]):
    """One port: ``bind``, ``start``, ``stop_listening``; each client gets a new ``protocol``.

    ``backlog``: clients that may wait to be let in. ``connections``: those that are there.
    """

    def __init__(self, protocol: Callable[[], C], *, backlog: int = 100) -> None:
        self._protocol = protocol
        self._backlog = backlog
        self._server: asyncio.Server | None = None
        self._all_gone = asyncio.Event()
        self.connections: set[C] = set()
        self.connections_made = 0

    async def bind(self, host: str, port: int) -> int:
        """Take the port without accepting yet: clients wait. Returns it; it is new for ``port`` 0.

        OSError if it cannot be had.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._protocol, host, port, backlog=self._backlog, start_serving=False)
        for bound_socket in self._server.sockets:
            # Two who start at the same moment may both bind; only one may listen, and uvloop would not tell the other.
            with socket.socket(fileno=os.dup(bound_socket.fileno())) as same:
                same.listen(self._backlog)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def start(self) -> None:
        """Accept clients from now on."""
        invariant(self._server is not None, "start before bind")
        await self._server.start_serving()  # type: ignore[union-attr] # the line above

    def stop_listening(self) -> None:
        """Accept no more clients. Those that are there stay."""
        if self._server is not None:
            self._server.close()

    @property
    def connections_open(self) -> int:
        return len(self.connections)

    def made(self, connection: C) -> None:
        """A client is there."""
        self.connections_made += 1
        self.connections.add(connection)

    def lost(self, connection: C) -> None:
        """A client has gone."""
        self.connections.discard(connection)
        if not self.connections:
            self._all_gone.set()

    async def all_gone(self) -> None:
        """Return when no connection is left."""
        while self.connections:
            self._all_gone.clear()
            await self._all_gone.wait()
