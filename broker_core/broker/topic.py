# SPDX-License-Identifier: Apache-2.0
"""``Topic``: one loaded topic (or partition): its log, its producers, its subscriptions.

Loading recovers every durable subscription, for retention must know them all. Only durable entries are dispatched: the
log tells when there are more, once for each group commit. Source: semantics 1.3, 1.7, 1.9.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from broker_core.base.clock import Clock, Timers
from broker_core.base.errors import (
    NotAllowedError,
    PersistenceServerError,
    ServerError,
    ServiceNotReadyError,
    SubscriptionNotFoundError,
    TopicTerminatedError,
)
from broker_core.base.names import TopicName, check_not_reserved, check_properties, check_subscription_name
from broker_core.base.policies import Quotas
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.base.settings import Settings
from broker_core.base.turns import Turns
from broker_core.broker.compaction.compacted_log import CompactedLog
from broker_core.broker.compaction.compactor import Compactor
from broker_core.broker.compaction.topic_compaction import TopicCompaction
from broker_core.broker.consumer import Consumer, OnDone
from broker_core.broker.cursors.cursor import Cursor
from broker_core.broker.cursors.cursor_journal import LedgerHolder, StoredCursor, StoredCursors
from broker_core.broker.cursors.seeking import StoredMessages, before_position, before_time
from broker_core.broker.delayed.bucket_tracker import TopicDelays
from broker_core.broker.dispatch.unacked_limits import BrokerUnacked
from broker_core.broker.limits.age_clock import AgeClock
from broker_core.broker.limits.backlog_quota import refusal_of_producers
from broker_core.broker.limits.disk_reserve import DiskReserve
from broker_core.broker.membership import (
    check_durability,
    check_room,
    check_room_for_subscription,
    check_type,
)
from broker_core.broker.publishing.deduplication import DeduplicationCursor, forget_sequence_ids
from broker_core.broker.publishing.producer import Producer
from broker_core.broker.publishing.producers import Producers
from broker_core.broker.rate_limits import RateLimit, SubscribeLimit
from broker_core.broker.rates import Traffic
from broker_core.broker.requests import InitialPosition, ProducerRequest, SubscribeRequest
from broker_core.broker.sinks import ConsumerSink, ProducerSink
from broker_core.broker.subscription import Subscription
from broker_core.broker.termination import OnTerminated, Termination
from broker_core.broker.transactions.buffer import TransactionBuffer
from broker_core.broker.transactions.open_transactions import OpenTransactions
from broker_core.storage.catalogue import INTERNAL_PREFIX
from broker_core.storage.store import Store
from broker_core.storage.topic_log import TopicLog

logger = logging.getLogger(__name__)

TOPIC_EPOCH: Final = INTERNAL_PREFIX + "topic.epoch"
"""The property that keeps the epoch of a topic's exclusive producers (semantics 1.7.4)."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The parts that all topics of a broker share. ``producer_name`` makes names that no other producer ever gets."""

    store: Store
    clock: Clock
    age_clock: AgeClock
    timers: Timers
    turns: Turns
    reserve: DiskReserve
    unacked: BrokerUnacked
    transactions: OpenTransactions
    compactor: Compactor
    producer_name: Callable[[], str]


def deduplicates(name: TopicName, settings: Settings) -> bool:
    """Whether a topic with these settings knows sequence ids. Then its log must be drained when it is loaded: what was
    accepted before an unload is unknown until it is stored."""
    return settings.broker_deduplication_enabled and not name.is_system


