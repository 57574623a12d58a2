# SPDX-License-Identifier: Apache-2.0
"""Credentials that a client shows, the identity that they prove, and what proves it: a provider for each method.

Source: Pulsar docs, "Security - Authentication".
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from broker_core.base.errors import PulsarishError

ROLE_BYTES_MAX: Final = 1024
"""A role in UTF-8. Grants, logs and statistics repeat it."""

ANONYMOUS_METHODS: Final = frozenset({"", "none"})
"""Names of methods by which a client says that it shows no credentials."""


class AuthenticationFailedError(PulsarishError):
    """Credentials that prove nothing. The text is for the log alone: a client is told that it failed, not why."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials that a client showed.

    Attributes:
        method: Name of the method in Pulsar's protocol: "token", "basic", "tls"; "none" or "" if it named none.
        data: Its data: the token, or "user:password".
        certificate: DER of the client's certificate, which the handshake of TLS has verified; None without one.
    """

    method: str
    data: bytes = b""
    certificate: bytes | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """A client whose credentials were good.

    Attributes:
        role: Its name, as grants name it.
        expires_s: Unix time, in seconds, after which the credentials are no longer good; None: never.
        is_owner: It has shown the token of the data directory, and so may do everything, whatever roles are called.
    """

    role: str
    expires_s: float | None = None
    is_owner: bool = False


class Provider(Protocol):
    """A method of authentication."""

    def identify(self, credentials: Credentials) -> Identity:
        """Whose the credentials are. AuthenticationFailedError: nobody's."""
        ...


@runtime_checkable
class SlowProvider(Provider, Protocol):
    """A provider whose ``identify`` works for so long, on purpose, that it has a thread for itself."""

    def remembered(self, credentials: Credentials) -> Identity | None:
        """The identity of credentials that were found good a moment ago; None: ``identify`` must work."""
        ...


def checked_role(role: object) -> str:
    """``role`` if it can be one: a text, not blank, without control characters, not longer than ``ROLE_BYTES_MAX``.

    AuthenticationFailedError if not.
    """
    if not isinstance(role, str) or not role.strip():
        raise AuthenticationFailedError("the role is missing or blank")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in role):
        raise AuthenticationFailedError("the role has control characters or lone surrogates in it")
    if len(role.encode()) > ROLE_BYTES_MAX:
        raise AuthenticationFailedError(f"the role has more than {ROLE_BYTES_MAX} bytes")
    return role
