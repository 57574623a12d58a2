# SPDX-License-Identifier: Apache-2.0
"""Limits of rates: what passes in a time, who waits, and that publishing and dispatch keep to them (7.16)."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.errors import NotAllowedError
from broker_core.base.names import NamespaceName, TopicName
from broker_core.base.policies import DispatchRate, Policies, PublishRate, SubscribeRate
from broker_core.base.steps import drained
from broker_core.broker.rate_limits import Gate, RateLimit, SubscribeLimit
from broker_core.broker.requests import Peer, SubscribeRequest, SubscriptionType
from broker_core.testing.virtual_timers import VirtualTimers
from broker_core.wire.heads import SendHead
from tests.broker.world import SHARED, TOPIC, Mailbox, World, body

NAME = TopicName.parse(TOPIC)
DURATION_S = 10


class Greedy:
    """One that always has something to pass on, ``size`` messages of ten bytes at a time."""

    def __init__(self, gate: RateLimit, size: int = 1) -> None:
        self.limit = gate
        self.size = size
        self.passed = 0

    def go_on(self) -> None:
        while (room := self.limit.room(self.go_on)) is not None:
            count = self.size * max(1, min(room.messages, room.size_bytes // 10) // self.size)
            self.limit.take(count, 10 * count)
            self.passed += count


def rate_limit(messages_per_s: float, bytes_per_s: float = 0) -> tuple[RateLimit, VirtualTimers]:
    clock = VirtualTimers()
    limit = RateLimit(clock, clock)
    limit.set(messages_per_s, bytes_per_s)
    return limit, clock


@given(rate=st.integers(1, 100_000), size=st.sampled_from([1, 7, 100]), by_bytes=st.booleans())
def test_what_passes_is_the_rate_whatever_the_size_of_entries(rate: int, size: int, by_bytes: bool) -> None:
    """7.16: as exact as one entry, and what is kept for late timers."""
    limit, clock = rate_limit(0, 10 * rate) if by_bytes else rate_limit(rate)
    greedy = Greedy(limit, size)
    greedy.go_on()
    clock.advance(DURATION_S * 1000)
    assert abs(greedy.passed - rate * DURATION_S) <= 0.02 * rate * DURATION_S + size + 1


def test_a_pause_is_not_made_up_for_by_a_burst() -> None:
    """7.16: after an hour of nothing as much may pass in a second as ever, and a tenth more."""
    limit, clock = rate_limit(1000)
    clock.advance(3_600_000)
    greedy = Greedy(limit)
    greedy.go_on()
    clock.advance(1000)
    assert 1000 <= greedy.passed <= 1101


def test_those_that_wait_share_the_rate() -> None:
    """7.16: in turns; one that asks again and again does not pass the others by."""
    limit, clock = rate_limit(300)
    several = [Greedy(limit) for _ in range(3)]
    for each in several:
        each.go_on()
    for _ in range(DURATION_S * 100):
        clock.advance(10)
        several[0].go_on()
    for each in several:
        assert abs(each.passed - 100 * DURATION_S) <= 40


def test_who_is_forgotten_waits_no_more_and_who_is_without_limit_goes_on_at_once() -> None:
    """7.16: a change of the rate holds for those that wait."""
    limit, clock = rate_limit(1)
    first, second = Greedy(limit), Greedy(limit)
    first.go_on()
    second.go_on()
    limit.forget(second.go_on)
    clock.advance(60_000)
    assert (first.passed, second.passed) == (61, 0)
    limit.forget(first.go_on)
    went_on: list[str] = []
    limit.wait(partial(went_on.append, "third"))
    limit.set(0, 0)
    assert went_on == ["third"]
    assert not limit.limited


def test_a_gate_keeps_both_rates() -> None:
    """7.16: that of the subscription and that of its topic, whichever is the lower."""
    for rates in ((50, 0), (0, 50), (50, 80), (80, 50)):
        clock = VirtualTimers()
        own, shared = RateLimit(clock, clock), RateLimit(clock, clock)
        own.set(rates[0], 0)
        shared.set(rates[1], 0)
        passed = 0

        def go_on() -> None:
            nonlocal passed
            while (room := gate.room()) is not None:  # noqa: B023
                gate.take(room.messages, 0)  # noqa: B023
                passed += room.messages

        gate = Gate(own, shared, go_on)
        go_on()
        clock.advance(DURATION_S * 1000)
        assert abs(passed - 50 * DURATION_S) <= 15, rates
        gate.close()
        clock.advance(1000)
        assert abs(passed - 50 * DURATION_S) <= 15, rates


# -- dispatch


def limited(world: World, **policies: object) -> None:
    """Set the policies of the topic."""
    drained(world.broker.set_topic_policies(NAME, Policies(**policies)))  # type: ignore[arg-type]


def messages_in(mailbox: Mailbox) -> int:
    return sum(delivery.entry.messages for delivery in mailbox.deliveries)


@pytest.mark.parametrize("kind", SubscriptionType)
@pytest.mark.parametrize("level", ["topic", "subscription"])
@pytest.mark.parametrize("messages", [1, 7])
def test_consumers_are_sent_so_many_messages_in_a_second(kind: SubscriptionType, level: str, messages: int) -> None:
    """7.16: of single messages and of batches, and all of the backlog once the rate is gone."""
    world = World()
    rate = DispatchRate(dispatch_throttling_rate_in_msg=1000, rate_period_in_second=10)
    limited(world, **{"dispatch_rate" if level == "topic" else "subscription_dispatch_rate": rate})
    world.publish(3500 // messages, messages=messages, batch=messages > 1)
    _, mailbox = world.subscribe(kind, permits=10_000)
    world.clock.advance(DURATION_S * 1000)
    assert abs(messages_in(mailbox) - 100 * DURATION_S) <= 30
    limited(world)
    world.settle()
    assert messages_in(mailbox) == 3500


@pytest.mark.parametrize("kind", [SubscriptionType.EXCLUSIVE, SHARED])
def test_consumers_are_sent_so_many_bytes_in_a_second(kind: SubscriptionType) -> None:
    """7.16: bytes are those of stored entries."""
    world = World()
    size = len(body("100"))
    limited(world, dispatch_rate=DispatchRate(dispatch_throttling_rate_in_byte=50 * size))
    world.publish(1000)
    _, mailbox = world.subscribe(kind, permits=10_000)
    world.clock.advance(DURATION_S * 1000)
    assert abs(messages_in(mailbox) - 50 * DURATION_S) <= 0.1 * 50 * DURATION_S


def test_the_rate_of_a_topic_is_that_of_all_its_subscriptions_together() -> None:
    """7.16: they share it evenly, and each has its own besides."""
    world = World()
    world.publish(2000)
    limited(world, dispatch_rate=DispatchRate(dispatch_throttling_rate_in_msg=100))
    boxes = [world.subscribe(SHARED, f"s{number}", permits=5000)[1] for number in range(4)]
    world.clock.advance(DURATION_S * 1000)
    assert abs(sum(map(messages_in, boxes)) - 100 * DURATION_S) <= 30
    for box in boxes:
        assert abs(messages_in(box) - 25 * DURATION_S) <= 30


def test_new_messages_are_limited_like_the_backlog() -> None:
    """7.16: a consumer that is caught up is no exception."""
    world = World()
    limited(world, subscription_dispatch_rate=DispatchRate(dispatch_throttling_rate_in_msg=20))
    _, mailbox = world.subscribe(permits=5000)
    producer, _ = world.produce()
    for number in range(DURATION_S * 10):
        for _ in range(10):
            producer.send(SendHead(0, number), body())
        world.settle()
        world.clock.advance(100)
    assert abs(messages_in(mailbox) - 20 * DURATION_S) <= 10


# -- publishing


def test_a_producer_beyond_the_rate_tells_its_connection_to_wait() -> None:
    """7.16: what was sent is stored, and nothing more is to be read until it is paid for; unlimited again at once."""
    world = World()
    limited(world, publish_rate=PublishRate(publish_throttling_rate_in_msg=10))
    producer, answers = world.produce()
    producer.send(SendHead(0, 0), body())
    producer.send(SendHead(0, 1, 20), body(messages=20))
    (limit,) = answers.in_flight.used_up
    went_on: list[int] = []
    limit.wait(lambda: went_on.append(world.clock.now_ms()))
    start = world.clock.now_ms()
    world.clock.advance(5000)
    assert abs(went_on[0] - start - 2100) <= 100
    world.settle()
    assert answers.order == [0, 1]
    limited(world)
    answers.in_flight.used_up.clear()
    producer.send(SendHead(0, 2, 1000), body(messages=1000))
    assert not answers.in_flight.used_up


def test_rates_are_layered_and_kept() -> None:
    """1.1.5, 7.16: the topic's before the namespace's; both outlive a restart."""
    world = World()
    world.topic()
    of_namespace = Policies(publish_rate=PublishRate(7), dispatch_rate=DispatchRate(7))
    drained(world.broker.set_namespace_policies(NamespaceName("public", "default"), of_namespace))
    limited(world, dispatch_rate=DispatchRate(8))
    world.settle()
    world.restart()
    quotas = world.broker.policies.quotas_of(NAME)
    assert (quotas.publish_rate, quotas.dispatch_rate) == (PublishRate(7), DispatchRate(8))
    assert quotas.subscription_dispatch_rate == DispatchRate()
    assert world.topic().publish_rate.limited


def test_a_rate_relative_to_another_is_refused() -> None:
    """7.16: it would not be kept."""
    with pytest.raises(NotAllowedError, match="relative"):
        Policies(dispatch_rate=DispatchRate(5, relative_to_publish_rate=True)).check()


# -- subscribing


def test_a_consumer_subscribes_as_often_as_the_rate_allows() -> None:
    """7.16: known by its name and host; all begin anew with the next period, and without the rate there is no limit."""
    world = World()
    limited(world, subscribe_rate=SubscribeRate(2, 10))
    for _ in range(2):
        for name in ("a", "b"):
            world.subscribe(SHARED, name=name)[0].close()
    with pytest.raises(NotAllowedError, match="2 times in 10 s"):
        world.subscribe(SHARED, name="a")
    world.subscribe(SHARED, name="a", peer=Peer("elsewhere:5"))[0].close()
    world.clock.advance(10_000)
    world.subscribe(SHARED, name="a")[0].close()
    limited(world)
    for _ in range(5):
        world.subscribe(SHARED, name="a")[0].close()


def test_so_many_consumers_are_counted_and_no_more() -> None:
    """7.16: names are the client's own, and cost memory for a whole period."""
    clock = VirtualTimers()
    limit = SubscribeLimit(clock)
    limit.set(1, 2**31)
    for number in range(10_000):
        limit.check(NAME, SubscribeRequest("s", consumer_name=str(number)))
    with pytest.raises(NotAllowedError):
        limit.check(NAME, SubscribeRequest("s", consumer_name="9999"))
    limit.check(NAME, SubscribeRequest("s", consumer_name="one more"))
    limit.check(NAME, SubscribeRequest("s", consumer_name="9999"))


