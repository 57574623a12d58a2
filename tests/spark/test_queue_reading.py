# SPDX-License-Identifier: Apache-2.0
"""A query in queue mode: what it gets, what its batches are, and what it acknowledges. No session."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import pytest

from broker_core.base.positions import Position
from broker_core.client import Client, Consumer, Message
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.progress import PartitionLag, lag
from tests.spark.brokers import Broker, eventually, numbers
from tests.spark.conftest import NAME, Start, restarted
from tests.spark.engine import Engine


def received(consumer: Consumer, count: int) -> list[Message]:
    """The next messages of an ordinary consumer."""
    return [consumer.receive(60) for _ in range(count)]


def of(messages: list[Message]) -> list[int]:
    """The numbers that they hold."""
    return [int(message.value or b"") for message in messages]


@pytest.mark.parametrize("partitions", [0, 2])
def test_a_query_takes_and_acknowledges_all(share: Start, cell: Broker, topic: str, partitions: int) -> None:
    """The last batch included, whatever the number of partitions."""
    cell.create(topic, partitions)
    cell.send(topic, numbers(0, 1000), batching_max_messages=10)
    query = share(topic=topic, maxOffsetsPerTrigger=300)
    seen: list[int] = []

    def has_all() -> bool:
        seen.extend(query.drain())  # It ends where a busy broker gives nothing for a moment.
        return len(seen) >= 1000

    eventually(has_all, "all messages come")
    assert sorted(seen) == list(range(1000))
    names = [topic] if not partitions else [f"{topic}-partition-{number}" for number in range(partitions)]
    assert [cell.backlog(name, NAME) for name in names] == [0] * len(names)
    cell.send(topic, numbers(1000, 1100))
    assert query.drain() == list(range(1000, 1100))


def test_it_shares_with_an_ordinary_consumer(share: Start, cell: Broker, topic: str) -> None:
    """Each message is processed by one of them, as long as nobody is killed."""
    cell.create(topic, 0)
    query = share(topic=topic, maxOffsetsPerTrigger=200)
    assert query.drain() == []
    theirs: list[int] = []
    with Client(cell.service_url) as client, client.subscribe(topic, NAME, type="shared") as other:
        cell.send_one_by_one(topic, numbers(0, 600))
        ours = query.trigger() or []
        for _ in range(100):
            message = other.receive(60)
            theirs += of([message])
            other.acknowledge(message)
        ours += query.drain()

    def has_all() -> bool:
        ours.extend(restarted(query).drain())  # What the other one had prefetched, when the broker gives it again.
        return len(ours + theirs) >= 600

    eventually(has_all, "all messages come")
    assert sorted(ours + theirs) == list(range(600))
    assert ours
    assert cell.backlog(topic, NAME) == 0


@pytest.mark.parametrize("guarantee", ["commit", "claim"])
def test_its_lag_is_what_is_left_of_the_subscription(share: Start, cell: Broker, topic: str, guarantee: str) -> None:
    """Beside the batch, acknowledged or not; what another consumer holds is not done either."""
    cell.create(topic, 0)
    query = share(topic=topic, maxOffsetsPerTrigger=10, queueGuarantee=guarantee)
    assert query.drain() == []
    cell.send_one_by_one(topic, numbers(0, 25))
    key = TopicPartition(f"persistent://public/default/{topic}", 0)
    first = query.trigger() or []
    assert first
    assert lag(query.progress()) == {key: PartitionLag(None, 25 - len(first))}
    assert sorted(first + query.drain()) == list(range(25))
    assert lag(query.progress()) == {key: PartitionLag(0, 0, 0, 0.0)}


def test_a_replayed_batch_has_the_same_rows(share: Start, cell: Broker, topic: str) -> None:
    """The query dies before the batch is done; more has come meanwhile."""
    cell.create(topic, 0)
    query = share(topic=topic, maxOffsetsPerTrigger=100)
    cell.send(topic, numbers(0, 250), batching_max_messages=5)
    first = query.trigger()
    second = query.attempt()
    cell.send(topic, numbers(250, 300), batching_max_messages=5)
    assert restarted(query).attempt() == second
    assert restarted(query).trigger() == second
    assert first is not None
    assert second is not None
    assert sorted(first + second + query.drain()) == list(range(300))


def test_batches_have_as_many_messages_as_the_limit_says(share: Start, cell: Broker, topic: str) -> None:
    """To within an entry, and one entry at least."""
    cell.create(topic, 0)
    cell.send(topic, numbers(0, 100), batching_max_messages=10)
    query = share(topic=topic, maxOffsetsPerTrigger=35)
    sizes = []
    while (batch := query.trigger()) is not None:
        sizes.append(len(batch))
    assert sum(sizes) == 100
    assert max(sizes) <= 30
    cell.send(topic, numbers(0, 200), batching_max_messages=100)
    assert [len(query.trigger() or []) for _ in range(3)] == [100, 100, 0]


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
def test_an_offset_that_would_be_too_long_makes_smaller_batches(
    share: Start, cell: Broker, topic: str, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What does not fit comes next, keys in their order."""
    cell.create(topic, 0)
    with Client(cell.service_url) as client:
        with client.create_producer(topic, batching_enabled=False) as producer:
            for number in range(400):
                producer.send_async(str(number), key=str(number % 7))
            producer.flush()
        with client.subscribe_entries(topic, NAME, type=kind, initial_position="earliest") as other:
            acked = [number for number in range(400) if number % 3 == 1]
            other.start_ack({cell.ledgers(topic)[0]: acked}).result(60)
    query = share(topic=topic, subscriptionType=kind, maxOffsetsPerTrigger=300)
    del query._options["startingOffsets"]
    restarted(query)
    most = 2 * len(topic) + 190
    monkeypatch.setattr("pulsarish_spark.queue.queue_driver.TEXT_BYTES_MAX", most)
    batches: list[list[int]] = []
    while (batch := query.trigger()) is not None:
        batches.append(batch)
        assert len(json.dumps(query.end)) <= most
    assert len(batches) > 1
    seen = list(chain(*batches))
    assert sorted(seen) == sorted({*range(400)} - {*acked})
    if kind == "key_shared":
        check_keys([seen], 7)
    assert cell.backlog(topic, NAME) == 0


