# SPDX-License-Identifier: Apache-2.0
"""Where the messages or bytes of a range lie that no index tells: stretches of entries with a number of them each.

The numbers are counted or estimated; this does not care, and speaks of messages. Pure: ``counting`` finds them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from broker_core.base.positions import Position


class Stretch(NamedTuple):
    """Entries of one ledger that follow each other, and how many messages one of them has on average."""

    first: Position
    entries: int
    per_entry: float = 1.0


@dataclass(frozen=True, slots=True)
class EntryProfile:
    """The stretches of a range, in order."""

    stretches: tuple[Stretch, ...]

    @classmethod
    def counted(cls, positions: Sequence[Position], sums: Sequence[int]) -> EntryProfile:
        """The profile of entries that were counted; ``sums`` as in ``Counted``. Equal neighbours are one stretch."""
        found: list[Stretch] = []
        before = 0
        for position, total in zip(positions, sums, strict=True):
            size, before = total - before, total
            last = found[-1] if found else None
            if last is not None and last.per_entry == size and position == _behind(last):
                found[-1] = last._replace(entries=last.entries + 1)
            else:
                found.append(Stretch(position, 1, size))
        return cls(tuple(found))

    @property
    def entries(self) -> int:
        return sum(each.entries for each in self.stretches)

    @property
    def messages(self) -> int:
        return round(sum(each.entries * each.per_entry for each in self.stretches))

    @property
    def largest(self) -> float:
        """How many messages an entry has at most, on average of its stretch."""
        return max((each.per_entry for each in self.stretches), default=1.0)

    def __add__(self, other: EntryProfile) -> EntryProfile:
        return EntryProfile(self.stretches + other.stretches)

    def entry(self, number: int) -> Position:
        """The position of the entry with this number, counted from 0; there must be one."""
        for each in self.stretches:
            if number < each.entries:
                return Position(each.first.ledger, each.first.entry + number)
            number -= each.entries
        raise IndexError(number)

    def first_entries(self, count: int) -> EntryProfile:
        """The first so many entries."""
        return EntryProfile(tuple(_split(self.stretches, [0, count])[0])) if count else EntryProfile(())

    def within(self, messages: int) -> EntryProfile:
        """The first entries that have no more than so many messages together; one entry in any case."""
        found: list[Stretch] = []
        left = float(messages)
        for each in self.stretches:
            fitting = min(int(left / each.per_entry), each.entries)
            if fitting:
                found.append(each._replace(entries=fitting))
            if fitting < each.entries:
                break
            left -= fitting * each.per_entry
        return EntryProfile(tuple(found)) if found else self.first_entries(1)

    def sampled(self, per_entry: Sequence[float]) -> EntryProfile:
        """The profile of these entries by samples: one part for each sample, all of about equal length, with the size
        that was sampled."""
        bounds = part_bounds(self.entries, len(per_entry))
        parts = _split(self.stretches, bounds)
        return EntryProfile(
            tuple(each._replace(per_entry=size) for part, size in zip(parts, per_entry, strict=True) for each in part)
        )

    def cuts(self, pieces: int) -> list[Position]:
        """The entries at which to cut into so many pieces with nearly equal numbers of messages."""
        sizes = [each.entries * each.per_entry for each in self.stretches]
        ends = list(accumulate(sizes))
        if not ends:
            return []
        found = []
        for piece in range(1, pieces):
            target = ends[-1] * piece / pieces
            at = bisect_left(ends, target)
            each = self.stretches[at]
            inside = int((target - (ends[at] - sizes[at])) / each.per_entry)
            found.append(Position(each.first.ledger, each.first.entry + min(inside, each.entries - 1)))
        return found


def part_bounds(entries: int, parts: int) -> list[int]:
    """Where parts of nearly equal length begin and end."""
    return [entries * part // parts for part in range(parts + 1)]


def _behind(stretch: Stretch) -> Position:
    return Position(stretch.first.ledger, stretch.first.entry + stretch.entries)


def _split(stretches: Iterable[Stretch], bounds: Sequence[int]) -> list[list[Stretch]]:
    """The stretches between each two neighbouring ``bounds``, which are numbers of entries."""
    parts: list[list[Stretch]] = [[] for _ in bounds[1:]]
    passed = 0
    for each in stretches:
        for part, low, high in zip(parts, bounds, bounds[1:], strict=False):
            start, end = max(low - passed, 0), min(high - passed, each.entries)
            if start < end:
                first = Position(each.first.ledger, each.first.entry + start)
                part.append(each._replace(first=first, entries=end - start))
        passed += each.entries
    return parts
