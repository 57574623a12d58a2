# SPDX-License-Identifier: Apache-2.0
"""When the changes of a cursor are written: at once if somebody waits, else once for each group commit."""

from __future__ import annotations

import random

from broker_core.base.errors import ServerError
from broker_core.storage.records import HEAD_BYTES
from tests.broker.world import World, ack


def test_acks_that_nobody_waits_for_are_one_record_for_each_group() -> None:
    """3.6.2, 3.6.3 [R]: while one record is on its way to the disk, acks of many turns collect into the next one."""
    world = World()
    positions = world.publish(40)
    consumer, _ = world.subscribe()
    ack(consumer, positions[1])
    world.clock.run_due()
    job = world.store.commits.take()
    assert job is not None
    size = world.store.cursors.size_bytes
    for position in positions[3::2]:
        ack(consumer, position)
        world.clock.run_due()
    assert world.store.cursors.size_bytes == size
    job.run()
    world.store.commits.finish(job, None)
    world.clock.run_due()
    assert size < world.store.cursors.size_bytes < size + 2 * HEAD_BYTES + 200
    world.store.commits.commit_now()
    world.crash(policy="none")
    assert list(world.subscription().cursor.deleted) == positions[1::2]


def test_an_ack_with_an_answer_does_not_wait_for_the_record_before() -> None:
    """3.6.3 [R]: it goes into the next group, together with what nobody waits for, and the answer covers both."""
    world = World()
    positions = world.publish(10)
    consumer, _ = world.subscribe()
    ack(consumer, positions[2])
    world.clock.run_due()
    job = world.store.commits.take()
    assert job is not None
    ack(consumer, positions[4])
    done: list[ServerError | None] = []
    ack(consumer, positions[6], done=done)
    job.run()
    world.store.commits.finish(job, None)
    assert done == []
    world.store.commits.commit_now()
    assert done == [None]
    world.crash(policy="none")
    assert list(world.subscription().cursor.deleted) == [positions[2], positions[4], positions[6]]


def test_a_topic_may_go_while_its_acks_are_being_written() -> None:
    """3.6.2: unloading writes what is left, deleting nothing more; the record in flight brings nothing after it."""
    for delete in (False, True):
        world = World()
        positions = world.publish(10)
        consumer, _ = world.subscribe()
        ack(consumer, positions[2])
        world.clock.run_due()
        job = world.store.commits.take()
        assert job is not None
        ack(consumer, positions[4])
        if delete:
            world.topic().delete_subscription("s")
        else:
            world.broker.close()
        size = world.store.cursors.size_bytes
        job.run()
        world.store.commits.finish(job, None)
        world.settle()
        assert world.store.cursors.size_bytes <= size + 2 * HEAD_BYTES, "more than commit marks"
        if not delete:
            world.store.close()
            world.open()
            assert list(world.subscription().cursor.deleted) == [positions[2], positions[4]]


def test_random_order_costs_bytes_not_records() -> None:
    """3.6.1 [R]: 2,000 acks in random order, 100 in a turn, take less than 12 bytes each in the cursor log."""
    world = World(managed_ledger_max_entries_per_ledger=10_000)
    positions = world.publish(4_000)
    consumer, _ = world.subscribe()
    chosen = positions[::2]
    random.Random(1).shuffle(chosen)
    size = world.store.cursors.size_bytes
    for start in range(0, len(chosen), 100):
        for position in chosen[start : start + 100]:
            ack(consumer, position)
        world.settle()
    assert world.store.cursors.size_bytes - size < 12 * len(chosen)
