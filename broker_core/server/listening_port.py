# SPDX-License-Identifier: Apache-2.0
"""A TCP port, with another one for TLS perhaps, and the connections that clients have to both. The ports are taken
before anybody is let in, so that their numbers are known while the broker still starts. Knows not what is spoken.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Generic, TypeVar

from broker_core.base.turns import Turns
from broker_core.server.security.tls import ServerTls
from broker_core.server.security.tls_connection import Handshakes, Protocol, TlsConnection

C = TypeVar("C", bound=Protocol)


class ListeningPort(Generic[C]):
    """``bind``, ``bind_tls`` or both, then ``start``, at last ``stop_listening``; each client gets a new ``protocol``.

    ``backlog``: clients that may wait to be let in. ``connections``: those that are there, of both ports.
    """

    def __init__(self, protocol: Callable[[], C], *, backlog: int = 100) -> None:
        self._protocol = protocol
        self._backlog = backlog
        self._servers: list[asyncio.Server] = []
        self._handshakes: Handshakes | None = None
        self._all_gone = asyncio.Event()
        self.connections: set[C] = set()
        self.connections_made = 0

    async def bind(self, host: str, port: int) -> int:
        """Take the port without accepting yet: clients wait. Returns it; it is new for ``port`` 0.

        OSError if it cannot be had.
        """
        return await self._bind(self._protocol, host, port)

    async def bind_tls(self, host: str, port: int, tls: ServerTls, turns: Turns) -> int:
        """As ``bind``, for clients that speak TLS from their first byte on. ``turns``: in which handshakes are made."""
        handshakes = self._handshakes = Handshakes(tls, turns)
        return await self._bind(lambda: TlsConnection(self._protocol, handshakes), host, port)

    async def _bind(self, protocol: Callable[[], Protocol], host: str, port: int) -> int:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(protocol, host, port, backlog=self._backlog, start_serving=False)
        self._servers.append(server)
        for bound_socket in server.sockets:
            # Two who start at the same moment may both bind; only one may listen, and uvloop would not tell the other.
            with socket.socket(fileno=os.dup(bound_socket.fileno())) as same:
                same.listen(self._backlog)
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    async def start(self) -> None:
        """Accept clients from now on."""
        for server in self._servers:
            await server.start_serving()

    def stop_listening(self) -> None:
        """Accept no more clients. Those that are there stay."""
        for server in self._servers:
            server.close()
        if self._handshakes is not None:
            self._handshakes.close()

    @property
    def connections_open(self) -> int:
        """Connections that are there, and handshakes that are under way."""
        return len(self.connections) + (0 if self._handshakes is None else self._handshakes.count)

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
