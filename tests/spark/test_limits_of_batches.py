# SPDX-License-Identifier: Apache-2.0
"""maxOffsetsPerTrigger, minPartitions and maxRecordsPerPartition hold where a broker tells no message indexes too."""

from __future__ import annotations

import logging
from typing import Final

import pytest

from broker_core.base.errors import ConfigError
from pulsarish_spark.progress import PartitionLag, lag
from pulsarish_spark.viewing import counting
from tests.spark.batches import batch_reader, count_rows
from tests.spark.brokers import Broker, numbers
from tests.spark.conftest import Start
from tests.spark.engine import Engine


def send_mixed(cell: Broker, topic: str, sizes: list[int]) -> int:
    """One entry of each of these sizes, numbered on; returns how many messages they hold."""
    sent = 0
    for size in sizes:
        cell.send(topic, numbers(sent, sent + size), batching_max_messages=size)
        sent += size
    return sent


def batches(query: Engine) -> list[list[int]]:
    """The values of each batch until nothing is new."""
    found = []
    while (values := query.trigger()) is not None:
        found.append(values)
    return found


def test_a_limit_holds_to_within_one_entry_whatever_the_sizes_of_batches(
    start: Start, cell: Broker, topic: str
) -> None:
    """Single messages, batches of 1000 and both mixed, over two ledgers; an entry above the limit comes alone."""
    cell.create(topic, 0)
    sent = send_mixed(cell, topic, [1] * 30 + [1000] + [1, 1000] * 3 + [7, 300, 1])
    cell.unload(topic)
    cell.send(topic, numbers(sent, sent + 500), batching_max_messages=100)
    found = batches(start(topic=topic, maxOffsetsPerTrigger=20))
    assert [value for batch in found for value in batch] == list(range(sent + 500))
    assert {len(batch) for batch in found if len(batch) > 20} == {1000, 300, 100}
    assert [len(batch) for batch in found][:2] == [20, 10]


def test_a_limit_holds_from_an_empty_topic_on_and_over_restarts(start: Start, cell: Broker, topic: str) -> None:
    """The checkpoint of an empty topic names no entry; what is known of sizes is learned anew by each process."""
    cell.create(topic, 0)
    query = start(topic=topic, maxOffsetsPerTrigger=15)
    assert not query.trigger()
    cell.send(topic, numbers(0, 60), batching_max_messages=4)
    cell.unload(topic)
    cell.send(topic, numbers(60, 90), batching_max_messages=1)
    assert query.trigger() == list(range(12))
    query.restart()
    found = batches(query)
    assert [value for batch in found for value in batch] == list(range(12, 90))
    assert max(len(batch) for batch in found) <= 15
    assert len(found) <= 7


