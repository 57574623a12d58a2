# SPDX-License-Identifier: Apache-2.0
"""Which Spark task reads which topic partition: the assignment of a Failover subscription (semantics 2.3.2).

``n`` tasks stand for ``n`` Failover consumers of equal priority in the order of their names, so partition ``p`` belongs
to task ``p mod n``: the rule by which a broker picks the active consumer of a partition. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from broker_core.base.invariants import invariant

T = TypeVar("T")


def failover_owner(partition: int, consumers: int) -> int:
    """The position, among ``consumers`` sorted ones, of the active consumer of ``partition``."""
    invariant(consumers > 0 and partition >= 0, "no owner of partition %d among %d", partition, consumers)
    return partition % consumers


def assign(items: Iterable[T], partition_of: Callable[[T], int], consumers: int) -> list[list[T]]:
    """Give each item to the owner of its partition; the order of items is kept. Owners of nothing are left out."""
    owned: dict[int, list[T]] = {}
    for item in items:
        owned.setdefault(failover_owner(partition_of(item), consumers), []).append(item)
    return [owned[owner] for owner in sorted(owned)]