def test_what_others_acknowledged_of_a_batch_is_not_a_row(share: Start, cell: Broker, topic: str) -> None:
    """Neither at once nor at a replay, though nobody keeps what they left but the offset."""
    cell.create(topic, 0)
    cell.subscribe(topic, NAME)
    cell.send(topic, numbers(0, 20), batching_max_messages=10)
    with Client(cell.service_url) as client:
        with client.subscribe(topic, NAME, type="shared", batch_index_ack_enabled=True) as other:
            for message in received(other, 20):
                if int(message.value or b"") in (1, 2, 3, 15):
                    other.acknowledge(message, wait=True)
        query = share(topic=topic)
        left = [number for number in range(20) if number not in (1, 2, 3, 15)]
        assert sorted(query.attempt() or []) == left
        assert sorted(restarted(query).attempt() or []) == left
        assert query.drain() == left
    assert cell.backlog(topic, NAME) == 0


def test_messages_in_chunks_are_whole_rows(share: Start, cell: Broker, topic: str) -> None:
    """Also where they have more chunks than the batch may have messages, and among other messages."""
    cell.create(topic, 0)
    query = share(topic=topic, maxOffsetsPerTrigger=2)
    options: Any = {"batching_enabled": False, "chunking_enabled": True, "chunk_max_message_size": 200}
    with Client(cell.service_url) as client, client.create_producer(topic, **options) as producer:
        # Apache Pulsar keeps back the rest of a message whose consumer has left between its chunks; so one at first.
        producer.send("1".rjust(3000, "0"))
        assert query.attempt() == [1]
        assert restarted(query).trigger() == [1]
        for number in range(2, 7):
            producer.send(str(number).rjust(3000 if number % 2 else 3, "0"))
    assert query.drain() == [2, 3, 4, 5, 6]
    assert cell.backlog(topic, NAME) == 0


def test_delayed_messages_come_when_they_are_due(share: Start, cell: Broker, topic: str) -> None:
    """AvailableNow does not wait for those that are not."""
    cell.create(topic, 0)
    query = share(topic=topic)
    assert query.drain() == []
    with Client(cell.service_url) as client, client.create_producer(topic) as producer:
        producer.send("0", deliver_after_s=4.0)
        producer.send("1")
        producer.send("2", deliver_after_s=3600.0)
    assert query.drain() == [1]
    eventually(lambda: query.trigger() == [0], "the delayed message comes")
    assert query.drain() == []
    assert cell.backlog(topic, NAME) == 1


