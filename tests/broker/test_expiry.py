# SPDX-License-Identifier: Apache-2.0
"""Message TTL, retention by time and size, backlog quotas and the end of unused subscriptions, under virtual time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.base.errors import (
    ProducerBlockedQuotaError,
    ProducerBlockedQuotaException,
    ServerError,
    ServiceNotReadyError,
    SubscriptionNotFoundError,
)
from broker_core.base.names import NamespaceName, TopicName
from broker_core.base.policies import BacklogQuota, Policies, Retention
from broker_core.base.positions import Position
from broker_core.base.steps import drained
from broker_core.broker.cursors import expiry
from broker_core.broker.requests import ProducerRequest
from broker_core.wire.heads import SendHead
from tests.broker.world import (
    EARLIEST,
    EXCLUSIVE,
    SHARED,
    TOPIC,
    YEAR_MS,
    Answers,
    World,
    ack,
    ack_through,
    body,
    topic_stats,
)

NAME = TopicName.parse(TOPIC)
MINUTE_MS = 60_000
RETENTION_MS, EXPIRY_MS, QUOTA_MS = 2 * MINUTE_MS, 5 * MINUTE_MS, MINUTE_MS
MIB = 1024 * 1024


def wait(world: World, milliseconds: int) -> None:
    """Let time pass and everything happen that is due."""
    world.clock.advance(milliseconds)
    world.settle()


def backlog(world: World, subscription: str = "s") -> int:
    return world.subscription(subscription).cursor.backlog_entries()


def set_policies(world: World, **policies: object) -> None:
    drained(world.broker.set_topic_policies(NAME, Policies(**policies)))  # type: ignore[arg-type]


def set_quota(world: World, policy: str, *, limit_bytes: int = -1, limit_s: int = -1) -> None:
    kind = "destination_storage" if limit_bytes >= 0 else "message_age"
    set_policies(world, backlog_quota_map={kind: BacklogQuota(limit_bytes, limit_s, policy)})  # type: ignore[arg-type]


# -- expiry


def test_expired_messages_count_as_acknowledged() -> None:
    """7.2 (I7.2): every five minutes mark-delete moves over what was stored longer than the TTL ago."""
    world = World(ttl_duration_default_in_seconds=60)
    world.topic().create_subscription("s", EARLIEST)
    now = world.clock.now_ms()
    world.publish_at(now, now + 10 * MINUTE_MS)
    wait(world, EXPIRY_MS - 1)
    assert backlog(world) == 2
    wait(world, 1)
    assert backlog(world) == 1


def test_a_producer_whose_clock_is_wrong_changes_no_age() -> None:
    """7.2, 7.3, 7.15: a message of next year lets those behind it expire, and one from two hours ago is not old."""
    world = World(ttl_duration_default_in_seconds=7200)
    world.topic().create_subscription("s", EARLIEST)
    set_quota(world, "producer_exception", limit_s=3600)
    now_ms = world.clock.now_ms()
    producer, _ = world.produce()
    for number, ahead_ms in enumerate((YEAR_MS, -120 * MINUTE_MS, 0)):
        producer.send(SendHead(0, number), body(publish_time_ms=now_ms + ahead_ms))
    world.settle()
    wait(world, 2 * QUOTA_MS)
    assert not producer.closed
    assert topic_stats(world.topic()).oldest_backlog_message_age_seconds == 120
    wait(world, 57 * MINUTE_MS)
    world.produce()
    wait(world, 2 * MINUTE_MS)
    with pytest.raises(ProducerBlockedQuotaException):
        world.produce()
    assert backlog(world) == 3
    world.restart()
    assert topic_stats(world.topic()).oldest_backlog_message_age_seconds == 61 * 60
    wait(world, 60 * MINUTE_MS + EXPIRY_MS)
    assert backlog(world) == 0


def test_eviction_by_age_keeps_what_a_slow_clock_has_stamped() -> None:
    """7.3: the messages of a producer whose clock is two hours behind are as young as those of any other."""
    world = World()
    world.topic().create_subscription("s", EARLIEST)
    set_quota(world, "consumer_backlog_eviction", limit_s=3600)
    producer, _ = world.produce()
    for number in range(3):
        producer.send(SendHead(0, number), body(publish_time_ms=world.clock.now_ms() - 120 * MINUTE_MS))
    world.settle()
    wait(world, 30 * QUOTA_MS)
    assert backlog(world) == 3
    wait(world, 31 * QUOTA_MS)
    assert backlog(world) == 0


def test_without_a_ttl_nothing_expires() -> None:
    """7.2: the default is 0, which is off; a topic can switch it off for itself too."""
    world = World()
    world.topic().create_subscription("s", EARLIEST)
    world.publish_at(1, 1)
    wait(world, 3 * EXPIRY_MS)
    assert backlog(world) == 2
    drained(world.broker.set_namespace_policies(NamespaceName("public", "default"), Policies(message_ttl_in_seconds=1)))
    set_policies(world, message_ttl_in_seconds=0)
    wait(world, EXPIRY_MS)
    assert backlog(world) == 2


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=30), st.sets(st.integers(0, 29)))
def test_only_the_prefix_of_expired_messages_goes(ages: list[int], acked: set[int]) -> None:
    """7.2 (I7.2): whatever the order of times, mark-delete never passes an unexpired message that is not
    acknowledged, and stands right before the first such one."""
    world = World(ttl_duration_default_in_seconds=10)
    consumer, _ = world.subscribe(SHARED)
    now = world.clock.now_ms() + EXPIRY_MS
    positions = world.publish_at(*(now - age * 1000 for age in ages))
    ack(consumer, *(positions[i] for i in acked if i < len(positions)))
    wait(world, EXPIRY_MS)
    stays = next((i for i, age in enumerate(ages) if age <= 10 and i not in acked), len(ages))
    cursor = world.subscription().cursor
    assert cursor.first_unacked() == world.topic().log.next_valid(positions[stays - 1] if stays else Position(-1, -1))
    world.abandon()


def test_a_backlog_of_large_entries_expires_in_slices() -> None:
    """7.2: what one turn reads is bounded in bytes, too: 500 large ones are gigabytes, and seconds for all others."""
    world = World(ttl_duration_default_in_seconds=1)
    subscription = world.topic().create_subscription("s", EARLIEST)
    world.publish_at(*[1] * 9, size=MIB)
    subscription.expiry.pass_older(2, at_once=True)
    assert (subscription.expiry.running, subscription.expiry.expired.messages) == (True, 4)
    world.settle()
    assert (subscription.expiry.running, subscription.expiry.expired.messages) == (False, 9)


def test_a_long_backlog_expires_in_slices() -> None:
    """7.2: a slice at a time, so that others have their turn, and all of it in the end."""
    world = World(ttl_duration_default_in_seconds=60, managed_ledger_max_entries_per_ledger=1000)
    world.topic().create_subscription("s", EARLIEST)
    world.publish_at(*([1] * 1700))
    expiry = world.subscription().expiry
    expiry.pass_older(2, at_once=True)
    assert backlog(world) == 1200
    assert not expiry.pass_older(2)
    world.settle()
    assert backlog(world) == 0
    assert (expiry.expired.messages, expiry.expired_ms) == (1700, world.clock.now_ms())
    assert expiry.pass_older(2)


@pytest.mark.parametrize("whole_topic", [False, True])
def test_an_expiry_ends_with_its_subscription(monkeypatch: pytest.MonkeyPatch, *, whole_topic: bool) -> None:
    """7.2: one that is under way looks at no more entries, and writes nothing of a cursor that is gone."""
    monkeypatch.setattr(expiry, "_SLICE_ENTRIES", 2)
    world = World()
    world.topic().create_subscription("s", EARLIEST)
    world.publish_at(*[1] * 9)
    subscription = world.subscription()
    subscription.expiry.pass_older(2, at_once=True)
    assert (subscription.expiry.running, subscription.expiry.expired.messages) == (True, 2)
    if whole_topic:
        world.broker.deletion.delete_topic(NAME)
    else:
        world.topic().delete_subscription("s")
    world.settle()
    assert (subscription.expiry.running, subscription.expiry.expired.messages) == (False, 2)


def test_consumers_lose_what_expires_in_their_hands() -> None:
    """7.2 (I2.2, I3.8): expired messages are no longer pending with anybody, and never come again."""
    world = World(ttl_duration_default_in_seconds=60)
    consumer, mailbox = world.subscribe(SHARED)
    late = world.clock.now_ms() + 10 * MINUTE_MS
    positions = world.publish_at(1, 1, 1, late)
    assert mailbox.take() == positions
    consumer.redeliver([positions[0]])
    wait(world, EXPIRY_MS)
    assert consumer.pending.unacked == 1
    mailbox.take()
    consumer.redeliver(None)
    world.settle()
    assert mailbox.take() == [positions[3]]


def test_messages_that_expire_while_they_wait_to_be_sent_again_never_come() -> None:
    """7.2 (I2.1): also those that nobody had room for."""
    world = World(ttl_duration_default_in_seconds=60)
    consumer, mailbox = world.subscribe(SHARED, permits=3)
    late = world.clock.now_ms() + 10 * MINUTE_MS
    positions = world.publish_at(1, 1, late)
    assert mailbox.take() == positions
    consumer.redeliver(None)
    wait(world, EXPIRY_MS)
    consumer.flow(10)
    world.settle()
    assert mailbox.take() == [positions[2]]


def test_consumers_hear_of_an_end_that_expiry_brought() -> None:
    """7.5, 7.2: a terminated topic is over for a subscription when the last message has expired too."""
    world = World(ttl_duration_default_in_seconds=60)
    _, mailbox = world.subscribe(SHARED)
    world.publish_at(1, 1)
    world.topic().terminate(lambda _outcome: None)
    world.settle()
    before = mailbox.ends_told
    wait(world, EXPIRY_MS)
    assert (before, mailbox.ends_told) == (0, 1)


def test_an_expiry_is_durable() -> None:
    """7.2 (I3.1): after a restart the expired messages stay away."""
    world = World(ttl_duration_default_in_seconds=60)
    world.topic().create_subscription("s", EARLIEST)
    world.publish_at(*([1] * 25))
    wait(world, EXPIRY_MS)
    world.restart()
    assert backlog(world) == 0


def test_unused_subscriptions_end() -> None:
    """7.2: after subscriptionExpirationTimeMinutes without a consumer, counted from the last one's leave."""
    world = World()
    consumer, _ = world.subscribe()
    set_policies(world, subscription_expiration_time_minutes=10)
    wait(world, 30 * MINUTE_MS)
    consumer.close()
    wait(world, 10 * MINUTE_MS)
    assert "s" in world.topic().subscriptions
    wait(world, EXPIRY_MS)
    with pytest.raises(SubscriptionNotFoundError):
        world.topic().delete_subscription("s")


