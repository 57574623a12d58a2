# SPDX-License-Identifier: Apache-2.0
"""Entries that are damaged on disk are never delivered and never forgotten in silence."""

from __future__ import annotations

import logging

import pytest

from broker_core.base.positions import Position
from broker_core.broker import SubscriptionType, subscription_stats
from tests.broker.world import EXCLUSIVE, SHARED, World, ack


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


def test_a_seek_behind_it_goes_on() -> None:
    """7.1 [reliability] An operator decides to leave it behind."""
    world = World()
    positions = damaged(world)
    consumer, _ = world.subscribe()
    consumer.seek(positions[3], None, lambda _error: None)
    _, mailbox = world.subscribe()
    world.settle()
    assert mailbox.positions == positions[3:]


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


def test_time_and_last_message_step_over_damage() -> None:
    """1.4.6 Seeking by time and asking for the last message do not fail; a damaged last entry is not passed over."""
    world = World()
    positions = damaged(world, 5)
    consumer, _ = world.subscribe()
    assert consumer.last_message_id()[:2] == (positions[5], 0)
    consumer.seek_to_time(2, lambda _error: None)
    assert world.subscription().cursor.mark_delete == positions[4]
