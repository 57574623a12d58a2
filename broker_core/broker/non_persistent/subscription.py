# SPDX-License-Identifier: Apache-2.0
"""``NonPersistentSubscription``: the consumers of one name on a non-persistent topic. A subscription exists while it
has any.

Nothing is kept: no cursor, no pending acks, no redelivery. An ack is accepted and means nothing; a request that would
need a stored message is refused. Source: Pulsar docs, "Non-persistent topics"; semantics 1.1.8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

from broker_core.base.clock import Clock
from broker_core.base.errors import ConsumerBusyError, NotAllowedError, ServerError, TransactionConflictError
from broker_core.base.names import TopicName
from broker_core.base.positions import Position
from broker_core.base.settings import Settings
from broker_core.broker.consumer import Consumer, EntryAcks, LastMessage, OnDone
from broker_core.broker.dispatch.active_consumer import ActiveConsumer
from broker_core.broker.dispatch.key_shared.selectors import make_selector
from broker_core.broker.dispatch.round_robin import RoundRobin
from broker_core.broker.membership import check_joinable, deletion_problem
from broker_core.broker.rates import Traffic
from broker_core.broker.requests import AckId, AckKind, SubscribeRequest
from broker_core.broker.sinks import ConsumerSink, Delivery
from broker_core.storage.ledger import StoredEntry
from broker_core.wire.entry_peek import sticky_key
from broker_core.wire.heads import TxnId

KEYLESS = b"NONE_KEY"
"""The key of messages without one where they all go to one consumer (semantics 1.6)."""


class ConsumerChoice:
    """The members of one subscription, and the one that gets a message now. A choice never waits: None means that the
    message is dropped. The rules are those of persistent topics. This class itself is that of a subscription without
    members."""

    def add(self, consumer: Consumer) -> None:
        """Let a consumer in; a ServerError leaves everything as it was."""

    def remove(self, leavers: Sequence[Consumer]) -> None:
        """Let consumers go, but not the last one."""

    def next(self, body: bytes) -> Consumer | None:
        """The consumer that gets the entry ``body``; it can take it."""
        return None

    def can_take_more(self, consumer: Consumer) -> None:
        """The consumer may be able to take messages again."""

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None) -> None:
        """Nothing is stored that could be sent again."""


def can_take(consumer: Consumer) -> bool:
    """Whether it has permits and reads what it is sent."""
    return consumer.permits > 0 and consumer.sink.writable


class OneActive(ActiveConsumer, ConsumerChoice):
    """Exclusive and Failover: the active consumer or none (semantics 2.2, 2.3)."""

    def next(self, body: bytes) -> Consumer | None:
        return self.consumer if self.consumer is not None and can_take(self.consumer) else None


class InTurns(ConsumerChoice):
    """Shared: in turns among the consumers of the best priority that can take a message (semantics 2.4.2)."""

    def __init__(self) -> None:
        self._consumers: RoundRobin[Consumer] = RoundRobin()

    def add(self, consumer: Consumer) -> None:
        self._consumers.add(consumer, consumer.priority)

    def remove(self, leavers: Sequence[Consumer]) -> None:
        self._consumers.remove(leavers)

    def can_take_more(self, consumer: Consumer) -> None:
        self._consumers.set_available(consumer, can_take(consumer))

    def next(self, body: bytes) -> Consumer | None:
        while (consumer := self._consumers.next()) is not None:
            if can_take(consumer):
                return consumer
            self._consumers.set_available(consumer, False)
        return None


class ByKey(ConsumerChoice):
    """Key_Shared: the owner of the entry's key. Nothing is ever sent again, so no key waits (semantics 2.6 to 2.8)."""

    def __init__(self, request: SubscribeRequest, settings: Settings) -> None:
        self._policy = request.key_shared
        self._selector = make_selector(self._policy.mode, settings)
        self._keyless = None if settings.key_shared_spread_keyless else KEYLESS

    def add(self, consumer: Consumer) -> None:
        if consumer.request.key_shared.mode is not self._policy.mode:
            raise ConsumerBusyError(
                f"subscription {consumer.request.subscription!r} is of different type: its keys are shared out as "
                f"{self._policy.mode.name}, asked for was {consumer.request.key_shared.mode.name}",
                hint="use the same Key_Shared policy, or wait until all its consumers have left",
            )
        self._selector.add(consumer)

    def remove(self, leavers: Sequence[Consumer]) -> None:
        for consumer in leavers:
            self._selector.remove(consumer)

    def next(self, body: bytes) -> Consumer | None:
        owner = self._selector.select(self._selector.hash_of(sticky_key(body, self._keyless)))
        return owner if owner is not None and can_take(owner) else None


def make_choice(request: SubscribeRequest, topic: TopicName, settings: Settings) -> ConsumerChoice:
    """The choice for a subscription whose first consumer asks with ``request``."""
    if request.kind.has_active_consumer:
        return OneActive(request.kind, topic, settings)
    return ByKey(request, settings) if request.kind.routes_by_key else InTurns()


