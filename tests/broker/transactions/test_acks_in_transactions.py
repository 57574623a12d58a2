# SPDX-License-Identifier: Apache-2.0
"""Acknowledgements in transactions on a whole broker: the traces of the specification, and what is around them."""

from __future__ import annotations

import pytest

from broker_core.base.errors import (
    InvalidTxnStatusError,
    NotAllowedError,
    TransactionConflictError,
    TransactionNotFoundError,
)
from broker_core.base.names import TopicName
from broker_core.base.policies import DispatchRate, Policies
from broker_core.base.positions import Position
from broker_core.base.steps import drained
from broker_core.broker.dispatch import single_active
from broker_core.broker.requests import AckId, AckKind, SubscribeRequest, SubscriptionType
from broker_core.wire.ack_sets import bits_of_words
from broker_core.wire.heads import SendHead, TxnId
from tests.broker.transactions.acks import Done, ack_ids, ack_in, ack_indexes, ack_through_in
from tests.broker.transactions.clients import abort, begin, commit
from tests.broker.world import EXCLUSIVE, FAILOVER, SHARED, TOPIC, Mailbox, World, ack, ack_batch, ack_through, body

KEY_SHARED = SubscriptionType.KEY_SHARED
BATCH = 5


def refusal(world: World, done: Done) -> type[BaseException] | None:
    """The error of an answer; None if it was accepted."""
    world.settle()
    assert len(done) == 1, "answered once"
    return None if done[0] is None else type(done[0])


def acknowledged_by_one_who_left(world: World, position: Position) -> TxnId:
    """A transaction in which all through ``position`` is acknowledged, by an exclusive consumer that is gone."""
    consumer, _ = world.subscribe(EXCLUSIVE)
    world.settle()
    name = begin(world)
    assert refusal(world, ack_through_in(name, consumer, position)) is None
    consumer.close()
    return name


def taken(mailbox: Mailbox) -> list[tuple[Position, int, int]]:
    """Positions, messages (0: all) and redelivery counts that came since the last call."""
    found = [
        (each.entry.position, bits_of_words(each.ack_set) if each.ack_set else 0, each.redelivery_count)
        for each in mailbox.deliveries
    ]
    mailbox.deliveries.clear()
    return found


def bits(*indexes: int) -> int:
    return sum(1 << index for index in indexes)


