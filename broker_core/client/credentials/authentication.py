# SPDX-License-Identifier: Apache-2.0
"""Ways for a client to say who it is: token, basic, certificate; OAuth2 has a file of its own.

Owns where each credential comes from, its form on the wire and in HTTP, and its name in errors, which never holds the
credential itself. Knows nothing of connections. Invariants: what comes from a file, a variable or a function is read
again each time that it is asked for, so a credential that was renewed there is used from then on.
Source: Pulsar docs, "Security - Authentication"; PIP-30 for renewal.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

from broker_core.base.clock import Clock, SystemClock
from broker_core.base.errors import ConfigError, ConnectionLostError, PulsarishError
from broker_core.base.local_access import TOKEN_FILE, token_at
from broker_core.base.secret import Secret

HINT_NOBODY: Final = (
    "give a token (tokenFile) or another authentication; the token of an embedded broker, and of one that was started"
    " without settings of authentication, is printed for its user by: pulsarish token show"
)
"""For a client that has nothing to show, and is not let in."""


class ClientCertificate(NamedTuple):
    """Paths of PEM files: the certificate, with those between it and its CA behind it, and its private key."""

    certificate_path: str
    key_path: str


class Authentication(ABC):
    """A way to authenticate. ``str()`` names it in errors, without anything secret."""

    method: ClassVar[str]
    """Name of the way in the protocol."""

    @abstractmethod
    def credential(self, instead_of: Secret | None = None) -> Secret:
        """The credential to send. May block for seconds, so it is called on a thread that may.

        ``instead_of``: one that the broker did not accept, or does not any more; the same may come again. ConfigError
        if there is none; a retriable error if there may be one later.
        """

    def asked(self, instead_of: Secret | None = None) -> Secret:
        """``credential``, whose own errors are of the common tree whatever an application's code raises."""
        try:
            return self.credential(instead_of)
        except PulsarishError:
            raise
        except OSError as error:
            raise ConnectionLostError(f"{self} cannot be had: {error.strerror or type(error).__name__}") from error
        except Exception as error:  # its text may hold what is secret
            raise ConfigError(
                f"{self} cannot be had: it raised {type(error).__name__}", hint="see the error that this one came from"
            ) from error

    @property
    def certificate(self) -> ClientCertificate | None:
        """The certificate that the client shows in TLS handshakes."""
        return None

    def http_header(self, credential: Secret) -> str:
        """The value of the header ``Authorization``; "" for none."""
        return ""

    def why_refused(self, credential: Secret) -> str:
        """A visible fault of ``credential``, in words; "" if there is none."""
        return ""

    @abstractmethod
    def __str__(self) -> str: ...

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self}>"


class BearerAuthentication(Authentication):
    """Sends a token; where it comes from is another's business."""

    method = "token"

    def http_header(self, credential: Secret) -> str:
        return f"Bearer {credential.reveal()}"

    def why_refused(self, credential: Secret) -> str:
        return expiry_words(credential)


class AuthenticationToken(BearerAuthentication):
    """A token (JWT): given as text, or by a function that is called again whenever one is needed."""

    def __init__(self, token: str | Secret | Callable[[], str | Secret]) -> None:
        if callable(token):
            self._read = token
            self._named = "the token of the function that was given"
        else:
            given = _secret(token)
            self._read = lambda: given
            self._named = "the token that was given as text"

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> AuthenticationToken:
        """The token in a file, which is read again whenever one is needed."""
        made = cls(lambda: read_file(path, "the token"))
        made._named = f"the token of file {os.fspath(path)}"
        return made

    @classmethod
    def from_environment(cls, name: str) -> AuthenticationToken:
        """The token in an environment variable of whatever process connects."""
        made = cls(lambda: _variable(name))
        made._named = f"the token of environment variable {name}"
        return made

    def credential(self, instead_of: Secret | None = None) -> Secret:
        token = _secret(self._read()).reveal().strip()
        if not token:
            raise ConfigError(f"{self} is empty", hint="write a token there, or use another way to authenticate")
        if not token.isascii() or not token.isprintable() or " " in token:
            raise ConfigError(
                f"{self} has spaces or other characters in it that no token has", hint="write only the token there"
            )
        return Secret(token)

    def __str__(self) -> str:
        return self._named


