# SPDX-License-Identifier: Apache-2.0
"""Entries that are damaged on disk are never delivered and never forgotten in silence."""

from __future__ import annotations

import logging
import re

import pytest

from broker_core.base.errors import PersistenceServerError, ServerError
from broker_core.base.positions import Position
from broker_core.broker.requests import AckId, AckKind, SubscriptionType
from tests.broker.world import EXCLUSIVE, SHARED, TOPIC, World, ack, subscription_stats, topic_stats


def damaged(world: World, entry: int = 2) -> list[Position]:
    """Publish six entries, stop, and damage one of them."""
    positions = world.publish(6)
    world.subscribe()[0].close()
    world.restart()
    path = f"/data/ledgers/{positions[0].ledger}.log"
    at = world.disk.contents(path).index(b"p\x10\x00", 0)
    for _ in range(entry):
        at = world.disk.contents(path).index(b"p\x10\x00", at + 1)
    world.disk.flip_bit(path, 8 * at)
    return positions


def test_a_subscription_stops_in_front_of_damage(caplog: pytest.LogCaptureFixture) -> None:
    """7.1 [reliability] What is before it is delivered; the log and the statistics say where it stands."""
    world = World()
    positions = damaged(world)
    with caplog.at_level(logging.ERROR):
        consumer, mailbox = world.subscribe()
        world.settle()
        consumer.flow(1)
        world.settle()
    assert mailbox.positions == positions[:2]
    stats = subscription_stats(world.subscription())
    assert (stats.stopped_at_damaged_entry, stats.damaged_entries) == (str(positions[2]), 1)
    assert "stopped at damaged entry" in caplog.text
    consumer.close()
    _, mailbox = world.subscribe()
    world.settle()
    assert mailbox.positions == positions[:2]
    assert world.subscription().reader.damaged_entries == 2


def test_a_topic_that_is_made_anew_has_none_of_the_damage_of_the_former_one() -> None:
    """7.15 Its statistics tell its own; the health check goes on telling what was found, and of which topic."""
    world = World()
    damaged(world)
    world.subscribe()
    world.settle()
    assert len(topic_stats(world.topic()).damages) == 1
    world.broker.deletion.delete_topic(world.topic().name, force=True)
    world.settle()
    world.publish(1)
    assert topic_stats(world.topic()).damages == []
    assert [damage.topic for damage in world.broker.damages] == [f"{TOPIC}, which was deleted"]


def test_a_seek_behind_it_goes_on() -> None:
    """7.1 [reliability] An operator decides to leave it behind."""
    world = World()
    positions = damaged(world)
    consumer, _ = world.subscribe()
    consumer.seek(positions[3], None, lambda _error: None)
    _, mailbox = world.subscribe()
    world.settle()
    assert mailbox.positions == positions[3:]


@pytest.mark.parametrize(
    ("kind", "how"),
    [(EXCLUSIVE, "one"), (EXCLUSIVE, "through"), (EXCLUSIVE, "cancel"), (SHARED, "one"), (SHARED, "cancel")],
)
def test_acknowledging_it_goes_on(kind: SubscriptionType, how: str) -> None:
    """3.3.4, 3.5.1: whoever knows its id says so; nobody has to connect again."""
    world = World()
    positions = damaged(world)
    consumer, mailbox = world.subscribe(kind)
    world.settle()
    assert mailbox.take() == positions[:2]
    if how == "cancel":
        assert world.subscription().cancel(positions[2])
    else:
        consumer.ack(AckKind.INDIVIDUAL if how == "one" else AckKind.CUMULATIVE, [AckId(positions[2])], None)
    world.settle()
    assert mailbox.take() == positions[3:]


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED])
def test_a_reader_goes_on_when_retention_has_deleted_it(kind: SubscriptionType) -> None:
    """7.1, 3.6.7 [reliability] A non-durable subscription keeps nothing, and is not held up by what is gone."""
    world = World()
    damaged(world)
    _, mailbox = world.subscribe(kind, "reader", durable=False)
    fresh = world.publish(1)
    world.settle()
    assert len(mailbox.take()) == 2
    world.subscription().pass_over(fresh[0])
    world.clock.advance(world.settings.retention_check_interval_in_seconds * 1000)
    world.settle()
    assert world.topic().log.first_position.ledger == fresh[0].ledger
    assert mailbox.take() == fresh


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED])
def test_it_can_be_skipped_by_setting(kind: SubscriptionType, caplog: pytest.LogCaptureFixture) -> None:
    """7.1 [autoSkipNonRecoverableData] It counts as acknowledged, durably, and is reported."""
    world = World(auto_skip_non_recoverable_data=True)
    positions = damaged(world)
    consumer, mailbox = world.subscribe(kind)
    world.settle()
    assert mailbox.positions == positions[:2] + positions[3:]
    assert "damaged entry skipped" in caplog.text
    ack(consumer, *mailbox.positions)
    world.settle()
    world.crash(policy="none")
    assert world.subscription().cursor.mark_delete == positions[5]


