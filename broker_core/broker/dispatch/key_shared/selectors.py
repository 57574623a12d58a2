# SPDX-License-Identifier: Apache-2.0
"""``Selector``: a mapping from keys to consumers, for Key_Shared; its three kinds, and the one that serves a policy.

A mapping turns the sticky key of an entry into a number, its hash, and says which consumer owns that hash. A hash is a
slot of 65,536 or a point of a ring, which is the mapping's own business; equal keys have equal hashes. Mappings know
nothing of entries, permits or time. Source: PIP-34, PIP-119, PIP-379; Pulsar docs, "Key_Shared - sticky"; semantics 2.5
to 2.8, 10 (decisions 2, 6, 8).
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import count
from typing import Final, Generic, Literal, NamedTuple, Protocol, TypeVar

from pyroaring import BitMap

from broker_core.base.errors import ConsumerAssignError
from broker_core.base.hashing import INT31_MASK, murmur3_31, murmur3_unsigned
from broker_core.base.settings import Settings
from broker_core.broker.consumer import Consumer
from broker_core.broker.requests import KeySharedMode

SLOTS: Final = 1 << 16
"""How many slots there are where a mapping divides slots."""

_SLOT_MASK: Final = SLOTS - 1


class Named(Protocol):
    """A consumer as mappings see it: an object that is only equal to itself, with a name."""

    @property
    def name(self) -> str: ...


C = TypeVar("C", bound=Named)


class HashRange(NamedTuple):
    """The hashes ``start`` to ``end``, both included."""

    start: int
    end: int

    def __str__(self) -> str:
        """As in Pulsar's statistics."""
        return f"[{self.start}, {self.end}]"


class Hashes(Protocol):
    """A set of hashes; ``in`` is all that it has to answer."""

    def __contains__(self, hash_: int, /) -> bool: ...


class Selector(Protocol[C]):
    """Owners of hashes."""

    def hash_of(self, key: bytes) -> int:
        """The hash of a sticky key."""

    def select(self, hash_: int) -> C | None:
        """The consumer that owns it; None if none does."""

    def add(self, consumer: C) -> Collection[C]:
        """Let a consumer in; those that lost hashes to it. ConsumerAssignError: refused, and nothing has changed."""

    def remove(self, consumer: C) -> Collection[C]:
        """Let it go; others that lost hashes by it, which happens only where points of a ring are shared."""

    def hashes_of(self, consumer: C) -> Hashes:
        """The hashes of a member, and perhaps more where a point of a ring is shared."""

    def ranges(self) -> list[tuple[HashRange, C]]:
        """Ranges and their owners, in order, neighbours of one owner joined. Computed by each call, for statistics."""


def slot_of(key: bytes) -> int:
    """Slot of a sticky key, 1 to 65535. Slot 0 never occurs, its keys are in slot 1, as in Pulsar 4."""
    return murmur3_unsigned(key) & _SLOT_MASK or 1


def joined(ranges: Iterable[tuple[HashRange, C]]) -> list[tuple[HashRange, C]]:
    """Touching ranges of one owner as one; ``ranges`` are in order."""
    result: list[tuple[HashRange, C]] = []
    for each, owner in ranges:
        if each.start > each.end:
            continue
        if result and result[-1][1] is owner and result[-1][0].end + 1 == each.start:
            result[-1] = (HashRange(result[-1][0].start, each.end), owner)
        else:
            result.append((each, owner))
    return result


logger = logging.getLogger(__name__)

RingForm = Literal["v4", "v3", "docs"]

POINTS: Final = 100
"""Points of one consumer, unless set otherwise; Pulsar's number."""

_NO_POINTS: Final = array("I")


class HashRing(Generic[C]):
    """Consistent hashing: each consumer has many points on a ring; a hash belongs to the next point. ``points``: how
    many each consumer has. Three forms differ in the points and in the owner of one on which two consumers meet:

    - ``v4`` (Pulsar 4): 65,535 places; of several consumers on a place the first to come owns it, the others queue.
    - ``v3`` (Pulsar 2.8 to 3): 2^31 places, points numbered from 0; consumers on one place share it by hash.
    - ``docs`` (Pulsar's documentation): as ``v3``, points numbered from 1.

    Consumers of the same name get an index each, the lowest that is free, so that none is left without points.
    Invariants (semantics I2.9): a join moves hashes only to the newcomer, a leave only those of the leaver; on a shared
    point (not ``v4``) they may also move among those that stay.

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
