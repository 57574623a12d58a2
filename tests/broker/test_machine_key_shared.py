# SPDX-License-Identifier: Apache-2.0
"""Random histories of a Key_Shared subscription: keys, joins, leaves, limits (I2.2, I2.6 to I2.15, I4.1)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import ClassVar

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from broker_core.base.errors import ConsumerAssignError
from broker_core.base.positions import Position
from broker_core.broker.dispatch.many_consumers import ManyConsumersDispatcher
from broker_core.broker.requests import KeySharedMode, KeySharedPolicy, SubscribeRequest, SubscriptionType
from broker_core.broker.sinks import Delivery
from broker_core.wire.entry import seal_entry
from broker_core.wire.heads import SendHead
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata
from tests.broker.clients import Client
from tests.broker.dispatchers import key_shared
from tests.broker.machine import SIZES
from tests.broker.sharing_machine import SharingMachine
from tests.broker.world import TINY

KEYS = [f"key-{number}" for number in range(6)]

KEY_SETTINGS = msgspec.structs.replace(
    TINY,
    key_shared_look_ahead_msg_in_replay_threshold_per_consumer=4,
    key_shared_look_ahead_msg_in_replay_threshold_per_subscription=9,
)

BOUNDS = (0, 8192, 21000, 24000, 40000, 60000, 65536)
"""Sticky consumers bring the slots between two of these: some keys are in each."""


class KeySharedMachine(SharingMachine):
    """``delivered``: entries that somebody was given since consumers came; ``keys``: the key of each entry."""

    kind = SubscriptionType.KEY_SHARED
    policy: ClassVar[KeySharedPolicy] = KeySharedPolicy()
    world_settings = KEY_SETTINGS

    def __init__(self) -> None:
        super().__init__()
        self.delivered: set[Position] = set()
        self.keys: dict[Position, str] = {}

    def request(self, client: Client) -> SubscribeRequest:
        return replace(super().request(client), key_shared=self.policy)

    # -- model

    @property
    def in_order(self) -> bool:
        return not self.policy.allow_out_of_order

    @rule(sizes=SIZES, keys=st.lists(st.sampled_from(KEYS), min_size=6, max_size=6))
    def publish(self, sizes: list[int], keys: list[str]) -> None:
        for size, key in zip(sizes, keys, strict=False):
            metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, partition_key=key)
            if size > 1:
                metadata.num_messages_in_batch = size
            self.producer.send(SendHead(0, len(self.sent), size), seal_entry(metadata.SerializeToString(), b"x"))
            self.sent.append(size)

    def learn(self, position: Position, messages: int) -> None:
        super().learn(position, messages)
        log = self.world.topic(self.topic).log
        self.keys[position] = MessageMetadata.FromString(_metadata(log.read(position, 1, 1)[0].body)).partition_key

    def on_delivery(self, client: Client, delivery: Delivery) -> None:
        position = delivery.entry.position
        key = self.keys[position]
        if self.in_order:
            holders = {id(holder) for p, holder in self.owner.items() if self.keys[p] == key}
            assert holders <= {id(client)}, f"{key} is with two consumers (I2.11)"
            if position not in self.delivered:
                older = [p for p, k in self.keys.items() if k == key and p < position and self.open.get(p)]
                assert all(p in self.delivered for p in older), f"{key} out of order (I2.12)"
        assert self.dispatcher is not None
        selector = key_shared(self.dispatcher).selector
        assert selector.select(selector.hash_of(key.encode())) is client.consumer, "not its key"
        super().on_delivery(client, delivery)
        self.delivered.add(position)

    def start_anew(self) -> None:
        super().start_anew()
        self.delivered.clear()

    @property
    def dispatcher(self) -> ManyConsumersDispatcher | None:
        found = self.subscription.dispatcher
        return found if isinstance(found, ManyConsumersDispatcher) else None

    # -- actions

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=4, max_size=12))
    def publish_and_send(self, keys: list[str]) -> None:
        """Many small entries at once, and time for all that follows from them."""
        for start in range(0, len(keys), 6):
            part = keys[start : start + 6]
            self.publish([1] * len(part), part)
        self.settle_down()

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
        room = key_shared(dispatcher).room
        waiting = [p for queue in room.keys.queues.values() for p in queue]
        stalled = [p for queue in room.keys._stalled.values() for p in queue]
        unrouted = list(room.unrouted)
        assert sorted([*waiting, *stalled, *unrouted]) == list(room.replay)
        assert len(room.keys) == len(waiting) + len(stalled)
        for position, bits in self.open.items():
            waits = position in room.replay or position in room.holes
            places = [position in pending, waits, position >= dispatcher.read_position]
            assert sum(places) == 1 or (not bits and sum(places) == 0), (position, places)
            assert bits or places[:2] == [False, False], position
        assert set(room.hashes) == {*pending, *waiting, *stalled}
        self.check_unacked(dispatcher)

    @invariant()
    def waiting_has_a_limit(self) -> None:
        """I2.15: redelivered entries count beyond it, as they were sent before."""
        dispatcher = self.dispatcher if self.world.broker.registry.loaded_topics() else None
        if dispatcher is not None:
            room = key_shared(dispatcher).room
            new = [p for p in room.replay if p not in self.counts and p not in room.unrouted]
            assert len(new) <= 9 + KEY_SETTINGS.dispatcher_max_read_batch_size

    @invariant()
    def draining_agrees_with_what_is_pending(self) -> None:
        """I2.13: exactly the pending entries whose hash is somebody else's now."""
        dispatcher = self.dispatcher if self.world.broker.registry.loaded_topics() else None
        if dispatcher is None:
            return
        dealer = key_shared(dispatcher)
        keys_move = self.in_order and dealer.policy.mode is KeySharedMode.AUTO_SPLIT
        expected: dict[tuple[int, str], int] = {}
        for client in self.clients:
            pending = Counter(dealer.room.hashes[position] for position in client.consumer.pending)
            assert set(dealer.draining.pending_at(client.consumer)) == (set(pending) if keys_move else set())
            moved = [hash_ for hash_ in pending if dealer.selector.select(hash_) is not client.consumer]
            expected.update({(hash_, client.name): pending[hash_] for hash_ in moved})
        found = {
            (each.hash, client.name): each.unack_msgs
            for client in self.clients
            for each in dealer.draining.of(client.consumer)
            if dealer.selector.select(each.hash) is not client.consumer
        }
        if keys_move:
            assert found == expected
        else:
            assert not dealer.draining

    @rule()
    def settle_down(self) -> None:
        """I2.7, I2.13: an entry that waits though its owner has room waits for its hash, or for the look-ahead."""
        super().settle_down()
        dispatcher = self.dispatcher
        if dispatcher is None or dispatcher.book.unacked.stopped:
            return
        dealer = key_shared(dispatcher)
        room = dealer.room
        for position in room.replay:
            owner = dealer.selector.select(dealer.selector.hash_of(self.keys[position].encode()))
            if owner is None:
                assert position in room.unrouted, "I2.10: it belongs to the holes"
                continue
            client = next(client for client in self.clients if client.consumer is owner)
            hash_ = room.hashes.get(position)
            drains = hash_ is not None and hash_ in dealer.draining
            gated = client.consumer in dealer.recorded
            assert drains or gated or not client.is_available or position in room.unrouted, position
        unread = [p for p, bits in self.open.items() if bits and p >= dispatcher.read_position]
        if unread and self.somebody_is_available:
            assert dealer.look_ahead_room() <= 0, "nothing is read though it could be"
        if self.somebody_is_available and room.unrouted:
            assert dealer.look_ahead_room() <= 0


