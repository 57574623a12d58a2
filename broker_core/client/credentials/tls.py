# SPDX-License-Identifier: Apache-2.0
"""TLS of a client: the CAs that it trusts, its own certificate, and a failed handshake in words.

Owns the ``SSLContext`` and the errors of its files. Knows nothing of connections. Invariants: without an explicit
setting a peer must have a certificate that a trusted CA signed, for the name by which it was called, before a byte is
sent to it; TLS is 1.2 or newer; files that have changed are read again for the next connection. Source: Pulsar docs,
"TLS Encryption"; X509_V_ERR numbers from OpenSSL.
"""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from typing import Final

from broker_core.base.errors import ConnectionLostError, PulsarishError, TlsError
from broker_core.base.pem_files import load_pair, stamp_of, trusting
from broker_core.client.credentials.authentication import ClientCertificate

logger = logging.getLogger(__name__)

_NAME_DIFFERS: Final = frozenset({62, 63, 64})
_OUT_OF_TIME: Final = frozenset({9, 10})
_UNTRUSTED: Final = frozenset({2, 18, 19, 20, 21})
_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"})

_HINT_PAIR: Final = "certificate and key must be there for each process that connects"
_HINT_TRUSTED: Final = "tlsTrustCertsFilePath names a file that must be there for each process that connects"
HINT_UNTRUSTED: Final = "name the file (PEM) of the CA that signed it with tlsTrustCertsFilePath"
HINT_NAME: Final = (
    "use a name that is in the certificate, or give the broker a certificate with this one; it counts for the address "
    "that the broker advertises too"
)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """TLS settings of a client. ``trust_path``: PEM file of the trusted CAs, "" for the system's."""

    trust_path: str = ""
    allow_insecure: bool = False
    verify_hostname: bool = True
    certificate: ClientCertificate | None = None

    def context(self) -> ssl.SSLContext:
        """Made from the files as they are now; ConfigError says which cannot be used."""
        context = self._trusting()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.certificate is not None:
            load_pair(context, *self.certificate, whose="client", hint=_HINT_PAIR)
        context.check_hostname = self.verify_hostname and not self.allow_insecure
        if self.allow_insecure:
            context.verify_mode = ssl.CERT_NONE
            logger.warning(
                "certificates are not verified setting=%s danger=%r",
                "tlsAllowInsecureConnection",
                "anybody on the way can pose as the broker, read everything and take the credentials",
            )
        elif not self.verify_hostname:
            logger.warning(
                "host names are not verified setting=%s danger=%r",
                "tlsHostnameVerificationEnable",
                "whoever has a certificate of the same CA can pose as the broker",
            )
        return context

    def stamp(self) -> tuple[object, ...]:
        """Another value once one of the files was changed or is gone."""
        return stamp_of((self.trust_path, *(self.certificate or ())))

    def _trusting(self) -> ssl.SSLContext:
        with trusting(self.trust_path, hint=_HINT_TRUSTED):
            return ssl.create_default_context(cafile=self.trust_path or None)


def tls_failure(error: ssl.SSLError, what: str) -> PulsarishError:
    """The error of the tree for a handshake with ``what`` that failed, or a connection that TLS ended."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _distrust(error, what)
    reason = error.reason or ""
    if reason in _NOT_TLS:
        return TlsError(
            f"{what} does not speak TLS",
            hint="give its port for TLS (6651 by custom, 8443 for the admin), or the same URL without TLS",
        )
    if "ALERT" in reason:
        said = reason.partition("ALERT_")[2].replace("_", " ").lower()
        return TlsError(
            f"{what} ended the TLS handshake: {said}",
            hint="it may want a client certificate (tlsCertificateFilePath, tlsKeyFilePath), or another one",
        )
    return ConnectionLostError(f"TLS with {what} failed: {reason.replace('_', ' ').lower() or error}")


def _distrust(error: ssl.SSLCertVerificationError, what: str) -> TlsError:
    code, why = error.verify_code, error.verify_message.rstrip(".")
    if code in _NAME_DIFFERS:
        return TlsError(f"the certificate of {what} is for another name: {why}", hint=HINT_NAME)
    if code in _OUT_OF_TIME:
        return TlsError(f"the certificate of {what} is out of time: {why}", hint="renew it, or set this clock right")
    hint = HINT_UNTRUSTED if code in _UNTRUSTED else "look at the certificate"
    return TlsError(f"the certificate of {what} is not trusted: {why}", hint=hint)
