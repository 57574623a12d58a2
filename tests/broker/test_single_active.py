# SPDX-License-Identifier: Apache-2.0
"""Exclusive and Failover subscriptions: one consumer at a time, in order."""

from __future__ import annotations

import pytest

from broker_core.base.errors import ConsumerBusyError
from broker_core.base.names import TopicName
from broker_core.base.positions import Position
from broker_core.broker.dispatch.passes import PASSES_A_TURN
from broker_core.wire.entry import seal_entry
from broker_core.wire.heads import SendHead
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata
from tests.broker.world import EXCLUSIVE, FAILOVER, SHARED, World, ack, ack_batch, ack_through, body


def test_an_exclusive_subscription_has_one_consumer() -> None:
    """2.2.1 (2.1.4) The second is refused at once and leaves no trace; after the first has left it may come."""
    world = World()
    first, _ = world.subscribe(EXCLUSIVE)
    with pytest.raises(ConsumerBusyError, match="exclusive and has a consumer"):
        world.subscribe(EXCLUSIVE)
    assert len(world.subscription().consumers) == 1
    first.close()
    world.subscribe(EXCLUSIVE)


def test_everything_comes_in_order_without_gaps() -> None:
    """I2.3 Over ledger borders, published before and after subscribing."""
    world = World()
    before = world.publish(25)
    _, mailbox = world.subscribe()
    world.settle()
    after = world.publish(12)
    assert mailbox.positions == before + after
    assert {delivery.redelivery_count for delivery in mailbox.deliveries} == {0}


def test_one_exclusive_consumer_may_have_all_partitions() -> None:
    """2.2.2 Each partition is a subscription of its own, and it is the only one in each (2.2.3)."""
    world = World()
    world.broker.create_partitioned(TopicName.parse("t"), 3)
    topics = [f"persistent://public/default/t-partition-{p}" for p in range(3)]
    boxes = [world.subscribe(EXCLUSIVE, topic=topic)[1] for topic in topics]
    published = [world.publish(4, topic) for topic in topics]
    assert [box.positions for box in boxes] == published


def test_delayed_messages_are_sent_at_once() -> None:
    """2.3.5.5 (I6.10) A single active consumer gets everything in order of position, whenever it is due."""
    world = World()
    _, mailbox = world.subscribe()
    producer, answers = world.produce()
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, deliver_at_time=2**60)
    producer.send(SendHead(0, 0), seal_entry(metadata.SerializeToString(), b"later"))
    world.settle()
    assert mailbox.positions == [position for _, position in answers.receipts]


def test_only_durable_entries_are_dispatched() -> None:
    """1.3 An entry is sent to consumers only once it is confirmed to its producer."""
    world = World()
    _, mailbox = world.subscribe()
    producer, answers = world.produce()
    producer.send(SendHead(0, 0), body())
    world.clock.run_due()
    assert (mailbox.positions, answers.receipts) == ([], [])
    world.settle()
    assert [position for _, position in answers.receipts] == mailbox.positions


def test_permits_bound_what_is_sent() -> None:
    """4.1.2 No permits, nothing; k permits, k messages."""
    world = World()
    positions = world.publish(10)
    consumer, mailbox = world.subscribe(permits=0)
    world.settle()
    assert mailbox.take() == []
    consumer.flow(3)
    world.settle()
    assert (mailbox.take(), consumer.permits) == (positions[:3], 0)
    consumer.flow(4)
    consumer.flow(100)
    world.settle()
    assert (mailbox.take(), consumer.permits) == (positions[3:], 97)


def test_batches_cost_their_messages_and_may_overdraw() -> None:
    """2.4.6 Entries travel whole: permits go down to minus (batch size - 1), never further."""
    world = World()
    positions = world.publish(4, messages=5)
    consumer, mailbox = world.subscribe(permits=6)
    world.settle()
    assert (mailbox.take(), consumer.permits) == (positions[:2], -4)
    consumer.flow(4)
    world.settle()
    assert (mailbox.take(), consumer.permits) == ([], 0)
    consumer.flow(1)
    world.settle()
    assert (mailbox.take(), consumer.permits) == (positions[2:3], -4)


def test_batches_between_holes_cost_their_messages_too() -> None:
    """2.4.6, 3.6.6 What is acknowledged is free; of the rest no more is sent than permits pay for."""
    world = World()
    positions = world.publish(6, messages=2)
    consumer, mailbox = world.subscribe(permits=0)
    ack(consumer, positions[1])
    consumer.flow(4)
    world.settle()
    assert (mailbox.take(), consumer.permits) == ([positions[0], positions[2]], 0)


