# SPDX-License-Identifier: Apache-2.0
"""Random histories of a whole broker: several subscriptions of changing types on one topic (I1 to I4, I7).

Two subscriptions, each of whatever type its first consumer asks for, on the topic of ``topic_machine``. At the end of
each history everything that is unacknowledged has to be delivered.
"""

from __future__ import annotations

from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from broker_core.base.errors import ConsumerAssignError, ConsumerBusyError, ServerError
from broker_core.base.positions import Position
from broker_core.broker.consumer import close_together
from broker_core.broker.requests import AckId, AckKind, SubscribeRequest, SubscriptionType
from broker_core.testing.sim_disk import POLICIES, Policy, SimDisk
from broker_core.wire.ack_sets import all_bits, words_of_bits
from tests.broker.clients import Client
from tests.broker.whole.model import SINGLE_ACTIVE, SubscriptionModel
from tests.broker.whole.topic_machine import NAMES, PICK, SIZES, TopicMachine, calm
from tests.broker.world import TINY, ack

KIND = st.sampled_from([*SubscriptionType, SubscriptionType.KEY_SHARED, SubscriptionType.KEY_SHARED])
WHICH = st.sampled_from(NAMES)
IDLE_ROUNDS_MAX = 3
"""Of the drain at the end: after so many in which nothing came, nothing will."""