class OwnersToken(BearerAuthentication):
    """The token of a broker of this user's at ``url``, for a client that was given no other authentication. Its
    credential is empty where there is no such broker, or where it is open."""

    def __init__(self, url: str) -> None:
        self._url = url

    def credential(self, instead_of: Secret | None = None) -> Secret:
        return token_at(self._url, os.environ) or Secret("")

    def __str__(self) -> str:
        return f"the token in the data directory of the broker at {self._url}"


def token_in(data_dir: str | os.PathLike[str]) -> AuthenticationToken | None:
    """The token of the broker that serves ``data_dir``, a directory of this user's; None if it has none."""
    path = Path(data_dir, TOKEN_FILE)
    return AuthenticationToken.from_file(path) if path.is_file() else None


class AuthenticationBasic(Authentication):
    """A user's name and password; the password may be in a file, which is read again each time."""

    method = "basic"

    def __init__(self, username: str, password: str | Secret | Path) -> None:
        if not username or ":" in username:
            raise ConfigError(f'user name "{username}" is not possible', hint="it is not empty and has no colon")
        self._username = username
        self._password = password if isinstance(password, Path) else _secret(password)

    def credential(self, instead_of: Secret | None = None) -> Secret:
        given = self._password
        password = read_file(given, "the password") if isinstance(given, Path) else given
        return Secret(f"{self._username}:{password.reveal()}")

    def http_header(self, credential: Secret) -> str:
        return f"Basic {base64.b64encode(credential.reveal().encode()).decode()}"

    def __str__(self) -> str:
        return f'the password of user "{self._username}"'


class AuthenticationTls(Authentication):
    """The client certificate of the TLS connection itself: its common name is the role."""

    method = "tls"

    def __init__(self, certificate_path: str, private_key_path: str) -> None:
        self._certificate = ClientCertificate(certificate_path, private_key_path)

    @property
    def certificate(self) -> ClientCertificate:
        return self._certificate

    def credential(self, instead_of: Secret | None = None) -> Secret:
        return Secret("")

    def __str__(self) -> str:
        return f"the certificate of file {self._certificate.certificate_path}"


def read_file(path: str | os.PathLike[str], what: str) -> Secret:
    """The text of a file without its last line's end; ConfigError says what is wrong with the file."""
    try:
        return Secret(Path(path).read_text(encoding="utf-8").rstrip("\r\n"))
    except OSError as error:
        raise ConfigError(
            f"{what} cannot be read from file {os.fspath(path)}: {error.strerror or error}",
            hint="the file must be there, and readable, for each process that connects",
        ) from error
    except UnicodeDecodeError:
        raise ConfigError(f"{what} in file {os.fspath(path)} is not UTF-8", hint="write it there as text") from None


def _variable(name: str) -> Secret:
    if not (text := os.environ.get(name, "")):
        raise ConfigError(
            f"environment variable {name}, which should hold the token, is not set in this process",
            hint="set it for each process that connects: Spark's executors too",
        )
    return Secret(text)


def _secret(text: str | Secret) -> Secret:
    return text if isinstance(text, Secret) else Secret(text)


def expiry_words(token: Secret, clock: Clock | None = None) -> str:
    """``it expired at 2026-01-01 00:00:00 UTC``; "" if the token has not, or does not tell: a broker only says that it
    does not accept it. The expiry of a JWT is read without verifying anything: nothing is decided by it."""
    expiry_s = _expiry_s(token.reveal())
    if expiry_s is None or expiry_s * 1000 > (clock or SystemClock()).now_ms():
        return ""
    return f"it expired at {datetime.fromtimestamp(expiry_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _expiry_s(token: str) -> int | None:
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        expiry = claims["exp"]
    except (binascii.Error, ValueError, KeyError, TypeError):
        return None
    return int(expiry) if isinstance(expiry, int | float) and 0 < expiry < 2**32 else None
