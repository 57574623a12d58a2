# SPDX-License-Identifier: Apache-2.0
"""``TransactionBuffer``: the entries of transactions in one loaded topic, and how far readers may read because of them.

Readers see nothing at or after the first entry of the oldest transaction that is not over; *oldest* by that entry. All
before is settled: an entry there was committed, or it is in ``aborted`` and dead for every cursor. Nothing is written
into the log at the end of a transaction, so entry ids stay dense and each is a message's.

When the topic is loaded, the transactions that are not over name the place from which its log has to be looked through
for their entries. So a restart costs as much as lies behind the oldest open transaction, however much was stored, or
aborted, before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from broker_core.base.errors import NotAllowedError, ServerError, ServiceNotReadyError
from broker_core.base.positions import Position
from broker_core.broker.positions import PositionSet
from broker_core.broker.requests import Requester
from broker_core.broker.transactions.open_transactions import OpenTransactions
from broker_core.broker.transactions.participant import ParticipantKey
from broker_core.broker.transactions.transaction import Transaction, TransactionStatus
from broker_core.storage.catalogue import Catalogue
from broker_core.storage.commit import OnDurable
from broker_core.storage.ledger import UnreadableEntryError
from broker_core.storage.topic_log import TopicLog
from broker_core.wire.heads import TxnId


class TransactionBuffer:
    """The ``Participant`` for the entries of one topic, and a ``LedgerHolder``: open entries are not trimmed.

    Attributes:
        aborted: Entries of aborted transactions, as far as their ledgers exist.
        committed_count, aborted_count: Transactions that ended here since the topic was loaded.
    """

    def __init__(
        self,
        topic_id: int,
        log: TopicLog,
        transactions: OpenTransactions,
        catalogue: Catalogue,
        on_change: Callable[[bool], None],
    ) -> None:
        """Recover what is stored. ``on_change`` is called when readers may see more; true: entries died.

        ServiceNotReadyError: the disk refuses to read what transactions have written; nothing is left of the attempt.
        """
        self.aborted: Final = PositionSet()
        self.committed_count = 0
        self.aborted_count = 0
        self._key: Final = ParticipantKey(topic_id)
        self._log = log
        self._transactions = transactions
        self._catalogue = catalogue
        self._on_change = on_change
        self._open: OrderedDict[TxnId, PositionSet] = OrderedDict()
        for info in log.ledgers():
            dead = catalogue.aborted_entries.of_ledger(info.id)
            if dead:
                self.aborted.add_all(info.id, dead)
        touching = {each.id: each for each in transactions.of_topic(topic_id)}
        if touching:
            self._recover(touching)
        self._show()
        transactions.attach(self._key, self)

    def _recover(self, touching: dict[TxnId, Transaction]) -> None:
        topic_id = self._key.topic_id
        dead: dict[TxnId, PositionSet] = {}
        try:
            for position, name in self._log.transactions(min(each.topics[topic_id] for each in touching.values())):
                transaction = touching.get(name)
                if transaction is None:
                    continue
                if transaction.status is TransactionStatus.ABORTED:
                    dead.setdefault(name, PositionSet()).add(position)
                else:
                    self._open.setdefault(name, PositionSet()).add(position)
                    self.aborted.discard(position)  # the decision to abort it may not be durable yet
        except UnreadableEntryError as error:
            raise ServiceNotReadyError(
                f"what transactions have sent to {self._log.name} cannot be read: {error.message}", hint="try again"
            ) from error
        with self._catalogue.transaction():
            for name, transaction in touching.items():
                if transaction.status is TransactionStatus.ABORTED:
                    self._note_dead(dead.get(name, PositionSet()))
                    self._transactions.settled(transaction, topic_id)
        for positions in dead.values():
            self._bury(positions)

    # -- sending

    def append(
        self, transaction: TxnId, requester: Requester, body: bytes, messages: int, on_durable: OnDurable
    ) -> Position:
        """Append an entry under a transaction. That is the moment at which it must be open: what ends it, and what is
        sent under it, cannot cross.

        Raises:
            NotAllowedError: the transaction is not open, or not the requester's.
            StorageError: as ``TopicLog.append``.
        """
        try:
            found = self._transactions.require_open(transaction, requester)
        except ServerError as error:
            raise NotAllowedError(f"the message was refused: {error.message}", hint=error.hint) from error
        self._transactions.join_topic(found, self._key.topic_id, self._log.last_confirmed)
        position = self._log.append_in(transaction, body, messages, on_durable)
        positions = self._open.get(transaction)
        if positions is None:
            positions = self._open[transaction] = PositionSet()
            if len(self._open) == 1:
                self._log.hide_from(position)
        positions.add(position)
        return position

    # -- the end of a transaction

    def prepare(self, transaction: TxnId, on_durable: OnDurable) -> None:
        if transaction in self._open:
            self._log.when_stored(on_durable)
        else:
            on_durable(None)

    def decide(self, transaction: TxnId, *, committed: bool) -> None:
        positions = self._open.get(transaction)
        if positions is not None and not committed:
            self._note_dead(positions)

    def commit(self, transaction: TxnId) -> None:
        if self._open.pop(transaction, None) is not None:
            self.committed_count += 1
            self._show()
            self._on_change(False)

    def abort(self, transaction: TxnId) -> None:
        positions = self._open.pop(transaction, None)
        if positions is not None:
            self.aborted_count += 1
            self._bury(positions)
            self._show()
            self._on_change(True)

    def _note_dead(self, positions: PositionSet) -> None:
        for ledger, entries in positions.bitmaps().items():
            self._catalogue.aborted_entries.add(ledger, entries)

    def _bury(self, positions: PositionSet) -> None:
        for ledger, entries in positions.bitmaps().items():
            self.aborted.add_all(ledger, entries)

    def _show(self) -> None:
        """Readers may read up to the first entry that is not settled."""
        oldest = next(iter(self._open.values()), None)
        self._log.hide_from(None if oldest is None else oldest.first())

    # -- questions

    @property
    def open_count(self) -> int:
        """Transactions that have entries here and are not over."""
        return len(self._open)

    @property
    def readable_end(self) -> Position:
        """The last entry that readers may see."""
        return self._log.readable_end

    @property
    def holder(self) -> TxnId | None:
        """The transaction for whose end all readers wait, the oldest one; None if nothing is hidden."""
        return next(iter(self._open), None)

    def count_held(self) -> int:
        """Stored messages that no reader may see yet: those of the ``holder`` and all behind its first one."""
        return self._log.count_messages(self._log.readable_end, self._log.last_confirmed)

    def first_of(self, transaction: TxnId) -> Position | None:
        """The first entry of a transaction that is not over; None if it has none here."""
        positions = self._open.get(transaction)
        return None if positions is None else positions.first()

    # -- for retention

    @property
    def released_through(self) -> Position:
        """Entries of open transactions, and all behind them, are needed."""
        return self._log.readable_end

    def when_released(self, on_durable: OnDurable) -> None:
        """An entry that was settled stays so."""
        on_durable(None)

    def trimmed(self) -> None:
        """The oldest ledgers are gone."""
        self.aborted.discard_through(self._log.trimmed)

    # -- the end of the topic

    def close(self) -> None:
        """The topic is unloaded."""
        self._transactions.detach(self._key)

    def deleted(self) -> None:
        """The topic is deleted, from the catalogue too."""
        self._transactions.topic_deleted(self._key.topic_id)
