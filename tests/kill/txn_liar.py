# SPDX-License-Identifier: Apache-2.0
"""Bugs of a broker with transactions, one by one, to prove that the transaction rig finds each.

The environment variable ``TXN_LIE`` names the one of this process.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any, Final

from broker_core.base.positions import Position
from broker_core.broker.cursors.transactional_acks import TransactionalAcks
from broker_core.broker.transactions.buffer import TransactionBuffer
from broker_core.broker.transactions.pending_ack_store import PendingAckStore
from broker_core.broker.transactions.pending_acks import PendingAcks
from broker_core.wire.entry_peek import chunk_place
from broker_core.wire.heads import TxnId

VARIABLE: Final = "TXN_LIE"
_EVERY: Final = 10
"""A bug strikes one transaction out of so many, where each would bring everything to a halt."""


def lie() -> None:
    """From now on, in children too."""
    LIES[os.environ[VARIABLE]][0]()


def _strikes(transaction: TxnId) -> bool:
    return random.Random(str(transaction)).randrange(_EVERY) == 0


def _replace(owner: Any, name: str, value: object) -> None:
    setattr(owner, name, value)


def _show_open() -> None:
    """Readers are not held back by open transactions."""
    _replace(TransactionBuffer, "_show", lambda self: self._log.hide_from(None))
    append = TransactionBuffer.append

    def appended(self: TransactionBuffer, *about: Any) -> Position:
        position = append(self, *about)
        self._log.hide_from(None)
        return position

    _replace(TransactionBuffer, "append", appended)


def _show_aborted() -> None:
    """Aborted entries are not left out."""
    _replace(TransactionBuffer, "_bury", lambda _self, _positions: None)
    _replace(TransactionBuffer, "_note_dead", lambda _self, _positions: None)


def _hide_committed(end: str = "") -> None:
    """Topics bury entries of a transaction that is committed: those whose names have this end."""
    commit = TransactionBuffer.commit

    def ended(self: TransactionBuffer, transaction: TxnId) -> None:
        if _strikes(transaction) and transaction in self._open and self._log.name.endswith(end):
            with self._catalogue.transaction():
                self._note_dead(self._open[transaction])
            self._bury(self._open[transaction])
        commit(self, transaction)

    _replace(TransactionBuffer, "commit", ended)


def _tear_topics() -> None:
    """One topic of several does so."""
    _hide_committed("/C")


def _tear_partitions() -> None:
    """One partition of several does so."""
    _hide_committed("-partition-1")


def _show_chunks() -> None:
    """Chunks are ordinary entries, whatever their transaction."""
    append = TransactionBuffer.append

    def appended(self: TransactionBuffer, transaction: TxnId, requester: Any, body: bytes, *about: Any) -> Position:
        if chunk_place(body) is not None:
            return self._log.append(body, *about)
        return append(self, transaction, requester, body, *about)

    _replace(TransactionBuffer, "append", appended)


def _cut_cumulative() -> None:
    """The commit of a cumulative acknowledgement forgets its last entry."""
    commit = TransactionalAcks.commit

    def ended(self: TransactionalAcks, transaction: TxnId) -> None:
        slot = self.pending.cumulative_of(transaction)
        if slot is not None and _strikes(transaction):
            self.pending.set_cumulative(slot._replace(position=self.log.previous(slot.position), left=0))
        commit(self, transaction)

    _replace(TransactionalAcks, "commit", ended)


def _acknowledge_aborted() -> None:
    """An abort acknowledges what was acknowledged in its transaction."""
    abort = TransactionalAcks.abort

    def ended(self: TransactionalAcks, transaction: TxnId) -> None:
        if _strikes(transaction):
            self.commit(transaction)
        else:
            abort(self, transaction)

    _replace(TransactionalAcks, "abort", ended)


def _forget_committed_acks() -> None:
    """A commit gives back what was acknowledged in its transaction."""
    commit = TransactionalAcks.commit

    def ended(self: TransactionalAcks, transaction: TxnId) -> None:
        if _strikes(transaction):
            self.abort(transaction)
        else:
            commit(self, transaction)

    _replace(TransactionalAcks, "commit", ended)


def _ignore_conflicts() -> None:
    """Two transactions may acknowledge the same message."""
    _replace(PendingAcks, "conflict", lambda _self, *_about: "")


def _forget_pending_at_start() -> None:
    """Acknowledgements of open transactions are lost with the broker."""
    _replace(PendingAckStore, "recover", lambda _self: iter(()))


def _accept_late() -> None:
    """A message is accepted, as an ordinary one, under a transaction that is over."""
    append = TransactionBuffer.append

    def appended(self: TransactionBuffer, transaction: TxnId, requester: Any, body: bytes, *about: Any) -> Position:
        if self._transactions.get(transaction) is None:
            return self._log.append(body, *about)
        return append(self, transaction, requester, body, *about)

    _replace(TransactionBuffer, "append", appended)


def _store_twice() -> None:
    """An entry is stored twice."""
    append = TransactionBuffer.append

    def appended(self: TransactionBuffer, transaction: TxnId, *about: Any) -> Position:
        if _strikes(transaction):
            unconfirmed: tuple[Any, ...] = (*about[:-1], lambda _error: None)  # the receipt is by the other one
            append(self, transaction, *unconfirmed)
        return append(self, transaction, *about)

    _replace(TransactionBuffer, "append", appended)


def _forget_open_at_start() -> None:
    """Entries of open transactions are ordinary ones after a start."""
    _replace(TransactionBuffer, "_recover", lambda _self, _touching: None)


LIES: Final[dict[str, tuple[Callable[[], None], str]]] = {
    "open-shown": (_show_open, "dirty read"),
    "aborted-shown": (_show_aborted, "aborted read"),
    "committed-hidden": (_hide_committed, "lost write"),
    "topics-torn": (_tear_topics, "torn commit"),
    "partitions-torn": (_tear_partitions, "torn commit"),
    "chunks-shown": (_show_chunks, "aborted read"),
    "cumulative-cut": (_cut_cumulative, "lost ack"),
    "aborted-acknowledged": (_acknowledge_aborted, "phantom ack"),
    "acks-forgotten": (_forget_committed_acks, "duplicate ack"),
    "conflicts-ignored": (_ignore_conflicts, "duplicate ack"),
    "pending-forgotten": (_forget_pending_at_start, "duplicate ack"),
    "late-accepted": (_accept_late, "late write"),
    "stored-twice": (_store_twice, "duplicate write"),
    "open-forgotten": (_forget_open_at_start, "aborted read"),
}
"""Name -> the bug, and an anomaly that it shows."""
