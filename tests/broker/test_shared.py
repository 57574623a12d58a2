# SPDX-License-Identifier: Apache-2.0
"""Shared subscriptions: dealing out, permits, pending acks, limits, redelivery."""

from __future__ import annotations

import pytest

from broker_core.base.errors import NotAllowedError, ServerError
from broker_core.base.names import TopicName
from broker_core.base.policies import Policies
from broker_core.base.positions import Position
from broker_core.base.steps import drained
from broker_core.broker.dispatch.many_consumers import ManyConsumersDispatcher
from broker_core.broker.dispatch.passes import PASSES_A_TURN
from broker_core.broker.requests import SubscriptionType
from broker_core.wire.heads import SendHead
from tests.broker.world import SHARED, TOPIC, Mailbox, World, ack, ack_batch, ack_through, body


def dispatcher(world: World) -> ManyConsumersDispatcher:
    found = world.subscription().dispatcher
    assert isinstance(found, ManyConsumersDispatcher)
    return found


def deal(world: World, consumers: list[tuple[str, int, int]], entries: int) -> str:
    """Publish to consumers (name, priority, permits) and say who got each entry, in order."""
    log: list[Mailbox] = []
    names = {}
    for name, priority, permits in consumers:
        _, mailbox = world.subscribe(SHARED, name=name, priority=priority, permits=permits, log=log)
        names[id(mailbox)] = name
    world.publish(entries)
    return "".join(names[id(mailbox)] for mailbox in log)


def test_dispatch_by_priority_and_turn() -> None:
    """2.4.2, 2.1.6 The vector of the Pulsar docs, message by message; 0 is the highest priority."""
    world = World(dispatcher_max_round_robin_batch_size=1)
    assert deal(world, [("1", 0, 2), ("2", 0, 1), ("3", 0, 1), ("4", 1, 2), ("5", 1, 1)], 9) == "1231454"


def test_a_pass_has_two_entries_for_each_of_a_large_crowd() -> None:
    """2.4.4 The limit of one pass grows with the consumers, who would get next to nothing of it otherwise."""
    world = World(dispatcher_max_read_batch_size=2, managed_ledger_max_entries_per_ledger=1000)
    crowd = [world.subscribe(SHARED, name=str(number))[1] for number in range(5)]
    producer, _ = world.produce()
    for number in range(100):
        producer.send(SendHead(0, number), body())
    world.commit_once()
    assert sum(len(mailbox.positions) for mailbox in crowd) == 2 * 5 * PASSES_A_TURN


def test_equal_consumers_take_turns_by_message() -> None:
    """2.4.2 Slices of one message are textbook round robin."""
    world = World(dispatcher_max_round_robin_batch_size=1)
    assert deal(world, [("A", 0, 2), ("B", 0, 2), ("C", 0, 2)], 6) == "ABCABC"


def test_equal_consumers_take_turns_by_slice() -> None:
    """2.4.2 With the slice of 20 each gets what its permits allow at once."""
    assert deal(World(), [("A", 0, 2), ("B", 0, 2), ("C", 0, 2)], 6) == "AABBCC"


def test_a_slice_has_a_limit() -> None:
    """2.4.3 Twenty messages to one, then the next."""
    world = World(managed_ledger_max_entries_per_ledger=100)
    assert deal(world, [("A", 0, 1000), ("B", 0, 1000)], 50) == "A" * 20 + "B" * 20 + "A" * 10


def test_a_slice_counts_messages_of_batches() -> None:
    """2.4.3 Entries of a slice = limit in messages / mean messages of an entry, at least one."""
    world = World()
    log: list[Mailbox] = []
    _, a = world.subscribe(SHARED, name="a", log=log)
    world.subscribe(SHARED, name="b", log=log)
    world.publish(6, messages=8)
    assert [box is a for box in log] == [True, True, False, False, True, True]
    log.clear()
    world.publish(2, messages=50)
    assert [box is a for box in log] == [False, True]


def test_each_message_goes_to_exactly_one() -> None:
    """2.4.1 (I2.2) Nothing twice, nothing left out, in log order for each."""
    world = World()
    boxes = [world.subscribe(SHARED, name=name)[1] for name in "abc"]
    positions = world.publish(95)
    assert sorted(p for box in boxes for p in box.positions) == positions
    assert all(box.positions == sorted(box.positions) and box.positions for box in boxes)


