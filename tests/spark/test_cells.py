# SPDX-License-Identifier: Apache-2.0
"""One query on every kind of broker while an administrator does what leaves all messages in their place. No session."""

from __future__ import annotations

import logging
from typing import Final

import pytest

from pulsarish_spark.losses.loss import DataLossError
from tests.spark.brokers import Broker, numbers
from tests.spark.conftest import Start

NAME: Final = "mine"


def test_a_topic_that_is_unloaded_again_and_again_is_read_whole(start: Start, cell: Broker, topic: str) -> None:
    """Each time messages go on in another ledger; once with a backlog, once without, once while the query is down."""
    cell.send_one_by_one(topic, numbers(0, 10))
    query = start(topic=topic)
    assert query.trigger() == list(range(10))
    cell.send(topic, numbers(10, 20))
    cell.unload(topic)
    assert query.drain() == list(range(10, 20))
    cell.unload(topic)
    cell.send_one_by_one(topic, numbers(20, 30))
    assert query.drain() == list(range(20, 30))
    cell.send(topic, numbers(30, 40))
    query.restart()
    cell.unload(topic)
    cell.send(topic, numbers(40, 50))
    assert query.drain() == list(range(30, 50))


def test_partitions_that_are_added_are_read_from_their_first_message(start: Start, cell: Broker, topic: str) -> None:
    """After a restart, which looks for them."""
    cell.create(topic, 2)
    cell.send(topic, numbers(0, 10))
    query = start(topic=topic)
    assert query.drain() == list(range(10))
    cell.grow(topic, 3)
    cell.send(topic, numbers(10, 40))
    query.restart()
    assert query.drain() == list(range(10, 40))


def test_what_was_deleted_of_an_added_one_before_it_was_seen_is_a_loss(
    start: Start, cell: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its messages came after the query had looked for partitions, and nothing kept them until it looked again. Without
    indexes a broker cannot tell that there was anything. One that is added beside others by a new choice of partitions,
    or with a new topic, has lost nothing that this query was to read."""
    cell.create(topic, 2)
    cell.send(topic, numbers(0, 10))
    query = start(topic=topic, subscriptionName=NAME)
    assert query.drain() == list(range(10))
    cell.grow(topic, 3)
    added = f"{topic}-partition-2"
    cell.unsubscribe(added, NAME)
    cell.subscribe(topic, "keeper")
    cell.send_one_by_one(added, numbers(10, 15))
    cell.unload(added)
    cell.send_one_by_one(added, numbers(15, 17))
    cell.skip(added, "keeper", 5)
    cell.drop_acknowledged(added)
    query.restart()
    if cell.tells_indexes:
        told = rf"{topic}\[2\] was added, but the first message still there is \d+:0@5: 5 messages lost"
        for _ in range(2):
            with pytest.raises(DataLossError, match=told):
                query.trigger()
            query.restart()
        query.restart(failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert query.drain() == [15, 16]
    assert caplog.text.count("was added, but") == cell.tells_indexes


def test_what_a_query_has_read_can_be_deleted_behind_it(start: Start, cell: Broker, topic: str) -> None:
    """Its acknowledgements are what lets the broker delete; those of the last batch come without another one."""
    cell.send_one_by_one(topic, numbers(0, 10))
    query = start(topic=topic)
    assert query.drain() == list(range(10))
    cell.unload(topic)
    cell.send_one_by_one(topic, numbers(10, 20))
    cell.drop_acknowledged(topic)
    assert query.drain() == list(range(10, 20))
