# SPDX-License-Identifier: Apache-2.0
"""Transactions by our client: messages, acknowledgements and both together, on every broker that has transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from broker_core.base.errors import (
    ConnectionLostError,
    InvalidTxnStatusError,
    TransactionConflictError,
    TransactionHasOperationFailedError,
    TransactionNotFoundError,
    UsageError,
)
from broker_core.client import (
    AsyncClient,
    Client,
    ClientConfig,
    Consumer,
    EntryConsumer,
    GivenEntry,
    Producer,
    Transaction,
    TransactionState,
)
from broker_core.testing.running_broker import RunningBroker
from tests.client.conftest import TRANSACTIONAL, Service, admin_path, transactional
from tests.client.helpers import (
    WAIT_S,
    assert_nothing_comes,
    eventually,
    is_all_acknowledged,
    numbered,
    send,
    take,
    values,
)

CHUNK_BYTES = 1000


@pytest.fixture(scope="module", params=TRANSACTIONAL)
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The brokers that have transactions."""
    with transactional(request.param, request, tmp_path_factory) as made:
        yield made


def test_a_client_ends_transactions_of_coordinators_that_were_added_since(tmp_path: Path) -> None:
    """A driver that runs for long ends those of tasks, which begin them as newer clients."""
    broker = RunningBroker(tmp_path / "data", settings={"transactionCoordinators": 1})
    with broker, Client(broker.service_url) as older:
        assert older.has_transactions()
        broker.stop()
        broker.settings["transactionCoordinators"] = 2
        broker.start()
        with Client(broker.service_url) as newer, newer.create_producer("t") as producer:
            begun = [newer.new_transaction(60) for _ in range(2)]
            for txn in begun:
                producer.send(str(txn.id.most_bits), txn=txn)
            txn_ids = [txn.hand_over() for txn in begun]
            assert sorted(each.most_bits for each in txn_ids) == [0, 1]
            assert older.check_transactions(txn_ids) == [None, None]
            assert older.end_transactions(txn_ids, commit=True) == [None, None]
            with reading(newer, "t") as consumer:
                assert sorted(consumer.receive(30).value or b"" for _ in range(2)) == [b"0", b"1"]


def reading(client: Client, topic: str, **options: object) -> Consumer:
    """A consumer of everything in a topic."""
    return client.subscribe(topic, "s", initial_position="earliest", **options)  # type: ignore[arg-type]


def lose_connection(client: Client) -> None:
    """Cut every connection of ``client``."""
    shared = client._inner._network.pool._shared

    async def cut() -> None:
        for connecting in shared.values():
            connecting.result().close(ConnectionLostError("cut by the test"))

    client._thread.run(cut())


# -- messages


def test_messages_are_read_when_their_transaction_is_committed(client: Client, topic: str) -> None:
    """Not before, and all of them together, in the order of the log."""
    with reading(client, topic) as consumer, client.create_producer(topic) as producer:
        with client.transaction() as txn:
            for number in range(3):
                producer.send(f"m{number}", txn=txn)
            assert_nothing_comes(consumer)
            before = txn.state
        assert (before, txn.state) == (TransactionState.OPEN, TransactionState.COMMITTED)
        assert values(take(consumer, 3)) == numbered(0, 3)


def test_messages_of_an_aborted_transaction_are_read_by_nobody(client: Client, topic: str) -> None:
    """Messages behind them are read."""
    with reading(client, topic) as consumer, client.create_producer(topic) as producer:
        txn = client.new_transaction()
        producer.send("gone", txn=txn)
        txn.abort()
        assert txn.state is TransactionState.ABORTED
        producer.send("m0")
        assert values(take(consumer, 1)) == ["m0"]
        assert_nothing_comes(consumer)


def test_a_block_that_raises_aborts(client: Client, topic: str) -> None:
    """The exception goes on as it was."""
    with reading(client, topic) as consumer, client.create_producer(topic) as producer:
        with pytest.raises(ZeroDivisionError), client.transaction() as txn:
            raise ZeroDivisionError(producer.send("gone", txn=txn))
        assert txn.state is TransactionState.ABORTED
        producer.send("m0")
        assert values(take(consumer, 1)) == ["m0"]


def send_in_turn(client: Client, producer: Producer, rounds: int) -> None:
    """Batches of an aborted transaction, of a committed one, and of none."""
    kept, gone = client.new_transaction(), client.new_transaction()
    for number in range(rounds):
        producer.send_async(f"gone{number}", txn=gone)
        producer.send_async(f"kept{number}a", txn=kept)
        producer.send_async(f"kept{number}b", txn=kept)
        producer.send_async(f"plain{number}")
    producer.flush()
    gone.abort()
    kept.commit()


