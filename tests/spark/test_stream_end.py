# SPDX-License-Identifier: Apache-2.0
"""Streams that end at an id, an index or a time, on three brokers. No session."""

from __future__ import annotations

import json

import pytest

from broker_core.base.errors import ConfigError
from broker_core.client import Client
from pulsarish_spark.progress import PartitionLag, lag
from tests.spark.brokers import Broker, numbers
from tests.spark.conftest import Start
from tests.spark.test_starting_points import sent_in_two_moments


def message_ids(cell: Broker, topic: str) -> list[str]:
    """The id of each message of a plain topic."""
    with Client(cell.service_url) as client, client.create_reader(topic) as reader:
        found = []
        while reader.has_message_available():
            found.append(str(reader.read_next(60).message_id))
        return found


def at(topic: str, place: object) -> str:
    """A map of offsets with one partition."""
    return json.dumps({topic: {"0": place}})


def test_a_stream_ends_at_an_id_that_is_there_or_comes(start: Start, cell: Broker, topic: str) -> None:
    """Over batches and a restart; what comes behind is not read, and stays in the backlog."""
    cell.create(topic, 0)
    cell.send_one_by_one(topic, numbers(0, 5))
    ledger, entry, *_ = message_ids(cell, topic)[-1].split(":")
    query = start(topic=topic, endingOffsets=at(topic, f"{ledger}:{int(entry) + 4}"), maxOffsetsPerTrigger=4)
    assert query.drain() == [0, 1, 2, 3, 4]
    cell.send_one_by_one(topic, numbers(5, 20))
    assert query.trigger() == [5, 6, 7]
    assert query.trigger() is None
    assert [*lag(query.progress()).values()] == [PartitionLag(0, 0, 0, 0.0)]
    query.restart()
    assert query.trigger() is None
    cell.send_one_by_one(topic, numbers(20, 22))
    assert query.trigger() is None
    (subscription,) = cell.subscriptions(topic)
    assert cell.backlog(topic, subscription) == 14


def test_a_stream_may_end_inside_an_entry(start: Start, cell: Broker, topic: str) -> None:
    """At a message of a batch; the rest of the entry is neither read nor acknowledged."""
    cell.create(topic, 0)
    cell.send(topic, numbers(0, 12), batching_max_messages=6)
    query = start(topic=topic, endingOffsets=at(topic, message_ids(cell, topic)[9]))
    assert query.drain() == list(range(9))
    query.restart()
    assert query.trigger() is None


def test_a_stream_ends_at_a_time(start: Start, cell: Broker, topic: str) -> None:
    """Before the first message as young as that, also if it has come only while the query runs."""
    cut = sent_in_two_moments(cell, topic)
    assert start(topic=topic, endingTimestamp=cut).drain() == [0, 1, 2, 3, 4]
    assert start(topic=topic, endingOffsetsByTimestamp=at(topic, cut)).drain() == [0, 1, 2, 3, 4]
    later = start(topic=topic, endingTimestamp=cut + 3_600_000)
    assert later.drain() == list(range(10))
    cell.send_one_by_one(topic, numbers(10, 12))
    assert later.drain() == [10, 11]


def test_a_stream_ends_at_an_index(start: Start, cell: Broker, topic: str) -> None:
    """That is yet to come; where the broker tells no indexes, the error says so as soon as one is needed."""
    cell.create(topic, 0)
    query = start(topic=topic, endingOffsets=at(topic, 7))
    assert query.drain() == []
    cell.send(topic, numbers(0, 5), batching_max_messages=5)
    if not cell.tells_indexes:
        with pytest.raises(ConfigError, match="is message index 7, but the broker does not tell indexes; give an id"):
            query.trigger()
        return
    assert query.drain() == [0, 1, 2, 3, 4]
    cell.send(topic, numbers(5, 10), batching_max_messages=5)
    assert query.drain() == [5, 6]
    query.restart()
    assert query.drain() == []


def test_partitions_without_an_end_go_on(start: Start, cell: Broker, topic: str) -> None:
    """Only what is named ends."""
    cell.create(topic, 2)
    for partition in (0, 1):
        cell.send_one_by_one(f"{topic}-partition-{partition}", numbers(100 * partition, 100 * partition + 5))
    end = message_ids(cell, f"{topic}-partition-0")[3]
    query = start(topic=topic, endingOffsets=at(topic, end))
    assert query.drain() == [0, 1, 2, 100, 101, 102, 103, 104]
    for partition in (0, 1):
        cell.send_one_by_one(f"{topic}-partition-{partition}", numbers(100 * partition + 5, 100 * partition + 7))
    assert query.drain() == [105, 106]


def test_available_now_ends_where_the_stream_ends(start: Start, cell: Broker, topic: str) -> None:
    """It reads no further than either end."""
    cell.create(topic, 0)
    cell.send_one_by_one(topic, numbers(0, 10))
    query = start(topic=topic, endingOffsets=at(topic, message_ids(cell, topic)[6]), maxOffsetsPerTrigger=4)
    query._reader.prepareForTriggerAvailableNow()
    assert [query.trigger(), query.trigger(), query.trigger()] == [[0, 1, 2, 3], [4, 5], None]


def test_an_end_before_the_start_is_an_error(start: Start, cell: Broker, topic: str) -> None:
    """A stream begins at latest unless it is told where, which is behind any end that is there already."""
    cell.create(topic, 0)
    cell.send_one_by_one(topic, numbers(0, 10))
    query = start(topic=topic, startingOffsets="latest", endingOffsets=at(topic, message_ids(cell, topic)[6]))
    with pytest.raises(ConfigError, match=r"would be read from .* back to .*; swap the starting and the ending option"):
        query.trigger()
    assert cell.subscriptions(topic) == []


def test_an_end_of_what_is_not_read_is_an_error_over_a_restart_too(start: Start, cell: Broker, topic: str) -> None:
    """A name that is spelled wrong would be no end. A topic of the checkpoint that was deleted is not meant."""
    other = f"{topic}-other"
    for each in (topic, other):
        cell.create(each, 0)
    cell.send_one_by_one(topic, numbers(0, 5))
    cell.send_one_by_one(other, numbers(5, 8))
    query = start(topics=f"{topic},{other}", endingOffsets=at(other, message_ids(cell, other)[2]))
    assert query.drain() == [0, 1, 2, 3, 4, 5, 6]
    query.restart(endingOffsets=at("elsewhere", "2100-01-01T00:00:00Z"))
    with pytest.raises(
        ConfigError, match=r"option endingOffsets names topic .*elsewhere, which this query does not read"
    ):
        query.trigger()
    query.restart(endingOffsets=json.dumps({topic: {"7": "2100-01-01T00:00:00Z"}}))
    with pytest.raises(ConfigError, match=f"option endingOffsets names partition 7 of .*{topic}, which is not read"):
        query.trigger()
    query.restart(endingOffsets=at(other, message_ids(cell, other)[2]), failOnDataLoss="false")
    cell.delete(other)
    cell.send_one_by_one(topic, numbers(8, 10))
    assert query.drain() == [8, 9]
