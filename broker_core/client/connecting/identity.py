# SPDX-License-Identifier: Apache-2.0
"""Identity of a client towards brokers: its credential as of now, its TLS context, and the words if a broker refuses
it.

Files are read and issuers asked away from the event loop, one at a time, so that many connections that open together
ask once. Knows nothing of what a connection sends. Invariant: no text that leaves here holds a credential.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Final

from broker_core.base.errors import (
    AuthenticationError,
    ConfigError,
    OperationTimeoutError,
)
from broker_core.base.secret import Secret
from broker_core.client.connecting.service_url import BrokerAddress
from broker_core.client.connecting.waiting import looked_at, outcome_of
from broker_core.client.credentials.authentication import HINT_NOBODY, Authentication, OwnersToken
from broker_core.client.settings.config import ClientConfig

logger = logging.getLogger(__name__)

_HINT_SAME: Final = (
    "have a new one made; from a file (tokenFile), a function or OAuth2 it is taken as soon as it is there"
)


class Identity:
    """Made once for each client, on its event loop."""

    def __init__(self, config: ClientConfig) -> None:
        self._authentication = config.identity
        self._tls = config.tls
        self._timeout_s = config.operation_timeout_s
        self._one_at_a_time = asyncio.Lock()
        self._asking: asyncio.Future[Secret] | None = None
        self._context: tuple[tuple[object, ...], ssl.SSLContext] | None = None
        self._warned = False

    def method(self, credential: Secret) -> str:
        """The protocol's name of how the client authenticates with ``credential``, its own or a data directory's."""
        if self._authentication is not None:
            return self._authentication.method
        return OwnersToken.method if credential else "none"

    async def credential(self, address: BrokerAddress, instead_of: Secret | None = None) -> Secret:
        """The credential to send to ``address``; ``instead_of``: one that was not accepted, which may come again.

        ConfigError if there is none, AuthenticationError if an issuer refuses, or a retriable error.
        """
        authentication = self._authentication or OwnersToken(str(address))
        try:
            async with asyncio.timeout(self._timeout_s), self._one_at_a_time:
                return await self._asked(authentication, instead_of)
        except TimeoutError:
            raise OperationTimeoutError(f"{authentication} was not to be had in {self._timeout_s:g} s") from None

    async def context(self, address: BrokerAddress) -> ssl.SSLContext | None:
        """The TLS context of a connection to ``address``; None if it is not encrypted. ConfigError if a file cannot be
        used."""
        if not address.tls:
            self._warn_of_plain(address)
            return None
        async with self._one_at_a_time:
            stamp, context = await asyncio.to_thread(self._fresh_context)
            self._context = stamp, context
        return context

    def refused(self, address: BrokerAddress, credential: Secret, answer: AuthenticationError) -> AuthenticationError:
        """The error that a user sees for the ``answer`` of a broker."""
        said = f'the broker said "{answer.message}"'
        if self._authentication is None and not credential:
            return AuthenticationError(f"{address} wants to know who you are: {said}", hint=HINT_NOBODY)
        authentication = self._authentication or OwnersToken(str(address))
        why = authentication.why_refused(credential)
        return AuthenticationError(
            f"{address} does not accept {authentication}: {why or said}",
            hint=_HINT_SAME if why else "is it a credential of this cluster, and is this way to authenticate on there?",
        )

    async def _asked(self, authentication: Authentication, instead_of: Secret | None) -> Secret:
        """Ask on another thread, one at a time: a caller that gives up leaves it behind, and there are few."""
        if self._asking is not None:
            await asyncio.wait([self._asking])
        self._asking = asyncio.ensure_future(asyncio.to_thread(authentication.asked, instead_of))
        self._asking.add_done_callback(looked_at)
        return await outcome_of(self._asking)

    def _fresh_context(self) -> tuple[tuple[object, ...], ssl.SSLContext]:
        """The last context, unless one of its files has changed, and all can be used; on another thread.

        A certificate and its key are two files: a connection between their renewals is made with the former pair, as in
        the Java client, and the files are looked at again for the next one.
        """
        stamp = self._tls.stamp()
        if self._context is not None and self._context[0] == stamp:
            return self._context
        try:
            return stamp, self._tls.context()
        except ConfigError as failure:
            if self._context is None:
                raise
            logger.warning("changed certificate files cannot be used error=%s serving=%s", failure, "the former ones")
            return self._context

    def _warn_of_plain(self, address: BrokerAddress) -> None:
        way = "none" if self._authentication is None else self._authentication.method
        if way not in ("none", "tls") and not address.is_this_machine and not self._warned:
            self._warned = True
            logger.warning(
                "credentials travel unencrypted peer=%s advice=%r", address, "use the TLS port: pulsar+ssl://"
            )
