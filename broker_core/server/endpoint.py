# SPDX-License-Identifier: Apache-2.0
"""Where Pulsar clients connect: the listening socket, and the set of connections.

More than ``max_connections`` are told so and closed.
"""

from __future__ import annotations

import asyncio
from typing import Final

from broker_core.server.connection import Connection
from broker_core.server.listening_port import ListeningPort
from broker_core.server.session import Node

_BACKLOG: Final = 1024
"""Connections that may wait to be accepted: a restart of the broker brings all clients back at once."""


class Endpoint:
    """The Pulsar port of a broker."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._connections: set[Connection] = set()
        self._port = ListeningPort()
        self._all_gone = asyncio.Event()
        self.connections_made = 0

    async def bind(self, host: str, port: int) -> int:
        """Take the port without accepting yet. Returns it; it is new for ``port`` 0. OSError if it cannot be had."""
        return await self._port.bind(self._connection, host, port, _BACKLOG)

    async def start(self) -> None:
        """Accept clients from now on."""
        await self._port.start()

    @property
    def connections_open(self) -> int:
        return len(self._connections)

    def stop_accepting(self) -> None:
        """Refuse new clients and take nothing more from those that are there."""
        self._port.close()
        for connection in self._connections:
            connection.stop_reading()

    async def close(self) -> None:
        """End all connections; what is queued for them is sent first."""
        for connection in self._connections:
            # Or what one client had would be given to the next one, while the first does not know of its end yet.
            connection.deliver_nothing_more()
        for connection in list(self._connections):
            connection.close()
        while self._connections:
            self._all_gone.clear()
            await self._all_gone.wait()

    def made(self, connection: Connection) -> str:
        self._connections.add(connection)
        self.connections_made += 1
        limit = self._node.settings.max_connections
        if len(self._connections) <= limit:
            return ""
        return f"the broker serves {limit} connections already (maxConnections)"

    def lost(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._all_gone.set()

    def _connection(self) -> Connection:
        return Connection(self._node, self, self._loop)