def test_what_was_read_and_found_nobody_comes_later() -> None:
    """2.4.5 Entries that were read but not given are neither lost nor reordered."""
    world = World()
    consumer, mailbox = world.subscribe(SHARED, permits=1)
    positions = world.publish(9, messages=lambda n: 1 + n % 3)
    for _ in range(20):
        consumer.flow(1)
        world.settle()
    assert mailbox.positions == positions


def test_permits_are_counted_in_messages() -> None:
    """2.4.6 (I2.6) A batch of five costs five, the last may overdraw, and nobody below one gets anything."""
    world = World()
    consumer, mailbox = world.subscribe(SHARED, permits=7)
    world.publish(4, messages=5)
    assert (len(mailbox.positions), consumer.permits) == (2, -3)
    consumer.flow(3)
    world.settle()
    assert (len(mailbox.positions), consumer.permits) == (2, 0)
    consumer.flow(1)
    world.settle()
    assert (len(mailbox.positions), consumer.permits) == (3, -4)


def test_a_debt_of_one_consumer_does_not_stop_another() -> None:
    """I2.7 Somebody with permits is served although the sum of permits is below one."""
    world = World()
    debtor, debtors = world.subscribe(SHARED, name="a", permits=1)
    world.publish(1, messages=50)
    assert debtor.permits == -49
    _, mailbox = world.subscribe(SHARED, name="b", permits=3)
    world.publish(5)
    assert (len(debtors.positions), len(mailbox.positions)) == (1, 3)


def test_a_consumer_that_cannot_be_written_to_is_passed_over() -> None:
    """2.4.2 Available also means that its connection takes more."""
    world = World()
    stuck, stucks = world.subscribe(SHARED, name="a")
    _, mailbox = world.subscribe(SHARED, name="b", permits=3)
    stucks.writable = False
    positions = world.publish(5)
    assert (stucks.take(), mailbox.take()) == ([], positions[:3])
    stucks.writable = True
    stuck.writable_again()
    world.settle()
    assert stucks.take() == positions[3:]


@pytest.mark.parametrize("kind", [SHARED, SubscriptionType.KEY_SHARED])
@pytest.mark.parametrize("policy", ["max_unacked_messages_per_consumer", "max_unacked_messages_per_subscription"])
def test_another_limit_of_unacknowledged_messages_holds_at_once(kind: SubscriptionType, policy: str) -> None:
    """2.4.7, 1.1.5: also for consumers that are connected, be it lower, higher or none at all."""
    world = World(dispatcher_max_round_robin_batch_size=1)
    consumer, mailbox = world.subscribe(kind)
    positions = world.publish(4)

    def limit(messages: int) -> None:
        policies = Policies(**{policy: messages})  # type: ignore[arg-type] # it is one of the counts
        drained(world.broker.set_topic_policies(TopicName.parse(TOPIC), policies))
        world.settle()

    limit(3)
    more = world.publish(10)
    assert mailbox.take() == positions
    ack(consumer, *positions[:2])
    world.settle()
    assert mailbox.take() == []  # it goes on below the half of the limit
    ack(consumer, positions[2], positions[3])
    world.settle()
    assert mailbox.take() == more[:3]
    limit(8)
    assert mailbox.take() == more[3:8]
    limit(0)
    assert mailbox.take() == more[8:]


def test_cumulative_acks_are_refused() -> None:
    """3.3.1 [R] An error to the caller, and no change."""
    world = World()
    positions = world.publish(3)
    consumer, _ = world.subscribe(SHARED)
    world.settle()
    done: list[ServerError | None] = []
    ack_through(consumer, positions[2], done=done)
    assert isinstance(done[0], NotAllowedError)
    assert "one by one" in str(done[0])
    assert world.subscription().cursor.backlog_entries() == 3


