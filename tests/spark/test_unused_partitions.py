# SPDX-License-Identifier: Apache-2.0
"""Partitions of a topic that nobody has used yet, on every kind of broker. No session.

Apache Pulsar makes a partition when it is first used; until then the topic names it, and every question about it is
answered with "topic not found". To readers it is empty. On our broker each is there from the beginning.
"""

from __future__ import annotations

import time
from typing import Any, Final

import pyarrow as pa
import pytest

import pulsarish_spark
from broker_core.base.errors import PulsarishError
from broker_core.client import Client
from pulsarish_spark.options import Side, write_options
from pulsarish_spark.progress.probe import LagProbe
from pulsarish_spark.sink.writer import write_rows
from tests.spark.batches import batch_reader, read_values
from tests.spark.brokers import Broker, eventually, numbers
from tests.spark.conftest import NAME, ON_APACHE, Start

PARTITIONS: Final = 3


def unused(cell: Broker, topic: str, used: int = 1) -> list[str]:
    """Make a topic of which the first ``used`` partitions were used, with a message each, from 0 on; its partitions."""
    cell.create(topic, PARTITIONS)
    partitions = [f"{topic}-partition-{number}" for number in range(PARTITIONS)]
    for number, name in enumerate(partitions):
        if number < used:
            cell.send_one_by_one(name, [str(number)])
        else:
            delete(cell, name)
    return partitions


def delete(cell: Broker, partition: str) -> None:
    """Delete one partition and leave its topic; our broker never has a topic without some of its partitions."""
    if cell.kind != "pulsarish":
        cell.admin("DELETE", f"persistent/public/default/{partition}?force=true")
        eventually(lambda: not is_made(cell, partition), f"{partition} is gone")


def is_made(cell: Broker, partition: str) -> bool:
    found = cell.admin("GET", "persistent/public/default")
    return f"persistent://public/default/{partition}" in found


# -- batch reads


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0]),
        ({"endingOffsets": "latest"}, [0]),
        ({"startingTimestamp": "-1h", "startingOffsetsByTimestampStrategy": "latest"}, [0]),
        ({"startingOffsets": "earliest", "endingTimestamp": "-1h"}, []),
        ({"minPartitions": 7}, [0]),
    ],
)
def test_a_batch_reads_no_rows_of_them(
    cell: Broker, topic: str, options: dict[str, str | int], expected: list[int]
) -> None:
    """It was a TopicNotFoundError. Nothing is made by looking."""
    partitions = unused(cell, topic)
    assert read_values(cell, topic, **options) == expected
    if cell.kind != "pulsarish":
        assert [is_made(cell, each) for each in partitions] == [True, False, False]


def test_a_topic_that_nobody_has_used_has_no_rows(cell: Broker, topic: str) -> None:
    """Not one of its partitions is there."""
    unused(cell, topic, used=0)
    assert read_values(cell, topic) == []


def test_a_batch_that_begins_at_an_index_or_a_subscription_finds_them_empty(cell: Broker, topic: str) -> None:
    """Index 0 is the next one to come there, and whoever has acknowledged nothing begins at the beginning."""
    unused(cell, topic)
    assert read_values(cell, topic, startingOffsets=f'{{"{topic}":{{"0":"earliest","1":0,"2":0}}}}') == [0]


@pytest.mark.parametrize(
    "options",
    [{}, {"startingTimestamp": "-1h", "startingOffsetsByTimestampStrategy": "latest"}, {"endingOffsets": "latest"}],
)
def test_a_planned_batch_reads_what_has_come_to_them(cell: Broker, topic: str, options: dict[str, str]) -> None:
    """Its end is that of the moment in which it is read, as everywhere."""
    partitions = unused(cell, topic)
    reader = batch_reader(cell, topic, **options)
    tasks = reader.partitions()
    cell.send_one_by_one(partitions[2], ["7"])
    values = [batch.column("value").to_pylist() for task in tasks for batch in reader.read(task)]
    assert sorted(int(value) for found in values for value in found) == [0, 7]


@pytest.mark.parametrize("cell", ON_APACHE, indirect=True)
def test_one_that_is_deleted_under_a_planned_batch_is_told(cell: Broker, topic: str) -> None:
    """It had messages when the batch was planned, so it is not one that nobody has used."""
    partitions = unused(cell, topic, used=2)
    reader = batch_reader(cell, topic)
    tasks = reader.partitions()
    delete(cell, partitions[1])
    with pytest.raises(PulsarishError, match="partition-1"):
        _ = [batch for task in tasks for batch in reader.read(task)]
    assert not is_made(cell, partitions[1])


