# SPDX-License-Identifier: Apache-2.0
"""TLS of a broker's ports: the settings that it has, the context of each new connection, and how files are renewed.

Owns the ``SSLContext``; knows nothing of sockets. Invariants: TLS is 1.2 or newer, without renegotiation; a key that
others may read, or that does not belong to its certificate, is refused; certificate, key and CAs change together or not
at all, and a connection keeps those that it began with. Source: Pulsar docs, "TLS Encryption".
"""

from __future__ import annotations

import logging
import os
import ssl
import stat
from dataclasses import dataclass
from typing import Final, Self

from broker_core.base.clock import TimerHandle, Timers
from broker_core.base.errors import ConfigError
from broker_core.base.pem_files import load_pair, stamp_of, trusting
from broker_core.base.private_files import OTHERS
from broker_core.base.settings import Settings, TlsProtocol

logger = logging.getLogger(__name__)

_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20:@SECLEVEL=2"
"""Of TLS 1.2; the level refuses RSA keys below 2048 bits wherever OpenSSL was built to take them."""

_VERSIONS: Final[dict[TlsProtocol, ssl.TLSVersion]] = {
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}

_FLIGHTS_MAX: Final = 4
"""Messages to and fro of a handshake: TLS 1.2 has two on each side."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files and rules of a broker's TLS.

    Attributes:
        trust_path: CAs that sign certificates of clients; "": clients are not asked for one.
        requires_certificate: A client without a certificate is refused.
    """

    certificate_path: str
    key_path: str
    trust_path: str
    requires_certificate: bool
    protocols: tuple[TlsProtocol, ...]

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """As the settings say; ConfigError names one that is missing."""
        if not settings.tls_certificate_file_path or not settings.tls_key_file_path:
            raise ConfigError(
                "a port with TLS needs a certificate and its key",
                hint="name PEM files with tlsCertificateFilePath and tlsKeyFilePath",
            )
        if settings.tls_require_trusted_client_cert_on_connect and not settings.tls_trust_certs_file_path:
            raise ConfigError(
                "tlsRequireTrustedClientCertOnConnect is set, and no CA whose client certificates count",
                hint="name the PEM file of the CA with tlsTrustCertsFilePath",
            )
        return cls(
            settings.tls_certificate_file_path,
            settings.tls_key_file_path,
            settings.tls_trust_certs_file_path,
            settings.tls_require_trusted_client_cert_on_connect,
            settings.tls_protocols,
        )

    def context(self) -> ssl.SSLContext:
        """Made from the files as they are now; ConfigError says which cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        versions = [_VERSIONS[each] for each in self.protocols]
        context.minimum_version, context.maximum_version = min(versions), max(versions)
        context.set_ciphers(_CIPHERS)
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0  # who comes again shows its certificate again
        hint = "tlsCertificateFilePath and tlsKeyFilePath name PEM files"
        load_pair(context, self.certificate_path, self.key_path, whose="broker's", hint=hint)
        _check_private(self.key_path)
        if self.trust_path:
            with trusting(self.trust_path, hint="name the PEM file of the CA that signs certificates of clients"):
                context.load_verify_locations(self.trust_path)
            context.verify_mode = ssl.CERT_REQUIRED if self.requires_certificate else ssl.CERT_OPTIONAL
        return context

    def stamp(self) -> tuple[object, ...]:
        """Another value once one of the files was changed."""
        return stamp_of((self.certificate_path, self.key_path, self.trust_path))


def _check_private(key_path: str) -> None:
    mode = stat.S_IMODE(os.stat(key_path).st_mode)
    if mode & OTHERS:
        raise ConfigError(
            f"private key {key_path} is open to others than its owner (mode {mode:04o})", hint=f"chmod go= {key_path}"
        )


def objection(context: ssl.SSLContext, certificate_path: str, host: str) -> str:
    """Why a client that calls the broker ``host`` refuses its certificate, whichever CA it trusts; "": it does not.

    ``context``: the broker's. Found by a handshake in memory with a client that trusts the certificate itself.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(certificate_path)
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname=host),
        context.wrap_bio(to_server, to_client, server_side=True),
    )
    for end in ends * _FLIGHTS_MAX:
        try:
            end.do_handshake()
        except ssl.SSLCertVerificationError as error:
            return error.verify_message.rstrip(".")
        except ssl.SSLError:
            pass  # it waits for the other end; or the broker wants a certificate, when its own was accepted
    return ""


class ServerTls:
    """TLS of one broker. ``context`` is that of the next connection.

    Files that have changed are read by ``reload``, and by themselves after ``watch``.
    """

    def __init__(self, files: TlsFiles, host: str) -> None:
        """``host``: what clients call the broker. ConfigError: a file cannot be used."""
        self._files = files
        self._host = host
        self._timer: TimerHandle | None = None
        self._stamp = files.stamp()
        self.context = files.context()
        self._warn()

    def watch(self, timers: Timers, interval_s: float) -> None:
        """Look at the files once in ``interval_s``, until ``stop``."""

        def look() -> None:
            self._timer = timers.call_later(interval_s, look)
            if self._files.stamp() != self._stamp:
                self.reload()

        self._timer = timers.call_later(interval_s, look)

    def stop(self) -> None:
        """Watch the files no more."""
        if self._timer is not None:
            self._timer.cancel()

    def reload(self) -> None:
        """Read the files again; if one cannot be used all stay as they were."""
        # Taken before they are read: what changes meanwhile is seen at the next look.
        self._stamp = self._files.stamp()
        try:
            self.context = self._files.context()
        except ConfigError as error:
            logger.error("certificate not renewed reason=%s", error)
        else:
            logger.info("certificate renewed path=%s", self._files.certificate_path)
            self._warn()

    def _warn(self) -> None:
        path = self._files.certificate_path
        if reason := objection(self.context, path, self._host):
            logger.warning(
                "clients that verify the broker refuse its certificate path=%s called=%s reason=%s",
                path,
                self._host,
                reason,
            )
