# SPDX-License-Identifier: Apache-2.0
"""Mappings of ranges of slots to consumers, and the mapping that serves a policy (semantics 10: decisions 2, 6, 8).

Source: PIP-34; Pulsar docs, "Key_Shared - sticky"; semantics 2.6, 2.8.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence
from typing import Generic

from broker_core.base.errors import ConsumerAssignError
from broker_core.base.settings import Settings
from broker_core.broker.consumer import Consumer
from broker_core.broker.dispatch.key_shared.hash_ring import HashRing
from broker_core.broker.dispatch.key_shared.selector import SLOTS, C, Hashes, HashRange, Selector, joined, slot_of
from broker_core.broker.requests import KeySharedMode


class StickyRanges(Generic[C]):
    """Ranges in order, both ends included, and the consumer that brought each. ``ranges_of``: the ranges that a
    consumer asks for. Slots that no consumer brought are holes; no consumer ever loses a slot to another (semantics
    I2.10)."""

    def __init__(self, ranges_of: Callable[[C], Sequence[HashRange]]) -> None:
        self._ranges_of = ranges_of
        self._starts: list[int] = []
        self._by_start: dict[int, tuple[int, C]] = {}

    def hash_of(self, key: bytes) -> int:
        return slot_of(key)

    def select(self, hash_: int) -> C | None:
        index = bisect_right(self._starts, hash_) - 1
        if index < 0:
            return None
        end, owner = self._by_start[self._starts[index]]
        return owner if hash_ <= end else None

    def add(self, consumer: C) -> Collection[C]:
        wanted = check_ranges(self._ranges_of(consumer), consumer.name)
        for each in wanted:
            taken = self._overlapping(*each)
            if taken is not None:
                raise ConsumerAssignError(
                    f"range {each} of consumer {consumer.name!r} overlaps with that of consumer {taken.name!r}",
                    hint="give every slot to one consumer only",
                )
        brought = {start: (end, consumer) for start, end in wanted}
        self._by_start |= brought
        self._starts = sorted([*self._starts, *brought])
        return ()

    def remove(self, consumer: C) -> Collection[C]:
        for start, _end in self._ranges_of(consumer):
            if start in self._by_start and self._by_start[start][1] is consumer:
                del self._by_start[start]
        self._starts = [start for start in self._starts if start in self._by_start]
        return ()

    def hashes_of(self, consumer: C) -> Hashes:
        theirs = [(start, end) for start, (end, owner) in self._by_start.items() if owner is consumer]
        return {hash_ for start, end in theirs for hash_ in range(start, end + 1)}

    def ranges(self) -> list[tuple[HashRange, C]]:
        return joined((HashRange(start, self._by_start[start][0]), self._by_start[start][1]) for start in self._starts)

    def _overlapping(self, start: int, end: int) -> C | None:
        """A consumer that has any of these slots; only the last range that begins in or before them can have one."""
        index = bisect_right(self._starts, end)
        if not index:
            return None
        their_end, owner = self._by_start[self._starts[index - 1]]
        return owner if their_end >= start else None


def check_ranges(ranges: Sequence[HashRange], consumer: str) -> list[HashRange]:
    """``ranges`` in order; ConsumerAssignError if there are none, if one is not valid or if two overlap."""
    if not ranges:
        raise ConsumerAssignError(
            f"consumer {consumer!r} asks for sticky ranges but names none", hint="give it at least one range of slots"
        )
    below = -1
    for each in (ordered := sorted(ranges)):
        if not 0 <= each.start <= each.end < SLOTS:
            raise ConsumerAssignError(
                f"range {each} of consumer {consumer!r} is not within 0 and {SLOTS - 1}",
                hint="both ends are included, the start comes first",
            )
        if each.start <= below:
            raise ConsumerAssignError(
                f"range {each} of consumer {consumer!r} overlaps with another one of its own",
                hint="name every slot once; both ends of a range are included",
            )
        below = each.end
    return ordered


class AutoSplitRanges(Generic[C]):
    """One region of slots for each consumer, by upper bounds, which rise up to the number of slots; a newcomer gets
    half of the widest. Joining and leaving again restores the map. Invariants (semantics I2.8): the regions are
    disjoint and cover all slots, each is at least one slot wide; a join takes from one consumer only, a leave gives to
    one only.

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


def make_selector(mode: KeySharedMode, settings: Settings) -> Selector[Consumer]:
    """An empty mapping."""
    if mode is KeySharedMode.STICKY:
        return StickyRanges(wanted_ranges)
    if settings.subscription_key_shared_use_consistent_hashing:
        points = settings.subscription_key_shared_consistent_hashing_replica_points
        return HashRing(settings.key_shared_hash_ring, points)
    return AutoSplitRanges(closed_upper=settings.key_shared_closed_upper_bounds)


def wanted_ranges(consumer: Consumer) -> list[HashRange]:
    """The slots that a consumer asked for."""
    return list(map(HashRange._make, consumer.request.key_shared.ranges))