# -- streams by positions


@pytest.mark.parametrize("named", [{}, {"subscriptionName": "mine"}])
@pytest.mark.parametrize("limit", [{}, {"maxOffsetsPerTrigger": 2}, {"maxBytesPerTrigger": 100}])
def test_a_stream_reads_all_that_comes_to_them(
    start: Start, cell: Broker, topic: str, named: dict[str, str], limit: dict[str, int]
) -> None:
    """From their first message on, whether the query runs or is down when it comes; each has one subscription."""
    partitions = unused(cell, topic)
    query = start(topic=topic, **named, **limit)
    assert query.drain() == [0]
    assert [len(cell.subscriptions(each)) for each in partitions] == [1, 1, 1]
    cell.send_one_by_one(partitions[1], numbers(10, 15))
    assert query.drain() == [10, 11, 12, 13, 14]
    query.stop()
    cell.send_one_by_one(partitions[2], numbers(20, 25))
    cell.send_one_by_one(partitions[1], ["15"])
    query.restart()
    assert query.drain() == [15, 20, 21, 22, 23, 24]
    assert query.drain() == []
    assert [len(cell.subscriptions(each)) for each in partitions] == [1, 1, 1]


@pytest.mark.parametrize("begin", ["latest", "time"])
@pytest.mark.parametrize("named", [{}, {"subscriptionName": "mine"}])
def test_a_stream_from_now_on_reads_all_of_them(
    start: Start, cell: Broker, topic: str, begin: str, named: dict[str, str]
) -> None:
    """Whatever is there came behind the start of the query, also before its first batch."""
    partitions = unused(cell, topic)
    options = {"startingOffsets": "latest"}
    if begin == "time":
        options = {
            "startingTimestamp": str(int(time.time() * 1000) + 1),
            "startingOffsetsByTimestampStrategy": "latest",
        }
    query = start(topic=topic, **options, **named)
    query.initial()
    cell.send_one_by_one(partitions[1], numbers(10, 15))
    assert query.drain() == [10, 11, 12, 13, 14]
    cell.send_one_by_one(partitions[2], numbers(20, 25))
    cell.send_one_by_one(partitions[1], ["15"])
    assert query.drain() == [15, 20, 21, 22, 23, 24]


def test_a_stream_that_ends_with_what_is_there_ends(start: Start, cell: Broker, topic: str) -> None:
    """AvailableNow, over a topic with such partitions, and over one that has no others."""
    partitions = unused(cell, topic, used=0)
    query = start(topic=topic)
    query.bound_to_now()
    assert query.drain() == []
    cell.send_one_by_one(partitions[1], ["1"])
    query.restart()
    query.bound_to_now()
    assert query.drain() == [1]


@pytest.mark.parametrize("cell", ON_APACHE, indirect=True)
@pytest.mark.parametrize("runs", [True, False])
def test_one_that_was_read_and_deleted_is_told(start: Start, cell: Broker, topic: str, runs: bool) -> None:
    """It is not taken for one that nobody has used, and is not made."""
    partitions = unused(cell, topic, used=2)
    query = start(topic=topic)
    assert query.drain() == [0, 1]
    if not runs:
        query.stop()
    delete(cell, partitions[1])
    if not runs:
        query.restart()
    with pytest.raises(PulsarishError, match="partition-1"):
        query.trigger()
    assert not is_made(cell, partitions[1])


@pytest.mark.parametrize("cell", ON_APACHE, indirect=True)
def test_one_that_goes_before_the_first_batch_is_told(start: Start, cell: Broker, topic: str) -> None:
    """The query has seen messages of it when it looked for its start."""
    partitions = unused(cell, topic, used=2)
    query = start(topic=topic)
    query.initial()
    delete(cell, partitions[1])
    with pytest.raises(PulsarishError, match="partition-1"):
        query.trigger()
    assert not is_made(cell, partitions[1])


def test_added_partitions_that_nobody_has_used_are_read(start: Start, cell: Broker, topic: str) -> None:
    """They came to the topic under the checkpoint, while the query was down."""
    partitions = unused(cell, topic)
    query = start(topic=topic, partitionDiscoveryIntervalMs=1)
    assert query.drain() == [0]
    cell.grow(topic, PARTITIONS + 1)
    added = f"{topic}-partition-{PARTITIONS}"
    query.stop()
    delete(cell, added)
    query.restart()
    assert query.drain() == []
    cell.send_one_by_one(added, ["9"])
    cell.send_one_by_one(partitions[2], ["8"])
    assert query.drain() == [8, 9]


