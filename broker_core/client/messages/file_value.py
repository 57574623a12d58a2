# SPDX-License-Identifier: Apache-2.0
"""``FileValue``: the content of a file as the value of a message, read part by part.

A value in chunks that is not compressed is never in memory as a whole that way: a producer reads each part when it is
sent, and a consumer with ``large_values_in_files`` hands out what it has put together. The file must stay as it is
until the message has its receipt: a part may be sent again after a reconnect. So each reading compares the file with
what it was at the beginning, and a file that was changed fails its message: parts of two contents are no value.
"""

from __future__ import annotations

import os
import stat
import weakref
from collections.abc import Iterator
from os import PathLike
from typing import Final

from broker_core.base.errors import UsageError

_PIECE_BYTES: Final = 1024 * 1024


class FileValue:
    """The content of the file at ``path`` as it is now. May be read on any thread."""

    def __init__(self, path: str | PathLike[str] | int) -> None:
        """``path`` may be the descriptor of an open file, which is closed with this.

        Raises OSError if the file cannot be opened, UsageError if it is no regular file, as a pipe has no parts.
        """
        if isinstance(path, int):
            self._path, self._file = f"file {path}", path
        else:
            self._path = os.fspath(path)
            self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._file)
        self._before = os.fstat(self._file)
        if not stat.S_ISREG(self._before.st_mode):
            raise UsageError(f'"{self._path}" is no regular file', hint="read it, and send its bytes")

    def __len__(self) -> int:
        return self._before.st_size

    def part(self, start: int, end: int) -> bytes:
        """The bytes from ``start`` to ``end``; UsageError if the file cannot give them, or was changed."""
        pieces = []
        try:
            while start < end and (piece := os.pread(self._file, end - start, start)):
                pieces.append(piece)
                start += len(piece)
            now = os.fstat(self._file)
        except OSError as error:
            raise UsageError(f'"{self._path}" cannot be read: {error.strerror}') from error
        if (now.st_size, now.st_mtime_ns) != (self._before.st_size, self._before.st_mtime_ns) or start < end:
            raise UsageError(f'"{self._path}" was changed while it was sent', hint="send it again, or a copy of it")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def pieces(self) -> Iterator[bytes]:
        """All of it, one piece after the other."""
        for start in range(0, len(self), _PIECE_BYTES):
            yield self.part(start, min(start + _PIECE_BYTES, len(self)))

    def whole(self) -> bytes:
        """All of it, in memory."""
        return self.part(0, len(self))


def in_memory(value: bytes | FileValue) -> bytes:
    """The bytes of ``value``."""
    return value.whole() if isinstance(value, FileValue) else value
