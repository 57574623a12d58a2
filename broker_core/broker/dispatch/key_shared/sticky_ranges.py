# SPDX-License-Identifier: Apache-2.0
"""``StickyRanges``: each consumer brings the slots it asks for; no other may have them while it is there.

Slots that no consumer brought are holes. Ranges include both ends, as on the wire. Nothing moves when others come or
go, so no consumer ever loses a slot (semantics I2.10). Source: Pulsar docs, "Key_Shared - sticky"; semantics 2.8.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from typing import Generic

from broker_core.base.errors import ConsumerAssignError
from broker_core.broker.dispatch.key_shared.selector import SLOTS, C, Hashes, HashRange, joined, slot_of


class StickyRanges(Generic[C]):
    """Ranges in order, and the consumer that brought each. ``ranges_of``: the ranges that a consumer asks for."""

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
