# SPDX-License-Identifier: Apache-2.0
"""How a limit on messages is shared out over partitions with unequal backlogs. Pure.

The rule is that of Spark's Kafka source, so that a job that moves sees the same batches: in proportion to the backlog,
rounded down, but a partition with any backlog gets at least one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")


def share_out(backlogs: Mapping[K, int], limit: int | None) -> dict[K, int]:
    """How many messages of each partition a batch of ``limit`` takes; ``None``: all. Empty partitions get 0."""
    total = sum(backlogs.values())
    if limit is None or total <= limit:
        return dict(backlogs)
    shares: dict[K, int] = {}
    for key, backlog in backlogs.items():
        # Integers, because a float's 53 bits would round a backlog times a very large limit.
        share, rest = divmod(limit * backlog, total)
        shares[key] = min(backlog, math.ceil(rest / total) if share == 0 else share)
    return shares