class WholeBrokerMachine(TopicMachine):
    """Consumers of all types, and what they do. ``rest_ms``: after so long nothing more happens by itself. It has 32
    methods: each thing that they do is one."""

    rest_ms: ClassVar[int] = TINY.active_consumer_failover_delay_time_millis

    def __init__(self) -> None:
        super().__init__()
        self.refusals: list[ServerError | None] = []

    def client(self, name: str, number: int) -> tuple[SubscriptionModel, Client | None]:
        model = self.models[name]
        return model, model.clients[number % len(model.clients)] if model.clients else None

    def start_on(self, image: SimDisk, before_change: tuple[int, int, Any] | None = None) -> None:
        self.refusals = []  # what is still unanswered will never be
        super().start_on(image, before_change)

    # -- what most of a broker's life is

    @rule(entries=SIZES, name=WHICH, who=PICK, permits=st.integers(3, 12))
    def publish_for_somebody(self, entries: list[tuple[int, str]], name: str, who: int, permits: int) -> None:
        """Messages come, and somebody wants them."""
        self.publish(entries, wait=False)
        self.flow(name, who, permits)
        self.settle_down()

    @rule(name=WHICH, kind=KIND, permits=st.integers(3, 12))
    def somebody_comes(self, name: str, kind: SubscriptionType, permits: int) -> None:
        """With room, and let in if possible."""
        self.subscribe(name, kind, 0, permits, 0)
        self.settle_down()

    @rule(name=WHICH, who=PICK, count=st.integers(1, 10), permits=st.integers(3, 12))
    def work(self, name: str, who: int, count: int, permits: int) -> None:
        """Acknowledge some of what came, and want more."""
        self.ack_what_was_seen(name, who, count)
        self.flow(name, who, permits)
        self.settle_down()

    @rule(name=WHICH, who=PICK, count=st.integers(1, 3))
    def refuse(self, name: str, who: int, count: int) -> None:
        """4.4.1: what came last is asked for again."""
        model, client = self.client(name, who)
        if client is not None and client.seen:
            self.ask_again(model, client, client.seen[-count:])
            self.flow(name, who, 5)
            self.settle_down()

    @rule()
    def settle_down(self) -> None:
        """I2.7: when nothing more happens by itself, nothing waits that could be delivered."""
        self.settle()
        for name, model in self.models.items():
            assert model.overdue(is_blocked=self.is_held_up(name)) == []

    def is_held_up(self, name: str) -> bool:
        """Nothing goes out now, for a good reason."""
        return self.is_held_up_by_limit(name)

    def is_held_up_by_limit(self, name: str) -> bool:
        """The whole subscription has too much that is unacknowledged (2.4.7)."""
        return self.world.subscription(name).dispatcher.stats().blocked

    def has_too_much(self, model: SubscriptionModel) -> bool:
        """A subscription that was stopped for what is unacknowledged may still be."""
        unacked = sum(map(model.unacked_of, model.clients))
        return unacked >= self.tuning.max_unacked_messages_per_subscription / 2

    # -- consumers

    @rule(
        name=WHICH,
        kind=KIND,
        insist=st.integers(0, 7),
        permits=st.sampled_from([10, 3, 1, 0]),
        priority=st.integers(0, 1),
    )
    def subscribe(self, name: str, kind: SubscriptionType, insist: int, permits: int, priority: int) -> None:
        """2.1.1, 2.2.1: who asks for another type, or is second on an exclusive one, is refused without a trace."""
        model = self.models[name]
        if len(model.clients) == 4:
            return
        if insist < 7 and model.kind is not None:
            kind = model.kind
        self.names += 1
        client = Client(model, f"c{self.names}", priority)
        request = self.request(model, client, kind)
        must_be_refused = self.must_be_refused(model, request)
        refused = False
        try:
            client.consumer = self.topic.subscribe(request, client)
        except (ConsumerBusyError, ConsumerAssignError):
            refused = True
        assert refused == must_be_refused
        if not refused:
            model.joined(client, kind)
            client.flow(permits)

    def request(self, model: SubscriptionModel, client: Client, kind: SubscriptionType) -> SubscribeRequest:
        return SubscribeRequest(subscription=model.name, kind=kind, consumer_name=client.name, priority=client.priority)

    def must_be_refused(self, model: SubscriptionModel, request: SubscribeRequest) -> bool:
        if model.kind is None:
            return False
        return model.kind is not request.kind or request.kind is SubscriptionType.EXCLUSIVE

    @rule(name=WHICH, who=PICK)
    def leave(self, name: str, who: int) -> None:
        model, client = self.client(name, who)
        if client is not None:
            model.left([client])
            client.consumer.close()

    @rule(name=WHICH, who=st.lists(PICK, min_size=2, max_size=3))
    def leave_together(self, name: str, who: list[int]) -> None:
        """The connection of several is lost."""
        model = self.models[name]
        if len(model.clients) > 2:
            leavers = list(dict.fromkeys(model.clients[each % len(model.clients)] for each in who))
            model.left(leavers)
            close_together([client.consumer for client in leavers])

    @rule(name=WHICH, permits=st.integers(3, 12))
    def hand_over(self, name: str, permits: int) -> None:
        """2.3.4.1, 2.3.5: the active one leaves; after the pause its successor gets what was not acknowledged."""
        model = self.models[name]
        if model.kind in SINGLE_ACTIVE and len(model.clients) > 1:
            assert model.leader is not None
            self.leave(name, model.clients.index(model.leader))
            self.wait(self.rest_ms)
            model.leader.flow(permits)
            self.settle_down()

    @rule(name=WHICH, who=PICK, permits=st.sampled_from([1, 2, 5, 20]))
    def flow(self, name: str, who: int, permits: int) -> None:
        _, client = self.client(name, who)
        if client is not None:
            client.flow(permits)

    @rule(name=WHICH, who=PICK)
    def pause_or_resume_writing(self, name: str, who: int) -> None:
        _, client = self.client(name, who)
        if client is not None:
            client.pause_or_resume()

    # -- acknowledging and redelivery

    @precondition(lambda self: self.log)
    @rule(name=WHICH, who=PICK, which=st.lists(PICK, min_size=1, max_size=4), answer=st.booleans())
    def ack_any(self, name: str, who: int, which: list[int], answer: bool) -> None:
        """3.3.2, 3.4.1: also what others hold, what was never delivered, and what is acknowledged already."""
        model, client = self.client(name, who)
        if client is None:
            return
        positions = [self.pick_entry(number) for number in which]
        for position in positions:
            model.acked(position, 0)
        ids = [AckId(position) for position in positions]
        client.consumer.ack(AckKind.INDIVIDUAL, ids, self.refusals.append if answer else None)

    @rule(name=WHICH, who=PICK, count=st.integers(1, 6))
    def ack_what_was_seen(self, name: str, who: int, count: int) -> None:
        model, client = self.client(name, who)
        if client is not None and client.seen:
            seen, client.seen = client.seen[:count], client.seen[count:]
            for position in seen:
                model.acked(position, 0)
            ack(client.consumer, *seen)

    @precondition(lambda self: self.log)
    @rule(name=WHICH, who=PICK, which=PICK, bits=st.integers(0, 15))
    def ack_messages(self, name: str, who: int, which: int, bits: int) -> None:
        """3.4.3: of a batch, what is left after this is left after all (I3.3)."""
        model, client = self.client(name, who)
        if client is not None:
            position = self.pick_entry(which)
            left = bits & all_bits(self.log[position].messages)
            model.acked(position, left)
            client.consumer.ack(AckKind.INDIVIDUAL, [AckId(position, words_of_bits(left))])

    @precondition(lambda self: self.log)
    @rule(name=WHICH, who=PICK, which=PICK, bits=st.none() | st.integers(0, 15))
    def ack_through(self, name: str, who: int, which: int, bits: int | None) -> None:
        """3.5.1, 3.5.2 (I3.4): whole entries and into batches, where one consumer is served at a time."""
        model, client = self.client(name, who)
        if client is None or model.kind not in SINGLE_ACTIVE:
            return
        target = self.pick_entry(which)
        left = None if bits is None else bits & all_bits(self.log[target].messages)
        model.acked_through(target, left or 0)
        words = None if left is None else words_of_bits(left)
        client.consumer.ack(AckKind.CUMULATIVE, [AckId(target, words)], self.refusals.append)

    @precondition(lambda self: self.log)
    @rule(name=WHICH, who=PICK, which=st.none() | st.lists(PICK, max_size=5))
    def redeliver(self, name: str, who: int, which: list[int] | None) -> None:
        """4.4.1, 4.4.2, 2.3.5.2 (I4.6): any ids, or all."""
        model, client = self.client(name, who)
        if client is None:
            return
        self.ask_again(model, client, None if which is None else [self.pick_entry(number) for number in which])

    def ask_again(self, model: SubscriptionModel, client: Client, positions: list[Position] | None) -> None:
        taken = [position for position, owner in model.owner.items() if owner is client]
        model.taken_back(client, taken if positions is None else list(dict.fromkeys(positions)))
        model.rewound(client)
        client.consumer.redeliver(positions)

    @calm
    @precondition(lambda self: self.log)
    @rule(name=WHICH, who=PICK, which=PICK, bits=st.integers(0, 15), acks=st.lists(PICK, max_size=2))
    def seek(self, name: str, who: int, which: int, bits: int, acks: list[int]) -> None:
        """1.4.6: to an entry or into its batch; all consumers of this subscription are disconnected.

        What was acknowledged a moment before is forgotten, too.
        """
        model, client = self.client(name, who)
        if client is None:
            return
        self.ack_any(name, who, acks, answer=False)
        target = self.pick_entry(which)
        left = bits & all_bits(self.log[target].messages)
        gone = list(model.clients)
        model.reset_to(target, left)
        self.steps_since_end = 0
        done: list[ServerError | None] = []
        client.consumer.seek(target, words_of_bits(left) or None, done.append)
        assert all(each.closed for each in gone)
        self.settle()
        assert done == [None]

    @precondition(lambda self: self.log)
    @rule(which=PICK)
    def all_catch_up(self, which: int) -> None:
        """7.1: everything up to an entry is acknowledged by everybody, or skipped if nobody is there; so it may go."""
        target = self.pick_entry(which)
        for name, model in self.models.items():
            left = [position for position in model.unacked() if position <= target]
            model.acked_through(target, 0)
            if model.clients and left:
                model.clients[0].consumer.ack(AckKind.INDIVIDUAL, [AckId(position) for position in left])
            elif not model.clients:
                self.topic.subscriptions[name].pass_over(target)
        self.retain()

    @calm
    @precondition(lambda self: self.log)
    @rule(
        name=WHICH, who=PICK, which=st.lists(PICK, min_size=2, max_size=5), seed=PICK, policy=st.sampled_from(POLICIES)
    )
    def lose_power_after_acks(self, name: str, who: int, which: list[int], seed: int, policy: Policy) -> None:
        """3.6.4 (I3.7): what was acknowledged while earlier acknowledgements were being written is durable, too."""
        for number in which:
            self.ack_any(name, who, [number], answer=False)
            self.turn()
        self.settle()
        self.lose_power(seed, policy)

    # -- the end

    def finish(self) -> None:
        """I2.7, I2.13: whoever is there gets everything that is left, if it acknowledges."""
        for name, model in self.models.items():
            if not model.clients:
                self.subscribe(name, SubscriptionType.SHARED, 7, 0, 0)
            for client in model.clients:
                if not client.writable:
                    client.pause_or_resume()
        idle = 0
        while idle < IDLE_ROUNDS_MAX:
            idle = 0 if self.serve_everybody() else idle + 1
        left = {name: model.unacked() for name, model in self.models.items()}
        assert left == {name: [] for name in NAMES}, "never delivered"

    def serve_everybody(self) -> bool:
        """Let everybody take and acknowledge what can be had; whether there was anything."""
        for model in self.models.values():
            for client in model.clients:
                client.flow(20)
        self.settle()
        self.world.clock.advance(self.rest_ms)
        served = False
        for model in self.models.values():
            for client in model.clients:
                seen, client.seen = client.seen, []
                for position in seen:
                    model.acked(position, 0)
                if seen:
                    served = True
                    ack(client.consumer, *seen)
        return served

    # -- after every step

    @invariant()
    def consumers_hold_what_the_model_says(self) -> None:
        """2.4.7, 2.4.8 (I2.2, I2.6, I3.8, I4.1): permits, pending messages, and who has to stop for them."""
        for name, model in self.models.items():
            for client in model.clients:
                consumer = client.consumer
                assert consumer.permits + consumer.parked_permits == client.permits
                assert client.permits >= -3
                if model.kind not in SINGLE_ACTIVE:
                    held = {position for position, owner in model.owner.items() if owner is client}
                    unacked = model.unacked_of(client)
                    assert set(consumer.pending) == held
                    assert consumer.pending.unacked == unacked
                    assert not consumer.blocked or unacked > self.tuning.max_unacked_messages_per_consumer // 2
            if model.clients and self.is_held_up_by_limit(name):
                assert self.has_too_much(model), "all may go on"

    @invariant()
    def nobody_was_refused(self) -> None:
        assert all(error is None for error in self.refusals)
