# SPDX-License-Identifier: Apache-2.0
"""Transactions that are not over, the topics that they sent to, and how the others ended.

A transaction has a row from its begin to its decision, so that it survives a restart. Its outcome is a bit in the
segment of its coordinator's ids, so that remembering a million takes as little as their bits. What a row of an aborted
transaction still stands for is named by ``topics``: parts that were not loaded when it was decided.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from broker_core.base.positions import Position
from broker_core.storage.catalogue.database import Database
from broker_core.storage.catalogue.named_values import Numbers
from broker_core.wire.heads import TxnId

_SEGMENT_IDS: Final = 1024
"""Ids whose outcomes share a row: two bitmaps of 128 bytes, which each end of a transaction writes anew."""

_FORGOTTEN: Final = "transaction ids forgotten, coordinator "
"""Likewise: below this number transactions may have ended whose outcome is forgotten."""

_RESERVED: Final = "transaction ids reserved, coordinator "
"""Begin of the names of these numbers; the number of the coordinator follows."""

_PUT_OUTCOMES: Final = (
    "INSERT OR REPLACE INTO transaction_outcomes (most, segment, ended_ms, committed, aborted) VALUES (?, ?, ?, ?, ?)"
)
_DROP_TOPIC: Final = "DELETE FROM transaction_topics WHERE most = ? AND least = ? AND topic_id = ?"
_SELECT_OUTCOMES: Final = "SELECT committed, aborted, ended_ms FROM transaction_outcomes WHERE most = ? AND segment = ?"


class TransactionRow(NamedTuple):
    """A transaction that is open, or is ``aborted`` and has work left. ``topics``: id of each topic that it may have
    entries in, all of them after the position."""

    id: TxnId
    owner: str | None
    started_ms: int
    ttl_ms: int
    aborted: bool
    topics: dict[int, Position]


class Transactions:
    """The tables ``transactions``, ``transaction_topics`` and ``transaction_outcomes``."""

    def __init__(self, database: Database, numbers: Numbers) -> None:
        self._database = database
        self._numbers = numbers

    # -- ids

    def reserve(self, coordinator: int, count: int) -> range:
        """Numbers of a coordinator that are given to no other caller, after a crash neither."""
        name = f"{_RESERVED}{coordinator}"
        first = self._numbers.get(name)
        self._numbers.set(name, first + count)
        return range(first, first + count)

    def reserved(self, coordinator: int) -> int:
        """The number below which all numbers of a coordinator are reserved."""
        return self._numbers.get(f"{_RESERVED}{coordinator}")

    # -- those that are not over

    def all(self) -> list[TransactionRow]:
        """Every row, by id."""
        rows = self._database.rows("SELECT most, least, owner, started_ms, ttl_ms, aborted FROM transactions")
        found = {
            TxnId(most, least): TransactionRow(TxnId(most, least), owner, started_ms, ttl_ms, bool(aborted), {})
            for most, least, owner, started_ms, ttl_ms, aborted in rows
        }
        places = self._database.rows("SELECT most, least, topic_id, after_ledger, after_entry FROM transaction_topics")
        for most, least, topic_id, ledger, entry in places:
            found[TxnId(most, least)].topics[topic_id] = Position(ledger, entry)
        return list(found.values())

    def create(self, transaction: TxnId, owner: str | None, started_ms: int, ttl_ms: int) -> None:
        """A transaction begins."""
        sql = "INSERT INTO transactions (most, least, owner, started_ms, ttl_ms) VALUES (?, ?, ?, ?, ?)"
        self._database.change(sql, (*transaction, owner, started_ms, ttl_ms))

    def add_topic(self, transaction: TxnId, topic_id: int, after: Position) -> None:
        """A transaction is about to send to a topic: all its entries there come after ``after``."""
        sql = "INSERT INTO transaction_topics (most, least, topic_id, after_ledger, after_entry) VALUES (?, ?, ?, ?, ?)"
        self._database.change(sql, (*transaction, topic_id, *after))

    def found_in(self, transaction: TxnId, topic_id: int, after: Position) -> None:
        """Recovery has found entries of a transaction in a topic: if it is open it has joined that."""
        sql = "SELECT 1 FROM transactions WHERE most = ? AND least = ? AND aborted = 0"
        if self._database.row(sql, transaction) is not None and transaction not in self.of_topic(topic_id):
            self.add_topic(transaction, topic_id, after)

    def of_topic(self, topic_id: int) -> dict[TxnId, Position]:
        """The transactions that may have entries in a topic, all of them after the position."""
        sql = "SELECT most, least, after_ledger, after_entry FROM transaction_topics WHERE topic_id = ?"
        rows = self._database.rows(sql, (topic_id,))
        return {TxnId(most, least): Position(ledger, entry) for most, least, ledger, entry in rows}

    def topics_of(self, transaction: TxnId) -> dict[int, Position]:
        """The topics in which a transaction may have entries, all of them after the position."""
        sql = "SELECT topic_id, after_ledger, after_entry FROM transaction_topics WHERE most = ? AND least = ?"
        return {topic_id: Position(ledger, entry) for topic_id, ledger, entry in self._database.rows(sql, transaction)}

    def drop_topic(self, transaction: TxnId, topic_id: int) -> None:
        """Nothing is left to do in a topic for an aborted transaction; after the last one its row goes too."""
        with self._database.transaction():
            self._database.change(_DROP_TOPIC, (*transaction, topic_id))
            self._drop_if_done(transaction)

    def drop_all_of_topic(self, topic_id: int) -> None:
        """The topic is deleted. Used by ``Catalogue.delete_topic``."""
        with self._database.transaction():
            rows = self._database.rows("SELECT most, least FROM transaction_topics WHERE topic_id = ?", (topic_id,))
            self._database.change("DELETE FROM transaction_topics WHERE topic_id = ?", (topic_id,))
            for most, least in rows:
                self._drop_if_done(TxnId(most, least))

    def _drop_if_done(self, transaction: TxnId) -> None:
        self._database.change(
            "DELETE FROM transactions WHERE most = ? AND least = ? AND aborted = 1 AND NOT EXISTS"
            " (SELECT 1 FROM transaction_topics AS t"
            " WHERE t.most = transactions.most AND t.least = transactions.least)",
            transaction,
        )

    # -- ends

    def end(self, transaction: TxnId, ended_ms: int, *, committed: bool, done: Collection[int] | None = None) -> None:
        """A transaction is decided. ``done``: topics in which nothing is left to do; None: all, as for a commit. To be
        called inside of the ``Catalogue.transaction`` of the decision."""
        self._note_outcome(transaction, ended_ms, committed=committed)
        if done is None:
            self._database.change("DELETE FROM transaction_topics WHERE most = ? AND least = ?", transaction)
        else:
            for topic_id in done:
                self._database.change(_DROP_TOPIC, (*transaction, topic_id))
        self._database.change("UPDATE transactions SET aborted = 1 WHERE most = ? AND least = ?", transaction)
        self._drop_if_done(transaction)

    def _note_outcome(self, transaction: TxnId, ended_ms: int, *, committed: bool) -> None:
        most, least = transaction
        segment, bit = divmod(least, _SEGMENT_IDS)
        row = self._database.row(_SELECT_OUTCOMES, (most, segment)) or (b"", b"", ended_ms)
        outcomes = [row[1], row[0]]
        outcomes[committed] = with_bits(outcomes[committed], (bit,))
        newest_ms = max(ended_ms, row[2])
        self._database.change(_PUT_OUTCOMES, (most, segment, newest_ms, outcomes[True], outcomes[False]))

    def outcome(self, transaction: TxnId) -> bool | None:
        """Whether a transaction that is over was committed; None if that is not known, or not any more."""
        segment, bit = divmod(transaction.least_bits, _SEGMENT_IDS)
        row = self._database.row(_SELECT_OUTCOMES, (transaction.most_bits, segment))
        for outcome, bits in () if row is None else ((True, row[0]), (False, row[1])):
            if has_bit(bits, bit):
                return outcome
        return None

    def may_show(self, transaction: TxnId) -> bool:
        """Whether entries that recovery finds of a transaction may be shown, now or at its end: it is open, was
        committed, or is so old that its outcome is forgotten. It is aborted, or unknown, otherwise."""
        if transaction.least_bits < self._numbers.get(f"{_FORGOTTEN}{transaction.most_bits}"):
            return True
        sql = "SELECT 1 FROM transactions WHERE most = ? AND least = ? AND aborted = 0"
        return self._database.row(sql, transaction) is not None or self.outcome(transaction) is True

    def forget_outcomes(self, before_ms: int) -> None:
        """Forget how transactions ended, segments whose newest end was before that time."""
        sql = "SELECT most, segment, committed, aborted FROM transaction_outcomes WHERE ended_ms < ?"
        with self._database.transaction():
            for most, segment, committed, aborted in self._database.rows(sql, (before_ms,)):
                newest = max(int.from_bytes(bits, "little").bit_length() for bits in (committed, aborted))
                forgotten = segment * _SEGMENT_IDS + newest
                if forgotten > self._numbers.get(f"{_FORGOTTEN}{most}"):
                    self._numbers.set(f"{_FORGOTTEN}{most}", forgotten)
            self._database.change("DELETE FROM transaction_outcomes WHERE ended_ms < ?", (before_ms,))


def with_bits(bitmap: bytes, bits: tuple[int, ...]) -> bytes:
    """``bitmap`` with these bits set; bit 0 is the lowest one of its first byte, and it ends with its last set bit."""
    number = int.from_bytes(bitmap, "little")
    for bit in bits:
        number |= 1 << bit
    return number.to_bytes((number.bit_length() + 7) // 8, "little")


def has_bit(bitmap: bytes, bit: int) -> bool:
    """Whether a bit is set."""
    return bit // 8 < len(bitmap) and bool(bitmap[bit // 8] >> bit % 8 & 1)
