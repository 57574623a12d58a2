# SPDX-License-Identifier: Apache-2.0
"""The life of subscriptions: creation, types, unsubscribe, last message."""

from __future__ import annotations

import pytest

from broker_core.base.errors import (
    InvalidTopicNameError,
    MetadataServerError,
    NotAllowedError,
    ServerError,
    SubscriptionNotFoundError,
)
from broker_core.base.positions import Position
from broker_core.broker.requests import SubscriptionType
from tests.broker.world import (
    EARLIEST,
    EXCLUSIVE,
    FAILOVER,
    LATEST,
    SHARED,
    TOPIC,
    World,
    ack,
    ack_through,
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

    def test_every_subscription_gets_everything(self) -> None:
        """2.1.5 Different names fan out."""
        world = World()
        boxes = [world.subscribe(kind, kind.label)[1] for kind in (EXCLUSIVE, SHARED, FAILOVER)]
        positions = world.publish(12)
        assert [box.positions for box in boxes] == [positions] * 3


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

    def test_force_disconnects_the_others(self) -> None:
        """2.1.8 They come back to a new subscription."""
        world = World()
        positions = world.publish(2)
        one, mailbox = world.subscribe(SHARED, name="a")
        two, other = world.subscribe(SHARED, name="b")
        world.settle()
        ack(one, *mailbox.positions)
        done: Done = []
        one.unsubscribe(done.append, force=True)
        assert (done, two.closed, mailbox.closed, other.closed) == ([None], True, False, True)
        _, mailbox = world.subscribe(SHARED, name="b")
        world.settle()
        assert mailbox.positions == positions

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
