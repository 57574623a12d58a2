# SPDX-License-Identifier: Apache-2.0
"""Opening a connection: socket, TLS, handshake, and in what words each of them fails.

Owns the time that this may take, and a second attempt with a newer credential. Invariants: nothing is sent before the
peer has proved over TLS who it is; a credential that was refused is not tried again unless it has changed.
"""

from __future__ import annotations

import asyncio
import ssl
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
        async with asyncio.timeout(config.connection_timeout_s):
            await asyncio.get_running_loop().create_connection(
                lambda: connection,
                address.host,
                address.port,
                ssl=context,
                server_hostname=address.host if context is not None else None,
            )
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


def _unconnected(refused: OSError, what: str, led: str, *, tls: bool) -> ConnectionLostError:
    if tls and isinstance(refused, ConnectionResetError):
        return ConnectionLostError(
            f"cannot connect to {what}: it closed the connection in the TLS handshake",
            hint="is that its port for TLS, 6651 by custom? Without TLS it is pulsar://",
        )
    why = refused.strerror or str(refused)
    hint = _HINT_LED if led else "is a broker running there, and is the service URL right?"
    return ConnectionLostError(f"cannot connect to {what}: {why}", hint=hint)
