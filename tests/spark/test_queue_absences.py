# SPDX-License-Identifier: Apache-2.0
"""What happens to the topics and subscriptions of a query in queue mode while it is away, or has no work."""

from __future__ import annotations

import pytest

from broker_core.client import Client
from pulsarish_spark import DataLossError
from tests.spark.brokers import Broker, eventually, numbers
from tests.spark.conftest import NAME, Start, restarted


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared"])
@pytest.mark.parametrize("guarantee", ["commit", "claim"])
def test_a_noted_batch_of_a_topic_that_was_deleted_is_told(
    share: Start, cell: Broker, topic: str, guarantee: str, kind: str
) -> None:
    """The replay has fewer rows than the batch had, whatever is there of other topics."""
    other = cell.create(f"{topic}-other", 0)
    cell.create(topic, 0)
    for name in (topic, other):
        cell.send_one_by_one(name, numbers(0, 5))
    query = share(
        topics=f"{topic},{other}", queueGuarantee=guarantee, subscriptionType=kind, startingOffsets="earliest"
    )
    assert sorted(query.attempt() or []) == sorted([*range(5)] * 2)
    query.stop()
    cell.delete(topic)
    with pytest.raises(DataLossError, match=r"the entries \d+:0-4 .*partition .*\[0\]"):
        restarted(query).trigger()
    assert restarted(query, failOnDataLoss="false").trigger() == list(range(5))


def test_a_noted_batch_of_a_topic_that_is_not_named_any_more_is_told(share: Start, cell: Broker, topic: str) -> None:
    """A batch that is run again has the same rows, or the query says that it has not."""
    other = cell.create(f"{topic}-other", 0)
    cell.create(topic, 0)
    for name in (topic, other):
        cell.send_one_by_one(name, numbers(0, 5))
    query = share(topics=f"{topic},{other}")
    assert sorted(query.attempt() or []) == sorted([*range(5)] * 2)
    with pytest.raises(DataLossError, match=r"the entries \d+:0-4 "):
        restarted(query, topics=other).trigger()
    assert sorted(restarted(query, topics=f"{topic},{other}").drain()) == sorted([*range(5)] * 2)


def test_a_subscription_that_of_one_part_of_a_topic_that_is_deleted_is_told(
    share: Start, cell: Broker, topic: str
) -> None:
    """While the query is away: a new one there begins with messages that were processed."""
    cell.create(topic, 2)
    cell.send_one_by_one(topic, numbers(0, 20))
    query = share(topic=topic)
    assert query.drain() == list(range(20))
    query.stop()
    cell.unsubscribe(f"{topic}-partition-1", NAME)
    with pytest.raises(DataLossError, match=r"subscription .* of partition .*\[1\] was deleted"):
        restarted(query).drain()
    cell.send_one_by_one(topic, numbers(20, 30))
    assert set(restarted(query, failOnDataLoss="false").drain()) >= set(range(20, 30))


def test_messages_of_before_are_processed_again_by_a_new_checkpoint(share: Start, cell: Broker, topic: str) -> None:
    """When the subscription was moved back; the old one takes its last batch for processed."""
    cell.create(topic, 0)
    cell.send_one_by_one(topic, numbers(0, 60))
    query = share(topic=topic, maxOffsetsPerTrigger=20)
    assert query.drain() == list(range(60))
    query.stop()
    cell.rewind(topic, NAME)
    assert restarted(query).drain() == list(range(40))
    query.stop()
    cell.rewind(topic, NAME)
    assert share(topic=topic).drain() == list(range(60))


@pytest.mark.parametrize("limit", [2**31, 2**63 - 1])
def test_a_limit_that_is_no_limit_is_taken(share: Start, cell: Broker, topic: str, limit: int) -> None:
    """Spark's largest number means none, and brokers count permits in 32 bits."""
    cell.create(topic, 0)
    cell.send(topic, numbers(0, 100))
    assert share(topic=topic, maxOffsetsPerTrigger=limit).drain() == list(range(100))


def test_what_is_held_follows_the_subscription_while_a_query_has_no_work(
    share: Start, cell: Broker, topic: str
) -> None:
    """Others process everything, so nothing is left to be kept."""
    cell.create(topic, 0)
    query = share(topic=topic, queueGuarantee="claim", availableNowQuietMs=100, priorityLevel=1)
    assert query.drain() == []
    with Client(cell.service_url) as client, client.subscribe(topic, NAME, type="shared") as other:
        cell.send_one_by_one(topic, numbers(0, 20))
        for _ in range(20):
            other.acknowledge(other.receive(60), wait=True)

        def is_free() -> bool:
            assert query.trigger() is None
            return cell.backlog(topic, f"{NAME}.spark-hold") == 0

        eventually(is_free, "the hold subscription keeps nothing")
