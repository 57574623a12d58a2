# SPDX-License-Identifier: Apache-2.0
"""Where a broker's data lies by default, and how programs on the same machine find it.

A broker that accepts connections leaves ``broker.json`` in its data directory and removes it when it stops. The file is
a hint, never proof: after a kill it names a process that is gone, so a reader must be ready for a refused connection.
It ends with its own checksum: a damaged port would lead to another broker.
Names are built here, and files become values; opening and writing ``broker.json`` is the caller's business.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import BinaryIO, Final
from zlib import crc32

import msgspec

from broker_core.base.errors import ConfigError
from broker_core.base.private_files import private_opener

RUNTIME_FILE: Final = "broker.json"
"""Name of the file inside the data directory."""

DATA_LOCK_FILE: Final = "LOCK"
"""Name of the file that a broker keeps locked as long as it has the data directory, which is longer than it can be
found there. Its text is the process id."""

EMBEDDED_LOG_FILE: Final = "embedded.log"
"""Name of the log, in the data directory, of a broker that a program started for itself."""

_PID_BYTES_MAX: Final = 32

ENV_DATA_DIR: Final = "PULSARISH_DATA_DIR"
ENV_SERVICE_URL: Final = "PULSARISH_SERVICE_URL"
ENV_HTTP_URL: Final = "PULSARISH_HTTP_URL"
DATA_SUBDIR: Final = "pulsarish"


_CHECKED: Final = re.compile(rb'(\{.*),"check":"([0-9a-f]{8})"\}\n', re.DOTALL)

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
"""The beginning of a URL; one letter would be a drive."""

_OWN_BEFORE_THE_FIRST_START: Final = ("FORMAT", DATA_LOCK_FILE, "embedded.")
"""Beginnings of names. A program that starts a broker for itself keeps its notes (``embedded.*``) there too."""


class RuntimeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``broker.json``. Fields that a newer version adds are ignored.

    Attributes:
        service_url: Without TLS, if the broker has such a port; ``http_url`` likewise.
        service_url_tls: With TLS, "" if it has no such port; ``http_url_tls`` likewise.
    """

    pid: int
    service_url: str
    http_url: str
    version: str
    service_url_tls: str = ""
    http_url_tls: str = ""
    file_number: int = 0
    """Number (inode) of the file that says this, 0 if it does not tell: a copy of a data directory has another one, and
    its ``broker.json`` speaks of a broker that serves the original."""

    @property
    def urls(self) -> tuple[str, ...]:
        """The service URL, the admin URL, and what else there is with TLS."""
        both = (self.service_url, self.http_url)
        return both + tuple(url for url in (self.service_url_tls, self.http_url_tls) if url and url not in both)

    def encode(self) -> bytes:
        """The content of the file: one line of JSON, whose last field is a checksum of all before it."""
        fields = msgspec.json.encode(self).removesuffix(b"}")
        return b'%b,"check":"%08x"}\n' % (fields, crc32(fields))

    @classmethod
    def read(cls, file: BinaryIO) -> RuntimeInfo | None:
        """The content of an open file, as ``decode``. OSError: it cannot be read.

        Never its name: between reading and asking for the number another broker's file may have taken that.
        """
        return cls.decode(file.read(), os.fstat(file.fileno()).st_ino)

    @classmethod
    def decode(cls, content: bytes, file_number: int) -> RuntimeInfo | None:
        """Read the content of the file with this number back; None if it is not (yet) whole, is damaged, or was copied
        there."""
        parts = _CHECKED.fullmatch(content)
        if parts is None or int(parts[2], 16) != crc32(parts[1]):
            return None
        try:
            info = _DECODER.decode(content)
        except msgspec.DecodeError:
            return None
        return info if info.file_number in (0, file_number) else None


_DECODER: Final = msgspec.json.Decoder(RuntimeInfo)
"""Made here, for threads that used a struct for the first time together would crash the process."""


def is_held(lock: BinaryIO) -> bool:
    """Whether a broker has the data directory of this open ``DATA_LOCK_FILE``: the lock ends with its process, however
    that ends. If none has it, the lock is shared for a moment, for which a broker that starts waits."""
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(lock, fcntl.LOCK_UN)  # not left to closing: a fork may have the file open, too
    return False


def has_directory(info: RuntimeInfo, data_dir: str | os.PathLike[str]) -> bool:
    """Whether the broker of ``info`` has ``data_dir`` now. OSError as the system says, unless there is no lock."""
    try:
        descriptor = private_opener(os.path.join(data_dir, DATA_LOCK_FILE), os.O_RDONLY)
    except FileNotFoundError:
        return False
    with os.fdopen(descriptor, "rb") as lock:
        return lock.read(_PID_BYTES_MAX).strip() == b"%d" % info.pid and is_held(lock)


def first_foreign(names: Iterable[str]) -> str | None:
    """The first of ``names``, those in a directory where no broker has started yet, that no broker makes; None if all
    may be ours."""
    return next((name for name in sorted(names) if not name.startswith(_OWN_BEFORE_THE_FIRST_START)), None)


def scheme_of(name: str) -> str:
    """The scheme of ``name`` in small letters if it is a URL, empty if it is the path of a file."""
    url = _SCHEME.match(name)
    return "" if url is None else url[1].lower()


def checked_data_dir(name: str) -> str:
    """``name`` of a data directory; ConfigError if it is a URL, for which a folder called ``s3:`` would be made."""
    if scheme := scheme_of(name):
        path = "/" + name[len(scheme) + 1 :].lstrip("/")
        raise ConfigError(
            f"the data directory {name!r} is a URL, and a broker keeps its data on a disk of its own machine",
            hint=f"write the path alone: {path}" if scheme == "file" else "name a directory of this machine",
        )
    return name


def default_data_dir(env: Mapping[str, str]) -> PurePath:
    """The data directory where none is named: ``$PULSARISH_DATA_DIR``, else the user's data home.

    ConfigError if the environment has neither a home nor a data home.
    """
    if named := env.get(ENV_DATA_DIR):
        return PurePath(checked_data_dir(named))
    if data_home := env.get("XDG_DATA_HOME"):
        return PurePath(data_home, DATA_SUBDIR)
    if home := env.get("HOME") or env.get("USERPROFILE"):
        return PurePath(home, ".local", "share", DATA_SUBDIR)
    raise ConfigError(
        "there is no default data directory: HOME is not set", hint=f"name one with --data-dir or {ENV_DATA_DIR}"
    )
