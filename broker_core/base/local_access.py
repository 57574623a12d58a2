# SPDX-License-Identifier: Apache-2.0
"""Access to a broker for the user whose data directory it serves: a token in that directory, found by port.

A broker that is not open to all makes a token at its birth, in a file that only its user can read. Programs of that
user which know the directory read it there. For those which know an address alone, each broker leaves a note in the
folder of the user's state, named by its port, that says where its directory is. The note is a hint, never proof: a
token is given away only to the living broker that has the directory and says there that it listens at the port, so
that another user, who takes the port after the broker has ended, gets none.
"""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from broker_core.base.errors import ConfigError
from broker_core.base.private_files import make_directory, private_opener, replace_private
from broker_core.base.runtime import DATA_SUBDIR, RUNTIME_FILE, RuntimeInfo, has_directory
from broker_core.base.secret import Secret

TOKEN_FILE: Final = "token"  # noqa: S105 - a name
"""Name of the file, in the data directory, with the token of the directory's owner."""

_TOKEN_BYTES: Final = 32
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}\n")
"""Random bytes of this number, in URL-safe base64."""

_NOTES: Final = "brokers"


def make_token(data_dir: Path) -> Secret:
    """The token of a data directory; a new one, durable before this returns, if there is none.

    Raises ConfigError if the file holds none, OSError as the system says.
    """
    if (token := token_of(data_dir)) is not None:
        return token
    made = secrets.token_urlsafe(_TOKEN_BYTES)
    replace_private(data_dir / TOKEN_FILE, f"{made}\n".encode(), durable=True)
    return Secret(made)


def token_of(data_dir: Path) -> Secret | None:
    """The token of a data directory; None if it has none. ConfigError: it is damaged; OSError as the system says."""
    path = data_dir / TOKEN_FILE
    try:
        with open(path, opener=private_opener, encoding="ascii", errors="replace") as file:
            text = file.read()
    except FileNotFoundError:
        return None
    if not _TOKEN.fullmatch(text):
        raise ConfigError(
            f"{path} is damaged: it holds no token",
            hint="remove it and start the broker again, which then makes another one",
        )
    return Secret(text.strip())


# -- notes


def announce(data_dir: Path, urls: Iterable[str], env: Mapping[str, str]) -> None:
    """Note that the broker of ``data_dir`` listens at ``urls``. OSError as the system says; ConfigError: no home."""
    folder = _notes(env)
    make_directory(str(folder))
    for port in _ports(urls):
        replace_private(folder / str(port), os.fsencode(data_dir))


def withdraw(data_dir: Path, urls: Iterable[str], env: Mapping[str, str]) -> None:
    """Take those notes back that are still of this broker."""
    for port in _ports(urls):
        with suppress(OSError, ConfigError):
            note = _notes(env) / str(port)
            if _read(note) == data_dir:
                note.unlink(missing_ok=True)


def token_at(url: str, env: Mapping[str, str]) -> Secret | None:
    """The token of this user's broker at ``url``; None if there is none, or it has none."""
    with suppress(OSError, ConfigError, ValueError):
        port = urlsplit(url).port
        if port is None or not is_this_machine(urlsplit(url).hostname or ""):
            return None
        directory = _read(_notes(env) / str(port))
        with open(directory / RUNTIME_FILE, "rb", opener=private_opener) as file:
            info = RuntimeInfo.read(file)
        if info is None or not has_directory(info, directory):
            return None
        if port in _ports(info.urls):
            return token_of(directory)
    return None


def is_this_machine(host: str) -> bool:
    """Whether ``host`` is a name or an address of the loopback device."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _ports(urls: Iterable[str]) -> set[int]:
    return {port for url in urls if (port := urlsplit(url).port) is not None}


def _notes(env: Mapping[str, str]) -> Path:
    if state := env.get("XDG_STATE_HOME"):
        return Path(state, DATA_SUBDIR, _NOTES)
    if home := env.get("HOME") or env.get("USERPROFILE"):
        return Path(home, ".local", "state", DATA_SUBDIR, _NOTES)
    raise ConfigError("there is no folder for the state of this user: HOME is not set", hint="set HOME")


def _read(note: Path) -> Path:
    with open(note, "rb", opener=private_opener) as file:
        return Path(os.fsdecode(file.read()))