class IgnoredAcks:
    """Accepts every ack. Nothing is kept, so none can be wrong."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def ack(self, consumer: Consumer, kind: AckKind, ids: Sequence[AckId], on_done: OnDone | None) -> None:
        consumer.acked_ms = self._clock.now_ms()
        if on_done is not None:
            on_done(None)

    def ack_entries(self, ledger: int, acks: Sequence[EntryAcks], on_done: OnDone | None) -> None:
        for consumer, _entries in acks:
            self.ack(consumer, AckKind.INDIVIDUAL, (), on_done)

    def problem(self, consumer: Consumer, kind: AckKind, ids: Sequence[AckId]) -> ServerError | None:
        return None


class RefusedTransactionalAcks:
    """Refuses every ack in a transaction: nothing is kept that an abort could deliver again."""

    def ack(
        self, consumer: Consumer, transaction: TxnId, kind: AckKind, ids: Sequence[AckId], on_done: OnDone | None
    ) -> None:
        if on_done is not None:
            on_done(self.problem(consumer, transaction, kind, ids))

    def begin(self, consumer: Consumer, transaction: TxnId) -> NoReturn:
        raise self.problem(consumer, transaction, AckKind.INDIVIDUAL, ())

    def problem(
        self, consumer: Consumer, transaction: TxnId, kind: AckKind, ids: Sequence[AckId]
    ) -> TransactionConflictError:
        return TransactionConflictError(
            f"messages of subscription {consumer.subscription.name!r} are not stored: no transaction has them",
            hint="acknowledge outside of any transaction, or use a persistent:// topic",
        )


class NonPersistentSubscription:
    """Offers each message to one of its consumers, of which there may be ``consumers_max`` (0: any number). ``dropped``
    counts the messages that no consumer could take."""

    def __init__(
        self, topic: TopicName, request: SubscribeRequest, clock: Clock, settings: Settings, unused: Callable[[], None]
    ) -> None:
        """``request`` of the first consumer fixes the type; ``unused`` is called when the last one has left."""
        self.name = request.subscription
        self.kind = request.kind
        self.properties = dict(request.properties)
        self.consumers: list[Consumer] = []
        self.traffic = Traffic(clock)
        self.dropped = Traffic(clock)
        self._topic = topic
        self._clock = clock
        self._unused = unused
        self.consumers_max = settings.max_consumers_per_subscription
        self.acks = IgnoredAcks(clock)
        self.transactional_acks = RefusedTransactionalAcks()
        self.dispatcher = make_choice(request, topic, settings)

    def subscribe(self, request: SubscribeRequest, sink: ConsumerSink) -> Consumer:
        """Let a consumer in, or raise the ServerError that says why not."""
        check_joinable(self._topic, request, self.kind, len(self.consumers), self.consumers_max)
        consumer = Consumer(request, sink, self, self._clock)
        self.dispatcher.add(consumer)
        self.consumers.append(consumer)
        return consumer

    def apply(self, settings: Settings) -> None:
        """A policy was changed; it holds for the next consumer."""
        self.consumers_max = settings.max_consumers_per_subscription

    def offer(self, entry: StoredEntry) -> bool:
        """Give the entry to the consumer that is next and can take it now; false if it was dropped."""
        size = len(entry.body)
        consumer = self.dispatcher.next(entry.body)
        counted = self.dropped if consumer is None else self.traffic
        counted.messages += entry.messages
        counted.bytes += size
        if consumer is None:
            return False
        consumer.send([Delivery(entry, 0, None)], entry.messages, size, entry.broker_timestamp)
        self.dispatcher.can_take_more(consumer)
        return True

    def disconnect_all(self) -> None:
        """Every consumer is told to go."""
        consumers, self.consumers = self.consumers, []
        for consumer in consumers:
            consumer.left().closed_by_broker()
        self._end()

    # -- what consumers ask

    def leave(self, leavers: Sequence[Consumer]) -> None:
        for consumer in leavers:
            consumer.left()
        self.consumers = [consumer for consumer in self.consumers if not consumer.closed]
        if self.consumers:
            self.dispatcher.remove(leavers)
        else:
            self._end()

    def _end(self) -> None:
        """The last consumer has left. The choice, which has it still, goes with it: a circle would stay in memory until
        Python looks for circles."""
        self.dispatcher = ConsumerChoice()
        self._unused()

    def permits_came(self, consumer: Consumer) -> None:
        consumer.flowed(self._clock.now_ms())
        self.dispatcher.can_take_more(consumer)

    def seek(self, position: Position, ack_set: Sequence[int] | None, on_done: OnDone) -> None:
        """There is nothing to go back to: at any position the next message that is published is the next one sent."""
        on_done(None)

    def seek_to_time(self, time_ms: int, on_done: OnDone) -> None:
        """There is nothing to go back to, as in ``seek``."""
        on_done(None)

    def unsubscribe(self, consumer: Consumer, on_done: OnDone, *, force: bool) -> None:
        problem = deletion_problem(self.name, len(self.consumers))
        if problem is not None and not force:
            on_done(problem)
            return
        self.leave((consumer,))
        self.disconnect_all()
        on_done(None)

    def last_message(self) -> LastMessage:
        raise NotAllowedError(
            f"{self._topic} is not persistent: it has no last message", hint="use a persistent:// topic"
        )

    def backlog_entries(self) -> int:
        """Nothing waits."""
        return 0