@pytest.mark.parametrize("batched", [False, True])
def test_rows_of_a_key_are_in_one_task_and_in_order(
    share: Start, cell: Broker, topic: str, batched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a hot partition that all cores read, while it is fresh and at a replay."""
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    monkeypatch.setattr("pulsarish_spark.queue.dividing.TASK_ENTRIES_MIN", 10)
    cell.create(topic, 0)
    options: Any = {"batching_type": "key_based"} if batched else {"batching_enabled": False}
    with Client(cell.service_url) as client, client.create_producer(topic, **options) as producer:
        for number in range(300):
            producer.send_async(str(number), key=str(number % 20))
        producer.flush()
    query = share(topic=topic, subscriptionType="Key_Shared")
    tasks = query.plan()
    assert tasks is not None
    assert len(tasks) > 1
    fresh = [list(query.values([task])) for task in tasks]
    check_keys(fresh, 20)
    restarted(query)
    tasks = query.plan()
    assert tasks is not None
    assert len(tasks) > 1
    replayed = [list(query.values([task])) for task in tasks]
    check_keys(replayed, 20)
    assert sorted(chain(*replayed)) == sorted(chain(*fresh)) != []


def check_keys(tasks: list[list[int]], keys: int) -> None:
    """Each key in one task, its values in order."""
    owner: dict[int, int] = {}
    for task, values in enumerate(tasks):
        last: dict[int, int] = {}
        for value in values:
            assert owner.setdefault(value % keys, task) == task
            assert last.get(value % keys, -1) < value
            last[value % keys] = value


def test_without_the_checkpoint_the_last_batch_comes_again(share: Start, cell: Broker, topic: str) -> None:
    """It was not acknowledged; those before it were."""
    cell.create(topic, 0)
    cell.send(topic, numbers(0, 50), batching_max_messages=10)
    query = share(topic=topic, maxOffsetsPerTrigger=20)
    first = query.trigger() or []
    second = query.trigger() or []
    query.stop()
    again = share(topic=topic)
    del again._options["startingOffsets"]
    assert sorted(restarted(again).drain() + first) == list(range(50))
    assert second


def test_the_redelivery_count_is_the_same_at_a_replay(share: Start, cell: Broker, topic: str) -> None:
    """It is noted in the offset, whatever the broker says later."""
    cell.create(topic, 0)
    cell.subscribe(topic, NAME)
    cell.send_one_by_one(topic, numbers(0, 10))
    with Client(cell.service_url) as client, client.subscribe(topic, NAME, type="shared") as other:
        received(other, 10)
        query = share(topic=topic, columns="value,redelivery_count")
        assert query.drain() == []
        other.redeliver_unacknowledged()
        eventually(lambda: query.plan() is not None, "some come to the query")
    counts = rows(query, query.plan() or [])
    assert min(counts.values()) >= 1
    restarted(query)
    assert rows(query, query.plan() or []) == counts


def rows(query: Engine, tasks: list[Any]) -> dict[int, int]:
    """Redelivery counts by value."""
    return {
        int(row["value"]): row["redelivery_count"]
        for task in tasks
        for batch in query._reader.read(task)
        for row in batch.to_pylist()
    }


def test_an_unloaded_topic_gives_nothing_twice(share: Start, cell: Broker, topic: str) -> None:
    """The broker gives all again that is not acknowledged, what is in the running batch too."""
    cell.create(topic, 0)
    cell.send(topic, numbers(0, 100), batching_max_messages=10)
    query = share(topic=topic, maxOffsetsPerTrigger=30)
    seen = query.attempt() or []
    consumers = list(query._reader._driver_state._intake._consumers.values())  # type: ignore[union-attr]
    sessions = [each.session for each in consumers]
    cell.unload(topic)
    eventually(
        lambda: all(each.has_given and each.session > old for each, old in zip(consumers, sessions, strict=True)),
        "the consumer comes back and is given the batch again, which the query must not take",
    )
    query.end, query._begun = query._begun, None
    assert sorted(seen + query.drain()) == list(range(100))
    assert cell.backlog(topic, NAME) == 0


def test_partitions_that_a_queue_gets_later_are_read_from_their_first_message(
    share: Start, cell: Broker, topic: str
) -> None:
    """And a topic that does not exist yet is waited for."""
    query = share(topic=topic, startingOffsets="latest", partitionDiscoveryIntervalMs=1)
    assert query.drain() == []
    assert not cell.topic_exists(topic)
    cell.create(topic, 1)
    cell.send(topic, numbers(0, 10))
    assert query.drain() == list(range(10))
    cell.grow(topic, 3)
    cell.send(topic, numbers(10, 100), batching_max_messages=1)
    assert query.drain() == list(range(10, 100))


def test_holding_an_acknowledged_batch(share: Start, cell: Broker, topic: str) -> None:
    """With claim nobody gets a logged batch while the query is away, and a replay finds all of it."""
    cell.create(topic, 0)
    cell.send_one_by_one(topic, numbers(0, 40))
    query = share(topic=topic, queueGuarantee="claim", maxOffsetsPerTrigger=20)
    claimed = query.attempt() or []
    query.stop()
    with Client(cell.service_url) as client, client.subscribe(topic, NAME, type="shared") as other:
        theirs = received(other, 40 - len(claimed))
        other.acknowledge(theirs[-1])
        for message in theirs:
            other.acknowledge(message, wait=True)
    cell.unload(topic)
    cell.send_one_by_one(topic, numbers(40, 41))
    for _ in range(3):
        cell.trim(topic)
    assert restarted(query).trigger() == claimed
    assert sorted(claimed + of(theirs)) == list(range(40))
    assert query.drain() == [40]
    assert cell.backlog(topic, f"{NAME}.spark-hold") == 0
    query.stop()
    cell.drop_acknowledged(topic)


def test_entries_that_are_gone_are_named(
    share: Start, cell: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Others acknowledged a logged batch while the query was away, and its ledger was deleted."""
    cell.create(topic, 0)
    cell.send_one_by_one(topic, numbers(0, 10))
    query = share(topic=topic)
    query.attempt()
    query.stop()
    with Client(cell.service_url) as client, client.subscribe(topic, NAME, type="shared") as other:
        for message in received(other, 10):
            other.acknowledge(message, wait=True)
    cell.unload(topic)
    cell.send_one_by_one(topic, numbers(10, 12))
    cell.drop_acknowledged(topic)
    from pulsarish_spark import DataLossError

    with pytest.raises(DataLossError, match=r"does not have the entries \d+:0-\d any more"):
        restarted(query).trigger()
    assert restarted(query, failOnDataLoss="false").trigger() == []
    assert "data loss" in caplog.text
    assert query.drain() == [10, 11]


def test_a_subscription_that_is_deleted_under_a_query_is_told(share: Start, cell: Broker, topic: str) -> None:
    """A new one is made only with failOnDataLoss=false."""
    from pulsarish_spark import DataLossError

    cell.create(topic, 0)
    cell.send(topic, numbers(0, 10))
    query = share(topic=topic)
    assert query.drain() == list(range(10))

    def is_told() -> bool:
        # A consumer that asks, while the broker deletes, whether the subscription is there may make it anew: nothing
        # is lost with it where all was acknowledged (``durable_subscribing``). Then it is deleted once more.
        if NAME in cell.subscriptions(topic):
            cell.unsubscribe(topic, NAME)
        try:
            query.drain()
        except DataLossError as told:
            return 'subscription "work" of partition' in str(told)
        return False

    eventually(is_told, "the deletion is told")
    assert NAME not in cell.subscriptions(topic)
    query.stop()
    with pytest.raises(DataLossError, match="was deleted"):
        restarted(query).drain()
    cell.send(topic, numbers(10, 12))
    assert set(restarted(query, failOnDataLoss="false").drain()) >= {10, 11}


@pytest.mark.parametrize(("start_at", "got"), [("earliest", [0, 1]), ("latest", [])])
def test_a_new_subscription_begins_where_the_query_says(
    share: Start, cell: Broker, topic: str, start_at: str, got: list[int]
) -> None:
    """A query that was killed before its first batch was noted finds its own."""
    cell.create(topic, 0)
    cell.send_one_by_one(topic, numbers(0, 2))
    query = share(topic=topic, startingOffsets=start_at)
    query._reader.latestOffset(query._reader.initialOffset(), query._reader.getDefaultReadLimit())
    assert restarted(query).drain() == got


def test_a_start_on_a_subscription_that_stands_elsewhere_is_refused(share: Start, cell: Broker, topic: str) -> None:
    """Without one, or with one for new subscriptions only, the query takes what the subscription holds."""
    from broker_core.base.errors import ConfigError

    cell.create(topic, 0)
    cell.subscribe(topic, NAME)
    cell.send_one_by_one(topic, numbers(0, 5))
    with Client(cell.service_url) as client, client.subscribe(topic, NAME, type="shared") as other:
        other.acknowledge(received(other, 1)[0], wait=True)
    for word in ("earliest", "latest"):
        with pytest.raises(ConfigError, match=rf"is there already, at {Position.__name__ and ''}\d+:\d+, so"):
            share(topic=topic, startingOffsets=word).drain()
    query = share(topic=topic)
    del query._options["startingOffsets"]
    assert restarted(query, subscriptionInitialPosition="Latest").drain() == [1, 2, 3, 4]
