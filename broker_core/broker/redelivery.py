# SPDX-License-Identifier: Apache-2.0
"""``RedeliveryCounter``: how often each unacknowledged entry was sent again.

In memory only, as in Pulsar: it starts at nothing when the last consumer leaves, after a seek and after a restart. It
is not the set of entries that wait to be sent again; that is a ``PositionSet`` of the dispatcher. Source: semantics
4.4.3.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker_core.base.positions import Position


class RedeliveryCounter:
    """Position -> count; absent means 0."""

    __slots__ = ("_counts", "_enabled")

    def __init__(self, *, enabled: bool = True) -> None:
        self._counts: dict[Position, int] = {}
        self._enabled = enabled

    def count(self, position: Position) -> int:
        return self._counts.get(position, 0)

    def increment(self, position: Position) -> None:
        if self._enabled:
            self._counts[position] = self._counts.get(position, 0) + 1

    def forget(self, position: Position) -> None:
        self._counts.pop(position, None)

    def forget_all(self, ledger: int, entries: Iterable[int]) -> None:
        if self._counts:
            for entry in entries:
                self._counts.pop(Position(ledger, entry), None)

    def forget_through(self, position: Position) -> None:
        """Forget every entry up to and including ``position``."""
        for each in [each for each in self._counts if each <= position]:
            del self._counts[each]

    def __len__(self) -> int:
        return len(self._counts)
