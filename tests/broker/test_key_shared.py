# SPDX-License-Identifier: Apache-2.0
"""Key_Shared dispatch: keys in order at one consumer, joins and leaves, waiting entries, policies (2.9 to 2.11)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker_core.base.errors import ConsumerAssignError, ConsumerBusyError, NotAllowedError, ServerError
from broker_core.base.positions import Position
from broker_core.broker.consumer import Consumer
from broker_core.broker.dispatch.key_shared.dispatcher import KeySharedDispatcher
from broker_core.broker.dispatch.key_shared.selectors import HashRing
from broker_core.broker.dispatch.many_consumers import ManyConsumersDispatcher
from broker_core.broker.requests import KeySharedMode, KeySharedPolicy, SubscriptionType
from broker_core.wire.entry import seal_entry
from broker_core.wire.heads import SendHead
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata
from tests.broker.dispatchers import key_shared, many_consumers
from tests.broker.world import (
    EARLIEST,
    EXCLUSIVE,
    SHARED,
    SMALL,
    Mailbox,
    World,
    ack,
    ack_batch,
    ack_through,
    topic_stats,
)

KEY_SHARED = SubscriptionType.KEY_SHARED
LOW, HIGH, MIDDLE = "key-1", "key-0", "key-2"
"""Keys with the slots 5536, 63679 and 21772."""

OUT_OF_ORDER = KeySharedPolicy(allow_out_of_order=True)


def sticky(*ranges: tuple[int, int]) -> KeySharedPolicy:
    return KeySharedPolicy(KeySharedMode.STICKY, ranges)


class KeyWorld(World):
    """A world in which keys are told apart by splitting ranges, so that one can say who gets which."""

    def __init__(self, **changes: object) -> None:
        super().__init__(SMALL, None, subscription_key_shared_use_consistent_hashing=False, **changes)

    def join(
        self, name: str, permits: int = 100, policy: KeySharedPolicy | None = None, priority: int = 0
    ) -> tuple[Consumer, Mailbox]:
        found = self.subscribe(
            KEY_SHARED, name=name, permits=permits, key_shared=policy or KeySharedPolicy(), priority=priority
        )
        self.settle()
        return found

    def send(self, *keys: str | None, messages: int = 1) -> list[Position]:
        producer, answers = self.produce()
        for number, key in enumerate(keys):
            metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1)
            if key is not None:
                metadata.partition_key = key
            if messages > 1:
                metadata.num_messages_in_batch = messages
            producer.send(SendHead(0, number, messages), seal_entry(metadata.SerializeToString(), b"x"))
        self.settle()
        producer.close()
        return [position for _, position in answers.receipts]

    @property
    def dispatcher(self) -> ManyConsumersDispatcher:
        return many_consumers(self.subscription().dispatcher)

    @property
    def dealer(self) -> KeySharedDispatcher:
        return key_shared(self.subscription().dispatcher)

    def grant(self, consumer: Consumer, permits: int) -> None:
        consumer.flow(permits)
        self.settle()

    def acknowledge(self, consumer: Consumer, *positions: Position) -> None:
        ack(consumer, *positions)
        self.settle()


class Trace:
    """The trace of semantics 2.9 up to C2's joining: ten entries, even ones of the low key, four of them at C1."""

    def __init__(self, policy: KeySharedPolicy | None = None, **changes: object) -> None:
        # One ledger, so that the next entry after the last one acknowledged is the next number.
        self.world = KeyWorld(managed_ledger_max_entries_per_ledger=100, **changes)
        self.c1, self.box1 = self.world.join("C1", 4, policy)
        self.m = self.world.send(*[LOW if number % 2 == 0 else HIGH for number in range(10)])
        assert self.box1.take() == self.m[:4]
        self.c2, self.box2 = self.world.join("C2", 100, policy)

    def numbers(self, box: Mailbox) -> list[int]:
        return [self.m.index(position) for position in box.take()]