def test_a_topic_whose_time_is_0_keeps_its_unused_subscriptions() -> None:
    """7.2, 1.1.5: that is set, and goes over what the broker says, as in Pulsar (there a negative one is none)."""
    world = World(subscription_expiration_time_minutes=10)
    set_policies(world, subscription_expiration_time_minutes=0)
    world.subscribe()[0].close()
    wait(world, 60 * MINUTE_MS)
    assert "s" in world.topic().subscriptions


@pytest.mark.parametrize("crash", [False, True])
def test_the_time_without_consumers_goes_on_over_restarts(crash: bool) -> None:
    """7.2: a broker that is started for each job never runs that long; nobody need use the topic for it either."""
    world = World(subscription_expiration_time_minutes=10)
    world.subscribe()[0].close()
    world.publish(11)
    for _ in range(2):
        assert "s" in world.topic().subscriptions
        world.settle()
        world.crash() if crash else world.restart()
        wait(world, EXPIRY_MS)
    wait(world, EXPIRY_MS)
    assert world.topic().subscriptions == {}


@pytest.mark.parametrize("crash", [False, True])
def test_a_subscription_that_was_used_again_is_counted_anew(crash: bool) -> None:
    """7.2: neither the time before its consumer came counts nor how long the broker was down under that."""
    world = World(subscription_expiration_time_minutes=10)
    world.subscribe()[0].close()
    world.restart()
    world.subscribe()
    world.settle()
    world.crash() if crash else world.restart()
    world.clock.step_wall_clock(30 * MINUTE_MS)
    wait(world, EXPIRY_MS)
    assert "s" in world.topic().subscriptions


