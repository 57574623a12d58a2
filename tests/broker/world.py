# SPDX-License-Identifier: Apache-2.0
"""A whole broker on a simulated disk and a virtual clock, and clients that write down what they are told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Final

import msgspec

from broker_core.base.errors import ServerError, StorageError
from broker_core.base.names import TopicName
from broker_core.base.positions import Position
from broker_core.base.settings import Settings
from broker_core.base.steps import drained
from broker_core.broker.broker import Broker
from broker_core.broker.consumer import Consumer
from broker_core.broker.publishing.producer import Producer
from broker_core.broker.requests import (
    AckId,
    AckKind,
    InitialPosition,
    ProducerRequest,
    SubscribeRequest,
    SubscriptionType,
)
from broker_core.broker.sinks import Delivery, InFlight
from broker_core.broker.stats import SubscriptionStats, TopicStats, subscription_stats_in_steps, topic_stats_in_steps
from broker_core.broker.subscription import Subscription
from broker_core.broker.topic import Topic
from broker_core.storage.store import Store
from broker_core.testing.sim_disk import CHANGES, Policy, SimDisk
from broker_core.testing.virtual_timers import VirtualTimers
from broker_core.wire.entry import seal_entry
from broker_core.wire.heads import SendHead
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata

EXCLUSIVE, SHARED, FAILOVER = SubscriptionType.EXCLUSIVE, SubscriptionType.SHARED, SubscriptionType.FAILOVER
EARLIEST, LATEST = InitialPosition.EARLIEST, InitialPosition.LATEST

SMALL = Settings(
    managed_ledger_max_entries_per_ledger=10,
    managed_ledger_min_ledger_rollover_time_minutes=0,
    managed_ledger_cache_size_mbytes=1,
    active_consumer_failover_delay_time_millis=0,
)
"""Small ledgers, so that every test crosses their borders, and no pause at takeover."""

TINY = Settings(
    managed_ledger_max_entries_per_ledger=4,
    managed_ledger_min_ledger_rollover_time_minutes=0,
    managed_ledger_cache_size_mbytes=1,
    dispatcher_max_read_batch_size=5,
    dispatcher_max_round_robin_batch_size=3,
    max_unacked_messages_per_consumer=8,
    max_unacked_messages_per_subscription=14,
    active_consumer_failover_delay_time_millis=300,
)
"""For random histories: everything so small that every limit and border is met often."""

TOPIC = "persistent://public/default/t"
_parsed = cache(TopicName.parse)


YEAR_MS: Final = 365 * 86_400_000


def body(text: str = "x", *, messages: int = 1, publish_time_ms: int = 1, batch: bool = False) -> bytes:
    """An entry as a client would send it."""
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=publish_time_ms)
    if messages > 1 or batch:
        metadata.num_messages_in_batch = messages
    return seal_entry(metadata.SerializeToString(), text.encode())


@dataclass
class Answers:
    """A producer's client: receipts and errors in the order in which they came."""

    receipts: list[tuple[int, Position]] = field(default_factory=list)
    errors: list[tuple[int, ServerError]] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    outcomes: list[Position | ServerError] = field(default_factory=list)
    closed: bool = False
    ready_told: int = 0
    in_flight: InFlight = field(default_factory=InFlight)
    refusal: ServerError | None = None

    def ready(self) -> None:
        self.ready_told += 1

    def refused(self, error: ServerError) -> None:
        self.refusal = error

    def receipt(self, sequence_ids: Sequence[int], highest_sequence_ids: Sequence[int], first: Position) -> None:
        for number, sequence_id in enumerate(sequence_ids):
            position = first._replace(entry=first.entry + number)
            self.receipts.append((sequence_id, position))
            self.outcomes.append(position)
            self.order.append(sequence_id)

    def send_error(self, sequence_id: int, error: ServerError) -> None:
        self.errors.append((sequence_id, error))
        self.outcomes.append(error)
        self.order.append(sequence_id)

    def closed_by_broker(self) -> None:
        self.closed = True


@dataclass
class Mailbox:
    """A consumer's client. Deliveries wait here until a test looks at them."""

    writable: bool = True
    closed: bool = False
    deliveries: list[Delivery] = field(default_factory=list)
    activity: list[bool] = field(default_factory=list)
    ends_told: int = 0
    log: list[Mailbox] | None = None
    consumer: Consumer | None = None

    def deliver(self, deliveries: list[Delivery]) -> None:
        assert not self.closed, "delivered to a closed consumer"
        self.deliveries += deliveries
        if self.log is not None:
            self.log += [self] * len(deliveries)

    def active_changed(self, active: bool) -> None:
        self.activity.append(active)

    def end_of_topic(self) -> None:
        self.ends_told += 1

    def closed_by_broker(self) -> None:
        self.closed = True

    @property
    def positions(self) -> list[Position]:
        return [delivery.entry.position for delivery in self.deliveries]

    def take(self) -> list[Position]:
        """Positions that came since the last call."""
        positions = self.positions
        self.deliveries.clear()
        return positions


def topic_stats(topic: Topic) -> TopicStats:
    """The statistics of a topic, in one step."""
    return drained(topic_stats_in_steps(topic))


def subscription_stats(subscription: Subscription) -> SubscriptionStats:
    """The statistics of a subscription, in one step."""
    return drained(subscription_stats_in_steps(subscription))


