# SPDX-License-Identifier: Apache-2.0
"""Statistics: Pulsar's names, and numbers that agree with what happened."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from broker_core.broker.requests import Peer
from broker_core.broker.stats import with_earliest_times
from broker_core.wire.heads import SendHead
from tests.broker.world import EARLIEST, EXCLUSIVE, FAILOVER, SHARED, World, ack, ack_batch, body, topic_stats


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
    assert world.subscription().backlog.messages() == 12
    monkeypatch.setattr("broker_core.broker.cursors.seeking.HOLES_COUNTED_MAX", 1)
    assert world.subscription().backlog.messages() == 12


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


def test_when_a_consumer_was_last_seen_at_work() -> None:
    """4.1.1, 7.15 When permits came, the first and the last time, when the first message left, when acks moved on."""
    world = World()
    consumer, _ = world.subscribe(SHARED, name="one", permits=1)
    came_ms = world.clock.now_ms()
    world.clock.advance(1000)
    positions = world.publish(3)
    sent_ms = world.clock.now_ms()
    world.clock.advance(1000)
    consumer.flow(10)
    world.settle()
    flow_ms = world.clock.now_ms()

    def seen() -> tuple[dict[str, Any], dict[str, Any]]:
        subscription = stats(world)["subscriptions"]["s"]
        return subscription, subscription["consumers"][0]

    subscription, one = seen()
    assert (one["firstConsumedFlowTimestamp"], one["lastConsumedFlowTimestamp"]) == (came_ms, flow_ms)
    assert (one["firstMessagesSentTimestamp"], one["lastConsumedTimestamp"]) == (sent_ms, flow_ms)
    assert (one["lastAckedTime"], one["lastConsumedTime"]) == ("1970-01-01T00:00:00.000Z", "2023-11-14T22:13:22.000Z")
    assert (subscription["lastConsumedFlowTimestamp"], subscription["lastMarkDeleteAdvancedTimestamp"]) == (flow_ms, 0)
    ack(consumer, positions[1])
    assert seen()[0]["lastMarkDeleteAdvancedTimestamp"] == 0
    ack(consumer, positions[0])
    assert seen()[0]["lastMarkDeleteAdvancedTimestamp"] == flow_ms
    world.clock.advance(1000)
    world.subscription().pass_over(positions[2])
    assert seen()[0]["lastMarkDeleteAdvancedTimestamp"] == flow_ms + 1000


def test_going_back_is_no_advance() -> None:
    """1.4.6, 7.15 After a seek the time of the last advance stays until the next one, also by an operator."""
    world = World()
    consumer, _ = world.subscribe(SHARED)
    positions = world.publish(3)
    ack(consumer, positions[0])
    advanced_ms = world.clock.now_ms()
    world.clock.advance(1000)
    world.subscription().seek(positions[0], None, lambda _error: None)
    consumer, _ = world.subscribe(SHARED)
    ack(consumer, positions[1])
    assert world.subscription().acks.mark_deleted_ms == advanced_ms
    world.subscription().cancel(positions[0])
    assert world.subscription().acks.mark_deleted_ms == advanced_ms + 1000


def test_chunks_are_counted_apart() -> None:
    """5.1.3, 7.15 By producer, and whether the topic has seen any; one by one and many at a time."""
    world = World()
    producer, _ = world.produce(name="me")
    world.publish(2)
    assert (stats(world)["msgChunkPublished"], stats(world)["publishers"][0]["chunkedMessageRate"]) == (False, 0)
    producer.send(SendHead(0, 0, is_chunk=True), body())
    producer.send_all([SendHead(0, number, is_chunk=number < 3) for number in range(1, 5)], [body()] * 4)
    world.settle()
    world.clock.advance(1000)
    found = stats(world)
    assert (found["msgChunkPublished"], found["publishers"][0]["chunkedMessageRate"]) == (True, 3)
    producer.close()
    assert stats(world)["msgChunkPublished"] is True


def test_what_expired_has_a_rate() -> None:
    """7.2, 7.15 In all, and per second."""
    world = World()
    world.topic().create_subscription("s", EARLIEST)
    world.publish(10)
    world.subscription().expiry.pass_older(world.clock.now_ms() + 1, at_once=True)
    world.clock.advance(2000)
    found = stats(world)["subscriptions"]["s"]
    assert (found["totalMsgExpired"], found["msgExpired"], found["msgRateExpired"]) == (10, 10, 5)


def test_the_beginning_of_a_backlog_is_known_if_asked_for() -> None:
    """7.3, 7.15 Which subscription is furthest behind, and when the first message of each was stored."""
    world = World()
    world.publish_at(100, 101, 102)
    for name in ("behind", "ahead", "done"):
        world.topic().create_subscription(name, EARLIEST)
    world.settle()
    last = world.topic().log.last_confirmed
    world.subscription("ahead").pass_over(world.topic().log.previous(last))
    world.subscription("done").pass_over(last)
    assert stats(world)["oldestBacklogMessageSubscriptionName"] == "behind"
    assert stats(world)["earliestMsgPublishTimeInBacklogs"] == 0
    found = with_earliest_times(world.topic(), topic_stats(world.topic()))
    assert found.earliest_msg_publish_time_in_backlogs == 100
    earliest = {name: each.earliest_msg_publish_time_in_backlog for name, each in found.subscriptions.items()}
    assert earliest == {"behind": 100, "ahead": 102, "done": -1}
    for subscription in world.topic().subscriptions.values():
        subscription.pass_over(last)
    assert stats(world)["oldestBacklogMessageAgeSeconds"] == -1
    assert stats(world)["oldestBacklogMessageSubscriptionName"] == ""