def test_an_entry_that_is_damaged_before_it_is_sent_again() -> None:
    """4.4.1 A redelivery that cannot be read does not hold up the others."""
    world = World(managed_ledger_cache_size_mbytes=0)
    positions = world.publish(4)
    consumer, mailbox = world.subscribe(SHARED, permits=4)
    world.settle()
    path = f"/data/ledgers/{positions[0].ledger}.log"
    contents = world.disk.contents(path)
    at = contents.index(b"p\x10\x00", contents.index(b"p\x10\x00") + 1)
    world.disk.flip_bit(path, 8 * at)
    mailbox.take()
    consumer.redeliver(None)
    consumer.flow(10)
    world.settle()
    assert mailbox.take() == [positions[0], *positions[2:]]
    later = world.publish(1)
    assert (mailbox.take(), world.subscription().reader.damaged_entries) == (later, 1)


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED])
def test_what_the_disk_refuses_to_read_is_not_skipped(kind: SubscriptionType, skip: bool) -> None:
    """7.1 [autoSkipNonRecoverableData] It is no damage: nothing is lost, and all is delivered when the disk is well."""
    world = World(managed_ledger_cache_size_mbytes=0, auto_skip_non_recoverable_data=skip)
    positions = world.publish(4)
    world.disk.fail(1, forever=True, kinds=("read",))
    _, mailbox = world.subscribe(kind)
    world.settle()
    world.clock.advance(20_000)
    world.settle()
    stats = subscription_stats(world.subscription())
    assert (mailbox.take(), stats.stopped_at_damaged_entry, stats.msg_backlog) == ([], str(positions[0]), 4)
    assert world.disk.faults_hit < 12  # no spinning
    world.disk.heal()
    world.clock.advance(20_000)
    world.settle()
    assert mailbox.take() == positions
    assert subscription_stats(world.subscription()).stopped_at_damaged_entry == ""


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("kind", [SHARED, SubscriptionType.KEY_SHARED])
def test_a_redelivery_that_the_disk_refuses_comes_when_it_does_not(kind: SubscriptionType, skip: bool) -> None:
    """4.4.1, 2.4.8: it is neither skipped nor forgotten, and comes once."""
    world = World(managed_ledger_cache_size_mbytes=0, auto_skip_non_recoverable_data=skip)
    positions = world.publish(4)
    consumer, mailbox = world.subscribe(kind, permits=100)
    world.settle()
    assert mailbox.take() == positions
    world.disk.fail(1, forever=True, kinds=("read",))
    consumer.redeliver(positions[1:3])
    world.settle()
    assert (mailbox.take(), world.subscription().backlog_entries()) == ([], 4)
    world.disk.heal()
    world.clock.advance(20_000)
    world.settle()
    assert mailbox.take() == positions[1:3]
    world.clock.advance(40_000)
    world.settle()
    assert mailbox.take() == []


def test_expiry_passes_over_nothing_that_the_disk_refuses_to_read() -> None:
    """7.2, I7.2: it may not be too old, though what comes after it is."""
    world = World(managed_ledger_cache_size_mbytes=0)
    world.subscribe()[0].close()
    world.publish_at(5, 500, 5)
    subscription = world.subscription()
    for operation in (1, 2, 2):  # the first entry is read alone, the one behind it neither with others nor alone
        world.disk.fail(operation, kinds=("read",))
    subscription.expiry.pass_older(100)
    world.settle()
    assert (subscription.backlog_entries(), world.disk.faults_hit) == (2, 3)


