# SPDX-License-Identifier: Apache-2.0
"""OAuth2, client credentials: a client id and a secret are exchanged for tokens at an issuer.

Owns the discovery of the issuer's token endpoint, the exchange, and how long a token is kept. Knows nothing of brokers.
Invariants: nothing is sent to an issuer whose certificate is not verified, nor unencrypted but to this machine; a token
is renewed before it ends, serves to its end while the issuer cannot be asked, and is renewed at once if a broker does
not take it; the key file is read again for each exchange.
Source: RFC 6749 section 4.4; OpenID Connect Discovery 1.0; Pulsar docs, "Authentication using OAuth 2.0".
"""

from __future__ import annotations

import base64
import json
import logging
import math
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from urllib.parse import unquote_to_bytes, urlsplit

from broker_core.base.clock import Clock, SystemClock
from broker_core.base.errors import (
    AuthenticationError,
    ConfigError,
    ConnectionLostError,
    OperationTimeoutError,
    PulsarishError,
    RemoteProtocolError,
)
from broker_core.base.secret import Secret
from broker_core.client.credentials.authentication import BearerAuthentication, read_file
from broker_core.client.credentials.tls import TlsSettings, tls_failure

if TYPE_CHECKING:
    import httpx

logger = logging.getLogger(__name__)

ANSWER_S_MAX: Final = 10.0
"""Time limit of one request to the issuer."""

RENEWED_EARLY: Final = 0.1
"""The share of a token's life that is left when it is renewed."""

_DISCOVERY: Final = "/.well-known/openid-configuration"
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_HINT_KEY: Final = 'it holds JSON: {"client_id": "...", "client_secret": "..."}'


class ClientKey(NamedTuple):
    """Key by which the issuer knows a client. ``issuer_url``: "" if the key does not say."""

    client_id: str
    client_secret: Secret
    issuer_url: str = ""


class _Token(NamedTuple):
    text: Secret
    renew_at_s: float
    ends_at_s: float


class AuthenticationOAuth2(BearerAuthentication):
    """Tokens of an OAuth2 issuer, by client credentials."""

    def __init__(
        self,
        issuer_url: str,
        client_id: str,
        client_secret: str | Secret,
        *,
        audience: str = "",
        scope: str = "",
        trust_certs_file_path: str = "",
        clock: Clock | None = None,
    ) -> None:
        """``trust_certs_file_path``: PEM file of the CA of the issuer's certificate; "" for the system's CAs."""
        secret = client_secret if isinstance(client_secret, Secret) else Secret(client_secret)
        key = ClientKey(client_id, secret, issuer_url)
        self._read_key: Callable[[], ClientKey] = lambda: key
        self._asked = {name: text for name, text in (("audience", audience), ("scope", scope)) if text}
        self._issuer_url = issuer_url
        self._tls = TlsSettings(trust_certs_file_path)
        self._clock = clock or SystemClock()
        self._kept: _Token | None = None

    @classmethod
    def from_key_file(
        cls,
        issuer_url: str,
        key: str | Secret,
        *,
        audience: str = "",
        scope: str = "",
        trust_certs_file_path: str = "",
    ) -> AuthenticationOAuth2:
        """``key``: a file like that of the Java client, by path or ``file://`` URL, or its content as ``data:`` URL.

        ``issuer_url``: "" for the one that the key names.
        """
        made = cls(issuer_url, "", "", audience=audience, scope=scope, trust_certs_file_path=trust_certs_file_path)
        source = key if isinstance(key, Secret) else Secret(key)
        made._read_key = lambda: _read_key(source)
        return made

    def credential(self, instead_of: Secret | None = None) -> Secret:
        kept, now_s = self._kept, self._clock.uptime()
        if kept is None or kept.text == instead_of or now_s >= kept.ends_at_s:
            kept = self._exchanged()
        elif now_s >= kept.renew_at_s:
            kept = self._renewed(kept, now_s)
        self._kept = kept
        return kept.text

    def _renewed(self, kept: _Token, now_s: float) -> _Token:
        """Another token; or ``kept``, which has not ended, while the issuer cannot be asked."""
        try:
            return self._exchanged()
        except PulsarishError as failure:
            if not failure.retriable:
                raise
            logger.warning("token not renewed issuer=%s left_s=%d error=%s", self, kept.ends_at_s - now_s, failure)
            # Half of what is left: each connection waits for as long as the issuer takes to fail.
            return kept._replace(renew_at_s=(now_s + kept.ends_at_s) / 2)

    def __str__(self) -> str:
        if "@" in self._issuer_url:
            return "the OAuth2 token of an issuer whose URL names a user"
        return f"the OAuth2 token of issuer {self._issuer_url or 'that the key names'}"

    def _exchanged(self) -> _Token:
        key = self._read_key()
        issuer = _checked_url(self._issuer_url or key.issuer_url, "issuer URL").rstrip("/")
        form = {
            "grant_type": "client_credentials",
            "client_id": key.client_id,
            "client_secret": key.client_secret.reveal(),
            **self._asked,
        }
        with _Issuer(issuer, self._tls) as asked:
            endpoint = _text_in(asked.json("GET", f"{issuer}{_DISCOVERY}", "discovery"), "token_endpoint", issuer)
            answer = asked.json("POST", _checked_url(endpoint, "token endpoint"), key.client_id, form)
        now_s, lives_s = self._clock.uptime(), _life_s(answer)
        text = Secret(_text_in(answer, "access_token", issuer))
        return _Token(text, now_s + lives_s * (1 - RENEWED_EARLY), now_s + lives_s)


