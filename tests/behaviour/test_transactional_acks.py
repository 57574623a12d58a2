# SPDX-License-Identifier: Apache-2.0
"""Acknowledgements in transactions, by the clients that have them (semantics 9.8)."""

from __future__ import annotations

import json

import pytest

from tests.behaviour.cell import Cell, take, take_all, take_all_of, take_values, values
from tests.behaviour.interface import (
    EARLIEST,
    SILENCE_MS,
    AnyConsumer,
    AnyTransaction,
    Outgoing,
    Received,
    RefusedError,
    SubscriptionType,
)
from tests.client.helpers import eventually

pytestmark = pytest.mark.usefixtures("transactional")

CHUNK_BYTES = 1000
SHORT_MS = 2000
"""The time of a transaction that is about to run out, in which something is acknowledged before."""

KINDS = ("Exclusive", "Failover", "Shared", "Key_Shared")


def _ack_all(transaction: AnyTransaction, consumer: AnyConsumer, messages: list[Received]) -> None:
    for message in messages:
        transaction.ack(consumer, message)


def _send(cell: Cell, topic: str, marks: str, *, batched: bool) -> None:
    if batched:
        cell.send_batch(topic, marks, key="k")
    else:
        cell.send(topic, marks, key="k")


@pytest.mark.parametrize("batched", [False, True], ids=["singles", "batch"])
@pytest.mark.parametrize("kind", KINDS)
def test_acknowledged_messages_come_again_after_an_abort(cell: Cell, kind: SubscriptionType, batched: bool) -> None:
    """9.8.6, 9.8.7: in the order of the log, also where they have one key; after a commit they are gone."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type=kind)
    _send(cell, topic, "abc", batched=batched)
    for commits in (False, True):
        transaction = cell.client.transaction()
        messages = take(consumer, 3)
        assert values(messages) == ["a", "b", "c"]
        _ack_all(transaction, consumer, messages)
        if commits:
            transaction.commit()
        else:
            transaction.abort()
    assert take_all(consumer) == []
    eventually(lambda: cell.backlog(topic) == 0, "the commit has acknowledged all")


def test_messages_are_taken_and_made_in_one_transaction(cell: Cell) -> None:
    """9.5.2: what is made of a message is read where the message is gone, and only there."""
    source, target = cell.topic(), cell.topic()
    consumer, result = cell.consumer(source, type="Shared"), cell.consumer(target)
    cell.send(source, "a")
    for commits in (False, True):
        transaction = cell.client.transaction()
        message = take(consumer, 1)[0]
        transaction.send(cell.producer(target), Outgoing(value=f"{message.value} {commits}"))
        transaction.ack(consumer, message)
        assert take_all(result) == []
        if commits:
            transaction.commit()
        else:
            transaction.abort()
    assert take_values(result, 1) == ["a True"]
    assert take_all(consumer) == []
    eventually(lambda: cell.backlog(source) == 0, "the commit has acknowledged it")


def test_what_is_acknowledged_in_an_open_transaction_is_with_nobody(cell: Cell) -> None:
    """9.8.1, 9.8.8: also when its consumer has gone; after the abort another one gets it, and it is counted (9.8.7)."""
    topic = cell.topic()
    first = cell.consumer(topic, type="Shared")
    cell.send(topic, "abc")
    transaction = cell.client.transaction()
    _ack_all(transaction, first, take(first, 3)[:2])
    first.close()
    second = cell.consumer(topic, type="Shared")
    assert values(take_all(second)) == ["c"]
    transaction.abort()
    assert [(message.value, message.redelivery_count) for message in take(second, 2)] == [("a", 1), ("b", 1)]


def test_keys_stay_in_order_over_an_abort(cell: Cell) -> None:
    """9.8.7, 2.9: with two consumers each key comes again in the order of the log, at one of them."""
    topic = cell.topic()
    consumers = [cell.consumer(topic, type="Key_Shared", name=name) for name in "ab"]
    keys = [f"k{number}" for number in range(8)]
    producer = cell.producer(topic)
    for value in "123":
        for key in keys:
            producer.send(Outgoing(value=value, key=key))
    transaction = cell.client.transaction()
    for consumer, mine in zip(consumers, take_all_of(consumers, 24), strict=True):
        _ack_all(transaction, consumer, mine)
    transaction.abort()
    again = take_all_of(consumers, 24)
    for key in keys:
        shares = [[message.value for message in each if message.key == key] for each in again]
        assert sorted(shares) == [[], ["1", "2", "3"]]


@pytest.mark.parametrize("batched", [False, True], ids=["singles", "batch"])
def test_a_cumulative_one_counts_with_its_transaction(cell: Cell, batched: bool) -> None:
    """9.8.3, 9.8.7: after an abort messages come when they are asked for; after a commit the next consumer goes on."""
    topic = cell.topic()
    first = cell.consumer(topic, type="Failover", name="a")
    _send(cell, topic, "abcde", batched=batched)
    gone = cell.client.transaction()
    gone.ack_cumulative(first, take(first, 5)[2])
    gone.abort()
    assert take_all(first) == []
    first.redeliver_all()
    kept = cell.client.transaction()
    messages = take(first, 5)
    assert values(messages) == list("abcde")
    kept.ack_cumulative(first, messages[0])
    kept.ack_cumulative(first, messages[2])
    kept.commit()
    first.close()
    assert take_values(cell.consumer(topic, type="Failover", name="b"), 2) == ["d", "e"]


def test_a_cumulative_one_is_refused_in_a_transaction_where_messages_are_shared(cell: Cell) -> None:
    """9.8.3: by the client itself."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type="Shared")
    cell.send(topic, "a")
    transaction = cell.client.transaction()
    with pytest.raises(RefusedError):
        transaction.ack_cumulative(consumer, take(consumer, 1)[0])


