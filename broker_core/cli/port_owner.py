# SPDX-License-Identifier: Apache-2.0
"""Which process listens on a port of this machine, as far as Linux tells its user."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS: Final = "0A"
_SOCKET: Final = "socket:["
_SHOWN_MAX: Final = 100
"""Characters of a command line."""


def port_owner(port: int) -> str:
    """``process 12 (python -m ...)``, or whose process it is if its name is not to be had; "": nothing is known."""
    sockets = dict(_listening(port))
    for directory in Path("/proc").glob("[0-9]*"):
        if sockets.keys() & _sockets_of(directory):
            return f"process {directory.name} ({_command_of(directory)})"
    return next((f"a process of user {_user_name(uid)}" for uid in sockets.values()), "")


def _listening(port: int) -> Iterator[tuple[str, int]]:
    """Inode and user of each socket that listens on ``port``."""
    for table in _TABLES:
        for line in _text(table).splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9], int(fields[7])


def _sockets_of(process: Path) -> set[str]:
    """Inodes of the sockets that a process has open; none if this user may not know."""
    found = set()
    with suppress(OSError):  # It is another user's, or gone.
        for number in os.listdir(process / "fd"):
            with suppress(FileNotFoundError):  # It was closed meanwhile.
                found.add(os.readlink(process / "fd" / number))
    return {each[len(_SOCKET) : -1] for each in found if each.startswith(_SOCKET)}


def _command_of(process: Path) -> str:
    words = _text(process / "cmdline").replace("\0", " ").strip() or _text(process / "comm").strip()
    return words if len(words) <= _SHOWN_MAX else f"{words[:_SHOWN_MAX]}..."


def _user_name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "backslashreplace")
    except OSError:
        return ""
