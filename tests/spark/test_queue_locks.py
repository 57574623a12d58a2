# SPDX-License-Identifier: Apache-2.0
"""A query that locks what it takes, on each broker with transactions: who gets what when it dies. No session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from broker_core.base.errors import PulsarishError
from broker_core.client import Client, Consumer
from broker_core.testing.running_broker import RunningBroker
from tests.client.conftest import TRANSACTIONAL, transactional
from tests.client.helpers import assert_nothing_comes
from tests.spark.brokers import Broker, eventually, numbers
from tests.spark.conftest import NAME, Start, restarted
from tests.spark.engine import Engine
from tests.spark.queries import Collector, drain


@pytest.fixture(scope="module", params=TRANSACTIONAL)
def cell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The brokers that have transactions."""
    with transactional(request.param, request, tmp_path_factory) as made:
        yield Broker(made.service_url, made.http_url, "pulsarish" if made.kind == "pulsarish" else "apache")


@pytest.fixture
def client(cell: Broker) -> Iterator[Client]:
    """The applications beside the query."""
    with Client(cell.service_url, operation_timeout_s=30) as made:
        yield made


def locking(share: Start, cell: Broker, topic: str, **options: str | int) -> Engine:
    """A query on a new topic, which has taken nothing."""
    cell.create(topic, 0)
    query = share(topic=topic, queueGuarantee="lock", maxOffsetsPerTrigger=100, **options)
    assert query.drain() == []
    return query


def nonempty(query: Engine) -> list[int]:
    """The rows of the next batch that has some, which is noted and not done."""
    found: list[int] = []

    def has_some() -> bool:
        found.extend(query.attempt() or [])
        if not found:
            query.trigger()
        return bool(found)

    eventually(has_some, "a batch comes")
    return sorted(found)


def other(client: Client, topic: str) -> Consumer:
    """An ordinary consumer of the subscription."""
    return client.subscribe(topic, NAME, type="shared")


def all_of(consumer: Consumer, count: int) -> list[int]:
    """Receive and acknowledge ``count`` messages."""
    found = []
    for _ in range(count):
        message = consumer.receive(30)
        consumer.acknowledge(message, wait=True)
        found.append(int(message.value or b""))
    return sorted(found)


def assert_each_comes_once(query: Engine, consumer: Consumer, count: int) -> None:
    """Each of ``count`` messages comes to the query or the other consumer: a broker gives them to either."""
    query.bound_to_now()
    mine = query.drain()
    assert sorted([*mine, *all_of(consumer, count - len(mine))]) == list(range(count))


def drained(query: Engine, count: int) -> list[int]:
    """``count`` messages of a query, however often a busy broker gives nothing for a moment."""
    seen: list[int] = []

    def has_all() -> bool:
        seen.extend(query.drain())
        return len(seen) >= count

    eventually(has_all, f"{count} messages come")
    return sorted(seen)


@pytest.mark.parametrize(("kind", "partitions"), [("Shared", 0), ("Shared", 2), ("Key_Shared", 2)])
def test_all_is_taken_once_and_acknowledged(share: Start, cell: Broker, topic: str, kind: str, partitions: int) -> None:
    """The last batch included."""
    cell.create(topic, partitions)
    cell.send(topic, numbers(0, 1000), batching_max_messages=10)
    query = share(topic=topic, queueGuarantee="lock", subscriptionType=kind, maxOffsetsPerTrigger=300)
    assert drained(query, 1000) == list(range(1000))
    names = [topic] if not partitions else [f"{topic}-partition-{number}" for number in range(partitions)]
    assert [cell.backlog(name, NAME) for name in names] == [0] * len(names)


def test_the_first_batch_of_a_process_is_empty_and_names_the_next_transaction(
    share: Start, cell: Broker, topic: str
) -> None:
    """So no entry is acknowledged outside of a lock, nor in a transaction that no offset names."""
    query = locking(share, cell, topic)
    assert query.end is None
    cell.send_one_by_one(topic, numbers(0, 10))
    assert query.trigger() == []
    assert query.end is not None
    first = query.end
    assert set(first) == {"queue", "n", "m", "lock"}
    assert query.trigger() == list(range(10))
    assert query.end["lock"]["own"] == first["lock"]["next"]
    cell.send_one_by_one(topic, numbers(10, 20))
    assert restarted(query).trigger() == []
    assert query.trigger() == list(range(10, 20))