def test_a_limit_is_shared_out_over_partitions(start: Start, cell: Broker, topic: str) -> None:
    """In proportion to what each has; nothing is left behind."""
    cell.create(topic, 3)
    for partition, count in ((0, 300), (1, 60), (2, 3)):
        base = 1000 * partition
        cell.send_one_by_one(f"{topic}-partition-{partition}", numbers(base, base + count))
    found = batches(start(topic=topic, maxOffsetsPerTrigger=50))
    assert sorted(value for batch in found for value in batch) == [
        *range(300),
        *range(1000, 1060),
        *range(2000, 2003),
    ]
    assert max(len(batch) for batch in found) <= 50
    assert len(found) <= 9
    assert {value // 1000 for value in found[0]} == {0, 1, 2}


def test_a_limit_holds_beyond_what_is_counted(
    start: Start, cell: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large limit is not counted whole: the batch goes on as far as it may if no later entry is larger."""
    monkeypatch.setattr(counting, "COUNT_ENTRIES_MAX", 100)
    cell.create(topic, 0)
    cell.send(topic, numbers(0, 3000), batching_max_messages=5)
    cell.unload(topic)
    cell.send(topic, numbers(3000, 4000), batching_max_messages=20)
    found = batches(start(topic=topic, maxOffsetsPerTrigger=1000))
    assert [value for batch in found for value in batch] == list(range(4000))
    assert max(len(batch) for batch in found) <= 1000
    assert len(found) <= 8


def rows_of_tasks(cell: Broker, topic: str, **options: str | int) -> list[int]:
    """How many rows each task of a batch read has."""
    reader = batch_reader(cell, topic, **options)
    return [count_rows(reader, task) for task in reader.partitions()]


MIXES: Final = {
    "single messages": [1] * 200,
    "batches": [50] * 40,
    "first single, then batches": [1] * 200 + [100] * 20,
    "in turn": [1, 100] * 20,
}


@pytest.mark.parametrize("mix", MIXES.values(), ids=MIXES)
def test_tasks_are_cut_over_ledgers(cell: Broker, topic: str, mix: list[int]) -> None:
    """minPartitions makes so many tasks of about equal size; maxRecordsPerPartition holds to within one entry."""
    cell.create(topic, 0)
    half = len(mix) // 2
    for sizes in (mix[:half], mix[half:]):
        send_sizes(cell, topic, sizes)
        cell.unload(topic)
    rows = rows_of_tasks(cell, topic, minPartitions=4)
    assert sum(rows) == sum(mix)
    assert 4 <= len(rows) <= 5
    assert max(rows) <= 2 * sum(mix) / 4 + max(mix)
    bounded = rows_of_tasks(cell, topic, maxRecordsPerPartition=120)
    assert sum(bounded) == sum(mix)
    assert max(bounded) < 120 + max(mix)


def test_tasks_beyond_what_is_counted_hold_to_within_a_factor_of_two(
    cell: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples judge the rest of a long range; large and small batches are mixed evenly in it."""
    monkeypatch.setattr(counting, "COUNT_ENTRIES_MAX", 10)
    cell.create(topic, 0)
    mix = [1, 30] * 70
    send_sizes(cell, topic, mix)
    rows = rows_of_tasks(cell, topic, maxRecordsPerPartition=200)
    assert sum(rows) == sum(mix)
    assert max(rows) <= 2 * 200


def send_sizes(cell: Broker, topic: str, sizes: list[int]) -> None:
    """Entries of these sizes; equal neighbours go through one producer."""
    runs: list[tuple[int, int]] = []
    for size in sizes:
        if runs and runs[-1][0] == size:
            runs[-1] = (size, runs[-1][1] + 1)
        else:
            runs.append((size, 1))
    for size, count in runs:
        cell.send(topic, numbers(0, size * count), batching_max_messages=size)


def test_an_offset_by_number_names_the_settings_that_allow_it(cell: Broker, topic: str) -> None:
    """Where the broker tells indexes the number is a place; where not, the error says what a broker needs for that."""
    cell.create(topic, 0)
    cell.send(topic, numbers(0, 10), batching_max_messages=3)
    wanted = {"startingOffsets": f'{{"{topic}":{{"0":4}}}}'}
    if cell.tells_indexes:
        assert sum(rows_of_tasks(cell, topic, **wanted)) == 6
        return
    with pytest.raises(ConfigError, match="does not tell message indexes") as refused:
        rows_of_tasks(cell, topic, **wanted)
    assert "AppendIndexMetadataInterceptor" in str(refused.value)
    assert "exposingBrokerEntryMetadataToClientEnabled=true" in str(refused.value)


def test_the_log_says_once_which_kind_of_broker_a_query_reads(
    start: Start, cell: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without indexes some things cannot be had, so that is a warning."""
    caplog.set_level(logging.INFO, "pulsarish_spark")
    cell.create(topic, 0)
    query = start(topic=topic)
    assert not query.trigger()
    for begin in (0, 10):
        cell.send(topic, numbers(begin, begin + 10))
        assert query.drain() == list(range(begin, begin + 10))
    told = [
        (record.levelname, record.message.split(" partition=")[0])
        for record in caplog.records
        if "message indexes" in record.message
    ]
    assert told == [
        ("INFO", "broker tells message indexes")
        if cell.tells_indexes
        else ("WARNING", "broker tells no message indexes")
    ]


def test_lag_is_known_over_the_end_of_a_ledger(start: Start, cell: Broker, topic: str) -> None:
    """In messages where the broker tells indexes, else in entries; nothing is behind once all was read."""
    cell.create(topic, 0)
    cell.send(topic, numbers(0, 30), batching_max_messages=1)
    cell.unload(topic)
    cell.send(topic, numbers(30, 50), batching_max_messages=1)
    query = start(topic=topic, maxOffsetsPerTrigger=10)
    query.trigger()
    (behind,) = lag(query.progress()).values()
    assert behind.messages == (40 if cell.tells_indexes else None)
    assert behind.entries == (None if cell.tells_indexes else 40)
    query.drain()
    assert [*lag(query.progress()).values()] == [PartitionLag(0, 0, 0, 0.0)]
