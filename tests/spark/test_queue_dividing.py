# SPDX-License-Identifier: Apache-2.0
"""How a batch of queue mode is divided into tasks, and what a reading does with what is not wanted."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.positions import Position
from broker_core.client import GivenEntry
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.queue.dividing import divide_by_key, divide_by_place
from pulsarish_spark.queue.id_reader import (
    GAP_ENTRIES,
    IdReading,
    spans_of,
    with_redelivery_counts,
    without_acknowledged,
)
from pulsarish_spark.queue.queue_offset import PartitionBatch, QueueOffset

KEYS = [TopicPartition("persistent://a/b/c", number) for number in range(3)]
NAMES = {key: f"{key.topic}-partition-{key.partition}" for key in KEYS}
ENTRIES = st.lists(
    st.builds(
        GivenEntry,
        ledger=st.integers(0, 2),
        entry=st.integers(0, 30_000),
        messages=st.integers(1, 3_000),
        redelivery_count=st.integers(0, 2),
        unacked=st.one_of(st.none(), st.integers(1, 7)),
        key_hash=st.one_of(st.integers(0, 5), st.integers(0, 2**31 - 1)),
    ),
    min_size=1,
    max_size=60,
    unique_by=lambda each: each.position,
)
BATCHES = st.dictionaries(st.sampled_from(KEYS), ENTRIES, min_size=1)


def offset_of(batch: dict[TopicPartition, list[GivenEntry]]) -> QueueOffset:
    """The offset of what was given."""
    messages = sum(each.messages for given in batch.values() for each in given)
    return QueueOffset(1, messages, {key: PartitionBatch.of(given) for key, given in batch.items()})


def noted(reading: IdReading) -> list[tuple[TopicPartition, Position, int | None, int]]:
    """What a reading knows of each of its entries."""
    counts = {
        Position(ledger, entry): count
        for count, ledger, found in reading.batch.redelivered()
        for entry in found.tolist()
    }
    return [(reading.key, at, reading.batch.parts.get(at), counts.get(at, 0)) for at in reading.batch.positions()]


def given_as(batch: dict[TopicPartition, list[GivenEntry]]) -> Counter[object]:
    return Counter(
        (key, each.position, each.unacked, each.redelivery_count) for key, given in batch.items() for each in given
    )


@given(BATCHES, st.integers(1, 8))
def test_pieces_have_every_entry_once(batch: dict[TopicPartition, list[GivenEntry]], cores: int) -> None:
    """With what the offset says of it, in the order of positions, and no task is much larger than another."""
    tasks = divide_by_place(offset_of(batch), NAMES, cores)
    assert Counter(each for task in tasks for reading in task for each in noted(reading)) == given_as(batch)
    sizes = [sum(len(noted(reading)) for reading in task) for task in tasks]
    assert max(sizes) - min(sizes) <= 1
    assert len(tasks) <= cores


@given(BATCHES, st.integers(1, 8))
def test_keys_are_not_divided(batch: dict[TopicPartition, list[GivenEntry]], cores: int) -> None:
    """While the batch is fresh each entry is in one task, and all entries of a key are in the same."""
    tasks = divide_by_key(offset_of(batch), batch, NAMES, cores)
    assert Counter(each for task in tasks for reading in task for each in noted(reading)) == given_as(batch)
    hashes = {(key, each.position): each.key_hash for key, given in batch.items() for each in given}
    owners: dict[int, int] = {}
    for task, readings in enumerate(tasks):
        for reading in readings:
            for key, at, _, _ in noted(reading):
                assert owners.setdefault(hashes[key, at], task) == task


@given(BATCHES, st.integers(1, 8), st.integers(0, 2**31 - 1))
def test_at_a_replay_each_key_has_one_task(
    batch: dict[TopicPartition, list[GivenEntry]], cores: int, key_hash: int
) -> None:
    """Each task reads all entries and keeps a range of keys; together the ranges are all keys."""
    tasks = divide_by_key(offset_of(batch), None, NAMES, cores)
    for readings in tasks:
        assert Counter(each for reading in readings for each in noted(reading)) == given_as(batch)
    owners = [task for task in tasks if task[0].keys is None or key_hash in range(*task[0].keys)]
    assert len(owners) == 1


def test_readers_go_through_short_gaps() -> None:
    """And begin anew behind long ones, and in each ledger."""
    entries = {5: np.array([1, 2, 3 + GAP_ENTRIES, 5 + 2 * GAP_ENTRIES]), 7: np.array([0])}
    found = [(span.start, span.end) for span in spans_of(entries)]
    assert found == [
        (Position(5, 1), Position(5, 4 + GAP_ENTRIES)),
        (Position(5, 5 + 2 * GAP_ENTRIES), Position(5, 6 + 2 * GAP_ENTRIES)),
        (Position(7, 0), Position(7, 1)),
    ]


def rows(*entries: tuple[int, int, int]) -> pa.RecordBatch:
    """Decoded rows of entries: ledger, entry and number of messages."""
    columns: dict[str, list[int]] = {"ledger": [], "entry": [], "batch_index": []}
    for ledger, entry, messages in entries:
        for index in range(messages):
            columns["ledger"].append(ledger)
            columns["entry"].append(entry)
            columns["batch_index"].append(index)
    kinds = {"ledger": pa.int64(), "entry": pa.int64(), "batch_index": pa.int32()}
    return pa.record_batch({name: pa.array(values, kinds[name]) for name, values in columns.items()})


def test_of_a_partial_entry_only_what_is_left_is_a_row() -> None:
    """Bit i stands for batch index i; entries that are not partial stay whole."""
    left = without_acknowledged(rows((1, 5, 10), (1, 6, 3), (2, 5, 3)), {Position(1, 5): 0b1000000101})
    assert left["batch_index"].to_pylist() == [0, 2, 9, 0, 1, 2, 0, 1, 2]
    assert without_acknowledged(rows((1, 5, 3)), {Position(1, 5): 0}).num_rows == 0


def test_redelivery_counts_are_those_of_the_offset() -> None:
    """0 for what came for the first time."""
    batch = PartitionBatch({1: "5-6", 2: "5"}, again={2: {1: "6"}, 1: {2: "5"}})
    found = with_redelivery_counts(rows((1, 5, 2), (1, 6, 1), (2, 5, 2)), batch)
    assert found["redelivery_count"].to_pylist() == [0, 0, 2, 1, 1]
