# SPDX-License-Identifier: Apache-2.0
"""A bounded pool of open log files, so that ten thousand topics need no ten thousand descriptors.

Files that a commit job works on are pinned and stay open until it is finished; of the others the least recently used
is closed when the pool is full. Closing needs no sync: an error of later write-back is reported to the next sync
of the file, also through a new descriptor (Linux 4.17 and newer).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from broker_core.base.invariants import invariant
from broker_core.storage.disk import TOO_MANY_FILES, Disk, File

HANDLES_MAX: Final = 512
"""Open log files. Leaves room for connections under the common limit of 1024 descriptors."""


class HandlePool:
    """Open files by path."""

    def __init__(self, disk: Disk, handles_max: int = HANDLES_MAX) -> None:
        self._disk = disk
        self._handles_max = handles_max
        self._files: OrderedDict[str, File] = OrderedDict()
        self._pins: dict[str, int] = {}

    def get(self, path: str) -> File:
        """The open file. OSError as the disk raises it."""
        file = self._files.get(path)
        if file is not None:
            self._files.move_to_end(path)
            return file
        self._evict(self._handles_max - 1)
        try:
            file = self._disk.open(path)
        except OSError as e:
            if e.errno not in TOO_MANY_FILES:
                raise
            self._evict(0)
            file = self._disk.open(path)
        self._files[path] = file
        return file

    def pin(self, path: str) -> File:
        """``get``, and keep it open until ``unpin``."""
        file = self.get(path)
        self._pins[path] = self._pins.get(path, 0) + 1
        return file

    def expect(self, path: str) -> None:
        """Make room for a new file that the caller makes and hands over (``adopt``); it counts as pinned."""
        invariant(path not in self._files, "%s was created before", path)
        self._evict(self._handles_max - 1)
        self._pins[path] = 1

    def adopt(self, path: str, file: File) -> None:
        """Take over an open file; it is closed if it was opened once more meanwhile."""
        if self._files.setdefault(path, file) is not file:
            file.close()

    def lend(self, count: int) -> list[tuple[str, File]]:
        """Give up to ``count`` files that are not pinned, least recently used first; ``adopt`` takes them back."""
        idle = [path for path in self._files if path not in self._pins][:count] if count else []
        return [(path, self._files.pop(path)) for path in idle]

    def unpin(self, path: str) -> None:
        left = self._pins.pop(path) - 1
        if left:
            self._pins[path] = left

    def forget(self, path: str) -> None:
        """Close a file that is about to be removed."""
        invariant(path not in self._pins, "%s is in use by a commit", path)
        file = self._files.pop(path, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        self._files.clear()
        self._pins.clear()

    def _evict(self, keep: int) -> None:
        if len(self._files) <= keep:
            return
        for path in [p for p in self._files if p not in self._pins][: len(self._files) - keep]:
            self._files.pop(path).close()
