# SPDX-License-Identifier: Apache-2.0
"""``Login``: the credentials of one connection, from CONNECT to their end.

    nobody --begin--> [checking] --> identified --at the expiry--> asked --AUTH_RESPONSE--> [checking] --> identified
                          |              |                           |                          |
                          '-> refused    '-> closed: the client      '-> closed: no answer      '-> refused, or closed:
                                             cannot be asked             within the grace            another role

No connection outlives its credentials by more than ``GRACE_S``, whatever else CONNECT has said. A refusal never tells
its reason, which is logged. While a check runs, nothing of the client is acted on.
Source: Pulsar docs, "Binary protocol - Connection establishment"; PIP-30; CVE-2023-31007.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from broker_core.base.clock import Clock, TimerHandle, Timers
from broker_core.base.errors import AuthenticationError, PulsarishError, ServerError
from broker_core.base.limits import PROTOCOL_VERSION
from broker_core.server.channels import SERVER_VERSION, ClientFeatures
from broker_core.server.security.authentication import Authentication
from broker_core.server.security.identity import AuthenticationFailedError, Credentials, Identity
from broker_core.wire import commands
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

logger = logging.getLogger(__name__)

GRACE_S: Final = 30.0
"""Seconds for which a client may look for fresh credentials after it was asked."""

UNASKED_S: Final = 1.0
"""Seconds between two credentials that a client shows unasked."""

ANSWER_DELAY_S: Final = 1.0
"""Seconds for which a client waits for its refusal where its address has failed too often."""

_LOOK_S_MIN: Final = 0.001
_LOOK_S_MAX: Final = 30.0
"""The expiry is compared with the clock at least this often: a clock can be set, and machines sleep. The clock counts
in milliseconds."""

FAILED: Final = "Failed to authenticate"
"""The text of each refusal, as that of Pulsar's broker."""

_UNRENEWABLE: Final = "tls"
"""A certificate is that of the connection, for all its life."""

_METHOD_SHOWN_MAX: Final = 40
"""Characters of a method's name in the log."""


class ClientLink(Protocol):
    """The link to the client, as far as its login concerns it."""

    peer_address: str
    certificate: bytes | None
    features: ClientFeatures

    def send(self, command: BaseCommand) -> None: ...


class ClientConnection(Protocol):
    """The connection, likewise."""

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def hang_up(self, reason: str, error: ServerError | None = None) -> None: ...
    def close(self) -> None: ...
    def admitted(self) -> None: ...


class Login:
    """The login of one connection. ``identity`` is None until the client is known, and where nobody asks."""

    __slots__ = (
        "_asked", "_authentication", "_clock", "_connection", "_is_over", "_link", "_method", "_timer", "_timers",
        "_unasked_s", "identity", "is_checking",
    )  # fmt: skip

    def __init__(
        self,
        authentication: Authentication,
        clock: Clock,
        timers: Timers,
        connection: ClientConnection,
        link: ClientLink,
    ) -> None:
        self._authentication = authentication
        self._clock = clock
        self._timers = timers
        self._connection = connection
        self._link = link
        self._method = ""
        self._timer: TimerHandle | None = None
        self._asked = False
        self._unasked_s = -UNASKED_S
        self._is_over = False
        self.identity: Identity | None = None
        self.is_checking = False
        """Nothing that the client has sent behind its credentials may be acted on."""

    def begin(self, method: str, data: bytes, welcome: Callable[[], None]) -> None:
        """The client shows its first credentials; ``welcome`` is called once they are found good. An open broker looks
        at none."""
        if not self._authentication.is_required:
            welcome()
            return
        self._method = method

        def proven(identity: Identity) -> None:
            self.identity = identity
            self._connection.admitted()
            welcome()
            self._watch(identity)  # behind the welcome: a client understands nothing before it

        self._check(data, proven)

    def renew(self, method: str, data: bytes) -> None:
        """The client shows other credentials, as a rule because it was asked for them."""
        if self.identity is None:
            return  # an open broker
        if not self._asked:
            now_s = self._clock.monotonic()
            if now_s - self._unasked_s < UNASKED_S:
                self._connection.hang_up("AUTH_RESPONSE came unasked more than once a second")
                return
            self._unasked_s = now_s
        if method != self._method:
            self.refuse(AuthenticationFailedError("the method has changed"))
            return
        self._check(data, self._renewed)

    def stop(self) -> None:
        """The connection has ended."""
        self._is_over = True
        self._disarm()

    # -- checking

    def _check(self, data: bytes, proven: Callable[[Identity], None]) -> None:
        credentials = Credentials(self._method, data, self._link.certificate)
        try:
            found = self._authentication.check(credentials, self._address)
        except PulsarishError as error:
            self._fail(error)
            return
        if isinstance(found, Identity):
            proven(found)
            return
        self._pause()
        found.add_done_callback(partial(self._checked, proven))

    def _checked(self, proven: Callable[[Identity], None], result: asyncio.Future[Identity]) -> None:
        if result.cancelled() or self._is_over:
            return
        error = result.exception()
        if error is None:
            proven(result.result())
            self.is_checking = False
            self._connection.resume_reading()
        elif isinstance(error, PulsarishError):
            self._fail(error)

    def _fail(self, error: PulsarishError) -> None:
        if self._authentication.failed_attempts.are_too_many(self._address):
            self._disarm()
            self._pause()
            self._timer = self._timers.call_later(ANSWER_DELAY_S, partial(self.refuse, error))
        else:
            self.refuse(error)

    def refuse(self, error: PulsarishError) -> None:
        """End the connection. A ServerError may help the client to do better; all others are for the log."""
        logger.info(
            "authentication failed peer=%s method=%s reason=%s",
            self._link.peer_address,
            self._method[:_METHOD_SHOWN_MAX],
            error,
        )
        told = error if isinstance(error, ServerError) else AuthenticationError(FAILED)
        self._connection.hang_up(str(told), told)

    def _pause(self) -> None:
        if not self.is_checking:
            self.is_checking = True
            self._connection.pause_reading()

    @property
    def _address(self) -> str:
        return self._link.peer_address.rpartition(":")[0]

    # -- the end of credentials

    def _hold(self, identity: Identity) -> None:
        self.identity = identity
        self._asked = False
        self._disarm()
        self._watch(identity)

    def _renewed(self, identity: Identity) -> None:
        known = self.identity
        if known is not None and (identity.role, identity.is_owner) != (known.role, known.is_owner):
            self._end("fresh credentials are those of another role")
        else:
            self._hold(identity)

    def _watch(self, identity: Identity) -> None:
        """Look again when the credentials end."""
        if identity.expires_s is None or self._is_over:
            return
        left_s = identity.expires_s - self._clock.now_ms() / 1000
        if left_s > 0:
            wait_s = min(max(left_s, _LOOK_S_MIN), _LOOK_S_MAX)
            self._timer = self._timers.call_later(wait_s, partial(self._watch, identity))
        elif self._method != _UNRENEWABLE and self._link.features.auth_refresh:
            self._asked = True
            self._link.send(commands.auth_challenge(SERVER_VERSION, PROTOCOL_VERSION, self._method))
            self._timer = self._timers.call_later(GRACE_S, partial(self._end, "no fresh credentials came in time"))
        else:
            self._end("the credentials have expired")

    def _end(self, reason: str) -> None:
        logger.info("connection closed peer=%s reason=%s", self._link.peer_address, reason)
        self._connection.close()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
