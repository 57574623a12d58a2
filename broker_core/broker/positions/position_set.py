# SPDX-License-Identifier: Apache-2.0
"""``PositionSet``: an ordered set of entries, one compressed bitmap for each ledger.

Used for what was acknowledged out of order and for what waits to be sent again. It knows nothing of which entries exist
or of gaps between ledgers. Every operation on one entry costs the same however many entries or holes there are.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pyroaring import BitMap

from broker_core.base.positions import Position

_GALLOP_START = 64


class Run(NamedTuple):
    """Neighbouring entries ``first`` to ``last``, both included, of one ledger."""

    ledger: int
    first: int
    last: int


class PositionSet:
    """A set of positions. Invariants: no empty bitmap is kept; ``len`` is the number of entries, always exact."""

    __slots__ = ("_bitmaps", "_count", "_ledgers")

    def __init__(self) -> None:
        self._bitmaps: dict[int, BitMap] = {}
        self._ledgers: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, position: Position) -> bool:
        bitmap = self._bitmaps.get(position[0])
        return bitmap is not None and position[1] in bitmap

    def __iter__(self) -> Iterator[Position]:
        for ledger in self._ledgers:
            for entry in self._bitmaps[ledger]:
                yield Position(ledger, entry)

    def add(self, position: Position) -> bool:
        """Put one entry in; false if it was there."""
        ledger, entry = position
        bitmap = self._bitmaps.get(ledger)
        if bitmap is None:
            self._bitmaps[ledger] = BitMap((entry,))
            insort(self._ledgers, ledger)
        elif entry in bitmap:
            return False
        else:
            bitmap.add(entry)
        self._count += 1
        return True

    def add_all(self, ledger: int, entries: Sequence[int]) -> bool:
        """Put entries (at least one) of one ledger in; false if all of them were there."""
        bitmap = self._bitmaps.get(ledger)
        if bitmap is None:
            bitmap = self._bitmaps[ledger] = BitMap()
            insort(self._ledgers, ledger)
        before = len(bitmap)
        bitmap.update(entries)
        added = len(bitmap) - before
        self._count += added
        return added > 0

    def replace(self, bitmaps: Mapping[int, BitMap]) -> None:
        """Forget everything and hold copies of these bitmaps."""
        self._bitmaps = {ledger: bitmap.copy() for ledger, bitmap in bitmaps.items() if bitmap}
        self._ledgers = sorted(self._bitmaps)
        self._count = sum(len(bitmap) for bitmap in self._bitmaps.values())

    def discard(self, position: Position) -> bool:
        """Take one entry out; false if it was not there."""
        ledger, entry = position
        bitmap = self._bitmaps.get(ledger)
        if bitmap is None or entry not in bitmap:
            return False
        bitmap.discard(entry)
        self._count -= 1
        if not bitmap:
            self._drop(ledger)
        return True

    def discard_through(self, position: Position) -> None:
        """Take out every entry up to and including ``position``."""
        ledger, entry = position
        while self._ledgers and self._ledgers[0] < ledger:
            self._drop(self._ledgers[0])
        bitmap = self._bitmaps.get(ledger)
        if bitmap is not None and entry >= 0:
            self._remove_range(ledger, 0, entry + 1)

    def discard_after(self, position: Position) -> None:
        """Take out every entry after ``position``."""
        ledger, entry = position
        while self._ledgers and self._ledgers[-1] > ledger:
            self._drop(self._ledgers[-1])
        bitmap = self._bitmaps.get(ledger)
        if bitmap is not None:
            self._remove_range(ledger, entry + 1, bitmap.max() + 1)

    def clear(self) -> None:
        self._bitmaps.clear()
        self._ledgers.clear()
        self._count = 0

    def first(self) -> Position | None:
        """The lowest entry, or None when empty."""
        if not self._ledgers:
            return None
        ledger = self._ledgers[0]
        return Position(ledger, self._bitmaps[ledger].min())

    def last(self) -> Position | None:
        """The highest entry, or None when empty."""
        if not self._ledgers:
            return None
        ledger = self._ledgers[-1]
        return Position(ledger, self._bitmaps[ledger].max())

    def count_through(self, position: Position) -> int:
        """How many entries are at or before ``position``."""
        ledger, entry = position
        total = 0
        for each in self._ledgers:
            if each > ledger:
                break
            bitmap = self._bitmaps[each]
            total += len(bitmap) if each < ledger else bitmap.rank(entry) if entry >= 0 else 0
        return total

    def run_end(self, start: Position) -> Position | None:
        """The last entry of the unbroken run that begins at ``start``, in its ledger; None if ``start`` is absent."""
        ledger, entry = start
        bitmap = self._bitmaps.get(ledger)
        if bitmap is None or entry not in bitmap:
            return None
        return Position(ledger, _last_of_run(bitmap, entry))

    def runs(self) -> Iterator[Run]:
        """All maximal runs in order. The set must not change meanwhile."""
        for ledger in self._ledgers:
            bitmap = self._bitmaps[ledger]
            entry = bitmap.min()
            while True:
                last = _last_of_run(bitmap, entry)
                yield Run(ledger, entry, last)
                if last >= bitmap.max():
                    break
                entry = bitmap.next_set_bit(last + 1)

    def runs_count(self) -> int:
        """How many maximal runs there are, without walking over them."""
        return sum(bitmap.difference_cardinality(bitmap.shift(1)) for bitmap in self._bitmaps.values())

    def bitmaps(self) -> dict[int, BitMap]:
        """Copies of the bitmaps, for storing."""
        return {ledger: bitmap.copy() for ledger, bitmap in self._bitmaps.items()}

    def _remove_range(self, ledger: int, start: int, end: int) -> None:
        bitmap = self._bitmaps[ledger]
        before = len(bitmap)
        bitmap.remove_range(start, end)
        self._count -= before - len(bitmap)
        if not bitmap:
            self._drop(ledger)

    def _drop(self, ledger: int) -> None:
        self._count -= len(self._bitmaps.pop(ledger))
        del self._ledgers[bisect_left(self._ledgers, ledger)]


def _last_of_run(bitmap: BitMap, entry: int) -> int:
    """Gallop, then halve: runs of millions cost a handful of look-ups, runs of one cost one."""
    end = entry + 1
    if end not in bitmap:
        return entry
    step = _GALLOP_START
    while bitmap.contains_range(end, end + step):
        end += step
        step *= 2
    while step > 1:
        half = step // 2
        if bitmap.contains_range(end, end + half):
            end += half
            step -= half
        else:
            step = half
    return end - 1
