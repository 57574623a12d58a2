# SPDX-License-Identifier: Apache-2.0
"""What a query acknowledges: what it has read, or what the user told it to skip. No session."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from broker_core.base.errors import ConfigError, TopicNotFoundError
from broker_core.client import Client
from tests.spark.brokers import Broker, numbers
from tests.spark.conftest import Start
from tests.spark.engine import Engine

NAME = "theirs"


def started(start: Start, topic: str, **options: str | int) -> Engine:
    """A query that does not say where to begin."""
    query = start(topic=topic)
    del query._options["startingOffsets"]
    query.restart(**options)
    return query


def used(cell: Broker, topic: str, read: int, sent: int) -> None:
    """Another application has subscribed and acknowledged some of what was sent."""
    cell.create(topic, 0)
    cell.subscribe(topic, NAME)
    cell.send_one_by_one(topic, numbers(0, sent))
    with Client(cell.service_url) as client, client.subscribe(topic, NAME, type="shared") as consumer:
        for _ in range(read):
            consumer.acknowledge(consumer.receive(60))


def test_a_new_query_begins_where_an_existing_subscription_stands(start: Start, cell: Broker, topic: str) -> None:
    """Its backlog was acknowledged unread, as a stream begins at the end of its topic by default."""
    used(cell, topic, 5, 20)
    query = started(start, topic, subscriptionName=NAME)
    assert query.drain() == list(range(5, 20))
    assert cell.backlog(topic, NAME) == 0


@pytest.mark.parametrize("options", [{"startingOffsets": "latest"}, {"startingTimestamp": "2100-01-01T00:00:00Z"}])
def test_a_start_that_would_skip_must_be_allowed(
    start: Start, cell: Broker, topic: str, options: dict[str, Any]
) -> None:
    """50 unread messages of another application were deleted. The error leaves the subscription as it was."""
    used(cell, topic, 5, 20)
    options |= {"startingOffsetsByTimestampStrategy": "latest", "subscriptionName": NAME}
    query = start(topic=topic, **options)
    with pytest.raises(ConfigError, match=rf'"{NAME}" of .* has not acknowledged what comes at .*"skipUnread", "true"'):
        query.trigger()
    assert cell.backlog(topic, NAME) == 15
    query.restart(skipUnread="true")
    assert query.drain() == []
    assert cell.backlog(topic, NAME) == 0
    cell.send_one_by_one(topic, numbers(20, 25))
    assert query.drain() == list(range(20, 25))


def test_a_start_before_the_place_of_a_subscription_skips_nothing(start: Start, cell: Broker, topic: str) -> None:
    """``earliest`` reads what is still there once more; so does ``latest`` where everything is acknowledged."""
    used(cell, topic, 5, 20)
    assert start(topic=topic, subscriptionName=NAME).drain() == list(range(20))
    cell.subscribe(topic, "done", "latest")
    query = start(topic=topic, subscriptionName="done", startingOffsets="latest")
    assert query.drain() == []
    cell.send_one_by_one(topic, numbers(20, 22))
    assert query.drain() == [20, 21]


def test_each_query_without_a_name_has_a_subscription_of_its_own(start: Start, cell: Broker, topic: str) -> None:
    """It is there from the first batch on, is found again by a restart, and holds what is not read."""
    cell.send_one_by_one(topic, numbers(0, 20))
    queries = [start(topic=topic, maxOffsetsPerTrigger=5) for _ in range(2)]
    assert [query.trigger() for query in queries] == [[0, 1, 2, 3, 4]] * 2
    names = cell.subscriptions(topic)
    assert len(names) == 2
    assert all(name.startswith("pulsarish-spark-") for name in names)
    for query in queries:
        query.restart()
    assert [query.drain() for query in queries] == [list(range(5, 20))] * 2
    assert sorted(cell.subscriptions(topic)) == sorted(names)
    assert [cell.backlog(topic, name) for name in names] == [0, 0]


def test_a_prefix_begins_the_names_of_subscriptions_that_are_generated(start: Start, cell: Broker, topic: str) -> None:
    """Each query has one of its own, and keeps it though the prefix is changed."""
    cell.send_one_by_one(topic, numbers(0, 10))
    queries = [start(topic=topic, subscriptionPrefix="nightly", maxOffsetsPerTrigger=5) for _ in range(2)]
    assert [query.trigger() for query in queries] == [[0, 1, 2, 3, 4]] * 2
    names = cell.subscriptions(topic)
    assert len(names) == 2
    assert all(name.startswith("nightly-") for name in names)
    for query in queries:
        query.restart(subscriptionPrefix="weekly")
    assert [query.drain() for query in queries] == [[5, 6, 7, 8, 9]] * 2
    assert sorted(cell.subscriptions(topic)) == sorted(names)


def test_where_a_subscription_begins_is_asked_only_if_it_is_not_there(start: Start, cell: Broker, topic: str) -> None:
    """A new one begins at the first message or behind the last; on one that is there a query begins where it stands."""
    used(cell, topic, 5, 20)
    for name, position, expected in [
        (NAME, "latest", range(5, 20)),
        ("new", "earliest", range(20)),
        ("newer", "latest", range(0)),
    ]:
        query = started(start, topic, subscriptionName=name, subscriptionInitialPosition=position)
        assert query.drain() == list(expected)
        assert cell.backlog(topic, name) == 0


def test_what_ends_before_the_first_batch_leaves_no_subscription(start: Start, cell: Broker, topic: str) -> None:
    """Whoever asks for the start again and again, as Spark does after crashes, would leave one each time."""
    cell.send(topic, numbers(0, 10))
    query = start(topic=topic)
    for _ in range(3):
        query._reader.initialOffset()
        query.restart()
    assert cell.subscriptions(topic) == []
    assert query.attempt() == list(range(10))
    query.restart()
    assert query.trigger() == list(range(10))
    assert len(cell.subscriptions(topic)) == 1


def test_a_first_batch_on_an_existing_subscription_is_replayed_though_its_start_has_moved(
    start: Start, cell: Broker, topic: str
) -> None:
    """The start that was noted counts, not the one that the option means now, which would skip what is noted."""
    cell.send_one_by_one(topic, numbers(0, 5))
    query = start(topic=topic, startingOffsets="latest", subscriptionName="mine")
    assert query.trigger() == []
    query.restart()
    cell.send_one_by_one(topic, numbers(5, 10))
    assert query.attempt() == [5, 6, 7, 8, 9]
    cell.send_one_by_one(topic, numbers(10, 15))
    query.restart()
    assert query.drain() == [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]


def test_a_query_that_is_given_another_name_goes_on_and_says_what_stays(
    start: Start, cell: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The former subscription keeps data as long as it is there."""
    cell.send_one_by_one(topic, numbers(0, 10))
    query = start(topic=topic, subscriptionName="old", maxOffsetsPerTrigger=5)
    query.trigger()
    query.restart(subscriptionName="new")
    with caplog.at_level(logging.WARNING):
        assert query.drain() == [5, 6, 7, 8, 9]
    assert caplog.text.count('was made with subscription "old"; "new" begins at') == 1
    assert sorted(cell.subscriptions(topic)) == ["new", "old"]
    assert cell.backlog(topic, "new") == 0