def test_a_sink_that_is_full_gets_nothing_until_it_says_so() -> None:
    """4.1.2 Permits alone are not enough: what cannot be written is not read."""
    world = World()
    consumer, mailbox = world.subscribe()
    mailbox.writable = False
    positions = world.publish(3)
    assert mailbox.take() == []
    mailbox.writable = True
    consumer.writable_again()
    world.settle()
    assert mailbox.take() == positions


def test_a_redeliver_request_sends_everything_unacknowledged_again() -> None:
    """2.3.5.2, 2.3.5.3 (1.9.4, 4.3.7) Any ids mean back to the first unacknowledged entry; the epoch rises."""
    world = World()
    positions = world.publish(6)
    consumer, mailbox = world.subscribe()
    world.settle()
    ack(consumer, positions[0], positions[2])
    mailbox.take()
    consumer.redeliver([positions[4]])
    world.settle()
    assert mailbox.take() == [positions[1], *positions[3:]]
    consumer.redeliver(None, epoch=4)
    world.settle()
    assert [d.redelivery_count for d in mailbox.deliveries] == [0] * 4
    assert (mailbox.take(), consumer.epoch) == ([positions[1], *positions[3:]], 4)


def test_an_epoch_never_goes_back() -> None:
    """2.3.5.3 A request of a former epoch is answered in the present one: else the client would drop all that comes."""
    world = World()
    positions = world.publish(2)
    consumer, mailbox = world.subscribe()
    consumer.redeliver(None, epoch=4)
    world.settle()
    mailbox.take()
    consumer.redeliver(None, epoch=3)
    world.settle()
    assert (mailbox.take(), consumer.epoch) == (positions, 4)


def test_a_redeliver_request_of_a_standby_is_ignored() -> None:
    """2.3.5.2 Only the active consumer can rewind."""
    world = World()
    world.publish(3)
    _, active = world.subscribe(FAILOVER, name="a")
    standby, _ = world.subscribe(FAILOVER, name="b")
    world.settle()
    active.take()
    standby.redeliver(None)
    world.settle()
    assert active.take() == []


def test_acknowledged_messages_of_a_batch_are_masked_and_free() -> None:
    """3.6.6 The rest of a batch comes with its ack set and costs only what is left; the permits show it."""
    world = World()
    first, second = world.publish(2, messages=4)
    consumer, mailbox = world.subscribe()
    world.settle()
    ack_batch(consumer, first, [1, 3])
    mailbox.take()
    permits = consumer.permits
    consumer.redeliver(None)
    world.settle()
    assert [d.ack_set for d in mailbox.deliveries] == [(0b1010,), None]
    assert (mailbox.take(), permits - consumer.permits) == ([first, second], 6)


def test_batch_level_acks_can_be_switched_off() -> None:
    """3.4.3 Then a part of a batch is not remembered; only the whole entry can be acknowledged."""
    world = World(acknowledgment_at_batch_index_level_enabled=False)
    (entry,) = world.publish(1, messages=2)
    consumer, _ = world.subscribe()
    world.settle()
    ack_batch(consumer, entry, [1])
    ack_through(consumer, entry, 0b10)
    assert (world.subscription().cursor.partial, world.subscription().cursor.backlog_entries()) == ({}, 1)
    ack(consumer, entry)
    assert world.subscription().cursor.backlog_entries() == 0
    (last,) = world.publish(1, messages=2)
    ack_through(consumer, last, 0)
    assert world.subscription().cursor.mark_delete == last


def test_cumulative_acks_up_to_a_message_of_a_batch() -> None:
    """3.5.2, 2.3.5.6 All before the batch is acknowledged, of it what the set leaves out; it never goes back."""
    world = World()
    positions = world.publish(3, messages=4)
    consumer, _ = world.subscribe()
    cursor = world.subscription().cursor
    ack_through(consumer, positions[1], 0b1100)
    assert (cursor.mark_delete, cursor.partial) == (positions[0], {positions[1]: 0b1100})
    ack_through(consumer, positions[1], 0b1110)
    assert cursor.partial == {positions[1]: 0b1100}
    ack_through(consumer, positions[1], 0b1000)
    assert cursor.partial == {positions[1]: 0b1000}
    ack_batch(consumer, positions[1], [0, 1, 2])
    assert (cursor.mark_delete, cursor.partial) == (positions[1], {})


