# SPDX-License-Identifier: Apache-2.0
"""Which makings and deletings of topics a watch hears of. Over the wire: ``tests/client/test_topic_watches``."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from broker_core.base.errors import NotAllowedError
from broker_core.base.names import NamespaceName, TopicName
from broker_core.base.steps import drained
from broker_core.broker.directory.topic_watches import TopicWatch
from tests.broker.world import World

HOME = NamespaceName.parse("public/default")


class Heard:
    """A watch of ``pattern``, and what it was told: ``+name`` and ``-name``, local names."""

    def __init__(self, world: World, pattern: str = ".*", namespace: NamespaceName = HOME) -> None:
        self.told: list[str] = []
        self.watch = TopicWatch(namespace, pattern, self._changed)
        for _ in world.broker.registry.watch_topics(self.watch):
            pass

    def _changed(self, new: Sequence[str], gone: Sequence[str]) -> None:
        self.told += [f"+{TopicName.parse(name).local}" for name in new]
        self.told += [f"-{TopicName.parse(name).local}" for name in gone]

    def take(self) -> list[str]:
        told, self.told = self.told, []
        return told


def test_a_partition_is_told_with_its_topic_and_not_when_it_is_first_used() -> None:
    """7.12, 1.2.1: what is listed from the beginning is not new when its log is made."""
    world = World()
    name = TopicName.parse("parts")
    heard = Heard(world, "public/default/parts")
    world.broker.create_partitioned(name, 2)
    assert heard.take() == ["+parts-partition-0", "+parts-partition-1"]
    world.broker.topic(name.partition(0), create=True)
    world.broker.deletion.delete_topic(name.partition(0), force=True)
    assert heard.take() == []
    drained(world.broker.growth.grow(name, 3))
    assert heard.take() == ["+parts-partition-2"]
    world.broker.deletion.delete_partitioned(name, force=True)
    assert sorted(heard.take()) == [f"-parts-partition-{index}" for index in range(3)]
    assert heard.watch.topics == []


def test_topics_that_are_made_by_their_first_use_are_told() -> None:
    """7.12, 1.1.7: however a topic comes into being, it is told once."""
    world = World()
    heard = Heard(world)
    world.broker.topic(TopicName.parse("a"), create=True)
    world.broker.topic(TopicName.parse("a"), create=True)
    world.broker.create_topic(TopicName.parse("b"))
    assert heard.take() == ["+a", "+b"]
    world.broker.unload(TopicName.parse("a"))
    assert heard.take() == []
    world.broker.deletion.delete_topic(TopicName.parse("a"), force=True)
    assert heard.take() == ["-a"]


def test_what_is_not_stored_or_internal_is_not_told() -> None:
    """7.12, 1.1.6, 1.1.8: as in Pulsar only persistent topics of users are watched."""
    world = World()
    heard = Heard(world)
    world.broker.any_topic(TopicName.parse("non-persistent://public/default/n"), create=True)
    world.broker.topic(TopicName.parse("__internal"), create=True)
    assert heard.take() == []


def test_a_watch_is_of_one_namespace_and_ends() -> None:
    """7.12: it may come before the namespace, with which its topics go; after its end nothing is told."""
    world = World()
    shop = NamespaceName.parse("public/shop")
    early = Heard(world, namespace=shop)
    assert early.watch.topics == []
    world.broker.namespaces.create(shop)
    world.broker.create_topic(TopicName.parse("public/shop/a"))
    assert early.take() == ["+a"]
    heard, elsewhere = Heard(world, namespace=shop), Heard(world)
    assert heard.watch.topics == ["persistent://public/shop/a"]
    world.broker.deletion.delete_namespace(shop, force=True)
    assert (heard.take(), elsewhere.take()) == (["-a"], [])
    world.broker.registry.watches.remove(elsewhere.watch)
    world.broker.registry.watches.remove(elsewhere.watch)
    world.broker.create_topic(TopicName.parse("late"))
    assert elsewhere.take() == []


def test_a_pattern_may_name_the_domain() -> None:
    """7.12: official clients send it, and it says nothing, as names are matched without."""
    world = World()
    for pattern in ("persistent://public/default/x", "^persistent://public/default/x$", "public/default/x"):
        heard = Heard(world, pattern)
        world.broker.create_topic(TopicName.parse("x"))
        world.broker.deletion.delete_topic(TopicName.parse("x"))
        assert heard.take() == ["+x", "-x"]
    with pytest.raises(NotAllowedError, match="cannot be matched by a broker"):
        Heard(world, "(?=x)")


def test_what_changes_while_a_watch_begins_counts_and_is_not_told() -> None:
    """7.12: a watch over very many topics begins in steps; its first list is that of the end of them."""
    world = World()
    for number in range(100):
        world.broker.create_topic(TopicName.parse(f"t{number}"))
    told: list[Sequence[str]] = []
    watch = TopicWatch(HOME, "public/default/t.*", lambda new, gone: told.append([*new, *gone]))
    for number, _ in enumerate(world.broker.registry.watch_topics(watch)):
        world.broker.create_topic(TopicName.parse(f"t-new-{number}"))
        world.broker.deletion.delete_topic(TopicName.parse(f"t{number}"))
    assert number > 2
    assert told == []
    assert watch.topics == world.broker.registry.topics_of(HOME)
    world.broker.create_topic(TopicName.parse("t-last"))
    assert told == [["persistent://public/default/t-last"]]


def test_very_many_partitions_are_told_at_once_though_not_found_at_once() -> None:
    """7.12: one update has them all, and what happens meanwhile is told after it."""
    world = World()
    name, other = TopicName.parse("parts"), TopicName.parse("other")
    heard, deaf = Heard(world), Heard(world, "public/default/elsewhere")
    world.broker.create_partitioned(name, 5000)
    world.broker.create_topic(other)
    assert heard.told == [], "it would take long to find them in one turn of the loop"
    world.settle()
    assert heard.take() == [*(f"+parts-partition-{index}" for index in range(5000)), "+other"]
    assert heard.watch.topics == world.broker.registry.topics_of(HOME)
    world.broker.deletion.delete_partitioned(name)
    late = Heard(world)
    world.settle()
    assert len(heard.take()) == 5000
    assert heard.watch.topics == late.watch.topics == [str(other)]
    assert late.told == deaf.told == []


def test_very_many_watches_are_told_one_after_the_other() -> None:
    """7.12: a topic costs each of them a look at its name, and that takes several turns; who ends hears nothing."""
    world = World()
    crowd = [Heard(world) for _ in range(300)]
    world.broker.create_topic(TopicName.parse("a"))
    told = sum(bool(each.told) for each in crowd)
    assert 0 < told < 300
    world.broker.registry.watches.remove(crowd[-1].watch)
    world.broker.deletion.delete_topic(TopicName.parse("a"))
    world.settle()
    assert {tuple(each.told) for each in crowd[:-1]} == {("+a", "-a")}
    assert crowd[-1].told == []


def test_very_many_partitions_that_come_while_a_watch_begins_are_in_its_list() -> None:
    """7.12: also where they come in its last step."""
    world = World()
    world.broker.create_topic(TopicName.parse("a"))
    told: list[Sequence[str]] = []
    watch = TopicWatch(HOME, ".*", lambda new, gone: told.append([*new, *gone]))
    steps = world.broker.registry.watch_topics(watch)
    next(steps)
    world.broker.create_partitioned(TopicName.parse("parts"), 300)
    assert len(list(steps)) >= 2
    assert watch.topics == world.broker.registry.topics_of(HOME)
    world.settle()
    assert told == []