def _metadata(body: bytes) -> bytes:
    return body[10 : 10 + int.from_bytes(body[6:10], "big")]


class RingMachine(KeySharedMachine):
    """Consistent hashing, draining hashes: the defaults."""


class SplitMachine(KeySharedMachine):
    """Split ranges."""

    world_settings = msgspec.structs.replace(KEY_SETTINGS, subscription_key_shared_use_consistent_hashing=False)


class ClassicMachine(KeySharedMachine):
    """Recorded read positions on the ring of Pulsar 3."""

    world_settings = msgspec.structs.replace(
        KEY_SETTINGS,
        subscription_key_shared_use_classic_persistent_implementation=True,
        key_shared_hash_ring="v3",
        subscription_key_shared_consistent_hashing_replica_points=3,
    )

    def on_delivery(self, client: Client, delivery: Delivery) -> None:
        assert self.dispatcher is not None
        limit = key_shared(self.dispatcher).recorded.limit(client.consumer)
        assert limit is None or delivery.entry.position < limit, "I2.14"
        super().on_delivery(client, delivery)


class OutOfOrderMachine(KeySharedMachine):
    """Consumers that allow out-of-order delivery: only that a key's entries go to its owner (2.9.4)."""

    policy = KeySharedPolicy(allow_out_of_order=True)


class StickyMachine(KeySharedMachine):
    """Consumers that bring ranges; ``ranges``: who brought what (I2.10)."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges: dict[str, tuple[int, int]] = {}

    def request(self, client: Client) -> SubscribeRequest:
        policy = KeySharedPolicy(KeySharedMode.STICKY, (self.ranges[client.name],))
        return replace(super().request(client), key_shared=policy)

    @precondition(lambda self: len(self.clients) < 4)
    @rule(permits=st.sampled_from([0, 1, 3, 10]), priority=st.integers(0, 5), name=st.sampled_from(["1", "2", "3"]))
    def subscribe(self, permits: int, priority: int, name: str) -> None:
        """Take ``name`` regions from number ``priority`` on; who overlaps with others is refused, without a trace."""
        start, end = BOUNDS[priority], BOUNDS[min(priority + int(name), len(BOUNDS) - 1)] - 1
        taken = [self.ranges[client.name] for client in self.clients]
        self.ranges[f"{name}{self.names + 1}"] = (start, end)
        if all(end < other_start or other_end < start for other_start, other_end in taken):
            super().subscribe(permits, priority, name)
            return
        before = self.picture()
        with pytest.raises(ConsumerAssignError):
            super().subscribe(permits, priority, name)
        assert self.picture() == before, "I2.10"

    def picture(self) -> object:
        dispatcher = self.dispatcher
        assert dispatcher is not None
        permits = [client.consumer.permits for client in self.clients]
        dealer = key_shared(dispatcher)
        return dealer.selector.ranges(), permits, dispatcher.consumers, list(dealer.room.replay)

    @rule()
    def settle_down(self) -> None:
        """I2.10: no entry of a hole is lost, and none of an owned slot is in a hole."""
        super().settle_down()
        dispatcher = self.dispatcher
        if dispatcher is not None:
            selector = key_shared(dispatcher).selector
            for position in key_shared(dispatcher).room.holes:
                if position in self.keys:
                    assert selector.select(selector.hash_of(self.keys[position].encode())) is None


TestRing = RingMachine.TestCase
TestSplit = SplitMachine.TestCase
TestClassic = ClassicMachine.TestCase
TestOutOfOrder = OutOfOrderMachine.TestCase
TestSticky = StickyMachine.TestCase
for machine, examples in ((TestRing, 60), (TestSplit, 60), (TestClassic, 40), (TestOutOfOrder, 25), (TestSticky, 40)):
    machine.settings = settings(
        max_examples=examples, stateful_step_count=50, deadline=None, derandomize=True, print_blob=True
    )
del machine
