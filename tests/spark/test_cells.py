# SPDX-License-Identifier: Apache-2.0
"""One query on every kind of broker while an administrator does what leaves all messages in their place. No session."""

from __future__ import annotations

from tests.spark.brokers import Broker, numbers
from tests.spark.conftest import Start


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


def test_what_a_query_has_read_can_be_deleted_behind_it(start: Start, cell: Broker, topic: str) -> None:
    """Its acknowledgements are what lets the broker delete; those of the last batch come without another one."""
    cell.send_one_by_one(topic, numbers(0, 10))
    query = start(topic=topic)
    assert query.drain() == list(range(10))
    cell.unload(topic)
    cell.send_one_by_one(topic, numbers(10, 20))
    cell.drop_acknowledged(topic)
    assert query.drain() == list(range(10, 20))
