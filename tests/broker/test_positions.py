# SPDX-License-Identifier: Apache-2.0
"""Where reading begins: readers at an entry, seek by id and by time."""

from __future__ import annotations

import pytest

from broker_core.base.errors import (
    NotAllowedError,
    ServerError,
)
from broker_core.base.positions import POSITION_EARLIEST, POSITION_LATEST, Position
from broker_core.broker.requests import SubscriptionType
from broker_core.broker.subscription import RESUBSCRIBE_S
from tests.broker.world import (
    EARLIEST,
    EXCLUSIVE,
    FAILOVER,
    LATEST,
    SHARED,
    World,
    ack,
    ack_batch,
    ack_through,
)

Done = list[ServerError | None]


class TestReaders:
    """1.9.2 Non-durable subscriptions: positioned at an entry, gone with their consumer."""

    def test_it_begins_at_the_entry_asked_for(self) -> None:
        """1.4.6 The broker always sends the start entry; the client drops it if it is exclusive."""
        world = World()
        positions = world.publish(15)
        for start, expected in [
            (positions[12], positions[12:]),
            (POSITION_EARLIEST, positions),
            (Position(0, 5), positions),
            (POSITION_LATEST, []),
            (Position(positions[9].ledger, 10), positions[10:]),
            (None, []),
        ]:
            reader, mailbox = world.subscribe(subscription="r", durable=False, start=start, initial_position=LATEST)
            world.settle()
            assert mailbox.positions == expected, start
            reader.close()

    def test_it_begins_with_what_was_stored_so_long_ago(self) -> None:
        """1.4.6 By the broker's clock, the border included; whatever entry is named beside it."""
        world = World()
        world.clock.advance(100_000)
        now_ms = world.clock.now_ms()
        positions = world.publish_at(*(now_ms - age_ms for age_ms in (10_000, 5_001, 5_000, 1)))
        for rollback_s, expected in ((60, positions), (5, positions[2:]), (4, positions[3:])):
            reader, mailbox = world.subscribe(
                subscription="r", durable=False, start=POSITION_EARLIEST, rollback_s=rollback_s
            )
            world.settle()
            assert mailbox.positions == expected, rollback_s
            reader.close()

    def test_the_next_entry_of_a_full_topic_is_the_next_published(self) -> None:
        """1.4.6 Starting right after the last entry waits for the next one, also in a new ledger."""
        world = World()
        last = world.publish(10)[-1]
        _, mailbox = world.subscribe(subscription="r", durable=False, start=Position(last.ledger, last.entry + 1))
        later = world.publish(1)
        assert (mailbox.positions, later[0].ledger > last.ledger) == (later, True)

    def test_without_a_start_the_initial_position_counts(self) -> None:
        """1.9.1 A non-durable consumer that names no entry begins at the end it asks for."""
        world = World()
        positions = world.publish(3)
        _, mailbox = world.subscribe(subscription="r", durable=False, initial_position=EARLIEST)
        world.settle()
        assert mailbox.positions == positions

    def test_it_ends_with_its_consumer(self) -> None:
        """1.9.2 Nothing is left of it, in memory or on disk."""
        world = World()
        reader, _ = world.subscribe(subscription="r", durable=False, start=POSITION_EARLIEST)
        reader.close()
        assert world.topic().subscriptions == {}
        world.subscribe(subscription="r", durable=False, start=POSITION_EARLIEST)
        world.restart()
        assert world.topic().subscriptions == {}

    def test_its_acks_are_answered_at_once(self) -> None:
        """3.6.7 Nothing is persisted, so nothing is waited for."""
        world = World()
        positions = world.publish(2)
        reader, _ = world.subscribe(subscription="r", durable=False, start=POSITION_EARLIEST)
        done: Done = []
        ack_through(reader, positions[0], done=done)
        assert done == [None]

    def test_durable_and_non_durable_do_not_mix(self) -> None:
        """1.9.3 One name, one cursor."""
        world = World()
        world.subscribe()[0].close()
        with pytest.raises(NotAllowedError, match="durable subscription 's'"):
            world.subscribe(durable=False)
        world.subscribe(subscription="r", durable=False)
        with pytest.raises(NotAllowedError, match="non-durable subscription 'r'"):
            world.subscribe(subscription="r")

    def test_a_seek_keeps_it_until_its_client_is_back(self) -> None:
        """1.4.6 After the disconnect it is still there, and the kept place counts, not the start id of then."""
        world = World()
        positions = world.publish(6)
        reader, mailbox = world.subscribe(subscription="r", durable=False, start=positions[5])
        done: Done = []
        reader.seek_to_time(0, done.append)
        assert (done, mailbox.closed) == ([None], True)
        again, mailbox = world.subscribe(subscription="r", durable=False, start=positions[5])
        world.clock.advance(int(RESUBSCRIBE_S * 1000))
        assert mailbox.positions == positions
        again.close()
        assert world.topic().subscriptions == {}

    def test_a_client_that_does_not_come_back_is_forgotten(self) -> None:
        """1.9.2 The kept place ends after a while."""
        world = World()
        world.publish(1)
        reader, _ = world.subscribe(subscription="r", durable=False)
        reader.seek(POSITION_EARLIEST, None, lambda _error: None)
        world.clock.advance(int(RESUBSCRIBE_S * 1000) - 1)
        assert "r" in world.topic().subscriptions
        world.clock.advance(1)
        assert "r" not in world.topic().subscriptions


