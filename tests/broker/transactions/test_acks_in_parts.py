# SPDX-License-Identifier: Apache-2.0
"""One acknowledgement in a transaction that is read in parts, and others' requests between the parts (T13, T18)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker_core.base.errors import ConsumerNotFoundError, InvalidTxnStatusError, ServerError, TransactionConflictError
from broker_core.base.names import TopicName
from broker_core.base.positions import Position
from broker_core.broker.consumer import Consumer
from broker_core.broker.requests import AckId, SubscriptionType
from broker_core.wire.ack_sets import all_bits, words_of_bits
from broker_core.wire.heads import TxnId
from tests.broker.transactions.acks import Done, ack_in, ack_indexes
from tests.broker.transactions.clients import abort, begin, commit
from tests.broker.world import EXCLUSIVE, SHARED, TOPIC, Mailbox, World, ack

KINDS = [SHARED, SubscriptionType.KEY_SHARED, EXCLUSIVE]
BATCH = 5


def whole(*positions: Position) -> list[AckId]:
    return [AckId(position) for position in positions]


def indexes(position: Position, *acked: int) -> AckId:
    left = all_bits(BATCH) & ~sum(1 << index for index in acked)
    return AckId(position, words_of_bits(left) or (0,))


def with_messages(kind: SubscriptionType, count: int = 4, messages: int = 1) -> tuple[World, list[Position], Consumer]:
    """A consumer that was given everything."""
    world = World()
    positions = world.publish(count, messages=messages)
    consumer, _ = world.subscribe(kind)
    world.settle()
    return world, positions, consumer


def mailbox_of(consumer: Consumer) -> Mailbox:
    assert isinstance(consumer.sink, Mailbox)
    return consumer.sink


def pending(world: World, name: TxnId) -> list[Position]:
    return [each.position for each in world.subscription().transactional_acks.pending.listed(name)]


@pytest.mark.parametrize("kind", KINDS)
def test_all_parts_are_one_acknowledgement(kind: SubscriptionType) -> None:
    """9.8.2: stored and answered with the last part."""
    world, positions, consumer = with_messages(kind)
    name, done = begin(world), Done()
    parts = consumer.begin_ack_in(name)
    parts.take(whole(*positions[:2]))
    parts.take(whole(*positions[2:]))
    world.settle()
    assert world.store.catalogue.rows("SELECT * FROM pending_acks") == []
    parts.end(done.append)
    parts.cancel()
    assert done == []
    world.settle()
    assert done == [None]
    world.crash()
    assert pending(world, name) == positions
    commit(world, name)
    assert world.subscription().backlog_entries() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_conflict_in_a_later_part_leaves_nothing_pending(kind: SubscriptionType) -> None:
    """9.8.2 (T18): another transaction takes a message between the parts, and those of the earlier ones come again."""
    world, positions, consumer = with_messages(kind)
    one, two = begin(world), begin(world)
    before = ack_in(one, consumer, positions[0])
    parts = consumer.begin_ack_in(one)
    parts.take(whole(*positions[:3]))
    assert ack_in(two, consumer, positions[3]) == []
    mailbox_of(consumer).take()
    with pytest.raises(TransactionConflictError):
        parts.take(whole(positions[3]))
    world.settle()
    assert before == [None]
    assert (pending(world, one), pending(world, two)) == (positions[:1], positions[3:])
    assert mailbox_of(consumer).take() == positions[1:3]
    commit(world, one)
    abort(world, two)
    assert mailbox_of(consumer).take() == positions[3:]
    assert world.subscription().backlog_entries() == 3


def close(world: World, consumer: Consumer, name: TxnId) -> None:
    consumer.close()


def unload(world: World, consumer: Consumer, name: TxnId) -> None:
    world.broker.unload(TopicName.parse(TOPIC))


def end(world: World, consumer: Consumer, name: TxnId) -> None:
    world.broker.transactions.end(name, consumer.request.requester, lambda _error: None, commit=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("between", "expected"),
    [(close, ConsumerNotFoundError), (unload, ConsumerNotFoundError), (end, InvalidTxnStatusError)],
)
def test_what_ends_it_between_two_parts(
    between: Callable[..., None], expected: type[ServerError], kind: SubscriptionType
) -> None:
    """9.8.2, 9.5.1 (T13): the consumer leaves, the topic is unloaded, the transaction is committed."""
    world, positions, consumer = with_messages(kind)
    name = begin(world)
    parts = consumer.begin_ack_in(name)
    parts.take(whole(*positions[:2]))
    between(world, consumer, name)
    world.settle()
    with pytest.raises(expected):
        parts.take(whole(*positions[2:]))
    with pytest.raises(expected):
        parts.end(lambda _error: None)
    world.settle()
    assert pending(world, name) == []
    assert world.subscription().backlog_entries() == 4
    if between is not end:
        commit(world, name)
        assert world.subscription().backlog_entries() == 4


def test_messages_of_a_batch_stay_as_the_transaction_had_them() -> None:
    """9.8.2: acknowledged before, one by one; the part that names the whole batch is undone."""
    world, (p, q), consumer = with_messages(SHARED, 2, BATCH)
    one, two = begin(world), begin(world)
    ack_indexes(one, consumer, p, [0, 1], BATCH)
    ack_in(two, consumer, q)
    world.settle()
    parts = consumer.begin_ack_in(one)
    parts.take([indexes(p, 1, 2), *whole(p)])
    with pytest.raises(TransactionConflictError):
        parts.take(whole(q))
    mailbox_of(consumer).deliveries.clear()
    for _ in range(2):
        (left,) = world.subscription().transactional_acks.pending.listed(one)
        assert left == (p, 0b11, BATCH)
        world.crash()
    consumer, mailbox = world.subscribe(SHARED)
    world.settle()
    assert [(each.entry.position, each.ack_set) for each in mailbox.deliveries] == [(p, (0b11100,))]


def test_an_ordinary_acknowledgement_between_the_parts_wins() -> None:
    """9.8.5: of a message that an earlier part names, and it is no conflict."""
    world, positions, consumer = with_messages(SHARED)
    name, done = begin(world), Done()
    parts = consumer.begin_ack_in(name)
    parts.take(whole(*positions[:2]))
    ack(consumer, positions[0])
    parts.take(whole(positions[2]))
    parts.end(done.append)
    world.settle()
    assert done == [None]
    abort(world, name)
    assert world.subscription().cursor.is_acked(positions[0])
    assert world.subscription().backlog_entries() == 3