def test_an_expiry_that_the_disk_ends_is_told_as_ended(caplog: pytest.LogCaptureFixture) -> None:
    """7.2: who asked hears from which entry on nothing was looked at, once what is in front of it is durable; the log
    says so for the broker's own rounds too."""
    world = World(managed_ledger_cache_size_mbytes=0)
    world.subscribe()[0].close()
    positions = world.publish(4)
    for operation in (1, 2, 2):  # as above
        world.disk.fail(operation, kinds=("read",))
    answers: list[ServerError | None] = []
    with caplog.at_level(logging.ERROR):
        soon_ms = world.clock.now_ms() + 1
        world.subscription().expiry.pass_older(soon_ms, at_once=True, on_done=answers.append)
        assert answers == []
        world.settle()
    (answer,) = answers
    assert isinstance(answer, PersistenceServerError)
    assert str(positions[1]) in str(answer)
    assert f"expiry stopped subscription={TOPIC}/s position={positions[1]}" in caplog.text
    world.crash(policy="none")
    assert world.subscription().backlog_entries() == 3
    world.subscription().expiry.pass_older(soon_ms, on_done=answers.append)
    world.settle()
    assert (answers[1:], world.subscription().backlog_entries()) == ([None], 0)


@pytest.mark.parametrize("kind", [AckKind.INDIVIDUAL, AckKind.CUMULATIVE])
def test_an_acknowledgement_inside_a_batch_is_not_confirmed_while_nobody_knows_the_batch(kind: AckKind) -> None:
    """3.4.3, 3.5.2, 1.4.6: the disk refuses to say how many messages it has; a seek into it is refused as well."""
    world = World(managed_ledger_cache_size_mbytes=0)
    world.subscribe()[0].close()
    positions = world.publish(12, messages=3)
    world.restart()
    consumer, _ = world.subscribe(permits=0)
    answers: list[ServerError | None] = []
    world.disk.fail(1, forever=True, kinds=("read",))
    consumer.ack(kind, [AckId(positions[1], (4,))], answers.append)
    consumer.seek(positions[1], (4,), answers.append)
    assert [isinstance(answer, PersistenceServerError) for answer in answers] == [True, True]
    world.disk.heal()
    consumer.ack(kind, [AckId(positions[1], (4,))], answers.append)
    world.settle()
    assert (answers[2], world.subscription().cursor.partial) == (None, {positions[1]: 4})


def test_time_and_last_message_step_over_damage() -> None:
    """1.4.6 Seeking by time and asking for the last message do not fail; a damaged last entry is not passed over."""
    world = World()
    positions = damaged(world, 5)
    consumer, _ = world.subscribe()
    assert consumer.last_message_id()[:2] == (positions[5], 0)
    consumer.seek_to_time(world.clock.now_ms() + 1, lambda _error: None)
    assert world.subscription().cursor.mark_delete == positions[4]


def without_file(messages: int) -> tuple[World, list[Position]]:
    """Three batches, the first acknowledged; then the broker stops, and their ledger's file is lost."""
    world = World()
    consumer, _ = world.subscribe()
    positions = world.publish(3, messages=messages)
    ack(consumer, positions[0])
    world.restart()
    world.disk.unlink(f"/data/ledgers/{positions[0].ledger}.log")
    world.disk.sync_dir("/data/ledgers")
    world.crash()
    return world, positions


def test_statistics_count_entries_where_nobody_knows_how_many_messages_they_hold() -> None:
    """7.15, 3.6.8: one lost file does not keep the statistics of its topic from everybody."""
    world, _ = without_file(messages=4)
    stats = topic_stats(world.topic()).subscriptions["s"]
    assert (stats.msg_backlog, stats.backlog_messages) == (2, 2)


def test_a_lost_ledger_is_not_looked_at_entry_by_entry() -> None:
    """1.4.6, 7.3, 7.15: it may have a million, and nobody else is served while one looks for what can be read."""
    world = World(managed_ledger_max_entries_per_ledger=5000)
    world.subscribe()[0].close()
    positions = world.publish(2000)
    world.restart()
    world.publish(1)
    world.restart()
    world.disk.unlink(f"/data/ledgers/{positions[0].ledger}.log")
    world.disk.sync_dir("/data/ledgers")
    world.crash()
    topic = world.topic()
    before = world.disk.operations
    world.clock.step_wall_clock(5000)
    assert topic_stats(topic).oldest_backlog_message_age_seconds == 5
    world.subscription().seek_to_time(1, lambda _error: None)
    assert world.subscription().cursor.first_unacked() == positions[0]
    assert world.disk.operations - before < 500


def test_a_seek_by_time_finds_what_lies_behind_a_damaged_stretch() -> None:
    """1.4.6, 7.1: a damaged block takes dozens of small entries with it, but not those of its ledger behind it."""
    world = World(managed_ledger_max_entries_per_ledger=100)
    world.subscribe()[0].close()
    positions = world.publish_at(*range(50))
    world.restart()
    path = f"/data/ledgers/{positions[0].ledger}.log"
    places = [found.start() for found in re.finditer(b"p\x10\x00", world.disk.contents(path))]
    for at in places[5:45]:
        world.disk.flip_bit(path, 8 * at)
    world.subscription().seek_to_time(48, lambda _error: None)
    assert world.subscription().cursor.first_unacked() == positions[48]