class _Issuer:
    """Requests to one issuer, and what their failures mean."""

    def __init__(self, url: str, tls: TlsSettings) -> None:
        import httpx  # Only for OAuth2: importing it takes longer than all else of a client's start.

        self._url = url
        context: ssl.SSLContext | bool = tls.context() if url.startswith("https:") else True
        self._client = httpx.Client(timeout=ANSWER_S_MAX, verify=context, trust_env=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def json(self, method: str, url: str, what: str, form: dict[str, str] | None = None) -> dict[str, Any]:
        """The object that is answered. ``what``: the client's id, or the question, in errors."""
        import httpx

        try:
            answer = self._client.request(method, url, data=form)
        except httpx.TimeoutException as error:
            raise OperationTimeoutError(f"OAuth2 issuer {self._url} did not answer in {ANSWER_S_MAX:g} s") from error
        except httpx.TransportError as error:
            raise self._unreachable(error) from error
        if answer.status_code != 200:
            raise self._refusal(answer, what)
        try:
            found = answer.json()
        except ValueError as error:
            raise RemoteProtocolError(f"OAuth2 issuer {self._url} did not answer {url} with JSON") from error
        if not isinstance(found, dict):
            raise RemoteProtocolError(f"OAuth2 issuer {self._url} did not answer {url} with a JSON object")
        return found

    def _unreachable(self, error: Exception) -> PulsarishError:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, ssl.SSLError):
                return tls_failure(cause, f"OAuth2 issuer {self._url}")
            cause = cause.__cause__ or cause.__context__
        return ConnectionLostError(
            f"OAuth2 issuer {self._url} cannot be reached: {error}", hint="is its URL right, and reachable from here?"
        )

    def _refusal(self, answer: httpx.Response, what: str) -> PulsarishError:
        if answer.status_code >= 500 or answer.status_code == 429:
            return ConnectionLostError(f"OAuth2 issuer {self._url} is not well: it answered {answer.status_code}")
        if answer.request.method == "GET":
            return ConfigError(
                f"OAuth2 issuer {self._url} has no discovery document: it answered {answer.status_code}",
                hint=f"the issuer URL is what stands before {_DISCOVERY}",
            )
        return AuthenticationError(
            f'OAuth2 issuer {self._url} refuses client id "{what}": {_reason(answer)}',
            hint="check client id, secret, audience and scope",
        )


def _reason(answer: httpx.Response) -> str:
    """``error`` of RFC 6749 and its description, which are for people; else the status."""
    try:
        said = answer.json()
        words = [str(said[name])[:200] for name in ("error", "error_description") if said.get(name)]
    except (ValueError, AttributeError):
        words = []
    return ": ".join(words) or f"it answered {answer.status_code}"


def _checked_url(url: str, what: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ConfigError(f"OAuth2 {what} is no URL", hint="write https://HOST, and a path if it has one") from None
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    if not is_safe or not parts.hostname or "@" in parts.netloc:
        raise ConfigError(
            f'OAuth2 {what} "{parts.scheme}://{parts.hostname or ""}" is not possible',
            hint="it begins with https://, for it is told the secret",
        )
    return url


def _life_s(answer: dict[str, Any]) -> float:
    """Lifetime of a token, endless if the issuer does not say. Some say it as text."""
    try:
        lives_s = float(answer.get("expires_in") or 0)
    except (TypeError, ValueError, OverflowError):
        lives_s = 0.0
    return lives_s if lives_s > 0 else math.inf


def _text_in(answer: dict[str, Any], name: str, issuer: str) -> str:
    if not isinstance(found := answer.get(name), str) or not found:
        raise RemoteProtocolError(f"the answer of OAuth2 issuer {issuer} has no {name}")
    return found


def _read_key(source: Secret) -> ClientKey:
    text = source.reveal()
    if text.startswith("data:"):
        named, content = "the key in the data: URL", _data_url(text)
    else:
        path = text.removeprefix("file://") if text.startswith("file://") else text.removeprefix("file:")
        named, content = f"key file {path}", read_file(path, "the OAuth2 key").reveal()
    try:
        found = json.loads(content)
    except ValueError:
        raise ConfigError(f"{named} is not JSON", hint=_HINT_KEY) from None
    for name in ("client_id", "client_secret"):
        if not isinstance(found, dict) or not isinstance(found.get(name), str) or not found[name]:
            raise ConfigError(f"{named} has no {name}", hint=_HINT_KEY)
    return ClientKey(found["client_id"], Secret(found["client_secret"]), str(found.get("issuer_url") or ""))


def _data_url(url: str) -> str:
    head, _, content = url.removeprefix("data:").partition(",")
    try:
        raw = base64.b64decode(content) if head.endswith(";base64") else unquote_to_bytes(content)
        return raw.decode()
    except ValueError:
        raise ConfigError("the data: URL of the OAuth2 key cannot be read", hint=_HINT_KEY) from None
