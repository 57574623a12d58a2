# SPDX-License-Identifier: Apache-2.0
"""Limits of a trigger in rows, bytes and time, alone and together, on three brokers. No session."""

from __future__ import annotations

from typing import Final

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from broker_core.testing.virtual_timers import VirtualTimers
from pulsarish_spark.options import Amounts
from pulsarish_spark.positions.rate_limits import TriggerDelay
from tests.spark.brokers import Broker, eventually, numbers
from tests.spark.conftest import Start
from tests.spark.engine import Engine

LARGE: Final = 4000
"""Bytes of an entry beside which metadata count little."""


def sent_large(cell: Broker, topic: str, count: int, size_bytes: int = LARGE) -> None:
    """Entries of about this size, of one message each; key and value are the same number."""
    cell.send_one_by_one(topic, [str(number).rjust(size_bytes // 2) for number in range(count)])


def batches(query: Engine) -> list[list[int]]:
    """The values of each batch until nothing is new."""
    found = []
    while (values := query.trigger()) is not None:
        found.append(values)
    return found


def test_a_limit_on_bytes_holds_to_within_one_entry(start: Start, cell: Broker, topic: str) -> None:
    """Over two ledgers and a restart; an entry above the limit comes alone."""
    cell.create(topic, 0)
    sent_large(cell, topic, 30)
    sent_large(cell, topic, 1, 40 * LARGE)
    cell.unload(topic)
    sent_large(cell, topic, 30)
    query = start(topic=topic, maxBytesPerTrigger=10 * LARGE)
    first = query.trigger()
    assert first is not None
    assert 8 <= len(first) <= 9
    query.restart()
    found = [first, *batches(query)]
    assert [value for batch in found for value in batch] == [*range(30), 0, *range(30)]
    assert max(len(batch) for batch in found) <= 9
    assert len(found) <= 9


def test_bytes_and_rows_are_limited_together(start: Start, cell: Broker, topic: str) -> None:
    """The first ledger's entries are large and the second's small: each batch keeps both limits."""
    cell.create(topic, 0)
    sent_large(cell, topic, 12)
    cell.unload(topic)
    cell.send_one_by_one(topic, numbers(12, 62))
    found = batches(start(topic=topic, maxBytesPerTrigger=5 * LARGE, maxOffsetsPerTrigger=20))
    assert [value for batch in found for value in batch] == list(range(62))
    assert [len(batch) for batch in found[:2]] == [4, 4]
    assert max(sum(1 for value in batch if value < 12) for batch in found) == 4
    assert max(len(batch) for batch in found) == 20


def test_a_limit_on_bytes_is_shared_out_over_partitions(start: Start, cell: Broker, topic: str) -> None:
    """Each partition moves in each batch as long as it has something."""
    cell.create(topic, 2)
    sent_large(cell, f"{topic}-partition-0", 40)
    sent_large(cell, f"{topic}-partition-1", 10)
    query = start(topic=topic, maxBytesPerTrigger=12 * LARGE)
    first = query.trigger()
    assert first is not None
    assert first.count(0) == 2
    assert 8 <= len(first) <= 12
    assert sorted(first + query.drain()) == sorted([*range(40), *range(10)])


def test_weights_share_a_limit_out_over_topics(start: Start, cell: Broker, topic: str) -> None:
    """Three messages of one topic for each of the other, as long as both have enough."""
    other = cell.create(f"{topic}-other", 0)
    cell.create(topic, 0)
    cell.send_one_by_one(topic, numbers(0, 60))
    cell.send_one_by_one(other, numbers(100, 160))
    weights = f'{{"{topic}":3,"{other}":1}}'
    found = batches(start(topics=f"{topic},{other}", maxOffsetsPerTrigger=20, topicWeights=weights))
    assert sorted(value for batch in found for value in batch) == [*range(60), *range(100, 160)]
    assert [sum(1 for value in batch if value < 100) for batch in found[:2]] == [15, 14]
    assert [len(batch) for batch in found[:2]] == [20, 19]


def test_shares_are_exact_over_batches_and_a_restart(start: Start, cell: Broker, topic: str) -> None:
    """The example of the Kafka source's tests: 100, 10 and 1 messages, ten at a time."""
    cell.create(topic, 3)
    for partition, count in ((0, 100), (1, 10), (2, 1)):
        base = 1000 * partition
        cell.send_one_by_one(f"{topic}-partition-{partition}", numbers(base, base + count))
    query = start(topic=topic, maxOffsetsPerTrigger=10)
    taken = []
    for number in range(4):
        if number == 2:
            query.restart()
        batch = query.trigger()
        assert batch is not None
        taken.append([sum(1 for value in batch if value // 1000 == partition) for partition in range(3)])
    assert taken == [[9, 1, 1], [9, 1, 0], [9, 1, 0], [9, 1, 0]]


def test_a_batch_waits_until_there_is_enough(start: Start, cell: Broker, topic: str) -> None:
    """The first batch of each start runs at once; AvailableNow waits for nothing."""
    cell.create(topic, 2)
    cell.send_one_by_one(topic, numbers(0, 3))
    query = start(topic=topic, minOffsetsPerTrigger=10, maxOffsetsPerTrigger=12)
    assert sorted(query.trigger() or []) == [0, 1, 2]
    cell.send_one_by_one(topic, numbers(3, 8))
    assert query.trigger() is None
    assert query.trigger() is None
    cell.send_one_by_one(topic, numbers(8, 20))
    found: list[int] = []

    def came() -> bool:
        found.extend(query.trigger() or [])
        return bool(found)

    eventually(came, "a batch runs once ten messages wait")
    assert 10 <= len(found) <= 13
    query.restart()
    assert sorted(found + (query.trigger() or [])) == list(range(3, 20))


def test_once_takes_everything_and_available_now_leaves_nothing(start: Start, cell: Broker, topic: str) -> None:
    """Spark says that all is wanted; and what is below the least number is read too when the run has an end."""
    cell.create(topic, 0)
    cell.send_one_by_one(topic, numbers(0, 30))
    query = start(topic=topic, minOffsetsPerTrigger=10, maxOffsetsPerTrigger=12, maxBytesPerTrigger=100)
    begin = query._reader.initialOffset()
    assert isinstance(query._reader.getDefaultReadLimit(), ReadMaxRows)
    end = query._reader.latestOffset(begin, ReadAllAvailable())
    assert [*query.values(query._reader.partitions(begin, end))] == list(range(30))
    bounded = start(topic=topic, minOffsetsPerTrigger=12, maxOffsetsPerTrigger=12)
    bounded._reader.prepareForTriggerAvailableNow()
    assert [len(batch) for batch in batches(bounded)] == [12, 12, 6]


def test_the_largest_number_of_java_is_no_limit(start: Start, cell: Broker, topic: str) -> None:
    """As some people write it."""
    cell.create(topic, 2)
    cell.send(topic, numbers(0, 50))
    most = 2**63 - 1
    assert start(topic=topic, maxOffsetsPerTrigger=most, maxBytesPerTrigger=most).drain() == list(range(50))


def test_new_messages_wait_no_longer_than_the_delay() -> None:
    """However few they are; and while they wait, the broker is asked once a second."""
    clock = VirtualTimers()
    delay = TriggerDelay(Amounts(messages_min=10, delay_s_max=60), clock)
    assert delay.is_due(lambda: 1)
    delay.began()
    assert not delay.is_due(lambda: 9)
    assert delay.waits
    clock.advance(1000)
    assert not delay.waits
    assert delay.is_due(lambda: 10)
    assert not delay.is_due(lambda: 9)
    clock.advance(59_000)
    assert delay.is_due(lambda: 1)
