# SPDX-License-Identifier: Apache-2.0
"""A query in queue mode in company: another query, other priorities, and keys in order with all of them."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import pairwise

import pytest

from broker_core.client import Client
from tests.spark.brokers import Broker, eventually, numbers
from tests.spark.conftest import NAME, Start


def test_two_queries_that_claim_share_one_subscription(share: Start, cell: Broker, topic: str) -> None:
    """Each message is a row of one of them, over the death of both in a batch."""
    cell.create(topic, 0)
    names = ("first", "second")
    queries = [share(topic=topic, queueGuarantee="claim", consumerName=name, maxOffsetsPerTrigger=50) for name in names]
    assert [query.drain() for query in queries] == [[], []]
    cell.send_one_by_one(topic, numbers(0, 600))
    seen = [query.trigger() or [] for query in queries]
    begun = [query.attempt() for query in queries]
    for query, batch in zip(queries, begun, strict=True):
        query.restart()
        query.bound_to_now()
        assert query.trigger() == batch
    for query, values in zip(queries, seen, strict=True):
        assert values
        values += query.drain()
    assert sorted(value for values in [*seen, *filter(None, begun)] for value in values) == list(range(600))
    assert cell.backlog(topic, NAME) == 0


def test_a_query_of_lower_priority_gets_what_others_have_no_room_for(share: Start, cell: Broker, topic: str) -> None:
    """As long as a consumer of priority 0 has permits, the query with ``priorityLevel`` 1 is given nothing."""
    cell.create(topic, 0)
    query = share(topic=topic, priorityLevel=1)
    assert query.drain() == []
    with Client(cell.service_url) as client:
        with client.subscribe(topic, NAME, type="shared", receiver_queue_size=100) as other:
            cell.send_one_by_one(topic, numbers(0, 20))
            for number in range(20):
                message = other.receive(60)
                assert int(message.value or b"") == number
                other.acknowledge(message, wait=True)
            assert query.trigger() is None
            cell.send_one_by_one(topic, numbers(20, 400))
            theirs = [int(other.receive(60).value or b"") for _ in range(50)]
            ours: list[int] = []

            def has_some() -> bool:
                ours.extend(query.trigger() or [])
                return bool(ours)

            eventually(has_some, "the query gets the rest")
        ours += query.drain()
    assert set(theirs) <= set(ours)  # Nobody has acknowledged them, and the other consumer has left.
    assert sorted(ours) == list(range(20, 400))


@pytest.mark.parametrize("guarantee", ["commit", "claim"])
def test_keys_stay_in_order_over_deaths_and_neighbours(
    share: Start, cell: Broker, topic: str, guarantee: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A random history of sends, batches and replays, with several tasks a batch; a neighbour comes and goes."""
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    monkeypatch.setattr("pulsarish_spark.queue.dividing.TASK_ENTRIES_MIN", 10)
    source = random.Random(11)
    cell.create(topic, 2)
    options: dict[str, str | int] = {"topic": topic, "subscriptionType": "Key_Shared", "queueGuarantee": guarantee}
    query = share(**options, maxOffsetsPerTrigger=60)
    assert query.drain() == []
    keys: dict[int, int] = {}
    processed: list[int] = []
    with Client(cell.service_url) as client, client.create_producer(topic, batching_enabled=False) as producer:
        for _ in range(12):
            for _ in range(source.randrange(20, 60)):
                number = len(keys)
                keys[number] = source.randrange(15)
                producer.send_async(str(number), key=str(keys[number]))
            producer.flush()
            if source.random() < 0.3:
                with client.subscribe(topic, NAME, type="key_shared"):
                    processed += query.trigger() or []
            if source.random() < 0.5:
                begun = query.attempt()
                query.restart()
                query.bound_to_now()
                replayed = query.trigger()
                assert begun is None or sorted(replayed or []) == sorted(begun)
                processed += replayed or []
    processed += query.drain()
    assert sorted(processed) == sorted(keys)
    of_keys: dict[int, list[int]] = defaultdict(list)
    for number in processed:
        of_keys[keys[number]].append(number)
    assert [key for key, mine in of_keys.items() if any(later < earlier for earlier, later in pairwise(mine))] == []
