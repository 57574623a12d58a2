# SPDX-License-Identifier: Apache-2.0
"""Requests of the admin REST over kept connections, and on to the broker to which an answer redirects.

A broker of a cluster redirects a request about a topic that another one serves. Invariant: a request that was begun
with TLS never travels without; no error repeats a password. Knows no path and no credential.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import SplitResult, urlsplit

from broker_core.base.errors import ConfigError, ConnectionLostError, OperationTimeoutError, RemoteProtocolError
from broker_core.client.credentials.tls import TlsSettings, tls_failure

REDIRECTS_MAX: Final = 5
"""Redirects of one request: one leads to the owner of a bundle; more only while that changes hands."""

_ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
"""A stats answer of a large namespace is megabytes; more than this is not an admin answer."""

_REDIRECTS: Final = (HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.PERMANENT_REDIRECT)


class AdminTransport:
    """Connections to the admin port ``url``, and to those to which it redirects. Not thread-safe."""

    def __init__(self, url: str, timeout_s: float, tls: TlsSettings, given_by: str = "") -> None:
        """ConfigError if that is no address, or ``tls`` cannot be used. ``given_by``: the option that names ``url``."""
        if "@" in url:
            raise ConfigError(
                "the admin URL names a user or a password, which is not used", hint="give an authentication beside it"
            )
        parts = _usable_parts(url)
        if parts is None:
            raise ConfigError(f'"{url}" is not an admin URL', hint="write http://HOST:PORT")
        self._first = _place(url)
        self._timeout_s = timeout_s
        self._tls = tls
        self._which = f"the admin port ({given_by})" if given_by else "the admin port"
        self._connections = {self._first: self._connect(parts)}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def ask(
        self, method: str, path: str, body: str | None, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """The answer that is no redirect, with its content; the errors of the common tree where there is none."""
        url = f"{self._first}{path}"
        for _ in range(REDIRECTS_MAX + 1):
            answer, content = self._ask(method, url, body, headers)
            if answer.status not in _REDIRECTS:
                return answer, content
            url = self._next(url, answer.headers["Location"] or "")
        raise RemoteProtocolError(
            f"the request {method} {path} was redirected {REDIRECTS_MAX} times, last to {_place(url)}",
            hint="do the brokers of the cluster agree who serves it? Try again",
        )

    def _next(self, url: str, target: str) -> str:
        """The URL to which a redirect leads."""
        if "@" in target:
            raise RemoteProtocolError(f"the admin port at {_place(url)} redirects to a URL that names a user")
        parts = _usable_parts(target)
        if parts is None:
            raise RemoteProtocolError(f'the admin port at {_place(url)} redirects to "{target}", which is no admin URL')
        if parts.scheme != "https" and urlsplit(url).scheme == "https":
            raise RemoteProtocolError(
                f"the admin port at {_place(url)} redirects to {_place(target)}, which is without TLS",
                hint="give each broker of the cluster a webServicePortTls",
            )
        return target

    def _ask(
        self, method: str, url: str, body: str | None, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        place, parts = _place(url), urlsplit(url)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        try:
            if (connection := self._connections.get(place)) is None:
                connection = self._connections[place] = self._connect(parts)
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            return answer, answer.read(_ANSWER_BYTES_MAX)
        except TimeoutError as error:
            raise OperationTimeoutError(
                f"the admin port at {place} did not answer in {self._timeout_s:g} s",
                hint="give it a longer timeout, or look whether the broker is busy",
            ) from error
        except ssl.SSLError as error:
            raise tls_failure(error, f"the admin port at {place}") from error
        except OSError as error:
            raise ConnectionLostError(
                f"no broker answers at {place}: {error.strerror or error}",
                hint=f"start one with: pulsarish serve, or check the address of {self._which}",
            ) from error
        except http.client.HTTPException as error:
            # Its text would be whatever came instead of an answer.
            raise ConnectionLostError(
                f"no broker answers at {place}: what came is not an answer in HTTP ({type(error).__name__})",
                hint=f"check the address of {self._which}; it is not the port of the service URL",
            ) from error

    def _connect(self, parts: SplitResult) -> http.client.HTTPConnection:
        """A connection over which nothing was sent yet."""
        assert parts.hostname is not None
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.hostname, parts.port, timeout=self._timeout_s)
        context = self._tls.context()
        return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=self._timeout_s, context=context)


def _usable_parts(url: str) -> SplitResult | None:
    """Parts of an URL that can be asked; None if it cannot."""
    try:
        parts = urlsplit(url)
        return parts if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 else None
    except ValueError:
        return None


def _place(url: str) -> str:
    """The scheme and the address of an URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
