# SPDX-License-Identifier: Apache-2.0
"""The failover assignment of partitions to tasks, against the published examples (semantics 2.3.2)."""

from __future__ import annotations

from itertools import chain

import pytest

from broker_core.base.positions import Position
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.tasks.planning import EntryRange, by_failover_owner


def assigned(partitions: list[int], consumers: int) -> list[list[int]]:
    """The partitions of each task."""
    at, end = Offset(Position(1, 0)), Offset(Position(1, 1))
    pieces = [EntryRange(TopicPartition("t", number), "t", True, at, end) for number in partitions]
    return [[piece.key.partition for piece in task] for task in by_failover_owner(pieces, consumers)]


@pytest.mark.parametrize(
    ("partitions", "consumers", "owners"),
    [(2, "ABCD", "AB"), (2, "CD", "CD"), (9, "ABC", "ABCABCABC"), (3, "ABCD", "ABC"), (3, "ACD", "ACD")],
)
def test_partition_p_belongs_to_consumer_p_mod_m(partitions: int, consumers: str, owners: str) -> None:
    """2.3.2: the active consumer of partition p is candidate p mod m."""
    tasks = assigned([*range(partitions)], len(consumers))
    owner_of = {number: owner for owner, task in zip(consumers, tasks, strict=False) for number in task}
    assert "".join(owner_of[number] for number in sorted(chain(*tasks))) == owners


def test_tasks_get_all_items_in_order_and_none_is_empty() -> None:
    """2.3.2: every partition has exactly one owner; idle consumers make no task."""
    assert assigned([*range(5)], 2) == [[0, 2, 4], [1, 3]]
    assert assigned([0, 1], 4) == [[0], [1]]
    assert assigned([3, 1], 99_999_999_999) == [[1], [3]]  # a slip of the hand, not of the memory
