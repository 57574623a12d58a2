# SPDX-License-Identifier: Apache-2.0
"""Closes a ledger that a crash left open: scan, cut off the torn tail, write what was never synced again, write the
footer, change the row in the catalogue.

A file in which nothing belongs to this ledger is the file of another one, or this one was overwritten: it is not
touched, and the ledger counts as missing.

Closing at once, rather than serving the ledger as it is, matters for more than speed: what the scan found may so far be
in the system's memory only, and entries that were shown to consumers must not vanish with the next power loss. A sync
alone would not do: where the sync of a former process failed, the system does not write those bytes a second time.
May be interrupted at any point and repeated: the scan finds the same entries again.

Entries of transactions that are aborted, or that the catalogue does not know, are noted as dead, in the change that
says that the ledger is closed; open ones join the topic if they had not. A crash leaves nothing of that to do, for all
of it is in the catalogue before such an entry is anywhere. But a backup's catalogue is older than its ledgers, and one
that was read from its copy may be.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from broker_core.base.errors import StorageError
from broker_core.base.invariants import invariant
from broker_core.base.positions import Position
from broker_core.storage import layout
from broker_core.storage.catalogue import LEDGER_CLOSED, LedgerRow
from broker_core.storage.context import StoreContext
from broker_core.storage.cursor_log import Reading
from broker_core.storage.disk import TOO_MANY_FILES, File, disk_failed, write_again, write_fully
from broker_core.storage.ledger_index import DAMAGED, encode_footer
from broker_core.storage.records import HEAD_BYTES, TXN_BYTES, decode_head, decode_transaction
from broker_core.storage.recovery import ScannedLedger, scan_open_ledger
from broker_core.wire.heads import TxnId


class LedgerRecovery:
    """The closing of one ledger. ``run`` reads and writes that file only, so any one thread may do it."""

    def __init__(self, context: StoreContext, row: LedgerRow) -> None:
        self._context = context
        self._row = row
        self._path = layout.ledger_path(context.directory, row.id)
        self._seed = row.header.seed
        self._copy = context.marks.find(row.id, self._seed)
        self._scanned: ScannedLedger | None = None
        self._transactions: list[tuple[int, TxnId]] = []
        self._writing = False
        self._error: Exception | None = None

    def run(self) -> None:
        """Scan the file and close it. Blocks for as long as the disk needs; ``finish`` reports the outcome."""
        row = self._row
        try:
            with closing(self._context.disk.open(self._path)) as file:
                scanned = scan_open_ledger(file, row, self._copy)
                self._writing = True
                if scanned.recognized:
                    self._transactions = _transactions(file, self._seed, scanned)
                    self._row = _close_file(file, self._seed, scanned, row)
        except Exception as e:  # noqa: BLE001 - root of a task: ``finish`` raises it again
            self._error = e
        else:
            self._scanned = scanned

    def finish(self) -> LedgerRow:
        """The row of the ledger, which is closed now.

        Raises:
            DiskFailedError: the disk refused a write or a sync.
            StorageError: it refused a read, which is the loss of this topic alone, perhaps for a while.
            Exception: whatever else stopped ``run``: the ledger is as it was before, and may be recovered again.
        """
        context, row, scanned = self._context, self._row, self._scanned
        if isinstance(self._error, OSError) and self._error.errno not in TOO_MANY_FILES:
            if (lost := context.lost_without_file(row, self._error)) is not None:
                return lost
            if not self._writing:
                raise self._unreadable(self._error) from self._error
            error = disk_failed(self._error)
            context.commits.fail(error)
            raise error from self._error
        if self._error is not None:
            raise self._error
        invariant(scanned is not None, "the recovery of ledger %s was not run", row.id)
        assert scanned is not None
        if not scanned.recognized:
            return context.lost_ledger(row, "holds nothing of this ledger; it was left as it is")
        for damage in scanned.damages:
            context.quarantine.note(self._path, row, damage, "record")
        catalogue = context.catalogue
        with catalogue.transaction():
            catalogue.ledgers.mark_closed(row)
            dead = [entry for entry, name in self._transactions if not catalogue.transactions.may_show(name)]
            catalogue.aborted_entries.add(row.id, dead)
            for name in dict.fromkeys(name for _, name in self._transactions):
                catalogue.transactions.found_in(name, row.topic_id, Position(row.id, -1))
        context.marks.release(row.id)
        context.indexes.put(row.id, scanned.index)
        return row

    def _unreadable(self, error: OSError) -> StorageError:
        return StorageError(
            f"{self._path}, which a crash left open, cannot be read: {error.strerror or error}",
            hint="check the disk and try again, restore the file from a backup, or start the broker without the file,"
            " which gives up what was in it",
        )


class TopicRecovery:
    """The recovery of all ledgers of a topic that a crash left open, of which there is one at most as a rule; and
    another try to read what its subscriptions have acknowledged, if the disk has refused that."""

    def __init__(self, topic_id: int, ledgers: list[LedgerRecovery], cursors: Reading | None = None) -> None:
        self.topic_id = topic_id
        self.ledgers = ledgers
        self.cursors = cursors

    def run(self) -> None:
        """On any one thread, before ``Store.finish_recovery``."""
        if self.cursors is not None:
            self.cursors.run()
        for ledger in self.ledgers:
            ledger.run()


def _close_file(file: File, seed: int, scanned: ScannedLedger, row: LedgerRow) -> LedgerRow:
    index = scanned.index
    footer = encode_footer(seed, scanned.end, index)
    file.truncate(scanned.end)
    write_again(file, scanned.covered, scanned.end)
    write_fully(file, scanned.end, [footer])
    file.sync()
    readable = [offset for offset in index.offsets if not offset & DAMAGED] if index.damaged else index.offsets
    return row._replace(
        state=LEDGER_CLOSED,
        next_index=index.next_index,
        entries=index.entries,
        footer_offset=scanned.end,
        size_bytes=scanned.end + len(footer),
        first_ms=_time_at(file, seed, readable[:1]),
        last_ms=_time_at(file, seed, readable[-1:]),
        lost=scanned.lost,
    )


def _transactions(file: File, seed: int, scanned: ScannedLedger) -> list[tuple[int, TxnId]]:
    """The entries of transactions that were looked at, each with that; those that are damaged are left out."""
    found: list[tuple[int, TxnId]] = []
    for entry in scanned.in_transactions:
        offset = scanned.index.offsets[entry]
        data = b"" if offset & DAMAGED else file.read(offset, HEAD_BYTES + TXN_BYTES)
        head = decode_head(seed, offset, data)
        name = None if head is None else decode_transaction(head, data[HEAD_BYTES:])
        if name is not None:
            found.append((entry, name))
    return found


def _time_at(file: File, seed: int, offsets: Sequence[int]) -> int:
    """Broker time of the entry at the offset, if there is one."""
    head = decode_head(seed, offsets[0], file.read(offsets[0], HEAD_BYTES)) if offsets else None
    return 0 if head is None else head.c
