# SPDX-License-Identifier: Apache-2.0
"""``RedeliveryCounter``: how often each unacknowledged entry was sent again.

In memory only, as in Pulsar: it starts at nothing when the last consumer leaves, after a seek and after a restart. It
is not the set of entries that wait to be sent again; that is a ``PositionSet`` of the dispatcher. Source: semantics
4.4.3.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker_core.base.positions import Position
from broker_core.broker.positions.position_map import PositionMap


class RedeliveryCounter:
    """Position -> count; absent means 0."""

    __slots__ = ("_counts", "_enabled")

    def __init__(self, *, enabled: bool = True) -> None:
        self._counts: PositionMap[int] = PositionMap()
        self._enabled = enabled

    def count(self, position: Position) -> int:
        return self._counts.get(position) or 0

    def increment(self, position: Position) -> None:
        if self._enabled:
            self._counts[position] = self.count(position) + 1

    def forget(self, position: Position) -> None:
        self._counts.pop(position)

    def forget_all(self, ledger: int, entries: Iterable[int]) -> None:
        self._counts.forget_all(ledger, entries)

    def forget_through(self, position: Position) -> None:
        """Forget every entry up to and including ``position``."""
        self._counts.forget_through(position)

    def __len__(self) -> int:
        return len(self._counts)