def test_a_lost_ledger_is_skipped_at_once_by_setting(caplog: pytest.LogCaptureFixture) -> None:
    """7.1 [autoSkipNonRecoverableData] As Pulsar does; each entry of a million by itself would take the broker away."""
    world = World(managed_ledger_max_entries_per_ledger=5000, auto_skip_non_recoverable_data=True)
    world.subscribe()[0].close()
    positions = world.publish(2000)
    world.restart()
    world.disk.unlink(f"/data/ledgers/{positions[0].ledger}.log")
    world.disk.sync_dir("/data/ledgers")
    world.crash()
    world.subscribe(SHARED)
    world.settle()
    assert (world.subscription().cursor.mark_delete, world.subscription().reader.damaged_entries) == (
        positions[-1],
        len(positions),
    )
    assert caplog.text.count("skipped") == 1


def test_part_of_a_batch_that_is_lost_is_acknowledged_in_vain() -> None:
    """3.4.3, 3.6.4: of how many messages it was is not known, so only all of it can be; the consumer stays."""
    world = World()
    world.subscribe()[0].close()
    world.publish(1)
    world.restart()
    lost = world.publish(2, messages=4)
    world.restart()
    world.disk.unlink(f"/data/ledgers/{lost[0].ledger}.log")
    world.disk.sync_dir("/data/ledgers")
    world.crash()
    consumer, mailbox = world.subscribe(SHARED)
    done: list[ServerError | None] = []
    consumer.ack(AckKind.INDIVIDUAL, [AckId(lost[1], (0b11,))], done.append)
    cursor = world.subscription().cursor
    assert (cursor.is_acked(lost[1]), cursor.partial) == (False, {})
    consumer.ack(AckKind.INDIVIDUAL, [AckId(lost[1], (0,))], done.append)
    world.settle()
    assert (done, mailbox.closed) == ([None, None], False)
    assert cursor.is_acked(lost[1])


def test_who_would_wait_for_a_lost_entry_is_refused_with_its_name() -> None:
    """7.1 [autoSkipNonRecoverableData] Nobody connects to a topic that cannot go on without being told."""
    world, positions = without_file(messages=1)
    with pytest.raises(PersistenceServerError, match=rf"in front of lost entries: entry {positions[1]} .*missing"):
        world.subscribe()
    with pytest.raises(PersistenceServerError, match=r"read-only because .* is missing: 3 entries are lost"):
        world.produce()
    (damage,) = topic_stats(world.topic()).damages
    assert "is missing; 3 entries of ledger 1 are lost" in damage


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED])
def test_who_has_done_all_in_front_of_damage_is_sent_away_and_told_why(kind: SubscriptionType) -> None:
    """7.1 [reliability] A connected consumer does not wait for ever without a word; a repaired file lets it go on."""
    world = World()
    positions = damaged(world)
    path = f"/data/ledgers/{positions[0].ledger}.log"
    damaged_file = world.disk.contents(path)
    consumer, mailbox = world.subscribe(kind)
    world.settle()
    ack(consumer, positions[0])
    world.settle()
    assert not mailbox.closed
    ack(consumer, positions[1])
    world.settle()
    assert mailbox.closed
    with pytest.raises(PersistenceServerError, match=rf"lost entries: entry {positions[2]} .* fails its checksum"):
        world.subscribe(kind)
    world.disk.replace(path, damaged_file.replace(b"q\x10\x00", b"p\x10\x00"))
    _, mailbox = world.subscribe(kind)
    world.settle()
    assert mailbox.positions == positions[2:]


def test_a_topic_with_lost_entries_goes_on_by_setting() -> None:
    """7.1 [autoSkipNonRecoverableData] Who has said that lost entries are given up sends and receives the others."""
    world = World(auto_skip_non_recoverable_data=True)
    world.subscribe()[0].close()
    lost = world.publish(3)
    world.crash(policy="all")  # with the copy of the newest mark, which says how many there were
    world.disk.unlink(f"/data/ledgers/{lost[0].ledger}.log")
    world.disk.sync_dir("/data/ledgers")
    world.crash()
    _, mailbox = world.subscribe()
    fresh = world.publish(2)
    assert mailbox.positions == fresh
    assert world.subscription().reader.damaged_entries == 3
    assert any("3 entries of ledger 1 are lost" in damage for damage in topic_stats(world.topic()).damages)
