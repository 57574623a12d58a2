# SPDX-License-Identifier: Apache-2.0
"""What Shared and Key_Shared have in common in random histories: each entry is with one consumer at most.

Owns who holds what, how often it came again, and the redelivery actions (I2.2, I2.6, I3.8, I4.5). Who may be given an
entry is in the subclasses.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from broker_core.base.positions import Position
from broker_core.broker.dispatch.many_consumers import ManyConsumersDispatcher
from broker_core.broker.sinks import Delivery
from tests.broker.clients import Client
from tests.broker.machine import PICK, SubscriptionMachine
from tests.broker.world import TINY


class SharingMachine(SubscriptionMachine):
    """``owner``: which client was given an entry and has not acknowledged it; ``counts``: how often it came again."""

    def __init__(self) -> None:
        super().__init__()
        self.owner: dict[Position, Client] = {}
        self.counts: dict[Position, int] = {}

    # -- model

    def on_delivery(self, client: Client, delivery: Delivery) -> None:
        position = delivery.entry.position
        assert position not in self.owner, f"{position} is with two consumers (I2.2)"
        assert delivery.redelivery_count == self.counts.get(position, 0), "I4.5"
        assert self.unacked(client) < TINY.max_unacked_messages_per_consumer, "I2.6: more than limit + one slice"
        super().on_delivery(client, delivery)
        self.owner[position] = client

    def unacked(self, client: Client) -> int:
        return sum(self.open[position].bit_count() for position, owner in self.owner.items() if owner is client)

    def waiting(self) -> list[Position]:
        """What is stored, unacknowledged and with nobody."""
        return [position for position, bits in self.open.items() if bits and position not in self.owner]

    @property
    def somebody_is_available(self) -> bool:
        return any(client.is_available for client in self.clients)

    def on_acked(self, position: Position) -> None:
        self.owner.pop(position, None)
        self.counts.pop(position, None)

    def on_gone(self, leavers: list[Client]) -> None:
        for client in leavers:
            self.take_back(client, self.held_by(client))
        if not self.clients:
            self.start_anew()

    def held_by(self, client: Client) -> list[Position]:
        return [position for position, owner in self.owner.items() if owner is client]

    def take_back(self, client: Client, positions: list[Position]) -> None:
        for position in positions:
            if self.owner.get(position) is client:
                del self.owner[position]
                self.counts[position] = self.counts.get(position, 0) + 1

    def start_anew(self) -> None:
        """Nobody is left: what was only in memory is forgotten."""
        self.owner.clear()
        self.counts.clear()

    def forget_consumers(self) -> None:
        super().forget_consumers()
        self.start_anew()

    def check_unacked(self, dispatcher: ManyConsumersDispatcher) -> None:
        """I3.8, I2.6, 2.4.7: what consumers hold, in messages, and who has to stop for it."""
        most = TINY.max_unacked_messages_per_consumer
        for client in self.clients:
            unacked = self.unacked(client)
            assert client.consumer.pending.unacked == unacked
            assert unacked <= most + 3, "I2.6"
            assert not client.consumer.blocked or unacked > most // 2, "it may go on"
        owners = {position: client.consumer for position, client in self.owner.items()}
        assert dict(dispatcher.book.owners.items()) == owners, "who has an entry is found by it"
        in_all = sum(self.unacked(client) for client in self.clients)
        assert dispatcher.book.unacked.messages == in_all
        assert not dispatcher.book.unacked.stopped or in_all >= TINY.max_unacked_messages_per_subscription / 2, (
            "all may go on"
        )

    # -- actions

    @precondition(lambda self: self.clients and self.entries)
    @rule(who=PICK, which=st.lists(PICK, max_size=5))
    def redeliver(self, who: int, which: list[int]) -> None:
        """4.4.1 Ids of its own, of others, acknowledged ones and doubles."""
        client = self.pick(who)
        positions = [self.pick_entry(number) for number in which]
        was_blocked, held = client.consumer.blocked, self.unacked(client)
        self.take_back(client, list(dict.fromkeys(positions)))
        gave_back = self.unacked(client) < held
        client.consumer.redeliver(positions)
        if gave_back:
            is_full = self.unacked(client) >= TINY.max_unacked_messages_per_consumer
            assert is_full or not client.consumer.blocked, "2.4.7: it may have that again"
        else:
            assert client.consumer.blocked or not was_blocked, "2.4.7, I4.6: it gave nothing back"

    @precondition(lambda self: self.clients)
    @rule(who=PICK)
    def redeliver_all(self, who: int) -> None:
        """4.4.2"""
        client = self.pick(who)
        self.take_back(client, self.held_by(client))
        client.consumer.redeliver(None)
