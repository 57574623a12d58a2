# SPDX-License-Identifier: Apache-2.0
"""Client certificates as credentials (method "tls"): the common name of the certificate that TLS has verified.

Importing this module imports ``cryptography``. Source: Pulsar docs, "Security - mTLS authentication".
"""

from __future__ import annotations

from cryptography import x509
from cryptography.x509.oid import NameOID

from broker_core.base.clock import Clock
from broker_core.server.security.identity import AuthenticationFailedError, Credentials, Identity, checked_role


class CertificateProvider:
    """Identifies clients by the one common name in the subject of their certificates, until these end."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def identify(self, credentials: Credentials) -> Identity:
        """Whose the certificate is. Names are read by their structure: an escaped comma or a plus sign cuts none."""
        if credentials.certificate is None:
            raise AuthenticationFailedError("the client has shown no certificate")
        try:
            certificate = x509.load_der_x509_certificate(credentials.certificate)
            names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
            expires_s = certificate.not_valid_after_utc.timestamp()
        except ValueError:
            raise AuthenticationFailedError("the certificate cannot be read") from None
        if len(names) != 1:
            raise AuthenticationFailedError(f"the subject of the certificate has {len(names)} common names")
        if expires_s * 1000 <= self._clock.now_ms():
            raise AuthenticationFailedError("the certificate has expired")
        return Identity(checked_role(names[0].value), expires_s)
