# SPDX-License-Identifier: Apache-2.0
"""Acknowledgements in transactions over crashes, restarts, unloads and deletions, and what is stored of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker_core.base.errors import DiskFailedError, PersistenceServerError, ServerError
from broker_core.base.names import TopicName
from broker_core.base.positions import Position
from broker_core.broker.requests import ANYBODY
from broker_core.storage.catalogue import Catalogue
from broker_core.testing.sim_disk import POLICIES, Policy
from broker_core.wire.ack_sets import bits_of_words
from broker_core.wire.heads import TxnId
from tests.broker.transactions.acks import ack_in, ack_indexes, ack_through_in
from tests.broker.transactions.clients import abort, begin, commit
from tests.broker.world import EXCLUSIVE, SHARED, TOPIC, World, ack, image_before

NAME = TopicName.parse(TOPIC)
BATCH = 8
Start = Callable[[World], None]


def crash(world: World) -> None:
    world.crash(policy="none")


def unload(world: World) -> None:
    world.broker.unload(NAME)
    world.settle()


STARTS = pytest.mark.parametrize("start", [crash, World.restart, unload], ids=["crash", "restart", "unload"])


def rows(catalogue: Catalogue) -> int:
    """Rows of pending acknowledgements, of all subscriptions."""
    return int(catalogue.value("SELECT count(*) FROM pending_acks"))


def delivered(world: World, kind: object = SHARED) -> list[tuple[Position, int]]:
    """Entries that a new consumer gets, each with the messages of it that are open (0: all)."""
    consumer, mailbox = world.subscribe(kind)  # type: ignore[arg-type]
    world.settle()
    found = [(each.entry.position, bits_of_words(each.ack_set or ())) for each in mailbox.deliveries]
    consumer.close()
    return found


class TestStarts:
    """9.8.6: what is found after a start."""

    @STARTS
    def test_what_comes_is_neither_acknowledged_nor_pending(self, start: Start) -> None:
        """9.8.1 (#19449): and it can be acknowledged in a transaction, once."""
        world = World()
        m = world.publish(4)
        consumer, _ = world.subscribe(SHARED)
        world.settle()
        one, two = begin(world), begin(world)
        ack_in(one, consumer, m[0])
        ack(consumer, m[1])
        world.settle()
        start(world)
        consumer, mailbox = world.subscribe(SHARED)
        world.settle()
        assert mailbox.take() == m[2:]
        done = ack_in(two, consumer, *m[2:])
        world.settle()
        assert done == [None]
        commit(world, two)
        abort(world, one)
        assert mailbox.take() == [m[0]]

    @STARTS
    def test_a_cumulative_one_keeps_its_batch_set(self, start: Start) -> None:
        """9.8.3, T10 (found in Pulsar's source): up to message 2 of 8, a start, a commit; 3 to 7 are delivered."""
        world = World()
        m = world.publish(2, messages=BATCH)
        consumer, _ = world.subscribe(EXCLUSIVE)
        world.settle()
        one = begin(world)
        ack_through_in(one, consumer, m[1], index=2, size=BATCH)
        world.settle()
        start(world)
        commit(world, one)
        assert delivered(world, EXCLUSIVE) == [(m[1], 0b1111_1000)]

    @STARTS
    def test_the_abort_of_another_transaction_leaves_the_slot(self, start: Start) -> None:
        """9.8.7, T10 (found in Pulsar's source): also where it is stored and read again."""
        world = World()
        m = world.publish(6)
        consumer, _ = world.subscribe(EXCLUSIVE)
        world.settle()
        one, two = begin(world), begin(world)
        ack_through_in(one, consumer, m[2])
        ack_in(two, consumer, m[4])
        world.settle()
        abort(world, two)
        start(world)
        assert delivered(world, EXCLUSIVE) == [(each, 0) for each in m[3:]]
        commit(world, one)
        assert world.subscription().cursor.mark_delete == m[2]

    @STARTS
    def test_both_kinds_of_one_transaction_and_the_slot_of_another(self, start: Start) -> None:
        """9.8.6, T9 (found in Pulsar's source): the individual ones are applied or removed all the same."""
        world = World()
        m = world.publish(6)
        consumer, _ = world.subscribe(EXCLUSIVE)
        world.settle()
        slot, kept, dropped = begin(world), begin(world), begin(world)
        ack_through_in(slot, consumer, m[1])
        ack_in(kept, consumer, m[3])
        ack_in(dropped, consumer, m[4])
        world.settle()
        start(world)
        commit(world, kept)
        abort(world, dropped)
        assert delivered(world, EXCLUSIVE) == [(each, 0) for each in (m[2], m[4], m[5])]

    @STARTS
    def test_a_list_of_which_one_is_acknowledged_otherwise(self, start: Start) -> None:
        """9.8.5, T10 (found in Pulsar's source): the others of the list are committed."""
        world = World()
        m = world.publish(4)
        consumer, _ = world.subscribe(SHARED)
        world.settle()
        one = begin(world)
        ack_in(one, consumer, *m[:3])
        ack(consumer, m[1])
        world.settle()
        start(world)
        assert delivered(world) == [(m[3], 0)]
        commit(world, one)
        assert world.subscription().cursor.mark_delete == m[2]

    @pytest.mark.parametrize("committed", [True, False])
    def test_a_transaction_ends_while_its_topic_is_not_loaded(self, *, committed: bool) -> None:
        """9.5.2, 9.8.6: the subscription learns of it when it is loaded, after another crash too."""
        world = World()
        m = world.publish(3, messages=2)
        consumer, _ = world.subscribe(SHARED)
        world.settle()
        one = begin(world)
        ack_in(one, consumer, m[0])
        ack_indexes(one, consumer, m[1], [0], 2)
        world.settle()
        unload(world)
        (commit if committed else abort)(world, one)
        assert world.broker.registry.loaded_topics() == []
        assert rows(world.store.catalogue) == (2 if committed else 0)
        for _ in range(2):
            crash(world)
            expected = [(m[1], 0b10), (m[2], 0)] if committed else [(each, 0) for each in m]
            assert delivered(world) == expected
        world.settle()
        assert rows(world.store.catalogue) == 0


class TestCrashPoints:
    """9.5.1: a crash at each step leaves all of it or nothing."""

    @pytest.mark.parametrize("committed", [True, False])
    @pytest.mark.parametrize("policy", POLICIES)
    @pytest.mark.parametrize("groups", range(5))
    def test_power_is_lost_behind_each_group_of_an_end(self, groups: int, policy: Policy, *, committed: bool) -> None:
        """13.8, 9.8.6: two subscriptions have everything or nothing; the client repeats the end, and it is so."""
        world = World()
        m = world.publish(4)
        consumers = [world.subscribe(SHARED, subscription)[0] for subscription in ("s", "t")]
        world.settle()
        one = begin(world)
        for consumer in consumers:
            ack_in(one, consumer, m[0], m[2])
        world.broker.transactions.end(one, ANYBODY, lambda _error: None, commit=committed)
        for _ in range(groups):
            world.commit_once()
        _lose_power(world, policy)
        outcomes = set()
        for _ in range(2):
            (commit if committed else abort)(world, one)
            for subscription in map(world.subscription, ("s", "t")):
                outcomes.add(tuple(filter(subscription.cursor.is_acked, m)))
                assert not subscription.transactional_acks.pending.any
            _lose_power(world, policy)
        assert len(outcomes) == 1, "all of it or nothing, everywhere, and for good"
        assert outcomes == {(m[0], m[2]) if committed else ()} or not groups
        world.topic()
        world.settle()
        assert rows(world.store.catalogue) == 0

    @pytest.mark.parametrize("policy", ["none", "all"])
    @pytest.mark.parametrize("coordinators", [(0, 1), (1, 0)])
    @pytest.mark.parametrize("change", range(1, 10))
    def test_cumulative_ones_of_a_committed_and_of_an_open_transaction(
        self, change: int, coordinators: tuple[int, int], policy: Policy
    ) -> None:
        """9.8.6, 9.8.1: power is lost before the cursor has what is committed, and another has the slot; both hold."""
        world = World()
        m = world.publish(6)
        consumer, _ = world.subscribe(EXCLUSIVE)
        world.settle()
        one, two = (begin(world, coordinator=each) for each in coordinators)
        ack_through_in(one, consumer, m[2])
        world.settle()
        ended: list[ServerError | None] = []
        world.broker.transactions.end(one, ANYBODY, ended.append, commit=True)
        while not ended:
            world.commit_once()
        done = ack_through_in(two, consumer, m[4])
        caught = image_before(world.disk, change, 7, policy, done.copy)
        world.settle()
        ((image, known),) = caught
        world.abandon()
        world.disk, world.clock = image, world.clock.stopped()
        world.open()
        world.settle()
        assert world.subscription().cursor.mark_delete == m[2]
        if known:
            commit(world, two)
            assert world.subscription().cursor.mark_delete == m[4]

    def test_a_disk_that_refuses_is_told(self) -> None:
        """9.8.1 (#14738, #14760): no success behind a failed write; after the next start all works."""
        world = World()
        m = world.publish(2)
        consumer, _ = world.subscribe(SHARED)
        world.settle()
        one = begin(world)
        world.disk.fail(1, forever=True)
        done = ack_in(one, consumer, m[0])
        with pytest.raises(DiskFailedError):
            world.settle()
        (answer,) = done
        assert isinstance(answer, PersistenceServerError)
        image = world.disk.crash(0, "none")
        world.abandon()
        world.disk, world.clock = image, world.clock.stopped()
        world.open()
        consumer, mailbox = world.subscribe(SHARED)
        world.settle()
        assert mailbox.take() == m
        done = ack_in(one, consumer, m[0])
        world.settle()
        assert done == [None]
        commit(world, one)
        assert world.subscription().cursor.mark_delete == m[0]


def _lose_power(world: World, policy: Policy) -> None:
    """Without anything that was not yet durable."""
    image = world.disk.crash(7, policy)
    world.abandon()
    world.disk, world.clock = image, world.clock.stopped()
    world.open()


class TestWhatIsStored:
    """9.8.6: in proportion to what is pending."""

    def test_nothing_is_left_of_many_transactions(self) -> None:
        """T19 (#14974, #15073, #15137): after hundreds of transactions neither rows nor anything in memory."""
        world = World()
        consumer, mailbox = world.subscribe(SHARED)
        for number in range(300):
            if not mailbox.deliveries:
                world.publish(10)
            ack_in(one := begin(world), consumer, mailbox.deliveries.pop(0).entry.position)
            (abort if number % 10 else commit)(world, one)
        world.settle()
        pending = world.subscription().transactional_acks.pending
        assert rows(world.store.catalogue) == 0
        assert (pending.any, pending.transactions, len(pending.union)) == (False, [], 0)

    def test_rows_of_a_long_transaction_are_joined(self) -> None:
        """T19: two thousand acknowledgements in any order take a few rows, and all of them come back."""
        world = World(managed_ledger_max_entries_per_ledger=10_000)
        m = world.publish(2000, messages=3)
        consumer, _ = world.subscribe(SHARED)
        one = begin(world)
        for number, position in enumerate(m):
            ack_indexes(one, consumer, position, [number % 3], 3) if number % 2 else ack_in(one, consumer, position)
        world.settle()
        stored = world.store.catalogue.value("SELECT sum(length(acks)) FROM pending_acks")
        assert rows(world.store.catalogue) < 400
        assert stored < 40_000
        before = world.subscription().transactional_acks.pending.listed(one)
        crash(world)
        assert world.subscription().transactional_acks.pending.listed(one) == before

    def test_they_go_with_their_subscription(self) -> None:
        """9.8.9: unsubscribed, deleted with the topic, or passed over; the end of the transaction is a success."""
        world = World()
        m = world.publish(3)
        one = begin(world)
        consumers = {name: world.subscribe(SHARED, name)[0] for name in ("gone", "passed", "left")}
        for consumer in consumers.values():
            ack_in(one, consumer, m[0])
        world.settle()
        assert rows(world.store.catalogue) == 3
        consumers["gone"].unsubscribe(lambda _error: None)
        world.settle()
        assert rows(world.store.catalogue) == 2
        world.subscription("passed").pass_over(m[2])
        world.settle()
        assert rows(world.store.catalogue) == 1
        world.topic().delete()
        world.settle()
        assert rows(world.store.catalogue) == 0
        world.broker.registry.remove_loaded(NAME)
        commit(world, one)

    def test_nothing_is_stored_behind_the_decision_to_abort(self) -> None:
        """9.8.5, 9.8.7: not by a seek that forgets what is void either; it would be committed at the next start."""
        world = World()
        m = world.publish(3)
        consumer, _ = world.subscribe(SHARED)
        world.settle()
        one = begin(world)
        ack_in(one, consumer, *m[:2])
        world.settle()
        world.broker.transactions.end(one, ANYBODY, lambda _error: None, commit=False)
        assert rows(world.store.catalogue) == 0, "decided, and not durable yet"
        ack(consumer, m[0])
        consumer.seek(m[0], None, lambda _error: None)
        world.settle()
        crash(world)
        assert rows(world.store.catalogue) == 0
        assert delivered(world) == [(each, 0) for each in m]

    def test_a_reader_forgets_them_when_it_leaves(self) -> None:
        """9.8.9: nothing of a non-durable subscription is stored, and a commit finds it gone."""
        world = World()
        m = world.publish(2)
        consumer, _ = world.subscribe(EXCLUSIVE, durable=False)
        world.settle()
        one, two = begin(world), begin(world)
        assert ack_in(one, consumer, m[0]) == [None]
        ack_in(two, consumer, m[1])
        assert rows(world.store.catalogue) == 0
        commit(world, one)
        assert world.subscription().cursor.mark_delete == m[0]
        consumer.close()
        commit(world, two)
        assert two.least_bits > one.least_bits

    def test_ids_of_any_size_are_kept(self) -> None:
        """9.1.2: both halves have 64 bits, of which the highest may be set."""
        world = World()
        store = world.store.catalogue.pending_acks
        row = world.store.catalogue.subscriptions.create(
            world.topic().topic_id, "s", Position(0, 0), world.clock.now_ms()
        )
        for name in (TxnId(0, 0), TxnId(-1, -1), TxnId(2**63 - 1, -(2**63))):
            store.replace(row.id, name, b"x")
            assert [each.transaction for each in store.of_subscription(row.id)] == [name]
            store.forget_everywhere(name)