@pytest.mark.parametrize("what", ["topic", "subscription"])
def test_what_is_deleted_leaves_no_time_behind(what: str) -> None:
    """7.2: nothing of it stays in the catalogue."""
    world = World(subscription_expiration_time_minutes=10)
    world.subscribe()[0].close()
    topic, metadata = world.topic(), world.store.catalogue
    (row,) = metadata.subscriptions.of_topic(topic.topic_id)
    assert metadata.subscriptions.unused_since(row.id) == world.clock.now_ms()
    if what == "topic":
        world.broker.deletion.delete_topic(topic.name)
    else:
        topic.delete_subscription("s")
    assert metadata.subscriptions.unused_since(row.id) is None


def test_a_subscription_whose_consumers_are_coming_back_from_a_seek_is_not_unused() -> None:
    """7.2, 1.4.6: the broker disconnected them a moment ago, however long the last one had stayed."""
    world = World(subscription_expiration_time_minutes=10)
    consumer, _ = world.subscribe()
    wait(world, 30 * MINUTE_MS)
    consumer.seek_to_time(0, lambda error: None)
    world.broker.upkeep.end_unused_subscriptions()
    assert "s" in world.topic().subscriptions


# -- retention


def ledgers_left(world: World) -> int:
    return len(world.topic().log.ledgers())


