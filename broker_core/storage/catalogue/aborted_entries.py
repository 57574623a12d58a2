# SPDX-License-Identifier: Apache-2.0
"""Entries of aborted transactions: a bit for each, in segments of a ledger. They go with their ledger.

A bit is set in the same change that decides to abort. So how a transaction ended may be forgotten: each entry of a
transaction that is over was committed unless its bit is set.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from pyroaring import BitMap

from broker_core.storage.catalogue.database import Database
from broker_core.storage.catalogue.transactions import with_bits

_SEGMENT_ENTRIES: Final = 4096
"""Entries that share a row: up to 512 bytes, which each abort among them writes anew."""

_BITS_OF_BYTE: Final = [tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256)]


class AbortedEntries:
    """The table ``aborted_entries``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, ledger: int, entries: Iterable[int]) -> None:
        """Note entries of one ledger, in rising order."""
        for segment, run in groupby(entries, lambda entry: entry // _SEGMENT_ENTRIES):
            sql = "SELECT entries FROM aborted_entries WHERE ledger = ? AND segment = ?"
            bitmap = self._database.value(sql, (ledger, segment)) or b""
            bitmap = with_bits(bitmap, tuple(entry % _SEGMENT_ENTRIES for entry in run))
            sql = "INSERT OR REPLACE INTO aborted_entries (ledger, segment, entries) VALUES (?, ?, ?)"
            self._database.change(sql, (ledger, segment, bitmap))

    def of_ledger(self, ledger: int) -> BitMap:
        """The aborted entries of a ledger."""
        found = BitMap()
        rows = self._database.rows("SELECT segment, entries FROM aborted_entries WHERE ledger = ?", (ledger,))
        for segment, bitmap in rows:
            first = segment * _SEGMENT_ENTRIES
            found.update(
                [first + 8 * at + bit for at, byte in enumerate(bitmap) if byte for bit in _BITS_OF_BYTE[byte]]
            )
        return found

    def drop(self, ledger: int) -> None:
        """The ledger is gone. Used by ``Ledgers.delete``."""
        self._database.change("DELETE FROM aborted_entries WHERE ledger = ?", (ledger,))