class TestTrace:
    """The trace vector of semantics 2.9."""

    def test_draining_hashes(self) -> None:
        """2.9.5, 2.9.2.1, 2.9.2.2, 2.9.2.3, 2.9.2.4: C2 gets the low key as soon as C1 has acknowledged m0 and m2."""
        t = Trace()
        assert t.numbers(t.box2) == []
        t.world.grant(t.c1, 100)
        assert (t.numbers(t.box1), t.numbers(t.box2)) == ([5, 7, 9], [])
        (draining,) = t.world.dealer.draining.of(t.c1)
        assert (draining.hash, draining.unack_msgs) == (5536, 2)
        assert draining.blocked_attempts >= 1
        t.world.acknowledge(t.c1, t.m[0])
        assert t.world.dealer.draining.of(t.c1)[0].unack_msgs == 1
        assert t.numbers(t.box2) == []
        t.world.acknowledge(t.c1, t.m[2])
        assert t.numbers(t.box2) == [4, 6, 8]
        assert (len(t.world.dealer.draining), t.world.dealer.draining.cleared) == (0, {t.c1: 1})
        t.c1.close()
        assert t.world.dealer.draining.cleared == {}

    def test_what_drains_is_known_when_others_join(self) -> None:
        """2.9.2.1, 2.9.2.4 (I2.13): C4 takes other hashes of C1; the low key still waits for it, attempts and all."""
        t = Trace()
        t.world.grant(t.c1, 100)
        t.world.send(LOW, LOW, LOW)
        draining = t.world.dealer.draining
        (before,) = draining.of(t.c1)
        t.world.join("C3")
        _, box4 = t.world.join("C4")
        assert [owner.name for _, owner in t.world.dealer.selector.ranges()] == ["C3", "C2", "C4", "C1"]
        (after,) = draining.of(t.c1)
        assert (after.hash, after.unack_msgs) == (before.hash, before.unack_msgs)
        assert after.blocked_attempts >= before.blocked_attempts > 1
        assert box4.take() == []

    def test_recorded_read_position(self) -> None:
        """2.9.5, 2.9.1.1, 2.9.1.2, 2.9.1.3 (I2.14): C2 waits until m0 to m3 are all acknowledged."""
        t = Trace(subscription_key_shared_use_classic_persistent_implementation=True)
        t.world.grant(t.c1, 100)
        assert (t.numbers(t.box1), t.numbers(t.box2)) == ([5, 7, 9], [])
        assert t.world.dealer.recorded == {t.c2: t.m[4]}
        t.world.acknowledge(t.c1, *t.m[:3])
        assert t.numbers(t.box2) == []
        t.world.acknowledge(t.c1, t.m[3])
        assert t.numbers(t.box2) == [4, 6, 8]
        assert len(t.world.dealer.recorded) == 0

    def test_newcomers_get_replays_below_the_first_mark_only(self) -> None:
        """2.9.1.2 (I2.14): what was read between the joining of two waits for the first of them to be set free."""
        t = Trace(subscription_key_shared_use_classic_persistent_implementation=True)
        t.world.grant(t.c1, 100)
        assert t.numbers(t.box1) == [5, 7, 9]
        c3, box3 = t.world.join("C3")  # the low key is its now
        assert t.world.dealer.recorded == {t.c2: t.m[4], c3: t.world.dispatcher.read_position}
        t.c1.redeliver(None)
        t.world.settle()
        assert (t.numbers(t.box2), t.numbers(box3)) == ([], [0, 2])

    def test_a_newcomer_that_has_left_holds_up_nobody(self) -> None:
        """2.9.1.2: its mark goes with it, and that of the next one counts."""
        t = Trace(subscription_key_shared_use_classic_persistent_implementation=True)
        t.world.grant(t.c1, 100)
        c3, box3 = t.world.join("C3")  # the low key is its now
        t.c2.close()
        t.c1.redeliver(None)
        t.world.settle()
        assert t.world.dealer.recorded == {c3: t.world.dispatcher.read_position}
        assert t.numbers(box3) == [0, 2, 4, 6, 8]

    def test_the_old_owner_leaves(self) -> None:
        """2.9.5, 2.9.2.4, 2.11.2: everything of C1 comes to C2, in order, before what was never sent."""
        t = Trace()
        t.c1.close()
        t.world.settle()
        assert [d.redelivery_count for d in t.box2.deliveries] == [1] * 4 + [0] * 6
        assert t.numbers(t.box2) == list(range(10))

    def test_out_of_order_allowed(self) -> None:
        """2.9.4, 2.9.5, 2.9.2.7: C2 gets m4 at once, while m0 and m2 are with C1."""
        t = Trace(OUT_OF_ORDER)
        assert t.numbers(t.box2) == [4, 6, 8]
        assert len(t.world.dealer.draining) == 0

    def test_a_stuck_consumer_stalls_newcomers_in_the_old_variant_only(self) -> None:
        """2.9.1.5, 2.9.2.8: with draining hashes a key that is not in flight flows at once."""
        for classic in (True, False):
            t = Trace(subscription_key_shared_use_classic_persistent_implementation=classic)
            (entry,) = t.world.send("low-c")  # slot 1691, which nobody has anything of
            t.world.grant(t.c1, 100)
            assert (t.box2.take() == [entry]) is not classic

    def test_who_is_alone_waits_for_nobody(self) -> None:
        """2.9.1.3, 2.9.2.6: the map is emptied when one consumer is left; with the last one everything goes."""
        t = Trace(subscription_key_shared_use_classic_persistent_implementation=True)
        t.c1.close()
        t.world.settle()
        assert t.numbers(t.box2) == list(range(10))
        t.c2.close()
        _, box = t.world.join("C3")
        assert [d.redelivery_count for d in box.deliveries] == [0] * 10
        assert t.numbers(box) == list(range(10))