class World:
    """One broker and everything around it. Those that still run after a test are closed by ``conftest``."""

    running: ClassVar[list[World]] = []

    def __init__(self, settings: Settings = SMALL, disk: SimDisk | None = None, **changes: object) -> None:
        self.settings = msgspec.structs.replace(settings, **changes)
        self.clock = VirtualTimers()
        self.disk = disk or SimDisk()
        self.open()
        World.running.append(self)

    def open(self) -> None:
        """Start on whatever the disk holds."""
        self.store = Store.open(self.disk, "/data", self.clock, self.settings)
        self.broker = Broker(self.store, self.clock, self.clock, self.settings)

    def settle(self) -> None:
        """Let everything happen that needs no time to pass."""
        self.clock.run_due()
        while self.store.commits.pending:
            self.store.commits.commit_now()
            self.clock.run_due()

    def commit_once(self) -> bool:
        """One group commit, without anything else; whether there was anything to commit."""
        job = self.store.commits.take()
        if job is None:
            return False
        job.run()
        self.store.commits.finish(job, None)
        return True

    def restart(self) -> None:
        """Stop in good order and start again."""
        self.broker.close()
        self.settle()
        self.store.close()
        self.open()

    def crash(self, seed: int = 0, policy: Policy = "random") -> None:
        """Lose power, and start again on what the disk has kept. Clients of before hear nothing any more.

        What calls have returned counts as answered, and answers wait until the catalogue's changes are durable.
        """
        self.store.catalogue.flush()
        image = self.disk.crash(seed, policy)
        self.abandon()
        self.disk, self.clock = image, self.clock.stopped()
        self.open()

    def abandon(self) -> None:
        """Let go of the store without writing anything that a crash would not have written."""
        self.disk.fail(1, forever=True)
        with suppress(StorageError):
            self.store.close()

    # -- shorthands

    def topic(self, name: str = TOPIC) -> Topic:
        return self.broker.topic(_parsed(name), create=True)

    def subscription(self, name: str = "s", topic: str = TOPIC) -> Subscription:
        return self.topic(topic).subscriptions[name]

    def produce(self, topic: str = TOPIC, **request: object) -> tuple[Producer, Answers]:
        answers = Answers()
        return self.topic(topic).add_producer(ProducerRequest(**request), answers), answers  # type: ignore[arg-type]

    def publish(
        self, count: int, topic: str = TOPIC, *, messages: int | Callable[[int], int] = 1, batch: bool = False
    ) -> list[Position]:
        """Append ``count`` entries, wait until they are durable, and return where they are."""
        producer, answers = self.produce(topic)
        for number in range(count):
            size = messages if isinstance(messages, int) else messages(number)
            producer.send(SendHead(0, number, size), body(str(number), messages=size, batch=batch))
        self.settle()
        producer.close()
        assert not answers.errors, answers.errors
        return [position for _, position in answers.receipts]

    def publish_at(self, *times_ms: int, size: int = 1) -> list[Position]:
        """Entries that are stored at these times by the broker's clock, which is set to and fro for it; wait until they
        are durable, and return where they are. By the producer's clock they are of another year."""
        producer, answers = self.produce()
        for number, time_ms in enumerate(times_ms):
            ahead_ms = time_ms - self.clock.now_ms()
            self.clock.step_wall_clock(ahead_ms)
            published_ms = time_ms + YEAR_MS if number % 2 else max(1, time_ms - YEAR_MS)
            producer.send(SendHead(0, number), body("x" * size, publish_time_ms=published_ms))
            self.clock.step_wall_clock(-ahead_ms)
        self.settle()
        producer.close()
        assert not answers.errors, answers.errors
        return [position for _, position in answers.receipts]

    def subscribe(
        self,
        kind: SubscriptionType = EXCLUSIVE,
        subscription: str = "s",
        topic: str = TOPIC,
        *,
        name: str = "c",
        permits: int = 1000,
        initial_position: InitialPosition = EARLIEST,
        log: list[Mailbox] | None = None,
        **request: object,
    ) -> tuple[Consumer, Mailbox]:
        mailbox = Mailbox(log=log)
        complete = SubscribeRequest(
            subscription=subscription,
            kind=kind,
            consumer_name=name,
            initial_position=initial_position,
            **request,  # type: ignore[arg-type]
        )
        consumer = mailbox.consumer = self.topic(topic).subscribe(complete, mailbox)
        consumer.flow(permits)
        return consumer, mailbox


def ack(consumer: Consumer, *positions: Position, done: list[ServerError | None] | None = None) -> None:
    """Acknowledge whole entries one by one, in one request."""
    on_done = None if done is None else done.append
    if len({position.ledger for position in positions}) == 1:
        consumer.ack_entries(positions[0].ledger, [position.entry for position in positions], on_done)
    else:
        consumer.ack(AckKind.INDIVIDUAL, [AckId(position) for position in positions], on_done)


def ack_through(
    consumer: Consumer, position: Position, *words: int, done: list[ServerError | None] | None = None
) -> None:
    """Acknowledge cumulatively; ``words``: what is left of the batch at ``position``."""
    target = AckId(position, words or None)
    consumer.ack(AckKind.CUMULATIVE, [target], None if done is None else done.append)


def ack_batch(consumer: Consumer, position: Position, indexes_left: Iterable[int]) -> None:
    """Acknowledge all messages of a batch but those at ``indexes_left``."""
    bits = sum(1 << index for index in indexes_left)
    consumer.ack(AckKind.INDIVIDUAL, [AckId(position, (bits,))])


def image_before(
    disk: SimDisk, change: int, seed: int, policy: Any, known: Callable[[], Any]
) -> list[tuple[SimDisk, Any]]:
    """Have an image of a power loss made right before the ``change``-th change of ``disk``; with ``known`` at that time
    it will be in the list."""
    caught: list[tuple[SimDisk, Any]] = []
    left = change

    def before(kind: str, _path: str) -> None:
        nonlocal left
        if kind in CHANGES:
            left -= 1
            if left == 0:
                caught.append((disk.crash(seed, policy), known()))

    disk.before = before
    return caught
