# SPDX-License-Identifier: Apache-2.0
"""``Authentication``: who may come in at all, by the methods that have settings.

Owns which method is on, that an error in a check is a refusal, and how many slow checks there may be. Connections and
HTTP requests ask it; how they answer is theirs. Settings that contradict each other, or name files that cannot be used,
stop the start. Providers are imported when a setting needs them, so a broker that is open loads no cryptography.
Source: Pulsar docs, "Security - Authentication".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from broker_core.base.clock import Clock
from broker_core.base.errors import ConfigError, PulsarishError, ServiceNotReadyError, TooManyRequestsError
from broker_core.base.secret import Secret
from broker_core.base.settings import Settings
from broker_core.server.security.data_directory import OwnersToken
from broker_core.server.security.failed_attempts import FailedAttempts
from broker_core.server.security.identity import (
    ANONYMOUS_METHODS,
    AuthenticationFailedError,
    Credentials,
    Identity,
    Provider,
    SlowProvider,
    checked_role,
)
from broker_core.server.security.reach import is_open

logger = logging.getLogger(__name__)

_THREADS: Final = 2
"""Slow checks at a time: each may take a whole processor, and some memory."""

_WAITING_MAX: Final = 64
"""Slow checks that may wait for a thread: those behind them would time out anyway."""


class Authentication:
    """Identifies clients by their credentials. Without any provider and role, the broker is open to all."""

    def __init__(self, providers: Mapping[str, Provider], anonymous_role: str, clock: Clock) -> None:
        """``providers`` by the names of their methods. ``anonymous_role`` is for clients that show no credentials; "":
        they are refused."""
        self.failed_attempts = FailedAttempts(clock)
        self.anonymous_role = anonymous_role
        self.when_failed: Callable[[Credentials, str], None] | None = None
        """Told of credentials that proved nothing, and of the address that showed them."""
        self._providers = dict(providers)
        self._threads: ThreadPoolExecutor | None = None
        self._slow_checks = 0

    @property
    def is_required(self) -> bool:
        """Whether a client must prove who it is."""
        return bool(self._providers or self.anonymous_role)

    @property
    def methods(self) -> frozenset[str]:
        """The methods that are on."""
        return frozenset(self._providers)

    def know_owner(self, token: Secret) -> None:
        """Let in the owner of the data directory by its ``token``; other clients need credentials of their own."""
        self._providers["token"] = OwnersToken(token, self._providers.get("token"))

    def identify(self, credentials: Credentials) -> Identity:
        """Whose the credentials are. AuthenticationFailedError: nobody's. May take long for a slow method."""
        if credentials.method in ANONYMOUS_METHODS:
            if not self.anonymous_role:
                raise AuthenticationFailedError("the client has shown no credentials")
            return Identity(self.anonymous_role)
        try:
            return self._provider(credentials).identify(credentials)
        except AuthenticationFailedError:
            raise
        except Exception as error:  # whatever a check trips over, it has not found the credentials good
            logger.exception("authentication failed by a bug method=%s", credentials.method)
            raise AuthenticationFailedError(f"the check failed: {type(error).__name__}") from None

    def check(self, credentials: Credentials, address: str) -> Identity | asyncio.Future[Identity]:
        """As ``identify``, on the event loop: what takes long gives a future. Failures count for ``address``.

        TooManyRequestsError, ServiceNotReadyError: nothing was checked, and later it may be.
        """
        provider = self._providers.get(credentials.method)
        if isinstance(provider, SlowProvider):
            return provider.remembered(credentials) or self._begin_slow_check(credentials, address)
        try:
            return self.identify(credentials)
        except AuthenticationFailedError:
            self._failed(credentials, address)
            raise

    def _failed(self, credentials: Credentials, address: str) -> None:
        if credentials.method not in ANONYMOUS_METHODS:
            self.failed_attempts.add(address)
        if self.when_failed is not None:
            self.when_failed(credentials, address)

    def close(self) -> None:
        """Begin no more checks."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _provider(self, credentials: Credentials) -> Provider:
        if (provider := self._providers.get(credentials.method)) is None:
            raise AuthenticationFailedError("there are no settings for this method")
        return provider

    def _begin_slow_check(self, credentials: Credentials, address: str) -> asyncio.Future[Identity]:
        self._refuse_guessers(address)
        if self._slow_checks >= _WAITING_MAX:
            raise ServiceNotReadyError("too many passwords are being checked; try again in a moment")
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, "authentication")
        self._slow_checks += 1
        result = asyncio.wrap_future(self._threads.submit(self._check_slowly, credentials, address))

        def on_done(done: asyncio.Future[Identity]) -> None:
            self._slow_checks -= 1
            if not done.cancelled() and isinstance(done.exception(), AuthenticationFailedError):
                self._failed(credentials, address)

        result.add_done_callback(on_done)
        return result

    def _check_slowly(self, credentials: Credentials, address: str) -> Identity:
        self._refuse_guessers(address)  # others of the address may have failed while this one waited
        return self.identify(credentials)

    def _refuse_guessers(self, address: str) -> None:
        if self.failed_attempts.are_too_many(address):
            raise TooManyRequestsError("too many authentications from this address have failed; try again in a moment")


def authentication_of(settings: Settings, clock: Clock) -> Authentication:
    """The authentication that ``settings`` ask for. ConfigError: they cannot be meant so."""
    if settings.authentication_enabled and is_open(settings):
        raise ConfigError(
            "authenticationEnabled is set beside openToLocalUsers or openToNetwork: clients are asked, or they are not",
            hint="set one of them",
        )
    if not settings.authentication_enabled:
        if left := _set_in_vain(settings):
            raise ConfigError(
                f"{left} is set, and authenticationEnabled is not: every client would be let in",
                hint=f"set authenticationEnabled = true, or remove {left}",
            )
        return Authentication({}, "", clock)
    providers = _providers(settings, clock)
    if not providers:
        raise ConfigError(
            "authenticationEnabled is set, and no method has settings: nobody could come in",
            hint="set tokenSecretKey, tokenPublicKey or basicAuthConf, or tlsTrustCertsFilePath with a port for TLS",
        )
    if settings.anonymous_user_role:
        try:
            checked_role(settings.anonymous_user_role)
        except PulsarishError as error:
            raise ConfigError(f"anonymousUserRole cannot be a role: {error}", hint="choose another one") from None
    return Authentication(providers, settings.anonymous_user_role, clock)


def _set_in_vain(settings: Settings) -> str:
    """A setting that means nothing without authenticationEnabled, and promises that it is on; "" if there is none."""
    promises = {
        "tokenSecretKey": settings.token_secret_key,
        "tokenPublicKey": settings.token_public_key,
        "basicAuthConf": settings.basic_auth_conf,
        "anonymousUserRole": settings.anonymous_user_role,
    }
    return next((name for name, value in promises.items() if value), "")


def _providers(settings: Settings, clock: Clock) -> dict[str, Provider]:
    found: dict[str, Provider] = {}
    if settings.token_secret_key or settings.token_public_key:
        from broker_core.server.security.tokens import token_provider

        found["token"] = token_provider(settings, clock)
    if settings.basic_auth_conf:
        from broker_core.server.security.passwords import PasswordProvider

        found["basic"] = PasswordProvider(settings.basic_auth_conf, clock)
    if settings.tls_trust_certs_file_path and _has_tls(settings):
        from broker_core.server.security.certificates import CertificateProvider

        found["tls"] = CertificateProvider(clock)
    return found


def _has_tls(settings: Settings) -> bool:
    return max(settings.broker_service_port_tls, settings.web_service_port_tls) >= 0
