# SPDX-License-Identifier: Apache-2.0
"""Consumers that leave together, as with their connection: nothing of theirs goes the way over another leaver."""

from __future__ import annotations

import pytest

from broker_core.base.names import TopicName
from broker_core.base.positions import Position
from broker_core.broker.consumer import Consumer, close_together
from broker_core.broker.dispatch.key_shared.selectors import AutoSplitRanges, HashRing
from broker_core.broker.requests import SubscribeRequest, SubscriptionType
from broker_core.wire.entry import seal_entry
from broker_core.wire.heads import SendHead
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata
from tests.broker.dispatchers import key_shared
from tests.broker.world import FAILOVER, SHARED, SMALL, Mailbox, World, ack

KEY_SHARED = SubscriptionType.KEY_SHARED


def join(world: World, kind: SubscriptionType, count: int) -> list[tuple[Consumer, Mailbox]]:
    return [world.subscribe(kind, name=f"c{number}") for number in range(count)]


def publish(world: World, keys: list[str]) -> list[Position]:
    producer, answers = world.produce()
    for number, key in enumerate(keys):
        metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1, partition_key=key)
        producer.send(SendHead(0, number), seal_entry(metadata.SerializeToString(), b"x"))
    world.settle()
    return [position for _, position in answers.receipts]


@pytest.mark.parametrize("ring", [True, False])
@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_what_leavers_had_goes_to_those_who_stay(kind: SubscriptionType, ring: bool) -> None:
    """2.4.9, 2.11.2, 4.4.3: redelivered once, lowest first, and to nobody who leaves as well."""
    world = World(SMALL, subscription_key_shared_use_consistent_hashing=ring)
    members = join(world, kind, 6)
    published = publish(world, [f"k{number % 30}" for number in range(90)])
    stays, mailbox = members.pop(2)
    kept = mailbox.take()
    had = {id(box): box.take() for _, box in members}
    close_together(consumer for consumer, _ in members)
    world.settle()
    assert all(not box.take() for _, box in members)
    again = sorted(position for positions in had.values() for position in positions)
    assert {delivery.redelivery_count for delivery in mailbox.deliveries} == {1}
    assert mailbox.take() == again
    assert sorted([*kept, *again]) == published
    assert stays.pending.unacked == stays.traffic.messages == len(published)
    dispatcher = world.subscription().dispatcher
    stats = dispatcher.stats()
    assert (stats.unacked_messages, stats.replay_entries, list(dispatcher.consumers)) == (90, 0, [stays])


def test_keys_wait_for_those_who_stay_only() -> None:
    """2.9, I2.13: what drained at leavers is free, what drains at one that stays still has to."""
    world = World(SMALL, subscription_key_shared_use_consistent_hashing=False)
    stays, mailbox = world.subscribe(KEY_SHARED, name="stays")
    keys = [f"k{number}" for number in range(20)]
    published = publish(world, keys)
    crowd = [world.subscribe(KEY_SHARED, name=f"c{number}") for number in range(4)]
    dispatcher = key_shared(world.subscription().dispatcher)
    draining = len(dispatcher.draining)
    assert draining > 0
    assert mailbox.take() == published
    later = publish(world, keys)
    close_together(consumer for consumer, _ in crowd[1:])
    world.settle()
    moved = {position for position in later if position not in mailbox.positions}
    assert crowd[0][1].positions == [], "its keys drain at the one that stays"
    ack(stays, *published)
    world.settle()
    assert set(crowd[0][1].positions) == moved != set()
    assert sorted([*mailbox.positions, *crowd[0][1].positions]) == later
    assert not dispatcher.draining


def test_a_standby_that_leaves_as_well_is_never_active() -> None:
    """2.3.4, 2.3.4.2: the one that stays takes over at once."""
    world = World()
    members = join(world, FAILOVER, 4)
    published = publish(world, ["k"] * 5)
    assert members[0][1].take() == published
    close_together(consumer for consumer, _ in members[:3])
    world.settle()
    assert [box.activity for _, box in members] == [[True], [False], [False], [False, True]]
    assert members[3][1].take() == published


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED, FAILOVER])
def test_when_all_leave_the_type_is_free_again(kind: SubscriptionType) -> None:
    """2.1.3, 4.4.3: what is not acknowledged comes to the next one, counted from nothing."""
    world = World()
    members = join(world, kind, 3)
    published = publish(world, [f"k{number}" for number in range(9)])
    close_together(consumer for consumer, _ in members)
    assert not world.subscription().consumers
    assert all(consumer.closed for consumer, _ in members)
    _, mailbox = world.subscribe(FAILOVER if kind is SHARED else SHARED)
    world.settle()
    assert {delivery.redelivery_count for delivery in mailbox.deliveries} == {0}
    assert mailbox.positions == published


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED, FAILOVER])
def test_on_a_topic_that_is_not_stored_too(kind: SubscriptionType) -> None:
    """1.1.8: whoever stays is offered what comes."""
    world = World()
    topic = "non-persistent://public/default/t"
    members = []
    for number in range(3):
        mailbox = Mailbox()
        members.append((_subscribe(world, topic, kind, f"c{number}", mailbox), mailbox))
    close_together(consumer for consumer, _ in members[:2])
    assert [list(box.activity) for _, box in members[1:]] == (
        [[False], [False, True]] if kind is FAILOVER else [[], []]
    )
    close_together([members[2][0]])
    assert all(consumer.closed for consumer, _ in members)


def _subscribe(world: World, topic: str, kind: SubscriptionType, name: str, mailbox: Mailbox) -> Consumer:
    request = SubscribeRequest(subscription="s", kind=kind, consumer_name=name)
    return world.broker.any_topic(TopicName.parse(topic), create=True).subscribe(request, mailbox)


@pytest.mark.parametrize(("ring", "selector"), [(True, HashRing), (False, AutoSplitRanges)])
def test_each_entry_is_put_anew_once(ring: bool, selector: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """2.4.9: a crowd that leaves costs in proportion to what it had, not to that times its size."""
    world = World(SMALL, subscription_key_shared_use_consistent_hashing=ring)
    members = join(world, KEY_SHARED, 60)
    published = publish(world, [f"k{number}" for number in range(600)])
    for _, mailbox in members:
        mailbox.writable = False
    asked: list[int] = []
    select = selector.select  # type: ignore[attr-defined]

    def counted(mapping: object, hash_: int) -> object:
        asked.append(hash_)
        return select(mapping, hash_)

    monkeypatch.setattr(selector, "select", counted)
    close_together(consumer for consumer, _ in members[:-1])
    assert len(asked) <= 2 * len(published)