def test_a_batch_is_of_one_transaction(client: Client, topic: str) -> None:
    """Messages of two transactions and of none, sent in turn by one producer, end each with its own, in their order."""
    options = {"batching_max_publish_delay_s": 60.0, "batching_max_messages": 1000}
    with reading(client, topic) as consumer, client.create_producer(topic, **options) as producer:  # type: ignore[arg-type]
        with client.transaction() as txn:
            producer.send("first", txn=txn)
        send_in_turn(client, producer, 10)
        got = take(consumer, 31)[1:]
        assert values(got) == [text for n in range(10) for text in (f"kept{n}a", f"kept{n}b", f"plain{n}")]
        assert [message.message_id.batch_size for message in got[:3]] == [2, 2, 0]


def test_other_messages_may_overtake_the_first_transaction_of_a_topic(client: Client, topic: str) -> None:
    """Apache Pulsar stores them first, while it notes that the topic has transactions: no message fails for that."""
    options = {"batching_max_publish_delay_s": 60.0}
    with reading(client, topic) as consumer, client.create_producer(topic, **options) as producer:  # type: ignore[arg-type]
        send_in_turn(client, producer, 10)
        got = values(take(consumer, 30))
        assert [text for text in got if "kept" in text] == [f"kept{n}{end}" for n in range(10) for end in "ab"]
        assert [text for text in got if "plain" in text] == [f"plain{n}" for n in range(10)]


def test_a_commit_sends_what_is_still_gathered(client: Client, topic: str) -> None:
    """Open batches do not wait for their publish delay, of whatever key."""
    options = {"batching_max_publish_delay_s": 60.0, "batching_type": "key_based"}
    with reading(client, topic) as consumer, client.create_producer(topic, **options) as producer:  # type: ignore[arg-type]
        with client.transaction() as txn:
            for number in range(6):
                producer.send_async(f"m{number}", key=f"k{number % 2}", txn=txn)
        assert sorted(values(take(consumer, 6))) == numbered(0, 6)


def test_a_transaction_spans_topics_and_partitions(
    client: Client, service: Service, new_topic: Callable[[], str]
) -> None:
    """All of them, by compressed messages too, and two transactions side by side."""
    plain, divided = new_topic(), new_topic()
    service.create_partitioned(divided, 3)
    with (
        reading(client, plain) as one,
        reading(client, divided) as several,
        client.create_producer(plain, compression="zstd") as to_one,
        client.create_producer(divided, batching_enabled=False) as to_several,
    ):
        with client.transaction() as kept:
            gone = client.new_transaction()
            for number in range(9):
                to_one.send_async(f"m{number}" * 100, txn=kept)
                to_several.send_async(f"m{number}", txn=kept)
                to_several.send_async("gone", txn=gone)
            gone.abort()
        assert values(take(one, 9)) == [text * 100 for text in numbered(0, 9)]
        assert sorted(values(take(several, 9))) == numbered(0, 9)
        assert_nothing_comes(several)


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_a_message_in_chunks_ends_with_its_transaction(client: Client, topic: str, commits: bool) -> None:
    """All of its chunks, and each is acknowledged."""
    chunked = {"chunking_enabled": True, "batching_enabled": False, "chunk_max_message_size": CHUNK_BYTES}
    with reading(client, topic) as consumer, client.create_producer(topic, **chunked) as producer:  # type: ignore[arg-type]
        txn = client.new_transaction()
        sent = producer.send(b"x" * 5500, txn=txn)
        assert len(sent.positions) > 5
        if commits:
            txn.commit()
        else:
            txn.abort()
        producer.send(b"m0")
        got = take(consumer, 2 if commits else 1)
        assert [len(message.value or b"") for message in got] == ([5500, 2] if commits else [2])
        for message in got:
            consumer.acknowledge(message, wait=True)
        eventually(lambda: is_all_acknowledged(consumer), "chunks are acknowledged")


