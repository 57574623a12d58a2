# SPDX-License-Identifier: Apache-2.0
"""``OpenTransactions``: the transactions of a broker that are not decided durably, and the loaded participants.

The one place that says whether something may be sent or acknowledged under a transaction, and whether what was is still
to be hidden. ``coordinator`` puts transactions in and takes them out when their end is durable. An aborted one that has
sent to topics which were not loaded then stays known as *unsettled* until each of them has noted its dead entries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Final

from broker_core.base.errors import InvalidTxnStatusError, ServerError, TransactionNotFoundError
from broker_core.base.positions import Position
from broker_core.broker.requests import Requester
from broker_core.broker.transactions.participant import Participant, ParticipantKey
from broker_core.broker.transactions.transaction import Transaction, TransactionStatus
from broker_core.storage.catalogue import Catalogue
from broker_core.wire.heads import TxnId
from broker_core.wire.transactions import shown

_BEGIN_ANOTHER: Final = "begin another transaction"


class OpenTransactions:
    """All transactions that are not over. Topics attach their participants while they are loaded."""

    def __init__(self, catalogue: Catalogue) -> None:
        """Take over those that are stored."""
        self._catalogue = catalogue
        self._undecided: dict[TxnId, Transaction] = {}
        self._unsettled: dict[TxnId, Transaction] = {}
        self._of_topic: defaultdict[int, dict[TxnId, Transaction]] = defaultdict(dict)
        self._attached: dict[ParticipantKey, Participant] = {}
        for row in catalogue.transactions.all():
            transaction = Transaction(row.id, row.owner, row.started_ms, row.ttl_ms, topics=row.topics)
            if row.aborted:
                transaction.status = TransactionStatus.ABORTED
            transaction.participants.update(map(ParticipantKey, row.topics))
            (self._unsettled if row.aborted else self._undecided)[row.id] = transaction
            for topic_id in row.topics:
                self._of_topic[topic_id][row.id] = transaction

    def __len__(self) -> int:
        return len(self._undecided)

    def __iter__(self) -> Iterator[Transaction]:
        """Transactions that are not decided durably. None may be added or removed meanwhile."""
        return iter(self._undecided.values())

    # -- which there are

    def get(self, transaction: TxnId) -> Transaction | None:
        """The transaction; None if it is decided durably, or never was."""
        return self._undecided.get(transaction)

    def require_open(self, transaction: TxnId, requester: Requester) -> Transaction:
        """The transaction, to do something under it.

        Raises:
            TransactionNotFoundError: there is none of that id, or it belongs to another role.
            InvalidTxnStatusError: it is not open any more.
        """
        found = self._undecided.get(transaction)
        if found is None:
            raise self._no_longer(transaction)
        if not found.is_of(requester):
            raise not_found(transaction)
        if found.status is not TransactionStatus.OPEN:
            raise InvalidTxnStatusError(f"transaction {shown(transaction)} is {found.status.name}", hint=_BEGIN_ANOTHER)
        return found

    def _no_longer(self, transaction: TxnId) -> ServerError:
        """Why a transaction that is not in memory cannot be used."""
        ended = self.ended_as(transaction)
        if ended is None:
            return not_found(transaction)
        return InvalidTxnStatusError(f"transaction {shown(transaction)} is {ended.name}", hint=_BEGIN_ANOTHER)

    def add(self, transaction: Transaction) -> None:
        """A transaction begins."""
        self._undecided[transaction.id] = transaction

    def remove(self, transaction: Transaction, left: Collection[int]) -> None:
        """The end of a transaction is durable. An aborted one stays known to the topics that have work ``left``."""
        del self._undecided[transaction.id]
        if left:
            self._unsettled[transaction.id] = transaction
        for topic_id in transaction.topics.keys() - left:
            self.leave_topic(transaction, topic_id)

    # -- their topics

    def join_topic(self, transaction: Transaction, topic_id: int, after: Position) -> None:
        """``transaction`` is about to send to a topic for the first time; all its entries come after ``after``.

        That is stored before the entry, so that no crash leaves an entry that nobody looks for.
        """
        if topic_id in transaction.topics:
            return
        self._catalogue.transactions.add_topic(transaction.id, topic_id, after)
        self._joined(transaction, topic_id, after)

    def _joined(self, transaction: Transaction, topic_id: int, after: Position) -> None:
        transaction.topics[topic_id] = after
        transaction.participants.add(ParticipantKey(topic_id))
        self._of_topic[topic_id][transaction.id] = transaction

    def join_found(self, transaction: Transaction) -> None:
        """``transaction`` is about to be decided: it joins topics in which recovery alone has found its entries."""
        for topic_id, after in self._catalogue.transactions.topics_of(transaction.id).items():
            self._join_if_found(transaction, topic_id, after)

    def _join_if_found(self, transaction: Transaction, topic_id: int, after: Position) -> None:
        if topic_id not in transaction.topics:
            self._joined(transaction, topic_id, after)

    def of_topic(self, topic_id: int) -> list[Transaction]:
        """The transactions that may have hidden or dead entries in a topic which it has not noted yet; for its load."""
        for name, after in self._catalogue.transactions.of_topic(topic_id).items():
            if (transaction := self._undecided.get(name)) is not None:
                self._join_if_found(transaction, topic_id, after)
        return list(self._of_topic.get(topic_id, {}).values())

    def names_touched_by(self, transaction: Transaction) -> list[str]:
        """The full names of all topics that a transaction has sent to, or acknowledged on, loaded or not, in order."""
        of_acks = self._catalogue.pending_acks.topics_of(transaction.id)
        ids = {*transaction.topics, *(key.topic_id for key in transaction.participants), *of_acks}
        return sorted(filter(None, map(self._catalogue.topics.name_of, ids)))

    def ended_as(self, transaction: TxnId) -> TransactionStatus | None:
        """COMMITTED or ABORTED, for a transaction that is over; None if that is not known, or not any more."""
        committed = self._catalogue.transactions.outcome(transaction)
        if committed is None:
            return None
        return TransactionStatus.COMMITTED if committed else TransactionStatus.ABORTED

    def touches(self, topic_id: int) -> bool:
        """Whether there are such transactions."""
        return topic_id in self._of_topic

    def settled(self, transaction: Transaction, topic_id: int) -> None:
        """The dead entries of an aborted transaction are noted in a topic that was not loaded when it ended."""
        self._catalogue.transactions.drop_topic(transaction.id, topic_id)
        self.leave_topic(transaction, topic_id)

    def leave_topic(self, transaction: Transaction, topic_id: int) -> None:
        """Nothing is left to do in a topic for ``transaction``."""
        transaction.topics.pop(topic_id, None)
        self._leave(transaction.id, topic_id)
        if not transaction.topics:
            self._unsettled.pop(transaction.id, None)

    def topic_deleted(self, topic_id: int) -> None:
        """A topic is gone, from the catalogue too: its part of each transaction counts as done."""
        for transaction in list(self._of_topic.get(topic_id, {}).values()):
            self.leave_topic(transaction, topic_id)
        self.detach(ParticipantKey(topic_id))

    def _leave(self, transaction: TxnId, topic_id: int) -> None:
        there = self._of_topic.get(topic_id)
        if there is not None:
            there.pop(transaction, None)
            if not there:
                del self._of_topic[topic_id]

    # -- participants

    def attach(self, key: ParticipantKey, participant: Participant) -> None:
        """A participant is loaded: ends of transactions are told to it."""
        self._attached[key] = participant

    def detach(self, key: ParticipantKey) -> None:
        """A participant is unloaded; harmless if it was not attached."""
        self._attached.pop(key, None)

    def participant(self, key: ParticipantKey) -> Participant | None:
        """The participant of that name; None if it is not loaded."""
        return self._attached.get(key)


def not_found(transaction: TxnId) -> TransactionNotFoundError:
    """There is no such transaction, or not for the one that asks."""
    return TransactionNotFoundError(
        f"transaction {shown(transaction)} does not exist, or was over long ago", hint=_BEGIN_ANOTHER
    )
