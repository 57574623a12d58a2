# SPDX-License-Identifier: Apache-2.0
"""How a limit is shared out over partitions with unequal backlogs. Pure.

The rule is that of Spark's Kafka source, so that a job that moves sees the same batches: in proportion to the backlog,
rounded down, but a partition with any backlog gets at least one. A partition of weight 3 counts as if it had three
times its backlog; what it has no backlog for goes to the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")


def share_out(backlogs: Mapping[K, int], limit: int | None, weights: Mapping[K, int] | None = None) -> dict[K, int]:
    """How much of each partition a batch of ``limit`` takes; ``None``: all. Empty partitions get 0.

    ``weights``: of partitions that have another one than 1.
    """
    if limit is None or sum(backlogs.values()) <= limit:
        return dict(backlogs)
    weighted = weighted_backlogs(backlogs, weights or {})
    shares: dict[K, int] = {}
    left = limit
    while served := [key for key in _fully_served(backlogs, weighted, left) if key not in shares]:
        shares |= {key: backlogs[key] for key in served}
        left -= sum(backlogs[key] for key in served)
        for key in served:
            weighted[key] = 0
    total = sum(weighted.values())
    for key, backlog in backlogs.items():
        if key not in shares:
            # Integers, because a float's 53 bits would round a backlog times a very large limit.
            shares[key] = min(backlog, max(left * weighted[key] // total, 1)) if backlog else 0
    return {key: shares[key] for key in backlogs}


def weighted_backlogs(backlogs: Mapping[K, int], weights: Mapping[K, int]) -> dict[K, int]:
    """What each partition counts for."""
    return {key: backlog * weights.get(key, 1) for key, backlog in backlogs.items()}


def _fully_served(backlogs: Mapping[K, int], weighted: Mapping[K, int], left: int) -> list[K]:
    """The partitions whose share is at least all that they have."""
    total = sum(weighted.values())
    return [key for key, weight in weighted.items() if weight and left * weight >= backlogs[key] * total]