def test_a_key_that_comes_back_to_its_owner_does_not_wait() -> None:
    """2.9.2.3: C2 leaves again before C1 has acknowledged anything."""
    t = Trace()
    t.world.grant(t.c1, 100)
    t.box1.take()
    t.c2.close()
    t.world.settle()
    assert t.numbers(t.box1) == [4, 6, 8]
    assert len(t.world.dealer.draining) == 0


def test_redelivery_of_a_draining_key_goes_to_the_new_owner() -> None:
    """2.9.2.4, 4.4.4: what C1 gives back waits until C1 has nothing of the key any more, then comes in order."""
    t = Trace()
    t.c1.redeliver([t.m[2]])
    t.world.settle()
    assert (t.numbers(t.box1), t.numbers(t.box2)) == ([], [])
    t.c1.redeliver([t.m[0]])
    t.world.settle()
    assert t.numbers(t.box2) == [0, 2, 4, 6, 8]


def test_acks_through_another_consumer_end_draining() -> None:
    """2.9.2.4, 3.3.2: the count falls with the owner's pending entries, whoever acknowledges them."""
    t = Trace()
    t.world.acknowledge(t.c2, t.m[0], t.m[2])
    t.world.grant(t.c1, 1)
    assert t.numbers(t.box2) == [4, 6, 8]


def test_a_partly_acknowledged_batch_is_still_pending() -> None:
    """2.9.2.4: only the last message of an entry ends it."""
    world = KeyWorld()
    c1, _ = world.join("C1", 3)
    first, *_ = world.send(LOW, LOW, messages=3)
    _, box2 = world.join("C2")
    ack_batch(c1, first, [2])
    world.settle()
    assert box2.take() == []
    ack_batch(c1, first, [])
    world.settle()
    assert len(box2.take()) == 1


def test_slow_keys_wait_and_others_go_on() -> None:
    """2.11.4, 2.11.3, 2.4.5, 2.4.11, 2.9.3.1: who has no permits blocks its own keys only; they come in order later."""
    world = KeyWorld()
    slow, slows = world.join("C1", 0)
    _, fasts = world.join("C2")
    positions = world.send(*[HIGH, LOW] * 10)
    assert (slows.take(), fasts.take()) == ([], positions[1::2])
    world.grant(slow, 3)
    assert slows.take() == positions[0:6:2]
    world.grant(slow, 100)
    assert slows.take() == positions[6::2]
    assert len(world.dispatcher.room) == 0


def test_look_ahead_has_a_limit() -> None:
    """2.9.3.1 (I2.15): with as many waiting as allowed nothing new is read, until some of them go."""
    world = KeyWorld(key_shared_look_ahead_msg_in_replay_threshold_per_consumer=2)
    slow, slows = world.join("C1", 0)
    _, fasts = world.join("C2")
    positions = world.send(*[HIGH] * 6, LOW)
    assert len(world.dispatcher.room) == 4
    assert fasts.take() == []
    world.grant(slow, 2)
    assert (slows.take(), fasts.take()) == (positions[:2], [])
    world.grant(slow, 100)
    assert (slows.take(), fasts.take()) == (positions[2:6], positions[6:])


