# SPDX-License-Identifier: Apache-2.0
"""Random histories with readers: subscriptions that are not stored, beside two that are (1.9.2).

They keep nothing from being deleted, so the log may go on without them (3.6.7); what is there they get in order.
"""

from __future__ import annotations

from typing import Any, ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from broker_core.base.errors import ServerError
from broker_core.base.positions import POSITION_EARLIEST, POSITION_LATEST, Position
from broker_core.broker.requests import AckId, AckKind, SubscribeRequest
from broker_core.broker.sinks import Delivery
from broker_core.broker.topic import Topic
from broker_core.testing.sim_disk import SimDisk
from tests.broker.clients import Client
from tests.broker.whole.machine import WholeBrokerMachine
from tests.broker.whole.topic_machine import PICK, SIZES
from tests.broker.world import EXCLUSIVE, FAILOVER

READERS_MAX = 3


class Reader:
    """``last``: what it was given last, or the place right before its beginning. ``expires``: messages may."""

    def __init__(self, name: str, topic: Topic, start: Position, *, expires: bool) -> None:
        self.name = name
        self.client = Client(self, name)
        self.topic = topic
        self.last = start
        self.expires = expires

    def come(self, request: SubscribeRequest) -> None:
        self.client = Client(self, self.name)
        self.client.consumer = self.topic.subscribe(request, self.client)

    @property
    def is_there(self) -> bool:
        return not self.client.closed

    @property
    def next(self) -> Position:
        """What comes next, or where the next entry will be. What is gone, or has expired, is nothing to wait for."""
        passed = self.topic.subscriptions[self.name].cursor.mark_delete if self.expires else self.last
        return self.topic.log.next_valid(max(self.last, passed))

    def delivered_to(self, client: Client, delivery: Delivery) -> None:
        assert delivery.entry.position == self.next, f"{delivery.entry.position} instead of {self.next}"
        assert client.permits > 0, "sent without permits (I2.6)"
        assert delivery.ack_set is None
        client.spent += delivery.entry.messages
        self.last = delivery.entry.position

    def ended(self, client: Client) -> None:
        assert self.next > self.topic.log.last_confirmed, "7.5: told of the end too early"


class ReadersMachine(WholeBrokerMachine):
    """``readers``: those that have come; whoever was disconnected is forgotten, and so is what it has read."""

    expires: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.readers: list[Reader] = []

    def reader(self, number: int) -> Reader | None:
        self.readers = [each for each in self.readers if each.is_there]
        return self.readers[number % len(self.readers)] if self.readers else None

    def reader_request(self, reader: Reader, start: Position) -> SubscribeRequest:
        kind = FAILOVER if self.names % 2 else EXCLUSIVE
        return SubscribeRequest(reader.name, kind, reader.name, durable=False, start=start)

    @rule(which=PICK, permits=st.sampled_from([1, 5, 1000]))
    def reader_comes(self, which: int, permits: int) -> None:
        """1.4.6: at an entry, at the beginning or at the end."""
        self.reader(0)
        if len(self.readers) == READERS_MAX:
            return
        self.names += 1
        topic = self.topic
        log = topic.log
        start = (POSITION_EARLIEST, POSITION_LATEST, *self.log)[which % (2 + len(self.log))]
        before = log.last_confirmed if start == POSITION_LATEST else log.previous(start)
        reader = Reader(f"reader-{self.names}", topic, before, expires=self.expires)
        reader.come(self.reader_request(reader, start))
        self.readers.append(reader)
        reader.client.flow(permits)
        self.settle_down()

    @rule(who=PICK, permits=st.sampled_from([1, 5, 20]), ack=st.booleans())
    def reader_goes_on(self, who: int, permits: int, ack: bool) -> None:
        """Clients acknowledge what they read, cumulatively."""
        reader = self.reader(who)
        if reader is not None:
            if ack:
                reader.client.consumer.ack(AckKind.CUMULATIVE, [AckId(reader.last)])
            reader.client.flow(permits)
            self.settle_down()

    @rule(who=PICK)
    def reader_stops_or_takes_more(self, who: int) -> None:
        """Its connection is full."""
        reader = self.reader(who)
        if reader is not None:
            reader.client.pause_or_resume()

    @rule(who=PICK)
    def reader_asks_again(self, who: int) -> None:
        """2.3.5.2"""
        reader = self.reader(who)
        if reader is not None:
            reader.last = self.topic.subscriptions[reader.name].cursor.mark_delete
            reader.client.consumer.redeliver(None)

    @rule(who=PICK)
    def reader_leaves(self, who: int) -> None:
        """1.9.2: and nothing is left of it."""
        reader = self.reader(who)
        if reader is not None:
            reader.client.closed = True
            reader.client.consumer.close()
            assert reader.name not in self.topic.subscriptions

    @precondition(lambda self: self.log)
    @rule(who=PICK, which=PICK, permits=st.sampled_from([0, 5, 20]))
    def reader_seeks(self, who: int, which: int, permits: int) -> None:
        """1.4.6: it is disconnected and comes back to where it asked for."""
        reader = self.reader(who)
        if reader is None:
            return
        target = self.pick_entry(which)
        told: list[ServerError | None] = []
        reader.client.consumer.seek(target, None, told.append)
        assert told == [None]
        assert not reader.is_there
        reader.last = self.topic.log.previous(target)
        reader.come(self.reader_request(reader, POSITION_EARLIEST))
        reader.client.flow(permits)

    @rule(permits=st.integers(1, 4), entries=SIZES, which=PICK)
    def readers_are_left_behind(self, permits: int, entries: list[tuple[int, str]], which: int) -> None:
        """3.6.7: what a slow one has not read yet is deleted; it goes on with what is left."""
        self.reader_comes(0, permits)
        self.publish(entries, wait=True)
        self.publish(entries, wait=True)
        if self.log:
            self.all_catch_up(which)
        for number in range(len(self.readers)):
            self.reader_goes_on(number, 20, ack=False)

    @rule()
    def settle_down(self) -> None:
        """I2.7, and that whoever has room has all there is."""
        super().settle_down()
        if not self.world.broker.registry.loaded(self._watched.name):
            return
        for reader in self.readers:
            client = reader.client
            if reader.is_there and client.writable and client.permits > 0:
                assert reader.next > self.topic.log.last_confirmed, f"{reader.name} waits for {reader.next}"

    def start_on(self, image: SimDisk, before_change: tuple[int, int, Any] | None = None) -> None:
        self.readers = []
        super().start_on(image, before_change)


TestReaders = ReadersMachine.TestCase
TestReaders.settings = settings(
    max_examples=30, stateful_step_count=80, deadline=None, derandomize=True, print_blob=True
)