class TestFailover:
    """2.3 Choice and change of the active consumer."""

    def test_consumers_hear_who_is_active(self) -> None:
        """2.3.4.2 One event a consumer and change; the same state is not told twice."""
        world = World()
        one, ones = world.subscribe(FAILOVER, name="a")
        two, twos = world.subscribe(FAILOVER, name="b")
        _, threes = world.subscribe(FAILOVER, name="c")
        assert (ones.activity, twos.activity, threes.activity) == ([True], [False], [False])
        one.close()
        assert (ones.activity, twos.activity, threes.activity) == ([True], [False, True], [False])
        two.close()
        assert threes.activity == [False, True]

    def test_the_successor_starts_at_the_first_unacknowledged_entry(self) -> None:
        """2.3.4.1 (I2.5) What the former one had and did not acknowledge comes again, acknowledged entries do not."""
        world = World()
        positions = world.publish(8)
        former, formers = world.subscribe(FAILOVER, name="a")
        _, nexts = world.subscribe(FAILOVER, name="b")
        world.settle()
        assert (formers.positions, nexts.positions) == (positions, [])
        ack(former, *positions[:4], positions[5])
        former.close()
        world.settle()
        assert nexts.positions == [positions[4], *positions[6:]]

    def test_acknowledged_entries_are_not_sent_to_the_successor(self) -> None:
        """2.9 The takeover example: 0 to 3 read and acknowledged, the successor begins with 4 to 7."""
        world = World()
        positions = world.publish(8)
        former, _ = world.subscribe(FAILOVER, name="a", permits=4)
        _, nexts = world.subscribe(FAILOVER, name="b")
        world.settle()
        ack_through(former, positions[3])
        former.close()
        world.settle()
        assert nexts.positions == positions[4:]

    def test_a_takeover_waits_for_the_former_consumer(self) -> None:
        """2.3.4.1 The pause after a change; a change back and forth does not prolong it; the first one needs none."""
        world = World(active_consumer_failover_delay_time_millis=1000)
        positions = world.publish(2)
        former, formers = world.subscribe(FAILOVER, name="a")
        assert formers.take() == positions
        _, nexts = world.subscribe(FAILOVER, name="b")
        former.close()
        world.clock.advance(600)
        _, urgent = world.subscribe(FAILOVER, name="z", priority=-1)
        world.clock.advance(399)
        assert (nexts.take(), urgent.take()) == ([], [])
        world.clock.advance(1)
        assert (nexts.take(), urgent.take()) == ([], positions)

    def test_permits_and_entries_do_not_wake_a_pausing_successor(self) -> None:
        """2.3.4.1 During the pause neither permits nor new entries start a read."""
        world = World(active_consumer_failover_delay_time_millis=1000)
        former, _ = world.subscribe(FAILOVER, name="a")
        successor, mailbox = world.subscribe(FAILOVER, name="b", permits=0)
        former.close()
        successor.flow(10)
        positions = world.publish(2)
        assert mailbox.take() == []
        world.clock.advance(1000)
        assert mailbox.take() == positions

    def test_a_pause_ends_with_its_last_consumer(self) -> None:
        """2.3.4.1 Nobody is left to be served when the timer would fire."""
        world = World(active_consumer_failover_delay_time_millis=1000)
        consumers = [world.subscribe(FAILOVER, name=name)[0] for name in "ab"]
        for consumer in consumers:
            consumer.close()
        positions = world.publish(1)
        world.clock.advance(5000)
        _, mailbox = world.subscribe(FAILOVER, name="c")
        world.settle()
        assert mailbox.take() == positions

    def test_permits_of_a_standby_are_kept_for_it(self) -> None:
        """2.3.4.3 They cause no read while it stands by and serve it when it is active."""
        world = World()
        former, formers = world.subscribe(FAILOVER, name="a")
        _, standbys = world.subscribe(FAILOVER, name="b", permits=2)
        positions = world.publish(5)
        assert (formers.positions, standbys.positions) == (positions, [])
        former.close()
        world.settle()
        assert standbys.positions == positions[:2]

    def test_acks_of_a_standby_are_valid(self) -> None:
        """2.3.4.3 Who was active may still acknowledge what it got."""
        world = World()
        positions = world.publish(3)
        former, _ = world.subscribe(FAILOVER, name="b", priority=1)
        world.settle()
        world.subscribe(FAILOVER, name="a", priority=0, permits=0)
        ack_through(former, positions[1])
        assert world.subscription().cursor.mark_delete == positions[1]

    def test_who_leaves_from_standby_changes_nothing(self) -> None:
        """2.3.4.4, 2.3.4.5 No rewind when somebody joins or leaves without changing the active one."""
        world = World()
        world.publish(3)
        _, active = world.subscribe(FAILOVER, name="a")
        standby, _ = world.subscribe(FAILOVER, name="b")
        world.settle()
        active.take()
        standby.close()
        world.subscribe(FAILOVER, name="c")
        world.settle()
        assert active.take() == []

    def test_partitions_spread_over_the_sorted_names(self) -> None:
        """2.3.2 (I2.4) Two partitions and A to D, as topics of a real broker; then A and B leave."""
        world = World()
        world.broker.create_partitioned(TopicName.parse("spread"), 2)
        names = [f"persistent://public/default/spread-partition-{p}" for p in (0, 1)]
        boxes = {(n, t): world.subscribe(FAILOVER, "s", t, name=n) for n in "DBCA" for t in names}
        active = [world.subscription("s", t).dispatcher.stats().active_consumer for t in names]
        assert active == ["A", "B"]
        for name in "AB":
            for topic in names:
                boxes[name, topic][0].close()
        active = [world.subscription("s", t).dispatcher.stats().active_consumer for t in names]
        assert active == ["C", "D"]

    def test_the_ring_can_be_chosen_for_plain_topics(self) -> None:
        """2.3.3 With hash_ring the topic's name decides, not who came first."""
        world = World(failover_non_partitioned="hash_ring")
        active = []
        for number in range(1, 5):
            topic = f"persistent://public/default/topic-{number}"
            for name in "AB":
                world.subscribe(FAILOVER, "s", topic, name=name)
            active.append(world.subscription("s", topic).dispatcher.stats().active_consumer)
        assert active == ["B", "B", "A", "B"]


