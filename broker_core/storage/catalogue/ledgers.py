# SPDX-License-Identifier: Apache-2.0
"""The ledgers of all topics. Only ``TopicLog`` and ``Store`` change them."""

from __future__ import annotations

from typing import Final, NamedTuple

from broker_core.base.invariants import invariant
from broker_core.storage.catalogue.aborted_entries import AbortedEntries
from broker_core.storage.catalogue.database import Database
from broker_core.storage.catalogue.ledger_ids import LedgerIds
from broker_core.storage.records import KIND_LEDGER, FileHeader

LEDGER_CREATING: Final = 0
LEDGER_OPEN: Final = 1
LEDGER_CLOSED: Final = 2
LEDGER_DELETING: Final = 3

_CLOSE: Final = (
    "UPDATE ledgers SET state = ?, next_index = ?, entries = ?, footer_offset = ?, size_bytes = ?,"
    " first_ms = ?, last_ms = ?, lost = ? WHERE id = ? AND state = ?"
)


class LedgerRow(NamedTuple):
    """One ledger. What follows ``first_index`` is known when ``state`` is LEDGER_CLOSED, else 0; but ``footer_offset``
    of an open ledger is where its newest synced INDEX record is. ``lost``: how many of ``entries`` were known to be
    damaged or gone when it was closed."""

    id: int
    topic_id: int
    state: int
    created_ms: int
    first_index: int
    next_index: int
    entries: int
    footer_offset: int
    size_bytes: int
    first_ms: int
    last_ms: int
    lost: int = 0

    @property
    def header(self) -> FileHeader:
        """The header of the ledger's file."""
        return FileHeader(KIND_LEDGER, self.id, self.topic_id, self.created_ms, self.first_index)


_COLUMNS: Final = ", ".join(LedgerRow._fields)
_SELECT: Final = f"SELECT {_COLUMNS} FROM ledgers"  # noqa: S608 - words of this code
_INSERT: Final = f"INSERT INTO ledgers ({_COLUMNS}) VALUES ({', '.join('?' * len(LedgerRow._fields))})"  # noqa: S608 - as above


class Ledgers:
    """The table ``ledgers``."""

    def __init__(self, database: Database, ids: LedgerIds, aborted: AbortedEntries) -> None:
        self._database = database
        self._ids = ids
        self._aborted = aborted

    def of_topic(self, topic_id: int) -> list[LedgerRow]:
        """The ledgers of a topic that hold or may hold entries, oldest first."""
        sql = _SELECT + " WHERE topic_id = ? AND state IN (?, ?) ORDER BY id"
        return [LedgerRow(*row) for row in self._database.rows(sql, (topic_id, LEDGER_OPEN, LEDGER_CLOSED))]

    def all(self) -> list[LedgerRow]:
        """Every row of every topic in every state, by id."""
        return [LedgerRow(*row) for row in self._database.rows(_SELECT + " ORDER BY id")]

    def create(self, topic_id: int, created_ms: int, first_index: int) -> LedgerRow:
        """A new row in state LEDGER_CREATING. Ledger ids grow over the whole store and are never used again."""
        with self._database.transaction():
            ledger = self._ids.next(created_ms)
            row = LedgerRow(ledger, topic_id, LEDGER_CREATING, created_ms, first_index, 0, 0, 0, 0, 0, 0)
            self._database.change(_INSERT, row)
        return row

    def mark_open(self, ledger: int) -> None:
        """The file of a LEDGER_CREATING row is durable now."""
        sql = "UPDATE ledgers SET state = ? WHERE id = ? AND state = ?"
        changed = self._database.change(sql, (LEDGER_OPEN, ledger, LEDGER_CREATING))
        invariant(changed == 1, "ledger %s was not being created", ledger)

    def note_index_record(self, ledger: int, offset: int) -> None:
        """The INDEX record at ``offset`` of an open ledger is durable."""
        sql = "UPDATE ledgers SET footer_offset = ? WHERE id = ? AND state = ?"
        self._database.change(sql, (offset, ledger, LEDGER_OPEN))

    def mark_closed(self, row: LedgerRow) -> None:
        """The ledger's footer is durable now; ``row`` has the summary."""
        self._database.change(_CLOSE, (LEDGER_CLOSED, *row[5:], row.id, LEDGER_OPEN))

    def mark_deleting(self, ledgers: list[int]) -> None:
        """The files of these ledgers are about to be removed."""
        with self._database.transaction():
            for ledger in ledgers:
                self._database.change("UPDATE ledgers SET state = ? WHERE id = ?", (LEDGER_DELETING, ledger))

    def mark_topic_deleting(self, topic_id: int) -> None:
        """The files of all ledgers of a topic are about to be removed."""
        self._database.change("UPDATE ledgers SET state = ? WHERE topic_id = ?", (LEDGER_DELETING, topic_id))

    def delete(self, ledgers: list[int]) -> None:
        """The files of these ledgers have been removed."""
        with self._database.transaction():
            for ledger in ledgers:
                self._database.change("DELETE FROM ledgers WHERE id = ?", (ledger,))
                self._aborted.drop(ledger)