class TestPendingAcks:
    """What was given and not acknowledged, with whom (2.4.8, 3.3, I3.8)."""

    def test_they_are_counted_in_messages(self) -> None:
        """3.3.3 Entries and parts of batches lower the count by their messages; the rest is zero."""
        world = World()
        first, second = world.publish(2, messages=4)
        consumer, _ = world.subscribe(SHARED)
        world.settle()
        assert (consumer.pending.unacked, dispatcher(world).book.unacked.messages) == (8, 8)
        ack_batch(consumer, first, [1, 2, 3])
        ack_batch(consumer, first, [1, 2, 3])
        assert consumer.pending.unacked == 7
        ack_batch(consumer, first, [0, 3])
        assert consumer.pending.unacked == 5
        ack(consumer, second)
        ack_batch(consumer, first, [])
        assert (consumer.pending.unacked, dispatcher(world).book.unacked.messages) == (0, 0)
        assert world.subscription().cursor.backlog_entries() == 0

    def test_somebody_else_may_acknowledge(self) -> None:
        """3.3.2 The owner's count falls, not the sender's."""
        world = World()
        owner, _ = world.subscribe(SHARED, name="a", permits=2)
        sender, _ = world.subscribe(SHARED, name="b", permits=0)
        positions = world.publish(2)
        ack(sender, *positions)
        assert (owner.pending.unacked, sender.pending.unacked, dispatcher(world).book.unacked.messages) == (0, 0, 0)

    def test_who_leaves_gives_its_entries_to_others(self) -> None:
        """2.4.9 (4.4.3) Redelivered in order of position, counted once more, each to somebody."""
        world = World()
        leaver, _ = world.subscribe(SHARED, name="a", permits=10)
        positions = world.publish(6)
        ack(leaver, positions[1])
        _, mailbox = world.subscribe(SHARED, name="b")
        leaver.close()
        world.settle()
        assert mailbox.positions == [positions[0], *positions[2:]]
        assert [d.redelivery_count for d in mailbox.deliveries] == [1] * 5

    def test_a_batch_that_is_partly_acknowledged_comes_masked(self) -> None:
        """3.6.6 (4.4) Its cost is what is still open."""
        world = World()
        leaver, _ = world.subscribe(SHARED, name="a", permits=10)
        (entry,) = world.publish(1, messages=5)
        ack_batch(leaver, entry, [0, 4])
        other, mailbox = world.subscribe(SHARED, name="b", permits=10)
        leaver.close()
        world.settle()
        assert [(d.entry.position, d.ack_set) for d in mailbox.deliveries] == [(entry, (0b10001,))]
        assert (other.permits, other.pending.unacked) == (8, 2)

    def test_a_new_start_forgets_counts(self) -> None:
        """2.4.10 With the last consumer go replay set and counters; the next one begins after mark-delete."""
        world = World()
        consumer, _ = world.subscribe(SHARED)
        positions = world.publish(4)
        ack(consumer, positions[1])
        consumer.redeliver(None)
        world.settle()
        consumer.close()
        _, mailbox = world.subscribe(SHARED)
        world.settle()
        assert mailbox.positions == [positions[0], *positions[2:]]
        assert [d.redelivery_count for d in mailbox.deliveries] == [0, 0, 0]


class TestRedelivery:
    """Redeliver requests (4.4)."""

    def test_only_what_is_pending_comes_again(self) -> None:
        """4.4.1 (I4.6) Other ids, acknowledged ids and doubled ids change nothing."""
        world = World()
        consumer, mailbox = world.subscribe(SHARED, name="a")
        positions = world.publish(5)
        other, others = world.subscribe(SHARED, name="b", permits=0)
        ack(consumer, positions[0])
        mailbox.take()
        other.redeliver(positions)
        consumer.redeliver([positions[0], Position(99, 1), positions[3], positions[2], positions[3]])
        world.settle()
        assert (mailbox.positions, others.positions) == ([positions[2], positions[3]], [])
        assert [d.redelivery_count for d in mailbox.deliveries] == [1, 1]

    def test_counts_rise_with_every_redelivery(self) -> None:
        """4.4.3 (I4.5) 0, 1, 2 for the whole entry; the ack forgets it."""
        world = World()
        consumer, mailbox = world.subscribe(SHARED)
        (entry,) = world.publish(1, messages=3)
        for expected in range(4):
            world.settle()
            assert [d.redelivery_count for d in mailbox.deliveries] == [expected]
            mailbox.take()
            consumer.redeliver([entry])
        world.settle()
        ack(consumer, entry)
        assert len(dispatcher(world).book.redeliveries) == 0

    def test_the_ack_of_the_last_message_of_a_batch_forgets_the_count(self) -> None:
        """3.3.5 As that of the whole entry; until then it is kept."""
        world = World()
        consumer, _ = world.subscribe(SHARED)
        (entry,) = world.publish(1, messages=3)
        consumer.redeliver([entry])
        world.settle()
        ack_batch(consumer, entry, [1])
        assert len(dispatcher(world).book.redeliveries) == 1
        ack_batch(consumer, entry, [0, 2])
        assert len(dispatcher(world).book.redeliveries) == 0

    def test_counting_can_be_switched_off(self) -> None:
        """4.4.3 Then it is always 0."""
        world = World(subscription_redelivery_tracker_enabled=False)
        consumer, mailbox = world.subscribe(SHARED)
        world.publish(1)
        consumer.redeliver(None)
        world.settle()
        assert [d.redelivery_count for d in mailbox.deliveries] == [0, 0]

    def test_all_of_it_comes_in_entry_order_before_anything_new(self) -> None:
        """4.4.2, 2.4.4 Replay has priority over normal reads, lowest position first."""
        world = World()
        consumer, mailbox = world.subscribe(SHARED, permits=30)
        old = world.publish(30)
        new = world.publish(5)
        mailbox.take()
        consumer.redeliver(list(reversed(old[5:20])))
        consumer.redeliver(None)
        consumer.flow(100)
        world.settle()
        assert mailbox.take() == old + new

    def test_an_entry_acknowledged_while_it_waits_does_not_come(self) -> None:
        """3.3.5 (I2.1) The replay set drops what is acknowledged."""
        world = World()
        consumer, mailbox = world.subscribe(SHARED, permits=3)
        positions = world.publish(3)
        mailbox.take()
        consumer.redeliver(None)
        ack(consumer, positions[1])
        assert len(dispatcher(world).room) == 2
        consumer.flow(10)
        world.settle()
        assert (mailbox.take(), len(dispatcher(world).room)) == ([positions[0], positions[2]], 0)

    def test_it_may_go_to_anybody_available(self) -> None:
        """4.4.4 Redelivered messages are dealt out like others."""
        world = World()
        consumer, mailbox = world.subscribe(SHARED, name="a", permits=2)
        positions = world.publish(2)
        assert mailbox.take() == positions
        _, others = world.subscribe(SHARED, name="b")
        consumer.redeliver(None)
        world.settle()
        assert (mailbox.take(), others.take()) == ([], positions)