def test_a_noted_batch_is_the_querys_however_long_it_is_away(
    share: Start, cell: Broker, topic: str, client: Client
) -> None:
    """Other consumers get nothing of the batch, and a replay has the same rows."""
    query = locking(share, cell, topic)
    cell.send_one_by_one(topic, numbers(0, 10))
    rows = nonempty(query)
    query.stop()
    cell.send_one_by_one(topic, numbers(10, 20))
    with other(client, topic) as consumer:
        theirs = all_of(consumer, 20 - len(rows))
        assert_nothing_comes(consumer)
        assert sorted(restarted(query).trigger() or []) == rows
        assert query.drain() == []
        assert_nothing_comes(consumer)
    assert sorted(rows + theirs) == list(range(20))
    assert cell.backlog(topic, NAME) == 0


def test_a_done_batch_is_not_given_to_others_before_it_is_settled(
    share: Start, cell: Broker, topic: str, client: Client
) -> None:
    """Spark has noted that it is done, and the query is killed before the transaction is committed."""
    query = locking(share, cell, topic)
    cell.send_one_by_one(topic, numbers(0, 10))
    rows = nonempty(query)
    query.trigger()
    query.stop()
    with other(client, topic) as consumer:
        theirs = all_of(consumer, 10 - len(rows))
        assert_nothing_comes(consumer)
        assert restarted(query).drain() == []
    assert sorted(rows + theirs) == list(range(10))
    assert cell.backlog(topic, NAME) == 0


def killed_before_it_was_noted(share: Start, cell: Broker, topic: str) -> Engine:
    """A query that has locked ten messages, and is killed before Spark has noted the offset."""
    query = locking(share, cell, topic)
    cell.send_one_by_one(topic, numbers(0, 10))
    assert query.trigger() == []
    assert query.plan() is not None
    query._begun = None
    query.stop()
    return query


def test_a_batch_that_was_not_noted_is_free_after_the_restart(
    share: Start, cell: Broker, topic: str, client: Client
) -> None:
    """A batch that was not noted is in the transaction that the last offset names as the next: a restart aborts it."""
    query = killed_before_it_was_noted(share, cell, topic)
    with other(client, topic) as consumer:
        assert_nothing_comes(consumer)
        query.restart()
        query.trigger()
        assert_each_comes_once(query, consumer, 10)
    assert cell.backlog(topic, NAME) == 0


def test_a_batch_that_was_not_noted_is_locked_until_another_driver_has_noted_one(
    share: Start, cell: Broker, topic: str, client: Client
) -> None:
    """Its driver may only have been paused, and note it: it would be run though others have its messages."""
    query = killed_before_it_was_noted(share, cell, topic)
    with other(client, topic) as consumer:
        query.restart()
        assert query.end is not None
        mine = query._reader.latestOffset(query.end, query._reader.getDefaultReadLimit())
        assert mine["n"] == query.end["n"] + 1  # Spark lets no other driver note a batch of that number.
        assert_nothing_comes(consumer)
        assert query.trigger() == []
        assert_each_comes_once(query, consumer, 10)


