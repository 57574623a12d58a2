# SPDX-License-Identifier: Apache-2.0
"""``TransactionalAcks``: the acknowledgements of one subscription inside transactions, from the ACK to the end.

An ACK is checked, noted (``PendingAcks``), stored, and told to the dispatcher, all in one turn; it is answered when it
is durable. From then on nobody is given its messages. A commit moves the cursor, and only when that is durable the
stored acknowledgements are deleted, so a crash in between finds them and commits again. An abort gives exactly the
messages of the transaction back, but a cumulative acknowledgement gives nothing back: it would send old messages behind
newer ones.

They belong to the transaction, not to the consumer that sent them, so they stay when that leaves. A seek leaves them
alone as well; it waits for commits that are not durable yet, which would otherwise be applied again behind it.
Source: Pulsar docs, "Transactions"; PIP-31.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from broker_core.base.errors import (
    PersistenceServerError,
    ServerError,
    ServiceNotReadyError,
    StorageError,
    TransactionConflictError,
)
from broker_core.base.positions import Position
from broker_core.broker.consumer import Consumer, OnDone
from broker_core.broker.cursors.acknowledgement import Acknowledgement, size_unknown
from broker_core.broker.cursors.cursor import EntryLog
from broker_core.broker.cursors.open_messages import OpenMessages
from broker_core.broker.requests import AckId, AckKind
from broker_core.broker.transactions.message_set import WHOLE
from broker_core.broker.transactions.open_transactions import OpenTransactions
from broker_core.broker.transactions.participant import ParticipantKey
from broker_core.broker.transactions.pending_ack_store import PendingAckStore, Recovered
from broker_core.broker.transactions.pending_acks import AckedMessages, CumulativeAck, Ended, PendingAcks
from broker_core.broker.transactions.transaction import Transaction
from broker_core.storage.commit import OnDurable
from broker_core.storage.ledger import UnreadableEntryError
from broker_core.wire.ack_sets import all_bits, bits_of_words
from broker_core.wire.heads import TxnId

_BATCH_MAX: Final = 1 << 24
"""No batch has so many messages."""


class GivesBack(Protocol):
    """The dispatcher, as far as transactions are concerned; ``Dispatcher`` says what each method is for."""

    def set_aside(self, position: Position, left: int) -> None: ...
    def acks_settled(self) -> None: ...
    def give_back(self, messages: Mapping[Position, int], cumulative: CumulativeAck | None) -> None: ...


@dataclass(slots=True, eq=False, repr=False)
class TransactionalAcks:
    """A ``Participant`` of transactions. ``store`` is None for a non-durable subscription, whose acknowledgements live
    as long as it does. ``dispatcher`` returns the present one."""

    key: ParticipantKey
    acks: Acknowledgement
    open: OpenMessages
    log: EntryLog
    transactions: OpenTransactions
    store: PendingAckStore | None
    dispatcher: Callable[[], GivesBack]
    in_parts: list[AckInParts] = field(default_factory=list, init=False)
    _committing: int = field(default=0, init=False)
    _waiting: list[tuple[Callable[[], None], OnDone]] = field(default_factory=list, init=False)

    @property
    def pending(self) -> PendingAcks:
        """Acknowledgements of transactions that are not over."""
        return self.open.pending

    def state_of(self, position: Position, batch_index: int = -1) -> str:
        """The state of one entry, or of one message of a batch, in the words of Pulsar's statistics."""
        if position > self.log.last_confirmed:
            return "InvalidPosition"
        if position <= self.acks.cursor.mark_delete:
            return "MarkDelete"
        bits = self.pending.pending_at(position)
        is_pending = bits >> min(batch_index, _BATCH_MAX) & 1 if batch_index >= 0 else bits
        return "PendingAck" if is_pending else "NotInPendingAck"

    def recover(self) -> None:
        """Take over what is stored, right after the cursor was recovered. What is of no open transaction was committed,
        and is applied."""
        if self.store is None:
            return
        undecided = []
        for stored in list(self.store.recover()):
            transaction = self.transactions.get(stored.transaction)
            if transaction is None:  # before others are taken over: their cumulative acknowledgements share one slot
                self._take_over(stored)
                self.commit(stored.transaction)
            else:
                undecided.append((stored, transaction))
        for stored, transaction in undecided:
            self._take_over(stored)
            self.join(transaction)
        if self.pending.any:
            self._drop_acked()

    def _take_over(self, stored: Recovered) -> None:
        self.pending.add(stored.transaction, stored.messages)
        if stored.cumulative is not None:
            self.pending.set_cumulative(stored.cumulative)

    def read_from(self, log: EntryLog) -> None:
        """Consumers are given these entries from now on."""
        self.log = self.open.log = log

    def join(self, transaction: Transaction) -> None:
        """``transaction`` acknowledges here."""
        transaction.participants.add(self.key)
        self.transactions.attach(self.key, self)

    def close(self) -> None:
        """The subscription is unloaded or deleted: transactions end without it."""
        self.transactions.detach(self.key)
        self.in_parts.clear()
        last = self.dispatcher()
        self.dispatcher = lambda: last  # not by way of the subscription any more, which has this
        waiting, self._waiting = self._waiting, []
        for _then, on_done in waiting:
            on_done(ServiceNotReadyError("the topic was unloaded, or the subscription deleted, before the seek"))

    def _drop_acked(self) -> None:
        """Ordinary acknowledgements have come before these."""
        cursor, pending = self.acks.cursor, self.pending
        pending.passed(cursor.mark_delete)
        for position, _bits in list(pending.union.items()):
            if cursor.is_acked(position):
                pending.acked(position, 0)
            elif position in cursor.partial:
                pending.acked(position, cursor.partial[position])

    # -- acknowledging

    def ack(
        self, consumer: Consumer, transaction: TxnId, kind: AckKind, ids: Sequence[AckId], on_done: OnDone | None
    ) -> None:
        """Acknowledge all of ``ids`` in an open transaction or, if one of them cannot be, none."""
        answer = on_done or _nobody_asks
        try:
            wanted = self.checked(consumer, transaction, kind, ids)
            self.join(self.transactions.require_open(transaction, consumer.request.requester))
        except ServerError as error:
            answer(error)
            return
        consumer.acked_ms = self.acks.topic.clock.now_ms()
        if isinstance(wanted, CumulativeAck):
            self.pending.set_cumulative(wanted)
            self._store(transaction, (), wanted, answer)
        else:
            self.pending.add(transaction, wanted)
            self._store(transaction, wanted, None, answer)
            self.set_aside(wanted)

    def problem(
        self, consumer: Consumer, transaction: TxnId, kind: AckKind, ids: Sequence[AckId]
    ) -> ServerError | None:
        """Why ``ack`` would refuse."""
        try:
            self.checked(consumer, transaction, kind, ids)
        except ServerError as error:
            return error
        return None

    def begin(self, consumer: Consumer, transaction: TxnId) -> AckInParts:
        """Begin to acknowledge in an open transaction what is read in parts."""
        return AckInParts(self, consumer, transaction)

    def checked(
        self, consumer: Consumer, transaction: TxnId, kind: AckKind, ids: Sequence[AckId]
    ) -> CumulativeAck | list[AckedMessages]:
        """The messages that are to be acknowledged; the ServerError that says why they cannot be."""
        cursor = self.acks.cursor
        self.transactions.require_open(transaction, consumer.request.requester)
        error = self.acks.problem(consumer, kind, ids)
        if error is not None:
            raise error
        wanted: CumulativeAck | list[AckedMessages]
        try:
            if kind is AckKind.CUMULATIVE:
                wanted = self._cumulative(transaction, ids[0])
                conflict = self.pending.cumulative_conflict(wanted, cursor)
            else:
                wanted = self._individual(ids)
                conflict = self.pending.conflict(transaction, wanted, cursor)
        except UnreadableEntryError as refused:
            raise size_unknown(refused) from refused
        if conflict:
            raise TransactionConflictError(conflict)
        return wanted

    def _individual(self, ids: Sequence[AckId]) -> list[AckedMessages]:
        """The messages that ``ids`` acknowledge, of entries that exist, or that are acknowledged already.

        How many messages a batch has is told by the stored entry: not every client sends that number.
        """
        found: list[AckedMessages] = []
        mark_delete = self.acks.cursor.mark_delete
        for position, ack_set in ids:
            if position <= mark_delete:
                found.append(AckedMessages(position))
            elif not self.log.contains(position):
                continue
            elif ack_set is None:
                found.append(AckedMessages(position))
            else:
                size = self._messages_of(position)
                if bits := all_bits(size) & ~bits_of_words(ack_set):
                    found.append(AckedMessages(position, WHOLE if size == 1 else bits, size))
        return found

    def _cumulative(self, transaction: TxnId, target: AckId) -> CumulativeAck:
        position, ack_set = target
        if not self.log.contains(position):
            before = self.log.previous(self.log.next_valid(position))
            return CumulativeAck(transaction, min(position, before))
        if ack_set is None:
            return CumulativeAck(transaction, position)
        size = self._messages_of(position)
        left = bits_of_words(ack_set) & all_bits(size)
        if left == all_bits(size):
            return CumulativeAck(transaction, self.log.previous(position))
        return CumulativeAck(transaction, position, left, size)

    def _messages_of(self, position: Position) -> int:
        """UnreadableEntryError: nobody can say how many messages an entry has."""
        return self.log.count_messages(Position(position.ledger, position.entry - 1), position)

    def _store(
        self, transaction: TxnId, messages: Sequence[AckedMessages], cumulative: CumulativeAck | None, answer: OnDone
    ) -> None:
        if self.store is None:
            answer(None)
            return
        if self.store.add(transaction, messages, cumulative):
            self.store.replace(transaction, self.pending)
        self._answer_when_durable(self.store, answer)

    def store_all(self, transaction: TxnId, answer: OnDone) -> None:
        """Store all that is pending in a transaction, as one change."""
        if self.store is None:
            answer(None)
            return
        self.store.replace(transaction, self.pending)
        self._answer_when_durable(self.store, answer)

    def _answer_when_durable(self, store: PendingAckStore, answer: OnDone) -> None:
        store.when_durable(lambda error: answer(None if error is None else _not_stored(error)))

    def set_aside(self, messages: Sequence[AckedMessages]) -> None:
        """No consumer holds these any more."""
        dispatcher = self.dispatcher()
        for position, bits, size in messages:
            dispatcher.set_aside(position, 0 if bits == WHOLE else self.open.left_of(position, size))
        dispatcher.acks_settled()

    # -- the end of a transaction: see Participant

    def prepare(self, transaction: TxnId, on_durable: OnDurable) -> None:
        """Acknowledgements are changes of the catalogue: they are durable with the last of these. One of which the
        last part has not come is none."""
        for each in [each for each in self.in_parts if each.transaction == transaction]:
            each.cancel()
        if self.store is None:
            on_durable(None)
        else:
            self.store.when_durable(on_durable)

    def decide(self, transaction: TxnId, *, committed: bool) -> None:
        """Stored acknowledgements of an aborted transaction are deleted with the decision."""
        if self.store is not None and not committed:
            self.store.forgotten(transaction)

    def commit(self, transaction: TxnId) -> None:
        """Acknowledge for good; a transaction that has nothing here changes nothing."""
        ended = self.pending.end(transaction)
        if not _anything(ended) and (self.store is None or not self.store.has(transaction)):
            return
        self._committing += 1

        def durable(error: StorageError | None) -> None:
            self._committing -= 1
            if error is None and self.store is not None:
                self.store.forget(transaction)
            if not self._committing:
                self._go_on()

        self.acks.commit(ended, durable)

    def abort(self, transaction: TxnId) -> None:
        """Deliver the messages again that are neither acknowledged nor pending in another transaction."""
        ended = self.pending.end(transaction)
        self.give_back(ended.messages, ended.cumulative)

    def give_back(self, messages: Iterable[AckedMessages], cumulative: CumulativeAck | None = None) -> None:
        """Deliver those again that are open, now that they are not pending."""
        back = {}
        for position, bits, size in messages:
            left = self.open.left_of(position, size) if bits != WHOLE else self._left_of_whole(position)
            if left & bits:
                back[position] = left & bits
        self.dispatcher().give_back(back, cumulative)

    def _left_of_whole(self, position: Position) -> int:
        """The open messages of an entry of which nobody needs to know how many there are."""
        cursor = self.acks.cursor
        return 0 if cursor.is_acked(position) else cursor.partial.get(position, WHOLE)

    # -- when the cursor moves otherwise

    def forget_void(self) -> None:
        """Take what ordinary acknowledgements have taken out of transactions out of what is stored. Nothing is stored
        any more of one whose abort is decided, and nothing may be: it would count as committed at the next start."""
        if self.store is not None:
            for transaction in filter(self.store.has, self.pending.outdated):
                self.store.replace(transaction, self.pending)
            self.pending.outdated.clear()

    def before_seek(self, then: Callable[[], None], on_done: OnDone) -> None:
        """Call ``then`` once no commit is under way, or ``on_done`` with the reason why that will not be. Void ones are
        forgotten before, for the seek may take back the ordinary acknowledgements that made them void."""

        def go() -> None:
            self.forget_void()
            then()

        if self._committing:
            self._waiting.append((go, on_done))
        else:
            go()

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        for then, _on_done in waiting:
            then()


