# SPDX-License-Identifier: Apache-2.0
"""Servers of the suite that ask who a client is, as a ``Service`` for each kind of access.

Our broker and a real Apache Pulsar have the same files of ``tests.apache_pulsar.secured``, ports with and without TLS,
and authorization; on both the suite's role may produce and consume in public/default, and do nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from broker_core.testing.running_broker import RunningBroker
from tests.apache_pulsar.secured import (
    ADMIN,
    FORGED,
    KEY,
    PASSWORDS,
    SUITE,
    Secured,
    ca_of,
    prepared,
    token,
    web_of_admin,
)
from tests.apache_pulsar.web import Web
from tests.behaviour.access import Access, Kind
from tests.client.conftest import Service
from tests.server.credentials import private, users_file

NAMESPACE: Final = "public/default"
ACTIONS: Final = ("produce", "consume")


@dataclass(frozen=True, slots=True)
class SecuredServer:
    """A running one; ``folder`` has its files."""

    kind: str
    plain_url: str
    plain_web_url: str
    tls_url: str
    web: Web
    folder: Path

    def service(self, kind: Kind) -> Service:
        """The server for clients that come in so."""
        access = self.access(kind)
        if access.trust_certs is None:
            return Service(self.kind, self.plain_url, self.plain_web_url, access, self.web)
        return Service(self.kind, self.tls_url, self.web.url, access, self.web)

    def access(self, kind: Kind) -> Access:
        """The identity of the suite's role."""
        trusting = Access(kind=kind, role=SUITE, trust_certs=None if kind == "token" else ca_of(self.folder))
        match kind:
            case "mtls":
                return self._with_certificate(trusting, SUITE)
            case "basic":
                return replace(trusting, user=SUITE, password=PASSWORDS[SUITE])
            case _:
                return replace(trusting, token=token(SUITE))

    def forged(self, kind: Kind) -> Access:
        """The same identity, without what proves it: a token or certificate that somebody else signed, a guess."""
        access = self.access(kind)
        match kind:
            case "mtls":
                return self._with_certificate(access, FORGED)
            case "basic":
                return replace(access, password="guessed")
            case _:
                return replace(access, token=token(SUITE, key=KEY[::-1]))

    def distrusting(self, kind: Kind) -> Access:
        """The identity, of a client that trusts another CA than the server's."""
        return replace(self.access(kind), trust_certs=str(self.folder / "other-ca.pem"))

    def nobody(self, kind: Kind) -> Access:
        """No identity."""
        return Access(kind=kind, trust_certs=self.access(kind).trust_certs)

    def _with_certificate(self, access: Access, name: str) -> Access:
        return replace(access, certificate=str(self.folder / f"{name}.pem"), key=str(self.folder / f"{name}.key"))


def on_apache(secured: Secured) -> SecuredServer:
    """The real Apache Pulsar that all processes share."""
    secured.grant(SUITE, *ACTIONS, namespace=NAMESPACE)
    web = web_of_admin(secured.folder, secured.http_url)
    plain = secured.pulsar.service_url, secured.pulsar.http_url
    return SecuredServer("apache", *plain, secured.service_url, web, secured.folder)


@contextmanager
def on_ours(folder: Path) -> Iterator[SecuredServer]:
    """A broker of ours in ``folder``."""
    names = ("tlsCertificateFilePath", "tlsKeyFilePath", "tlsTrustCertsFilePath")
    files = prepared(folder)
    settings: dict[str, object] = {name: files[name] for name in names}
    settings |= {
        "brokerServicePortTls": 0,
        "webServicePortTls": 0,
        "advertisedAddress": "localhost",
        "authenticationEnabled": True,
        "tokenSecretKey": private(folder / "secret.key", KEY).as_uri(),
        "basicAuthConf": users_file(folder, PASSWORDS).as_uri(),
        "authorizationEnabled": True,
        "superUserRoles": [ADMIN],
    }
    with RunningBroker(folder / "data", settings) as broker:
        web = web_of_admin(folder, broker.http_url_tls)
        server = SecuredServer("pulsarish", broker.service_url, broker.http_url, broker.service_url_tls, web, folder)
        server.service("token").grant(NAMESPACE, *ACTIONS)
        yield server
        assert "Traceback" not in broker.stderr