@pytest.mark.parametrize("partitions", [0, 3])
def test_rows_are_written_in_a_transaction(
    client: Client, service: Service, new_topic: Callable[[], str], partitions: int
) -> None:
    """Batches, single rows, chunks and compressed entries; those of an aborted transaction are not there."""
    topic = new_topic()
    if partitions:
        service.create_partitioned(topic, partitions)
    large = b"z" * 5000
    with reading(client, topic) as consumer:
        for compression in ("none", "lz4"):
            for ending in (Transaction.abort, Transaction.commit):
                txn = client.new_transaction()
                kind = b"kept" if ending is Transaction.commit else b"gone"
                options = {"compression": compression, "batching_max_messages": 10, "chunking_enabled": True}
                options["chunk_max_message_size"] = CHUNK_BYTES
                with client.write_rows(topic, txn=txn, **options) as writer:  # type: ignore[arg-type]
                    keys = [f"k{number}" for number in range(50)]
                    writer.write(pa.record_batch({"key": keys, "value": [kind] * 50}))
                    writer.write(pa.record_batch({"key": ["k"], "value": [kind + large]}))
                ending(txn)
        got = take(consumer, 102)
        assert {message.value for message in got} == {b"kept", b"kept" + large}
        assert_nothing_comes(consumer)


def test_rows_that_are_not_flushed_are_waited_for(client: Client, topic: str) -> None:
    """A commit returns when all is stored that a writer has taken."""
    with reading(client, topic) as consumer, client.write_rows(topic) as plain:
        with client.transaction() as txn:
            writer = client.write_rows(topic, txn=txn)
            writer.write(pa.record_batch({"value": [b"m"] * 5000}))
        assert writer.rows_confirmed == 5000
        writer.close()
        plain.write(pa.record_batch({"value": [b"end"]}))
        plain.flush()
        assert values(take(consumer, 5001))[-1] == "end"


# -- what is refused


def test_nothing_is_added_to_a_transaction_that_has_ended(client: Client, topic: str) -> None:
    """Nor is it ended twice; nothing of it leaves the client."""
    send(client, topic, 1)
    with reading(client, topic) as consumer, client.create_producer(topic) as producer:
        message = consumer.receive(WAIT_S)
        txn = client.new_transaction()
        txn.commit()
        for refused in (
            lambda: producer.send("late", txn=txn),
            lambda: producer.send_async("late", txn=txn),
            lambda: consumer.acknowledge(message, txn=txn),
            lambda: consumer.acknowledge_cumulative(message, txn=txn),
            lambda: client.write_rows(topic, txn=txn),
            txn.commit,
            txn.abort,
        ):
            with pytest.raises(InvalidTxnStatusError, match=r"transaction \(\d+,\d+\) cannot be .*COMMITTED"):
                refused()
        producer.send("m1")
        assert values(take(consumer, 1)) == ["m1"]


def test_a_transaction_is_of_one_client(client: Client, service: Service, topic: str) -> None:
    """Another client's producers and consumers do not take it, and theirs do not harm it."""
    send(client, topic, 1)
    with Client(service.service_url) as other, other.create_producer(topic) as producer:
        consumer = reading(other, topic)
        message = consumer.receive(WAIT_S)
        with client.transaction() as txn:
            with pytest.raises(UsageError, match="was begun by another client; use one client"):
                producer.send("x", txn=txn)
            with pytest.raises(UsageError, match="was begun by another client"):
                consumer.acknowledge(message, wait=True, txn=txn)
            with pytest.raises(UsageError, match="was begun by another client"):
                other.write_rows(topic, txn=txn)


def test_a_transaction_whose_time_is_over_cannot_be_committed(client: Client, topic: str) -> None:
    """Its coordinator aborts it, and what comes behind it is read."""
    with reading(client, topic) as consumer, client.create_producer(topic) as producer:
        txn = client.new_transaction(timeout_s=1.0)
        producer.send("gone", txn=txn)
        producer.send("m0")
        eventually(lambda: txn.state is TransactionState.TIME_OUT, "the time is over")
        with pytest.raises(InvalidTxnStatusError, match="its time is over, and its coordinator aborts it"):
            txn.commit()
        assert values(take(consumer, 1)) == ["m0"]


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), 1e30])
def test_a_time_limit_that_cannot_be_is_refused(client: Client, timeout_s: float) -> None:
    """Before anything is asked."""
    with pytest.raises(UsageError, match="the timeout of a transaction is"):
        client.new_transaction(timeout_s)


def test_a_message_that_fails_aborts_the_transaction(client: Client, topic: str) -> None:
    """The commit says so, with the failure as its cause."""
    with reading(client, topic) as consumer, client.create_producer(topic) as producer:
        txn = client.new_transaction()
        producer.send("gone", txn=txn)
        producer.send_async(b"x" * 6_000_000, txn=txn)
        with pytest.raises(TransactionHasOperationFailedError, match="maxMessageSize") as caught:
            txn.commit()
        assert isinstance(caught.value.__cause__, UsageError)
        assert txn.state is TransactionState.ABORTED
        producer.send("m0")
        assert values(take(consumer, 1)) == ["m0"]


