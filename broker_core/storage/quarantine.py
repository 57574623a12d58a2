# SPDX-License-Identifier: Apache-2.0
"""Keeps count of damaged bytes and lays copies of them aside.

The file with the damage is never changed; the copy survives when retention deletes that file. A copy is a help for
whoever investigates: if it cannot be written, the damage is still reported and counted.
"""

from __future__ import annotations

from contextlib import closing
from typing import Final

from broker_core.storage import layout
from broker_core.storage.disk import Disk, write_fully
from broker_core.storage.recovery import DamagedRange
from broker_core.storage.report import Damage, RecoveryReport

_COPY_BYTES_MAX: Final = 16 * 1024 * 1024
"""More of one damaged range is not copied."""

_COPIES_MAX: Final = 1000
"""A disk that is falling apart must not be filled with copies."""


class Quarantine:
    """The damage register of one open store."""

    def __init__(self, disk: Disk, directory: str, report: RecoveryReport) -> None:
        self._disk = disk
        self._directory = directory
        self.report = report
        self._seen: set[tuple[str, int]] = set()

    def note(self, path: str, file_id: int, damage: DamagedRange, what: str) -> None:
        """Register damage to ``what`` in ``path``; the same place is registered once."""
        if (path, damage.start) in self._seen:
            return
        self._seen.add((path, damage.start))
        entries = max(damage.last - damage.first + 1, 0)
        if entries == 1:
            what = f"{what} of entry {file_id}:{damage.first}"
        elif entries:
            what = f"{what}s of entries {file_id}:{damage.first} to {file_id}:{damage.last}"
        self.report.damages.append(Damage(path, damage.start, damage.end - damage.start, what))
        self.report.entries_damaged += entries
        if len(self.report.damages) <= _COPIES_MAX:
            self._copy(path, damage)

    def _copy(self, path: str, damage: DamagedRange) -> None:
        target = layout.quarantine_path(self._directory, path, damage.start)
        try:
            if self._disk.exists(target):
                return
            with closing(self._disk.open_read_only(path)) as file:
                data = file.read(damage.start, min(damage.end - damage.start, _COPY_BYTES_MAX))
            with closing(self._disk.open(target, create=True)) as copy:
                write_fully(copy, 0, [data] if data else [])
        except OSError:
            return  # reported already; a copy is only a help
