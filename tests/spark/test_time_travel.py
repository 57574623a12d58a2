# SPDX-License-Identifier: Apache-2.0
"""A window of publish times in the past: its rows are exact, and what lies outside of it is not read. No session.

The order of a log is that of arrival. Where the clocks of producers and brokers agree it is that of publish times too,
as here.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import pytest

from broker_core.base.clock import SystemClock
from broker_core.client import Client
from pulsarish_spark.tasks.task import RangeReading
from pulsarish_spark.workers.task_partition import TaskPartition
from tests.spark.batches import batch_reader, read_values
from tests.spark.brokers import Broker, eventually

LEDGERS = 4
OF_LEDGER = 10


class Past(NamedTuple):
    """What was sent: the ledgers, oldest first, and when each number was published, at the latest."""

    ledgers: list[int]
    sent_ms: list[int]


@pytest.fixture
def past(cell: Broker, topic: str) -> Past:
    """Each ledger has ten entries of one number, no two of one millisecond; a subscription keeps them."""
    cell.create(topic, 0)
    cell.subscribe(topic, "keeper")
    now_ms, sent_ms = SystemClock().now_ms, [0]
    with Client(cell.service_url) as client:
        for number in range(LEDGERS * OF_LEDGER):
            if number and number % OF_LEDGER == 0:
                cell.unload(topic)
            eventually(lambda: now_ms() > sent_ms[-1], "a millisecond has passed")
            cell.send(topic, [str(number)], client)
            sent_ms.append(now_ms())
            eventually(lambda: now_ms() > sent_ms[-1], "a millisecond has passed")
    return Past(cell.ledgers(topic), sent_ms[1:])


def test_a_window_of_publish_times_is_exact(cell: Broker, topic: str, past: Past) -> None:
    """From the first bound on, and before the second one; also over the end of a ledger."""

    def read(after: int, up_to: int) -> list[int]:
        """The numbers that were published behind one of them, up to another."""
        window = {"startingTimestamp": past.sent_ms[after] + 1, "endingTimestamp": past.sent_ms[up_to] + 1}
        return read_values(cell, topic, **window)

    assert read(12, 23) == list(range(13, 24))
    assert read(9, 10) == [10]
    assert read(19, 29) == list(range(20, 30))
    assert read(14, 14) == []


def test_ledgers_outside_of_a_window_are_not_read(cell: Broker, topic: str, past: Past) -> None:
    """The plan has only entries inside, so the read does not notice that an older ledger goes while it runs."""
    window = {"startingTimestamp": past.sent_ms[11] + 1, "endingTimestamp": past.sent_ms[17] + 1}
    reader = batch_reader(cell, topic, **window)
    tasks = [cast("TaskPartition", partition) for partition in reader.partitions()]
    ranges = [cast("RangeReading", reading).range for each in tasks for reading in each.task.readings]
    entries = 0
    for each in ranges:
        assert each.end is not None
        assert {each.start.position.ledger, each.end.position.ledger} == {past.ledgers[1]}
        entries += each.end.position.entry - each.start.position.entry
    assert entries == 6
    cell.skip(topic, "keeper", OF_LEDGER)
    cell.drop_acknowledged_before(topic, past.ledgers[1])
    found = [value for task in tasks for batch in reader.read(task) for value in batch.column("value").to_pylist()]
    assert [int(value) for value in found] == list(range(12, 18))