def test_one_subscription_cannot_starve_another() -> None:
    """2.3.5.1 A pass reads a bounded number of entries, a turn of the loop has a few; the rest waits for another."""
    world = World(dispatcher_max_read_batch_size=4, managed_ledger_max_entries_per_ledger=100)
    world.publish(80)
    _, busy = world.subscribe(subscription="busy")
    assert len(busy.positions) == 4 * PASSES_A_TURN
    _, other = world.subscribe(subscription="other")
    assert len(other.positions) == 4 * PASSES_A_TURN
    world.settle()
    assert (len(busy.positions), len(other.positions)) == (80, 80)


def test_a_pass_is_bounded_by_bytes() -> None:
    """2.3.5.1 Entries of one pass fit into the byte limit, but one always goes."""
    world = World(dispatcher_max_read_size_bytes=10)
    world.publish(PASSES_A_TURN + 2)
    _, mailbox = world.subscribe(subscription="s")
    assert len(mailbox.positions) == PASSES_A_TURN
    world.settle()
    assert len(mailbox.positions) == PASSES_A_TURN + 2


def test_shared_and_exclusive_consumers_do_not_mix() -> None:
    """2.1.1 The first consumer fixes the type; with the last one it is free again."""
    world = World()
    first, _ = world.subscribe(EXCLUSIVE)
    with pytest.raises(ConsumerBusyError, match="different type: it is Exclusive, asked for was Shared"):
        world.subscribe(SHARED)
    first.close()
    world.subscribe(SHARED)
    assert Position(-1, -1) == world.subscription().cursor.mark_delete


def test_an_ack_set_is_read_against_the_size_of_its_batch() -> None:
    """3.4.3 A full set says nothing, an empty one says all, and bits behind the last message mean nothing."""
    world = World()
    first, second, third = world.publish(3, messages=2)
    consumer, _ = world.subscribe()
    cursor = world.subscription().cursor
    ack_batch(consumer, first, [0, 1, 70])
    ack_through(consumer, first, 0b11)
    assert (cursor.partial, cursor.backlog_entries()) == ({}, 3)
    ack_batch(consumer, second, [65])
    assert list(cursor.deleted) == [second]
    ack_through(consumer, third, 0b100)
    assert (cursor.mark_delete, cursor.backlog_entries()) == (third, 0)
