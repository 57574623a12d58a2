# SPDX-License-Identifier: Apache-2.0
"""The life of subscriptions: creation, types, acks with answers, recovery, readers, seek, unsubscribe."""

from __future__ import annotations

import pytest

from broker_core.base.errors import (
    ConsumerNotFoundError,
    InvalidTopicNameError,
    MetadataServerError,
    NotAllowedError,
    PersistenceServerError,
    ServerError,
    StorageError,
    SubscriptionNotFoundError,
)
from broker_core.base.positions import POSITION_EARLIEST, POSITION_LATEST, Position
from broker_core.broker import AckId, AckKind, SubscriptionType
from broker_core.broker.subscription import RESUBSCRIBE_S
from tests.broker.world import (
    EARLIEST,
    EXCLUSIVE,
    FAILOVER,
    LATEST,
    SHARED,
    TOPIC,
    World,
    ack,
    ack_batch,
    ack_through,
    body,
)

Done = list[ServerError | None]


class TestCreation:
    """1.9.1, 1.9.3 Where a new subscription starts."""

    def test_latest_sees_only_what_comes_later(self) -> None:
        """1.9.1 The default."""
        world = World()
        world.publish(3)
        _, mailbox = world.subscribe(initial_position=LATEST)
        later = world.publish(2)
        assert mailbox.positions == later

    def test_earliest_sees_everything_stored(self) -> None:
        """1.9.1 Also when the log begins in the middle of a ledger's life."""
        world = World()
        positions = world.publish(3)
        _, mailbox = world.subscribe(initial_position=EARLIEST)
        world.settle()
        assert mailbox.positions == positions

    def test_the_initial_position_of_an_existing_one_is_ignored(self) -> None:
        """1.9.1 The cursor is where it is."""
        world = World()
        consumer, _ = world.subscribe(initial_position=LATEST)
        positions = world.publish(2)
        consumer.close()
        _, mailbox = world.subscribe(initial_position=LATEST)
        world.settle()
        assert mailbox.positions == positions

    def test_a_new_subscription_survives_a_crash_at_once(self) -> None:
        """1.9.2 It is durable when subscribe returns, and keeps its place although nothing was acknowledged."""
        world = World()
        world.publish(3)
        world.subscribe(initial_position=LATEST)
        world.crash(policy="none")
        _, mailbox = world.subscribe(initial_position=EARLIEST)
        later = world.publish(1)
        assert mailbox.positions == later

    def test_auto_creation_can_be_switched_off(self) -> None:
        """1.1.7 Then a subscription must be made before it is used."""
        world = World(allow_auto_subscription_creation=False)
        with pytest.raises(SubscriptionNotFoundError, match="auto-creation is off"):
            world.subscribe()
        world.topic().create_subscription("s", EARLIEST, {"team": "red"})
        world.subscribe()
        assert dict(world.subscription().properties) == {"team": "red"}
        with pytest.raises(NotAllowedError, match="exists already"):
            world.topic().create_subscription("s")

    def test_it_can_be_placed_at_any_entry(self) -> None:
        """1.9.1 Created at a position, it delivers that entry first."""
        world = World()
        positions = world.publish(15)
        world.topic().create_subscription("s", positions[11])
        _, mailbox = world.subscribe()
        world.settle()
        assert mailbox.positions == positions[11:]

    def test_bad_names_are_refused(self) -> None:
        """1.9.3 A subscription needs a name."""
        with pytest.raises(InvalidTopicNameError):
            World().subscribe(EXCLUSIVE, "")

    def test_properties_are_fixed_at_creation(self) -> None:
        """1.9.3 They survive a restart and later subscribers do not change them."""
        world = World()
        world.subscribe(properties={"a": "1"})[0].close()
        world.subscribe(properties={"a": "2"})[0].close()
        world.restart()
        assert dict(world.subscription().properties) == {"a": "1"}


