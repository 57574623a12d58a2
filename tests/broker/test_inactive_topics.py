# SPDX-License-Identifier: Apache-2.0
"""Topics that nobody uses end where their policies say so, and no others (7.6)."""

from __future__ import annotations

import pytest

from broker_core.base.names import TopicName
from broker_core.base.policies import InactiveTopics, Policies
from broker_core.base.steps import drained
from tests.broker.world import SHARED, TOPIC, World

NAME = TopicName.parse(TOPIC)
WITHOUT = "delete_when_no_subscriptions"
CAUGHT_UP = "delete_when_subscriptions_caught_up"
LIMIT_S = 300
LATER_MS = (LIMIT_S + 130) * 1000
"""The time until a look at which a topic that was not used since now must end: looks are a minute apart."""


def allow(world: World, mode: str = WITHOUT, *, enabled: bool = True, limit_s: int = LIMIT_S) -> None:
    policies = Policies(inactive_topic_policies=InactiveTopics(mode, limit_s, enabled))  # type: ignore[arg-type]
    drained(world.broker.set_topic_policies(NAME, policies))


def exists(world: World) -> bool:
    return world.broker.registry.exists(NAME)


def advance(world: World, duration_ms: int) -> None:
    world.clock.advance(duration_ms)
    world.settle()


def test_a_topic_without_subscriptions_ends_once_it_was_unused_for_that_long() -> None:
    """7.6: with what is stored in it and its policies; it may be made again."""
    world = World()
    world.publish(3)
    allow(world)
    advance(world, (LIMIT_S - 10) * 1000)
    assert exists(world)
    advance(world, 140_000)
    assert not exists(world)
    assert world.topic().log.size_bytes == 0
    assert world.broker.policies.of_topic(NAME) == Policies()


@pytest.mark.parametrize("mode", [WITHOUT, CAUGHT_UP])
def test_topics_stay_where_nobody_asked_for_their_end(mode: str) -> None:
    """7.6: by default, and where the policy says no."""
    world = World()
    world.publish(1)
    advance(world, LATER_MS)
    assert exists(world)
    allow(world, mode, enabled=False)
    advance(world, LATER_MS)
    assert exists(world)


def test_clients_keep_a_topic_and_the_time_begins_when_they_leave() -> None:
    """7.6: a producer that sends nothing, or a reader."""
    world = World()
    allow_for = world.topic()
    allow(world)
    producer, _ = world.produce()
    advance(world, LATER_MS)
    reader, _ = world.subscribe(durable=False)
    producer.close()
    advance(world, LATER_MS)
    assert world.broker.registry.loaded(NAME) is allow_for
    reader.close()
    advance(world, (LIMIT_S - 10) * 1000)
    assert exists(world)
    advance(world, 140_000)
    assert not exists(world)


def test_a_subscription_keeps_a_topic_or_only_its_backlog_does() -> None:
    """7.6: by the mode."""
    world = World()
    world.topic().create_subscription("s")
    positions = world.publish(2)
    allow(world, WITHOUT)
    advance(world, LATER_MS)
    assert exists(world)
    allow(world, CAUGHT_UP)
    advance(world, LATER_MS)
    assert exists(world)
    consumer, _ = world.subscribe(SHARED)
    for position in positions:
        consumer.ack_entries(position.ledger, [position.entry], None)
    consumer.close()
    advance(world, LATER_MS)
    assert not exists(world)


def test_a_topic_that_was_not_loaded_ends_too() -> None:
    """7.6: it was not used since the broker started; its newest entry and its making protect it as long."""
    world = World(retention_check_interval_in_seconds=60)
    world.publish(1)
    allow(world)
    world.restart()
    advance(world, (LIMIT_S - 10) * 1000)
    assert exists(world)
    advance(world, 200_000)
    assert not exists(world)


def test_partitions_end_and_come_again() -> None:
    """7.6: the partitioned topic stays, with its policies."""
    world = World()
    world.broker.create_partitioned(NAME, 2)
    allow(world)
    partition = NAME.partition(0)
    topic = world.broker.topic(partition)
    advance(world, LATER_MS)
    assert world.broker.registry.loaded(partition) is None
    assert world.broker.partitions_of(NAME) == 2
    assert world.broker.topic(partition) is not topic


def test_the_settings_of_the_broker_hold_for_topics_without_policies() -> None:
    """7.6: changed while it runs."""
    world = World()
    world.publish(1)
    drained(world.broker.set_dynamic("brokerDeleteInactiveTopicsEnabled", "true"))
    advance(world, 250_000)
    assert not exists(world)


def test_topics_end_one_in_a_turn_and_not_if_they_are_used_meanwhile() -> None:
    """7.6: to delete hundreds in one turn would keep all clients waiting."""
    world = World()
    names = [f"persistent://public/default/t{number}" for number in range(5)]
    for name in names:
        world.topic(name)
    drained(world.broker.set_dynamic("brokerDeleteInactiveTopicsEnabled", "true"))
    looked = world.broker.upkeep.end_inactive_topics
    looked()
    world.clock.advance(59_000)
    looked()
    looked()
    assert world.broker.registry.exists(TopicName.parse(names[0]))
    world.clock.advance(1_000)
    looked()
    world.topic(names[2]).create_subscription("s")
    world.settle()
    assert [world.broker.registry.exists(TopicName.parse(name)) for name in names] == [False, False, True, False, False]
