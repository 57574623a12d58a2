# SPDX-License-Identifier: Apache-2.0
"""Connections of one client: one shared connection for each broker address, and dedicated ones for bulk readers.

Owns the connections: a user never closes a shared one. A dedicated one is closed by its user, or given back for the
next user; given back and not used it is closed after a while. A connection that has ended is forgotten, and the next
request opens a new one; waiting between attempts is the caller's part (``retrying``).
"""

from __future__ import annotations

import asyncio
from typing import Final

from broker_core.base.errors import AlreadyClosedError
from broker_core.client.connecting.connection import Connection
from broker_core.client.connecting.dialing import open_connection
from broker_core.client.connecting.identity import Identity
from broker_core.client.connecting.service_url import BrokerAddress
from broker_core.client.settings.config import ClientConfig
from broker_core.loop.waiting import looked_at
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

KEPT_S: Final = 60.0
"""How long a connection that was given back waits for its next user: longer than micro-batches are apart."""

GOODBYE_S_MAX: Final = 1.0
"""How long the broker may take to stop sending after the consumer was closed; then a new connection is cheaper."""

KEPT_MAX: Final = 4
"""How many wait at most: as many as one process reads partitions at a time, not as many as it has ever read."""


class ConnectionPool:
    """Opens, shares and finally closes connections."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._identity = Identity(config)
        self._shared: dict[BrokerAddress, asyncio.Task[Connection]] = {}
        self._dedicated: set[Connection] = set()
        self._kept: dict[Connection, asyncio.TimerHandle] = {}
        self._closed = False

    async def shared(self, address: BrokerAddress, led: str = "") -> Connection:
        """The connection to ``address`` that everybody uses; ``led``: who named it, "" for the service URL."""
        self._check_open()
        task = self._shared.get(address)
        if task is None or (task.done() and not _is_usable(task)):
            task = asyncio.create_task(open_connection(address, self._config, self._identity, led))
            task.add_done_callback(looked_at)
            self._shared[address] = task
        if not task.done():
            await asyncio.wait([task])  # others may wait for the same connection when one gives up
        if task.cancelled():
            self._check_open()  # Who waits is not cancelled by the client's close, but told of it.
        return task.result()

    async def dedicated(self, address: BrokerAddress, led: str = "") -> Connection:
        """A connection for one user alone, who may pause it, and closes it or gives it back."""
        self._check_open()
        for connection in [each for each in self._kept if each.address == address]:
            self._kept.pop(connection).cancel()
            if connection.is_open:
                return connection
        connection = await open_connection(address, self._config, self._identity, led)
        if self._closed:
            connection.close()
            self._check_open()
        self._dedicated = {each for each in self._dedicated if each.is_open}
        self._dedicated.add(connection)
        return connection

    def give_back(self, connection: Connection, goodbye: asyncio.Future[BaseCommand]) -> None:
        """A dedicated connection for the next user, once the broker has answered the last one's ``goodbye``.

        What was still on its way to that one has arrived before, so the connection is as good as new then.
        """
        loop = asyncio.get_running_loop()
        patience = loop.call_later(GOODBYE_S_MAX, connection.close)

        def answered(goodbye: asyncio.Future[BaseCommand]) -> None:
            patience.cancel()
            if goodbye.cancelled() or goodbye.exception() or self._closed or len(self._kept) >= KEPT_MAX:
                connection.close()
            else:
                self._kept[connection] = loop.call_later(KEPT_S, self._drop, connection)

        connection.resume_reading()
        goodbye.add_done_callback(answered)

    def _drop(self, connection: Connection) -> None:
        del self._kept[connection]
        connection.close()

    async def close(self) -> None:
        """Close every connection and wait until the sockets are closed."""
        self._closed = True
        for timer in self._kept.values():
            timer.cancel()
        self._kept.clear()
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
