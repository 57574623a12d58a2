# SPDX-License-Identifier: Apache-2.0
"""Random histories of Exclusive and Failover subscriptions: order and takeovers (I2.1, I2.3 to I2.5)."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from broker_core.base.errors import ConsumerBusyError
from broker_core.base.names import TopicName
from broker_core.base.positions import Position
from broker_core.broker.dispatch.single_active import SingleActiveDispatcher
from broker_core.broker.requests import AckId, AckKind
from broker_core.broker.sinks import Delivery
from broker_core.wire.ack_sets import all_bits, words_of_bits
from tests.broker.clients import Client
from tests.broker.machine import PICK, SubscriptionMachine
from tests.broker.world import EXCLUSIVE, FAILOVER, TINY


class OrderedMachine(SubscriptionMachine):
    """``passed``: how far deliveries have come since the last rewind; None right after one."""

    def __init__(self) -> None:
        super().__init__()
        self.active: Client | None = None
        self.passed: Position | None = None
        self.served_from_ms = 0

    # -- model

    def on_delivery(self, client: Client, delivery: Delivery) -> None:
        position = delivery.entry.position
        assert client is self.active, "I2.3: only the active consumer is served"
        assert delivery.redelivery_count == 0, "2.3.5.4"
        assert self.world.clock.now_ms() >= self.served_from_ms, "2.3.4.1: served before the pause was over"
        unacked = [each for each, bits in self.open.items() if bits]
        expected = next((each for each in unacked if self.passed is None or each > self.passed), None)
        assert position == expected, f"{position} instead of {expected} (I2.3, I2.5)"
        super().on_delivery(client, delivery)
        self.passed = position

    def elect(self) -> None:
        """2.3.1 to 2.3.3 by the model's own reckoning."""
        former = self.active
        self.active = self.choose()
        if self.active is None or self.active is former:
            return
        self.passed = None
        now = self.world.clock.now_ms()
        if former is None:
            self.served_from_ms = 0
        elif self.served_from_ms <= now:
            self.served_from_ms = now + TINY.active_consumer_failover_delay_time_millis

    def choose(self) -> Client | None:
        best = min((client.priority for client in self.clients), default=0)
        return next((client for client in self.clients if client.priority == best), None)

    def on_joined(self, client: Client) -> None:
        self.elect()

    def on_gone(self, leavers: list[Client]) -> None:
        if not self.clients:
            self.active = None
            self.served_from_ms = 0
        self.elect()

    def forget_consumers(self) -> None:
        super().forget_consumers()
        self.active = None
        self.served_from_ms = 0

    # -- actions

    @precondition(lambda self: self.clients)
    @rule(who=PICK, which=st.lists(PICK, max_size=2))
    def redeliver(self, who: int, which: list[int]) -> None:
        """2.3.5.2 Any ids mean all, from the active consumer only."""
        client = self.pick(who)
        if client is self.active:
            self.passed = None
        client.consumer.redeliver([self.pick_entry(number) for number in which] if self.entries and which else None)

    @precondition(lambda self: len(self.clients) > 1)
    @rule(permits=st.sampled_from([1, 10]))
    def hand_over(self, permits: int) -> None:
        """2.3.4.1, 2.3.5: the active one leaves; after the pause its successor gets what was not acknowledged."""
        self.leave(next(number for number, client in enumerate(self.clients) if client is self.active))
        self.wait(TINY.active_consumer_failover_delay_time_millis)
        assert self.active is not None
        self.active.flow(permits)
        self.settle_down()

    @precondition(lambda self: self.clients and self.entries)
    @rule(who=PICK, which=PICK, bits=st.none() | st.integers(0, 15), answer=st.booleans())
    def ack_through(self, who: int, which: int, bits: int | None, answer: bool) -> None:
        """3.5 Cumulatively, whole entries and into batches."""
        target = self.pick_entry(which)
        left = None if bits is None else bits & all_bits(self.entries[target])
        for position in self.entries:
            if position < target:
                self.note_ack(position, 0)
        self.note_ack(target, left or 0)
        words = None if left is None else words_of_bits(left)
        self.pick(who).consumer.ack(
            AckKind.CUMULATIVE, [AckId(target, words)], self.answered.append if answer else None
        )

    # -- after every step

    @invariant()
    def who_is_active_is_agreed(self) -> None:
        """I2.4 (2.3.4.2) The broker, the model and what clients were told."""
        if not self.world.broker.registry.loaded_topics():
            return
        dispatcher = self.subscription.dispatcher
        if not isinstance(dispatcher, SingleActiveDispatcher):
            assert not self.clients
            return
        assert self.active is not None
        assert dispatcher.active is self.active.consumer
        if self.kind is FAILOVER:
            assert [client.active for client in self.clients] == [client is self.active for client in self.clients]

    @rule()
    def settle_down(self) -> None:
        """I2.7 for one consumer: it has got everything it has permits for."""
        super().settle_down()
        active = self.active
        pause_over = self.world.clock.now_ms() >= self.served_from_ms
        if active is not None and active.writable and active.permits > 0 and pause_over:
            left = [each for each, bits in self.open.items() if bits and (self.passed is None or each > self.passed)]
            assert left == []


class FailoverMachine(OrderedMachine):
    """A plain topic: whoever subscribed first, of the best priority."""

    kind = FAILOVER


class PartitionMachine(OrderedMachine):
    """Partition 1 of 2: the candidates sorted by name decide (2.3.2)."""

    kind = FAILOVER
    topic = "persistent://public/default/t-partition-1"

    def prepare(self) -> None:
        self.world.broker.create_partitioned(TopicName.parse("t"), 2)

    def choose(self) -> Client | None:
        best = min((client.priority for client in self.clients), default=0)
        candidates = sorted((c for c in self.clients if c.priority == best), key=lambda client: client.name)
        return candidates[1 % len(candidates)] if candidates else None


class ExclusiveMachine(OrderedMachine):
    """One consumer; a second one is refused and changes nothing."""

    kind = EXCLUSIVE

    @precondition(lambda self: self.clients)
    @rule()
    def second_consumer(self) -> None:
        """2.2.1"""
        refused = False
        try:
            self.world.subscribe(EXCLUSIVE, "s", self.topic)
        except ConsumerBusyError:
            refused = True
        assert refused

    @precondition(lambda self: not self.clients)
    @rule(permits=st.sampled_from([0, 1, 3, 10]))
    def subscribe(self, permits: int) -> None:
        super().subscribe(permits, 0, "a")


TestFailover = FailoverMachine.TestCase
TestPartition = PartitionMachine.TestCase
TestExclusive = ExclusiveMachine.TestCase
for case in (TestFailover, TestPartition, TestExclusive):
    case.settings = settings(max_examples=45, stateful_step_count=40, deadline=None, derandomize=True, print_blob=True)
del case
