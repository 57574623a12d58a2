# SPDX-License-Identifier: Apache-2.0
"""ASGI middleware: the identity of the client of every HTTP request, in ``scope["identity"]``; None at an open broker.

Credentials come in the header Authorization, or as the client's certificate; never in the query, which ends in logs.
``X-Pulsar-Auth-Method-Name`` names the method; without it the form of the credentials does. Nothing is answered without
them, not even that a path does not exist, but for ``OPEN_PATHS`` and, by a setting, ``/metrics``. A refusal never tells
its reason. Source: Pulsar docs, "Security - Authentication"; RFC 9110, section 11; RFC 6750; RFC 7617.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Mapping
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from broker_core.base.errors import PulsarishError, ServiceNotReadyError, TooManyRequestsError
from broker_core.server.admin.answers import refusal
from broker_core.server.security.identity import AuthenticationFailedError, Credentials, Identity
from broker_core.server.session import Node

logger = logging.getLogger(__name__)

OPEN_PATHS: Final = frozenset({"/admin/v2/brokers/ready", "/admin/v2/brokers/version"})
"""Paths that tell nothing but that a broker is there, and of which version."""

METRICS_PATHS: Final = frozenset({"/metrics", "/metrics/"})

_READING: Final = frozenset({"GET", "HEAD"})

_METHOD_HEADER: Final = "x-pulsar-auth-method-name"

_METHOD_OF_SCHEME: Final = {"bearer": "token", "basic": "basic"}

_STATUSES: Final[Mapping[type[PulsarishError], int]] = {TooManyRequestsError: 429, ServiceNotReadyError: 503}


class Identification:
    """Lets only requests through whose client is known, or need not be."""

    def __init__(self, app: ASGIApp, node: Node) -> None:
        self._app = app
        self._authentication = node.authentication
        self._open_paths = OPEN_PATHS
        if not node.settings.authenticate_metrics_endpoint:
            self._open_paths |= METRICS_PATHS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["identity"] = None
        if self._authentication.is_required and not self._is_open(scope):
            try:
                scope["identity"] = await self._identity(scope)
            except PulsarishError as error:
                _tell(scope, error)
                await _refuse(error, scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_open(self, scope: Scope) -> bool:
        return scope["path"] in self._open_paths and scope["method"] in _READING

    async def _identity(self, scope: Scope) -> Identity:
        client = scope.get("client")
        found = self._authentication.check(self._credentials(scope), client[0] if client else "")
        return found if isinstance(found, Identity) else await found

    def _credentials(self, scope: Scope) -> Credentials:
        """Credentials by the header that names their method, or by their own form."""
        headers = Headers(scope=scope)
        certificate: bytes | None = scope.get("certificate")
        scheme, _, given = headers.get("authorization", "").strip().partition(" ")
        method = _METHOD_OF_SCHEME.get(scheme.lower(), "")
        named = headers.get(_METHOD_HEADER)
        if scheme and not method:
            raise AuthenticationFailedError("the header Authorization has a scheme of no method")
        if named is None:
            is_certified = not scheme and certificate is not None and "tls" in self._authentication.methods
            named = "tls" if is_certified else method
        elif method and method != named:
            raise AuthenticationFailedError("the header Authorization is not of the method that is named")
        return Credentials(named, _data(method, given.strip()), certificate)


def _data(method: str, given: str) -> bytes:
    if method != "basic":
        return given.encode("latin-1", "replace")
    try:
        return base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        raise AuthenticationFailedError("the header Authorization is not base64") from None


def _tell(scope: Scope, error: PulsarishError) -> None:
    client = scope.get("client")
    peer = f"{client[0]}:{client[1]}" if client else "unknown"
    logger.info("authentication failed peer=%s reason=%s", peer, error)


async def _refuse(error: PulsarishError, scope: Scope, receive: Receive, send: Send) -> None:
    status = _STATUSES.get(type(error), 401)
    answer = refusal(status, str(error) if status != 401 else "Authentication failed")
    if status == 401:
        answer.headers["WWW-Authenticate"] = "Bearer"
    await answer(scope, receive, send)