def acked_log(world: World, entries: int, size: int) -> None:
    """A log that its only subscription has acknowledged."""
    consumer, _ = world.subscribe(permits=entries)
    positions = world.publish_at(*([world.clock.now_ms()] * entries), size=size)
    ack_through(consumer, positions[-1])
    world.settle()


def test_acknowledged_data_is_kept_for_its_time() -> None:
    """7.1: with one finite limit only that one counts; age is that of a ledger's newest entry."""
    world = World()
    set_policies(world, retention_policies=Retention(10, -1))
    acked_log(world, 25, 10)
    wait(world, 10 * MINUTE_MS)
    assert ledgers_left(world) == 3
    wait(world, RETENTION_MS)
    assert ledgers_left(world) == 1


def test_acknowledged_data_is_kept_up_to_its_size() -> None:
    """7.1: oldest ledgers go while what is left is at least the limit."""
    world = World()
    set_policies(world, retention_policies=Retention(-1, 1))
    acked_log(world, 45, MIB // 20)
    wait(world, RETENTION_MS)
    assert ledgers_left(world) == 3  # 25 of 45 entries are 1.25 MiB
    assert world.topic().log.size_bytes >= MIB


def test_either_limit_is_enough() -> None:
    """7.1: both > 0: delete when either limit is exceeded."""
    world = World()
    set_policies(world, retention_policies=Retention(10, 1))
    acked_log(world, 45, MIB // 20)
    wait(world, RETENTION_MS)
    assert ledgers_left(world) == 3
    wait(world, 12 * MINUTE_MS)
    assert ledgers_left(world) == 1


def test_data_is_kept_for_ever() -> None:
    """7.1: -1/-1 = forever; the default 0/0 lets it go at the next check."""
    world = World()
    set_policies(world, retention_policies=Retention(-1, -1))
    acked_log(world, 25, 10)
    wait(world, 3 * 60 * MINUTE_MS)
    assert ledgers_left(world) == 3
    set_policies(world)
    wait(world, RETENTION_MS)
    assert ledgers_left(world) == 1


def test_what_is_not_acknowledged_stays_whatever_the_retention() -> None:
    """7.1 (I7.1): retention applies to acknowledged data only."""
    world = World()
    set_policies(world, retention_policies=Retention(1, 1))
    consumer, _ = world.subscribe()
    positions = world.publish_at(*([world.clock.now_ms()] * 45), size=MIB // 10)
    ack_through(consumer, positions[14])
    wait(world, 10 * MINUTE_MS)
    assert world.topic().log.ledgers()[0].id == positions[14].ledger


def test_without_a_subscription_the_retention_decides() -> None:
    """7.1: no subscription at all -> retention alone decides; our default keeps what nobody has read, unless a
    retention is set."""
    world = World()
    world.publish_at(*([world.clock.now_ms()] * 25))
    wait(world, RETENTION_MS)
    assert ledgers_left(world) == 3
    set_policies(world, retention_policies=Retention(10, -1))
    wait(world, 12 * MINUTE_MS)
    assert ledgers_left(world) == 1


def test_topics_that_nobody_uses_are_looked_after_too() -> None:
    """7.1, 7.2: after a restart nothing is in memory, yet old data goes and old messages expire."""
    world = World(ttl_duration_default_in_seconds=60)
    world.topic().create_subscription("s", EARLIEST)
    world.publish_at(*([world.clock.now_ms()] * 25))
    world.restart()
    assert world.broker.registry.loaded_topics() == []
    wait(world, RETENTION_MS)
    wait(world, RETENTION_MS)
    assert world.broker.registry.loaded_topics() == []
    assert world.store.catalogue.ledgers.all() == []
    assert backlog(world) == 0


def test_topics_that_nobody_uses_are_looked_after_behind_a_crash_too() -> None:
    """7.1, 7.2: it has left their only ledger open, and nobody opens the topic; what is old goes all the same."""
    world = World(ttl_duration_default_in_seconds=60)
    world.topic().create_subscription("s", EARLIEST)
    world.publish_at(*([world.clock.now_ms()] * 5))
    world.crash()
    for _ in range(2):
        wait(world, RETENTION_MS)
    assert world.broker.registry.loaded_topics() == []
    assert world.store.catalogue.ledgers.all() == []
    assert backlog(world) == 0


def test_topics_that_are_in_use_do_not_keep_others_from_being_looked_after() -> None:
    """7.1, 7.2: a check that has come to a hundred of them goes on to the next one that is not."""
    world, rested = World(), "persistent://public/default/rested"
    busy = [f"persistent://public/default/busy-{number}" for number in range(50)]
    for name in [*busy, rested]:
        world.publish(1, name)
    world.restart()
    for name in busy:
        world.topic(name)
    wait(world, RETENTION_MS)
    assert world.broker.registry.loaded(TopicName.parse(rested)) is not None


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([Retention(*pair) for pair in ((0, 0), (-1, -1), (10, 1), (-1, 1), (5, -1))]),
    st.lists(
        st.one_of(
            st.tuples(st.just("publish"), st.integers(1, 12)),
            st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 60)),
            st.tuples(st.just("wait"), st.integers(1, 20)),
            st.tuples(st.just("crash"), st.integers(0, 9)),
        ),
        max_size=25,
    ),
)
def test_retention_takes_a_prefix_that_everybody_has_acknowledged(
    retention: Retention, steps: list[tuple[str, int]]
) -> None:
    """7.1 (I7.1): for any retention and any history with crashes no durable cursor misses an entry that it has not
    acknowledged, and what is gone is a prefix."""
    world = World()
    set_policies(world, retention_policies=retention)
    names = ("a", "b")
    for name in names:
        world.topic().create_subscription(name, EARLIEST)
    published: list[Position] = []
    for what, number in steps:
        if what == "publish":
            published += world.publish_at(*([world.clock.now_ms()] * number), size=MIB // 8)
        elif what == "wait":
            wait(world, number * MINUTE_MS)
        elif what == "crash":
            world.crash(number)
        elif published:
            world.subscription(what).pass_over(published[min(number, len(published) - 1)])
            world.settle()
        log = world.topic().log
        left = [position for position in published if log.contains(position)]
        assert left == published[len(published) - len(left) :]
        for name in names:
            slowest = world.subscription(name).cursor.mark_delete
            assert all(position in left for position in published if position > slowest)
    world.abandon()


def test_a_long_run_of_damage_does_not_stop_expiry(monkeypatch: pytest.MonkeyPatch) -> None:
    """7.2: entries that cannot be read count as the one after them, however many slices they fill."""
    monkeypatch.setattr(expiry, "_SLICE_ENTRIES", 2)
    world = World(ttl_duration_default_in_seconds=60)
    world.topic().create_subscription("s", EARLIEST)
    positions = world.publish_at(*([world.clock.now_ms()] * 8))
    world.restart()
    path = f"/data/ledgers/{positions[0].ledger}.log"
    at = -1
    for _ in range(5):
        at = world.disk.contents(path).index(b"\x0e\x01", at + 1)
        world.disk.flip_bit(path, 8 * (at + 8))
    world.topic()
    wait(world, EXPIRY_MS)
    assert world.topic().log.contains(positions[7])
    assert backlog(world) == 0


def test_a_visited_topic_that_somebody_uses_stays() -> None:
    """7.1: only what is idle is let go again."""
    world = World(retention_check_interval_in_seconds=60)
    world.topic().create_subscription("s", EARLIEST)
    world.publish_at(*([world.clock.now_ms()] * 25))
    world.restart()
    wait(world, MINUTE_MS)
    _, mailbox = world.subscribe()
    wait(world, 10 * MINUTE_MS)
    assert not mailbox.closed
    assert len(mailbox.deliveries) == 25


# -- backlog quotas


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        ("producer_request_hold", ProducerBlockedQuotaError),
        ("producer_exception", ProducerBlockedQuotaException),
    ],
)
def test_producers_stop_at_a_quota_of_size(policy: str, error: type[Exception]) -> None:
    """7.3: new ones are refused at once, connected ones are sent away by the next check, all may come back later."""
    world = World()
    consumer, mailbox = world.subscribe(EXCLUSIVE)
    set_quota(world, policy, limit_bytes=5000)
    positions = world.publish_at(*([1] * 2), size=1000)
    producer, answers = world.produce()
    positions += world.publish_at(*([1] * 3), size=1000)
    with pytest.raises(error, match="quota"):
        world.produce()
    assert not answers.closed
    wait(world, QUOTA_MS)
    assert answers.closed
    assert producer.closed
    ack_through(consumer, positions[-1])
    wait(world, QUOTA_MS)
    world.produce()
    assert len(mailbox.deliveries) == 5


