# SPDX-License-Identifier: Apache-2.0
"""Connections of one client: a shared one for each broker address, and dedicated ones for bulk readers.

Owns the connections: a user never closes a shared one. A dedicated one is closed by its user, or given back for the
next user; given back and not used it is closed after a while. A connection that has ended is forgotten, and the next
request opens a new one; waiting between attempts is the caller's part (``retrying``). Owns also how one is opened
(socket, TLS, handshake), the time that this may take, a second attempt with a newer credential, and the words of each
failure. Invariants: nothing is sent before the peer has proved over TLS who it is; a credential that was refused is not
tried again unless it has changed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from ipaddress import ip_address
from typing import Final

from broker_core.base.errors import (
    AlreadyClosedError,
    AuthenticationError,
    ConfigError,
    ConnectionLostError,
    OperationTimeoutError,
)
from broker_core.client.connecting.connection import Connection
from broker_core.client.connecting.identity import Identity
from broker_core.client.connecting.service_url import BrokerAddress
from broker_core.client.connecting.waiting import looked_at
from broker_core.client.credentials.tls import tls_failure
from broker_core.client.settings.config import ClientConfig
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

KEPT_S: Final = 60.0
"""Time for which a connection that was given back waits for its next user: longer than micro-batches are apart."""

GOODBYE_S_MAX: Final = 1.0
"""Time for the broker to stop sending after the consumer was closed; then a new connection is cheaper."""

KEPT_MAX: Final = 4
"""Waiting connections: as many as one process reads partitions at a time, not as many as it has ever read."""


_HINT_LED: Final = (
    "if that broker has just ended, try for longer: the cluster gives its topics to another once it is sure; "
    "else the address that it advertises cannot be reached from here"
)

_IPV6_PARTS: Final = 4
"""Host, port, flow, and the number of the network that the host is on, 0 for any."""


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
        timer = loop.call_later(GOODBYE_S_MAX, connection.close)

        def answered(goodbye: asyncio.Future[BaseCommand]) -> None:
            timer.cancel()
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


# -- opening a connection


async def open_connection(
    address: BrokerAddress, config: ClientConfig, identity: Identity, led: str = ""
) -> Connection:
    """Connect to ``address`` and shake hands. ``led``: who named it, in words for errors; "" if the service URL did.

    Raises ConnectionLostError if there is no answer, OperationTimeoutError, TlsError, AuthenticationError, ConfigError
    if a file of the client's cannot be used, or what the broker says.
    """
    context = await identity.context(address)
    credential = await identity.credential(address)
    try:
        return await _dialled(Connection(address, config, identity, credential), config, context, led)
    except AuthenticationError as answer:
        # The credential may have been renewed between being read and being sent, or the clocks differ.
        newer = await identity.credential(address, instead_of=credential)
        if newer == credential:
            raise identity.refused(address, credential, answer) from answer
    try:
        return await _dialled(Connection(address, config, identity, newer), config, context, led)
    except AuthenticationError as answer:
        raise identity.refused(address, newer, answer) from answer


async def _dialled(
    connection: Connection, config: ClientConfig, context: ssl.SSLContext | None, led: str
) -> Connection:
    address = connection.address
    what = f"broker {address}, {led}," if led else f"{address}"
    try:
        async with asyncio.timeout(config.connection_timeout_s) as whole:
            await _reached(connection, context, whole)
            await connection.handshake()
            return connection
    except TimeoutError:
        failure = OperationTimeoutError(f"{what} did not complete a handshake in {config.connection_timeout_s:g} s")
        connection.close(failure)
        raise failure from None
    except asyncio.CancelledError:
        connection.close()
        raise
    except ssl.SSLError as refused:
        raise tls_failure(refused, what.rstrip(",")) from refused
    except OSError as refused:
        raise _unconnected(refused, what.rstrip(","), led, tls=context is not None) from refused
    except ValueError as refused:  # by what looks up names, not by their servers
        words = f"cannot connect to {what.rstrip(',')}: that is no name of a host"
        if led:
            raise ConnectionLostError(words, hint=_HINT_LED) from refused
        raise ConfigError(words, hint="is the service URL right?") from refused


async def _reached(connection: Connection, context: ssl.SSLContext | None, whole: asyncio.Timeout) -> None:
    """Return when a socket is open, and TLS spoken: to the first of the name's addresses that answers.

    Each has its share of the time: a machine that is off does not answer at all.
    """
    loop = asyncio.get_running_loop()
    address = connection.address
    hosts = await _hosts_of(address)
    for left, host in zip(range(len(hosts), 0, -1), hosts, strict=True):
        ends = whole.when()
        share_s = (ends - loop.time()) / left if left > 1 and ends is not None else None
        try:
            async with asyncio.timeout(share_s):
                await loop.create_connection(
                    lambda: connection,
                    host,
                    address.port,
                    ssl=context,
                    server_hostname=address.host if context is not None else None,
                )
                return
        except OSError as failure:  # which a timeout is too
            if left == 1 or isinstance(failure, ssl.SSLError):
                raise


async def _hosts_of(address: BrokerAddress) -> list[str]:
    """Addresses of the name in ``address``, in their order."""
    with suppress(ValueError):
        ip_address(address.host)
        return [address.host]
    found = await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    if any(len(found_at) == _IPV6_PARTS and found_at[3] for *_, found_at in found):
        return [address.host]  # One that is good on one network of this machine only does not say on which by itself.
    return list(dict.fromkeys(str(found_at[0]) for *_, found_at in found)) or [address.host]


def _unconnected(refused: OSError, what: str, led: str, *, tls: bool) -> ConnectionLostError:
    if tls and isinstance(refused, ConnectionResetError):
        return ConnectionLostError(
            f"cannot connect to {what}: it closed the connection in the TLS handshake",
            hint="is that its port for TLS, 6651 by custom? Without TLS it is pulsar://",
        )
    why = refused.strerror or str(refused)
    hint = _HINT_LED if led else "is a broker running there, and is the service URL right?"
    return ConnectionLostError(f"cannot connect to {what}: {why}", hint=hint)
