# SPDX-License-Identifier: Apache-2.0
"""Messages that are sent in transactions, by the clients that have them (semantics 9.4)."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from tests.behaviour.cell import Cell, take, take_all, take_all_of, take_and_ack, take_values, values
from tests.behaviour.interface import AnyTransaction, Outgoing, ProducerChoice, RefusedError
from tests.behaviour.our_client import OurClient
from tests.client.helpers import eventually

pytestmark = pytest.mark.usefixtures("transactional")

CHUNK_BYTES = 1000
SHORT_MS = 2000
"""The time of a transaction that is about to run out, in which something is sent before."""

EARLY_S = 1.6
"""How early a delayed message may be, with the default settings."""

NOT_OPEN = {"InvalidTxnStatus", "InvalidStatus"}
"""Names of errors about a transaction that is not open: the second is that of the Go client."""

ENDS = pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])


def _several(marks: str) -> list[Outgoing]:
    return [Outgoing(value=mark, key=mark) for mark in marks]


def _end(transaction: AnyTransaction, *, commits: bool) -> None:
    if commits:
        transaction.commit()
    else:
        transaction.abort()


@pytest.mark.usefixtures("all_clients")
def test_clients_have_transactions(cell: Cell) -> None:
    """9.2.1: a client finds the coordinators, and one of them begins a transaction."""
    cell.client.transaction().abort()


@pytest.mark.usefixtures("all_clients")
def test_every_client_reads_what_is_committed(cell: Cell) -> None:
    """9.4.4: whoever wrote it; nothing else comes, and nothing is left to acknowledge."""
    topic = cell.topic()
    consumer = cell.consumer(topic)
    with closing(OurClient(cell.service.service_url, cell.service.access)) as writer:
        producer = writer.producer(topic, ProducerChoice())
        for mark, commits in (("a", True), ("b", False), ("c", True)):
            transaction = writer.transaction()
            transaction.send(producer, Outgoing(value=mark))
            _end(transaction, commits=commits)
    assert values(take_and_ack(consumer, 2)) == ["a", "c"]
    eventually(lambda: cell.backlog(topic) == 0, "everything is acknowledged")


@ENDS
def test_messages_of_a_transaction_are_read_all_or_none(cell: Cell, commits: bool) -> None:
    """9.4.2, 9.4.4, 9.5.2: of two topics; what was sent behind them waits for the end too."""
    topics = [cell.topic(), cell.topic()]
    consumers = [cell.consumer(topic) for topic in topics]
    transaction = cell.client.transaction()
    for topic in topics:
        producer = cell.producer(topic)
        for mark in "ab":
            transaction.send(producer, Outgoing(value=mark))
        cell.send(topic, "c")
    assert [take_all(consumer) for consumer in consumers] == [[], []]
    _end(transaction, commits=commits)
    expected = list("abc") if commits else ["c"]
    for consumer in consumers:
        assert take_values(consumer, len(expected)) == expected


def test_messages_come_in_the_order_of_the_log(cell: Cell) -> None:
    """9.4.3: whatever the order of the commits."""
    topic = cell.topic()
    consumer = cell.consumer(topic)
    early, late = cell.client.transaction(), cell.client.transaction()
    early.send(cell.producer(topic), Outgoing(value="a"))
    late.send(cell.producer(topic), Outgoing(value="b"))
    late.commit()
    cell.send(topic, "c")
    assert take_all(consumer) == []
    early.commit()
    assert take_values(consumer, 3) == ["a", "b", "c"]


def test_an_aborted_transaction_leaves_others_alone(cell: Cell) -> None:
    """9.4.2, 9.4.4: those before it, beside it and behind it are read."""
    topic = cell.topic()
    consumer = cell.consumer(topic)
    for mark, commits in (("a", True), ("b", False), ("c", True)):
        transaction = cell.client.transaction()
        transaction.send(cell.producer(topic), Outgoing(value=mark))
        _end(transaction, commits=commits)
    assert take_values(consumer, 2) == ["a", "c"]


@ENDS
def test_a_batch_ends_with_its_transaction(cell: Cell, commits: bool) -> None:
    """9.4.2, 9.4.4: as a whole, beside one that is committed."""
    topic = cell.topic()
    consumer = cell.consumer(topic)
    kept, other = cell.client.transaction(), cell.client.transaction()
    kept.send_together(cell.producer(topic, batching=True), _several("abc"))
    other.send_together(cell.producer(topic, batching=True), _several("def"))
    kept.commit()
    _end(other, commits=commits)
    cell.send(topic, "g")
    expected = list("abcdefg") if commits else list("abcg")
    came = take(consumer, len(expected))
    assert values(came) == expected
    assert [message.message_id.batch_index for message in came[:3]] == [0, 1, 2]


@ENDS
def test_a_chunked_message_ends_with_its_transaction(cell: Cell, commits: bool) -> None:
    """9.4.2, 9.4.4 (5.1.2): with all of its chunks, which one acknowledgement acknowledges."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type="Shared")
    large = "".join(map(str, range(1000)))
    transaction = cell.client.transaction()
    transaction.send(cell.producer(topic, chunking=True, chunk_bytes=CHUNK_BYTES), Outgoing(value=large))
    cell.send(topic, "b")
    assert take_all(consumer) == []
    _end(transaction, commits=commits)
    expected = [large, "b"] if commits else ["b"]
    came = take(consumer, len(expected))
    assert values(came) == expected
    for message in came:
        consumer.ack(message)
    eventually(lambda: cell.backlog(topic) == 0, "all chunks are acknowledged")


