# SPDX-License-Identifier: Apache-2.0
"""An Apache Pulsar with TLS, authentication and authorization: its certificates, its tokens, and who may do what.

Owns the files of one such broker, or of the brokers of a cluster, all made for them in their folder, and the settings
that they need. Nothing of it is a secret of anybody's. Roles are names in tokens and certificates; only ``ADMIN`` may
do everything.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import jwt
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tests.apache_pulsar.start import ApachePulsar
from tests.apache_pulsar.web import Web

ADMIN: Final = "admin"
BASIC_USER: Final = "basil"
BASIC_PASSWORD: Final = "basil-password"
"""A user of basic authentication, and his password."""
SUITE: Final = "suite"
"""The role of the behaviour suite, which may do what its tests do with messages."""
PASSWORDS: Final = {BASIC_USER: BASIC_PASSWORD, SUITE: "suite-password"}
"""The users of basic authentication, and their passwords, which the lines below have as hashes."""
_HTPASSWD: Final = f"""\
{BASIC_USER}:$apr1$plainsal$psERymPPF1rQSKA1bi8cW1
{SUITE}:$apr1$plainsal$xFo7gtRk/YKI63Cw5UPsu0
"""

CHECK_S: Final = 1
"""How often the broker looks whether credentials have expired."""

KEY: Final = b"a key of 32 bytes for test tokens"
"""The secret of tokens."""

_PROVIDER: Final = "org.apache.pulsar.broker.authentication.AuthenticationProvider"


@dataclass(frozen=True, slots=True)
class Secured:
    """A running one."""

    pulsar: ApachePulsar

    @property
    def service_url(self) -> str:
        """The service URL with TLS, by the name that is in the certificate."""
        return f"pulsar+ssl://localhost:{_port(self.pulsar.service_url_tls)}"

    @property
    def nameless_url(self) -> str:
        """The service URL with TLS, by an address that is not in the certificate."""
        return f"pulsar+ssl://127.0.0.1:{_port(self.pulsar.service_url_tls)}"

    @property
    def http_url(self) -> str:
        return f"https://localhost:{_port(self.pulsar.http_url_tls)}"

    @property
    def folder(self) -> Path:
        return Path(self.pulsar.directory)

    @property
    def ca(self) -> str:
        """The file of the CA that signed the broker's certificate."""
        return ca_of(self.folder)

    @property
    def other_ca(self) -> str:
        """The file of a CA that has signed nothing here."""
        return str(self.folder / "other-ca.pem")

    def certificate(self, role: str) -> tuple[str, str]:
        """The files of a client certificate for ``role``, one of ``CERTIFIED``, and of its key."""
        return str(self.folder / f"{role}.pem"), str(self.folder / f"{role}.key")

    def grant(self, role: str, *actions: str, namespace: str = "public/default") -> None:
        """Give ``role`` the right to produce, to consume."""
        names = ",".join(f'"{each}"' for each in actions)
        self.admin("POST", f"namespaces/{namespace}/permissions/{role}", f"[{names}]")

    def admin(self, method: str, path: str, body: str | None = None) -> str:
        """One admin call of the role that may do everything; the test fails if it does."""
        return web_of_admin(self.folder, self.http_url).call(method, f"/admin/v2/{path}", body)


def ca_of(folder: Path) -> str:
    """The file of the CA that signed the certificates of ``folder``."""
    return str(folder / "ca.pem")


def web_of_admin(folder: Path, url: str) -> Web:
    """A web port at which ``folder`` is prepared, for the role that may do everything."""
    return Web(url, {"Authorization": f"Bearer {token(ADMIN)}"}, ca_of(folder))


CERTIFIED: Final = (ADMIN, "certified", SUITE)
"""Roles that have a client certificate."""

FORGED: Final = f"forged-{SUITE}"
"""The name of the files of a certificate for ``SUITE`` that is signed by the other CA."""


def token(role: str, *, lives_s: float | None = None, key: bytes = KEY) -> str:
    """A token of ``role``; ``lives_s`` None: for ever. A broker takes those of ``KEY`` alone."""
    claims: dict[str, object] = {"sub": role}
    if lives_s is not None:
        claims["exp"] = time.time() + lives_s
    return jwt.encode(claims, key, algorithm="HS256")


@contextmanager
def renewed(file: Path, role: str, *, lives_s: float) -> Iterator[list[str]]:
    """Keep a young token of ``role`` in ``file`` for the length of the block; the tokens that it has had.

    On a thread of its own, so that a token does not expire because the test is held up.
    """
    tokens: list[str] = []
    over = threading.Event()

    def renew() -> None:
        tokens.append(token(role, lives_s=lives_s))
        young = file.with_suffix(".young")
        young.write_text(tokens[-1])
        young.replace(file)

    def keep_renewing() -> None:
        while not over.wait(lives_s / 8):
            renew()

    renew()
    thread = threading.Thread(target=keep_renewing)
    thread.start()
    try:
        yield tokens
    finally:
        over.set()
        thread.join()


def prepared(directory: Path) -> Mapping[str, str]:
    """Make the files of brokers at ``localhost`` in ``directory``; the settings that name them."""
    directory.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA(key_type=trustme.KeyType.RSA)
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    other = trustme.CA(key_type=trustme.KeyType.RSA)
    other.cert_pem.write_to_path(str(directory / "other-ca.pem"))
    _write(directory, "server", authority.issue_cert("localhost", key_type=trustme.KeyType.RSA))
    signers = {**dict.fromkeys(CERTIFIED, authority), FORGED: other}
    for name, signer in signers.items():
        role = name.removeprefix("forged-")
        issued = signer.issue_cert(f"{role}.test", common_name=role, key_type=trustme.KeyType.RSA)
        _write(directory, name, issued)
    return {
        "tlsCertificateFilePath": str(directory / "server.pem"),
        "tlsKeyFilePath": str(directory / "server.key"),
        "tlsTrustCertsFilePath": str(directory / "ca.pem"),
        "authenticationEnabled": "true",
        "authenticationProviders": ",".join(_PROVIDER + name for name in ("Token", "Tls", "Basic")),
        "authenticationRefreshCheckSeconds": str(CHECK_S),
        "tokenSecretKey": _data_url(KEY),
        "basicAuthConf": _data_url(_HTPASSWD.encode()),
        "authorizationEnabled": "true",
        "superUserRoles": ADMIN,
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"token:{token(ADMIN)}",
    }


def _write(directory: Path, name: str, issued: trustme.LeafCert) -> None:
    """Java reads keys as PKCS #8 only, and our broker those that only their owner may read."""
    chain = b"".join(each.bytes() for each in issued.cert_chain_pems)
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    (directory / f"{name}.pem").write_bytes(chain)
    file = directory / f"{name}.key"
    file.touch(0o600)
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def _data_url(content: bytes) -> str:
    return f"data:;base64,{base64.b64encode(content).decode()}"


def _port(url: str) -> int | None:
    return urlsplit(url).port
