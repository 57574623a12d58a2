# SPDX-License-Identifier: Apache-2.0
"""Keeps count of damaged bytes and lays copies of them aside.

The file with the damage is never changed; the copy survives when retention deletes that file. A copy helps those
who investigate: if it cannot be written, the damage is still reported and counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyroaring import BitMap

from broker_core.base.positions import Position
from broker_core.storage import layout
from broker_core.storage.catalogue import LedgerRow
from broker_core.storage.disk import Disk, copy_aside
from broker_core.storage.recovery import DamagedRange
from broker_core.storage.report import Damage, RecoveryReport

_COPIES_TRIED_MAX: Final = 1000
"""Copies that one start tries to make: each looks at what is there, while clients wait."""


_PLACE_BYTES: Final = 32
"""No two records of a file begin within so many bytes. Counted in these, places of 128 GiB are numbers of 32 bits, of
which a bitmap needs two bytes each."""


class Quarantine:
    """The damage register of one open store."""

    def __init__(self, disk: Disk, directory: str, report: RecoveryReport, topic_name: Callable[[int], str]) -> None:
        """``topic_name`` gives the full name of a topic id, or nothing."""
        self._disk = disk
        self._topic_name = topic_name
        self._directory = directory
        self.report = report
        self._seen: dict[str, BitMap] = {}

    def note(self, path: str, row: LedgerRow, damage: DamagedRange, what: str) -> None:
        """Register damage to ``what`` of a ledger; the same place is registered once."""
        entries = max(damage.last - damage.first + 1, 0)
        if entries == 1:
            what = f"{what} of entry {row.id}:{damage.first}"
        elif entries:
            what = f"{what}s of entries {row.id}:{damage.first} to {row.id}:{damage.last}"
        self._note(path, damage, what, self._topic_name(row.topic_id), row.id)

    def note_acknowledgements(self, path: str, damage: DamagedRange) -> None:
        """Register damage to a cursor log."""
        what = "acknowledgements, which are given up: some messages come again to any subscription"
        self._note(path, damage, what, "")

    def note_missing_cursors(self, path: str) -> None:
        """Register that the current cursor log is not there."""
        what = (
            "is missing; every acknowledgement is lost: what is stored comes again to every subscription; one that is "
            "not to get it again is moved on with: pulsarish sub reset"
        )
        self._note(path, DamagedRange(0, 0, 0, -1), what, "")

    def note_missing(self, row: LedgerRow, path: str, why: str) -> None:
        """Register that nothing is left of a ledger, of which at least so many entries were stored."""
        entries = row.entries if row.entries > 1 else "its"
        damage = DamagedRange(0, row.size_bytes, 0, row.entries - 1)
        what = f"{why}; {entries} entries of ledger {row.id} are lost"
        self._note(path, damage, what, self._topic_name(row.topic_id))

    def note_found(self, path: str, what: str, topic_id: int) -> None:
        """Register what another store says of a file."""
        self.report.note_once(Damage(path, 0, 0, what, self._topic_name(topic_id)))

    def note_unknown(self, path: str) -> None:
        """Register a file that the catalogue does not know. It is kept: it may hold what the catalogue has lost."""
        self._note(path, DamagedRange(0, 0, 0, -1), "is unknown to the catalogue; it is kept and ignored", "")

    def _note(self, path: str, damage: DamagedRange, what: str, topic: str, ledger: int = -1) -> None:
        """Register a place, unless it was before. ``ledger``: of which it hits entries; -1 if it is no ledger."""
        seen = self._seen.setdefault(path, BitMap())
        if damage.start // _PLACE_BYTES in seen:
            return
        seen.add(damage.start // _PLACE_BYTES)
        found = Damage(path, damage.start, damage.end - damage.start, what, topic)
        if ledger >= 0 and damage.last >= damage.first:
            first, last = Position(ledger, damage.first), Position(ledger, damage.last)
            found = found._replace(entries=damage.last - damage.first + 1, first=first, last=last)
        self.report.note(found)
        if damage.end > damage.start and self.report.places <= _COPIES_TRIED_MAX:
            target = layout.quarantine_path(self._directory, path, damage.start)
            copy_aside(self._disk, path, target, damage.start, damage.end)