class TestSeek:
    """1.4.6 Seek by id and by time."""

    @pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER, SHARED])
    def test_by_id_the_wanted_entry_is_the_next(self, kind: SubscriptionType) -> None:
        """1.4.6 Everybody is disconnected first, then it is durable, then the answer comes."""
        world = World()
        positions = world.publish(14)
        consumer, mailbox = world.subscribe(kind)
        world.settle()
        ack(consumer, positions[0], positions[3], positions[12])
        done: Done = []
        consumer.seek(positions[11], None, done.append)
        assert (mailbox.closed, done, consumer.closed) == (True, [], True)
        world.settle()
        assert done == [None]
        world.crash(policy="none")
        _, mailbox = world.subscribe(kind)
        world.settle()
        assert mailbox.positions == positions[11:]

    def test_back_to_what_was_acknowledged(self) -> None:
        """3.5.3 (I3.1) Only a seek brings acknowledged entries back."""
        world = World()
        positions = world.publish(8)
        consumer, _ = world.subscribe()
        ack_through(consumer, positions[7])
        consumer.seek(positions[2], None, lambda _error: None)
        _, mailbox = world.subscribe()
        world.settle()
        assert mailbox.positions == positions[2:]
        assert world.subscription().cursor.backlog_entries() == 6

    @pytest.mark.parametrize(
        ("target", "first"),
        [
            (POSITION_EARLIEST, 0),
            (POSITION_LATEST, 12),
            (Position(0, 0), 0),
            (Position(1, 10), 10),
            (Position(1, -1), 0),
        ],
    )
    def test_ids_outside_the_log_are_kept_inside(self, target: Position, first: int) -> None:
        """1.4.6 Earliest is before the first stored entry, latest after the last confirmed one."""
        world = World()
        positions = world.publish(12)
        assert positions[0] == Position(1, 0)
        consumer, _ = world.subscribe()
        consumer.seek(target, None, lambda _error: None)
        _, mailbox = world.subscribe()
        world.settle()
        assert mailbox.positions == positions[first:]

    def test_into_a_batch(self) -> None:
        """1.4.6 The ack set hides the messages before the target, durably."""
        world = World()
        positions = world.publish(3, messages=4)
        consumer, _ = world.subscribe()
        consumer.seek(positions[1], (0b1100,), lambda _error: None)
        world.settle()
        world.crash(policy="none")
        _, mailbox = world.subscribe()
        world.settle()
        assert [(d.entry.position, d.ack_set) for d in mailbox.deliveries] == [
            (positions[1], (0b1100,)),
            (positions[2], None),
        ]

    def test_it_forgets_what_was_in_memory(self) -> None:
        """1.4.6 Replay set, counters, pending acks and partial acks."""
        world = World()
        positions = world.publish(4, messages=2)
        consumer, _ = world.subscribe(SHARED)
        ack_batch(consumer, positions[1], [0])
        consumer.redeliver(None)
        consumer.seek(POSITION_EARLIEST, None, lambda _error: None)
        again, mailbox = world.subscribe(SHARED)
        world.settle()
        assert [(d.redelivery_count, d.ack_set) for d in mailbox.deliveries] == [(0, None)] * 4
        assert again.pending.unacked == 8

    def test_by_time_the_first_entry_stored_then_or_later(self) -> None:
        """1.4.6 Inclusive; before all, between, equal, after all; over ledger borders and empty topics."""
        world = World()
        times = [10 * number for number in range(1, 26)]
        positions = world.publish_at(*times)
        world.topic("empty").create_subscription("s")
        for wanted in [0, 1, 10, 11, 100, 101, 155, 249, 250, 251, 10**15]:
            consumer, _ = world.subscribe()
            consumer.seek_to_time(wanted, lambda _error: None)
            again, mailbox = world.subscribe()
            world.settle()
            expected = [p for p, time_ms in zip(positions, times, strict=True) if time_ms >= wanted]
            assert mailbox.positions == expected, wanted
            again.close()
        consumer, _ = world.subscribe(topic="empty")
        done: Done = []
        consumer.seek_to_time(5, done.append)
        world.settle()
        assert done == [None]

    def test_a_seek_that_was_not_confirmed_may_be_lost_but_not_half(self) -> None:
        """I3.7 After a crash the cursor is as before or as after."""
        outcomes = set()
        for seed in range(12):
            world = World()
            positions = world.publish(6)
            consumer, _ = world.subscribe()
            ack_through(consumer, positions[4])
            world.settle()
            consumer.seek(positions[1], None, lambda _error: None)
            world.clock.run_due()
            job = world.store.commits.take()
            assert job is not None
            job._write()
            world.crash(seed, "random")
            outcomes.add(world.subscription().cursor.mark_delete)
            World.running.pop().abandon()
        assert outcomes <= {positions[4], positions[0]}
