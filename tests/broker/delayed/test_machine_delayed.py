# SPDX-License-Identifier: Apache-2.0
"""Random histories of delayed messages on two Shared subscriptions of one topic, on a disk that crashes.

Model: of every stored entry when it is due; for each subscription what is acknowledged and what its clients hold.
Checked at every delivery: never before its time (delivery is strict here), never twice at once, never acknowledged.
Checked whenever there was time enough: everything that is due and that nobody holds has come (I6.1, I6.5, I6.7, I6.11).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_core.base.errors import ServerError
from broker_core.base.positions import Position
from broker_core.base.settings import Settings
from broker_core.broker import AckId, AckKind, Consumer, Delivery, SubscribeRequest
from broker_core.broker.delayed.bucket import last_key
from broker_core.testing.sim_disk import POLICIES
from broker_core.wire.entry_peek import deliver_at_ms
from tests.broker.delayed.entries import delayed_body
from tests.broker.world import EARLIEST, SHARED, World

SETTINGS = Settings(
    managed_ledger_max_entries_per_ledger=4,
    managed_ledger_min_ledger_rollover_time_minutes=0,
    managed_ledger_cache_size_mbytes=1,
    dispatcher_max_read_batch_size=3,
    dispatcher_max_round_robin_batch_size=2,
    is_delayed_delivery_deliver_at_time_strict=True,
    delayed_delivery_tick_time_millis=1,
    delayed_delivery_min_index_count_per_bucket=3,
    delayed_delivery_max_time_step_per_bucket_snapshot_segment_seconds=2,
    delayed_delivery_max_indexes_per_bucket_snapshot_segment=2,
)
"""Everything tiny (I6.2): three indexes a bucket, two a segment, four entries a ledger."""

NAMES = ("a", "b")
PICK = st.integers(0, 10_000)
DELAY_MS = st.one_of(st.none(), st.integers(-500, 20_000), st.sampled_from([1000, 5000]))
LONG_MS = 10_100
"""More than the longest sleep of a tracker, after which it has noticed whatever happened to the clock."""


@dataclass(eq=False)
class Client:
    """One consumer. ``held``: what it was given and has not acknowledged."""

    machine: DelayedMachine
    name: str
    consumer: Consumer = None  # type: ignore[assignment] # set right after subscribing
    writable: bool = True
    held: list[Position] = field(default_factory=list)
    closed: bool = False

    def deliver(self, deliveries: list[Delivery]) -> None:
        assert not self.closed
        for delivery in deliveries:
            self.machine.delivered(self, delivery.entry.position)

    def active_changed(self, active: bool) -> None:
        raise AssertionError("only Failover has an active consumer")

    def end_of_topic(self) -> None:
        raise AssertionError("nobody terminates this topic")

    def closed_by_broker(self) -> None:
        self.closed = True


class DelayedMachine(RuleBasedStateMachine):
    """Two subscriptions that share one delayed index."""

    changes: ClassVar[dict[str, object]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.world = World(msgspec.structs.replace(SETTINGS, **self.changes))
        self.due: dict[Position, int] = {}
        self.acked: dict[str, set[Position]] = {name: set() for name in NAMES}
        self.clients: list[Client] = []
        self.seen = 0

    @initialize()
    def begin(self) -> None:
        for name in NAMES:
            self.world.topic().create_subscription(name, EARLIEST)
        self.connect()

    def connect(self) -> None:
        self.producer, self.answers = self.world.produce()
        self.sent: list[int] = []
        self.learned = 0

    def teardown(self) -> None:
        self.world.abandon()
        World.running.remove(self.world)

    # -- the model

    def learn(self) -> None:
        for number, position in self.answers.receipts[self.learned :]:
            self.due[position] = self.sent[number]
            self.learned += 1

    def delivered(self, client: Client, position: Position) -> None:
        self.learn()
        assert position not in self.acked[client.name], f"{position} was acknowledged"
        holders = [each for each in self.clients if each.name == client.name and position in each.held]
        assert not holders, f"{position} is with a client already (I6.5)"
        now_ms = self.world.clock.now_ms()
        assert now_ms >= self.due[position], f"{position} came {self.due[position] - now_ms} ms early (I6.1)"
        client.held.append(position)

    def of(self, name: str) -> list[Client]:
        return [client for client in self.clients if client.name == name]

    def pick(self, number: int) -> Client:
        return self.clients[number % len(self.clients)]

    # -- actions

    @rule(delays=st.lists(DELAY_MS, min_size=1, max_size=8))
    def publish(self, delays: list[int | None]) -> None:
        for delay in delays:
            at = 0 if delay is None else self.world.clock.now_ms() + delay
            self.producer.send(len(self.sent), -1, 1, delayed_body(at), False)
            self.sent.append(at)

    @rule()
    def settle(self) -> None:
        self.world.settle()
        self.learn()

    @rule()
    def commit(self) -> None:
        commits = self.world.store.commits
        job = commits.take()
        if job is not None:
            job.run()
            commits.finish(job, None)
            self.learn()

    @rule()
    def turn(self) -> None:
        self.world.clock.run_one()

    @rule(ms=st.sampled_from([1, 300, 1000, 4000]))
    def wait(self, ms: int) -> None:
        self.world.clock.advance(ms)

    @rule(ms=st.sampled_from([-7000, -1500, 1500, 7000]))
    def set_the_clock(self, ms: int) -> None:
        self.world.clock.step_wall_clock(ms)

    @precondition(lambda self: len(self.clients) < 4)
    @rule(name=st.sampled_from(NAMES), permits=st.sampled_from([2, 1000]))
    def subscribe(self, name: str, permits: int) -> None:
        client = Client(self, name)
        request = SubscribeRequest(subscription=name, kind=SHARED, consumer_name="c", initial_position=EARLIEST)
        client.consumer = self.world.topic().subscribe(request, client)
        self.clients.append(client)
        client.consumer.flow(permits)

    @precondition(lambda self: self.clients)
    @rule(who=PICK)
    def leave(self, who: int) -> None:
        client = self.pick(who)
        self.clients.remove(client)
        client.closed = True
        client.consumer.close()

    @precondition(lambda self: self.clients)
    @rule(who=PICK)
    def flow(self, who: int) -> None:
        self.pick(who).consumer.flow(5)

    @precondition(lambda self: self.clients)
    @rule(who=PICK, which=st.lists(PICK, min_size=1, max_size=6))
    def ack(self, who: int, which: list[int]) -> None:
        client = self.pick(who)
        positions = {client.held[number % len(client.held)] for number in which} if client.held else set()
        for position in positions:
            client.held.remove(position)
            self.acked[client.name].add(position)
        client.consumer.ack(AckKind.INDIVIDUAL, [AckId(position) for position in positions])

    @precondition(lambda self: self.clients)
    @rule(who=PICK)
    def redeliver(self, who: int) -> None:
        client = self.pick(who)
        client.held.clear()
        client.consumer.redeliver(None)

    @precondition(lambda self: self.due)
    @rule(name=st.sampled_from(NAMES), which=PICK)
    def cancel(self, name: str, which: int) -> None:
        """One message, delayed or not, is not wanted any more."""
        position = list(self.due)[which % len(self.due)]
        self.acked[name].add(position)
        for client in self.of(name):
            if position in client.held:
                client.held.remove(position)
        self.world.subscription(name).cancel(position)

    @precondition(lambda self: self.due and self.clients)
    @rule(who=PICK, which=PICK)
    def seek(self, who: int, which: int) -> None:
        client = self.pick(who)
        target = list(self.due)[which % len(self.due)]
        for each in self.of(client.name):
            self.clients.remove(each)
        self.acked[client.name] = {position for position in self.due if position < target}
        done: list[ServerError | None] = []
        client.consumer.seek(target, None, done.append)
        self.settle()
        assert done == [None]

    @rule()
    def retain(self) -> None:
        self.world.clock.advance(SETTINGS.retention_check_interval_in_seconds * 1000)
        self.settle()
        first = self.world.topic().log.next_valid(self.world.topic().log.first_position)
        for position in [each for each in self.due if each < first]:
            assert all(position in acked for acked in self.acked.values())
            del self.due[position]

    @rule()
    def restart(self) -> None:
        self.clients.clear()
        self.world.restart()
        self.read_the_log()
        self.connect()

    @rule(seed=st.integers(0, 1000), policy=st.sampled_from(POLICIES))
    def crash(self, seed: int, policy: str) -> None:
        """What was acknowledged may have been lost; what was sent and not confirmed may be there."""
        self.clients.clear()
        self.world.crash(seed, policy)  # type: ignore[arg-type] # one of POLICIES
        self.read_the_log()
        self.connect()

    def read_the_log(self) -> None:
        log = self.world.topic().log
        start = log.first_position
        while entries := log.read(start, 100, 1 << 20):
            for entry in entries:
                self.due[entry.position] = deliver_at_ms(entry.body)
            start = Position(entries[-1].position.ledger, entries[-1].position.entry + 1)
        for name in NAMES:
            cursor = self.world.subscription(name).cursor
            self.acked[name] = {position for position in self.due if cursor.is_acked(position)}

    @precondition(lambda self: self.clients)
    @rule(who=PICK)
    def wait_long(self, who: int) -> None:
        """I6.1 Liveness: whoever takes part gets all that is due."""
        client = self.pick(who)
        client.consumer.flow(1000)
        self.settle()
        before_ms = self.world.clock.now_ms()
        self.world.clock.advance(LONG_MS)
        self.settle()
        held = {position for each in self.of(client.name) for position in each.held}
        for position, at in self.due.items():
            if at <= before_ms and position not in self.acked[client.name]:
                assert position in held, f"{position} is due since {before_ms - at} ms and was not delivered"

    # -- after every step

    @invariant()
    def buckets_are_in_order_and_needed(self) -> None:
        """I6.6, I6.8, I6.3."""
        topics = self.world.broker.loaded_topics()
        index = topics[0].delays.index if topics else None
        if index is None:
            return
        for bucket in index.buckets:
            segments = bucket.directory()
            assert sum(segment.count for segment in segments) == bucket.total
            for segment in segments:
                assert segment.last_ms - segment.first_ms < 2000
                assert segment.count <= 2
            assert all(a.last_ms <= b.first_ms for a, b in pairwise(segments))
            assert last_key(bucket) > index.floor or not topics[0].subscriptions
        for name in NAMES:
            assert self.world.subscription(name).delayed_entries >= 0


class MergingMachine(DelayedMachine):
    """The same with as few buckets as can be."""

    changes: ClassVar[dict[str, object]] = {"delayed_delivery_max_num_buckets": 1}


class InMemoryMachine(DelayedMachine):
    """The same without buckets."""

    changes: ClassVar[dict[str, object]] = {
        "delayed_delivery_tracker_factory_class_name": (
            "org.apache.pulsar.broker.delayed.InMemoryDelayedDeliveryTrackerFactory"
        ),
        "delayed_delivery_fixed_delay_detection_lookahead": 5,
    }


TestDelayed = DelayedMachine.TestCase
TestMerging = MergingMachine.TestCase
TestInMemory = InMemoryMachine.TestCase
TestDelayed.settings = TestMerging.settings = TestInMemory.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, derandomize=True, print_blob=True
)