def test_who_joins_makes_room_to_look_ahead() -> None:
    """2.9.3.1: the limit grows with each consumer, and others go on though the newcomer asks for nothing yet."""
    world = KeyWorld(key_shared_look_ahead_msg_in_replay_threshold_per_consumer=2)
    world.join("C1", 0)
    _, fasts = world.join("C2")
    positions = world.send(*[HIGH] * 5, MIDDLE)
    assert (len(world.dispatcher.room), fasts.take()) == (4, [])
    world.join("C3", 0)
    assert (len(world.dispatcher.room), fasts.take()) == (5, positions[5:])


def test_an_ack_of_what_waits_makes_room_to_look_ahead() -> None:
    """2.9.3.1, 3.3.2 (I2.15, I2.13): an entry that nobody holds is acknowledged, and a new one is read in its place."""
    world = KeyWorld(key_shared_look_ahead_msg_in_replay_threshold_per_consumer=2)
    slow, _ = world.join("C1", 0)
    _, fasts = world.join("C2")
    positions = world.send(*[HIGH] * 4, LOW)
    assert (len(world.dispatcher.room), fasts.take()) == (4, [])
    ack(slow, positions[0])
    world.settle()
    assert fasts.take() == positions[4:]


def test_the_limit_of_the_subscription_counts_too() -> None:
    """2.9.3.1: the smaller of both limits; 0 is none."""
    for per_consumer, per_subscription, expected in ((10, 3, 3), (0, 5, 5), (0, 0, 20)):
        world = KeyWorld(
            key_shared_look_ahead_msg_in_replay_threshold_per_consumer=per_consumer,
            key_shared_look_ahead_msg_in_replay_threshold_per_subscription=per_subscription,
        )
        world.join("C1", 0)
        world.join("C2")
        world.send(*[HIGH] * 20)
        assert len(world.dispatcher.room) == expected


def test_nothing_overtakes_a_waiting_entry_of_its_key() -> None:
    """2.9.1.4, 2.9.3.2, 2.9.3.3 (I2.12): also if it waits to be sent again and its consumer has room."""
    world = KeyWorld()
    c1, box1 = world.join("C1", 2)
    positions = world.send(HIGH, HIGH, HIGH, HIGH)
    assert box1.take() == positions[:2]
    c1.redeliver(None)
    world.grant(c1, 100)
    assert box1.take() == positions


def test_the_last_entry_may_overdraw_permits() -> None:
    """2.4.6, 2.9.2.5 (I2.6): what was sent is pending at once; batches travel whole, a debt is paid first."""
    world = KeyWorld()
    c1, box1 = world.join("C1", 4)
    world.send(*[HIGH] * 3, messages=3)
    assert (len(box1.take()), c1.permits, len(c1.pending)) == (2, -2, 2)
    world.grant(c1, 2)
    assert box1.take() == []
    world.grant(c1, 1)
    assert len(box1.take()) == 1


def test_limits_of_unacknowledged_messages_hold() -> None:
    """2.4.7: a blocked consumer blocks its keys only; the subscription stops at its own limit."""
    world = KeyWorld(max_unacked_messages_per_consumer=4, max_unacked_messages_per_subscription=7)
    c1, box1 = world.join("C1")
    c2, box2 = world.join("C2")
    positions = world.send(*[HIGH] * 6, *[LOW] * 6)
    assert (box1.take(), c1.blocked) == (positions[:4], True)
    assert len(box2.take()) == 3
    assert world.dispatcher.book.unacked.stopped
    world.acknowledge(c2, *positions[6:9])
    world.acknowledge(c1, *positions[:2])
    assert box1.take() == positions[4:6]
    assert (len(box2.take()), c2.blocked) == (3, False)


def test_many_consumers_that_leave_one_after_the_other_do_not_stop_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """2.4.9, 2.11.2: each time only what the leaver had, or waited for it, is put anew, so nothing is lost or slow."""
    world = World(SMALL)
    crowd = [world.subscribe(KEY_SHARED, name=f"c{number}") for number in range(100)]
    _, survivor = world.subscribe(KEY_SHARED, name="survivor", permits=2000)
    producer, answers = world.produce()
    for number in range(1000):
        metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1, partition_key=str(number))
        producer.send(SendHead(0, number), seal_entry(metadata.SerializeToString(), b"x"))
    world.settle()
    asked: list[int] = []

    def counting(select: Callable[..., object]) -> Callable[..., object]:
        def counted(selector: object, hash_: int) -> object:
            asked.append(hash_)
            return select(selector, hash_)

        return counted

    monkeypatch.setattr(HashRing, "select", counting(HashRing.select))
    for _, mailbox in crowd:
        mailbox.writable = False
    survivor.writable = False
    for consumer, _ in crowd:
        consumer.close()
    assert len(asked) < 15_000
    survivor.writable = True
    assert survivor.consumer is not None
    survivor.consumer.writable_again()
    world.settle()
    assert sorted(survivor.positions) == [position for _, position in answers.receipts]


