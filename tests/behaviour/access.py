# SPDX-License-Identifier: Apache-2.0
"""``Access``: how a client shows a server who it is, and how the two are sure of each other.

Each client makes its own options of an ``Access``; a server of the suite says which one opens it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final, Literal

Kind = Literal["plain", "tls+token", "mtls", "token", "basic"]
"""No identity and no TLS; a token over TLS; a client certificate; a token without TLS; a password over TLS."""

KINDS: Final[tuple[Kind, ...]] = ("plain", "tls+token", "mtls", "token", "basic")
SECURED: Final = KINDS[1:]
"""The kinds with an identity."""

WITH_TLS: Final[tuple[Kind, ...]] = ("tls+token", "mtls", "basic")

_PLUGIN: Final = "org.apache.pulsar.client.impl.auth.Authentication"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Identity of a client at a server, and the CA of the server's certificate. A field that is None is not used.

    The other fields decide what a client does; ``kind`` is their name, and ``role`` that of the identity. With
    ``trust_certs`` the service URL has TLS, and the client verifies the name in the server's certificate.
    ``certificate`` comes with ``key``, ``user`` with ``password``. All paths are of PEM files, keys as PKCS #8.
    """

    kind: Kind = "plain"
    role: str = ""
    trust_certs: str | None = None
    certificate: str | None = None
    key: str | None = None
    token: str | None = None
    user: str | None = None
    password: str | None = None

    @property
    def plugin(self) -> tuple[str, str] | None:
        """The class of the Java client and tools for it, and its parameters; None where a client shows nothing."""
        if self.token is not None:
            return f"{_PLUGIN}Token", f"token:{self.token}"
        if self.certificate is not None:
            return f"{_PLUGIN}Tls", f"tlsCertFile:{self.certificate},tlsKeyFile:{self.key}"
        if self.user is not None:
            return f"{_PLUGIN}Basic", json.dumps({"userId": self.user, "password": self.password})
        return None

    def as_json(self) -> dict[str, object]:
        """For the driver of a client in another language: the fields, and ``plugin``."""
        return {**asdict(self), "plugin": self.plugin}


PLAIN: Final = Access()
