# SPDX-License-Identifier: Apache-2.0
"""Which synced bytes of log files stay in the system's page cache: the newest of all files together, up to a limit.

A log is written once and most of it is read soon or never. Left alone, the system takes a fresh page of memory for all
that is written until memory is full, and fresh pages cost more than the write itself (some 2 s of CPU for each GB in
a virtual machine that gives idle memory back to its host). Letting go of pages that were synced long ago makes
the next write find them again.

Pure: says which ranges are due; ``commit`` has them dropped, on its worker thread. Only a hint to the system, never
needed for correctness: readers of what was dropped get it from the disk.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

RANGE_BYTES: Final = 8 * 1024 * 1024
"""Synced bytes of one file that are let go of together. Less of a file is left to the system, so that the many small
files of quiet topics cost nothing here; dropping less at once was slower."""


class CachedRange(NamedTuple):
    """Bytes of a file, synced and not yet dropped. ``start`` and ``end`` are multiples of RANGE_BYTES."""

    path: str
    start: int
    end: int


class PageCache:
    """Synced ranges, oldest first."""

    def __init__(self, bytes_max: int) -> None:
        """Keep ``bytes_max`` bytes; 0 leaves everything to the system."""
        self._bytes_max = bytes_max
        self._size = 0
        self._ranges: deque[CachedRange] = deque()

    def synced(self, path: str, counted: int, end: int) -> int:
        """The file was synced up to ``end``, and up to ``counted`` it is known here. Up to where it is now."""
        whole = end - end % RANGE_BYTES
        if whole <= counted or not self._bytes_max:
            return counted
        self._ranges.append(CachedRange(path, counted, whole))
        self._size += whole - counted
        return whole

    def take_due(self) -> list[CachedRange]:
        """The oldest ranges, which exceed the limit; they are forgotten here."""
        due = []
        while self._size > self._bytes_max:
            due.append(self._ranges.popleft())
            self._size -= due[-1].end - due[-1].start
        return due

    def forget(self, path: str) -> None:
        """The file was removed."""
        self._ranges = deque(each for each in self._ranges if each.path != path)
        self._size = sum(each.end - each.start for each in self._ranges)