class AckInParts:
    """One acknowledgement in a transaction that is read in parts, with others' requests between them: all of it, or
    nothing.

    Messages are pending with the part that names them, so no other transaction takes them, and are stored with the
    last part. If a part is refused, or the transaction ends before the last one, they are given back.
    """

    def __init__(self, acks: TransactionalAcks, consumer: Consumer, transaction: TxnId) -> None:
        self.transaction: Final = transaction
        self._acks = acks
        self._consumer = consumer
        self._taken: list[tuple[AckedMessages, AckedMessages]] = []
        acks.in_parts.append(self)

    def take(self, ids: Sequence[AckId]) -> None:
        """Acknowledge one part; ServerError says why that cannot be, and nothing is acknowledged then."""
        acks, pending, name = self._acks, self._acks.pending, self.transaction
        try:
            self._consumer.require_here()
            wanted = acks.checked(self._consumer, name, AckKind.INDIVIDUAL, ids)
            acks.join(acks.transactions.require_open(name, self._consumer.request.requester))
        except ServerError:
            self.cancel()
            raise
        assert not isinstance(wanted, CumulativeAck)
        self._taken += [(each, pending.in_transaction(name, each.position)) for each in wanted]
        pending.add(name, wanted)
        acks.set_aside(wanted)

    def end(self, on_done: OnDone) -> None:
        """Store all parts; ``on_done`` is called once they are durable. ServerError if they are cancelled."""
        self._consumer.require_here()
        self._acks.transactions.require_open(self.transaction, self._consumer.request.requester)
        self._acks.in_parts.remove(self)
        self._acks.store_all(self.transaction, on_done)

    def cancel(self) -> None:
        """Acknowledge nothing; harmless after the end."""
        acks, name = self._acks, self.transaction
        if self not in acks.in_parts:
            return
        acks.in_parts.remove(self)
        back = [each for taken, before in reversed(self._taken) if (each := self._undo(taken, before)).bits]
        if acks.store is not None and acks.store.has(name):
            acks.store.replace(name, acks.pending)
        acks.give_back(back)

    def _undo(self, taken: AckedMessages, before: AckedMessages) -> AckedMessages:
        """The messages of one entry that are not acknowledged in the transaction after all."""
        pending, name = self._acks.pending, self.transaction
        if taken.bits != WHOLE or not before.bits:
            fresh = taken._replace(bits=taken.bits & ~before.bits)
            pending.take_back(name, fresh.position, fresh.bits)
        elif before.bits == WHOLE:
            fresh = taken._replace(bits=0)
        else:
            pending.take_back(name, taken.position, WHOLE)
            if kept := before.bits & self._acks.open.left_of(before.position, before.size):
                pending.add(name, [before._replace(bits=kept)])
            fresh = before._replace(bits=all_bits(before.size) & ~before.bits)
        return fresh


def _anything(ended: Ended) -> bool:
    return bool(ended.messages) or ended.cumulative is not None


def _not_stored(error: StorageError) -> ServerError:
    return PersistenceServerError(f"the acknowledgement was not stored: {error.message}", hint=error.hint)


def _nobody_asks(_error: ServerError | None) -> None:
    """Every client of transactions waits for an answer; what is sent without asking for one is done all the same."""
