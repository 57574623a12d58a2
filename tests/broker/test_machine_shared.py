# SPDX-License-Identifier: Apache-2.0
"""Random histories of a Shared subscription: dealing, limits, redelivery (I2.1, I2.2, I2.6, I2.7, I3.8, I4)."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from broker_core.base.positions import Position
from broker_core.broker import Delivery
from broker_core.broker.dispatch_shared import SharedDispatcher
from tests.broker.machine import PICK, SETTINGS, Client, SubscriptionMachine
from tests.broker.world import SHARED


class SharedMachine(SubscriptionMachine):
    """``owner``: which client was given an entry and has not acknowledged it; ``counts``: how often it came again."""

    kind = SHARED

    def __init__(self) -> None:
        super().__init__()
        self.owner: dict[Position, Client] = {}
        self.counts: dict[Position, int] = {}

    # -- model

    def on_delivery(self, client: Client, delivery: Delivery) -> None:
        position = delivery.entry.position
        assert position not in self.owner, f"{position} is with two consumers (I2.2)"
        assert delivery.redelivery_count == self.counts.get(position, 0), "I4.5"
        assert self.unacked(client) < SETTINGS.max_unacked_messages_per_consumer, "I2.6: more than limit + one slice"
        for other in self.clients:
            assert other.priority >= client.priority or not self.available(other), "I2.6: a better priority waits"
        super().on_delivery(client, delivery)
        self.owner[position] = client

    def available(self, client: Client) -> bool:
        return client.permits > 0 and client.writable and not client.consumer.blocked

    def unacked(self, client: Client) -> int:
        return sum(self.open[position].bit_count() for position, owner in self.owner.items() if owner is client)

    def on_acked(self, position: Position) -> None:
        self.owner.pop(position, None)
        self.counts.pop(position, None)

    def on_gone(self, client: Client) -> None:
        self.take_back(client, [position for position, owner in self.owner.items() if owner is client])
        if not self.clients:
            self.counts.clear()

    def take_back(self, client: Client, positions: list[Position]) -> None:
        for position in positions:
            if self.owner.get(position) is client:
                del self.owner[position]
                self.counts[position] = self.counts.get(position, 0) + 1

    def forget_consumers(self) -> None:
        super().forget_consumers()
        self.owner.clear()
        self.counts.clear()

    @property
    def dispatcher(self) -> SharedDispatcher | None:
        found = self.subscription.dispatcher
        assert found is None or isinstance(found, SharedDispatcher)
        return found

    # -- actions

    @precondition(lambda self: self.clients and self.entries)
    @rule(who=PICK, which=st.lists(PICK, max_size=5))
    def redeliver(self, who: int, which: list[int]) -> None:
        """4.4.1 Ids of its own, of others, acknowledged ones and doubles."""
        client = self.pick(who)
        positions = [self.pick_entry(number) for number in which]
        foreign = all(self.owner.get(position) is not client for position in positions)
        before = self.picture()
        self.take_back(client, list(dict.fromkeys(positions)))
        client.consumer.redeliver(positions)
        if foreign and not self.work_was_waiting:
            assert self.picture() == before, "I4.6"

    @precondition(lambda self: self.clients)
    @rule(who=PICK)
    def redeliver_all(self, who: int) -> None:
        """4.4.2"""
        client = self.pick(who)
        self.take_back(client, [position for position, owner in self.owner.items() if owner is client])
        client.consumer.redeliver(None)

    def picture(self) -> object:
        """Everything that a redeliver request could change."""
        dispatcher = self.dispatcher
        self.work_was_waiting = bool(self.waiting()) and any(self.available(client) for client in self.clients)
        assert dispatcher is not None
        return (
            list(dispatcher._replay),
            dict(dispatcher._redeliveries._counts),
            [list(client.consumer.pending) for client in self.clients],
        )

    def waiting(self) -> list[Position]:
        return [position for position, bits in self.open.items() if bits and position not in self.owner]

    # -- after every step

    @invariant()
    def every_entry_is_in_one_place(self) -> None:
        """I2.2, I3.8."""
        dispatcher = self.dispatcher if self.world.broker.loaded_topics() else None
        if dispatcher is None:
            assert not self.clients
            return
        pending = {p: client for client in self.clients for p in client.consumer.pending}
        assert pending == self.owner
        for position, bits in self.open.items():
            places = [position in pending, position in dispatcher._replay, position >= dispatcher.read_position]
            assert sum(places) == 1 or (not bits and sum(places) == 0), (position, places)
            assert bits or places[:2] == [False, False], position
        for client in self.clients:
            assert client.consumer.pending.unacked == self.unacked(client)
            limit = SETTINGS.max_unacked_messages_per_consumer + 3
            assert client.consumer.pending.unacked <= limit, "I2.6"
        assert dispatcher.unacked_messages == sum(self.unacked(client) for client in self.clients)

    @rule()
    def settle_down(self) -> None:
        """I2.7 When nothing more happens by itself, no entry waits while somebody could take it."""
        super().settle_down()
        dispatcher = self.dispatcher
        if dispatcher is not None and not dispatcher.blocked and any(self.available(each) for each in self.clients):
            assert self.waiting() == []


TestShared = SharedMachine.TestCase
TestShared.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, derandomize=True, print_blob=True
)