def test_the_error_tells_a_client_whether_to_wait() -> None:
    """7.3: hold may be tried again without any change, an exception may not."""
    assert ProducerBlockedQuotaError.retriable
    assert not ProducerBlockedQuotaException.retriable


def test_producers_stop_at_a_quota_of_age() -> None:
    """7.3: the age is that of the oldest message that is not acknowledged."""
    world = World()
    consumer, _ = world.subscribe(SHARED)
    set_quota(world, "producer_exception", limit_s=60)
    now = world.clock.now_ms()
    positions = world.publish_at(now, now + 50_000)
    wait(world, 61_000)
    with pytest.raises(ProducerBlockedQuotaException, match="60 s"):
        world.produce()
    ack(consumer, positions[0])
    world.produce()


def test_a_topic_without_subscription_has_no_backlog() -> None:
    """7.3: so no quota holds its producers up."""
    world = World(backlog_quota_default_limit_bytes=10, backlog_quota_default_limit_second=1)
    world.publish_at(*([1] * 5), size=1000)
    world.produce()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 30_000), st.lists(st.integers(1, 3000), min_size=1, max_size=30))
def test_eviction_drops_the_oldest_until_the_quota_holds(limit: int, sizes: Sequence[int]) -> None:
    """7.3: md moves forward until below the limit, and not further than that takes; who is ahead stays there."""
    world = World()
    for name in ("slow", "fast"):
        world.topic().create_subscription(name, EARLIEST)
    positions = [position for size in sizes for position in world.publish_at(1, size=size)]
    fast = world.subscription("fast")
    fast.pass_over(positions[len(positions) // 2])
    ahead = fast.cursor.mark_delete
    set_quota(world, "consumer_backlog_eviction", limit_bytes=limit)
    wait(world, QUOTA_MS)
    log, slow = world.topic().log, world.subscription("slow").cursor.mark_delete
    last = log.last_confirmed
    assert log.bytes_between(slow, last) < max(limit, 1)
    if slow >= positions[0] and limit:
        assert log.bytes_between(log.previous(slow), last) >= limit
    assert fast.cursor.mark_delete == max(ahead, slow)
    world.abandon()


def test_eviction_by_age_drops_what_is_too_old() -> None:
    """7.3: only messages older than the limit, and producers are not held up."""
    world = World()
    _, mailbox = world.subscribe()
    set_quota(world, "consumer_backlog_eviction", limit_s=60)
    now = world.clock.now_ms()
    world.publish_at(now, now, now + 30_000)
    producer, answers = world.produce()
    wait(world, 2 * QUOTA_MS)
    assert backlog(world) == 0
    world.publish_at(world.clock.now_ms())
    wait(world, QUOTA_MS)
    assert backlog(world) == 1
    assert not answers.closed
    assert not producer.closed
    assert not mailbox.closed


def test_a_policy_that_is_taken_back_lets_producers_in() -> None:
    """7.3, 1.1.5: at once, without a restart."""
    world = World()
    world.topic().create_subscription("s", EARLIEST)
    world.publish_at(*([1] * 5), size=1000)
    set_quota(world, "producer_request_hold", limit_bytes=0)
    with pytest.raises(ProducerBlockedQuotaError):
        world.topic().add_producer(ProducerRequest(), Answers())
    set_policies(world)
    world.produce()


def test_a_run_is_over_when_all_of_it_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """7.2, 3.6.2: whoever waits hears of the last slice, and once that survives a crash; or that nobody knows."""
    monkeypatch.setattr(expiry, "_SLICE_ENTRIES", 2)
    world = World()
    world.topic().create_subscription("s", EARLIEST)
    world.publish_at(*([1] * 7))
    told: list[ServerError | None] = []
    assert world.topic().expire(world.subscription(), 1, at_once=True, on_done=told.append)
    while not told:
        before = world.disk.crash(policy="none")
        world.clock.run_due()
        world.commit_once()
    assert told == [None]
    assert backlog(World(world.settings, before)) > 0
    assert backlog(World(world.settings, world.disk.crash(policy="none"))) == 0


def test_a_run_that_ends_with_its_topic_is_told_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """7.2: some are passed over and some are not."""
    monkeypatch.setattr(expiry, "_SLICE_ENTRIES", 2)
    world = World()
    world.topic().create_subscription("s", EARLIEST)
    world.publish_at(*([1] * 7))
    told: list[ServerError | None] = []
    assert world.topic().expire(world.subscription(), 1, at_once=True, on_done=told.append)
    world.broker.unload(world.topic().name)
    world.settle()
    assert [type(each) for each in told] == [ServiceNotReadyError]
