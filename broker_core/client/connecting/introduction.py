# SPDX-License-Identifier: Apache-2.0
"""How one connection says who the client is: the CONNECT command, and a newer credential where the broker asks for one.

Owns what the broker was told last. Knows nothing of where credentials come from, nor of the socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from broker_core import __version__
from broker_core.base.errors import AuthenticationError, PulsarishError
from broker_core.base.limits import PROTOCOL_VERSION
from broker_core.base.secret import Secret
from broker_core.client.connecting.identity import Identity
from broker_core.client.connecting.service_url import BrokerAddress
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

CLIENT_VERSION: Final = f"Pulsarish-Python-v{__version__}"


class Introduction:
    """Introduces one client to the broker at ``address``, beginning with ``credential``."""

    def __init__(self, address: BrokerAddress, identity: Identity, credential: Secret) -> None:
        self._address = address
        self._identity = identity
        self._credential = credential
        """What the broker was told last."""
        self._loop = asyncio.get_running_loop()
        self._renewal: asyncio.Task[None] | None = None

    def connect_command(self) -> BaseCommand:
        """What a connection begins with."""
        connect = pb.CommandConnect(
            client_version=CLIENT_VERSION,
            protocol_version=PROTOCOL_VERSION,
            auth_method_name=self._identity.method,
            auth_data=self._credential.reveal().encode() or None,
            feature_flags=pb.FeatureFlags(
                supports_auth_refresh=True,
                supports_broker_entry_metadata=True,
                supports_get_partitioned_metadata_without_auto_creation=True,
            ),
        )
        if self._address.proxied_for:
            connect.proxy_to_broker_url = self._address.proxied_for
        return BaseCommand(type=BaseCommand.CONNECT, connect=connect)

    def renew(self, answer: Callable[[BaseCommand], None], fail: Callable[[PulsarishError], None]) -> None:
        """The broker does not take the credential for much longer: ``answer`` with another one, or ``fail``."""
        if self._renewal is None or self._renewal.done():
            self._renewal = self._loop.create_task(self._renew(answer, fail))

    async def _renew(self, answer: Callable[[BaseCommand], None], fail: Callable[[PulsarishError], None]) -> None:
        try:
            self._credential = await self._identity.credential(instead_of=self._credential)
        except PulsarishError as failure:
            fail(failure)
            return
        data = pb.AuthData(auth_method_name=self._identity.method, auth_data=self._credential.reveal().encode())
        said = pb.CommandAuthResponse(client_version=CLIENT_VERSION, response=data, protocol_version=PROTOCOL_VERSION)
        answer(BaseCommand(type=BaseCommand.AUTH_RESPONSE, authResponse=said))

    def refused(self, answer: AuthenticationError) -> AuthenticationError:
        """The error that a user sees where the broker does not take us any more."""
        return self._identity.refused(self._address, self._credential, answer)

    def stop(self) -> None:
        """The connection has ended, perhaps by a renewal that failed."""
        if self._renewal is not None and self._renewal is not asyncio.current_task(self._loop):
            self._renewal.cancel()
