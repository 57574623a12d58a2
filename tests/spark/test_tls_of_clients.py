# SPDX-License-Identifier: Apache-2.0
"""Each client that Spark's driver and its tasks make, for messages and for the admin REST, verifies the broker."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from broker_core.base.errors import TlsError
from broker_core.base.names import NamespaceName
from broker_core.client.credentials.security import Security
from broker_core.testing.running_broker import RunningBroker
from pulsarish_spark.connecting.connection import Address, connected, open_admin
from tests.server.certificates import Authority

TOPIC: Final = "persistent://public/default/t"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[RunningBroker]:
    """A broker whose certificate has another name."""
    pair = authority.issue("broker", "other.example")
    files = {"tlsCertificateFilePath": pair.certificate, "tlsKeyFilePath": pair.key}
    settings = {"brokerServicePortTls": 0, "webServicePortTls": 0, **files}
    with RunningBroker(tmp_path_factory.mktemp("broker") / "data", settings) as running:
        yield running


def send(address: Address) -> None:
    """By the client for messages."""
    with connected(address) as client:
        client.create_producer(TOPIC).close()


def ask(address: Address) -> None:
    """By the client of the admin REST."""
    admin = open_admin(address)
    assert admin is not None
    with admin:
        admin.topics(NamespaceName("public", "default"))


def address_of(broker: RunningBroker, **security: Any) -> Address:
    """The address as a task gets it."""
    driver = Address(broker.service_url_tls, admin_url=broker.http_url_tls, security=Security(**security))
    return pickle.loads(pickle.dumps(driver.for_executors()))  # type: ignore[no-any-return]


@pytest.mark.parametrize("use", [send, ask])
def test_cve_2022_33682_the_check_of_the_name_reaches_each_client(
    broker: RunningBroker, authority: Authority, use: Callable[[Address], None]
) -> None:
    """It is on where nobody says anything, and off for each of them where somebody does."""
    with pytest.raises(TlsError, match="is for another name"):
        use(address_of(broker, tls_trust_certs_file_path=authority.path))
    use(address_of(broker, tls_trust_certs_file_path=authority.path, tls_hostname_verification_enable=False))


@pytest.mark.parametrize("use", [send, ask])
def test_cve_2022_33683_each_client_checks_who_has_signed(
    broker: RunningBroker, tmp_path: Path, use: Callable[[Address], None]
) -> None:
    """A certificate of a CA that is not trusted is refused, with the name checked or not."""
    other = Authority(tmp_path).path
    for checked in (True, False):
        with pytest.raises(TlsError, match="is not trusted"):
            use(address_of(broker, tls_trust_certs_file_path=other, tls_hostname_verification_enable=checked))
