# SPDX-License-Identifier: Apache-2.0
"""``AutoSplitRanges``: one region of slots for each consumer; a newcomer gets half of the widest.

Invariants (semantics I2.8): the regions are disjoint and cover all slots; each consumer has exactly one, at least one
slot wide; a join takes from one consumer only, a leave gives to one only; joining and leaving again restores the map.
Source: PIP-34; semantics 2.6.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection
from typing import Generic

from broker_core.base.errors import ConsumerAssignError
from broker_core.broker.dispatch.key_shared.selector import SLOTS, C, Hashes, HashRange, joined, slot_of


class AutoSplitRanges(Generic[C]):
    """Regions by their upper bounds, which rise up to the number of slots.

    A bound itself belongs to the region above it, as Pulsar's documentation draws it; with ``closed_upper`` to the one
    below, as Pulsar's broker does it.
    """

    def __init__(self, slots: int = SLOTS, *, closed_upper: bool = False) -> None:
        self._slots = slots
        self._closed_upper = closed_upper
        self._find = bisect_left if closed_upper else bisect_right
        self._uppers: list[int] = []
        self._owners: list[C] = []

    def hash_of(self, key: bytes) -> int:
        return slot_of(key)

    def select(self, hash_: int) -> C | None:
        return self._owners[self._find(self._uppers, hash_)] if self._owners else None

    def add(self, consumer: C) -> Collection[C]:
        if not self._owners:
            self._uppers.append(self._slots)
            self._owners.append(consumer)
            return ()
        widths = [upper - lower for lower, upper in zip([0, *self._uppers], self._uppers, strict=False)]
        widest = widths.index(max(widths))
        if widths[widest] <= 1:
            raise ConsumerAssignError(
                f"consumer {consumer.name!r} cannot be given a region: each of the {self._slots} slots has an owner",
                hint="use fewer consumers on this subscription",
            )
        self._uppers.insert(widest, self._uppers[widest] - widths[widest] // 2)
        self._owners.insert(widest, consumer)
        return (self._owners[widest + 1],)

    def remove(self, consumer: C) -> Collection[C]:
        index = self._index_of(consumer)
        # The region goes to its right neighbour; the rightmost has none and goes to its left one.
        del self._owners[index]
        del self._uppers[min(index, max(0, len(self._owners) - 1))]
        return ()

    def hashes_of(self, consumer: C) -> Hashes:
        index = self._index_of(consumer)
        shift = 1 if self._closed_upper else 0
        return range(self._uppers[index - 1] + shift if index else 0, self._uppers[index] + shift)

    def ranges(self) -> list[tuple[HashRange, C]]:
        shift = 1 if self._closed_upper else 0
        lowers = [0, *(upper + shift for upper in self._uppers)]
        tops = [min(upper - 1 + shift, self._slots - 1) for upper in self._uppers]
        return joined(
            (HashRange(lower, top), owner) for lower, top, owner in zip(lowers, tops, self._owners, strict=False)
        )

    def _index_of(self, consumer: C) -> int:
        return next(index for index, owner in enumerate(self._owners) if owner is consumer)