def test_after_its_time_limit_a_batch_is_acknowledged_as_without_locks(
    share: Start, cell: Broker, topic: str, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Others have got it by then: a warning says of how many messages that may be."""
    query = locking(share, cell, topic, transactionTimeoutMs=3000)
    cell.send_one_by_one(topic, numbers(0, 10))
    rows = nonempty(query)
    query.stop()
    with other(client, topic) as consumer:
        assert all_of(consumer, 10) == list(range(10))
    assert sorted(restarted(query).trigger() or []) == rows
    assert query.drain() == []
    assert "lock of a batch may have ended before the batch was done messages_max=" in caplog.text
    assert cell.backlog(topic, NAME) == 0


def test_what_others_have_acknowledged_is_left_out(
    share: Start, cell: Broker, topic: str, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """An application that acknowledges what the query was given: nothing of the batch is taken, and all comes again
    but for that."""
    query = locking(share, cell, topic)
    with client.create_producer(topic, batching_enabled=False) as producer:
        sent = [producer.send(text).position for text in numbers(0, 10)]
    assert query.trigger() == []  # By now the query has been given them.
    with client.subscribe_entries(topic, NAME) as rival:
        rival.start_ack({sent[0].ledger: [each.entry for each in sent[:3]]}).result(30)
        assert query.trigger() == []
        assert "batch was not locked and is given back messages=10" in caplog.text
    assert drained(query, 7) == list(range(3, 10))
    assert cell.backlog(topic, NAME) == 0


def test_what_is_in_another_transaction_is_left_out(share: Start, cell: Broker, topic: str, client: Client) -> None:
    """When that is aborted it comes to somebody."""
    query = locking(share, cell, topic)
    with client.create_producer(topic, batching_enabled=False) as producer:
        sent = [producer.send(text).position for text in numbers(0, 10)]
    assert query.trigger() == []
    txn = client.new_transaction(60)
    with client.subscribe_entries(topic, NAME) as rival:
        held = {sent[0].ledger: [each.entry for each in sent[:3]]}
        rival.start_ack_within(rival.session, held, txn).result(30)
        assert query.trigger() == []
        assert drained(query, 7) == list(range(3, 10))
    txn.abort()
    assert drained(query, 3) == [0, 1, 2]
    assert cell.backlog(topic, NAME) == 0


def test_what_was_given_in_a_session_that_is_over_is_not_locked(share: Start, cell: Broker, topic: str) -> None:
    """Others may have it. It comes again."""
    query = locking(share, cell, topic)
    cell.send_one_by_one(topic, numbers(0, 10))
    assert query.trigger() == []
    cell.unload(topic)
    assert drained(query, 10) == list(range(10))
    assert cell.backlog(topic, NAME) == 0


@pytest.mark.parametrize("guarantee", ["commit", "claim"])
def test_a_query_may_be_restarted_without_locks(share: Start, cell: Broker, topic: str, guarantee: str) -> None:
    """The transaction of the batch before is committed all the same; and with locks again."""
    query = locking(share, cell, topic)
    cell.send_one_by_one(topic, numbers(0, 10))
    rows = nonempty(query)
    assert sorted(restarted(query, queueGuarantee=guarantee).trigger() or []) == rows
    assert sorted(rows + query.drain()) == list(range(10))
    assert cell.backlog(topic, NAME) == 0
    cell.send_one_by_one(topic, numbers(10, 20))
    assert restarted(query, queueGuarantee="lock").drain() == list(range(10, 20))
    assert cell.backlog(topic, NAME) == 0


def test_a_trigger_that_ends_with_the_first_batch_is_refused(
    spark: SparkSession, cell: Broker, topic: str, tmp_path: Path
) -> None:
    """A query that ends with its first batch would never get a row."""
    cell.create(topic, 0)
    cell.send_one_by_one(topic, numbers(0, 10))
    options = {"service.url": cell.service_url, "subscriptionType": "Shared", "subscriptionName": NAME}
    frame = spark.readStream.format("pulsarish").options(**options, queueGuarantee="lock").load(topic)
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(once=True).start()
    with pytest.raises(StreamingQueryException, match=r"queueGuarantee=lock does not work with Trigger\.Once"):
        query.awaitTermination(60)


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared"])
def test_spark_takes_all_over_a_stop(spark: SparkSession, cell: Broker, topic: str, tmp_path: Path, kind: str) -> None:
    """A stream under AvailableNow, twice."""
    cell.create(topic, 2)
    options = {"service.url": cell.service_url, "subscriptionType": kind, "subscriptionName": NAME}
    options |= {"queueGuarantee": "lock", "maxOffsetsPerTrigger": "40", "availableNowQuietMs": "2000"}
    frame = spark.readStream.format("pulsarish").options(**options, startingOffsets="earliest").load(topic)
    collected = Collector()
    for first in (0, 100):
        cell.send_one_by_one(topic, numbers(first, first + 100))
        drain(frame, tmp_path, collected)
        assert sorted(collected.values) == list(range(first + 100))
        assert [cell.backlog(f"{topic}-partition-{number}", NAME) for number in (0, 1)] == [0, 0]
        frame = spark.readStream.format("pulsarish").options(**options).load(topic)


def test_transactions_are_needed(tmp_path: Path) -> None:
    """The first call says so, and what to do."""
    with RunningBroker(tmp_path / "data", settings={"transactionCoordinatorEnabled": False}) as running:
        with Client(running.service_url) as client:
            client.create_producer("t").close()
        query = Engine(
            running.service_url, topic="t", subscriptionType="Shared", subscriptionName=NAME, queueGuarantee="lock"
        )
        with pytest.raises(PulsarishError) as refused:
            query.trigger()
        assert "queueGuarantee=lock needs transactions" in str(refused.value)
        assert "set transactionCoordinatorEnabled=true" in str(refused.value)
        assert "queueGuarantee=claim" in str(refused.value)
        query.stop()