def test_keyless_messages_are_spread_or_kept_together() -> None:
    """1.6, 2.10.3: each has a key of its own, or all have NONE_KEY (slot 48803)."""
    for spread, expected in ((True, {"C1", "C2"}), (False, {"C1"})):
        world = KeyWorld(key_shared_spread_keyless=spread)
        boxes = {name: world.join(name)[1] for name in ("C1", "C2")}
        world.send(*[None] * 30)
        assert {name for name, box in boxes.items() if box.take()} == expected


def test_a_batch_has_one_key() -> None:
    """2.10.1: whole entries go by the key of the entry."""
    world = KeyWorld()
    _, box1 = world.join("C1")
    world.join("C2")
    positions = world.send(HIGH, messages=5)
    assert box1.take() == positions


def test_priorities_do_not_matter_for_keys() -> None:
    """2.1.6: they are for Shared and Failover."""
    world = KeyWorld()
    _, box1 = world.join("C1", priority=0)
    _, box2 = world.join("C2", priority=5)
    positions = world.send(LOW, HIGH)
    assert (box2.take(), box1.take()) == (positions[:1], positions[1:])


def test_cumulative_acks_are_refused() -> None:
    """2.10.5, 3.3.1: an error to the caller, and no change."""
    world = KeyWorld()
    consumer, _ = world.join("C1")
    positions = world.send(LOW, LOW)
    done: list[ServerError | None] = []
    ack_through(consumer, positions[1], done=done)
    assert isinstance(done[0], NotAllowedError)
    assert "Key_Shared" in str(done[0])


class TestPolicies:
    """What binds all consumers of a subscription (2.1.2)."""

    def test_the_first_consumer_fixes_type_mode_and_order(self) -> None:
        """2.1.1, 2.1.2 (2.11.1): others are refused and change nothing; afterwards everything is free again."""
        world = KeyWorld()
        first, _ = world.join("C1")
        before = world.dealer.selector.ranges()
        for policy in (sticky((0, 65535)), OUT_OF_ORDER):
            with pytest.raises(ConsumerBusyError, match="of different type"):
                world.join("C2", policy=policy)
        with pytest.raises(ConsumerBusyError, match="of different type"):
            world.subscribe(SHARED, name="C2")
        assert (world.dealer.selector.ranges(), len(world.dispatcher.consumers)) == (before, 1)
        first.close()
        world.join("C2", policy=sticky((0, 65535)))
        assert world.dealer.policy.mode is KeySharedMode.STICKY

    def test_another_type_keeps_the_acks(self) -> None:
        """2.1.3: the cursor stays, what was in memory goes."""
        world = KeyWorld()
        consumer, _ = world.join("C1")
        positions = world.send(LOW, HIGH, LOW)
        world.acknowledge(consumer, positions[1])
        consumer.close()
        _, mailbox = world.subscribe(SHARED)
        world.settle()
        assert mailbox.take() == [positions[0], positions[2]]

    def test_it_can_be_switched_off(self) -> None:
        """2.1.1: subscriptionKeySharedEnable."""
        world = KeyWorld(subscription_key_shared_enable=False)
        with pytest.raises(NotAllowedError, match="subscriptionKeySharedEnable"):
            world.join("C1")


