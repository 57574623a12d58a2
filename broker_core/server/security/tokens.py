# SPDX-License-Identifier: Apache-2.0
"""Tokens (JWT) as credentials: whose a token is, by its signature, its times, its audience and its claim of a role.

The library verifies the signature, with the algorithms of the configured key; headers that would name another key
(jku, x5u, jwk, x5c, kid) are never read. Times are compared here, by the broker's clock. No reason repeats a token.
Importing this module imports ``jwt``. Source: RFC 7519, RFC 8725; Pulsar docs, "Security - Token authentication".
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import jwt

from broker_core.base.clock import Clock
from broker_core.base.errors import ConfigError
from broker_core.base.settings import Settings
from broker_core.server.security.identity import AuthenticationFailedError, Credentials, Identity, checked_role
from broker_core.server.security.key_material import read_material
from broker_core.server.security.token_keys import TokenKey, public_key, secret_key

TOKEN_BYTES_MAX: Final = 16 * 1024
"""A token with its signature; reading a longer one would cost more than refusing it."""

_TIME_S_MAX: Final = 1e11
"""Three thousand years from now; a larger number is a time in milliseconds, or a mistake."""

_UNREADABLE: Final = ("crit", "b64", "zip", "enc")
"""Headers that change what the rest means: extensions that must be understood, compression, encryption."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Claims of a token that count: the role's; the audience's, "" for none, and the text that it must have."""

    role_claim: str = "sub"
    audience_claim: str = ""
    audience: str = ""
    skew_s: float = 0.0


class TokenProvider:
    """Identifies clients by tokens that one key has signed."""

    def __init__(self, key: TokenKey, rules: TokenRules, clock: Clock) -> None:
        self._key = key
        self._rules = rules
        self._clock = clock
        self._jws = jwt.PyJWS()

    def identify(self, credentials: Credentials) -> Identity:
        """Whose the token is, until it expires."""
        claims = self._verified(credentials.data)
        expires_s = self._expiry(claims)
        if self._rules.audience_claim:
            self._check_audience(claims.get(self._rules.audience_claim))
        role = claims.get(self._rules.role_claim)
        return Identity(checked_role(role[0] if isinstance(role, list) and role else role), expires_s)

    def _verified(self, token: bytes) -> dict[str, Any]:
        """The claims, none of them compared with anything yet."""
        if len(token) > TOKEN_BYTES_MAX:
            raise AuthenticationFailedError(f"the token has {len(token)} bytes; {TOKEN_BYTES_MAX} are the most")
        try:
            found = self._jws.decode_complete(token, self._key.key, algorithms=self._key.algorithms)
            claims = json.loads(found["payload"])
        except jwt.InvalidTokenError as error:  # whose text may repeat parts of the token
            raise AuthenticationFailedError(f"the token is not good: {type(error).__name__}") from None
        except (ValueError, RecursionError):
            raise AuthenticationFailedError("the claims of the token are not JSON") from None
        if foreign := [name for name in _UNREADABLE if name in found["header"]]:
            raise AuthenticationFailedError(f"the token has header {foreign[0]}, which is not supported")
        if not isinstance(claims, dict):
            raise AuthenticationFailedError("the claims of the token are not an object")
        return claims

    def _expiry(self, claims: dict[str, Any]) -> float | None:
        """Unix time until which the token is good; AuthenticationFailedError: it is over, or has not begun."""
        now_s, skew_s = self._clock.now_ms() / 1000, self._rules.skew_s
        if "nbf" in claims and _time_s(claims, "nbf") - skew_s > now_s:
            raise AuthenticationFailedError("the token is not good yet")
        if "exp" not in claims:
            return None
        expires_s = _time_s(claims, "exp") + skew_s
        if expires_s <= now_s:
            raise AuthenticationFailedError("the token has expired")
        return expires_s

    def _check_audience(self, found: object) -> None:
        """Whole texts are compared: a part of one is another broker's name."""
        if self._rules.audience not in (found if isinstance(found, list) else [found]):
            raise AuthenticationFailedError("the token is for another audience")


def _time_s(claims: dict[str, Any], name: str) -> float:
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _TIME_S_MAX:
        raise AuthenticationFailedError(f"claim {name} of the token is not a time in seconds")
    return float(value)


def token_provider(settings: Settings, clock: Clock) -> TokenProvider:
    """The provider of the method "token". ConfigError: a setting contradicts another."""
    if settings.token_audience_claim and not settings.token_audience:
        raise ConfigError("tokenAudienceClaim is set and tokenAudience is not", hint="set both, or none")
    if settings.token_audience and not settings.token_audience_claim:
        raise ConfigError("tokenAudience is set and tokenAudienceClaim is not", hint="set tokenAudienceClaim = aud")
    rules = TokenRules(
        settings.token_auth_claim,
        settings.token_audience_claim,
        settings.token_audience,
        settings.token_allowed_clock_skew_seconds,
    )
    return TokenProvider(_key_of(settings), rules, clock)


def _key_of(settings: Settings) -> TokenKey:
    if settings.token_secret_key:
        return secret_key("tokenSecretKey", read_material("tokenSecretKey", settings.token_secret_key))
    content = read_material("tokenPublicKey", settings.token_public_key, is_secret=False)
    key = public_key("tokenPublicKey", content)
    if settings.token_public_alg not in key.algorithms:
        raise ConfigError(
            f"tokenPublicKey verifies {', '.join(key.algorithms)}, and tokenPublicAlg is {settings.token_public_alg}",
            hint=f"set tokenPublicAlg = {key.algorithms[0]}",
        )
    return key
