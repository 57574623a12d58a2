# SPDX-License-Identifier: Apache-2.0
"""The limit of what all Shared and Key_Shared subscriptions of a broker leave unacknowledged together."""

from __future__ import annotations

from typing import Any

import pytest

from broker_core.broker.requests import SubscriptionType
from tests.broker.world import SHARED, TOPIC, Mailbox, World, ack, topic_stats

OTHER = TOPIC + "-other"
SHARING = [SHARED, SubscriptionType.KEY_SHARED]


def limited(limit: int = 20, share: float = 0.25, **changes: Any) -> World:
    """A broker with that limit; a subscription's share of it is 5 if not said otherwise."""
    return World(
        max_unacked_messages_per_broker=limit,
        max_unacked_messages_per_subscription_on_broker_blocked=share,
        dispatcher_max_round_robin_batch_size=1,
        **changes,
    )


def blocked(world: World, topic: str, subscription: str = "s") -> bool:
    return topic_stats(world.topic(topic)).subscriptions[subscription].blocked_subscription_on_unacked_msgs


def filled(world: World, kind: SubscriptionType, topic: str, entries: int, permits: int = 1000) -> Mailbox:
    """A consumer of its own topic, given what it has permits for, and acknowledging nothing."""
    _, mailbox = world.subscribe(kind, topic=topic, permits=permits)
    world.publish(entries, topic)
    return mailbox


def ack_some(world: World, mailbox: Mailbox, count: int) -> None:
    """Acknowledge the first of what is in the mailbox, and take it out."""
    assert mailbox.consumer is not None
    ack(mailbox.consumer, *mailbox.positions[:count])
    del mailbox.deliveries[:count]
    world.settle()


@pytest.mark.parametrize("kind", SHARING)
def test_at_the_limit_those_with_more_than_their_share_stop(kind: SubscriptionType) -> None:
    """2.4.12 One has 5, which is its share, another 15: only that one stops, and the statistics say so."""
    world = limited()
    small = filled(world, kind, OTHER, 5)
    large = filled(world, kind, TOPIC, 30)
    assert (len(small.positions), len(large.positions)) == (5, 15)
    assert (blocked(world, OTHER), blocked(world, TOPIC)) == (False, True)


@pytest.mark.parametrize("kind", SHARING)
def test_while_the_broker_has_too_many_a_subscription_stops_beyond_its_share(kind: SubscriptionType) -> None:
    """2.4.12 It may still have its share, and whatever its last entry goes beyond that."""
    world = limited()
    filled(world, kind, TOPIC, 30)
    late = filled(world, kind, OTHER, 10)
    assert (len(late.positions), blocked(world, OTHER)) == (6, True)


@pytest.mark.parametrize("kind", SHARING)
def test_all_go_on_when_the_total_is_below_half(kind: SubscriptionType) -> None:
    """2.4.12 Acknowledging on one subscription lets another go on."""
    world = limited()
    mine = filled(world, kind, TOPIC, 10, permits=10)
    others = filled(world, kind, OTHER, 30)
    assert (len(mine.positions), len(others.positions), blocked(world, OTHER)) == (10, 10, True)
    ack_some(world, others, 3)  # 17 in all
    ack_some(world, mine, 7)  # 10: not below half
    assert (len(others.positions), blocked(world, OTHER)) == (7, True)
    ack_some(world, mine, 1)
    assert (len(others.positions), blocked(world, OTHER)) == (18, True), "up to the limit again"


def test_a_subscription_goes_on_below_half_of_its_share() -> None:
    """2.4.12 Whatever the others do: the total stays beyond half of the limit."""
    world = limited(limit=40, share=0.25)
    filled(world, SHARED, TOPIC, 50)
    mailbox = filled(world, SHARED, OTHER, 30)
    assert len(mailbox.positions) == 11
    ack_some(world, mailbox, 6)
    assert (len(mailbox.positions), blocked(world, OTHER)) == (5, True)
    ack_some(world, mailbox, 1)
    assert (len(mailbox.positions), blocked(world, OTHER)) == (11, True)


def test_what_a_leaving_consumer_had_counts_no_more() -> None:
    """2.4.12 Also if it is disconnected with all others, by a seek or an unload."""
    world = limited()
    mailbox = filled(world, SHARED, TOPIC, 30)
    waiting = filled(world, SHARED, OTHER, 30)
    assert (len(mailbox.positions), len(waiting.positions)) == (20, 6)
    world.subscription().disconnect_all()
    world.settle()
    assert (world.topic().unacked.messages, len(waiting.positions)) == (20, 20)
    assert waiting.consumer is not None
    waiting.consumer.close()
    assert world.topic().unacked.messages == 0


def test_asking_for_all_again_lets_others_go_on() -> None:
    """2.4.12 What was taken back is not unacknowledged any more until it is given out again."""
    world = limited()
    mailbox = filled(world, SHARED, TOPIC, 30, permits=20)
    waiting = filled(world, SHARED, OTHER, 30)
    assert len(waiting.positions) == 6
    assert mailbox.consumer is not None
    mailbox.consumer.redeliver(None)
    world.settle()
    assert len(waiting.positions) == 20


def test_its_own_limit_holds_as_well() -> None:
    """2.4.7, 2.4.12 A subscription that may go on for the broker's sake is still stopped by its own limit."""
    world = limited(max_unacked_messages_per_subscription=8)
    full = filled(world, SHARED, TOPIC, 30)
    others = filled(world, SHARED, OTHER, 12, permits=8), filled(world, SHARED, TOPIC + "-third", 4)
    assert (len(full.positions), world.topic().unacked.messages) == (8, 20)
    for other in others:
        ack_some(world, other, len(other.positions))
    assert (len(full.positions), blocked(world, OTHER), blocked(world, TOPIC)) == (8, False, True)
    ack_some(world, full, 5)
    assert len(full.positions) == 8


def test_only_entries_that_are_acknowledged_one_by_one_count() -> None:
    """2.4.12 Exclusive and Failover subscriptions neither count nor stop."""
    world = limited()
    filled(world, SubscriptionType.EXCLUSIVE, TOPIC, 30)
    shared = filled(world, SHARED, OTHER, 20, permits=19)
    assert (world.topic().unacked.messages, len(shared.positions)) == (19, 19)


@pytest.mark.parametrize(("limit", "share"), [(0, 0.16), (10, 0.0)])
def test_zero_switches_it_off(limit: int, share: float) -> None:
    """2.4.12 Either of the two settings."""
    world = limited(limit, share)
    assert len(filled(world, SHARED, TOPIC, 300, permits=300).positions) == 300
    assert not blocked(world, TOPIC)


def test_a_limit_too_small_to_be_halved_or_shared_lets_go_on_all_the_same() -> None:
    """2.4.12 A limit of one message: the next comes when it is acknowledged."""
    world = limited(limit=1)
    mailbox = filled(world, SHARED, TOPIC, 3)
    for _ in range(3):
        assert (len(mailbox.positions), blocked(world, TOPIC)) == (1, True)
        ack_some(world, mailbox, 1)
    assert not blocked(world, TOPIC)