class TestSticky:
    """Consumers that bring their own ranges (2.8)."""

    def test_a_refused_join_leaves_no_trace(self) -> None:
        """2.8.2, 2.11.1 (I2.10): no permits, no range, no consumer; the others go on."""
        world = KeyWorld()
        _, box1 = world.join("C1", policy=sticky((0, 32767)))
        for policy in (sticky((32767, 40000)), sticky()):
            with pytest.raises(ConsumerAssignError):
                world.join("C2", policy=policy)
        assert len(world.dispatcher.consumers) == 1
        positions = world.send(LOW)
        assert box1.take() == positions

    @pytest.mark.parametrize("kind", [EXCLUSIVE, KEY_SHARED])
    def test_a_refused_first_consumer_leaves_no_subscription(self, kind: SubscriptionType) -> None:
        """2.8.2: it would keep every message for nobody. One that was there before stays, with what it has left."""
        world = World()
        world.topic().create_subscription("before", EARLIEST)
        positions = world.publish(2)
        for name in ("new", "before"):
            with pytest.raises(ConsumerAssignError):
                world.subscribe(kind, name, key_shared=sticky((5, 4)))
        for _ in range(2):
            assert list(world.topic().subscriptions) == ["before"]
            world.restart()
        _, box = world.subscribe(kind, "before", key_shared=sticky((0, 65535)))
        world.settle()
        assert box.take() == positions

    def test_messages_in_a_hole_wait_for_somebody(self) -> None:
        """2.8.3 (I2.10): they block nobody, however many they are, and come in order when the hole is filled."""
        world = KeyWorld(key_shared_look_ahead_msg_in_replay_threshold_per_consumer=2)
        _, box1 = world.join("C1", policy=sticky((0, 16383)))
        positions = world.send(*[HIGH] * 20, LOW, *[HIGH] * 3, LOW)
        assert box1.take() == [positions[20], positions[24]]
        assert len(world.dispatcher.room) == 23
        world.join("C3", policy=sticky((20000, 30000)))
        assert len(world.dispatcher.room) == 23
        _, box2 = world.join("C2", policy=sticky((49152, 65535)))
        assert box2.take() == [*positions[:20], *positions[21:24]]
        assert (box1.take(), len(world.dispatcher.room)) == ([], 0)

    def test_a_range_is_free_when_its_owner_has_left(self) -> None:
        """2.8.4, 2.9.2.7: no handing over while it is there; afterwards its entries go to whoever takes the range."""
        world = KeyWorld()
        c1, _ = world.join("C1", policy=sticky((0, 16383)))
        _, box2 = world.join("C2", policy=sticky((49152, 65535)))
        positions = world.send(LOW, LOW, HIGH)
        assert len(world.dealer.draining) == 0
        c1.close()
        world.settle()
        assert (box2.take(), len(world.dispatcher.room)) == (positions[2:], 2)
        _, box3 = world.join("C3", policy=sticky((0, 16383)))
        assert [d.redelivery_count for d in box3.deliveries] == [1, 1]
        assert box3.take() == positions[:2]

    def test_what_is_acknowledged_in_a_hole_does_not_come(self) -> None:
        """2.8.3, 3.3.5: an ack by id reaches it there too."""
        world = KeyWorld()
        c1, _ = world.join("C1", policy=sticky((0, 16383)))
        positions = world.send(HIGH, HIGH, HIGH)
        world.acknowledge(c1, positions[1])
        assert len(world.dispatcher.room) == 2
        _, box2 = world.join("C2", policy=sticky((49152, 65535)))
        assert box2.take() == [positions[0], positions[2]]


@pytest.mark.parametrize("in_order", [True, False])
def test_what_waits_behind_an_entry_that_the_disk_refuses_stays_behind_it(in_order: bool) -> None:
    """2.9, 2.9.4 (I2.12): it will be tried again, and its key keeps its order; other consumers go on."""
    world = KeyWorld(managed_ledger_cache_size_mbytes=0)
    policy = KeySharedPolicy(allow_out_of_order=not in_order)
    c1, box1 = world.join("C1", 1, policy)
    _, box2 = world.join("C2", 100, policy)
    positions = world.send(HIGH, HIGH, HIGH, LOW)
    assert (box1.take(), box2.take()) == (positions[:1], positions[3:])
    for _ in range(2):  # together with others, and alone
        world.disk.fail(1, kinds=("read",))
    c1.flow(10)
    assert box1.take() == ([] if in_order else positions[2:3])
    more = world.send(LOW, HIGH)
    assert (box1.take(), box2.take()) == ([] if in_order else more[1:], more[:1])
    world.clock.advance(15_000)
    assert box1.take() == ([positions[1], positions[2], more[1]] if in_order else [positions[1]])
    assert world.disk.faults_hit == 2


