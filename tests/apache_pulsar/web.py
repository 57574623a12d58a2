# SPDX-License-Identifier: Apache-2.0
"""``Web``: the web port of a real Apache Pulsar, and calls of its admin REST API as one role.

Owns how such a call travels: with TLS or without, with a role's token, on to where a broker redirects. Knows no path.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

CALL_S_MAX: Final = 120.0
REDIRECTS_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Web:
    """Where to call: ``url`` is http or https; ``ca`` is the file of the CA to trust, for https."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    ca: str | None = None

    def call(self, method: str, path: str, body: str | None = None) -> str:
        """The answer of this broker, or of the one to which it redirects; RuntimeError for a refusal, or OSError."""
        url = f"{self.url}{path}"
        for _ in range(REDIRECTS_MAX):
            answer, text = self._ask(method, url, body)
            if answer.status < 300:
                return text
            if answer.status != http.HTTPStatus.TEMPORARY_REDIRECT:
                raise RuntimeError(f"{method} {url}: {answer.status} {text}")
            url = answer.headers["Location"]
        raise RuntimeError(f"{method} {path} was redirected {REDIRECTS_MAX} times")

    def _ask(self, method: str, url: str, body: str | None) -> tuple[http.client.HTTPResponse, str]:
        parts = urlsplit(url)
        connection = self._connection(parts.scheme, parts.netloc)
        headers = {**self.headers, **({} if body is None else {"Content-Type": "application/json"})}
        try:
            connection.request(method, f"{parts.path}?{parts.query}", body, headers)
            answer = connection.getresponse()
            return answer, answer.read().decode()
        finally:
            connection.close()

    def _connection(self, scheme: str, place: str) -> http.client.HTTPConnection:
        if scheme == "http":
            return http.client.HTTPConnection(place, timeout=CALL_S_MAX)
        return http.client.HTTPSConnection(
            place, timeout=CALL_S_MAX, context=ssl.create_default_context(cafile=self.ca)
        )