# -- queues


@pytest.mark.parametrize("begin", ["earliest", "latest"])
@pytest.mark.parametrize("guarantee", ["commit", "claim"])
def test_a_queue_takes_all_that_comes_to_them(
    share: Start, cell: Broker, topic: str, begin: str, guarantee: str
) -> None:
    """Its consumers make them, as any consumers do."""
    partitions = unused(cell, topic)
    query = share(topic=topic, startingOffsets=begin, queueGuarantee=guarantee)
    assert query.drain() == ([0] if begin == "earliest" else [])
    for number, each in enumerate(partitions):
        cell.send_one_by_one(each, [str(10 + number)])
    assert query.drain() == [10, 11, 12]
    assert all(NAME in cell.subscriptions(each) for each in partitions)


@pytest.mark.parametrize("cell", ON_APACHE, indirect=True)
def test_one_that_a_queue_has_read_and_that_was_deleted_is_told(share: Start, cell: Broker, topic: str) -> None:
    """And it is not made, not by a query that goes on over losses either."""
    partitions = unused(cell, topic, used=2)
    query = share(topic=topic)
    query.drain()
    cell.send_one_by_one(partitions[1], ["11"])
    assert query.drain() == [11]
    query.stop()
    delete(cell, partitions[1])
    query.restart(failOnDataLoss="false")
    with pytest.raises(PulsarishError, match="partition-1"):
        query.trigger()
    assert not is_made(cell, partitions[1])


# -- looking, and writing


@pytest.mark.parametrize(
    "options",
    [{}, {"subscriptionName": "mine"}, {"subscriptionName": "mine", "subscriptionType": "Shared"}, None],
)
def test_a_dry_run_shows_them_empty(cell: Broker, topic: str, options: dict[str, str] | None) -> None:
    """Of each kind of read, with an admin URL and without; it makes nothing."""
    partitions = unused(cell, topic)
    is_stream = options is not None
    for admin in ({}, {"admin.url": cell.http_url}):
        given = {"service.url": cell.service_url, **(options or {}), **admin}
        if "subscriptionType" not in given:
            given["startingOffsets"] = "earliest"
        found = pulsarish_spark.describe(topic, stream=is_stream, **given)
        assert len(found.partitions) == PARTITIONS
        if "subscriptionType" not in given:
            assert [each.rows for each in found.partitions] == [1, 0, 0]
    if cell.kind != "pulsarish":
        assert [is_made(cell, each) for each in partitions] == [True, False, False]


def test_the_lag_of_what_has_come_to_them_is_told(start: Start, cell: Broker, topic: str) -> None:
    """The query has not read of them yet."""
    partitions = unused(cell, topic)
    query = start(topic=topic, startingOffsets="latest")
    for address in ({}, {"admin.url": cell.http_url}):
        options: dict[str, Any] = {"service.url": cell.service_url, **address}
        probe = LagProbe(**options)
        query.drain()
        assert [each.entries for each in probe(query.progress()).values()] == [0, 0, 0]
    cell.send_one_by_one(partitions[1], numbers(10, 15))
    assert query.trigger() == [10, 11, 12, 13, 14]
    assert [each.entries for each in probe(query.progress()).values()] == [0, 0, 0]


def test_rows_are_written_to_them(cell: Broker, topic: str) -> None:
    """A producer makes the partitions that it sends to."""
    unused(cell, topic)
    values = numbers(10, 40)
    rows = pa.record_batch({"key": values, "value": values})
    write_rows(iter([rows]), write_options({"service.url": cell.service_url, "topic": topic}, Side.BATCH_WRITE, {}))
    assert read_values(cell, topic) == [0, *range(10, 40)]


def test_what_nobody_has_used_is_told_apart_from_what_is_not_of_the_topic(cell: Broker, topic: str) -> None:
    """A partition beyond those of the topic is not found, and neither is one of no topic."""
    unused(cell, topic)
    with Client(cell.service_url) as client:
        beyond = [f"{topic}-partition-{PARTITIONS}", f"{topic}-none-partition-0"]
        for name in beyond:
            with pytest.raises(PulsarishError, match="does not exist"):
                client.last_entries([name], unmade_ok=[name])
