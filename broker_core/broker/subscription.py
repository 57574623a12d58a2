# SPDX-License-Identifier: Apache-2.0
"""``Subscription``: one cursor over one topic and the consumers that share it.

Owns the life of its type (semantics 2.1): without consumers it has none, the first one fixes it, and with the last
one goes everything that is not the cursor. Acks are checked, booked with the dispatcher, applied to the cursor and
journaled here; who gets which entry is the dispatcher's business. A non-durable subscription lives as long as its
consumers, but survives the disconnect that a seek causes. Source: Pulsar docs, "Subscriptions"; semantics 1.9, 2.1,
3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Protocol

from broker_core.base.clock import Clock, TimerHandle, Timers
from broker_core.base.errors import (
    NotAllowedError,
    PersistenceServerError,
    ServerError,
    StorageError,
)
from broker_core.base.names import TopicName
from broker_core.base.positions import Position, positions_of
from broker_core.base.settings import Settings
from broker_core.broker.consumer import Consumer, EntryAcks, LastMessage, OnDone
from broker_core.broker.cursors.backlog_count import unacked_messages
from broker_core.broker.cursors.cursor import Cursor
from broker_core.broker.cursors.cursor_journal import CursorJournal
from broker_core.broker.cursors.expiry import Expiry
from broker_core.broker.cursors.seeking import before_position, before_time
from broker_core.broker.delayed import TopicDelays
from broker_core.broker.dispatch.dispatcher import DelayedEntries, DispatchContext, Dispatcher
from broker_core.broker.dispatch.dispatchers import make_dispatcher
from broker_core.broker.dispatch.log_reader import LogReader
from broker_core.broker.dispatch.passes import Turn
from broker_core.broker.dispatch.unacked_limits import BrokerUnacked
from broker_core.broker.membership import check_joinable, deletion_problem
from broker_core.broker.rates import Traffic
from broker_core.broker.requests import AckId, AckKind, SubscribeRequest, SubscriptionType
from broker_core.broker.sinks import ConsumerSink
from broker_core.storage.ledger import UnreadableEntryError
from broker_core.storage.topic_log import TopicLog
from broker_core.wire.ack_sets import all_bits, bits_of_words

logger = logging.getLogger(__name__)

RESUBSCRIBE_S = 60.0
"""How long a non-durable subscription waits for its client to come back after a seek; clients need about 0.1 s."""


class SubscriptionHost(Protocol):
    """The topic, as a subscription sees it."""

    @property
    def name(self) -> TopicName: ...
    @property
    def terminated(self) -> Position | None: ...
    @property
    def log(self) -> TopicLog: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def timers(self) -> Timers: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def traffic_out(self) -> Traffic: ...
    @property
    def turn(self) -> Turn: ...
    @property
    def unacked(self) -> BrokerUnacked: ...
    @property
    def delays(self) -> TopicDelays: ...

    def last_entry(self) -> tuple[Position, int]:
        """Position of the newest entry and its batch size (0: not a batch); entry -1 if there is none."""
        ...

    def subscription_unused(self, subscription: Subscription) -> None:
        """A subscription lost its last consumer."""
        ...

    def delete_subscription(self, name: str, *, knowing: Consumer | None = None) -> None:
        """Delete it and tell its consumers, except the one that is ``knowing``."""
        ...


class Subscription:
    """A named position in a topic with its consumers. ``journal`` is None for a non-durable one."""

    def __init__(
        self,
        host: SubscriptionHost,
        name: str,
        cursor: Cursor,
        journal: CursorJournal | None,
        properties: Mapping[str, str],
    ) -> None:
        self.name = name
        self.cursor = cursor
        self.journal = journal
        self.properties = properties
        self.traffic = Traffic(host.clock)
        self.dispatcher: Dispatcher | None = None
        self.reader = LogReader(
            host.log,
            f"{host.name}/{name}",
            self._skip_damaged if host.settings.auto_skip_non_recoverable_data else None,
            host.timers,
            self._read_again,
            self._go_on_behind_damage,
        )
        self._host = host
        self._log = host.log
        self._awaiting_return: TimerHandle | None = None
        self._delayed: DelayedEntries | None = None
        self.expiry = Expiry(self, host.log, host.clock, host.timers)
        self.last_active_ms = host.clock.now_ms()
        self.mark_deleted_ms = 0
        self._mark_delete_seen = cursor.mark_delete

    @property
    def durable(self) -> bool:
        return self.journal is not None

    @property
    def delayed_entries(self) -> int:
        """Entries that are held back because they are not due."""
        return self._delayed.delayed_entries if self._delayed is not None and self.dispatcher is not None else 0

    @property
    def consumers(self) -> Sequence[Consumer]:
        return self.dispatcher.consumers if self.dispatcher is not None else ()

    # -- consumers come and go

    def subscribe(self, request: SubscribeRequest, sink: ConsumerSink) -> Consumer:
        """Let a consumer in, or raise the ServerError that says why not."""
        self._check_readable()
        dispatcher = self.dispatcher
        if dispatcher is not None:
            most = self._host.settings.max_consumers_per_subscription
            check_joinable(self._host.name, request, dispatcher.kind, len(dispatcher.consumers), most)
        else:
            dispatcher = self._new_dispatcher(request)
        clock = self._host.clock
        consumer = Consumer(
            request,
            sink,
            self,
            connected_since_ms=clock.now_ms(),
            traffic=Traffic(clock),
            redelivered=Traffic(clock),
        )
        try:
            dispatcher.add(consumer)
        except ServerError:
            if self.dispatcher is None:
                dispatcher.close()
            raise
        self.dispatcher = dispatcher
        if self._awaiting_return is not None:
            self._awaiting_return.cancel()
            self._awaiting_return = None
        return consumer

    def _check_readable(self) -> None:
        """PersistenceServerError if what is to be sent first is known to be lost, and no setting gives it up: a
        consumer would wait for it without a word."""
        first = self.cursor.first_unacked()
        lost = self._log.lost_at(first) if first <= self._log.last_confirmed else None
        if lost is not None and not self._host.settings.auto_skip_non_recoverable_data:
            raise PersistenceServerError(
                f"subscription {self.name!r} of {self._host.name} stands in front of lost entries: {lost.message}",
                hint="restore the file from a backup, move the subscription on (pulsarish sub seek), or set"
                " autoSkipNonRecoverableData=true",
            )

    def leave(self, leavers: Sequence[Consumer]) -> None:
        """``leavers``, who have not left yet, go; with the last ones the type is free again."""
        dispatcher = self.dispatcher
        if dispatcher is None:
            return
        for consumer in leavers:
            consumer.closed = True
        if len(leavers) < len(dispatcher.consumers):
            dispatcher.remove(leavers)
        else:
            dispatcher.close()
            self.dispatcher = None
            self.last_active_ms = self._host.clock.now_ms()
            self._host.subscription_unused(self)

    def disconnect_all(self, *, knowing: Consumer | None = None) -> None:
        """Every consumer is told to go, except the one that is ``knowing``; what was in memory is forgotten."""
        dispatcher, self.dispatcher = self.dispatcher, None
        if dispatcher is None:
            return
        dispatcher.close()
        self.last_active_ms = self._host.clock.now_ms()
        for consumer in list(dispatcher.consumers):
            consumer.closed = True
            if consumer is not knowing:
                consumer.sink.closed_by_broker()

    def close(self) -> None:
        """The topic is unloaded: write what is left."""
        self.disconnect_all()
        self._stop()
        if self.journal is not None:
            self.journal.close()

    def drop(self, *, knowing: Consumer | None = None) -> None:
        """It is deleted; consumers are told, except the one that is ``knowing``."""
        self.disconnect_all(knowing=knowing)
        self._stop()
        if self.journal is not None:
            self.journal.drop()

    def _stop(self) -> None:
        self.expiry.stop()
        self.reader.close()
        if self._awaiting_return is not None:
            self._awaiting_return.cancel()

    def unsubscribe(self, consumer: Consumer, on_done: OnDone, *, force: bool) -> None:
        """Delete the subscription at the wish of its only consumer, or of any by ``force`` (semantics 2.1.8)."""
        problem = deletion_problem(self.name, len(self.consumers))
        if problem is not None and not force:
            on_done(problem)
            return
        self._host.delete_subscription(self.name, knowing=consumer)
        on_done(None)

    # -- what consumers ask

    def permits_came(self, consumer: Consumer) -> None:
        consumer.flowed(self._host.clock.now_ms())
        if self.dispatcher is not None:
            self.dispatcher.permits_came(consumer)
        if not consumer.told_end:
            self.tell_end_of_topic()

    def tell_end_of_topic(self) -> None:
        """If the topic has ended and all of it is acknowledged, tell every consumer once (semantics 7.5)."""
        if self._host.terminated is not None and not self.cursor.backlog_entries():
            for consumer in self.consumers:
                consumer.tell_end_of_topic()

    def writable_again(self, consumer: Consumer) -> None:
        if self.dispatcher is not None:
            self.dispatcher.writable_again(consumer)

    def entries_came(self) -> None:
        if self.dispatcher is not None:
            self.dispatcher.entries_came()

    def settings_changed(self) -> None:
        if self.dispatcher is not None:
            self.dispatcher.settings_changed(self._host.settings)
            self._switch_delays(self.dispatcher)

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None) -> None:
        if self.dispatcher is not None:
            self.dispatcher.redeliver(consumer, positions)

    def last_message(self) -> LastMessage:
        return LastMessage(*self._host.last_entry(), self.cursor.mark_delete)

    # -- acknowledgements

    def ack(self, consumer: Consumer, kind: AckKind, ids: Sequence[AckId], on_done: OnDone | None) -> None:
        """Apply all of ``ids`` or, if one of them cannot be right, none (semantics 3.3)."""
        error = self.ack_problem(kind, ids)
        if error is not None:
            self._refuse_ack(error, on_done)
            return
        try:
            if kind is AckKind.CUMULATIVE:
                self._ack_through(ids[0])
            else:
                self._ack_each(consumer, ids)
        except UnreadableEntryError as refused:  # some of it may be done, and will not be taken back
            self._settle_acks((consumer,), None)
            self._refuse_ack(_not_known(refused), on_done)
        else:
            self._settle_acks((consumer,), on_done)

    def _refuse_ack(self, error: ServerError, on_done: OnDone | None) -> None:
        if on_done is not None:
            on_done(error)  # who asked for an answer gets it, and that is logged
        else:
            logger.info("ack refused topic=%s subscription=%s reason=%s", self._host.name, self.name, error)

    def ack_entries(self, ledger: int, acks: Sequence[EntryAcks], on_done: OnDone | None) -> None:
        """``ack`` of whole entries of one ledger, each by itself: the usual one, so those of many consumers at a time.

        ``on_done`` hears of all of them together, so it must not be there if they are of several requests.
        """
        entries = acks[0].entries if len(acks) == 1 else [*chain.from_iterable([each.entries for each in acks])]
        if min(entries) < 0 or not self._log.contains(Position(ledger, max(entries))):
            # Entry ids are dense: if the last one exists, so do those before it. Else each has to be looked at.
            for consumer, theirs in acks:
                self.ack(consumer, AckKind.INDIVIDUAL, [AckId(each) for each in positions_of(ledger, theirs)], on_done)
            return
        self.cursor.ack_entries(ledger, entries)
        if self.dispatcher is not None:
            self.dispatcher.acked_entries(ledger, acks, entries)
        self._settle_acks([consumer for consumer, _theirs in acks], on_done)

    def _settle_acks(self, consumers: Iterable[Consumer], on_done: OnDone | None) -> None:
        """All acks of one request, or of several that came together, are in."""
        now_ms = self._host.clock.now_ms()
        for consumer in consumers:
            consumer.acked_ms = now_ms
        self._settle_cursor(now_ms)
        if self.dispatcher is not None:
            self.dispatcher.acks_settled()
        if self.reader.stopped_at is not None:
            self._go_on_behind_damage()
        if self._host.terminated is not None:
            self.tell_end_of_topic()
        self._journal_change(on_done)

    def _settle_cursor(self, now_ms: int) -> None:
        """Move the mark-delete position over all that is acknowledged; when it last went on is in the statistics."""
        cursor = self.cursor
        cursor.settle()
        if cursor.mark_delete is not self._mark_delete_seen:
            self._mark_delete_seen = cursor.mark_delete
            self.mark_deleted_ms = now_ms

    def ack_problem(self, kind: AckKind, ids: Sequence[AckId]) -> ServerError | None:
        if kind is AckKind.CUMULATIVE:
            served = self.dispatcher.kind if self.dispatcher is not None else SubscriptionType.EXCLUSIVE
            if not served.allows_cumulative_acks:
                return NotAllowedError(
                    f"a cumulative ack is not possible on the {served.label} subscription {self.name!r}",
                    hint="acknowledge messages one by one",
                )
            if len(ids) != 1:
                return NotAllowedError(f"a cumulative ack must name exactly one message, not {len(ids)}")
        last = self._log.last_confirmed
        for position, _ack_set in ids:
            if position > last:
                return NotAllowedError(
                    f"message {position} cannot be acknowledged: the newest one of {self._host.name} is {last}"
                )
        return None

    def _ack_each(self, consumer: Consumer, ids: Sequence[AckId]) -> None:
        cursor, log, dispatcher = self.cursor, self._log, self.dispatcher
        batch_level = self._host.settings.acknowledgment_at_batch_index_level_enabled
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
                bits = self._open_bits(position, ack_set) if batch_level else None
                if bits is None:
                    continue
                left = cursor.ack_partial(position, bits).bit_count()
            if dispatcher is not None:
                dispatcher.acked(consumer, position, left)

    def _ack_through(self, target: AckId) -> None:
        position, ack_set = target
        if ack_set is None or not self._log.contains(position):
            self.cursor.ack_through(self._log.previous(self._log.next_valid(position)))
            return
        self.cursor.ack_through(self._log.previous(position))
        bits = self._open_bits(position, ack_set)
        if bits is not None and (not bits or self._host.settings.acknowledgment_at_batch_index_level_enabled):
            self.cursor.ack_partial(position, bits)

    def _open_bits(self, position: Position, ack_set: Sequence[int]) -> int | None:
        """The messages of an entry that ``ack_set`` leaves open; None if that is all of them, so nothing is said, or if
        nobody knows, for the entry is lost. UnreadableEntryError: the disk refuses to say how many it has."""
        bits = bits_of_words(ack_set)
        try:
            whole = all_bits(self._log.count_messages(Position(position.ledger, position.entry - 1), position))
        except UnreadableEntryError as error:
            if error.refused and bits:
                raise
            return None if bits else 0
        bits &= whole
        return None if bits == whole else bits

    def _journal_change(self, on_done: OnDone | None) -> None:
        if self.journal is None:
            if on_done is not None:
                on_done(None)
        elif on_done is None:
            self.journal.changed()
        else:
            self.journal.flush(_answer(on_done))

    def pass_over(self, position: Position, on_done: OnDone | None = None) -> None:
        """Acknowledge everything up to ``position`` for all consumers, whatever the type: it expired, was skipped or
        evicted. ``on_done`` hears when that is durable."""
        if self.cursor.ack_through(position):
            self._settle_cursor(self._host.clock.now_ms())
            if self.dispatcher is not None:
                self.dispatcher.passed_over(self.cursor.mark_delete)
            self._go_on_behind_damage()
            self.tell_end_of_topic()
        self._journal_change(on_done)

    def cancel(self, position: Position, on_done: OnDone | None = None) -> bool:
        """Acknowledge one entry for all consumers, such as a delayed message that is not wanted any more.

        False: it is not stored, or was acknowledged before. ``on_done`` hears when that is durable.
        """
        cancelled = self._log.contains(position) and self.cursor.ack(position)
        if cancelled:
            self._settle_cursor(self._host.clock.now_ms())
            if self.dispatcher is not None:
                self.dispatcher.acked(self.dispatcher.consumers[0], position, 0)
                self.dispatcher.acks_settled()
            self._go_on_behind_damage()
            self.tell_end_of_topic()
        self._journal_change(on_done)
        return cancelled

    def _go_on_behind_damage(self) -> None:
        """Read on if the damaged entry that stopped it is acknowledged now. If it is all that is left to do, consumers
        would wait for it without a word: they are sent away, and told why when they come back."""
        stopped_at = self.reader.stopped_at
        if stopped_at is None:
            return
        if self.cursor.is_acked(stopped_at):
            self.reader.retry_damaged()
            self.entries_came()
        elif self.cursor.first_unacked() == stopped_at and self._log.lost_at(stopped_at) is not None:
            self._host.timers.call_later(0, self._send_away)

    def _send_away(self) -> None:
        if self.reader.stopped_at == self.cursor.first_unacked() and self.dispatcher is not None:
            self.disconnect_all()
            self._host.subscription_unused(self)

    def _read_again(self, withheld: Sequence[Position]) -> None:
        """The disk may give now what it refused before; ``withheld`` of that waited to be sent again."""
        if self.dispatcher is not None:
            self.dispatcher.read_again(withheld)

    def _skip_damaged(self, first: Position, last: Position) -> None:
        self.cursor.ack_entries(first.ledger, range(first.entry, last.entry + 1))
        self._unsent_acknowledged()

    def _acknowledge_unsent(self, positions: Sequence[Position]) -> None:
        for position in positions:
            self.cursor.ack(position)
        self._unsent_acknowledged()

    def _unsent_acknowledged(self) -> None:
        self._settle_cursor(self._host.clock.now_ms())
        self.tell_end_of_topic()
        self._journal_change(None)

    def backlog_entries(self) -> int:
        """Entries that are stored and not acknowledged."""
        return self.cursor.backlog_entries()

    def backlog_messages(self) -> int:
        """Messages that are not acknowledged, as ``backlog_count`` counts them."""
        return unacked_messages(self._log, self.cursor, self.cursor.mark_delete)

    def backlog_bytes(self) -> int:
        """About how many bytes on disk lie behind mark-delete."""
        return self._log.bytes_between(self.cursor.mark_delete, self._log.last_confirmed)

    # -- seek

    def seek(self, position: Position, ack_set: Sequence[int] | None, on_done: OnDone) -> None:
        """Stand right before ``position``, or before the messages of its batch that ``ack_set`` leaves."""
        try:
            bits = self._open_bits(position, ack_set) if ack_set and self._log.contains(position) else None
        except UnreadableEntryError as error:
            on_done(_not_known(error))
            return
        partial = {position: bits} if bits else {}
        self.reset(before_position(self._log, position), partial, on_done)

    def seek_to_time(self, publish_time_ms: int, on_done: OnDone) -> None:
        """Stand right before the first entry published at or after that time."""
        self.reset(before_time(self._log, publish_time_ms), {}, on_done)

    def reset(self, mark_delete: Position, partial: Mapping[Position, int], on_done: OnDone) -> None:
        """Disconnect everybody and stand right after ``mark_delete`` (semantics 1.4.6)."""
        self.disconnect_all()
        self.cursor.reset(mark_delete, partial)
        self._mark_delete_seen = mark_delete
        if self.journal is not None:
            self.journal.reset(_answer(on_done))
            return
        if self._awaiting_return is None:
            self._awaiting_return = self._host.timers.call_later(RESUBSCRIBE_S, self._not_returned)
        on_done(None)

    def _not_returned(self) -> None:
        self._awaiting_return = None
        if self.dispatcher is None:
            self._host.subscription_unused(self)

    # -- parts

    def _switch_delays(self, dispatcher: Dispatcher) -> None:
        """Hold messages back as the settings say now; what is held back already keeps its time (semantics 6.1.9)."""
        if self._delayed is not None:
            self._delayed.settings_changed(self._host.settings)
        elif dispatcher.kind.delays_messages:
            self._delayed = self._host.delays.tracker(self.cursor)
            if self._delayed is not None:
                dispatcher.hold_back_with(self._delayed)

    def _new_dispatcher(self, request: SubscribeRequest) -> Dispatcher:
        self.reader.begin_anew()
        host = self._host
        self._delayed = host.delays.tracker(self.cursor) if request.kind.delays_messages else None
        context = DispatchContext(
            host.name,
            self.name,
            self.cursor,
            self.reader,
            host.clock,
            host.timers,
            host.turn,
            host.settings,
            self.traffic,
            host.traffic_out,
            host.unacked,
            self._acknowledge_unsent,
            self._delayed,
        )
        return make_dispatcher(request, context)


def _not_known(error: UnreadableEntryError) -> ServerError:
    return PersistenceServerError(f"nobody can say how many messages an entry has: {error.message}", hint="try again")


def _answer(on_done: OnDone) -> Callable[[StorageError | None], None]:
    def durable(error: StorageError | None) -> None:
        on_done(None if error is None else PersistenceServerError(f"the change was not stored: {error.message}"))

    return durable