class Topic:
    """A loaded topic. ``subscriptions`` are by name, durable and not.

    A topic has 30 attributes and 33 methods, as producers, subscriptions, transactions and policies meet here; each
    asks the part that knows the rule.
    """

    def __init__(
        self,
        name: TopicName,
        topic_id: int,
        log: TopicLog,
        surroundings: Surroundings,
        *,
        settings: Settings,
        quotas: Quotas,
        unload: Callable[[TopicName], None],
    ) -> None:
        """``settings`` and ``quotas`` are those in force for the topic (semantics 1.1.5); ``unload`` lets it go from
        memory. ServiceNotReadyError: the disk refuses what transactions or deduplication have to know; the log may be
        closed then."""
        self.name = name
        self.topic_id = topic_id
        self.log = log
        self.clock = surroundings.clock
        self.age_clock = surroundings.age_clock
        self.timers = surroundings.timers
        self.settings = settings
        self.quotas = quotas
        self.turns = surroundings.turns
        self.unacked = surroundings.unacked
        self.transactions = surroundings.transactions
        self.reserve = surroundings.reserve
        self.publish_rate = RateLimit(self.clock, self.timers)
        self.dispatch_rate = RateLimit(self.clock, self.timers)
        self._subscribe_limit = SubscribeLimit(self.clock)
        self._set_rates()
        self.traffic_in = Traffic(self.clock)
        self.traffic_out = Traffic(self.clock)
        self.chunks_in = Traffic(self.clock)
        catalogue = surroundings.store.catalogue
        self.producers = Producers(
            str(name),
            surroundings.producer_name,
            catalogue.topics.property(topic_id, TOPIC_EPOCH),
            lambda epoch: catalogue.topics.set_property(topic_id, TOPIC_EPOCH, epoch),
        )
        self.subscriptions: dict[str, Subscription] = {}
        self.closed = False
        self.deduplication: DeduplicationCursor | None = None
        self._termination = Termination(log, catalogue, self._terminated)
        self._store = surroundings.store
        self._unload = unload
        # First what may fail, for then nothing of this topic may be left.
        self.buffer = TransactionBuffer(topic_id, log, surroundings.transactions, catalogue, self._transaction_ended)
        self.messages = StoredMessages(log, self.buffer.aborted)
        self.delays = TopicDelays(self, self._store.buckets, self._oldest_needed_ledger)
        try:
            self._switch_deduplication()
        except ServiceNotReadyError:
            self.buffer.close()
            raise
        self.compaction = TopicCompaction(self, self._store.views, surroundings.compactor)
        self._cursors = StoredCursors(
            log,
            self._store,
            self.clock,
            self.timers,
            aborted=self.buffer.aborted,
            view=lambda: CompactedLog(log, self.compaction) if self.compaction.has_view else None,
        )
        for stored in self._cursors.recover(all_synced=settings.durability == "sync"):
            self._add(stored)
        log.add_listener(self._entries_came)

    # -- producers

    def add_producer(self, request: ProducerRequest, sink: ProducerSink) -> Producer:
        """Let a producer in, or let it wait for exclusive access; a ServerError says why not."""
        if self._termination.begun:
            raise TopicTerminatedError(f"topic {self.name} was terminated", hint="produce to another topic")
        blocked = self.reserve.refusal(self.name) or refusal_of_producers(self)
        if blocked is not None:
            raise blocked
        if self.log.error is not None:
            raise PersistenceServerError(str(self.log.error))
        check_room(self.name, "producers", len(self.producers), self.settings.max_producers_per_topic)
        name = self.producers.admit(request)
        producer = Producer(
            request,
            name,
            sink,
            self.log,
            self.clock,
            message_bytes_max=self.settings.max_message_size,
            topic_traffic=self.traffic_in,
            topic_chunks=self.chunks_in,
            released=self._producer_left,
            transactions=self.buffer,
        )
        self._set_checks(producer)
        self.producers.add(producer)
        return producer

    def _set_checks(self, producer: Producer) -> None:
        """Have what ``producer`` sends checked as the settings say now."""
        producer.check_with(
            deduplication=self.deduplication.ids if self.deduplication is not None else None,
            delays=self.delays if self.delays.limited else None,
            rate=self.publish_rate if self.publish_rate.limited else None,
        )

    def _producer_left(self, producer: Producer) -> None:
        self.producers.remove(producer)
        if self.deduplication is not None and producer.name not in self.producers:
            self.deduplication.ids.left(producer.name, self.clock.monotonic())

    # -- termination

    @property
    def terminated(self) -> Position | None:
        """Where the topic has ended: the position of its last message; None while it goes on."""
        return self._termination.position

    def terminate(self, on_done: OnTerminated) -> None:
        """Accept no more messages, for good (semantics 7.5). ``on_done`` hears of the last one once that is durable."""
        self._termination.request(on_done)

    def _terminated(self) -> None:
        self.producers.disconnect_all()
        for subscription in self.subscriptions.values():
            subscription.tell_end_of_topic()

    # -- deduplication

    def _switch_deduplication(self) -> None:
        """Turn deduplication on or off as the settings say. Messages sent before it is on are unknown to it."""
        former = self.deduplication
        wanted = deduplicates(self.name, self.settings)
        if former is not None and wanted:
            former.apply(self.settings)
            return
        if former is not None:
            self.deduplication = None
            former.drop()
        elif wanted:
            self.deduplication = DeduplicationCursor(
                self.log, self._store, self.clock, self.timers, self.settings, self.traffic_in
            )
            for producer in self.producers.all():
                self.deduplication.ids.came(producer.name)
        else:
            forget_sequence_ids(self.topic_id, self._store)

    # -- subscriptions

    def subscribe(self, request: SubscribeRequest, sink: ConsumerSink) -> Consumer:
        """Let a consumer in, making the subscription if it is new; a ServerError says why not."""
        check_subscription_name(request.subscription)
        check_not_reserved(request.subscription)
        check_type(request, self.settings)
        self._subscribe_limit.check(self.name, request)
        if request.read_compacted:
            self.compaction.check_readable()
        most = self.settings.max_consumers_per_topic
        check_room(
            self.name, "consumers", most and sum(len(each.consumers) for each in self.subscriptions.values()), most
        )
        subscription = self.subscriptions.get(request.subscription)
        if subscription is not None:
            check_durability(self.name, request, durable=subscription.durable)
            consumer = subscription.subscribe(request, sink)
            if subscription.durable:
                self._cursors.set_unused_since(subscription.name, None)
            return consumer
        if not request.durable:
            return self._subscribe_reader(request, sink)
        created = self.begin_subscription(request.subscription, request.initial_position, request.properties)
        try:
            return created.subscribe(request, sink)
        except ServerError:
            self.delete_subscription(created.name)  # else it would keep all messages for a consumer that was refused
            raise

    def begin_subscription(
        self, name: str, initial_position: InitialPosition, properties: Mapping[str, str] | None = None
    ) -> Subscription:
        """``create_subscription`` by using it; SubscriptionNotFoundError if the settings do not allow that."""
        if not self.settings.allow_auto_subscription_creation:
            raise SubscriptionNotFoundError(
                f"subscription {name!r} of {self.name} does not exist and auto-creation is off",
                hint="create it first, or set allowAutoSubscriptionCreation=true",
            )
        return self.create_subscription(name, initial_position, properties)

    def create_subscription(
        self,
        name: str,
        initial_position: InitialPosition | Position = InitialPosition.LATEST,
        properties: Mapping[str, str] | None = None,
    ) -> Subscription:
        """Make a durable subscription; the next group commit makes it so."""
        check_subscription_name(name)
        check_not_reserved(name)
        if name in self.subscriptions:
            raise NotAllowedError(f"subscription {name!r} of {self.name} exists already")
        self._check_room_for(name)
        start = self._initial(initial_position)
        return self._add(self._cursors.create(name, start, check_properties(properties or {})))

    def _check_room_for(self, subscription: str) -> None:
        most = self.settings.max_subscriptions_per_topic
        check_room_for_subscription(self.name, subscription, len(self.subscriptions), most)

    def _initial(self, start: InitialPosition | Position) -> Position:
        """The mark-delete position behind which ``start`` comes next."""
        if start is InitialPosition.LATEST:
            return self.log.readable_end
        if start is InitialPosition.EARLIEST:
            return POSITION_EARLIEST if self.compaction.has_view else self.log.first_position
        return before_position(self.log, start)

    def delete_subscription(self, name: str, *, knowing: Consumer | None = None) -> None:
        """Forget a subscription and what it has acknowledged; its consumers are told, except ``knowing``."""
        subscription = self.subscriptions.pop(name, None)
        if subscription is None:
            raise SubscriptionNotFoundError(f"subscription {name!r} of {self.name} does not exist")
        subscription.drop(knowing=knowing)
        if subscription.durable:
            self._cursors.delete(name)

    def set_subscription_properties(self, name: str, properties: Mapping[str, str]) -> None:
        """Replace all properties of a subscription."""
        check_properties(properties)
        subscription = self.subscriptions[name]
        if subscription.durable:
            self._cursors.set_properties(name, properties)
        subscription.set_properties(properties)

    def subscription_unused(self, subscription: Subscription) -> None:
        """A non-durable subscription ends with its consumers; of a durable one the unused time is counted."""
        if subscription.durable:
            self._remember_unused(subscription)
        elif self.subscriptions.get(subscription.name) is subscription:
            self.delete_subscription(subscription.name)

    def _subscribe_reader(self, request: SubscribeRequest, sink: ConsumerSink) -> Consumer:
        """A new non-durable subscription: it stands right before the entry or the time asked for, if any is."""
        self._check_room_for(request.subscription)
        compacted = CompactedLog(self.log, self.compaction) if request.read_compacted else None
        if request.rollback_s:
            since_ms = self.clock.now_ms() - request.rollback_s * 1000
            start = before_time(self.log, since_ms) if compacted is None else compacted.before_time(since_ms)
        elif request.start is not None and compacted is not None:
            start = before_position(compacted, request.start)
        else:
            start = self._initial(request.initial_position if request.start is None else request.start)
        cursor = Cursor(self.log, start, aborted=self.buffer.aborted, stored=False)
        subscription = Subscription(self, request.subscription, cursor, None, request.properties)
        consumer = subscription.subscribe(request, sink)
        self.subscriptions[request.subscription] = subscription
        return consumer

    def _add(self, stored: StoredCursor) -> Subscription:
        """The durable subscription that ``stored`` is the cursor of."""
        subscription = Subscription(
            self,
            stored.name,
            stored.cursor,
            stored.journal,
            stored.properties,
            pending=stored.pending,
            unused_since_ms=stored.unused_since_ms,
        )
        self.subscriptions[stored.name] = subscription
        return subscription

    def _remember_unused(self, subscription: Subscription) -> None:
        """Keep over a restart since when a subscription is unused, if that can end it (semantics 7.2)."""
        if self.settings.subscription_expiration_time_minutes:
            self._cursors.set_unused_since(subscription.name, subscription.last_active_ms)

    @property
    def has_clients(self) -> bool:
        """Whether a producer or consumer is connected."""
        return bool(len(self.producers)) or any(each.consumers for each in self.subscriptions.values())

    @property
    def created_ms(self) -> int:
        """When the topic was made, by the broker's clock."""
        row = self._store.catalogue.topics.find(str(self.name))
        return row.created_ms if row is not None else 0

    # -- policies

    def apply(self, settings: Settings, quotas: Quotas) -> None:
        """A policy was changed. The change holds at once, but for limits that a connected client was told."""
        self.settings = settings
        self.quotas = quotas
        try:
            self._switch_deduplication()
        except ServiceNotReadyError as error:  # clients are told when they come back
            logger.error("deduplication cannot begin topic=%s error=%s", self.name, error)
            self.start_over()
        self._set_rates()
        self.compaction.settings_changed()
        for subscription in list(self.subscriptions.values()):
            subscription.dispatch_rate.set(*quotas.subscription_dispatch_rate.per_s)
            subscription.dispatcher.settings_changed(settings)
        for producer in self.producers.all():
            self._set_checks(producer)

    def _set_rates(self) -> None:
        self.publish_rate.set(*self.quotas.publish_rate.per_s)
        self.dispatch_rate.set(*self.quotas.dispatch_rate.per_s)
        rate = self.quotas.subscribe_rate
        self._subscribe_limit.set(rate.subscribe_throttling_rate_per_consumer, rate.rate_period_in_second)

    # -- the log

    @property
    def damages(self) -> list[str]:
        """Damages and losses of the topic, as far as known, one line each."""
        return self._store.damages_of(str(self.name))

    def expire(
        self, subscription: Subscription, older_than_s: int, *, at_once: bool = False, on_done: OnDone | None = None
    ) -> bool:
        """Pass one of the subscriptions over the messages at the head of its backlog that are older than that, as
        ``Expiry.pass_older``."""
        before_ms = self.age_clock.now_ms() - older_than_s * 1000
        return subscription.expiry.pass_older(before_ms, at_once=at_once, on_done=on_done)

    def trimmed(self) -> None:
        """The oldest ledgers are gone: non-durable subscriptions that stood in them move on."""
        start = self.log.first_position
        for subscription in self.subscriptions.values():
            if not subscription.durable and not subscription.reads_compacted:
                subscription.pass_over(start)
        self.buffer.trimmed()
        self.delays.trimmed(max(start.ledger, 0))

    @property
    def ledger_holders(self) -> list[LedgerHolder]:
        """The parts of the topic that still need entries of the log; retention keeps their ledgers."""
        holders: list[LedgerHolder] = [each.journal for each in self.subscriptions.values() if each.journal is not None]
        if self.deduplication is not None:
            holders.append(self.deduplication)
        holders.append(self.buffer)
        if self.compaction.has_cursor or self.compaction.is_running:  # the first run makes the cursor at its end
            holders.append(self.compaction)
        return holders

    def _oldest_needed_ledger(self) -> int:
        """Before this ledger every subscription has acknowledged everything."""
        return min((each.cursor.mark_delete.ledger for each in self.subscriptions.values()), default=0)

    def _entries_came(self) -> None:
        for subscription in list(self.subscriptions.values()):
            subscription.dispatcher.entries_came()

    def _transaction_ended(self, entries_died: bool) -> None:
        """Readers may see more of the log; ``entries_died``: or less than was stored."""
        if entries_died:
            for subscription in list(self.subscriptions.values()):
                subscription.acks.entries_died()
        self._entries_came()

    # -- the end

    def start_over(self) -> None:
        """Have the topic unloaded in the next turn of the loop; clients come back at once, and it is loaded anew."""

        def unload() -> None:
            if not self.closed:
                logger.warning("topic unloaded to read its log again topic=%s", self.name)
                self._unload(self.name)

        self.timers.call_later(0, unload)

    def delete(self) -> None:
        """Delete the topic with its log and its subscriptions."""
        self.closed = True
        self.producers.disconnect_all()
        for subscription in list(self.subscriptions.values()):
            subscription.drop()
        if self.deduplication is not None:
            self.deduplication.drop()
        self._termination.close()
        self.delays.delete()
        self.log.delete()
        self.buffer.deleted()
        self.compaction.delete()

    def close(self) -> None:
        """Tell every client to go and let go of everything but what is stored; acknowledgements are written first."""
        if self.closed:
            return
        self.closed = True
        for subscription in self.subscriptions.values():
            if subscription.durable and not subscription.consumers:  # the others are counted from the next load on
                self._remember_unused(subscription)
        self.producers.disconnect_all()
        for subscription in list(self.subscriptions.values()):
            subscription.disconnect_all()
        for subscription in self.subscriptions.values():
            subscription.close()
        if self.deduplication is not None:
            self.deduplication.close()
        self.delays.close()
        self.compaction.close()
        self._termination.close()
        self.buffer.close()
        self.log.remove_listener(self._entries_came)
        self.log.close()
