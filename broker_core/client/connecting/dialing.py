# SPDX-License-Identifier: Apache-2.0
"""Opening a connection: socket, TLS, handshake, and in what words each of them fails.

Owns the time that this may take, and a second attempt with a newer credential. Invariants: nothing is sent before the
peer has proved over TLS who it is; a credential that was refused is not tried again unless it has changed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from ipaddress import ip_address
from typing import Final

from broker_core.base.errors import AuthenticationError, ConfigError, ConnectionLostError, OperationTimeoutError
from broker_core.client.connecting.connection import Connection
from broker_core.client.connecting.identity import Identity
from broker_core.client.connecting.service_url import BrokerAddress
from broker_core.client.credentials.tls import tls_failure
from broker_core.client.settings.config import ClientConfig

_HINT_LED: Final = (
    "if that broker has just ended, try for longer: the cluster gives its topics to another once it is sure; "
    "else the address that it advertises cannot be reached from here"
)

_IPV6_PARTS: Final = 4
"""Host, port, flow, and the number of the network that the host is on, 0 for any."""


async def open_connection(
    address: BrokerAddress, config: ClientConfig, identity: Identity, led: str = ""
) -> Connection:
    """Connect to ``address`` and shake hands. ``led``: who named it, in words for errors; "" if the service URL did.

    Raises ConnectionLostError if there is no answer, OperationTimeoutError, TlsError, AuthenticationError, ConfigError
    if a file of the client's cannot be used, or what the broker says.
    """
    context = await identity.context(address)
    credential = await identity.credential()
    try:
        return await _dialled(Connection(address, config, identity, credential), config, context, led)
    except AuthenticationError as answer:
        # It may have been renewed between being read and being sent, or the clocks differ.
        newer = await identity.credential(instead_of=credential)
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
    places = await _places_of(address)
    for left, place in zip(range(len(places), 0, -1), places, strict=True):
        ends = whole.when()
        share_s = (ends - loop.time()) / left if left > 1 and ends is not None else None
        try:
            async with asyncio.timeout(share_s):
                await loop.create_connection(
                    lambda: connection,
                    place,
                    address.port,
                    ssl=context,
                    server_hostname=address.host if context is not None else None,
                )
                return
        except OSError as failure:  # which a timeout is too
            if left == 1 or isinstance(failure, ssl.SSLError):
                raise


async def _places_of(address: BrokerAddress) -> list[str]:
    """What ``address`` is to be called by: the addresses of its name, in their order."""
    with suppress(ValueError):
        ip_address(address.host)
        return [address.host]
    found = await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    if any(len(place) == _IPV6_PARTS and place[3] for *_, place in found):
        return [address.host]  # One that is good on one network of this machine only does not say on which by itself.
    return list(dict.fromkeys(str(place[0]) for *_, place in found)) or [address.host]


def _unconnected(refused: OSError, what: str, led: str, *, tls: bool) -> ConnectionLostError:
    if tls and isinstance(refused, ConnectionResetError):
        return ConnectionLostError(
            f"cannot connect to {what}: it closed the connection in the TLS handshake",
            hint="is that its port for TLS, 6651 by custom? Without TLS it is pulsar://",
        )
    why = refused.strerror or str(refused)
    hint = _HINT_LED if led else "is a broker running there, and is the service URL right?"
    return ConnectionLostError(f"cannot connect to {what}: {why}", hint=hint)
