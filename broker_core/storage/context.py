# SPDX-License-Identifier: Apache-2.0
"""Parts that the logs of one store share. Built by ``Store``."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker_core.base.clock import Clock
from broker_core.base.private_files import NotAFileError
from broker_core.base.settings import Settings
from broker_core.storage import layout
from broker_core.storage.catalogue import LEDGER_OPEN, Catalogue, LedgerRow
from broker_core.storage.commit import GroupCommit
from broker_core.storage.disk import Disk
from broker_core.storage.handles import HandlePool
from broker_core.storage.ledger_index import IndexCache
from broker_core.storage.mark_copies import MarkCopies
from broker_core.storage.quarantine import Quarantine
from broker_core.storage.recovery import least_synced
from broker_core.storage.tail_cache import TailCache


@dataclass(slots=True)
class StoreContext:
    """The parts of an open store. ``ledgers_missing``: ids in the catalogue whose files are not there, or another's."""

    disk: Disk
    directory: str
    clock: Clock
    settings: Settings
    handles: HandlePool
    commits: GroupCommit
    catalogue: Catalogue
    marks: MarkCopies
    tail_cache: TailCache
    quarantine: Quarantine
    indexes: IndexCache = field(default_factory=IndexCache)
    ledgers_missing: set[int] = field(default_factory=set)

    def lost_without_file(self, row: LedgerRow, error: OSError) -> LedgerRow | None:
        """``lost_ledger`` if ``error``, the answer to opening its file, says that there is none: no such name, or a
        pipe, a link, a folder. That is its topic's loss. None: the disk refused, which concerns all."""
        if isinstance(error, FileNotFoundError):
            return self.lost_ledger(row, "is missing")
        if isinstance(error, NotAFileError):
            return self.lost_ledger(row, f"cannot be read: {error.strerror}")
        return None

    def lost_ledger(self, row: LedgerRow, why: str) -> LedgerRow:
        """Register that nothing is left of a ledger; returns what is known of it. The catalogue is not changed, because
        the file may be restored."""
        self.ledgers_missing.add(row.id)
        row = self.known_of_lost(row)
        self.quarantine.note_missing(row, layout.ledger_path(self.directory, row.id), why)
        return row

    def known_of_lost(self, row: LedgerRow) -> LedgerRow:
        """The row of a ledger whose file is lost, as far as it is known without the file."""
        if row.state != LEDGER_OPEN:
            return row
        newest = self.marks.find(row.id, row.header.seed) or least_synced(row)
        return row._replace(next_index=newest.b, entries=newest.a, footer_offset=newest.c)