@pytest.mark.parametrize("partitions", [0, 2])
def test_a_deleted_topic_does_not_come_back_by_being_read(
    start: Start, cell: Broker, topic: str, partitions: int
) -> None:
    """A partitioned one came back as a plain one within a second. One that is made again is read from its beginning."""
    cell.create(topic, partitions)
    cell.send(topic, numbers(0, 10))
    query = start(topic=topic, failOnDataLoss="false")
    assert query.drain() == list(range(10))
    cell.delete(topic)
    for _ in range(3):
        assert query.drain() == []
        query.restart()
    assert not cell.topic_exists(topic)
    cell.create(topic, partitions)
    cell.send(topic, numbers(10, 20))
    assert query.drain() == list(range(10, 20))


def test_a_stream_waits_for_its_topic(start: Start, cell: Broker, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    """It does not make it, says so once, and reads from the first message whatever it was told to begin with."""
    with caplog.at_level(logging.WARNING):
        query = start(topic=topic, startingOffsets="latest")
        assert query.drain() == []
        assert query.drain() == []
    assert caplog.text.count("the stream waits for a topic that does not exist") == 1
    assert not cell.topic_exists(topic)
    with pytest.raises(TopicNotFoundError), Client(cell.service_url) as client:
        client.last_entry(topic)
    cell.create(topic, 2)
    cell.send(topic, numbers(0, 10))
    assert query.drain() == list(range(10))


def test_a_stream_that_begins_at_the_end_of_what_was_deleted_reads_what_comes(
    start: Start, cell: Broker, topic: str
) -> None:
    """Apache Pulsar shows no last message there, so the end is no place in a ledger at first sight."""
    cell.send(topic, numbers(0, 10))
    assert start(topic=topic).drain() == list(range(10))
    cell.unload(topic)
    query = start(topic=topic, startingOffsets="latest")
    assert query.drain() == []
    assert query.end is not None
    assert "-1:0" not in str(query.end)
    cell.unload(topic)
    query.restart()
    cell.send(topic, numbers(10, 20))
    assert query.drain() == list(range(10, 20))
