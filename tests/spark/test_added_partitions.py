# SPDX-License-Identifier: Apache-2.0
"""Partitions that were added to a topic under a checkpoint, while an administrator moves their subscriptions.

What they have had is the query's to read, and a batch that has some of it has the same whenever it is run.
"""

from __future__ import annotations

import pytest

from pulsarish_spark.losses.loss import DataLossError
from tests.spark.brokers import Broker, numbers
from tests.spark.conftest import Start
from tests.spark.engine import Engine

NAME = "reading"


def begun(start: Start, cell: Broker, topic: str) -> tuple[Engine, str]:
    """A query that has read 0 to 4 of a topic with one partition, and a second one that it has not seen."""
    cell.create(topic, 1)
    cell.send_one_by_one(topic, numbers(0, 5))
    query = start(topic=topic, subscriptionName=NAME, partitionDiscoveryIntervalMs=1)
    assert query.drain() == [0, 1, 2, 3, 4]
    cell.grow(topic, 2)
    return query, f"{topic}-partition-1"


def delete_all(cell: Broker, added: str) -> None:
    """Pass over all that a partition has, and delete it but for a message behind it, 10."""
    cell.unload(added)
    cell.skip_all(added, NAME)
    cell.send_one_by_one(added, ["10"])
    cell.drop_acknowledged(added)


def test_a_replayed_batch_has_what_it_had_of_added_partitions(start: Start, cell: Broker, topic: str) -> None:
    """Its subscription was moved between the batch and its replay; the messages are still there."""
    query, added = begun(start, cell, topic)
    cell.send_one_by_one(added, numbers(5, 10))
    assert query.attempt() == [5, 6, 7, 8, 9]
    query.stop()
    cell.skip(added, NAME, 3)
    query.restart()
    assert query.trigger() == [5, 6, 7, 8, 9]
    assert query.drain() == []


def test_rows_of_added_partitions_that_went_before_a_replay_are_told(start: Start, cell: Broker, topic: str) -> None:
    """The batch would have none of them, and be committed."""
    query, added = begun(start, cell, topic)
    cell.send_one_by_one(added, numbers(5, 10))
    assert query.attempt() == [5, 6, 7, 8, 9]
    query.stop()
    delete_all(cell, added)
    query.restart()
    with pytest.raises(DataLossError, match=rf"{topic}\[1\] should go on at .* lost"):
        query.trigger()
    query.restart(failOnDataLoss="false")
    assert query.drain() == [10]


def test_what_was_passed_over_of_added_partitions_is_told(start: Start, cell: Broker, topic: str) -> None:
    """It was added while the query was down, and its subscription does not stand at the beginning any more."""
    query, added = begun(start, cell, topic)
    query.stop()
    subscribe(cell, added)
    cell.send_one_by_one(added, numbers(5, 10))
    cell.skip(added, NAME, 3)
    query.restart()
    count = "3 messages" if cell.tells_indexes else "an unknown number of messages"
    with pytest.raises(DataLossError, match=rf'{topic}\[1\] was added, but .* "{NAME}" stands after .*: {count} lost'):
        query.trigger()
    query.restart(failOnDataLoss="false")
    assert query.drain() == [8, 9]


def test_what_was_deleted_of_added_partitions_is_told(start: Start, cell: Broker, topic: str) -> None:
    """The same where nothing of it is left: the subscription tells it where no index does."""
    query, added = begun(start, cell, topic)
    query.stop()
    subscribe(cell, added)
    cell.send_one_by_one(added, numbers(5, 10))
    delete_all(cell, added)
    query.restart()
    with pytest.raises(DataLossError, match=rf"{topic}\[1\] was added, but .* lost"):
        query.trigger()
    query.restart(failOnDataLoss="false")
    assert query.drain() == [10]


def subscribe(cell: Broker, added: str) -> None:
    """Make the query's subscription on a partition, where growing the topic has not made it."""
    if NAME not in cell.subscriptions(added):
        cell.subscribe(added, NAME)