class TestTypes:
    """2.1 The type belongs to the consumers, the cursor to the subscription."""

    @pytest.mark.parametrize("second", [EXCLUSIVE, SHARED])
    def test_another_type_is_refused_while_there_are_consumers(self, second: SubscriptionType) -> None:
        """2.1.1 The error says which type it is."""
        world = World()
        world.subscribe(FAILOVER)
        with pytest.raises(ServerError, match=f"it is Failover, asked for was {second.label}"):
            world.subscribe(second)

    def test_acks_survive_a_change_of_type(self) -> None:
        """2.1.3 The cursor is kept, what was in memory is rebuilt."""
        world = World()
        positions = world.publish(4)
        shared, _ = world.subscribe(SHARED)
        world.settle()
        ack(shared, positions[0], positions[2])
        shared.close()
        _, mailbox = world.subscribe(EXCLUSIVE)
        world.settle()
        assert mailbox.positions == [positions[1], positions[3]]

    def test_key_shared_is_refused_without_a_trace(self) -> None:
        """2.11 A refused join changes nothing; not even the subscription is made."""
        world = World()
        with pytest.raises(NotAllowedError, match="Key_Shared"):
            world.subscribe(SubscriptionType.KEY_SHARED)
        assert world.topic().subscriptions == {}

    def test_every_subscription_gets_everything(self) -> None:
        """2.1.5 Different names fan out."""
        world = World()
        boxes = [world.subscribe(kind, kind.label)[1] for kind in (EXCLUSIVE, SHARED, FAILOVER)]
        positions = world.publish(12)
        assert [box.positions for box in boxes] == [positions] * 3


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
        """3.6.3 [R] Nobody waits, but they are written all the same, batches included."""
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
        world.store.metadata.reserve_numbers("ledgers", 3)
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
            reader, mailbox = world.subscribe(subscription="r", durable=False, start=start)
            world.settle()
            assert mailbox.positions == expected, start
            reader.close()

    def test_the_next_entry_of_a_full_topic_is_the_next_published(self) -> None:
        """1.4.6 Starting right after the last entry waits for the next one, also in a new ledger."""
        world = World()
        last = world.publish(10)[-1]
        _, mailbox = world.subscribe(subscription="r", durable=False, start=Position(last.ledger, last.entry + 1))
        later = world.publish(1)
        assert (mailbox.positions, later[0].ledger > last.ledger) == (later, True)

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

    def test_by_time_the_first_entry_published_then_or_later(self) -> None:
        """1.4.6 Inclusive; before all, between, equal, after all; over ledger borders and empty topics."""
        world = World()
        producer, answers = world.produce()
        times = [10 * number for number in range(1, 26)]
        for number, time_ms in enumerate(times):
            producer.send(number, -1, 1, body(publish_time_ms=time_ms), False)
        world.settle()
        positions = [position for _, position in answers.receipts]
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


class TestUnsubscribe:
    """2.1.8 Only the sole consumer may delete the subscription."""

    def test_it_deletes_the_cursor(self) -> None:
        """2.1.8 Durably: the next subscription of that name is new."""
        world = World()
        positions = world.publish(3)
        consumer, mailbox = world.subscribe()
        ack_through(consumer, positions[1])
        done: Done = []
        consumer.unsubscribe(done.append)
        assert (done, consumer.closed, mailbox.closed) == ([None], True, False)
        world.crash(policy="none")
        assert world.topic().subscriptions == {}
        _, mailbox = world.subscribe()
        world.settle()
        assert mailbox.positions == positions

    @pytest.mark.parametrize("kind", [FAILOVER, SHARED])
    def test_it_is_refused_while_there_are_others(self, kind: SubscriptionType) -> None:
        """2.1.8 For all types."""
        world = World()
        one, _ = world.subscribe(kind, name="a")
        two, _ = world.subscribe(kind, name="b")
        done: Done = []
        one.unsubscribe(done.append)
        assert isinstance(done[0], MetadataServerError)
        two.close()
        one.unsubscribe(done.append)
        assert done[1] is None

    def test_an_operator_may_delete_one_in_use(self) -> None:
        """2.1.8 From outside its consumers are disconnected."""
        world = World()
        _, mailbox = world.subscribe()
        world.topic().delete_subscription("s")
        assert mailbox.closed
        with pytest.raises(SubscriptionNotFoundError):
            world.topic().delete_subscription("s")


class TestLastMessage:
    """What clients compare with to know whether there is more."""

    def test_it_names_entry_and_batch(self) -> None:
        """1.4.1 Batch size 0 for a single message, 1 for a batch of one, k for k; and what is acknowledged."""
        world = World()
        consumer, _ = world.subscribe()
        assert consumer.last_message_id() == (Position(-1, -1), 0, Position(-1, -1))
        (single,) = world.publish(1)
        ack_through(consumer, single)
        assert consumer.last_message_id() == (single, 0, single)
        for size in (1, 7):
            (position,) = world.publish(1, messages=size, batch=True)
            assert consumer.last_message_id() == (position, size, single)

    def test_nothing_left_means_entry_minus_one(self) -> None:
        """1.4.3 All was acknowledged and deleted: there is no last message."""
        world = World()
        consumer, _ = world.subscribe()
        last = world.publish(20)[-1]
        ack_through(consumer, last)
        world.restart()
        world.topic()
        world.clock.advance(1000 * 121)
        world.settle()
        consumer, _ = world.subscribe()
        assert consumer.last_message_id() == (Position(last.ledger, -1), 0, last)
        assert world.topic(TOPIC).log.entries_count == 0
