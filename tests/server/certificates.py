# SPDX-License-Identifier: Apache-2.0
"""Certificates of a test: a CA of its own, and files of what it signs, in a folder of the test."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Any, NamedTuple

import trustme


class Pair(NamedTuple):
    """The files of a certificate and of its key."""

    certificate: str
    key: str


class Authority:
    """A CA; ``path`` is its own certificate."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._ca = trustme.CA()
        self.path = str(folder / f"{name}.pem")
        self._ca.cert_pem.write_to_path(self.path)

    def issue(self, name: str, *identities: str, **more: Any) -> Pair:
        """A new certificate in files of this name, which are replaced one after the other."""
        made = self._ca.issue_cert(*identities, **more)
        pair = Pair(str(self._folder / f"{name}.pem"), str(self._folder / f"{name}.key"))
        _replace(pair.certificate, b"".join(each.bytes() for each in made.cert_chain_pems))
        _replace(pair.key, made.private_key_pem.bytes())
        return pair

    def client(self, pair: Pair | None = None) -> ssl.SSLContext:
        """TLS of a client that trusts this CA, and shows the certificate of ``pair``."""
        context = ssl.create_default_context(cafile=self.path)
        if pair is not None:
            context.load_cert_chain(*pair)
        return context


def _replace(path: str, content: bytes) -> None:
    fresh = f"{path}.new"
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    os.replace(fresh, path)


def der_of(pair: Pair) -> bytes:
    """The certificate itself."""
    first = Path(pair.certificate).read_text().split("-----END CERTIFICATE-----")[0]
    return ssl.PEM_cert_to_DER_cert(first + "-----END CERTIFICATE-----\n")
