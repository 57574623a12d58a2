# SPDX-License-Identifier: Apache-2.0
"""Connections of one client: one shared connection for each broker address, and dedicated ones for bulk readers.

Owns the connections; whoever gets one never closes a shared one. A connection that has ended is forgotten and opened
anew by the next who asks; waiting between attempts is the asker's business (``retrying``).
"""

from __future__ import annotations

import asyncio

from broker_core.base.errors import AlreadyClosedError
from broker_core.client.config import ClientConfig
from broker_core.client.connection import Connection, open_connection
from broker_core.client.service_url import BrokerAddress


class ConnectionPool:
    """Opens, shares and finally closes connections."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._shared: dict[BrokerAddress, asyncio.Task[Connection]] = {}
        self._dedicated: set[Connection] = set()
        self._closed = False

    async def shared(self, address: BrokerAddress) -> Connection:
        """The connection to ``address`` that everybody uses."""
        self._check_open()
        task = self._shared.get(address)
        if task is None or (task.done() and not _is_usable(task)):
            task = asyncio.create_task(open_connection(address, self._config))
            self._shared[address] = task
        # Shielded, because others may wait for the same connection when one gives up.
        return await asyncio.shield(task)

    async def dedicated(self, address: BrokerAddress) -> Connection:
        """A connection for one user alone, who may pause it and closes it."""
        self._check_open()
        connection = await open_connection(address, self._config)
        self._dedicated = {each for each in self._dedicated if each.is_open}
        self._dedicated.add(connection)
        return connection

    async def close(self) -> None:
        """Close every connection and wait until the sockets are closed."""
        self._closed = True
        tasks = list(self._shared.values())
        self._shared.clear()
        for task in tasks:
            task.cancel()
        opened = await asyncio.gather(*tasks, return_exceptions=True)
        connections = [each for each in opened if isinstance(each, Connection)]
        connections += self._dedicated
        self._dedicated = set()
        for connection in connections:
            connection.close()
        await asyncio.gather(*(connection.wait_closed() for connection in connections))

    def _check_open(self) -> None:
        if self._closed:
            raise AlreadyClosedError("the client was closed")


def _is_usable(task: asyncio.Task[Connection]) -> bool:
    return not task.cancelled() and task.exception() is None and task.result().is_open
