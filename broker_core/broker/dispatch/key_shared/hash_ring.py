# SPDX-License-Identifier: Apache-2.0
"""``HashRing``: consistent hashing. Each consumer has many points on a ring; a hash belongs to the next point.

Three forms, which differ in the points and in what happens when two consumers meet on one:

- ``v4`` (Pulsar 4): 65,535 places; of several consumers on a place the first to come owns it, the others queue.
- ``v3`` (Pulsar 2.8 to 3): 2^31 places, points numbered from 0; consumers on one place share it by hash.
- ``docs`` (Pulsar's documentation): as ``v3``, points numbered from 1.

Consumers of the same name get an index each, the lowest that is free, so that none is left without points.
Invariants (semantics I2.9): a join moves hashes only to the newcomer, a leave only those of the leaver; on a shared
point (not ``v4``) they may also move among those that stay.
Source: PIP-119, PIP-379; semantics 2.7.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left, insort
from collections.abc import Callable, Collection
from itertools import count
from typing import Final, Generic, Literal

from pyroaring import BitMap

from broker_core.base.hashing import INT31_MASK, murmur3_31
from broker_core.broker.dispatch.key_shared.selector import SLOTS, C, Hashes, HashRange, joined

logger = logging.getLogger(__name__)

RingForm = Literal["v4", "v3", "docs"]

POINTS: Final = 100
"""Points of one consumer, unless set otherwise; Pulsar's number."""

_NO_POINTS: Final = array("I")


class HashRing(Generic[C]):
    """Points in order, and the consumers on each. ``points``: how many each consumer has.

    With a thousand consumers there are tens of thousands of points: a join puts its own into a bitmap, and the array
    in which hashes are looked up is made when the next one is.
    """

    def __init__(self, form: RingForm = "v4", points: int = POINTS) -> None:
        self._form = form
        self.hash_of: Callable[[bytes], int] = _place_of if form == "v4" else murmur3_31
        self._numbers = range(1, points + 1) if form == "docs" else range(points)
        self._first_comer_owns = form == "v4"
        self._lowest, self._highest = (1, SLOTS - 1) if form == "v4" else (0, INT31_MASK)
        self._points = BitMap()
        self._in_order = _NO_POINTS
        self._at: dict[int, list[C]] = {}
        self._names: dict[C, tuple[str, int]] = {}
        self._points_taken: dict[C, list[int]] = {}

    def select(self, hash_: int) -> C | None:
        points = self._in_order or self._put_in_order()
        if not points:
            return None
        index = bisect_left(points, hash_)
        here = self._at[points[index] if index < len(points) else points[0]]
        return here[0] if self._first_comer_owns or len(here) == 1 else here[hash_ % len(here)]

    def points_of(self, consumer: C) -> list[int]:
        """Where a member stands, by number of the point."""
        name, index = self._names[consumer]
        if self._form == "v4":
            return [self.hash_of(f"{name}\0{index}\0{number}".encode()) for number in self._numbers]
        label = f"{name}\0{index}" if index else name
        return [self.hash_of(f"{label}{number}".encode()) for number in self._numbers]

    def add(self, consumer: C) -> Collection[C]:
        taken = {index for name, index in self._names.values() if name == consumer.name}
        self._names[consumer] = (consumer.name, next(index for index in count() if index not in taken))
        points = self._points_taken[consumer] = list(dict.fromkeys(self.points_of(consumer)))
        losers: dict[C, None] = {}
        owned = 0
        for point in points:
            here = self._at.get(point)
            if here is not None:
                if not self._first_comer_owns:
                    losers.update(dict.fromkeys(here))
                    insort(here, consumer, key=self._names.__getitem__)
                    owned += 1
                else:
                    here.append(consumer)
                continue
            owned += 1
            if self._points:
                behind = self._points.next_set_bit(point) if point < self._points.max() else self._points.min()
                former = self._at[behind]
                losers.update(dict.fromkeys(former[:1] if self._first_comer_owns else former))
            self._points.add(point)
            self._at[point] = [consumer]
        self._in_order = _NO_POINTS
        if not owned:
            logger.error("consumer without points on the hash ring gets no messages consumer=%s", consumer.name)
        losers.pop(consumer, None)
        return list(losers)

    def remove(self, consumer: C) -> Collection[C]:
        losers: dict[C, None] = {}
        for point in self._points_taken.pop(consumer):
            here = self._at[point]
            here.remove(consumer)
            if not here:
                del self._at[point]
                self._points.discard(point)
            elif not self._first_comer_owns and len(here) > 1:
                losers.update(dict.fromkeys(here))
        self._in_order = _NO_POINTS
        del self._names[consumer]
        return list(losers)

    def hashes_of(self, consumer: C) -> Hashes:
        points = self._in_order or self._put_in_order()
        hashes = BitMap()
        for point in self._points_taken[consumer]:
            if self._first_comer_owns and self._at[point][0] is not consumer:
                continue
            index = bisect_left(points, point)
            if index:
                hashes.add_range(points[index - 1] + 1, point + 1)
            else:
                hashes.add_range(0, point + 1)
                hashes.add_range(points[-1] + 1, self._highest + 1)
        return hashes

    def ranges(self) -> list[tuple[HashRange, C]]:
        """As ``Selector.ranges``; a shared point is shown with the first of those that share it."""
        if not self._points:
            return []
        first = self._at[self._points.min()][0]
        arcs: list[tuple[HashRange, C]] = []
        below = self._lowest - 1
        for point in self._points:
            arcs.append((HashRange(below + 1, point), self._at[point][0]))
            below = point
        return joined([*arcs, (HashRange(below + 1, self._highest), first)])

    def _put_in_order(self) -> array[int]:
        self._in_order = self._points.to_array()
        return self._in_order


def _place_of(key: bytes) -> int:
    """The hash of ``key`` on a ring of Pulsar 4: a slot but for the first."""
    return murmur3_31(key) % (SLOTS - 1) + 1
