# SPDX-License-Identifier: Apache-2.0
"""``Acknowledgement``: the only way in which the cursor of a subscription moves, and what has to follow each move.

Acks of consumers, single or cumulative, skips and expiry, cancelled delayed messages, damaged or filtered entries and
seeks all come here. Each of them changes the cursor, tells the listeners which entries that were, and then goes through
one checklist (``_moved``): the mark-delete position moves over what is acknowledged, the listeners go on with what has
become possible, so does the subscription, and the change is journaled.

Which consumer gets which entry is not known here: dispatchers that remember single entries are listeners. The commit of
a transaction is another such change: all entries that it acknowledges, and the checklist once. Whatever else moves the
cursor wins over acknowledgements that are pending in transactions, and is taken out of these.
Source: Pulsar docs, "Acknowledgement"; semantics 3.3, 7.2.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

from broker_core.base.clock import Clock
from broker_core.base.errors import NotAllowedError, PersistenceServerError, ServerError, StorageError
from broker_core.base.names import TopicName
from broker_core.base.positions import Position, positions_of
from broker_core.base.settings import Settings
from broker_core.broker.consumer import Consumer, EntryAcks, OnDone
from broker_core.broker.cursors.cursor import Cursor, EntryLog
from broker_core.broker.cursors.cursor_journal import CursorJournal
from broker_core.broker.requests import AckId, AckKind
from broker_core.broker.transactions.message_set import WHOLE
from broker_core.broker.transactions.pending_acks import CumulativeAck, Ended, PendingAcks
from broker_core.storage.commit import OnDurable
from broker_core.storage.ledger import UnreadableEntryError
from broker_core.storage.topic_log import TopicLog
from broker_core.wire.ack_sets import all_bits, bits_of_words

logger = logging.getLogger(__name__)


class AckListener(Protocol):
    """Remembers single entries, so it is told which ones are acknowledged, before ``acks_settled``."""

    def acked(self, position: Position, left: int) -> None:
        """An entry was acknowledged by itself, but for the messages ``left`` of it, as bits."""

    def set_aside(self, position: Position, left: int) -> None:
        """As ``acked``, of an entry of which messages are pending in transactions, which may be aborted."""

    def acked_entries(self, ledger: int, acks: Sequence[EntryAcks], entries: Sequence[int]) -> None:
        """Whole entries of one ledger were acknowledged, by one consumer or several; ``entries`` are those of all
        ``acks``."""

    def passed_over(self, mark_delete: Position) -> None:
        """Everything up to ``mark_delete`` was acknowledged: it expired, was skipped or evicted."""

    def acks_settled(self) -> None:
        """All acknowledgements of this request were reported."""


class TopicOfAcks(Protocol):
    """The topic, as far as its messages are acknowledged."""

    name: TopicName
    log: TopicLog
    clock: Clock

    @property
    def settings(self) -> Settings: ...


@dataclass(slots=True, eq=False, repr=False)
class Acknowledgement:
    """Acknowledges for one subscription. ``mark_deleted_ms``: when its mark-delete position last went on, 0: never.

    ``pending``: what is acknowledged in transactions that are not over. ``journal`` is None for a non-durable
    subscription. ``go_on`` is called after each move of the cursor.
    """

    topic: TopicOfAcks
    subscription: str
    cursor: Cursor
    journal: CursorJournal | None
    go_on: Callable[[], None]
    pending: PendingAcks = field(default_factory=PendingAcks)
    listeners: list[AckListener] = field(default_factory=list, init=False)
    mark_deleted_ms: int = field(default=0, init=False)
    _log: EntryLog = field(init=False)
    _mark_delete_seen: Position = field(init=False)

    def __post_init__(self) -> None:
        self._log = self.topic.log
        self._mark_delete_seen = self.cursor.mark_delete

    def close(self) -> None:
        """The subscription has ended, and does not go on when the cursor moves."""
        self.go_on = lambda: None

    def read_from(self, log: EntryLog) -> None:
        """Consumers are given these entries from now on."""
        self._log = log

    # -- by consumers

    def ack(self, consumer: Consumer, kind: AckKind, ids: Sequence[AckId], on_done: OnDone | None) -> None:
        """Apply all of ``ids`` or, if one of them cannot be right, none (semantics 3.3)."""
        error = self.problem(consumer, kind, ids)
        if error is not None:
            self._refuse(error, on_done)
            return
        try:
            if kind is AckKind.CUMULATIVE:
                self._ack_through(ids[0])
            else:
                self._ack_each(ids)
        except UnreadableEntryError as refused:  # some of it may be done, and will not be taken back
            self._moved((consumer,), None)
            self._refuse(size_unknown(refused), on_done)
        else:
            self._moved((consumer,), on_done)

    def ack_entries(self, ledger: int, acks: Sequence[EntryAcks], on_done: OnDone | None) -> None:
        """``ack`` of whole entries of one ledger, each by itself: the usual ack, so many consumers' come together.

        ``on_done`` hears of all of them together, so it must not be there if they are of several requests.
        """
        entries = acks[0].entries if len(acks) == 1 else [*chain.from_iterable([each.entries for each in acks])]
        last = Position(ledger, max(entries))
        if min(entries) < 0 or last > self._log.readable_end or not self._log.contains(last):
            # Entry ids are dense: if the last one exists, so do those before it. Else each has to be looked at.
            for consumer, theirs in acks:
                self.ack(consumer, AckKind.INDIVIDUAL, [AckId(each) for each in positions_of(ledger, theirs)], on_done)
            return
        self.cursor.ack_entries(ledger, entries)
        if self.pending.any:
            self.pending.acked_entries(ledger, entries)
        for listener in self.listeners:
            listener.acked_entries(ledger, acks, entries)
        self._moved([consumer for consumer, _theirs in acks], on_done)

    def problem(self, consumer: Consumer, kind: AckKind, ids: Sequence[AckId]) -> ServerError | None:
        """Why ``ack`` would refuse, as far as that can be known before."""
        if kind is AckKind.CUMULATIVE:
            served = consumer.request.kind
            if not served.has_active_consumer:
                return NotAllowedError(
                    f"a cumulative ack is not possible on the {served.label} subscription {self.subscription!r}",
                    hint="acknowledge messages one by one",
                )
            if len(ids) != 1:
                return NotAllowedError(f"a cumulative ack must name exactly one message, not {len(ids)}")
        last = self._log.readable_end
        for position, _ack_set in ids:
            if position > last:
                return NotAllowedError(
                    f"message {position} cannot be acknowledged: the newest one of {self.topic.name} is {last}"
                )
        return None

    def _refuse(self, error: ServerError, on_done: OnDone | None) -> None:
        if on_done is not None:
            on_done(error)  # the client asked for an answer and gets it, and that is logged
        else:
            logger.info("ack refused topic=%s subscription=%s reason=%s", self.topic.name, self.subscription, error)

    # -- for all consumers at once

    def pass_over(self, position: Position, on_done: OnDone | None = None) -> None:
        """Acknowledge everything up to ``position`` for all consumers: it expired, was skipped or evicted.

        ``on_done`` hears when that is durable.
        """
        cursor = self.cursor
        if not cursor.ack_through(position):
            self._write(on_done)
            return
        if self.pending.any:
            self.pending.passed(position)
        cursor.settle()
        for listener in self.listeners:
            listener.passed_over(cursor.mark_delete)
        self._moved((), on_done)

    def cancel(self, position: Position, on_done: OnDone | None = None) -> bool:
        """Acknowledge one entry for all consumers, such as a delayed message that shall not be delivered.

        False: it is not stored, or was acknowledged before. ``on_done`` hears when that is durable.
        """
        if not (self._log.contains(position) and self.cursor.ack(position)):
            self._write(on_done)
            return False
        self._tell_acked(position, 0)
        self._moved((), on_done)
        return True

    def entries_died(self) -> None:
        """A transaction was aborted: its entries count as acknowledged from now on."""
        self._moved((), None)

    def ack_unsent(self, ledger: int, entries: Sequence[int]) -> None:
        """Acknowledge entries that no consumer was given or will get: they are damaged, or filtered out."""
        self.cursor.ack_entries(ledger, entries)
        if self.pending.any:
            self.pending.acked_entries(ledger, entries)
        self._moved((), None)

    def reset(self, mark_delete: Position, partial: Mapping[Position, int], on_done: OnDone) -> None:
        """Forget all acknowledgements and stand right after ``mark_delete``. There are no listeners meanwhile."""
        self.cursor.reset(mark_delete, partial)
        self._mark_delete_seen = mark_delete
        if self.journal is not None:
            self.journal.reset(_answer(on_done))
        else:
            on_done(None)

    # -- by transactions

    def commit(self, ended: Ended, on_durable: OnDurable) -> None:
        """Acknowledge all that a transaction has acknowledged, in one change of the cursor. It may be done already: a
        commit is applied again after a crash. ``on_durable`` hears when it need not be, whatever the durability."""
        cursor, log = self.cursor, self._log
        for position, bits, size in ended.messages:
            if position > cursor.mark_delete and log.contains(position):
                left = 0 if bits == WHOLE else cursor.ack_partial(position, all_bits(size) & ~bits)
                if not left:
                    cursor.ack(position)
                self._tell_acked(position, left)
        if ended.cumulative is not None:
            self._commit_through(ended.cumulative)
        self._moved((), None)
        if self.journal is None:
            on_durable(None)
        else:
            self.journal.flush(on_durable, synced=True)

    def _commit_through(self, ack: CumulativeAck) -> None:
        cursor, log = self.cursor, self._log
        position = min(ack.position, log.last_confirmed)
        left = ack.left if position == ack.position and log.contains(position) else 0
        if cursor.ack_through(log.previous(position) if left else position):
            self.pending.passed(cursor.mark_delete)
        if left:
            self._tell_acked(position, cursor.ack_partial(position, left))
        cursor.settle()
        for listener in self.listeners:
            listener.passed_over(cursor.mark_delete)

    # -- parts

    def _tell_acked(self, position: Position, left: int) -> None:
        """The cursor has all messages of an entry but ``left``."""
        tell_of_rest = False
        if self.pending.any:
            self.pending.acked(position, left)
            if left:
                left &= ~self.pending.pending_at(position)
                tell_of_rest = True
        for listener in self.listeners:
            if tell_of_rest:
                listener.set_aside(position, left)
            else:
                listener.acked(position, left)

    def _ack_each(self, ids: Sequence[AckId]) -> None:
        cursor, log, listeners = self.cursor, self._log, self.listeners
        beside_pending = self.pending.any
        batch_level = self.topic.settings.acknowledgment_at_batch_index_level_enabled
        ledger = log.last_confirmed.ledger
        for position, ack_set in ids:
            if position[1] < 0 or (
                position[0] != ledger and position > cursor.mark_delete and not log.contains(position)
            ):
                continue  # nothing was ever there; what is acknowledged already needs no look at the log
            left = 0
            if ack_set is None:
                cursor.ack(position)
            else:
                bits = self.open_bits(position, ack_set) if batch_level else None
                if bits is None:
                    continue
                left = cursor.ack_partial(position, bits)
            if beside_pending:
                self._tell_acked(position, left)
                continue
            for listener in listeners:
                listener.acked(position, left)

    def _ack_through(self, target: AckId) -> None:
        position, ack_set = target
        if ack_set is None or not self._log.contains(position):
            self.cursor.ack_through(self._log.previous(self._log.next_valid(position)))
        else:
            self.cursor.ack_through(self._log.previous(position))
            bits = self.open_bits(position, ack_set)
            if bits is not None and (not bits or self.topic.settings.acknowledgment_at_batch_index_level_enabled):
                self._tell_acked(position, self.cursor.ack_partial(position, bits))
        if self.pending.any:
            self.pending.passed(self.cursor.mark_delete)

    def open_bits(self, position: Position, ack_set: Sequence[int]) -> int | None:
        """The messages of an entry that ``ack_set`` leaves open; None if it leaves all of them open, or if the entry is
        lost. UnreadableEntryError: the disk refuses to say how many messages the entry has."""
        bits = bits_of_words(ack_set)
        try:
            whole = all_bits(self._log.count_messages(Position(position.ledger, position.entry - 1), position))
        except UnreadableEntryError as error:
            if error.refused and bits:
                raise
            return None if bits else 0
        bits &= whole
        return None if bits == whole else bits

    def _moved(self, ackers: Iterable[Consumer], on_done: OnDone | None) -> None:
        """The checklist: all acks of one request, or of several that came together, are in the cursor."""
        now_ms = self.topic.clock.now_ms()
        for consumer in ackers:
            consumer.acked_ms = now_ms
        cursor = self.cursor
        cursor.settle()
        if cursor.mark_delete is not self._mark_delete_seen:
            self._mark_delete_seen = cursor.mark_delete
            self.mark_deleted_ms = now_ms
        for listener in self.listeners:
            listener.acks_settled()
        self.go_on()
        self._write(on_done)

    def _write(self, on_done: OnDone | None) -> None:
        if self.journal is None:
            if on_done is not None:
                on_done(None)
        elif on_done is None:
            self.journal.changed()
        else:
            self.journal.flush(_answer(on_done))


def size_unknown(error: UnreadableEntryError) -> ServerError:
    """Why messages of a batch cannot be told apart now."""
    return PersistenceServerError(f"nobody can say how many messages an entry has: {error.message}", hint="try again")


def _answer(on_done: OnDone) -> Callable[[StorageError | None], None]:
    def durable(error: StorageError | None) -> None:
        on_done(None if error is None else PersistenceServerError(f"the change was not stored: {error.message}"))

    return durable
