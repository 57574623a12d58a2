# SPDX-License-Identifier: Apache-2.0
"""``Subscription``: one cursor over one topic and the consumers that share it.

Owns the life of its type (semantics 2.1): without consumers it has none, the first one fixes it, and with the last
one goes everything that is not the cursor. How the cursor moves is the business of ``Acknowledgement``, and which
consumer gets which entry that of the dispatcher. A non-durable subscription lives as long as its consumers, but
survives the disconnect that a seek causes. Source: Pulsar docs, "Subscriptions"; semantics 1.9, 2.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from broker_core.base.clock import TimerHandle
from broker_core.base.errors import (
    PersistenceServerError,
    ServerError,
)
from broker_core.base.policies import Quotas
from broker_core.base.positions import Position
from broker_core.base.settings import Settings
from broker_core.broker.compaction.compacted_log import CompactedLog
from broker_core.broker.compaction.topic_compaction import TopicCompaction
from broker_core.broker.consumer import Consumer, LastMessage, OnDone
from broker_core.broker.cursors.acknowledgement import Acknowledgement, size_unknown
from broker_core.broker.cursors.cursor import Cursor, EntryLog
from broker_core.broker.cursors.cursor_journal import CursorJournal
from broker_core.broker.cursors.expiry import Expiry
from broker_core.broker.cursors.open_messages import OpenMessages
from broker_core.broker.cursors.seeking import Backlog, StoredMessages, before_position, before_time
from broker_core.broker.cursors.transactional_acks import TransactionalAcks
from broker_core.broker.delayed.bucket_tracker import TopicDelays
from broker_core.broker.dispatch.dispatcher import DispatchContext, Dispatcher, DispatchHost
from broker_core.broker.dispatch.key_shared.dispatcher import KeySharedDispatcher
from broker_core.broker.dispatch.log_reader import LogReader
from broker_core.broker.dispatch.shared import SharedDispatcher
from broker_core.broker.dispatch.single_active import SingleActiveDispatcher
from broker_core.broker.membership import check_joinable, deletion_problem
from broker_core.broker.rate_limits import RateLimit
from broker_core.broker.rates import Traffic
from broker_core.broker.requests import SubscribeRequest
from broker_core.broker.sinks import ConsumerSink
from broker_core.broker.transactions.open_transactions import OpenTransactions
from broker_core.broker.transactions.participant import ParticipantKey
from broker_core.broker.transactions.pending_ack_store import PendingAckStore
from broker_core.broker.transactions.pending_acks import PendingAcks
from broker_core.storage.ledger import UnreadableEntryError
from broker_core.storage.topic_log import TopicLog

RESUBSCRIBE_S = 60.0
"""How long a non-durable subscription waits for its client to come back after a seek; clients need about 0.1 s."""


class SubscriptionHost(DispatchHost, Protocol):
    """The topic, as a subscription sees it."""

    log: TopicLog
    messages: StoredMessages
    settings: Settings
    quotas: Quotas
    delays: TopicDelays
    topic_id: int
    transactions: OpenTransactions
    compaction: TopicCompaction

    @property
    def terminated(self) -> Position | None: ...

    def subscription_unused(self, subscription: Subscription) -> None:
        """A subscription lost its last consumer."""

    def delete_subscription(self, name: str, *, knowing: Consumer | None = None) -> None:
        """Delete it and tell its consumers, except the one that is ``knowing``."""


class Subscription:
    """A named position in a topic with its consumers. ``journal`` is None for a non-durable one. It has 33 methods, as
    consumers, administrators and the parts of the topic meet here; most hand on to the part that knows the rule."""

    def __init__(
        self,
        host: SubscriptionHost,
        name: str,
        cursor: Cursor,
        journal: CursorJournal | None,
        properties: Mapping[str, str],
        *,
        pending: PendingAckStore | None = None,
        unused_since_ms: int | None = None,
    ) -> None:
        """``pending``: where acknowledgements in transactions are stored; None for a non-durable one.
        ``unused_since_ms``: since when it has no consumers, if it is known from before a restart."""
        self.name = name
        self.cursor = cursor
        self.journal = journal
        self.properties = properties
        self.traffic = Traffic(host.clock)
        self.dispatch_rate = RateLimit(host.clock, host.timers)
        self.dispatch_rate.set(*host.quotas.subscription_dispatch_rate.per_s)
        pending_acks = PendingAcks()
        self.open = OpenMessages(cursor, pending_acks, host.log)
        self.acks = Acknowledgement(host, name, cursor, journal, self._go_on, pending_acks)
        self.transactional_acks = TransactionalAcks(
            ParticipantKey(host.topic_id, name),
            self.acks,
            self.open,
            host.log,
            host.transactions,
            pending,
            lambda: self.dispatcher,
        )
        self.dispatcher = Dispatcher(cursor)
        self.reader = LogReader(
            host.log,
            f"{host.name}/{name}",
            self.acks.ack_unsent if host.settings.auto_skip_non_recoverable_data else None,
            host.timers,
            lambda withheld: self.dispatcher.read_again(withheld),
            self._go_on_behind_damage,
        )
        self._host = host
        self._log: EntryLog = host.log
        self._compacted: CompactedLog | None = None
        self._awaiting_return: TimerHandle | None = None
        self.backlog = Backlog(host.log, cursor)
        self.expiry = Expiry(cursor, self.pass_over, f"{host.name}/{name}", host.log, host.clock, host.timers)
        self.last_active_ms = host.clock.now_ms() if unused_since_ms is None else unused_since_ms
        if pending is not None and host.compaction.has_view and cursor.mark_delete < host.log.trimmed:
            # The log alone lacks the place of the cursor, and entries that were acknowledged in transactions.
            self._compacted = self._read_compacted()
        self.transactional_acks.recover()

    @property
    def durable(self) -> bool:
        return self.journal is not None

    @property
    def consumers(self) -> Sequence[Consumer]:
        return self.dispatcher.consumers

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Replace all properties; the topic stores them."""
        self.properties = dict(properties)

    # -- consumers come and go

    def subscribe(self, request: SubscribeRequest, sink: ConsumerSink) -> Consumer:
        """Let a consumer in, or raise the ServerError that says why not."""
        self._check_readable(compacted=request.read_compacted)
        consumers = self.consumers
        if consumers:
            most = self._host.settings.max_consumers_per_subscription
            check_joinable(self._host.name, request, consumers[0].request.kind, len(consumers), most)
        dispatcher = self.dispatcher if consumers else self._new_dispatcher(request)
        consumer = Consumer(request, sink, self, self._host.clock)
        try:
            dispatcher.add(consumer)
        except ServerError:
            if not consumers:
                dispatcher.close()
            raise
        self.dispatcher = dispatcher
        if self._awaiting_return is not None:
            self._awaiting_return.cancel()
            self._awaiting_return = None
        return consumer

    def _serve(self, consumer: Consumer) -> None:
        """``consumer`` is the one that is served from now on, with the compacted view if it asked for that."""
        if not consumer.request.read_compacted:
            self._read_log()
            return
        if self._compacted is None:
            self._compacted = self._read_compacted()
        self._compacted.bind()

    def _read_compacted(self) -> CompactedLog:
        """The view and the log behind it are read from now on."""
        compacted = CompactedLog(self._host.log, self._host.compaction, self.cursor)
        self._read_from(compacted, compacted)
        return compacted

    def _read_log(self) -> None:
        """The log alone is read from now on."""
        if self._compacted is not None:
            self._compacted.unbind()
            self._compacted = None
            self._read_from(self._host.log)

    def _read_from(self, log: EntryLog, gaps: CompactedLog | None = None) -> None:
        self._log = self.reader.log = log
        self.cursor.read_from(log, gaps)
        self.acks.read_from(log)
        self.transactional_acks.read_from(log)

    def _unbind(self) -> None:
        """No consumer is left: the view that the last one read need not be kept."""
        if self._compacted is not None:
            self._compacted.unbind()

    @property
    def reads_compacted(self) -> bool:
        """Whether the consumer that was served last reads the compacted view."""
        return self._compacted is not None

    def _check_readable(self, *, compacted: bool) -> None:
        """PersistenceServerError if what is to be sent first is known to be lost, and no setting gives it up: a
        consumer would wait for it without a word. ``compacted``: of the view, whatever was read before."""
        log, first = self._log, self.cursor.first_unacked()
        if compacted != self.reads_compacted:
            log = CompactedLog(self._host.log, self._host.compaction) if compacted else self._host.log
            first = log.next_valid(self.cursor.mark_delete)
        lost = log.lost_at(first) if first <= log.readable_end else None
        if lost is not None and not self._host.settings.auto_skip_non_recoverable_data:
            raise PersistenceServerError(
                f"subscription {self.name!r} of {self._host.name} stands in front of lost entries: {lost.message}",
                hint="restore the file from a backup, move the subscription on (pulsarish sub reset), or set"
                " autoSkipNonRecoverableData=true",
            )

    def leave(self, leavers: Sequence[Consumer]) -> None:
        """``leavers``, which have not left yet, go; with the last ones the type is free again."""
        consumers = self.consumers
        if not consumers:
            return
        for consumer in leavers:
            consumer.left()
        if len(leavers) < len(consumers):
            self.dispatcher.remove(leavers)
        else:
            self.dispatcher.close()
            self.dispatcher = Dispatcher(self.cursor)
            self._unbind()
            self.last_active_ms = self._host.clock.now_ms()
            self._host.subscription_unused(self)

    def disconnect_all(self, *, knowing: Consumer | None = None) -> None:
        """Every consumer is told to go, except the one that is ``knowing``; what was in memory is forgotten."""
        consumers = list(self.consumers)
        if not consumers:
            return
        self.dispatcher.close()
        self.dispatcher = Dispatcher(self.cursor)
        self._unbind()
        self.last_active_ms = self._host.clock.now_ms()
        for consumer in consumers:
            sink = consumer.left()
            if consumer is not knowing:
                sink.closed_by_broker()

    def close(self) -> None:
        """The topic is unloaded: write what is left."""
        self.disconnect_all()
        self._stop()
        if self.journal is not None:
            self.journal.close()

    def drop(self, *, knowing: Consumer | None = None) -> None:
        """The subscription is deleted; its consumers are told, except the one that is ``knowing``."""
        self.disconnect_all(knowing=knowing)
        self._stop()
        if self.journal is not None:
            self.journal.drop()

    def _stop(self) -> None:
        """Close the parts. They let go of the subscription, which has them: a circle would stay in memory until Python
        looks for circles."""
        self.transactional_acks.close()
        self.expiry.close()
        self.reader.close()
        self.acks.close()
        if self._awaiting_return is not None:
            self._awaiting_return.cancel()

    def unsubscribe(self, consumer: Consumer, on_done: OnDone, *, force: bool) -> None:
        """Delete the subscription as its only consumer asks, or any by ``force`` (semantics 2.1.8)."""
        problem = deletion_problem(self.name, len(self.consumers))
        if problem is not None and not force:
            on_done(problem)
            return
        self._host.delete_subscription(self.name, knowing=consumer)
        on_done(None)

    # -- what consumers ask

    def permits_came(self, consumer: Consumer) -> None:
        consumer.flowed(self._host.clock.now_ms())
        self.dispatcher.can_take_more(consumer)
        if not consumer.told_end:
            self.tell_end_of_topic()

    def tell_end_of_topic(self) -> None:
        """If the topic has ended and all of it is acknowledged, tell every consumer once (semantics 7.5)."""
        if self._host.terminated is not None and not self.cursor.backlog_entries():
            for consumer in self.consumers:
                consumer.tell_end_of_topic()

    def last_message(self) -> LastMessage:
        last = self._host.messages.last_entry()
        if self._compacted is not None:
            last = self._compacted.last_message(last)
        return LastMessage(*last, self.cursor.mark_delete)

    # -- what administrators and policies ask

    def pass_over(self, position: Position, on_done: OnDone | None = None) -> None:
        """Acknowledge everything up to ``position``: it expired, was skipped or evicted. ``on_done`` hears when that is
        durable."""
        self.acks.pass_over(position, on_done)
        self.transactional_acks.forget_void()
        self.dispatcher.entries_came()

    def cancel(self, position: Position, on_done: OnDone | None = None) -> bool:
        """Acknowledge one entry, such as a delayed message that shall not be delivered. ``on_done`` hears when that is
        durable. False: it is not stored, or was acknowledged before."""
        return self.acks.cancel(position, on_done)

    # -- when the cursor has moved, or reading has stopped

    def _go_on(self) -> None:
        """The cursor has moved."""
        if self.reader.stopped_at is not None:
            self._go_on_behind_damage()
        if self._host.terminated is not None:
            self.tell_end_of_topic()

    def _go_on_behind_damage(self) -> None:
        """Read on if the damaged entry that stopped it is acknowledged now. If only that entry is left, consumers would
        wait for it without being told: they are sent away, and told why when they come back."""
        stopped_at = self.reader.stopped_at
        if stopped_at is None:
            return
        if self.cursor.is_acked(stopped_at):
            self.reader.retry_damaged()
            self.dispatcher.entries_came()
        elif self.cursor.first_unacked() == stopped_at and self._log.lost_at(stopped_at) is not None:
            self._host.timers.call_later(0, self._send_away)

    def _send_away(self) -> None:
        if self.reader.stopped_at == self.cursor.first_unacked() and self.consumers:
            self.disconnect_all()
            self._host.subscription_unused(self)

    # -- the backlog

    def backlog_entries(self) -> int:
        """Entries that are stored and not acknowledged."""
        return self.cursor.backlog_entries()

    # -- seek

    def seek(self, position: Position, ack_set: Sequence[int] | None, on_done: OnDone) -> None:
        """Stand right before ``position``, or before the messages of its batch that ``ack_set`` leaves."""
        try:
            bits = self.acks.open_bits(position, ack_set) if ack_set and self._log.contains(position) else None
        except UnreadableEntryError as error:
            on_done(size_unknown(error))
            return
        partly_acked = {position: bits} if bits else {}
        self._unbind()
        self.reset(before_position(self._log, position), partly_acked, on_done)

    def seek_to_time(self, time_ms: int, on_done: OnDone) -> None:
        """Stand right before the first entry stored at or after that time."""
        self._unbind()
        before = (
            before_time(self._host.log, time_ms) if self._compacted is None else self._compacted.before_time(time_ms)
        )
        self.reset(before, {}, on_done)

    def reset(self, mark_delete: Position, partly_acked: Mapping[Position, int], on_done: OnDone) -> None:
        """Disconnect all consumers and stand right after ``mark_delete`` (semantics 1.4.6)."""
        self.transactional_acks.before_seek(partial(self._reset, mark_delete, partly_acked, on_done), on_done)

    def _reset(self, mark_delete: Position, partly_acked: Mapping[Position, int], on_done: OnDone) -> None:
        self.disconnect_all()
        if not self.durable and self._awaiting_return is None:
            self._awaiting_return = self._host.timers.call_later(RESUBSCRIBE_S, self._not_returned)
        self.acks.reset(mark_delete, partly_acked, on_done)

    def _not_returned(self) -> None:
        self._awaiting_return = None
        if not self.consumers:
            self._host.subscription_unused(self)

    # -- parts

    def _new_dispatcher(self, request: SubscribeRequest) -> Dispatcher:
        self.reader.begin_anew()
        host, delays = self._host, partial(self._host.delays.tracker, self.cursor)
        parts = (
            self.cursor,
            self.open,
            self.reader,
            host.settings,
            self.traffic,
            self.acks,
            delays,
            self.dispatch_rate,
        )
        context = DispatchContext(host, self.name, *parts, self._serve)
        if request.kind.has_active_consumer:  # which says what is read for it
            return SingleActiveDispatcher(request.kind, context)
        self._read_log()
        if request.kind.routes_by_key:
            return KeySharedDispatcher(request.key_shared, context)
        return SharedDispatcher(context)
