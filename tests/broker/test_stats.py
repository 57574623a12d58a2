# SPDX-License-Identifier: Apache-2.0
"""Statistics: Pulsar's names, and numbers that agree with what happened."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from broker_core.broker import Peer, topic_stats
from tests.broker.world import EXCLUSIVE, FAILOVER, SHARED, World, ack, ack_batch


def stats(world: World) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(msgspec.json.encode(topic_stats(world.topic())))
    return found


def test_a_topic_in_use() -> None:
    """7.15 (C.1) Names that admin tools read, and their values."""
    world = World()
    peer = Peer("127.0.0.1:5", "Test-1", {"k": "v"})
    producer, _ = world.produce(name="me", peer=peer)
    one, _ = world.subscribe(SHARED, name="one", permits=10, peer=peer)
    positions = world.publish(3, messages=4)
    ack(one, positions[1])
    ack_batch(one, positions[0], [0, 1, 2])
    found = stats(world)
    publisher = found["publishers"][0]
    assert (publisher["producerName"], publisher["address"], publisher["accessMode"]) == ("me", "127.0.0.1:5", "Shared")
    assert (publisher["metadata"], publisher["clientVersion"]) == ({"k": "v"}, "Test-1")
    assert (found["msgInCounter"], found["msgOutCounter"]) == (12, 12)
    assert found["storageSize"] > 0
    subscription = found["subscriptions"]["s"]
    assert (subscription["type"], subscription["msgBacklog"], subscription["backlogMessages"]) == ("Shared", 2, 7)
    assert (subscription["unackedMessages"], subscription["activeConsumerName"]) == (7, "")
    assert (subscription["markDeletePosition"], subscription["nonContiguousDeletedMessagesRanges"]) == ("-1:-1", 1)
    consumer = subscription["consumers"][0]
    assert (consumer["consumerName"], consumer["availablePermits"], consumer["unackedMessages"]) == ("one", -2, 7)
    assert consumer["blockedConsumerOnUnackedMsgs"] is False
    assert consumer["connectedSince"] == "2023-11-14T22:13:20.000Z"
    producer.close()


def test_the_active_consumer_has_a_name() -> None:
    """7.15 Failover and Exclusive name it; a subscription without consumers has no type."""
    world = World()
    world.subscribe(FAILOVER, name="a")
    world.subscribe(FAILOVER, name="b")
    world.subscribe(EXCLUSIVE, "x", name="only")
    world.subscribe(EXCLUSIVE, "idle")[0].close()
    found = stats(world)["subscriptions"]
    assert [found[name]["activeConsumerName"] for name in ("s", "x", "idle")] == ["a", "only", ""]
    assert [found[name]["type"] for name in ("s", "x", "idle")] == ["Failover", "Exclusive", "None"]


def test_the_backlog_counts_entries_and_messages() -> None:
    """3.6.8 [R] Both, with holes, partial batches and ledgers in between; zero at the end."""
    world = World()
    consumer, _ = world.subscribe()
    positions = world.publish(14, messages=lambda n: n + 1)
    backlog = sum(n + 1 for n in range(14))

    def seen() -> tuple[int, int]:
        found = stats(world)["subscriptions"]["s"]
        return found["msgBacklog"], found["backlogMessages"]

    assert seen() == (14, backlog)
    ack(consumer, positions[3], positions[4], positions[11])
    ack_batch(consumer, positions[6], [0, 1])
    assert seen() == (11, backlog - 4 - 5 - 12 - 5)
    ack(consumer, *positions)
    assert seen() == (0, 0)


def test_a_backlog_full_of_holes_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    """3.6.8 [R] With too many holes to count, acknowledged entries are taken to be of mean size."""
    world = World()
    consumer, _ = world.subscribe()
    positions = world.publish(12, messages=lambda n: 1 + n % 2)
    ack(consumer, *positions[1::3])
    assert world.subscription().backlog_messages() == 12
    monkeypatch.setattr("broker_core.broker.backlog_count.HOLES_COUNTED_MAX", 1)
    assert world.subscription().backlog_messages() == 12


def test_rates_are_of_the_last_while() -> None:
    """7.15 Per second, over the last 10 to 20 seconds once that much has passed."""
    world = World()
    world.publish(100)
    world.clock.advance(1000)
    assert stats(world)["msgRateIn"] == 100
    world.clock.advance(9000)
    assert stats(world)["msgRateIn"] == 10
    world.clock.advance(10_000)
    assert stats(world)["msgRateIn"] == 0
    assert stats(world)["averageMsgSize"] > 0