class TestLimits:
    """Limits of unacknowledged messages (2.4.7)."""

    def test_a_consumer_with_too_much_is_blocked(self) -> None:
        """2.4.7 At the limit nothing more comes; at half of it the parked permits count and it goes on."""
        world = World(max_unacked_messages_per_consumer=10)
        consumer, mailbox = world.subscribe(SHARED, permits=12)
        positions = world.publish(30)
        assert (len(mailbox.positions), consumer.blocked, consumer.permits) == (10, True, 2)
        consumer.flow(100)
        world.settle()
        assert (len(mailbox.positions), consumer.permits, consumer.parked_permits) == (10, 2, 100)
        ack(consumer, *positions[:4])
        assert (consumer.blocked, len(mailbox.positions)) == (True, 10)
        ack(consumer, positions[4])
        world.settle()
        assert (len(mailbox.positions), consumer.blocked, consumer.parked_permits) == (15, True, 0)
        assert consumer.permits == 97

    def test_a_consumer_goes_on_whoever_acknowledges_what_it_has(self) -> None:
        """2.4.7, 3.3.2, 3.3.3 Acks of single messages count towards half of the limit, and so do those of others."""
        world = World(max_unacked_messages_per_consumer=8)
        consumer, mailbox = world.subscribe(SHARED, name="a", permits=100)
        other, _ = world.subscribe(SHARED, name="b", permits=0)
        positions = world.publish(5, messages=4)
        assert (mailbox.positions, consumer.blocked) == (positions[:2], True)
        ack_batch(consumer, positions[0], [0])
        assert (consumer.pending.unacked, consumer.blocked) == (5, True)
        ack_batch(consumer, positions[1], [0, 1, 2])
        world.settle()
        assert (mailbox.positions, consumer.pending.unacked, consumer.blocked) == (positions[:3], 8, True)
        ack(other, positions[1], positions[2])
        world.settle()
        assert (mailbox.positions, consumer.pending.unacked, consumer.blocked) == (positions, 9, True)

    def test_a_blocked_consumer_leaves_the_rest_to_others(self) -> None:
        """2.4.7 Only it is blocked; taking entries back unblocks it too."""
        world = World(max_unacked_messages_per_consumer=5)
        consumer, mailbox = world.subscribe(SHARED, name="a")
        _, others = world.subscribe(SHARED, name="b")
        world.publish(8)
        assert (len(mailbox.positions), len(others.positions)) == (5, 3)
        consumer.redeliver(None)
        world.settle()
        assert not consumer.blocked or consumer.pending.unacked == 5

    @pytest.mark.parametrize("kind", [SHARED, SubscriptionType.KEY_SHARED])
    def test_a_blocked_consumer_that_gives_something_back_gets_it_again_at_once(self, kind: SubscriptionType) -> None:
        """2.4.7 With permits that came meanwhile, and not beyond the limit, though it keeps more than half of it."""
        world = World(max_unacked_messages_per_consumer=4)
        consumer, mailbox = world.subscribe(kind, permits=4)
        positions = world.publish(6)
        assert (mailbox.take(), consumer.blocked) == (positions[:4], True)
        consumer.flow(10)
        consumer.redeliver([positions[2]])
        world.settle()
        assert [(each.entry.position, each.redelivery_count) for each in mailbox.deliveries] == [(positions[2], 1)]
        assert (consumer.blocked, consumer.pending.unacked, consumer.permits) == (True, 4, 9)

    def test_a_blocked_consumer_that_gives_nothing_back_stays_blocked(self) -> None:
        """2.4.7, 4.4.1 (I4.6) It asked for what it does not hold, or for nothing."""
        world = World(max_unacked_messages_per_consumer=4)
        consumer, mailbox = world.subscribe(SHARED, name="a", permits=5)
        _, others = world.subscribe(SHARED, name="b", permits=1)
        positions = world.publish(8)
        assert (mailbox.take(), others.positions, consumer.blocked) == (positions[:4], [positions[4]], True)
        ack(consumer, positions[0])
        assert (consumer.blocked, consumer.pending.unacked) == (True, 3)
        for ids in ([positions[0], positions[4], positions[6], Position(99, 1)], []):
            consumer.redeliver(ids)
            world.settle()
            assert (mailbox.positions, consumer.blocked, consumer.permits) == ([], True, 1)

    def test_a_blocked_consumer_that_still_has_too_much_stays_blocked(self) -> None:
        """2.4.7 (I2.6) What it gave back does not bring it below the limit."""
        world = World(max_unacked_messages_per_consumer=4, dispatcher_max_round_robin_batch_size=1)
        consumer, mailbox = world.subscribe(SHARED)
        positions = [*world.publish(3), *world.publish(1, messages=5)]
        assert (mailbox.take(), consumer.pending.unacked) == (positions, 8)
        consumer.redeliver(positions[:2])
        world.settle()
        assert (mailbox.positions, consumer.blocked) == ([], True)
        consumer.redeliver(positions[3:])
        world.settle()
        assert consumer.blocked
        assert mailbox.positions == [*positions[:2], positions[3]]

    def test_a_subscription_with_too_much_stops(self) -> None:
        """2.4.7 Over all consumers; reading resumes below half."""
        world = World(max_unacked_messages_per_subscription=10)
        one, ones = world.subscribe(SHARED, name="a", permits=6)
        two, twos = world.subscribe(SHARED, name="b")
        world.publish(19)
        assert (len(ones.positions), len(twos.positions), dispatcher(world).book.unacked.stopped) == (6, 4, True)
        ack(one, *ones.positions[:5])
        assert (dispatcher(world).book.unacked.messages, dispatcher(world).book.unacked.stopped) == (5, True)
        ack(two, twos.positions[0])
        world.settle()
        assert (len(ones.positions) + len(twos.positions), dispatcher(world).book.unacked.stopped) == (19, True)

    def test_no_limit_means_no_limit(self) -> None:
        """2.4.7 0 switches a limit off."""
        world = World(max_unacked_messages_per_consumer=0, max_unacked_messages_per_subscription=0)
        consumer, mailbox = world.subscribe(SHARED, permits=10_000)
        world.publish(300)
        assert (len(mailbox.positions), consumer.blocked, dispatcher(world).book.unacked.stopped) == (300, False, False)

    def test_a_leaving_consumer_frees_its_share(self) -> None:
        """2.4.7 What it had does not count against the subscription any more."""
        world = World(max_unacked_messages_per_subscription=4)
        leaver, _ = world.subscribe(SHARED, name="a", permits=4)
        positions = world.publish(6)
        _, mailbox = world.subscribe(SHARED, name="b")
        assert mailbox.positions == []
        leaver.close()
        world.settle()
        assert mailbox.positions == positions[:4]


def test_a_consumer_limit_counts_for_the_whole_subscription() -> None:
    """2.1.7 maxConsumersPerSubscription."""
    world = World(max_consumers_per_subscription=2)
    world.subscribe(SHARED, name="a")
    world.subscribe(SHARED, name="b")
    with pytest.raises(ServerError, match="has 2 consumers, the most that are allowed"):
        world.subscribe(SHARED, name="c")
