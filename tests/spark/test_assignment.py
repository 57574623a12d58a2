# SPDX-License-Identifier: Apache-2.0
"""The failover assignment of partitions to tasks, against the published examples (semantics 2.3.2)."""

from __future__ import annotations

import pytest

from pulsarish_spark.tasks.planning import assign, failover_owner


@pytest.mark.parametrize(
    ("partitions", "consumers", "owners"),
    [(2, "ABCD", "AB"), (2, "CD", "CD"), (9, "ABC", "ABCABCABC"), (3, "ABCD", "ABC"), (3, "ACD", "ACD")],
)
def test_partition_p_belongs_to_consumer_p_mod_m(partitions: int, consumers: str, owners: str) -> None:
    """2.3.2: the active consumer of partition p is candidate p mod m."""
    assert "".join(consumers[failover_owner(p, len(consumers))] for p in range(partitions)) == owners


def test_tasks_get_all_items_in_order_and_none_is_empty() -> None:
    """2.3.2: every partition has exactly one owner; idle consumers make no task."""
    assert assign(range(5), lambda p: p, 2) == [[0, 2, 4], [1, 3]]
    assert assign([0, 1], lambda p: p, 4) == [[0], [1]]
    assert assign([3, 1], lambda p: p, 99_999_999_999) == [[1], [3]]  # a slip of the hand, not of the memory