class TestTraces:
    """9.8: traces on one subscription."""

    def test_parts_of_a_batch_in_three_transactions(self) -> None:
        """9.8.7 (T9, #14327, #16032, #19581): after an abort its own messages come again, and not those of others."""
        world = World()
        (p,) = world.publish(1, messages=BATCH)
        consumer, mailbox = world.subscribe(SHARED)
        world.settle()
        assert taken(mailbox) == [(p, 0, 0)]
        one, two, three = (begin(world) for _ in range(3))
        assert refusal(world, ack_indexes(one, consumer, p, [0, 1], BATCH)) is None
        assert refusal(world, ack_indexes(two, consumer, p, [2, 3, 4], BATCH)) is None
        abort(world, two)
        assert taken(mailbox) == [(p, bits(2, 3, 4), 1)]
        assert refusal(world, ack_indexes(three, consumer, p, [2, 3, 4], BATCH)) is None
        commit(world, one)
        commit(world, three)
        assert world.subscription().cursor.mark_delete == p
        assert taken(mailbox) == []

    def test_a_rest_that_is_pending_is_given_to_nobody(self) -> None:
        """9.8.1, 9.8.7: 0 to 2 are acknowledged for good, 3 and 4 pending; after the abort just these come."""
        world = World()
        (p,) = world.publish(1, messages=BATCH)
        consumer, _ = world.subscribe(SHARED)
        world.settle()
        ack_batch(consumer, p, [3, 4])
        one = begin(world)
        assert refusal(world, ack_indexes(one, consumer, p, [3, 4], BATCH)) is None
        consumer.close()
        _, other = world.subscribe(SHARED, name="other")
        world.settle()
        assert taken(other) == []
        abort(world, one)
        assert [(position, left) for position, left, _ in taken(other)] == [(p, bits(3, 4))]

    def test_one_message_has_one_transaction(self) -> None:
        """9.8.2, 9.8.6: a second transaction conflicts on index 1 and not on index 2; each end concerns its own."""
        world = World()
        (p,) = world.publish(1, messages=BATCH)
        consumer, mailbox = world.subscribe(SHARED)
        world.settle()
        taken(mailbox)
        one, two = begin(world), begin(world)
        assert refusal(world, ack_indexes(one, consumer, p, [1], BATCH)) is None
        assert refusal(world, ack_indexes(two, consumer, p, [1], BATCH)) is TransactionConflictError
        assert refusal(world, ack_indexes(two, consumer, p, [2], BATCH)) is None
        commit(world, one)
        assert world.subscription().cursor.partial == {p: bits(0, 2, 3, 4)}
        abort(world, two)
        assert taken(mailbox) == [(p, bits(2), 1)]

    @pytest.mark.parametrize("committed", [True, False])
    def test_an_ordinary_acknowledgement_wins(self, *, committed: bool) -> None:
        """9.8.5: before, it conflicts; behind, both are accepted, and the message stays acknowledged."""
        world = World()
        first, second = world.publish(2)
        consumer, mailbox = world.subscribe(SHARED)
        world.settle()
        taken(mailbox)
        one = begin(world)
        ack(consumer, first)
        assert refusal(world, ack_in(one, consumer, first)) is TransactionConflictError
        assert refusal(world, ack_in(one, consumer, second)) is None
        ack(consumer, second)
        (commit if committed else abort)(world, one)
        assert world.subscription().cursor.mark_delete == second
        assert taken(mailbox) == []

    def test_the_slot_of_cumulative_acknowledgements(self) -> None:
        """9.8.3: one transaction at a time, and that only onwards."""
        world = World()
        m = world.publish(5)
        consumer, _ = world.subscribe(EXCLUSIVE)
        world.settle()
        one, two = begin(world), begin(world)
        assert refusal(world, ack_through_in(one, consumer, m[2])) is None
        assert refusal(world, ack_through_in(two, consumer, m[4])) is TransactionConflictError
        assert refusal(world, ack_through_in(one, consumer, m[1])) is TransactionConflictError
        assert refusal(world, ack_through_in(one, consumer, m[3])) is None
        commit(world, one)
        assert world.subscription().cursor.mark_delete == m[3]

    def test_the_abort_of_a_cumulative_one_sends_nothing_again(self) -> None:
        """9.8.7 (#10431, #14371): the consumer goes on; who connects anew begins at the beginning."""
        world = World()
        m = world.publish(5)
        consumer, mailbox = world.subscribe(EXCLUSIVE)
        world.settle()
        assert mailbox.take() == m
        one = begin(world)
        assert refusal(world, ack_through_in(one, consumer, m[2])) is None
        abort(world, one)
        (m5,) = world.publish(1)
        assert mailbox.take() == [m5]
        assert world.subscription().cursor.mark_delete < m[0]
        consumer.close()
        _, anew = world.subscribe(EXCLUSIVE)
        world.settle()
        assert anew.take() == [*m, m5]

    @pytest.mark.parametrize("how", ["commit", "abort", "abort amid"])
    def test_very_many_entries_are_passed_in_turns(self, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """9.8.1, 9.8.7: who connects anew gets what is behind them, and all of them after an abort, whenever it is."""
        monkeypatch.setattr(single_active, "_JUMPED_A_PASS", 3)
        world = World()
        m = world.publish(60)
        one = acknowledged_by_one_who_left(world, m[57])
        _, anew = world.subscribe(EXCLUSIVE)
        assert anew.take() == [], "not in one turn"
        if how != "abort amid":
            world.settle()
            assert anew.take() == m[58:]
        if how == "commit":
            commit(world, one)
            assert world.subscription().cursor.mark_delete == m[57]
            assert anew.take() == []
        else:
            abort(world, one)
            assert sorted(anew.take()) == (m if how == "abort amid" else m[:58])

    def test_both_kinds_in_two_transactions(self) -> None:
        """9.8.6: the commit of the individual one is applied though another transaction has the slot."""
        world = World()
        m = world.publish(5)
        consumer, _ = world.subscribe(EXCLUSIVE)
        world.settle()
        one, two = begin(world), begin(world)
        assert refusal(world, ack_through_in(one, consumer, m[2])) is None
        assert refusal(world, ack_in(two, consumer, m[4])) is None
        commit(world, two)
        cursor = world.subscription().cursor
        assert cursor.is_acked(m[4])
        assert not cursor.is_acked(m[2])
        commit(world, one)
        assert cursor.mark_delete == m[2]

    def test_a_key_is_free_as_soon_as_its_messages_are_pending(self) -> None:
        """9.8.8: another consumer may have the next of the key at once, and what is aborted comes behind it."""
        world = World()
        producer, _ = world.produce()

        def keyed(number: int) -> None:
            producer.send(SendHead(0, number), body(str(number)))

        keyed(0)
        world.settle()
        first, one_box = world.subscribe(KEY_SHARED, name="c1")
        world.settle()
        (k1,) = one_box.take()
        second, two_box = world.subscribe(KEY_SHARED, name="c2")
        txn = begin(world)
        assert refusal(world, ack_in(txn, first, k1)) is None
        first.close()
        keyed(1)
        world.settle()
        (k2,) = two_box.take()
        abort(world, txn)
        assert taken(two_box) == [(k1, 0, 1)]
        assert k2 > k1
        assert second.pending.unacked == 2


class TestTheAnswer:
    """9.8.1 to 9.8.4: what is checked, and when the answer comes."""

    def test_it_comes_when_the_acknowledgement_is_durable(self) -> None:
        """9.8.1: the answer waits for the change of the catalogue; after it a crash keeps the message pending."""
        world = World()
        m = world.publish(2)
        consumer, _ = world.subscribe(SHARED)
        world.settle()
        one = begin(world)
        world.settle()
        done = ack_in(one, consumer, m[0])
        assert done == []
        assert refusal(world, done) is None
        world.crash(policy="none")
        _, mailbox = world.subscribe(SHARED)
        world.settle()
        assert mailbox.take() == [m[1]]

    def test_a_transaction_that_is_not_open_acknowledges_nothing(self) -> None:
        """9.8.1 (T8): after the decision, and of one that never was."""
        world = World()
        m = world.publish(1)
        consumer, _ = world.subscribe(SHARED)
        world.settle()
        one = begin(world)
        abort(world, one)
        assert refusal(world, ack_in(one, consumer, m[0])) is InvalidTxnStatusError
        assert refusal(world, ack_in(TxnId(0, 7), consumer, m[0])) is TransactionNotFoundError
        assert not world.subscription().transactional_acks.pending.any

    def test_a_message_that_does_not_exist_yet_is_refused(self) -> None:
        """9.8.1: as outside of transactions."""
        world = World()
        m = world.publish(1)
        consumer, _ = world.subscribe(SHARED)
        one = begin(world)
        done = ack_in(one, consumer, m[0], Position(m[0].ledger, m[0].entry + 1))
        assert refusal(world, done) is NotAllowedError
        assert not world.subscription().transactional_acks.pending.any

    def test_cumulative_on_shared_is_refused(self) -> None:
        """9.8.3: Pulsar says that it is done, and does nothing."""
        world = World()
        m = world.publish(1)
        consumer, _ = world.subscribe(SHARED)
        one = begin(world)
        assert refusal(world, ack_through_in(one, consumer, m[0])) is NotAllowedError

    def test_cumulative_names_one_message(self) -> None:
        """9.8.3: exactly one."""
        world = World()
        m = world.publish(2)
        consumer, _ = world.subscribe(EXCLUSIVE)
        one = begin(world)
        done = ack_in(one, consumer, *m, kind=AckKind.CUMULATIVE)
        assert refusal(world, done) is NotAllowedError

    def test_a_message_that_was_never_delivered_can_be_acknowledged(self) -> None:
        """9.8.1: not by this consumer, nor by any."""
        world = World()
        m = world.publish(3)
        consumer, mailbox = world.subscribe(SHARED, permits=1)
        world.settle()
        assert mailbox.take() == [m[0]]
        one = begin(world)
        assert refusal(world, ack_in(one, consumer, m[1])) is None
        consumer.flow(10)
        world.settle()
        assert mailbox.take() == [m[2]]
        abort(world, one)
        assert mailbox.take() == [m[1]]

    def test_messages_that_are_not_stored_are_in_no_transaction(self) -> None:
        """9.8.10: TransactionConflict on a topic that is not persistent."""
        world = World()
        name = TopicName.parse("non-persistent://public/default/n")
        topic = world.broker.any_topic(name, create=True)
        consumer = topic.subscribe(SubscribeRequest("s", SHARED), Mailbox())
        one = begin(world)
        assert refusal(world, ack_in(one, consumer, Position(0, 0))) is TransactionConflictError

    def test_an_empty_set_acknowledges_the_whole_batch(self) -> None:
        """9.8.4: so the Go client ends a batch; the number of messages is the stored one."""
        world = World()
        (p,) = world.publish(1, messages=3)
        consumer, _ = world.subscribe(SHARED)
        world.settle()
        one = begin(world)
        for left in (0b110, 0b100, 0):
            done = ack_ids(one, consumer, [AckId(p, (left,))], AckKind.INDIVIDUAL)
            assert refusal(world, done) is None, "the set of the Go client has all that was acknowledged so far"
        assert consumer.pending.unacked == 0
        commit(world, one)
        assert world.subscription().cursor.mark_delete == p


class TestDispatch:
    """9.8.7, 9.8.8: to whom messages go while they are pending, and after an abort."""

    def test_pending_messages_stay_when_their_consumer_leaves(self) -> None:
        """9.8.8: they belong to the transaction."""
        world = World()
        m = world.publish(2)
        consumer, _ = world.subscribe(SHARED)
        _, other = world.subscribe(SHARED, name="other", permits=0)
        world.settle()
        one = begin(world)
        assert refusal(world, ack_in(one, consumer, m[0])) is None
        consumer.close()
        assert other.consumer is not None
        other.consumer.flow(10)
        world.settle()
        assert other.take() == [m[1]]
        abort(world, one)
        assert taken(other) == [(m[0], 0, 1)]

    def test_redelivery_of_a_pending_message_waits_for_the_abort(self) -> None:
        """9.8.1: the consumer holds it no more, so it cannot ask for it."""
        world = World()
        m = world.publish(2)
        consumer, mailbox = world.subscribe(SHARED)
        world.settle()
        mailbox.take()
        one = begin(world)
        assert refusal(world, ack_in(one, consumer, m[0])) is None
        consumer.redeliver([m[0]])
        consumer.redeliver()
        world.settle()
        assert mailbox.take() == [m[1]]
        abort(world, one)
        assert mailbox.take() == [m[0]]

    def test_redeliveries_are_counted_on(self) -> None:
        """9.8.7 (#25107): each abort gives one new delivery, and the count rises by one."""
        world = World()
        (m,) = world.publish(1)
        consumer, mailbox = world.subscribe(SHARED)
        world.settle()
        for number in range(1, 4):
            txn = begin(world)
            assert refusal(world, ack_in(txn, consumer, m)) is None
            abort(world, txn)
            assert [count for _, _, count in taken(mailbox)][-1:] == [number]
            assert consumer.pending.unacked == 1

    def test_messages_go_back_to_the_consumer_that_holds_their_batch(self) -> None:
        """9.8.7 (#25107): just these, and not the ones that it still holds."""
        world = World()
        (p,) = world.publish(1, messages=BATCH)
        consumer, mailbox = world.subscribe(SHARED, permits=BATCH)
        _, other = world.subscribe(SHARED, name="other")
        world.settle()
        holder, box = (consumer, mailbox) if mailbox.deliveries else (other.consumer, other)
        assert holder is not None
        taken(box)
        one = begin(world)
        assert refusal(world, ack_indexes(one, holder, p, [0, 1], BATCH)) is None
        assert holder.pending.unacked == 3
        abort(world, one)
        holder.flow(BATCH)
        world.settle()
        assert taken(box) == [(p, bits(0, 1), 1)]
        assert holder.pending.unacked == BATCH
        ack(holder, p)
        assert holder.pending.unacked == 0
        assert world.subscription().dispatcher.unacked_messages == 0

    def test_messages_that_come_back_wait_for_permits(self) -> None:
        """9.8.8 (T14): meanwhile acknowledgements of the rest of the batch count right."""
        world = World()
        (p,) = world.publish(1, messages=BATCH)
        consumer, mailbox = world.subscribe(SHARED, permits=1)
        world.settle()
        taken(mailbox)
        one = begin(world)
        assert refusal(world, ack_indexes(one, consumer, p, [0, 1], BATCH)) is None
        abort(world, one)
        assert taken(mailbox) == []
        ack_batch(consumer, p, [0, 1, 4])
        assert consumer.pending.unacked == 1
        ack_batch(consumer, p, [0, 1])
        assert consumer.pending.unacked == 0, "of what it was given it has acknowledged all"
        consumer.flow(10)
        world.settle()
        assert taken(mailbox) == [(p, bits(0, 1), 1)]
        assert consumer.pending.unacked == 2

    def test_messages_that_come_back_keep_the_dispatch_rate(self) -> None:
        """9.8.7, 7.16: those that go back to the consumer that holds the rest of their batch are sent messages too."""
        world = World()
        batches = world.publish(40, messages=BATCH)
        consumer, mailbox = world.subscribe(SHARED, permits=1000)
        world.settle()
        taken(mailbox)
        one = begin(world)
        for each in batches:
            assert refusal(world, ack_indexes(one, consumer, each, [0, 1], BATCH)) is None
        policies = Policies(subscription_dispatch_rate=DispatchRate(dispatch_throttling_rate_in_msg=10))
        drained(world.broker.set_topic_policies(TopicName.parse(TOPIC), policies))
        abort(world, one)
        world.clock.advance(2000)
        assert 20 <= 2 * len(taken(mailbox)) <= 24
        (another,) = world.publish(1)
        world.clock.advance(8000)
        came = [position for position, _, _ in taken(mailbox)]
        assert (len(came), came[-1]) == (31, another), "in their turn, and none is forgotten"

    def test_a_nack_of_the_rest_brings_all_that_is_open(self) -> None:
        """9.8.7: what comes back goes with it, once."""
        world = World()
        (p,) = world.publish(1, messages=BATCH)
        consumer, mailbox = world.subscribe(SHARED, permits=1)
        world.settle()
        taken(mailbox)
        one = begin(world)
        assert refusal(world, ack_indexes(one, consumer, p, [0, 1], BATCH)) is None
        abort(world, one)
        consumer.redeliver([p])
        consumer.flow(20)
        world.settle()
        assert taken(mailbox) == [(p, 0, 2)]
        assert consumer.pending.unacked == BATCH

    @pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER])
    def test_one_active_consumer_gets_exactly_what_was_aborted(self, kind: SubscriptionType) -> None:
        """9.8.7: through the active consumer, though it has gone on."""
        world = World()
        m = world.publish(12, messages=lambda number: BATCH if number == 3 else 1)
        consumer, mailbox = world.subscribe(kind)
        world.settle()
        assert mailbox.take() == m
        one, two = begin(world), begin(world)
        assert refusal(world, ack_in(one, consumer, m[1], m[11])) is None
        assert refusal(world, ack_indexes(one, consumer, m[3], [0, 1], BATCH)) is None
        assert refusal(world, ack_indexes(two, consumer, m[3], [2], BATCH)) is None
        abort(world, one)
        assert taken(mailbox) == [(m[1], 0, 0), (m[3], bits(0, 1), 0), (m[11], 0, 0)]
        abort(world, two)
        assert taken(mailbox) == [(m[3], bits(2), 0)]

    @pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER])
    def test_who_takes_over_gets_what_is_not_pending(self, kind: SubscriptionType) -> None:
        """9.8.1 (T11): neither single messages nor what a cumulative one covers; both come after the abort."""
        world = World()
        m = world.publish(12, messages=lambda number: BATCH if number == 3 else 1)
        consumer, _ = world.subscribe(kind)
        world.settle()
        one, two = begin(world), begin(world)
        assert refusal(world, ack_through_in(one, consumer, m[3], index=1, size=BATCH)) is None
        assert refusal(world, ack_in(two, consumer, m[5])) is None
        consumer.close()
        _, anew = world.subscribe(kind)
        world.settle()
        assert taken(anew) == [
            (m[3], bits(2, 3, 4), 0),
            *((each, 0, 0) for each in m[4:] if each != m[5]),
        ]
        abort(world, one)
        assert taken(anew) == [(m[0], 0, 0), (m[1], 0, 0), (m[2], 0, 0), (m[3], bits(0, 1), 0)]
        abort(world, two)
        assert taken(anew) == [(m[5], 0, 0)]

    def test_a_cumulative_one_is_kept_from_consumers_of_another_type(self) -> None:
        """9.8.1 (T11, T5): Shared consumers get what it covers after the abort only."""
        world = World()
        m = world.publish(12)
        one = acknowledged_by_one_who_left(world, m[3])
        _, anew = world.subscribe(SHARED)
        world.settle()
        assert anew.take() == m[4:]
        abort(world, one)
        assert anew.take() == m[:4]

    def test_an_ordinary_cumulative_one_passes_over_pending_ones(self) -> None:
        """9.8.5: it is never refused, and they are void."""
        world = World()
        m = world.publish(4)
        consumer, mailbox = world.subscribe(EXCLUSIVE)
        world.settle()
        mailbox.take()
        one = begin(world)
        assert refusal(world, ack_in(one, consumer, m[1])) is None
        ack_through(consumer, m[2])
        abort(world, one)
        assert mailbox.take() == []
        assert world.subscription().cursor.mark_delete == m[2]
        assert not world.subscription().transactional_acks.pending.any

    def test_a_limit_of_unacknowledged_messages_lets_go_on(self) -> None:
        """9.8.4 (Go 1534, Go 1535, T14): ten batches of three under a limit of twenty; no acknowledgement
        says how many a batch has."""
        world = World(max_unacked_messages_per_consumer=20)
        m = world.publish(10, messages=3)
        consumer, mailbox = world.subscribe(SHARED)
        world.settle()
        one = begin(world)
        came: list[Position] = []
        for _ in range(10):
            world.settle()
            for position in mailbox.take():
                came.append(position)
                for left in (0b110, 0b100, 0):
                    ack_ids(one, consumer, [AckId(position, (left,))], AckKind.INDIVIDUAL)
        assert came == m
        assert consumer.pending.unacked == 0
        commit(world, one)
        assert world.subscription().cursor.mark_delete == m[-1]

    def test_counts_are_right_after_commits_and_aborts(self) -> None:
        """9.8.8 (#26489, T14): what an abort gives back counts again, with the consumer and with the subscription."""
        world = World()
        m = world.publish(6, messages=3)
        consumer, mailbox = world.subscribe(SHARED)
        world.settle()
        one, two = begin(world), begin(world)
        ack_in(one, consumer, *m[:2])
        ack_indexes(two, consumer, m[2], [0], 3)
        dispatcher = world.subscription().dispatcher
        assert consumer.pending.unacked == dispatcher.unacked_messages == 18 - 6 - 1
        commit(world, two)
        abort(world, one)
        assert consumer.pending.unacked == dispatcher.unacked_messages == 18 - 1
        ack(consumer, *m)
        assert consumer.pending.unacked == dispatcher.unacked_messages == 0
        assert len(mailbox.deliveries) == 6 + 2


