# SPDX-License-Identifier: Apache-2.0
"""``NonPersistentTopic``: passes messages from producers to consumers and stores none of them.

To its producers it is the log: it gives each entry a position, which means nothing but the order, and confirms it in
the next turn of the loop, whether a consumer took it or not. Access modes work as on any topic; their epoch lives as
long as the topic does. Source: Pulsar docs, "Non-persistent topics"; semantics 1.1.8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from broker_core.base.clock import Clock, TimerHandle, Timers
from broker_core.base.errors import NotAllowedError
from broker_core.base.names import TopicName, check_subscription_name
from broker_core.base.positions import Position
from broker_core.base.settings import Settings
from broker_core.broker.consumer import Consumer
from broker_core.broker.membership import check_room, check_type
from broker_core.broker.non_persistent.subscription import NonPersistentSubscription
from broker_core.broker.publishing.producer import Producer
from broker_core.broker.publishing.producers import Producers
from broker_core.broker.rates import Traffic
from broker_core.broker.requests import InitialPosition, ProducerRequest, SubscribeRequest
from broker_core.broker.sinks import ConsumerSink, ProducerSink
from broker_core.storage.commit import OnDurable
from broker_core.storage.ledger import StoredEntry

LEDGER: Final = 0
"""The ledger in every position here; entries are counted from 0 since the topic was made."""


class NonPersistentTopic:
    """A topic in memory. ``subscriptions`` are by name; ``dropped`` counts messages that no subscription took,
    ``entries_added`` the entries that came since the topic was made."""

    def __init__(
        self,
        name: TopicName,
        clock: Clock,
        timers: Timers,
        settings: Settings,
        producer_name: Callable[[], str],
        idle: Callable[[], None],
    ) -> None:
        """``idle`` is called whenever the last client has left."""
        self.name = name
        self.settings = settings
        self.traffic_in = Traffic(clock)
        self.traffic_out = Traffic(clock)
        self.chunks_in = Traffic(clock)
        self.dropped = Traffic(clock)
        self.producers = Producers(str(name), producer_name)
        self.subscriptions: dict[str, NonPersistentSubscription] = {}
        self._clock = clock
        self._timers = timers
        self._idle = idle
        self.entries_added = 0
        self._messages = 0
        self._unconfirmed: list[OnDurable] = []

    @property
    def in_use(self) -> bool:
        """Whether a client is connected."""
        return bool(len(self.producers) or self.producers.waiting or self.subscriptions)

    # -- producers

    def add_producer(self, request: ProducerRequest, sink: ProducerSink) -> Producer:
        """Let a producer in, or let it wait for exclusive access; a ServerError says why not."""
        check_room(self.name, "producers", len(self.producers), self.settings.max_producers_per_topic)
        producer = Producer(
            request,
            self.producers.admit(request),
            sink,
            self,
            self._clock,
            message_bytes_max=self.settings.max_message_size,
            topic_traffic=self.traffic_in,
            topic_chunks=self.chunks_in,
            released=self._producer_left,
        )
        self.producers.add(producer)
        return producer

    def _producer_left(self, producer: Producer) -> None:
        self.producers.remove(producer)
        self._left()

    def append(self, body: bytes, messages: int, on_durable: OnDurable) -> Position:
        """Offer an entry to every subscription. ``on_durable`` is called soon, though nothing is stored."""
        return self.append_all((body,), (messages,), on_durable)

    def append_all(self, bodies: Sequence[bytes], messages: Sequence[int], on_durable: OnDurable) -> Position:
        """``append`` of entries that came together; ``on_durable`` is called once for all of them."""
        first = Position(LEDGER, self.entries_added)
        for body, count in zip(bodies, messages, strict=True):
            self._offer(body, count)
        if not self._unconfirmed:
            self._timers.call_later(0, self._confirm)
        self._unconfirmed.append(on_durable)
        return first

    def when_stored(self, then: OnDurable) -> None:
        """Nothing will be."""
        then(None)

    def _offer(self, body: bytes, messages: int) -> None:
        position = Position(LEDGER, self.entries_added)
        self.entries_added += 1
        self._messages += messages
        entry = StoredEntry(position, body, messages, self._messages - 1, self._clock.now_ms())
        taken = 0
        for subscription in list(self.subscriptions.values()):
            taken += subscription.offer(entry)
        counted = self.traffic_out if taken else self.dropped
        counted.messages += messages * max(taken, 1)
        counted.bytes += len(body) * max(taken, 1)

    def _confirm(self) -> None:
        confirmed, self._unconfirmed = self._unconfirmed, []
        for on_durable in confirmed:
            on_durable(None)

    # -- subscriptions

    def subscribe(self, request: SubscribeRequest, sink: ConsumerSink) -> Consumer:
        """Let a consumer in, making the subscription if it is new; a ServerError says why not.

        Where to start and whether to be durable mean nothing here: it gets what is published from now on.
        """
        check_subscription_name(request.subscription)
        check_type(request, self.settings, stored=False)
        most = self.settings.max_consumers_per_topic
        check_room(
            self.name, "consumers", most and sum(len(each.consumers) for each in self.subscriptions.values()), most
        )
        subscription = self.subscriptions.get(request.subscription)
        if subscription is None:
            subscription = NonPersistentSubscription(
                self.name, request, self._clock, self.settings, lambda: self._unused(request.subscription)
            )
        consumer = subscription.subscribe(request, sink)
        self.subscriptions[request.subscription] = subscription
        return consumer

    def create_subscription(
        self,
        name: str,
        initial_position: InitialPosition | Position = InitialPosition.LATEST,
        properties: Mapping[str, str] | None = None,
    ) -> NonPersistentSubscription:
        """Always NotAllowedError: a subscription without consumers would miss everything."""
        raise NotAllowedError(
            f"{self.name} is not persistent: subscription {name!r} exists only while it has consumers",
            hint="subscribe to it, or use a persistent:// topic",
        )

    def _unused(self, subscription: str) -> None:
        self.subscriptions.pop(subscription, None)
        self._left()

    # -- policies

    def apply(self, settings: Settings) -> None:
        """A policy was changed. The change holds at once, but for limits that a connected client was told."""
        self.settings = settings
        for subscription in self.subscriptions.values():
            subscription.apply(settings)

    # -- the end

    def close(self) -> None:
        """Tell every client to go; they may come back."""
        self.producers.disconnect_all()
        for subscription in list(self.subscriptions.values()):
            subscription.disconnect_all()

    def _left(self) -> None:
        if not self.in_use:
            self._idle()


IDLE_S: Final = 60.0
"""How long a topic without clients is remembered, as in Pulsar by default."""


class NonPersistentTopics:
    """The non-persistent topics of a broker, which end with the process, by name.

    A topic that was made by being used is forgotten some time after its last client has left, or if none was let in
    (semantics 7.6). ``directory`` decides which topics may be made, and how many partitions a name has.
    """

    def __init__(self, clock: Clock, timers: Timers, producer_name: Callable[[], str]) -> None:
        self._clock = clock
        self._timers = timers
        self._producer_name = producer_name
        self._topics: dict[TopicName, NonPersistentTopic] = {}
        self._forgetting: dict[TopicName, TimerHandle] = {}
        self.when_forgotten: Callable[[TopicName], None] = lambda _name: None

    def __contains__(self, name: TopicName) -> bool:
        return name in self._topics

    def names(self) -> list[TopicName]:
        return sorted(self._topics)

    def all(self) -> list[NonPersistentTopic]:
        return list(self._topics.values())

    def get(self, name: TopicName) -> NonPersistentTopic | None:
        return self._topics.get(name)

    def make(self, name: TopicName, settings: Settings) -> NonPersistentTopic:
        """A new topic of a name that is free."""
        topic = NonPersistentTopic(
            name, self._clock, self._timers, settings, self._producer_name, lambda: self.forget_when_idle(name)
        )
        self._topics[name] = topic
        return topic

    def remove(self, name: TopicName) -> None:
        """End a topic; its clients are told to go. Nothing happens if there is none."""
        topic = self._topics.pop(name, None)
        if topic is not None:
            topic.close()
        timer = self._forgetting.pop(name, None)
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        """End all topics."""
        for name in self.names():
            self.remove(name)

    def forget_when_idle(self, name: TopicName) -> None:
        """Forget a topic a while from now, unless it has clients then."""
        timer = self._forgetting.pop(name, None)
        if timer is not None:
            timer.cancel()
        if name in self._topics:
            self._forgetting[name] = self._timers.call_later(IDLE_S, lambda: self._forget(name))

    def _forget(self, name: TopicName) -> None:
        del self._forgetting[name]
        if not self._topics[name].in_use:
            self.remove(name)
            self.when_forgotten(name)
