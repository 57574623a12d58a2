# SPDX-License-Identifier: Apache-2.0
"""Acknowledgements of consumers: what is checked, when they are durable, when the answer comes."""

from __future__ import annotations

import pytest

from broker_core.base.errors import (
    ConsumerNotFoundError,
    NotAllowedError,
    PersistenceServerError,
    ServerError,
    StorageError,
)
from broker_core.base.positions import Position
from broker_core.broker.requests import AckId, AckKind
from tests.broker.world import (
    SHARED,
    World,
    ack,
    ack_batch,
    ack_through,
)

Done = list[ServerError | None]


class TestAcks:
    """3.3 What is checked, and when the answer comes."""

    def test_the_answer_comes_when_the_ack_is_durable(self) -> None:
        """3.6.3 [R] Not before; and then a crash cannot undo it."""
        world = World()
        positions = world.publish(5)
        consumer, _ = world.subscribe()
        done: Done = []
        ack(consumer, positions[3], done=done)
        ack_through(consumer, positions[1], done=done)
        assert done == []
        world.settle()
        assert done == [None, None]
        world.crash(policy="none")
        cursor = world.subscription().cursor
        assert (cursor.mark_delete, list(cursor.deleted)) == (positions[1], [positions[3]])

    def test_acks_without_an_answer_are_durable_in_the_next_group(self) -> None:
        """3.6.3, 3.4.5 [R] Nobody waits, but they are written all the same, batches included."""
        world = World()
        positions = world.publish(5, messages=3)
        consumer, _ = world.subscribe()
        ack(consumer, positions[0], positions[3])
        ack_batch(consumer, positions[2], [2])
        world.settle()
        world.crash(policy="none")
        cursor = world.subscription().cursor
        assert (cursor.mark_delete, list(cursor.deleted)) == (positions[0], [positions[3]])
        assert cursor.partial == {positions[2]: 0b100}

    def test_repeating_an_ack_waits_for_the_first(self) -> None:
        """3.4.1 (I3.6) Nothing changes, but the answer still means that it is durable."""
        world = World()
        positions = world.publish(2)
        consumer, _ = world.subscribe()
        done: Done = []
        ack(consumer, positions[1])
        ack(consumer, positions[1], done=done)
        assert done == []
        world.settle()
        assert done == [None]
        world.crash(policy="none")
        assert list(world.subscription().cursor.deleted) == [positions[1]]

    def test_a_position_that_does_not_exist_yet_is_an_error(self) -> None:
        """3.3.4 Beyond the last entry: refused, and nothing of the same request is applied."""
        world = World()
        positions = world.publish(2)
        consumer, _ = world.subscribe()
        done: Done = []
        beyond = Position(positions[1].ledger, 2)
        ack(consumer, positions[0], beyond, done=done)
        ack_through(consumer, beyond, done=done)
        assert [type(error) for error in done] == [NotAllowedError] * 2
        assert "newest one" in str(done[0])
        assert world.subscription().cursor.backlog_entries() == 2

    def test_positions_that_never_existed_change_nothing(self) -> None:
        """3.3.4 Unknown ledgers and entries past the end of a ledger, between entries that do exist."""
        world = World()
        world.publish(1)
        world.store.catalogue.numbers.stay_above("ledgers", world.store.catalogue.numbers.next("ledgers") + 2)
        world.restart()
        positions = world.publish(2)
        consumer, _ = world.subscribe()
        first = world.topic().log.first_position.ledger
        ack(consumer, Position(first, 7), Position(first + 1, 0), Position(-1, -1), Position(first, -5))
        assert world.subscription().cursor.backlog_entries() == 3
        ack_through(consumer, Position(first, 7))
        assert world.subscription().cursor.mark_delete == Position(first, 0)
        ack_through(consumer, Position(positions[0].ledger, -1))
        assert world.subscription().cursor.backlog_entries() == 2

    def test_a_cumulative_ack_names_one_message(self) -> None:
        """3.2 Any other number is refused."""
        world = World()
        positions = world.publish(2)
        consumer, _ = world.subscribe()
        done: Done = []
        consumer.ack(AckKind.CUMULATIVE, [AckId(p) for p in positions], done.append)
        consumer.ack(AckKind.CUMULATIVE, [], done.append)
        assert ["exactly one message, not 2" in str(done[0]), "not 0" in str(done[1])] == [True, True]

    @pytest.mark.parametrize("byte", [70, 110, 150, 200])
    def test_damaged_acknowledgements_never_skip_a_message(self, byte: int) -> None:
        """3.6.5 Whatever part of the cursor log is damaged: messages may come again, but none is passed over."""
        world = World()
        positions = world.publish(6)
        consumer, _ = world.subscribe()
        ack_through(consumer, positions[2])
        world.settle()
        ack(consumer, positions[4])
        world.settle()
        world.crash(policy="all")
        (path,) = [f"/data/cursors/{name}" for name in world.disk.list_dir("/data/cursors")]
        world.abandon()
        world.disk.heal()
        world.disk.flip_bit(path, 8 * byte)
        world.open()
        _, mailbox = world.subscribe()
        world.settle()
        assert {positions[3], positions[5]} <= set(mailbox.positions)
        assert mailbox.positions == sorted(mailbox.positions)

    def test_an_old_cumulative_ack_succeeds_and_does_nothing(self) -> None:
        """3.5.1 At or before mark-delete."""
        world = World()
        positions = world.publish(3)
        consumer, _ = world.subscribe()
        done: Done = []
        ack_through(consumer, positions[1], done=done)
        ack_through(consumer, positions[0], done=done)
        ack_through(consumer, positions[1], done=done)
        world.settle()
        assert done == [None] * 3
        assert world.subscription().cursor.mark_delete == positions[1]

    def test_a_cumulative_ack_into_a_batch_never_goes_back(self) -> None:
        """3.5.2 An older one, and one that does not know what was acknowledged singly, bring no message back."""
        world = World()
        (batch,) = world.publish(1, messages=5)
        consumer, _ = world.subscribe()

        def left() -> int:
            return world.subscription().cursor.partial[batch]

        ack_batch(consumer, batch, [0, 1, 2, 3])
        ack_through(consumer, batch, 0b11000)
        assert left() == 0b01000
        ack_through(consumer, batch, 0b11110)
        assert left() == 0b01000
        ack_through(consumer, batch, 0b10000)
        assert world.subscription().cursor.mark_delete == batch

    def test_after_a_disk_failure_nobody_is_left_waiting(self) -> None:
        """3.6.3 [R] The ack is answered with an error, as are all later ones."""
        world = World()
        positions = world.publish(3)
        consumer, _ = world.subscribe()
        done: Done = []
        world.disk.fail(1, forever=True)
        ack(consumer, positions[0], done=done)
        with pytest.raises(StorageError):
            world.settle()
        ack(consumer, positions[1], done=done)
        assert [type(error) for error in done] == [PersistenceServerError] * 2

    def test_a_closed_consumer_is_told_that_it_is(self) -> None:
        """2.11 Requests that arrive after the end get an answer, and change nothing."""
        world = World()
        (position,) = world.publish(1)
        consumer, _ = world.subscribe()
        consumer.close()
        consumer.close()
        done: Done = []
        ack(consumer, position, done=done)
        consumer.seek(position, None, done.append)
        consumer.seek_to_time(0, done.append)
        consumer.unsubscribe(done.append)
        consumer.flow(5)
        consumer.redeliver(None)
        consumer.writable_again()
        assert [type(error) for error in done] == [ConsumerNotFoundError] * 4
        assert world.subscription().cursor.backlog_entries() == 1

    def test_an_entry_before_the_first_one_of_a_ledger_acknowledges_nothing(self) -> None:
        """3.3.4: whatever ids a client sends, the others of the request are acknowledged."""
        world = World()
        positions = world.publish(15)
        consumer, _ = world.subscribe(SHARED)
        ledger = positions[-1].ledger
        for entry in (-1, -5):
            ack(consumer, Position(ledger, entry), positions[entry])
        world.settle()
        assert world.subscription().cursor.backlog_entries() == 13
