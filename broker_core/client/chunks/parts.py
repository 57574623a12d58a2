# SPDX-License-Identifier: Apache-2.0
"""Where the parts of a value wait for the rest of it: in memory, or in a temporary file.

The file has no name and is gone with the last that uses it. It is in ``TMPDIR``, or else in ``/var/tmp``, which is made
for large files where ``/tmp`` may be memory. What finds no room there waits in memory: no part is lost for that.
"""

from __future__ import annotations

import logging
import os
import tempfile
import weakref
from pathlib import Path
from typing import Final, Protocol

from broker_core.client.messages.file_value import FileValue
from broker_core.wire.entry import BytesLike

logger = logging.getLogger(__name__)

_ROOMY: Final = Path("/var/tmp")  # noqa: S108 - only files without a name are made there


class Parts(Protocol):
    """The parts of one value, in order."""

    def append(self, part: BytesLike) -> None:
        """Keep the next part."""
        ...

    def joined(self) -> bytes | FileValue:
        """The value. Called once, at the end."""
        ...


class PartsInMemory:
    """Parts as they came."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[BytesLike] = []

    def append(self, part: BytesLike) -> None:
        self._parts.append(part)

    def joined(self) -> bytes:
        return b"".join(self._parts)


class PartsInFile:
    """Parts in a temporary file, except those after the first that found no room."""

    def __init__(self) -> None:
        self._file = -1
        self._closing: weakref.finalize[..., PartsInFile] | None = None
        self._size_bytes = 0
        self._rest: list[BytesLike] = []

    def append(self, part: BytesLike) -> None:
        if self._rest:
            self._rest.append(part)
            return
        try:
            if self._closing is None:
                self._file = _unnamed_file()
                self._closing = weakref.finalize(self, os.close, self._file)
            left = memoryview(part)
            while left:
                left = left[os.pwrite(self._file, left, self._size_bytes + len(part) - len(left)) :]
            self._size_bytes += len(part)
        except OSError as error:
            logger.warning(
                "consumer value in memory reason=%r advice=%r", error.strerror, "set TMPDIR to where room is"
            )
            self._rest.append(part)

    def joined(self) -> bytes | FileValue:
        if self._closing is None:
            return b"".join(self._rest)
        self._closing.detach()
        value = FileValue(self._file)
        return b"".join((value.part(0, self._size_bytes), *self._rest)) if self._rest else value


def _unnamed_file() -> int:
    directory = _ROOMY if "TMPDIR" not in os.environ and os.access(_ROOMY, os.W_OK) else None
    with tempfile.TemporaryFile(dir=directory) as file:
        return os.dup(file.fileno())