# -- acknowledgements


@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared", "key_shared"])
@pytest.mark.parametrize("batched", [True, False], ids=["batches", "singles"])
def test_acknowledged_messages_come_again_after_an_abort(client: Client, topic: str, kind: str, batched: bool) -> None:
    """After a commit they do not, to whomever."""
    send(client, topic, 20, batched=batched)
    with reading(client, topic, type=kind) as consumer:
        messages = take(consumer, 20)
        with client.transaction() as kept:
            gone = client.new_transaction()
            for number, message in enumerate(messages):
                consumer.acknowledge(message, txn=gone if number % 5 == 3 else kept)
            gone.abort()
            again = take(consumer, 4)
            assert values(again) == ["m3", "m8", "m13", "m18"]
        assert_nothing_comes(consumer)
        for message in again:
            consumer.acknowledge(message, wait=True)
        eventually(lambda: is_all_acknowledged(consumer), "all is acknowledged")


def test_what_is_acknowledged_in_an_open_transaction_comes_to_nobody(client: Client, topic: str) -> None:
    """Neither after the consumer has gone, nor after a request for all that is unacknowledged."""
    send(client, topic, 10, batched=False)
    with client.transaction() as txn:
        first = reading(client, topic, type="shared")
        for message in take(first, 7):
            first.acknowledge(message, wait=True, txn=txn)
        first.redeliver_unacknowledged()
        assert values(take(first, 3)) == numbered(7, 10)
        first.close()
        with reading(client, topic, type="shared") as second:
            assert values(take(second, 3)) == numbered(7, 10)
            assert_nothing_comes(second)
            txn.abort()
            assert values(take(second, 7)) == numbered(0, 7)


@pytest.mark.parametrize("batched", [True, False], ids=["batches", "singles"])
def test_a_cumulative_acknowledgement_counts_with_its_transaction(client: Client, topic: str, batched: bool) -> None:
    """After an abort messages come again when the consumer asks for them, and after a commit never."""
    send(client, topic, 20, batched=batched)
    with reading(client, topic) as consumer:
        messages = take(consumer, 20)
        with client.transaction() as gone:
            consumer.acknowledge_cumulative(messages[3], wait=True, txn=gone)
            consumer.acknowledge_cumulative(messages[14], wait=True, txn=gone)
            gone.abort()
        assert_nothing_comes(consumer)
        consumer.redeliver_unacknowledged()
        again = take(consumer, 20)
        assert values(again) == numbered(0, 20)
        with client.transaction() as txn:
            consumer.acknowledge_cumulative(again[4], txn=txn)
            consumer.acknowledge_cumulative(again[14], txn=txn)
    with reading(client, topic) as consumer:
        assert values(take(consumer, 5)) == numbered(15, 20)


def test_a_cumulative_acknowledgement_needs_a_subscription_of_one(client: Client, topic: str) -> None:
    """As outside of transactions."""
    send(client, topic, 1)
    with reading(client, topic, type="shared") as consumer, client.transaction() as txn:
        message = consumer.receive(WAIT_S)
        with pytest.raises(UsageError, match="subscription 's' is shared"):
            consumer.acknowledge_cumulative(message, txn=txn)


@pytest.mark.parametrize("waits", [True, False], ids=["told", "at-the-commit"])
def test_a_message_is_acknowledged_in_one_transaction(client: Client, topic: str, waits: bool) -> None:
    """The second one learns of it at once if it waits, and cannot be committed."""
    send(client, topic, 2, batched=False)
    with reading(client, topic, type="shared") as consumer:
        first, second = take(consumer, 2)
        with client.transaction() as txn:
            consumer.acknowledge(first, wait=True, txn=txn)
            late = client.new_transaction()
            consumer.acknowledge(second, txn=late)
            if waits:
                with pytest.raises(TransactionConflictError):
                    consumer.acknowledge(first, wait=True, txn=late)
            else:
                consumer.acknowledge(first, txn=late)
            with pytest.raises(TransactionHasOperationFailedError) as caught:
                late.commit()
            assert isinstance(caught.value.__cause__, TransactionConflictError)
            assert late.state is TransactionState.ABORTED
        assert values(take(consumer, 1)) == ["m1"]