def test_what_was_passed_over_is_forgotten_everywhere() -> None:
    """7.2, 3.3.5: pending, waiting and in holes; draining ends and the rest goes on."""
    t = Trace()
    t.world.grant(t.c1, 100)
    t.box1.take()
    t.world.subscription().pass_over(t.m[3])
    t.world.settle()
    assert t.numbers(t.box2) == [4, 6, 8]
    assert set(t.world.dealer.room.hashes) == set(t.m[4:])
    world = KeyWorld()
    world.join("C1", policy=sticky((0, 16383)))
    leaver, _ = world.join("C2", policy=sticky((49152, 65535)))
    positions = world.send(HIGH, HIGH)
    leaver.close()
    world.subscription().pass_over(positions[0])
    assert (len(world.dispatcher.room), len(world.dispatcher.book.redeliveries)) == (1, 1)


class TestExclusiveFilter:
    """Exclusive subscriptions with ranges (2.2.4)."""

    def test_what_is_outside_counts_as_acknowledged(self) -> None:
        """2.2.4: skipped, and no backlog."""
        world = World()
        consumer, box = world.subscribe(EXCLUSIVE, key_shared=sticky((0, 16383)), permits=3)
        positions = KeyWorld.send(world, HIGH, LOW, HIGH, MIDDLE, LOW, HIGH)  # type: ignore[arg-type] # a world too
        assert box.take() == [positions[1], positions[4]]
        assert (consumer.permits, world.subscription().cursor.backlog_entries()) == (1, 2)
        ack_through(consumer, positions[4])
        world.settle()
        world.restart()
        assert world.subscription().cursor.mark_delete == positions[5]

    def test_what_is_outside_is_not_delivered_though_no_hole_is_left_of_it(self) -> None:
        """2.2.4: what comes first of a read is acknowledged without a gap."""
        world = World()
        _, box = world.subscribe(EXCLUSIVE, key_shared=sticky((0, 16383)), permits=3)
        positions = KeyWorld.send(world, HIGH, LOW)  # type: ignore[arg-type] # a world too
        assert box.take() == positions[1:]

    def test_bad_ranges_are_refused(self) -> None:
        """2.2.4, 2.8.2"""
        world = World()
        with pytest.raises(ConsumerAssignError):
            world.subscribe(EXCLUSIVE, key_shared=sticky((5, 4)))
        world.subscribe(EXCLUSIVE)


class TestStatistics:
    """What can be seen from outside."""

    def test_ranges_and_draining_hashes_are_shown(self) -> None:
        """2.6.2, 2.9.2.2: Pulsar's names; ranges are shown with both ends included."""
        t = Trace()
        t.world.grant(t.c1, 100)
        stats = topic_stats(t.world.topic()).subscriptions["s"]
        assert (stats.key_shared_mode, stats.allow_out_of_order_delivery, stats.msg_in_replay) == (
            "AUTO_SPLIT",
            False,
            3,
        )
        one, two = stats.consumers
        assert (one.key_hash_ranges, two.key_hash_ranges) == (["[32768, 65535]"], ["[0, 32767]"])
        assert two.key_hash_range_arrays == [(0, 32767)]
        assert (one.draining_hashes_count, one.draining_hashes_unacked_messages) == (1, 2)
        assert [(each.hash, each.unack_msgs) for each in one.draining_hashes or []] == [(5536, 2)]
        t.world.acknowledge(t.c1, t.m[0], t.m[2])
        one, two = topic_stats(t.world.topic()).subscriptions["s"].consumers
        assert (one.draining_hashes, one.draining_hashes_cleared_total) == ([], 1)

    def test_the_position_of_joining_is_shown(self) -> None:
        """2.9.1.1: readPositionWhenJoining, while it matters."""
        t = Trace(subscription_key_shared_use_classic_persistent_implementation=True)
        stats = t.world.dispatcher.stats().keys
        assert (stats[t.c1].joined_at, stats[t.c2].joined_at) == ("", str(t.m[4]))
        assert topic_stats(t.world.topic()).subscriptions["s"].consumers_after_mark_delete_position == {
            t.c2.name: str(t.m[4])
        }


def test_a_read_of_which_nothing_is_due_gives_nothing_out() -> None:
    """6.2 All that was read is held back; what comes behind it goes out."""
    world = KeyWorld()
    _consumer, mailbox = world.join("a")
    producer, _answers = world.produce()
    later_ms = world.clock.now_ms() + 60_000
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, partition_key=LOW)
    metadata.deliver_at_time = later_ms
    producer.send(SendHead(0, 0), seal_entry(metadata.SerializeToString(), b"x"))
    world.settle()
    assert mailbox.take() == []
    assert world.send(LOW) == mailbox.positions
