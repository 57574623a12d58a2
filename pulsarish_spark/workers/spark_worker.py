# SPDX-License-Identifier: Apache-2.0
"""Being a good guest in Spark's Python workers: two habits that take most of the fixed cost out of a small task.

A worker gets a task in two pieces: our pickled reader or writer, then the rows or the input partition. Spark's socket
holds the second piece back until the first is acknowledged (Nagle's algorithm), and the kernel delays that
acknowledgement by 40 ms: each task of a micro-batch would begin 40 ms late. Unpickling happens between the two, so
that is where the acknowledgement is sent. Sources: RFC 896, RFC 1122 4.2.3.2, tcp(7) ``TCP_QUICKACK``.

A worker that is used again runs a full garbage collection after each task, on the processor that the end of the
micro-batch needs. The compiled codec brings tens of thousands of objects that live as long as the process; moved out of
the collector's sight once, they cost nothing any more. Source: Python docs, ``gc.freeze``.

Nothing here can fail a task, and where the kernel has no such option nothing is done.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import socket
import stat
from collections.abc import Iterator
from typing import Any, Final

_OPEN_FILES: Final = "/proc/self/fd"
_QUICK_ACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)


class SentToWorkers:
    """Base of what Spark pickles to its workers: unpickling one asks for the rest of the task at once."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge_received()


def acknowledge_received() -> None:
    """Acknowledge what this process's TCP connections have received and not acknowledged yet."""
    if _QUICK_ACK is None:
        return
    for number in _open_sockets():
        with contextlib.suppress(OSError):  # It is of another kind, or another thread has closed it by now.
            _acknowledge(number, _QUICK_ACK)


def _acknowledge(number: int, quick_ack: int) -> None:
    """OSError if that is no TCP connection."""
    # Python would make it one that does not block, where the application has set a default timeout, but for this name.
    kind = socket.SOCK_STREAM | socket.SOCK_NONBLOCK
    connection = socket.socket(socket.AF_INET, kind, 0, fileno=number)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, quick_ack, 1)
    finally:
        connection.detach()


@functools.cache
def freeze_imports() -> None:
    """Call when a task is through and everything is loaded; only the first call in a process does something."""
    gc.freeze()


def _open_sockets() -> Iterator[int]:
    """The descriptors of open sockets; files that are closed meanwhile are passed over."""
    with contextlib.suppress(OSError):
        for number in map(int, os.listdir(_OPEN_FILES)):
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK(os.fstat(number).st_mode):
                    yield number