def test_a_message_is_acknowledged_once_in_a_transaction(client: Client, topic: str) -> None:
    """A second time means that it was processed twice, which a transaction must not do."""
    send(client, topic, 1)
    with reading(client, topic, type="shared") as consumer:
        message = consumer.receive(WAIT_S)
        txn = client.new_transaction()
        consumer.acknowledge(message, txn=txn)
        with pytest.raises(TransactionConflictError, match="received twice, or acknowledged twice; abort"):
            consumer.acknowledge(message, wait=True, txn=txn)
        with pytest.raises(TransactionHasOperationFailedError):
            txn.commit()
        assert values(take(consumer, 1)) == ["m0"]


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_a_message_in_chunks_is_acknowledged_in_a_transaction(client: Client, topic: str, kind: str) -> None:
    """With all of its chunks: after an abort it comes again whole, after a commit nothing of it is left."""
    chunked = {"chunking_enabled": True, "batching_enabled": False, "chunk_max_message_size": CHUNK_BYTES}
    with reading(client, topic, type=kind) as consumer, client.create_producer(topic, **chunked) as producer:  # type: ignore[arg-type]
        producer.send(b"x" * 5500)
        for ending in (Transaction.abort, Transaction.commit):
            message = consumer.receive(WAIT_S)
            assert len(message.value or b"") == 5500
            txn = client.new_transaction()
            consumer.acknowledge(message, txn=txn)
            ending(txn)
        assert_nothing_comes(consumer)
        eventually(lambda: is_all_acknowledged(consumer), "all is acknowledged")


def test_messages_are_consumed_and_produced_in_one_transaction(
    client: Client, service: Service, new_topic: Callable[[], str]
) -> None:
    """Half of the transactions are aborted, and their messages done again: each is there once, on both topics."""
    source, left, right = new_topic(), new_topic(), new_topic()
    service.create_partitioned(left, 2)
    send(client, source, 60)
    with (
        reading(client, source, type="shared") as consumer,
        client.create_producer(left) as to_left,
        client.create_producer(right) as to_right,
    ):
        done = turn = 0
        while done < 60:
            messages = consumer.batch_receive(7, timeout_s=1.0)
            if not messages:
                continue
            turn += 1
            txn = client.new_transaction()
            for message in messages:
                to_left.send_async(message.value, txn=txn)
                to_right.send_async(message.value, txn=txn)
                consumer.acknowledge(message, txn=txn)
            if turn % 2:
                txn.abort()
                continue
            with suppress(TransactionHasOperationFailedError):  # by a conflict: an abort brings a whole batch again
                txn.commit()
                done += len(messages)
        eventually(lambda: is_all_acknowledged(consumer), "all is acknowledged")
    with reading(client, left) as of_left, reading(client, right) as of_right:
        assert sorted(values(take(of_left, 60))) == sorted(values(take(of_right, 60))) == sorted(numbered(0, 60))
        assert_nothing_comes(of_left)
        assert_nothing_comes(of_right)


# -- connections that end


def test_a_transaction_goes_on_after_a_lost_connection(client: Client, topic: str) -> None:
    """Where nothing of it was under way: the coordinator and the broker know it by its id."""
    with reading(client, topic) as consumer, client.create_producer(topic) as producer:
        with client.transaction() as txn:
            producer.send("m0", txn=txn)
            lose_connection(client)
            producer.send("m1", txn=txn)
            lose_connection(client)
        assert values(take(consumer, 2)) == numbered(0, 2)


def test_a_transaction_goes_on_after_its_topic_was_unloaded(client: Client, service: Service, topic: str) -> None:
    """What it has written there is there, and committed with the rest."""
    with reading(client, topic) as consumer, client.create_producer(topic) as producer:
        with client.transaction() as txn:
            producer.send("m0", txn=txn)
            service.admin("PUT", f"{admin_path(topic)}/unload")
            producer.send("m1")  # is sent again if the topic went meanwhile, so the producer is back when it returns
            producer.send("m2", txn=txn)
        assert values(take(consumer, 3)) == numbered(0, 3)


