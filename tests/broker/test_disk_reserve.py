# SPDX-License-Identifier: Apache-2.0
"""Producers wait while the disk is nearly full, and nobody else does: simulated disk, virtual clock."""

from __future__ import annotations

import pytest

from broker_core.base.errors import ProducerBlockedQuotaError, ServerError
from broker_core.broker.requests import AccessMode
from broker_core.storage.disk import Space
from broker_core.testing.sim_disk import SimDisk
from broker_core.wire.heads import SendHead
from tests.broker.world import EXCLUSIVE, SMALL, World, ack, body

MIB = 1024 * 1024
LARGE = 100_000 * MIB
RESERVE = 256 * MIB
LOOK_MS = 1000
ROOM_MS = 5000


def world_with(free_bytes: int, total_bytes: int = LARGE, **settings: int) -> World:
    disk = SimDisk()
    disk.space_left = Space(free_bytes, total_bytes)
    return World(SMALL, disk, **settings)


def leave(world: World, free_bytes: int, total_bytes: int = LARGE) -> None:
    """So much is free from now on, and the broker has looked."""
    world.disk.space_left = Space(free_bytes, total_bytes)
    world.clock.advance(LOOK_MS)
    world.settle()


def produces(world: World) -> bool:
    """Whether one may begin to produce."""
    try:
        world.produce()[0].close()
    except ProducerBlockedQuotaError:
        return False
    return True


def test_producers_are_sent_away_and_refused_until_there_is_room(caplog: pytest.LogCaptureFixture) -> None:
    """Reliability row 11: those that wait for exclusive access too; the error says why and may be tried again."""
    world = world_with(RESERVE)
    _, connected = world.produce(name="p", access_mode=AccessMode.EXCLUSIVE)
    _, waiting = world.produce(access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
    leave(world, RESERVE - 1)
    assert connected.closed
    assert waiting.refusal is not None
    assert waiting.refusal.retriable
    assert not waiting.ready_told
    with pytest.raises(ProducerBlockedQuotaError, match=r"256\.0 MiB left.*free space") as caught:
        world.produce()
    assert caught.value.retriable
    leave(world, 2 * RESERVE)
    assert produces(world)
    nearly_full, room = (record.getMessage() for record in caplog.records)
    assert nearly_full.startswith("the disk is nearly full and producers have to wait directory=/data ")
    assert " directory=/data free_mib=256.0 reserve_mib=256.0 advice=free space" in nearly_full
    assert room == "the disk has room again and producers may go on directory=/data free_mib=512.0 reserve_mib=256.0"


def test_what_was_sent_before_is_stored_and_consumers_go_on() -> None:
    """Reliability row 11: entries under way become durable, all are delivered, acknowledged and deleted."""
    world = world_with(LARGE, retention_check_interval_in_seconds=10)
    consumer, mailbox = world.subscribe(EXCLUSIVE)
    world.publish(10)  # a whole ledger of this world
    producer, _ = world.produce()
    producer.send(SendHead(0, 0), body("last"))
    leave(world, 0)
    assert producer.closed
    assert len(mailbox.deliveries) == 11
    done: list[ServerError | None] = []
    ack(consumer, *mailbox.positions[:10], done=done)
    ack(consumer, *mailbox.positions[10:], done=done)
    late, late_mailbox = world.subscribe(EXCLUSIVE, "late")
    world.settle()
    assert done == [None, None]
    assert len(late_mailbox.deliveries) == 11
    ack(late, *late_mailbox.positions[:10])
    world.clock.advance(10_000)
    world.settle()
    assert len(world.topic().log.ledgers()) == 1
    assert not produces(world)


@pytest.mark.parametrize(("free_bytes", "left"), [(0, 0), (LARGE, 3)])
def test_a_nearly_full_disk_has_what_was_consumed_deleted_from_open_ledgers_too(free_bytes: int, left: int) -> None:
    """They would stay open for hours, as nobody writes to them any more, and the disk would stay full as long."""
    world = world_with(LARGE, managed_ledger_min_ledger_rollover_time_minutes=10)
    consumer, mailbox = world.subscribe(EXCLUSIVE)
    world.publish(3)
    leave(world, free_bytes)
    ack(consumer, *mailbox.positions[:2])
    world.clock.advance(ROOM_MS)
    world.settle()
    assert sum(ledger.entries for ledger in world.topic().log.ledgers()) == 3
    ack(consumer, *mailbox.positions[2:])
    world.clock.advance(ROOM_MS)
    world.settle()
    assert sum(ledger.entries for ledger in world.topic().log.ledgers()) == left
    leave(world, LARGE)
    world.publish(1)
    assert len(mailbox.deliveries) == 4


def test_producers_come_back_only_when_more_than_the_reserve_is_free() -> None:
    """Otherwise the first of them would have to go at once: a quarter of the reserve lies between going and coming."""
    world = world_with(LARGE)
    leave(world, RESERVE - 1)
    leave(world, RESERVE + RESERVE // 4 - 1)
    assert not produces(world)
    leave(world, RESERVE + RESERVE // 4)
    assert produces(world)
    leave(world, RESERVE)
    assert produces(world)


def test_a_broker_that_starts_on_a_nearly_full_disk_refuses_from_the_start() -> None:
    """Nothing is sent before the first look."""
    world = world_with(RESERVE - 1)
    assert not produces(world)
    world.disk.space_left = Space(LARGE, LARGE)
    world.restart()
    assert produces(world)


def test_a_small_disk_keeps_a_tenth_of_its_size() -> None:
    """It would be of no use if all of it were reserve; one that has grown keeps more."""
    world = world_with(10 * MIB, 64 * MIB)
    assert produces(world)
    leave(world, 6 * MIB, 64 * MIB)
    assert not produces(world)
    leave(world, 8 * MIB, 64 * MIB)
    assert produces(world)
    leave(world, 8 * MIB, 640 * MIB)
    assert not produces(world)


@pytest.mark.parametrize(("free_bytes", "total_bytes", "reserve_mbytes"), [(0, 0, 256), (0, LARGE, 0)])
def test_nobody_is_refused_without_a_reserve(free_bytes: int, total_bytes: int, reserve_mbytes: int) -> None:
    """Switched off, or the disk does not say how large it is: then it is as full as the next write finds it."""
    world = world_with(free_bytes, total_bytes, disk_reserve_mbytes=reserve_mbytes)
    world.clock.advance(LOOK_MS)
    assert produces(world)


def test_the_disk_is_looked_at_sooner_when_much_is_written() -> None:
    """A fast producer fills the reserve within the second between two looks: an eighth of it makes the next one due."""
    world = world_with(LARGE, 100 * MIB)
    producer, answers = world.produce()
    world.disk.space_left = Space(0, 100 * MIB)
    for number in range(2):
        assert not answers.closed
        producer.send(SendHead(0, number), body("x" * MIB))
        world.settle()
        world.broker.upkeep.group_committed()
    assert answers.closed
    assert len(answers.receipts) == 2


@pytest.mark.parametrize(("reserve_mbytes", "warned"), [(191, True), (192, False), (0, False)])
def test_a_reserve_that_the_publish_buffer_can_fill_is_warned_of(
    reserve_mbytes: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """One group in flight and what waits behind it may come after the last look that found room."""
    world_with(LARGE, disk_reserve_mbytes=reserve_mbytes, max_message_publish_buffer_size_in_mb=64)
    assert ("set it to 192 or more" in caplog.text) is warned
