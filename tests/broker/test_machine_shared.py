# SPDX-License-Identifier: Apache-2.0
"""Random histories of a Shared subscription: dealing, limits, redelivery (I2.1, I2.2, I2.6, I2.7, I3.8, I4)."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from broker_core.broker.dispatch.many_consumers import ManyConsumersDispatcher
from broker_core.broker.sinks import Delivery
from tests.broker.clients import Client
from tests.broker.dispatchers import shared_room
from tests.broker.machine import PICK
from tests.broker.sharing_machine import SharingMachine
from tests.broker.world import SHARED


class SharedMachine(SharingMachine):
    """Whoever has room, of the best priority."""

    kind = SHARED

    def on_delivery(self, client: Client, delivery: Delivery) -> None:
        for other in self.clients:
            assert other.priority >= client.priority or not other.is_available, "I2.6: a better priority waits"
        super().on_delivery(client, delivery)

    @property
    def dispatcher(self) -> ManyConsumersDispatcher | None:
        found = self.subscription.dispatcher
        return found if isinstance(found, ManyConsumersDispatcher) else None

    # -- actions

    @precondition(lambda self: self.clients and self.entries)
    @rule(who=PICK, which=st.lists(PICK, max_size=5))
    def redeliver(self, who: int, which: list[int]) -> None:
        """4.4.1 (I4.6): what is not pending at this consumer changes nothing."""
        client = self.pick(who)
        foreign = all(self.owner.get(self.pick_entry(number)) is not client for number in which)
        work_was_waiting = bool(self.waiting()) and self.somebody_is_available
        before = self.picture()
        super().redeliver(who, which)
        if foreign and not work_was_waiting:
            assert self.picture() == before, "I4.6"

    def picture(self) -> object:
        """Everything that a redeliver request could change."""
        dispatcher = self.dispatcher
        assert dispatcher is not None
        return (
            list(shared_room(dispatcher).replay),
            dict(dispatcher.book.redeliveries.items()),
            [list(client.consumer.pending) for client in self.clients],
        )

    # -- after every step

    @invariant()
    def every_entry_is_in_one_place(self) -> None:
        """I2.2, I3.8."""
        dispatcher = self.dispatcher if self.world.broker.registry.loaded_topics() else None
        if dispatcher is None:
            assert not self.clients
            return
        pending = {p: client for client in self.clients for p in client.consumer.pending}
        assert pending == self.owner
        replay = shared_room(dispatcher).replay
        for position, bits in self.open.items():
            places = [position in pending, position in replay, position >= dispatcher.read_position]
            assert sum(places) == 1 or (not bits and sum(places) == 0), (position, places)
            assert bits or places[:2] == [False, False], position
        self.check_unacked(dispatcher)

    @rule()
    def settle_down(self) -> None:
        """I2.7 When nothing more happens by itself, no entry waits while somebody could take it."""
        super().settle_down()
        dispatcher = self.dispatcher
        if dispatcher is not None and not dispatcher.book.unacked.stopped and self.somebody_is_available:
            assert self.waiting() == []


TestShared = SharedMachine.TestCase
TestShared.settings = settings(
    max_examples=90, stateful_step_count=40, deadline=None, derandomize=True, print_blob=True
)