def test_transactions_share_a_batch(cell: Cell) -> None:
    """9.8.2, 9.8.7: message by message; an aborted one brings back its own, and nothing of the others."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type="Shared")
    cell.send_batch(topic, "abcde")
    messages = take(consumer, 5)
    kept, gone = cell.client.transaction(), cell.client.transaction()
    _ack_all(kept, consumer, [messages[0], messages[1], messages[3]])
    _ack_all(gone, consumer, [messages[2], messages[4]])
    gone.abort()
    again = take(consumer, 2)
    assert values(again) == ["c", "e"]
    kept.commit()
    late = cell.client.transaction()
    _ack_all(late, consumer, again)
    late.commit()
    assert take_all(consumer) == []
    eventually(lambda: cell.backlog(topic) == 0, "all of the batch is acknowledged")


def test_batches_without_batch_indexes_end_with_the_transaction(cell: Cell) -> None:
    """9.8.4, 9.8.6: a consumer that acknowledges whole batches has them come again whole."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type="Shared", batch_index_acks=False)
    cell.send_batch(topic, "abc")
    gone = cell.client.transaction()
    _ack_all(gone, consumer, take(consumer, 3))
    gone.abort()
    kept = cell.client.transaction()
    again = take(consumer, 3)
    assert values(again) == ["a", "b", "c"]
    _ack_all(kept, consumer, again)
    kept.commit()
    eventually(lambda: cell.backlog(topic) == 0, "all of the batch is acknowledged")


def test_a_chunked_message_is_acknowledged_in_a_transaction(cell: Cell) -> None:
    """9.8.6, 9.8.7 (3.1.7): with all of its chunks; after an abort it comes again whole."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type="Shared")
    large = "".join(map(str, range(1000)))
    cell.producer(topic, chunking=True, chunk_bytes=CHUNK_BYTES).send(Outgoing(value=large))
    for commits in (False, True):
        transaction = cell.client.transaction()
        message = take(consumer, 1)[0]
        assert message.value == large
        transaction.ack(consumer, message)
        if commits:
            transaction.commit()
        else:
            transaction.abort()
    eventually(lambda: cell.backlog(topic) == 0, "all chunks are acknowledged")
    assert take_all(consumer) == []


def test_what_every_transaction_gives_back_becomes_a_dead_letter(cell: Cell) -> None:
    """9.8.7, 4.5: an abort counts as a redelivery; the original of the dead letter is acknowledged."""
    topic = cell.topic()
    letters = cell.consumer(f"{topic}-letters", type="Shared")
    consumer = cell.consumer(topic, type="Shared", max_redeliver_count=2, dead_letter_topic=f"{topic}-letters")
    cell.send(topic, "a")
    for count in range(3):
        transaction = cell.client.transaction()
        message = take(consumer, 1)[0]
        assert message.redelivery_count == count
        transaction.ack(consumer, message)
        transaction.abort()
    # Nobody asks for the letter: some clients write it when the message comes, some when its next message is asked for.
    assert take_all(consumer) == []
    assert take_values(letters, 1) == ["a"]
    eventually(lambda: cell.backlog(topic) == 0, "the original is acknowledged")


def test_a_message_is_acknowledged_in_one_transaction(cell: Cell) -> None:
    """9.8.2: the second one is told of the conflict, and its abort gives nothing back."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type="Shared")
    cell.send(topic, "a")
    message = take(consumer, 1)[0]
    first, second = cell.client.transaction(), cell.client.transaction()
    first.ack(consumer, message)
    with pytest.raises(RefusedError) as refused:
        second.ack(consumer, message)
    assert refused.value.kind == "TransactionConflict"
    first.commit()
    assert take_all(consumer) == []
    assert cell.backlog(topic) == 0