def test_a_refused_consumer_makes_no_subscription() -> None:
    """7.16: nothing is kept for it."""
    world = World()
    limited(world, subscribe_rate=SubscribeRate(1, 10))
    world.subscribe(SHARED, name="a")
    with pytest.raises(NotAllowedError):
        world.subscribe(SHARED, "other", name="a")
    assert set(world.topic().subscriptions) == {"s"}


def test_rates_of_the_broker_hold_for_topics_without_their_own() -> None:
    """7.16: changed while it runs, and stronger where a topic says so."""
    world = World(dispatch_throttling_rate_per_topic_in_msg=100)
    world.publish(3000)
    _, mailbox = world.subscribe(SHARED, permits=10_000)
    world.clock.advance(DURATION_S * 1000)
    assert abs(messages_in(mailbox) - 100 * DURATION_S) <= 30
    limited(world, dispatch_rate=DispatchRate(dispatch_throttling_rate_in_msg=50))
    before = messages_in(mailbox)
    world.clock.advance(DURATION_S * 1000)
    assert abs(messages_in(mailbox) - before - 50 * DURATION_S) <= 30
    limited(world)
    drained(world.broker.set_dynamic("dispatchThrottlingRatePerTopicInMsg", "0"))
    world.settle()
    assert messages_in(mailbox) == 3000


def test_the_brokers_rate_of_publishing_is_that_of_a_topic() -> None:
    """7.16: 0 is no limit, in messages as in bytes."""
    world = World(max_publish_rate_per_topic_in_messages=10)
    topic = world.topic()
    assert (topic.publish_rate.limited, topic.quotas.publish_rate) == (True, PublishRate(10, -1))
    drained(world.broker.set_dynamic("maxPublishRatePerTopicInMessages", "0"))
    assert not topic.publish_rate.limited
