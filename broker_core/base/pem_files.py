# SPDX-License-Identifier: Apache-2.0
"""PEM files as a client and a broker read them: a certificate with its key, trusted CAs, and whether they changed.

Each fault is a ConfigError that names the file. Knows no connections, and not which settings name the files.
Source: documentation of Python's ``ssl``; reasons from OpenSSL.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from broker_core.base.errors import ConfigError

_WHY: Final = {
    "KEY_VALUES_MISMATCH": "the key belongs to another certificate",
    "NO_CERTIFICATE_ASSIGNED": "the key belongs to another certificate",  # of another kind: RSA and EC
    "EE_KEY_TOO_SMALL": "the key is too small: RSA takes 2048 bits or more",
    "CA_KEY_TOO_SMALL": "the key of a CA in it is too small: RSA takes 2048 bits or more",
    "CA_MD_TOO_WEAK": "it is signed with a hash that is not safe any more",
}


def load_pair(context: ssl.SSLContext, certificate_path: str, key_path: str, *, whose: str, hint: str) -> None:
    """Have ``context`` show the certificate of these files; ConfigError says why it cannot.

    ``whose``: the word before "certificate" in an error. ``hint``: of files that cannot be read.
    """

    def ask_for_password() -> str:  # Without it OpenSSL would ask at the terminal.
        raise ConfigError(f"private key {key_path} is encrypted", hint="give one that is not")

    for path in (certificate_path, key_path):
        if not os.access(path, os.R_OK):
            why = "it is not there" if not os.path.exists(path) else "this user may not"
            raise ConfigError(f"file {path} of the {whose} certificate cannot be read: {why}", hint=hint)
    try:
        context.load_cert_chain(certificate_path, key_path, ask_for_password)
    except OSError as error:
        reason = error.reason if isinstance(error, ssl.SSLError) else ""
        why = _WHY.get(reason, "they are not PEM files of these")
        raise ConfigError(f"certificate {certificate_path} and private key {key_path} cannot be used: {why}") from error


@contextmanager
def trusting(path: str, *, hint: str) -> Iterator[None]:
    """The block reads trusted CAs from the file ``path``; ConfigError says why it cannot. ``hint``: of a file that is
    not to be had."""
    try:
        yield
    except ssl.SSLError as error:
        raise ConfigError(
            f"file {path}, which should hold trusted CAs, has no certificate that can be read", hint="it takes PEM"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"file {path}, which should hold trusted CAs, cannot be read: {error.strerror or error}", hint=hint
        ) from error


def stamp_of(paths: Iterable[str]) -> tuple[object, ...]:
    """Another value once one of the files was changed, replaced or removed, or its permissions were; "" is no file."""
    return tuple(_stamp(path) for path in paths if path)


def _stamp(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
