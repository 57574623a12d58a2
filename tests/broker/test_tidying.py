# SPDX-License-Identifier: Apache-2.0
"""Consumers that hold very many entries: taking them back or passing over them takes several turns of the loop, and
nobody can tell."""

from __future__ import annotations

import pytest

from broker_core.base.positions import Position
from broker_core.broker.consumer import Consumer
from broker_core.broker.dispatch import many_consumers
from broker_core.broker.dispatch.many_consumers import ManyConsumersDispatcher
from broker_core.broker.dispatch.passes import PASSES_A_TURN
from broker_core.broker.requests import SubscriptionType
from broker_core.wire.entry import seal_entry
from broker_core.wire.heads import SendHead
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata
from tests.broker.world import SHARED, Mailbox, World, ack

KEY_SHARED = SubscriptionType.KEY_SHARED
KINDS = (SHARED, KEY_SHARED)
COUNT = 300
A_PASS = 10


@pytest.fixture(autouse=True)
def few_in_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that a turn does is less than half of what there is to do."""
    monkeypatch.setattr(many_consumers, "_TIDIED_A_PASS", A_PASS)
    assert A_PASS * (PASSES_A_TURN + 1) < COUNT / 2


def publish(world: World, first: int = 0, count: int = COUNT) -> list[Position]:
    """Messages of 20 keys, in turn."""
    producer, answers = world.produce()
    for number in range(first, first + count):
        metadata = MessageMetadata(
            producer_name="p", sequence_id=number, publish_time=1, partition_key=f"k{number % 20}"
        )
        producer.send(SendHead(0, number), seal_entry(metadata.SerializeToString(), b"x"))
    world.settle()
    producer.close()
    return [position for _, position in answers.receipts]


def holding_all(world: World, kind: SubscriptionType) -> tuple[Consumer, Mailbox, list[Position]]:
    """A consumer that has been given all there is."""
    consumer, mailbox = world.subscribe(kind, name="first")
    published = publish(world)
    assert mailbox.take() == published
    return consumer, mailbox, published


def dispatcher_of(world: World) -> ManyConsumersDispatcher:
    dispatcher = world.subscription().dispatcher
    assert isinstance(dispatcher, ManyConsumersDispatcher)
    return dispatcher


@pytest.mark.parametrize("kind", KINDS)
def test_all_is_taken_back_before_any_of_it_is_sent_again(kind: SubscriptionType) -> None:
    """4.4.2: no turn takes back more than a few passes do; then all comes again, once, in order."""
    world = World()
    consumer, mailbox, published = holding_all(world, kind)
    consumer.redeliver(None)
    consumer.redeliver(None)  # which changes nothing
    held = len(consumer.pending)
    assert COUNT / 2 < held < COUNT
    assert mailbox.positions == [], "others might be served from the half that is there"
    world.settle()
    assert mailbox.positions == published
    assert {delivery.redelivery_count for delivery in mailbox.deliveries} == {1}
    assert dispatcher_of(world).book.unacked.messages == consumer.pending.unacked == COUNT


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_acknowledged_meanwhile_does_not_come_again(kind: SubscriptionType) -> None:
    """I2.7, 4.4.2: whether it has been taken back already or not."""
    world = World()
    consumer, mailbox, published = holding_all(world, kind)
    consumer.redeliver(None)
    acked = [*published[:20], *published[-20:]]
    ack(consumer, *acked)
    world.settle()
    assert mailbox.positions == published[20:-20]
    assert consumer.pending.unacked == dispatcher_of(world).book.unacked.messages == COUNT - 40


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_leaver_had_goes_to_others_in_order_of_the_log(kind: SubscriptionType) -> None:
    """2.4.9, 2.11.2: nothing of a key overtakes what the leaver had of it, whoever comes or sends meanwhile."""
    world = World(subscription_key_shared_use_consistent_hashing=False)
    leaver, _, published = holding_all(world, kind)
    log: list[Mailbox] = []
    others = [world.subscribe(kind, name=f"other {number}", log=log) for number in range(2)]
    leaver.close()
    assert len(leaver.pending) > COUNT / 2
    others.append(world.subscribe(kind, name="late", log=log))
    published += publish(world, COUNT, 40)
    world.settle()
    got = [box.take() for _, box in others]
    assert sorted(position for theirs in got for position in theirs) == published
    assert all(theirs == sorted(theirs) for theirs in got)
    assert len(leaver.pending) == leaver.pending.unacked == 0
    dispatcher = dispatcher_of(world)
    assert dispatcher.book.unacked.messages == len(published) == sum(each.pending.unacked for each, _ in others)
    assert len(dispatcher.room) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_passed_over_is_out_of_the_way_before_anything_is_sent(kind: SubscriptionType) -> None:
    """7.2: whether a consumer held it or it waited; the limits of those who held it end in the end."""
    world = World(max_unacked_messages_per_consumer=COUNT)
    consumer, mailbox, published = holding_all(world, kind)
    assert consumer.blocked
    mailbox.writable = False
    consumer.redeliver([*published[:120]])
    ahead = publish(world, COUNT, 10)
    world.subscription().pass_over(published[-1])
    dispatcher = dispatcher_of(world)
    assert len(consumer.pending) + len(dispatcher.room) > 100
    mailbox.writable = True
    consumer.writable_again()
    assert mailbox.positions == []
    world.settle()
    assert mailbox.positions == ahead
    assert (len(consumer.pending), consumer.pending.unacked, consumer.blocked) == (10, 10, False)
    assert (dispatcher.book.unacked.messages, len(dispatcher.room)) == (10, 0)


def test_the_last_one_may_leave_in_the_middle() -> None:
    """2.1.3: nothing is left to do then, and the next one begins with all of it, counted from nothing."""
    world = World()
    consumer, _, published = holding_all(world, SHARED)
    consumer.redeliver(None)
    consumer.close()
    _, mailbox = world.subscribe(KEY_SHARED)
    world.settle()
    assert mailbox.positions == published
    assert {delivery.redelivery_count for delivery in mailbox.deliveries} == {0}