def test_an_ordinary_acknowledgement_wins(cell: Cell) -> None:
    """9.8.5: the abort of a transaction does not bring back what was acknowledged without one."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type="Shared")
    cell.send(topic, "ab")
    messages = take(consumer, 2)
    transaction = cell.client.transaction()
    _ack_all(transaction, consumer, messages)
    consumer.ack(messages[0])
    eventually(lambda: cell.backlog(topic) == 1, "the server has seen what is acknowledged")
    transaction.abort()
    assert values(take_all(consumer)) == ["b"]


def test_messages_come_again_when_the_time_is_over(cell: Cell) -> None:
    """9.3.1, 9.8.7: without a word of the client."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type="Shared")
    cell.send(topic, "a")
    message = take(consumer, 1)[0]
    cell.client.transaction(SHORT_MS).ack(consumer, message)
    assert take_values(consumer, 1) == ["a"]


def test_refusing_what_is_acknowledged_in_a_transaction_changes_nothing(cell: Cell) -> None:
    """9.8.1: it comes to nobody while the transaction is open; after the abort it comes once."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type="Shared", nack_delay_ms=100)
    cell.send(topic, "a")
    message = take(consumer, 1)[0]
    transaction = cell.client.transaction()
    transaction.ack(consumer, message)
    consumer.nack(message)
    assert take_all(consumer, 2 * SILENCE_MS) == []
    transaction.abort()
    assert take_values(consumer, 1) == ["a"]
    assert take_all(consumer) == []


def test_a_seek_leaves_open_transactions_alone(cell: Cell) -> None:
    """9.8.9: what is acknowledged in one does not come until it is aborted."""
    topic = cell.topic()
    consumer = cell.consumer(topic)
    cell.send(topic, "abc")
    transaction = cell.client.transaction()
    transaction.ack(consumer, take(consumer, 3)[1])
    consumer.seek(EARLIEST)
    assert take_values(consumer, 2) == ["a", "c"]
    transaction.abort()
    assert "b" in values(take_all_of([consumer], 1)[0])


def test_single_and_cumulative_ones_of_two_transactions_are_both_kept(cell: Cell) -> None:
    """9.8.3, 9.8.6: each commit acknowledges its own, in whatever order."""
    topic = cell.topic()
    consumer = cell.consumer(topic)
    cell.send(topic, "abcde")
    messages = take(consumer, 5)
    single, cumulative = cell.client.transaction(), cell.client.transaction()
    cumulative.ack_cumulative(consumer, messages[1])
    single.ack(consumer, messages[3])
    single.commit()
    cumulative.commit()
    consumer.close()
    assert values(take_all_of([cell.consumer(topic)], 2)[0]) == ["c", "e"]


def test_a_consumer_that_acknowledges_in_transactions_is_not_blocked(cell: Cell) -> None:
    """9.8.8, 9.8.4: what is acknowledged so counts for no limit, message by message; what comes again counts again."""
    topic = cell.topic_where_consumers_may_hold(20)
    consumer = cell.consumer(topic, type="Shared", queue_size=5)
    for _ in range(10):
        cell.send_batch(topic, "abc")
    for number in range(10):
        messages = take(consumer, 3)
        transaction = cell.client.transaction()
        _ack_all(transaction, consumer, messages)
        if number == 0:
            transaction.abort()
            again = cell.client.transaction()
            _ack_all(again, consumer, take(consumer, 3))
            again.commit()
        else:
            transaction.commit()
    eventually(lambda: cell.backlog(topic) == 0, "all is acknowledged")


def test_what_comes_again_is_counted_as_unacknowledged(cell: Cell) -> None:
    """9.8.8: of a consumer with three messages, two of them acknowledged in a transaction, which is aborted."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type="Shared")
    cell.send(topic, "abc")
    transaction = cell.client.transaction()
    _ack_all(transaction, consumer, take(consumer, 3)[:2])

    def unacknowledged() -> int:
        stats = json.loads(cell.admin("GET", topic, "stats"))
        return int(stats["subscriptions"]["s"]["consumers"][0]["unackedMessages"])

    eventually(lambda: unacknowledged() == 1, "those in the transaction are with nobody")
    transaction.abort()
    take(consumer, 2)
    eventually(lambda: unacknowledged() == 3, "all are with the consumer")