class TestSeeks:
    """9.8.9: pending acknowledgements survive a seek."""

    def test_a_pending_message_stays_hidden(self) -> None:
        """9.8.9: behind the seek as well, until the abort."""
        world = World()
        m = world.publish(3)
        consumer, _ = world.subscribe(SHARED)
        world.settle()
        one = begin(world)
        assert refusal(world, ack_in(one, consumer, m[1])) is None
        done: Done = []
        consumer.seek(m[0], None, done.append)
        assert refusal(world, done) is None
        _, anew = world.subscribe(SHARED)
        world.settle()
        assert anew.take() == [m[0], m[2]]
        abort(world, one)
        assert anew.take() == [m[1]]

    def test_a_commit_is_not_applied_again_behind_a_seek(self) -> None:
        """9.8.9, 9.8.6: the seek waits until the commit is durable, and then takes it back for good."""
        world = World()
        m = world.publish(3)
        consumer, _ = world.subscribe(SHARED)
        world.settle()
        one = begin(world)
        assert refusal(world, ack_in(one, consumer, m[1])) is None
        participant = world.subscription().transactional_acks
        participant.commit(one)
        done: Done = []
        consumer.seek(m[0], None, done.append)
        assert done == []
        assert not consumer.closed, "not before the commit is durable"
        assert refusal(world, done) is None
        world.crash(policy="none")
        _, anew = world.subscribe(SHARED)
        world.settle()
        assert anew.take() == m

    def test_what_an_ordinary_acknowledgement_took_comes_after_a_seek_and_a_crash(self) -> None:
        """9.8.5: it is not pending any more, in what is stored either."""
        world = World()
        m = world.publish(3)
        consumer, _ = world.subscribe(SHARED)
        world.settle()
        one = begin(world)
        assert refusal(world, ack_in(one, consumer, m[1], m[2])) is None
        ack(consumer, m[1])
        done: Done = []
        consumer.seek(m[0], None, done.append)
        assert refusal(world, done) is None
        world.crash(policy="none")
        _, anew = world.subscribe(SHARED)
        world.settle()
        assert anew.take() == m[:2]
