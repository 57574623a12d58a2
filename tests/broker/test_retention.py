# SPDX-License-Identifier: Apache-2.0
"""Retention: what everybody has acknowledged goes, nothing else does."""

from __future__ import annotations

from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.testing.sim_disk import SimDisk
from tests.broker.world import EARLIEST, LATEST, World, ack, ack_through

CHECK_MS = 120_000


def ledgers(world: World) -> list[int]:
    return [info.id for info in world.topic().log.ledgers()]


def check(world: World) -> None:
    world.clock.advance(CHECK_MS)
    world.settle()


def test_whole_ledgers_go_when_everybody_has_passed() -> None:
    """7.1, 1.3.4 (I7.1) Never beyond the slowest durable subscription, and always a prefix."""
    world = World()
    fast, _ = world.subscribe(subscription="fast")
    slow, _ = world.subscribe(subscription="slow")
    positions = world.publish(35)
    ack_through(fast, positions[34])
    ack_through(slow, positions[8])
    check(world)
    assert ledgers(world) == [1, 2, 3, 4]
    ack_through(slow, positions[9])
    check(world)
    assert ledgers(world) == [2, 3, 4]
    ack(slow, *positions[20:30])
    check(world)
    assert ledgers(world) == [2, 3, 4]
    ack_through(slow, positions[19])
    check(world)
    assert ledgers(world) == [4]
    assert world.subscription("slow").cursor.backlog_entries() == 5


def test_the_open_ledger_stays() -> None:
    """1.3.4 Only closed ledgers are deleted; after a restart the last one is closed too."""
    world = World()
    consumer, _ = world.subscribe()
    positions = world.publish(5)
    ack_through(consumer, positions[4])
    check(world)
    assert ledgers(world) == [1]
    world.restart()
    world.topic()
    check(world)
    assert ledgers(world) == []
    _, mailbox = world.subscribe()
    later = world.publish(2)
    assert mailbox.positions == later


def test_a_full_ledger_is_closed_though_the_clock_was_set_back() -> None:
    """1.3.2, 7.1: how old it is nobody knows then, but not that it is too young, for that may take years."""
    world = World(managed_ledger_min_ledger_rollover_time_minutes=10)
    consumer, _ = world.subscribe()
    world.publish(1)
    world.clock.step_wall_clock(-1_000_000_000)
    positions = world.publish(10)
    ack_through(consumer, positions[9])
    check(world)
    check(world)
    assert ledgers(world) == []
    assert world.publish(1)[0].ledger == 2


def test_a_topic_without_subscription_is_kept() -> None:
    """7.1 [setting retain_without_subscription] Nobody has read it yet, so nothing is thrown away."""
    world = World()
    world.publish(25)
    check(world)
    assert len(ledgers(world)) == 3
    pulsar = World(retain_without_subscription=False)
    pulsar.publish(25)
    check(pulsar)
    assert len(ledgers(pulsar)) == 1


def test_readers_do_not_hold_anything_back() -> None:
    """3.6.7 A non-durable subscription moves on to what is left, and its backlog stays right."""
    world = World()
    consumer, _ = world.subscribe()
    positions = world.publish(25)
    reader, mailbox = world.subscribe(subscription="r", durable=False, start=POSITION_EARLIEST, permits=3)
    world.settle()
    ack(reader, positions[2], positions[12])
    ack_through(consumer, positions[24])
    check(world)
    assert mailbox.take() == positions[:3]
    assert world.subscription("r").cursor.backlog_entries() == 5
    reader.flow(100)
    world.settle()
    assert mailbox.take() == positions[20:]


def test_acks_are_durable_before_anything_is_deleted() -> None:
    """I7.1 (I3.7) A crash right after the deletion finds a cursor that has passed what is gone."""
    for seed in range(8):
        world = World()
        consumer, _ = world.subscribe()
        positions = world.publish(25)
        ack_through(consumer, positions[19])
        world.clock.advance(CHECK_MS)
        while (job := world.store.commits.take()) is not None:
            job.run()
            world.store.commits.finish(job, None)
        world.crash(seed)
        first = world.topic().log.next_valid(Position(-1, -1))
        assert world.subscription().cursor.mark_delete >= Position(first.ledger - 1, 9)
        _, mailbox = world.subscribe()
        world.settle()
        assert mailbox.positions == positions[20:]


def test_a_cursor_whose_acknowledgements_are_lost_stands_behind_what_was_deleted() -> None:
    """I7.1 Only acknowledged entries are deleted, so a subscription that stands before them has forgotten that. It may
    not seem to have kept them: clients would take the topic for another one."""
    world = World()
    consumer, _ = world.subscribe()
    positions = world.publish(25)
    ack_through(consumer, positions[24])
    check(world)
    consumer.close()
    world.broker.close()
    world.settle()
    world.store.close()
    (name,) = world.disk.list_files("/data/cursors")
    world.disk.unlink(f"/data/cursors/{name}")
    world.open()
    assert world.subscription().cursor.mark_delete == positions[19]
    _, mailbox = world.subscribe()
    world.settle()
    assert mailbox.positions == positions[20:]


def test_a_seek_back_stops_a_deletion_that_is_on_its_way() -> None:
    """I7.1 Between the check and the deletion somebody wants the entries again."""
    world = World()
    consumer, _ = world.subscribe()
    positions = world.publish(25)
    ack_through(consumer, positions[24])
    world.settle()
    world.clock.advance(CHECK_MS)
    consumer.seek(positions[0], None, lambda _error: None)
    world.settle()
    assert len(ledgers(world)) == 3
    _, mailbox = world.subscribe()
    world.settle()
    assert mailbox.positions == positions


def test_a_new_subscription_begins_at_what_is_left() -> None:
    """1.9.1 Earliest is the first entry that still exists."""
    world = World()
    consumer, _ = world.subscribe()
    positions = world.publish(25)
    ack_through(consumer, positions[24])
    check(world)
    _, mailbox = world.subscribe(subscription="new", initial_position=EARLIEST)
    _, later = world.subscribe(subscription="newest", initial_position=LATEST)
    world.settle()
    assert (mailbox.positions, later.positions) == (positions[20:], [])


def test_a_full_ledger_is_closed_by_the_check() -> None:
    """1.3.2 So that it can be deleted although nobody publishes any more."""
    world = World(managed_ledger_max_ledger_rollover_time_minutes=1)
    consumer, _ = world.subscribe()
    positions = world.publish(3)
    ack_through(consumer, positions[2])
    check(world)
    check(world)
    assert ledgers(world) == []
    assert world.subscription().cursor.backlog_entries() == 0


def test_a_deletion_waits_for_the_sync_of_what_releases_it() -> None:
    """7.1 (I7.1) With durability=async too: a power loss leaves no subscription in front of entries that were deleted,
    or it would count as lost what it had acknowledged."""
    world = World(durability="async")
    consumer, _ = world.subscribe()
    positions = world.publish(25)
    world.store.sync_due()
    world.settle()
    images: list[SimDisk] = []

    def before(kind: str, path: str) -> None:
        if kind in ("unlink", "sync"):
            images.append(world.disk.crash(policy="none"))

    ack_through(consumer, positions[24])
    world.disk.before = before
    check(world)
    world.disk.before = None
    assert ledgers(world) == [3]
    for image in images:
        after = World(world.settings, image)
        first = after.topic().log.first_position
        assert after.subscription().cursor.mark_delete.ledger >= first.ledger or first.ledger == 1
