# SPDX-License-Identifier: Apache-2.0
"""Credentials that a client shows, the identity that they prove, and what proves it: a provider for each method.

Source: Pulsar docs, "Security - Authentication".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from broker_core.base.errors import PulsarishError


class AuthenticationFailedError(PulsarishError):
    """Credentials that prove nothing. The text is for the log alone: a client is told that it failed, not why."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client showed.

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
    """What knows one method of authentication."""

    def identify(self, credentials: Credentials) -> Identity:
        """Whose the credentials are. AuthenticationFailedError: nobody's."""
        ...
