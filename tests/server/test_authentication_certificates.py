# SPDX-License-Identifier: Apache-2.0
"""Client certificates: the one common name of the subject is the role."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from broker_core.server.security.certificates import CertificateProvider
from broker_core.server.security.identity import AuthenticationFailedError, Credentials, Identity
from broker_core.testing.virtual_timers import VirtualTimers
from tests.server.credentials import kind_of

NOW_MS = 1_700_000_000_000
KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(*names: str, ends_s: int = 60, of: x509.ObjectIdentifier = NameOID.COMMON_NAME) -> bytes:
    """DER of a certificate with these common names, which ends so long after ``NOW_MS``."""
    now = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    others = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "CN=admin, Ltd")]
    subject = x509.Name([*others, *(x509.NameAttribute(of, name) for name in names)])
    builder = x509.CertificateBuilder(
        issuer_name=x509.Name([]),
        subject_name=subject,
        public_key=KEY.public_key(),
        serial_number=1,
        not_valid_before=now - timedelta(days=1),
        not_valid_after=now + timedelta(seconds=ends_s),
    )
    return builder.sign(KEY, SHA256()).public_bytes(Encoding.DER)


def identity(der: bytes | None) -> Identity:
    return CertificateProvider(VirtualTimers(NOW_MS)).identify(Credentials("tls", b"", der))


@pytest.mark.parametrize("name", ["reader", "a,CN=admin", "a+CN=admin", "CN=admin", 'a"b', "ünï", "a\\,b"])
def test_the_common_name_is_the_role_as_it_is(name: str) -> None:
    """By the structure of the subject: what a text of it would need to escape cuts nothing off."""
    assert identity(certificate(name)) == Identity(name, NOW_MS / 1000 + 60)


@pytest.mark.parametrize("names", [(), ("reader", "admin"), ("admin", "admin")])
def test_one_common_name_is_needed(names: tuple[str, ...]) -> None:
    """Of two, another reader could take the other one."""
    with pytest.raises(AuthenticationFailedError, match=f"has {len(names)} common names"):
        identity(certificate(*names))


def test_no_other_name_is_taken_for_it() -> None:
    """An organisation may call itself anything."""
    with pytest.raises(AuthenticationFailedError):
        identity(certificate("admin", of=NameOID.ORGANIZATIONAL_UNIT_NAME))


@pytest.mark.parametrize(
    "der", [None, b"", b"no certificate", certificate("reader")[:-1], certificate("a\tb")], ids=kind_of
)
def test_without_a_good_certificate_nobody_is_identified(der: bytes | None) -> None:
    """Never by another error."""
    with pytest.raises(AuthenticationFailedError):
        identity(der)


def test_a_certificate_that_has_ended_identifies_nobody() -> None:
    """A connection may be older than it."""
    with pytest.raises(AuthenticationFailedError, match="expired"):
        identity(certificate("reader", ends_s=0))