# -- ended by others


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_a_transaction_is_ended_by_its_id(client: Client, service: Service, topic: str, commits: bool) -> None:
    """By another client, once it was handed over with all that was under way; then nobody adds to it."""
    with reading(client, topic) as consumer, client.create_producer(topic) as producer:
        txn = client.new_transaction()
        for number in range(5):
            producer.send_async(f"m{number}", txn=txn)
        txn_id = txn.hand_over()
        assert (txn_id, txn.state) == (txn.id, TransactionState.HANDED_OVER)
        for refused in (lambda: producer.send("late", txn=txn), txn.commit, txn.abort, txn.hand_over):
            with pytest.raises(InvalidTxnStatusError, match="HANDED_OVER"):
                refused()
        assert_nothing_comes(consumer)
        with Client(service.service_url) as other:
            other.end_transaction(txn_id, commit=commits)
            with suppress(TransactionNotFoundError):  # an Apache Pulsar forgets it at its end
                other.end_transaction(txn_id, commit=commits)
            with pytest.raises((TransactionNotFoundError, InvalidTxnStatusError)):
                other.end_transaction(txn_id, commit=not commits)
            with pytest.raises(TransactionNotFoundError):
                other.end_transaction(txn_id._replace(most_bits=1000), commit=True)
        producer.send("end")
        assert values(take(consumer, 6 if commits else 1)) == [*(numbered(0, 5) if commits else []), "end"]


def test_a_failed_transaction_is_not_handed_over(client: Client, topic: str) -> None:
    """It is aborted, as by a commit."""
    with client.create_producer(topic) as producer:
        txn = client.new_transaction()
        producer.send_async(b"x" * 6_000_000, txn=txn)
        with pytest.raises(TransactionHasOperationFailedError):
            txn.hand_over()
        assert txn.state is TransactionState.ABORTED


# -- asyncio


def test_transactions_with_asyncio(service: Service, topic: str) -> None:
    """A block that is cancelled aborts, one that ends commits."""

    async def play() -> None:
        async with AsyncClient(ClientConfig(service_url=service.service_url)) as client:
            consumer = await client.subscribe(topic, "s")
            producer = await client.create_producer(topic)

            async def never() -> None:
                async with client.transaction() as txn:
                    await producer.send("gone", txn=txn)
                    under_way.set()
                    await asyncio.Event().wait()

            under_way = asyncio.Event()
            task = asyncio.ensure_future(never())
            await under_way.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with client.transaction() as txn:
                await asyncio.gather(*(producer.send(f"m{number}", txn=txn) for number in range(5)))
            got = [await consumer.receive(WAIT_S) for _ in range(5)]
            assert values(got) == numbered(0, 5)
            async with client.transaction() as txn:
                for message in got:
                    await consumer.acknowledge(message, txn=txn)
            assert txn.state is TransactionState.COMMITTED

    asyncio.run(play())


# -- entries


def test_whole_entries_are_acknowledged_in_a_transaction(client: Client, topic: str) -> None:
    """No consumer gets the entries while the transaction is open; then they are acknowledged."""
    send(client, topic, 10, batched=False)
    with client.subscribe_entries(topic, "s", initial_position="earliest", queue_size=10) as consumer:
        entries = given_to(consumer, 10)
        txn = client.new_transaction()
        ids = {entries[0].ledger: [each.entry for each in entries[2:]]}
        consumer.start_ack_within(consumer.session, ids, txn).result(WAIT_S)
        txn_id = txn.hand_over()
    with client.subscribe(topic, "s", type="shared") as other:
        assert values(take(other, 2)) == numbered(0, 2)
        assert_nothing_comes(other)
        client.end_transaction(txn_id, commit=True)
        assert_nothing_comes(other)


def test_entries_of_a_session_that_is_over_are_not_acknowledged_in_a_transaction(client: Client, topic: str) -> None:
    """Others may have been given them."""
    send(client, topic, 3, batched=False)
    with client.subscribe_entries(topic, "s", initial_position="earliest", queue_size=10) as consumer:
        entries = given_to(consumer, 3)
        session = consumer.session
        lose_connection(client)
        eventually(lambda: consumer.session != session and consumer.is_attached, "the connection is back")
        txn = client.new_transaction()
        ids = {entries[0].ledger: [each.entry for each in entries]}
        with pytest.raises(ConnectionLostError, match="and with it what it was given"):
            consumer.start_ack_within(session, ids, txn).result(WAIT_S)
        txn.abort()
        assert [each.entry for each in given_to(consumer, 3)] == [each.entry for each in entries]


def given_to(consumer: EntryConsumer, count: int) -> list[GivenEntry]:
    """The next entries of ``consumer``."""
    found: list[GivenEntry] = []

    def has_all() -> bool:
        found.extend(consumer.take().entries)
        return len(found) >= count

    eventually(has_all, "entries are given")
    return found
