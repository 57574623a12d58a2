# SPDX-License-Identifier: Apache-2.0
"""Which rows a read keeps: ranges of keys, and windows of event times, on three brokers. No session."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.broker.dispatch.key_shared.selectors import slot_of
from broker_core.client import Client
from pulsarish_spark.rows.kept_rows import EventWindow, KeptRows, SlotRange
from tests.spark.batches import batch_reader, read_values
from tests.spark.brokers import Broker, numbers
from tests.spark.conftest import Start

NEW_YEAR_MS = 1767225600000


def rows_of_tasks(cell: Broker, topic: str, **options: str | int) -> list[list[dict[str, Any]]]:
    """The rows of each task of a batch read, in their order."""
    reader = batch_reader(cell, topic, **options)
    return [[row for batch in reader.read(task) for row in batch.to_pylist()] for task in reader.partitions()]


def send_keyed(cell: Broker, topic: str, count: int, keys: int, **options: Any) -> None:
    """Numbers as values, in their order, each under one of so many keys."""
    values = numbers(0, count)
    with Client(cell.service_url) as client, client.write_rows(topic, **options) as writer:
        writer.write(pa.record_batch({"key": pa.array([f"k{i % keys}" for i in range(count)]), "value": values}))
        writer.flush()


def send_events(cell: Broker, topic: str, minutes: list[int | None], **options: Any) -> None:
    """Numbers as values, each with an event time so many minutes behind New Year, or without one."""
    times = [None if minute is None else NEW_YEAR_MS + 60_000 * minute for minute in minutes]
    rows = {
        "value": pa.array(numbers(0, len(minutes))),
        "event_time": pa.array(times, pa.timestamp("ms", tz="UTC")),
    }
    with Client(cell.service_url) as client, client.write_rows(topic, **options) as writer:
        writer.write(pa.record_batch(rows))
        writer.flush()


def test_the_rows_of_a_key_come_in_order_in_one_task(cell: Broker, topic: str) -> None:
    """Each partition has as many tasks as were asked for, and each row is in one of them."""
    cell.create(topic, 2)
    send_keyed(cell, topic, 400, 40, batching_max_messages=7)
    tasks = rows_of_tasks(cell, topic, keyRanges=3)
    assert len(tasks) == 6
    assert sorted(int(row["value"]) for task in tasks for row in task) == list(range(400))
    owners: dict[bytes, set[int]] = defaultdict(set)
    for number, task in enumerate(tasks):
        assert task
        for row in task:
            owners[row["key"]].add(number)
    assert all(len(owner) == 1 for owner in owners.values())
    for task in tasks:
        by_key: dict[bytes, list[int]] = defaultdict(list)
        for row in task:
            by_key[row["key"]].append(int(row["value"]))
        assert all(values == sorted(values) for values in by_key.values())


def test_a_range_of_slots_has_the_keys_that_a_broker_would_give(cell: Broker, topic: str) -> None:
    """Some keys only; messages without a key are those of one slot."""
    cell.create(topic, 0)
    send_keyed(cell, topic, 200, 50)
    rows = rows_of_tasks(cell, topic, keyHashRange="0-16383,49152-65535")
    expected = {f"k{i}".encode() for i in range(50) if slot_of(f"k{i}".encode()) not in range(16384, 49152)}
    assert 0 < len(expected) < 50
    assert {row["key"] for task in rows for row in task} == expected
    rest = rows_of_tasks(cell, topic, keyHashRange="16384-49151", keyRanges=2)
    assert len(rest) == 2
    assert sum(len(task) for task in [*rows, *rest]) == 200


def test_rows_without_a_key_are_read_once(cell: Broker, topic: str) -> None:
    """They have one slot together, so that one of the tasks has them all."""
    cell.create(topic, 0)
    send_events(cell, topic, [None] * 30)
    assert sorted(len(task) for task in rows_of_tasks(cell, topic, keyRanges=3)) == [0, 0, 30]


def test_a_stream_reads_ranges_of_keys(start: Start, cell: Broker, topic: str) -> None:
    """What it does not want is acknowledged all the same."""
    cell.create(topic, 0)
    send_keyed(cell, topic, 100, 20)
    query = start(topic=topic, keyRanges=4, keyHashRange="0-32767")
    wanted = [i for i in range(100) if slot_of(f"k{i % 20}".encode()) <= 32767]
    assert query.drain() == wanted
    (subscription,) = cell.subscriptions(topic)
    assert cell.backlog(topic, subscription) == 0


@pytest.mark.parametrize("options", [{"batching_max_messages": 1}, {"batching_max_messages": 4, "compression": "zstd"}])
def test_a_window_of_event_times_is_exact(cell: Broker, topic: str, options: dict[str, Any]) -> None:
    """Whatever their order, in single messages and inside of batches; none without an event time."""
    topic = f"{topic}-{len(options)}"
    cell.create(topic, 0)
    minutes = [5, None, 1, 9, 3, 7, None, 0, 4, 2, 8, 6]
    send_events(cell, topic, minutes, **options)

    def read(**window: str | int) -> list[int]:
        return sorted(minutes[value] or 0 for value in read_values(cell, topic, **window))

    start, end = "2026-01-01T00:03:00Z", NEW_YEAR_MS + 60_000 * 7
    assert read(startingEventTime=start, endingEventTime=end) == [3, 4, 5, 6]
    assert read(startingEventTime=start) == [3, 4, 5, 6, 7, 8, 9]
    assert read(endingEventTime=end) == [0, 1, 2, 3, 4, 5, 6]
    assert read(startingEventTime="2027-01-01T00:00:00Z") == []
    assert read(startingEventTime=end, endingEventTime=end, columns="value") == []
    assert len(read_values(cell, topic)) == len(minutes)


@pytest.mark.parametrize("options", [{"batching_max_messages": 1}, {"batching_max_messages": 4, "compression": "zstd"}])
def test_event_times_before_1970_have_windows_too(cell: Broker, topic: str, options: dict[str, Any]) -> None:
    """From a bound on, and before one, to the millisecond."""
    topic = f"{topic}-{len(options)}"
    cell.create(topic, 0)
    minutes = [-NEW_YEAR_MS // 60_000 + minute for minute in (-3, -2, -1, 1, 2)]
    send_events(cell, topic, [*minutes, None], **options)
    assert read_values(cell, topic, startingEventTime="1969-12-31T23:58:00Z") == [1, 2, 3, 4]
    assert read_values(cell, topic, endingEventTime="1969-12-31T23:58:00Z") == [0]
    assert read_values(cell, topic, endingEventTime="1969-12-31T23:58:00.0000001Z") == [0, 1]
    assert read_values(cell, topic, startingEventTime="1969-12-31T23:57:59.9995Z", endingEventTime=1) == [1, 2]
    assert read_values(cell, topic, startingEventTime="-999999999999999999w") == [0, 1, 2, 3, 4]
    assert read_values(cell, topic, endingEventTime="1960-01-01T00:00:00Z") == []


@given(st.integers(1, 1024), st.sampled_from([(), ((0, 9), (20, 20), (100, 65535)), ((7, 7),)]))
def test_parts_of_slots_are_all_of_them_once(parts: int, slots: tuple[tuple[int, int], ...]) -> None:
    """However they are cut; there are no parts without a slot."""
    whole = tuple(SlotRange(*each) for each in slots)
    found = KeptRows(whole).split(parts)
    covered = [slot for part in found for first, last in part.slots for slot in range(first, last + 1)]
    assert covered == [slot for first, last in whole or ((0, 65535),) for slot in range(first, last + 1)]
    assert all(part.slots for part in found)
    assert len(found) == min(parts, len(covered))


def test_a_window_asks_for_the_columns_that_it_needs() -> None:
    """A user who wants none of them must not pay for them, and one who filters by them must not lose rows."""
    assert KeptRows().decoded() == set()
    assert KeptRows((SlotRange(0, 1),), EventWindow(1)).decoded() == {"key", "ordering_key", "event_time"}
