# SPDX-License-Identifier: Apache-2.0
"""A few numbers that the rig and its load processes share, in a file mapped by all of them.

Each number is written by one process only and read by the others, eight bytes at a time, so no lock is needed.
"""

from __future__ import annotations

import enum
import mmap
import struct
from pathlib import Path
from typing import Final

LOADS_MAX: Final = 32
_FIELDS: Final = 2 + LOADS_MAX
_NUMBER: Final = struct.Struct("=Q")


class Phase(enum.IntEnum):
    """What the load processes are asked to do."""

    RUN = 0
    STOP_SENDING = 1
    DRAIN_AND_STOP = 2


class SharedState:
    """``phase`` and ``incarnation`` belong to the rig, each progress counter to one load process."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_FIELDS * _NUMBER.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _FIELDS * _NUMBER.size)

    @property
    def phase(self) -> Phase:
        return Phase(self._read(0))

    @phase.setter
    def phase(self, phase: Phase) -> None:
        self._write(0, phase)

    @property
    def incarnation(self) -> int:
        """Counts the brokers. It rises when the old one is dead, before the new one is started."""
        return self._read(1)

    @incarnation.setter
    def incarnation(self, number: int) -> None:
        self._write(1, number)

    def progress(self, load: int) -> int:
        """How many receipts or acknowledgements a load process has got."""
        return self._read(2 + load)

    def add_progress(self, load: int, count: int) -> None:
        """Count more of them."""
        self._write(2 + load, self._read(2 + load) + count)

    def total_progress(self) -> int:
        """Over all load processes."""
        return sum(self.progress(load) for load in range(LOADS_MAX))

    def _read(self, field: int) -> int:
        value: int = _NUMBER.unpack_from(self._map, field * _NUMBER.size)[0]
        return value

    def _write(self, field: int, value: int) -> None:
        _NUMBER.pack_into(self._map, field * _NUMBER.size, value)
