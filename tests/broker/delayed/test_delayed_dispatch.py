# SPDX-License-Identifier: Apache-2.0
"""Delayed delivery through a whole broker: who holds messages back, and what else happens to them meanwhile."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import msgspec
import pytest

from broker_core.base.errors import NotAllowedError
from broker_core.base.names import NamespaceName, TopicName
from broker_core.base.policies import DelayedDelivery, Policies
from broker_core.base.positions import Position
from broker_core.base.steps import drained
from broker_core.broker.delayed import tracker
from broker_core.broker.requests import AccessMode, SubscriptionType
from broker_core.storage.check import verify_directory
from broker_core.wire.heads import SendHead
from tests.broker.delayed.entries import delayed_body, publish_delayed
from tests.broker.test_key_shared import HIGH, LOW, KeyWorld
from tests.broker.world import (
    EARLIEST,
    EXCLUSIVE,
    FAILOVER,
    LATEST,
    SHARED,
    SMALL,
    TOPIC,
    World,
    ack,
    subscription_stats,
)

KEY_SHARED = SubscriptionType.KEY_SHARED
IN_MEMORY = "org.apache.pulsar.broker.delayed.InMemoryDelayedDeliveryTrackerFactory"
TINY = msgspec.structs.replace(
    SMALL,
    is_delayed_delivery_deliver_at_time_strict=True,
    delayed_delivery_tick_time_millis=1,
    delayed_delivery_min_index_count_per_bucket=4,
    delayed_delivery_max_indexes_per_bucket_snapshot_segment=2,
)


@pytest.fixture(params=["bucket", "in memory"])
def world(request: pytest.FixtureRequest) -> World:
    """A broker with either tracker."""
    more = {} if request.param == "bucket" else {"delayed_delivery_tracker_factory_class_name": IN_MEMORY}
    return World(msgspec.structs.replace(TINY, **more))


def later(world: World, *delays_ms: int) -> list[int]:
    return [world.clock.now_ms() + delay for delay in delays_ms]


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_they_come_at_their_time(world: World, kind: SubscriptionType) -> None:
    """6.1.1, 6.1.2, 6.2.2, 6.2.3 (I6.1): not before, and without anybody asking."""
    a, b, c, d = publish_delayed(world, [*later(world, 3000, 1000), 0, *later(world, 2000)])
    _, mailbox = world.subscribe(kind)
    world.settle()
    assert mailbox.take() == [c]
    for expected in (b, d, a):
        world.clock.advance(999)
        assert mailbox.take() == []
        world.clock.advance(1)
        assert mailbox.take() == [expected]


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER])
def test_exclusive_and_failover_deliver_at_once(world: World, kind: SubscriptionType) -> None:
    """6.1.2 (I6.10): in order, as if there were no delay."""
    published = publish_delayed(world, [*later(world, 3000, 1000), 0])
    _, mailbox = world.subscribe(kind)
    world.settle()
    assert mailbox.take() == published


def test_switched_off_nothing_is_held_back() -> None:
    """6.1.2: delayedDeliveryEnabled=false."""
    world = World(delayed_delivery_enabled=False)
    published = publish_delayed(world, later(world, 3000))
    _, mailbox = world.subscribe(SHARED)
    world.settle()
    assert mailbox.take() == published


def test_without_strictness_one_may_come_a_tick_early() -> None:
    """6.1.3 (I6.1): but no earlier than that."""
    world = World(delayed_delivery_tick_time_millis=1000)
    (position,) = publish_delayed(world, later(world, 5000))
    _, mailbox = world.subscribe(SHARED)
    world.settle()
    world.clock.advance(3999)
    assert mailbox.take() == []
    world.clock.advance(2001)
    assert mailbox.take() == [position]
    assert publish_delayed(world, later(world, 900)) == mailbox.take()


def test_equal_times_come_by_position(world: World) -> None:
    """6.1.4: and earlier times before them."""
    published = publish_delayed(world, later(world, *[1000] * 15, 500))
    _, mailbox = world.subscribe(SHARED)
    world.settle()
    world.clock.advance(1000)
    assert mailbox.take() == [published[-1], *published[:-1]]


def test_time_to_live_counts_from_publishing(world: World) -> None:
    """6.1.5, 6.1.7: a message may expire, be skipped or cleared before it is due, and never comes then."""
    published = publish_delayed(world, later(world, 5000, 6000, 4000))
    _, mailbox = world.subscribe(SHARED)
    world.settle()
    world.subscription().pass_over(published[1])
    world.clock.advance(10_000)
    assert mailbox.take() == published[2:]
    assert world.subscription().dispatcher.stats().delayed_entries == 0


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_what_was_cleared_is_not_counted(world: World, kind: SubscriptionType) -> None:
    """6.1.7, 6.2.4: what comes later is; a part of it that was skipped is counted until it is due, as in Pulsar."""
    first = publish_delayed(world, later(world, *range(5000, 5010)))
    world.subscribe(kind)
    world.settle()
    assert world.subscription().dispatcher.stats().delayed_entries == 10
    for early in (first[3], first[9]):
        world.subscription().pass_over(early)
    assert world.subscription().dispatcher.stats().delayed_entries == 0
    publish_delayed(world, later(world, 7000, 8000))
    world.settle()
    for at, expected in ((0, 2), (5100, 2), (1900, 1), (1000, 0)):
        world.clock.advance(at)
        assert world.subscription().dispatcher.stats().delayed_entries == expected


def test_after_clearing_what_was_held_back_new_messages_come_at_once() -> None:
    """6.3.2, 6.1.7 (I6.12): reading pauses for nothing that is gone."""
    world = World(
        TINY, delayed_delivery_tracker_factory_class_name=IN_MEMORY, delayed_delivery_fixed_delay_detection_lookahead=3
    )
    _, mailbox = world.subscribe(SHARED)
    published = publish_delayed(world, later(world, *[60_000] * 4))
    world.settle()
    world.subscription().pass_over(published[-1])
    fresh = world.publish(1)
    assert mailbox.take() == fresh


def test_messages_without_delay_are_not_held_up_by_those_with_equal_delays() -> None:
    """6.3.2 (I6.12): among messages of both kinds nobody knows what the next one is, so reading never pauses."""
    world = World(
        TINY, delayed_delivery_tracker_factory_class_name=IN_MEMORY, delayed_delivery_fixed_delay_detection_lookahead=3
    )
    _, mailbox = world.subscribe(SHARED)
    for delays_ms in ([60_000], [0], [60_000] * 3, [0]):
        at_once = publish_delayed(world, [world.clock.now_ms() + each if each else 0 for each in delays_ms])
        assert mailbox.take() == (at_once if delays_ms == [0] else [])


def test_a_longer_delay_than_allowed_is_refused() -> None:
    """6.1.6: up to the limit it is taken."""
    world = World(delayed_delivery_max_delay_in_millis=10_000)
    producer, answers = world.produce()
    for number, delay in enumerate((10_000, 10_001)):
        producer.send(SendHead(0, number), delayed_body(world.clock.now_ms() + delay))
    world.settle()
    assert [number for number, _ in answers.receipts] == [0]
    ((number, error),) = answers.errors
    assert (number, type(error)) == (1, NotAllowedError)
    assert "delayedDeliveryMaxDelayInMillis" in str(error)


def test_one_that_waits_is_held_by_nobody_and_stays_in_the_backlog(world: World) -> None:
    """6.2.1, 6.2.4: it costs no permit and no unacked message; statistics count it; mark-delete cannot pass it."""
    published = publish_delayed(world, [*later(world, 9000), 0, 0])
    consumer, mailbox = world.subscribe(SHARED, permits=10)
    world.settle()
    assert mailbox.take() == published[1:]
    ack(consumer, *published[1:])
    stats = subscription_stats(world.subscription())
    assert (stats.msg_delayed, stats.msg_backlog, stats.unacked_messages) == (1, 1, 0)
    assert consumer.permits == 8
    assert world.subscription().cursor.mark_delete < published[0]


def test_what_was_acknowledged_before_is_not_counted(world: World) -> None:
    """6.2.4: neither by a subscription that began behind it, nor after a restart or a seek; due ones count no more."""

    def counted(name: str = "s") -> tuple[int, int, int]:
        stats = subscription_stats(world.subscription(name))
        return stats.msg_delayed, stats.msg_backlog, stats.msg_backlog_no_delayed

    published = publish_delayed(world, later(world, *range(10_000, 10_030)))
    world.subscribe(SHARED)
    world.settle()
    world.subscribe(SHARED, "late", initial_position=LATEST)
    world.publish(3)
    assert (counted(), counted("late")) == ((30, 33, 3), (0, 3, 3))
    world.subscription().pass_over(published[12])
    world.restart()
    world.subscribe(SHARED)
    world.settle()
    assert counted() == (17, 20, 3)
    for place, expected in ((published[25], (5, 8, 3)), (published[0], (30, 33, 3))):
        world.subscription().seek(place, None, lambda error: None)
        world.subscribe(SHARED)
        world.settle()
        assert counted() == expected
    world.clock.advance(10_004)
    world.settle()
    assert counted() == (25, 33, 8)
    world.subscription().seek(published[10], None, lambda error: None)
    world.subscribe(SHARED)
    world.settle()
    assert counted() == (20, 23, 3)
    world.clock.advance(20_000)
    world.settle()
    assert counted() == (0, 23, 23)


def test_due_ones_go_before_new_ones(world: World) -> None:
    """6.2.2, 6.1.4: when permits come, what is due is sent first."""
    (delayed,) = publish_delayed(world, later(world, 1000))
    consumer, mailbox = world.subscribe(SHARED, permits=1)
    world.settle()
    (filler, new) = publish_delayed(world, [0, 0])
    assert mailbox.take() == [filler]
    world.clock.advance(1000)
    consumer.flow(1)
    world.settle()
    assert mailbox.take() == [delayed]
    consumer.flow(1)
    world.settle()
    assert mailbox.take() == [new]


def test_a_restart_loses_nothing_and_repeats_nothing_that_was_acknowledged(world: World) -> None:
    """6.2.5, 6.4.6 (I6.7): what waits goes on waiting, what fell due meanwhile comes at once."""
    published = publish_delayed(world, later(world, *range(1000, 13_000, 1000)))
    consumer, mailbox = world.subscribe(SHARED)
    world.settle()
    world.clock.advance(3000)
    ack(consumer, *mailbox.take())
    world.settle()
    world.restart()
    world.clock.advance(2000)
    _, mailbox = world.subscribe(SHARED)
    world.settle()
    assert mailbox.take() == published[3:5]
    assert world.subscription().dispatcher.stats().delayed_entries == 7
    world.clock.advance(20_000)
    assert mailbox.take() == published[5:]


def test_a_clock_that_jumps_makes_nothing_early_lost_or_twice(world: World) -> None:
    """6.2.2 (I6.1, I6.5): set back, what was about to come waits again; set forward, it comes a little later."""
    published = publish_delayed(world, later(world, 2000, 3_600_000))
    consumer, mailbox = world.subscribe(SHARED, permits=0)
    world.settle()
    world.clock.advance(2500)
    world.clock.step_wall_clock(-2000)
    consumer.flow(10)
    world.settle()
    assert mailbox.take() == []
    world.clock.advance(1500)
    world.settle()
    assert mailbox.take() == published[:1]
    world.clock.step_wall_clock(3_600_000)
    world.clock.advance(10_000)  # long before timers would say that an hour has passed
    assert mailbox.take() == published[1:]


def test_a_longest_delay_holds_for_producers_that_waited_when_it_was_set() -> None:
    """6.1.6, 6.1.9, 1.7.4: they are the topic's as those are that write to it."""
    world = World()
    first, _ = world.produce(access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
    waiting, answers = world.produce(access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
    settings = msgspec.structs.replace(world.settings, delayed_delivery_max_delay_in_millis=10_000)
    world.topic().apply(settings, world.topic().quotas)
    first.close()
    waiting.send(SendHead(0, 0), delayed_body(world.clock.now_ms() + 11_000))
    world.settle()
    assert [type(error) for _, error in answers.errors] == [NotAllowedError]


def test_a_seek_forgets_what_was_held_back(world: World) -> None:
    """6.4.7, 1.4.6: the subscription begins anew at its new place, and each message keeps its time."""
    published = publish_delayed(world, later(world, 5000, 6000, 7000, 8000, 9000))
    consumer, mailbox = world.subscribe(SHARED)
    world.settle()
    consumer.seek(published[3], None, lambda error: None)
    world.settle()
    assert mailbox.closed
    _, mailbox = world.subscribe(SHARED)
    world.settle()
    world.clock.advance(20_000)
    assert mailbox.take() == published[3:]


def test_unsubscribing_drops_what_waits(world: World) -> None:
    """6.4.7: a later subscription of the same name knows nothing of it."""
    published = publish_delayed(world, later(world, 5000, 6000))
    consumer, _mailbox = world.subscribe(SHARED)
    world.settle()
    consumer.unsubscribe(lambda error: None)
    _, mailbox = world.subscribe(SHARED, name="d")
    world.settle()
    world.clock.advance(20_000)
    assert mailbox.take() == published


def test_a_deleted_topic_leaves_no_bucket() -> None:
    """6.4.4, 6.4.7: whether its index is in use or not."""
    world = World(TINY)
    publish_delayed(world, later(world, *range(1000, 30_000, 1000)))
    world.subscribe(SHARED)
    world.settle()
    topic = world.topic()
    assert world.store.buckets.numbers(topic.topic_id)
    world.broker.deletion.delete_topic(topic.name, force=True)
    world.settle()
    assert world.disk.list_dir("/data/delayed") == []


def test_one_delayed_message_can_be_cancelled(world: World) -> None:
    """6.1.7: it is acknowledged before its time; the others are not touched."""
    published = publish_delayed(world, later(world, 1000, 2000, 3000))
    _, mailbox = world.subscribe(SHARED)
    world.settle()
    assert world.subscription().cancel(published[1])
    assert not world.subscription().cancel(published[1])
    assert not world.subscription().cancel(Position(99, 0))
    world.clock.advance(5000)
    assert mailbox.take() == [published[0], published[2]]


def test_redelivered_ones_are_not_held_back_again(world: World) -> None:
    """6.2.2 (I6.5): its time has come once and for all."""
    published = publish_delayed(world, later(world, 1000))
    consumer, mailbox = world.subscribe(SHARED)
    world.settle()
    world.clock.advance(1000)
    assert mailbox.take() == published
    consumer.redeliver(None)
    world.settle()
    assert mailbox.take() == published


def test_two_subscriptions_share_the_index_and_get_all_of_it() -> None:
    """6.5 (I6.11): each at its own pace, also one that comes much later."""
    world = World(TINY)
    published = publish_delayed(world, later(world, *range(1000, 30_000, 1000)))
    _, first = world.subscribe(SHARED, "first")
    world.settle()
    world.topic().create_subscription("second", EARLIEST)
    world.clock.advance(10_000)
    assert first.take() == published[:10]
    consumer, second = world.subscribe(SHARED, "second", permits=5)
    world.settle()
    assert len(second.take()) == 5
    consumer.flow(100)
    world.clock.advance(30_000)
    assert sorted(second.positions) == published[5:]
    assert first.take() == published[10:]


def test_chunks_carry_the_time_of_their_message(world: World) -> None:
    """6.1.8: each of them is held back like any other entry, and they come together, in order."""
    at = world.clock.now_ms() + 1000
    producer, answers = world.produce(TOPIC)
    for number in range(3):
        producer.send(SendHead(0, 0, is_chunk=True), delayed_body(at, str(number)))
    world.settle()
    _, mailbox = world.subscribe(SHARED)
    world.settle()
    assert mailbox.take() == []
    world.clock.advance(1000)
    assert mailbox.take() == [position for _, position in answers.receipts]


def test_the_doctor_looks_at_buckets() -> None:
    """6.4.6: damage to one is worth a note and no problem, for nothing is lost."""
    world = World(TINY)
    publish_delayed(world, later(world, *range(1000, 25_000, 1000)))
    world.subscribe(SHARED)
    world.settle()
    world.broker.close()
    world.settle()
    world.store.close()
    damaged, *others = world.disk.list_dir("/data/delayed")
    world.disk.open(f"/data/delayed/{damaged}").write(70, [b"?"])
    report = verify_directory(world.disk, "/data")
    notes = {file.path: file.notes for file in report.files if file.kind == "bucket"}
    assert report.ok
    assert len(notes) == 1 + len(others)
    assert [path for path, texts in notes.items() if texts] == [f"/data/delayed/{damaged}"]
    world.open()


def test_a_bucket_that_is_being_written_when_the_topic_is_unloaded_holds_nothing_twice() -> None:
    """6.4.1.2, 6.4.6 (I6.5): whoever reads the entries again before it is there does not find it afterwards."""
    world = World(TINY)
    published = publish_delayed(world, later(world, *range(5000, 5030)))
    world.subscribe(SHARED)
    for _ in range(3):
        world.broker.unload(TopicName.parse(TOPIC))
        _, mailbox = world.subscribe(SHARED)
        world.settle()
        assert world.subscription().dispatcher.stats().delayed_entries == len(published)
    world.clock.advance(10_000)
    assert mailbox.take() == published
    assert world.subscription().dispatcher.stats().delayed_entries == 0


def test_a_damaged_bucket_is_made_again_from_the_log() -> None:
    """6.4.3.4, 6.4.6 (I6.5): damage that is found while a segment is loaded costs no message."""
    world = World(TINY)
    published = publish_delayed(world, later(world, *range(1000, 25_000, 1000)))
    _, mailbox = world.subscribe(SHARED)
    world.settle()
    index = world.topic().delays.index
    assert index is not None
    for bucket in index.buckets:
        file = world.disk.open(f"/data/delayed/{world.topic().topic_id}-{bucket.number}.bucket")
        file.write(64, [b"\xff" * (bucket.total * 12)])
    world.clock.advance(30_000)
    assert mailbox.take() == published


def test_a_consumer_without_permits_does_not_hold_up_what_is_due_for_others() -> None:
    """6.2.2, 2.11.4: however many entries of its keys wait, due ones of other keys go out."""
    world = KeyWorld(is_delayed_delivery_deliver_at_time_strict=True, dispatcher_max_read_batch_size=5)
    _, stuck = world.join("C1", 1)
    _, mailbox = world.join("C2", 100)
    published = publish_delayed(world, later(world, 1000), key=LOW)
    world.send(*[HIGH] * 20)
    assert len(stuck.take()) == 1
    world.clock.advance(2000)
    assert mailbox.take() == published


@pytest.mark.parametrize("entries_due_before", [0, 10])
def test_a_newcomer_and_what_it_waits_for_do_not_wait_for_each_other(entries_due_before: int) -> None:
    """2.9.1.2, 2.9.1.3, 6.2.2: entries that wait for it fill the look-ahead, and it waits for one that is delayed."""
    world = KeyWorld(
        is_delayed_delivery_deliver_at_time_strict=True,
        subscription_key_shared_use_classic_persistent_implementation=True,
        key_shared_look_ahead_msg_in_replay_threshold_per_consumer=2,
        dispatcher_max_read_batch_size=5,
    )
    _, mailbox = world.join("C1")
    (first,) = publish_delayed(world, later(world, 2000), key=LOW)
    newcomer, its_mailbox = world.join("C2")
    behind = publish_delayed(world, later(world, *[1000] * entries_due_before), key=LOW)
    behind += world.send(*[LOW] * 10)
    world.clock.advance(5000)
    assert (its_mailbox.take(), mailbox.take()) == ([first], [])
    ack(newcomer, first)
    world.settle()
    world.clock.advance(5000)
    assert sorted(its_mailbox.take()) == behind


def test_what_the_disk_refuses_for_a_moment_is_not_forgotten() -> None:
    """6.4.3.4, 6.4.6 (I6.5): neither a bucket nor the log behind it can be read while its entries fall due."""
    world = World(TINY, managed_ledger_cache_size_mbytes=0)
    _, before = world.subscribe(SHARED)
    published = publish_delayed(world, later(world, *range(1000, 25_000, 1000)))
    world.disk.fail(1, forever=True, kinds=("read",))
    world.clock.advance(30_000)
    assert before.take() == []
    world.disk.heal()
    assert before.closed, "its client comes again"
    _, mailbox = world.subscribe(SHARED)
    world.clock.advance(30_000)
    world.settle()
    assert sorted(mailbox.take()) == published
    assert world.subscription().dispatcher.stats().delayed_entries == 0


def damage_all_parts(world: World) -> None:
    """Everything in all buckets but their headers and trailers."""
    index = world.topic().delays.index
    assert index is not None
    assert len(index.buckets) > 1
    for bucket in index.buckets:
        file = world.disk.open(f"/data/delayed/{world.topic().topic_id}-{bucket.number}.bucket")
        file.write(64, [b"\xff" * (file.size() - 64 - 96)])


def test_several_damaged_buckets_are_made_again_from_the_log() -> None:
    """6.4.3.4, 6.4.6 (I6.5): also if damage to one is found while another one is made again."""
    world = World(TINY, managed_ledger_max_entries_per_ledger=100, dispatcher_max_read_batch_size=4)
    published = publish_delayed(world, later(world, *range(1000, 25_000, 1000)))
    _, mailbox = world.subscribe(SHARED)
    world.settle()
    damage_all_parts(world)
    world.clock.advance(30_000)
    assert mailbox.take() == published


def test_a_damaged_bucket_does_not_get_in_the_way_of_merging() -> None:
    """6.4.5, 6.4.6 (I6.9): the merge makes it again."""
    world = World(TINY, delayed_delivery_max_num_buckets=3)
    _, mailbox = world.subscribe(SHARED)
    published = publish_delayed(world, later(world, *range(1000, 25_000, 1000)))
    damage_all_parts(world)
    published += publish_delayed(world, later(world, *range(25_000, 60_000, 1000)))
    world.clock.advance(70_000)
    assert mailbox.take() == published


def test_what_is_due_and_finds_no_room_does_not_keep_the_broker_busy(world: World) -> None:
    """6.2.3: nor does a policy with a tick of 0; permits wake the dispatcher anyway."""
    drained(
        world.broker.set_namespace_policies(
            NamespaceName("public", "default"),
            Policies(delayed_delivery_policies=DelayedDelivery(active=True, tick_ms=0)),
        )
    )
    published = publish_delayed(world, later(world, *[1000] * 10))
    consumer, mailbox = world.subscribe(SHARED, permits=3)
    world.clock.advance(2000)
    assert world.clock.run_due() < 100
    assert mailbox.take() == published[:3]
    consumer.flow(7)
    world.settle()
    assert mailbox.take() == published[3:]


def set_delays(world: World, active: bool, tick_ms: int = 1) -> None:
    """As the admin REST does."""
    delays = DelayedDelivery(active, tick_ms)
    drained(world.broker.set_topic_policies(TopicName.parse(TOPIC), Policies(delayed_delivery_policies=delays)))
    world.settle()


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_switched_off_what_is_read_from_then_on_comes_at_once(world: World, kind: SubscriptionType) -> None:
    """6.1.9: what was held back keeps its time, and nothing comes twice."""
    (held,) = publish_delayed(world, later(world, 3000))
    consumer, mailbox = world.subscribe(kind, permits=1)
    world.settle()
    set_delays(world, active=False)
    assert publish_delayed(world, later(world, 9000)) == mailbox.take()
    consumer.flow(100)
    world.clock.advance(2999)
    assert (mailbox.take(), world.subscription().dispatcher.stats().delayed_entries) == ([], 1)
    world.clock.advance(1)
    assert (mailbox.take(), world.subscription().dispatcher.stats().delayed_entries) == ([held], 0)
    world.clock.advance(20_000)
    assert mailbox.take() == []


def test_switched_off_nothing_is_remembered_of_what_comes_at_once(world: World) -> None:
    """6.1.9: of 3,000 entries, due in a day and acknowledged at once, nothing stays in memory until then."""
    consumer, mailbox = world.subscribe(SHARED, permits=100_000)
    publish_delayed(world, later(world, 1000))
    set_delays(world, active=False)
    tracemalloc.start()
    try:
        for _ in range(10):
            publish_delayed(world, later(world, *range(86_400_000, 86_400_300)))
            ack(consumer, *mailbox.take())
            world.settle()
        delays = [tracemalloc.Filter(True, f"{Path(tracker.__file__).parent}/*")]
        kept = tracemalloc.take_snapshot().filter_traces(delays).statistics("lineno")
    finally:
        tracemalloc.stop()
    assert sum(each.size for each in kept) < 10_000, kept


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_what_another_subscription_indexes_later_does_not_come_again(world: World, kind: SubscriptionType) -> None:
    """6.1.9: one subscription was sent it while delays were off, another holds it back after that."""
    set_delays(world, active=True)
    first, mailbox = world.subscribe(kind, permits=3)
    second, others = world.subscribe(kind, "other", permits=0)
    held = publish_delayed(world, later(world, 1000))
    set_delays(world, active=False)
    at_once = publish_delayed(world, later(world, *range(2000, 6000, 1000)))
    assert mailbox.take() == at_once[:3]
    first.redeliver(at_once[:1])
    set_delays(world, active=True)
    first.flow(100)
    second.flow(100)
    world.settle()
    assert (mailbox.take(), others.take(), world.subscription().dispatcher.stats().delayed_entries) == ([], [], 3)
    world.clock.advance(20_000)
    assert mailbox.take() == [*held, at_once[0], at_once[3]]
    assert others.take() == held + at_once
    assert (
        world.subscription().dispatcher.stats().delayed_entries
        == world.subscription("other").dispatcher.stats().delayed_entries
        == 0
    )


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_switched_on_again_what_has_not_come_yet_waits(world: World, kind: SubscriptionType) -> None:
    """6.1.9: and comes once at its time; what is asked for again waits, too."""
    set_delays(world, active=False)
    published = publish_delayed(world, later(world, *range(1000, 13_000, 1000)))
    consumer, mailbox = world.subscribe(kind, permits=3)
    world.settle()
    assert mailbox.take() == published[:3]
    set_delays(world, active=True)
    ack(consumer, published[0])
    consumer.redeliver([published[1]])
    consumer.flow(100)
    world.settle()
    assert mailbox.take() == []
    world.clock.advance(3000)
    assert mailbox.take() == [published[1]]
    world.clock.advance(20_000)
    assert mailbox.take() == published[3:]


def test_switched_on_what_is_sent_from_now_on_waits(world: World) -> None:
    """6.1.9: nobody has to leave first."""
    set_delays(world, active=False)
    _, mailbox = world.subscribe(SHARED)
    (at_once,) = publish_delayed(world, later(world, 5000))
    set_delays(world, active=True)
    (delayed,) = publish_delayed(world, later(world, 5000))
    assert mailbox.take() == [at_once]
    world.clock.advance(5000)
    assert mailbox.take() == [delayed]


def test_a_longer_tick_lets_go_of_what_is_early_by_less(world: World) -> None:
    """6.1.9, 6.1.3: at once, and a shorter one holds back again what has not been sent."""
    world = World(world.settings, is_delayed_delivery_deliver_at_time_strict=False)
    published = publish_delayed(world, later(world, 2000, 2500, 9000))
    consumer, mailbox = world.subscribe(SHARED, permits=1)
    world.settle()
    set_delays(world, active=True, tick_ms=3000)
    assert mailbox.take() == published[:1]
    set_delays(world, active=True, tick_ms=1)
    consumer.flow(10)
    world.settle()
    assert mailbox.take() == []
    world.clock.advance(2500)
    assert mailbox.take() == published[1:2]
    world.clock.advance(7000)
    assert mailbox.take() == published[2:]


def test_a_longest_delay_binds_producers_that_are_connected_already() -> None:
    """6.1.9, 6.1.6."""
    world = World()
    producer, answers = world.produce()
    delays = DelayedDelivery(active=True, delay_max_ms=1000)
    drained(world.broker.set_topic_policies(TopicName.parse(TOPIC), Policies(delayed_delivery_policies=delays)))
    producer.send(SendHead(0, 0), delayed_body(world.clock.now_ms() + 1001))
    world.settle()
    assert [type(error) for _, error in answers.errors] == [NotAllowedError]


def test_entries_of_a_lost_ledger_are_counted_once() -> None:
    """7.1, 6.4.1 [autoSkipNonRecoverableData] The index goes on to give them; each of them is damaged by itself."""
    world = World(TINY, managed_ledger_max_entries_per_ledger=1000, auto_skip_non_recoverable_data=True)
    consumer, _ = world.subscribe(SHARED)
    positions = publish_delayed(world, later(world, *range(5000, 5300)))
    world.settle()
    consumer.close()
    world.restart()
    world.disk.unlink(f"/data/ledgers/{positions[0].ledger}.log")
    world.disk.sync_dir("/data/ledgers")
    world.crash()
    world.subscribe(SHARED)
    world.settle()
    assert world.subscription().reader.damaged_entries < len(positions)
    world.clock.advance(10_000)
    assert world.subscription().cursor.mark_delete == positions[-1]
    assert world.subscription().reader.damaged_entries == len(positions)
