# SPDX-License-Identifier: Apache-2.0
"""Tasks: how ranges are cut and shared."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.positions import Position
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.tasks.planning import PIECE_MESSAGES_MIN, EntryRange, TaskOptions
from pulsarish_spark.viewing.counting import part_bounds

TOPIC = "persistent://public/default/t"


def at(index: int) -> Offset:
    return Offset(Position(1, index), index)


def span(partition: int, start: int, end: int | None) -> EntryRange:
    key = TopicPartition(TOPIC, partition)
    return EntryRange(key, f"{TOPIC}-partition-{partition}", True, at(start), None if end is None else at(end))


def tasks_of(wanted: TaskOptions, ranges: list[EntryRange]) -> list[list[tuple[int, int, int]]]:
    """Tasks as (partition, first index, end index), every message an entry of its own."""
    pieces = []
    for whole, count in zip(ranges, wanted.pieces([r.messages for r in ranges]), strict=True):
        pieces += whole.cut([at(whole.start.message_index + i) for i in part_bounds(whole.messages, count)[1:-1]])
    planned = wanted.tasks(ranges, pieces)
    return [
        [(p.key.partition, p.start.message_index, -1 if p.end is None else p.end.message_index) for p in task]
        for task in planned
    ]


def test_a_long_range_is_cut_until_every_core_has_a_piece() -> None:
    """One topic partition does not leave the second core idle."""
    n = PIECE_MESSAGES_MIN * 10
    assert tasks_of(TaskOptions(cores=2), [span(0, 0, n)]) == [[(0, 0, n // 2)], [(0, n // 2, n)]]
    assert tasks_of(TaskOptions(cores=2), [span(0, 0, 100)]) == [[(0, 0, 100)]]


def test_short_ranges_share_a_task() -> None:
    """A trickle over many partitions is one task, not one for each partition."""
    assert tasks_of(TaskOptions(cores=4), [span(p, 0, 10) for p in range(3)]) == [[(0, 0, 10), (1, 0, 10), (2, 0, 10)]]


def test_many_short_ranges_are_a_task_for_each_core_and_no_more() -> None:
    """Topics without partitions are all partition 0, and opening each takes longer than reading a few messages."""
    topics = [replace(span(0, 0, 10), name=f"{TOPIC}-{number}") for number in range(101)]
    planned = TaskOptions(cores=4).tasks(topics, topics)
    assert [len(task) for task in planned] == [26, 25, 25, 25]
    assert sorted(piece.name for task in planned for piece in task) == sorted(each.name for each in topics)


def test_input_partitions_assigns_as_a_failover_subscription_does() -> None:
    """2.3.2: partition p is read by task p mod n."""
    planned = tasks_of(TaskOptions(cores=8, input_partitions=2), [span(p, 0, 10) for p in range(5)])
    assert [[piece[0] for piece in task] for task in planned] == [[0, 2, 4], [1, 3]]


def test_min_partitions_cuts_in_proportion() -> None:
    """Kafka's rule: large ranges are cut, small ones left alone."""
    planned = tasks_of(TaskOptions(cores=1, min_partitions=4), [span(0, 0, 10), span(1, 0, 300)])
    assert len(planned) == 5
    assert planned[0] == [(0, 0, 10)]


def test_max_records_bounds_every_task() -> None:
    """And comes before minPartitions."""
    assert tasks_of(TaskOptions(cores=1, max_records=4), [span(0, 0, 10)]) == [[(0, 0, 3)], [(0, 3, 6)], [(0, 6, 10)]]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=6), st.integers(1, 20), st.integers(1, 100))
def test_no_message_is_lost_or_doubled_by_planning(sizes: list[int], wanted: int, most: int) -> None:
    """Whatever the options say, the pieces of a partition follow each other without a gap."""
    ranges = [span(p, 7, 7 + n) for p, n in enumerate(sizes) if n]
    for options in (
        TaskOptions(cores=wanted),
        TaskOptions(1, min_partitions=wanted),
        TaskOptions(1, input_partitions=wanted),
        TaskOptions(1, max_records=most),
    ):
        pieces = sorted(piece for task in tasks_of(options, ranges) for piece in task)
        for whole in ranges:
            assert whole.end is not None
            mine = [piece[1:] for piece in pieces if piece[0] == whole.key.partition]
            assert mine[0][0] == 7
            assert mine[-1][1] == whole.end.message_index
            assert all(before[1] == after[0] for before, after in itertools.pairwise(mine))


def test_an_open_end_stays_open() -> None:
    """Only the last piece of a late-bound range has no end."""
    pieces = span(0, 0, None).cut([at(5), at(3), at(0)][:1])
    assert [(p.start.message_index, p.end) for p in pieces] == [(0, at(5)), (5, None)]