def test_a_delayed_message_needs_its_time_and_its_commit(cell: Cell) -> None:
    """9.4.2, 6.1.2: what is due before the commit comes with it, the rest in its time, and aborted ones never."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type="Shared")
    kept, gone = cell.client.transaction(), cell.client.transaction()
    sent_at = time.monotonic()
    mine, other = cell.producer(topic), cell.producer(topic)
    kept.send(mine, Outgoing(value="due", deliver_after_ms=1))
    kept.send(mine, Outgoing(value="late", deliver_after_ms=3000))
    gone.send(other, Outgoing(value="gone", deliver_after_ms=1))
    assert take_all(consumer) == []
    gone.abort()
    kept.commit()
    came = take(consumer, 2)
    assert time.monotonic() - sent_at >= 3.0 - EARLY_S
    assert values(came) == ["due", "late"]


def test_a_transaction_spans_partitions(cell: Cell) -> None:
    """9.4.2, 9.4.4: of two transactions side by side, each has its messages in all of them."""
    topic = cell.topic(partitions=3)
    consumer = cell.consumer(topic)
    kept, gone = cell.client.transaction(), cell.client.transaction()
    mine, other = cell.producer(topic), cell.producer(topic)
    marks = [f"k{number}" for number in range(9)]
    for mark in marks:
        kept.send(mine, Outgoing(value=mark, key=mark))
        gone.send(other, Outgoing(value=f"gone {mark}", key=mark))
    gone.abort()
    kept.commit()
    came = take_all_of([consumer], 9)[0]
    assert sorted(values(came)) == marks
    assert len({message.message_id.partition for message in came}) == 3


def test_a_transaction_whose_time_is_over_is_aborted(cell: Cell) -> None:
    """9.3.1: without a word of its client, whose commit is refused."""
    topic = cell.topic()
    consumer = cell.consumer(topic)
    producer = cell.producer(topic)
    transaction = cell.client.transaction(SHORT_MS)
    transaction.send(producer, Outgoing(value="gone"))
    cell.send(topic, "a")
    assert take_values(consumer, 1) == ["a"]
    with pytest.raises(RefusedError):
        transaction.commit()


@ENDS
def test_nothing_is_added_to_a_transaction_that_has_ended(cell: Cell, commits: bool) -> None:
    """9.4.1, 9.6: nor is it ended twice."""
    topic = cell.topic()
    consumer = cell.consumer(topic)
    producer = cell.producer(topic)
    transaction = cell.client.transaction()
    transaction.send(producer, Outgoing(value="a"))
    _end(transaction, commits=commits)
    for refused in (transaction.commit, transaction.abort):
        with pytest.raises(RefusedError) as caught:
            refused()
        assert caught.value.kind in NOT_OPEN
    with pytest.raises(RefusedError):
        transaction.send(producer, Outgoing(value="b"))
    cell.send(topic, "c")
    expected = ["a", "c"] if commits else ["c"]
    assert take_values(consumer, len(expected)) == expected


@ENDS
def test_a_transaction_goes_on_after_an_unload(cell: Cell, commits: bool) -> None:
    """9.5.3, 9.1.3: what was sent before stays hidden, and ends with the rest."""
    topic = cell.topic()
    consumer = cell.consumer(topic)
    transaction = cell.client.transaction()
    transaction.send(cell.producer(topic), Outgoing(value="a"))
    cell.admin("PUT", topic, "unload")
    transaction.send(cell.producer(topic), Outgoing(value="b"))
    cell.send(topic, "c")
    assert take_all(consumer) == []
    _end(transaction, commits=commits)
    expected = ["a", "b", "c"] if commits else ["c"]
    assert take_values(consumer, len(expected)) == expected


def test_a_reader_knows_where_the_readable_end_is(cell: Cell) -> None:
    """9.4.5: there is nothing more where what follows is hidden or aborted, and there is once it is committed."""
    topic = cell.topic()
    cell.send(topic, "a")
    reader = cell.reader(topic)
    assert take_values(reader, 1) == ["a"]
    for mark, commits in (("b", False), ("c", True)):
        transaction = cell.client.transaction()
        transaction.send(cell.producer(topic), Outgoing(value=mark))
        assert not reader.has_message_available()
        _end(transaction, commits=commits)
        assert reader.has_message_available() is commits
    assert take_values(reader, 1) == ["c"]
    assert not reader.has_message_available()


def test_a_table_has_what_is_committed(cell: Cell) -> None:
    """9.4.2, 9.4.4: an aborted value does not hide the one before it."""
    topic = cell.topic()
    view = cell.table_view(topic)
    for value, commits in (("1", True), ("2", False)):
        transaction = cell.client.transaction()
        transaction.send(cell.producer(topic), Outgoing(value=value, key="k"))
        _end(transaction, commits=commits)
    hidden = cell.client.transaction()
    hidden.send(cell.producer(topic), Outgoing(value="3", key="j"))
    eventually(lambda: view.rows() == {"k": "1"}, "the table has the value that is committed")
    hidden.commit()
    eventually(lambda: view.rows() == {"k": "1", "j": "3"}, "the table has both")
