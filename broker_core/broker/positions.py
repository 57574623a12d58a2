# SPDX-License-Identifier: Apache-2.0
"""Sets and maps of entries. ``PositionSet``: an ordered set, one compressed bitmap for each ledger.

Sets have the entries that were acknowledged out of order, and those that wait to be sent again. They know nothing of
which entries exist or of gaps between ledgers. Every operation on one entry costs the same however many entries or
holes there are.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice, repeat
from typing import Generic, NamedTuple, TypeVar

from pyroaring import BitMap

from broker_core.base.positions import Position, positions_of

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

    def add_all(self, ledger: int, entries: Sequence[int] | BitMap) -> bool:
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
        return Position(ledger, last_of_run(bitmap, entry))

    def run_start(self, end: Position) -> Position | None:
        """The first entry of the unbroken run that ends with ``end``, in its ledger; None if ``end`` is absent."""
        ledger, entry = end
        bitmap = self._bitmaps.get(ledger)
        if bitmap is None or entry < 0 or entry not in bitmap:
            return None
        # Members up to ``entry`` less their distance from it are equal along a run: halve for where that ends.
        rank = bitmap.rank(entry)
        low, high = max(0, rank - 1 - entry), rank - 1
        while low < high:
            half = (low + high) // 2
            if bitmap[half] == entry - (rank - 1 - half):
                high = half
            else:
                low = half + 1
        return Position(ledger, bitmap[low])

    def runs(self) -> Iterator[Run]:
        """All maximal runs in order. The set must not change meanwhile."""
        for ledger in self._ledgers:
            bitmap = self._bitmaps[ledger]
            entry = bitmap.min()
            while True:
                last = last_of_run(bitmap, entry)
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


def last_of_run(bitmap: BitMap, entry: int) -> int:
    """The last entry of the unbroken run in which ``entry`` is. Gallop, then halve: runs of millions cost a handful of
    look-ups, runs of one cost one."""
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


V = TypeVar("V")
D = TypeVar("D")


class PositionMap(Generic[V]):
    """Position -> value, ledger by ledger in the order in which they came. Invariant: no empty dictionary is kept.

    Used for what every entry goes through on its way out and back: its consumer, its open messages, its hash. A number
    is hashed in a fraction of the time that a ``Position`` takes, and entries that travel together share a ledger, so
    many can be put in or taken out at a time without making a ``Position`` of each.
    """

    __slots__ = ("_ledgers",)

    def __init__(self) -> None:
        self._ledgers: dict[int, dict[int, V]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._ledgers.values()))

    def __contains__(self, position: Position) -> bool:
        ledger, entry = position
        return ledger in self._ledgers and entry in self._ledgers[ledger]

    def __iter__(self) -> Iterator[Position]:
        for ledger, values in self._ledgers.items():
            for entry in values:
                yield Position(ledger, entry)

    def __getitem__(self, position: Position) -> V:
        ledger, entry = position
        return self._ledgers[ledger][entry]

    def __setitem__(self, position: Position, value: V) -> None:
        ledger, entry = position
        self._ledgers.setdefault(ledger, {})[entry] = value

    def get(self, position: Position) -> V | None:
        """The value, None if there is none."""
        ledger, entry = position
        values = self._ledgers.get(ledger)
        return None if values is None else values.get(entry)

    def pop(self, position: Position) -> V | None:
        """Take one out and return its value, None if there was none."""
        ledger, entry = position
        values = self._ledgers.get(ledger)
        if values is None:
            return None
        value = values.pop(entry, None)
        if not values:
            del self._ledgers[ledger]
        return value

    def of_ledger(self, ledger: int) -> dict[int, V]:
        """The entries of one ledger, into which at least one is put next."""
        values = self._ledgers.get(ledger)
        if values is None:
            values = self._ledgers[ledger] = {}
        return values

    def put_all(self, ledger: int, entries: Sequence[int], values: Sequence[V]) -> bool:
        """Put entries (at least one) of one ledger in, each with its value; whether none of them was there."""
        theirs = self.of_ledger(ledger)
        before = len(theirs)
        theirs.update(zip(entries, values, strict=True))
        return len(theirs) == before + len(entries)

    def get_all(self, ledger: int, entries: Iterable[int]) -> list[V]:
        """The values of entries of one ledger, which are in it."""
        return list(map(self._ledgers[ledger].__getitem__, entries))

    def pop_all(self, ledger: int, entries: Sequence[int], default: D) -> list[V | D]:
        """Take entries of one ledger out and return their values, ``default`` for those that had none."""
        values = self._ledgers.get(ledger)
        if values is None:
            return [default] * len(entries)
        popped = list(map(values.pop, entries, repeat(default)))
        if not values:
            del self._ledgers[ledger]
        return popped

    def forget_all(self, ledger: int, entries: Iterable[int]) -> None:
        """Take entries of one ledger out, those that are in it."""
        values = self._ledgers.get(ledger)
        if values is not None:
            deque(map(values.pop, entries, repeat(None)), maxlen=0)
            if not values:
                del self._ledgers[ledger]

    def forget_through(self, position: Position) -> None:
        """Take out everything up to and including ``position``."""
        for ledger in [each for each in self._ledgers if each < position.ledger]:
            del self._ledgers[ledger]
        if position.ledger in self._ledgers:
            self.forget_all(position.ledger, list(filter(position.entry.__ge__, self._ledgers[position.ledger])))

    def first_through(self, position: Position, most: int) -> list[Position]:
        """Up to ``most`` of those up to and including ``position``, those that came first."""
        found: list[Position] = []
        for ledger, values in self._ledgers.items():
            if ledger <= position.ledger:
                wanted = values if ledger < position.ledger else filter(position.entry.__ge__, values)
                found += positions_of(ledger, list(islice(wanted, most - len(found))))
        return found

    def items(self) -> Iterator[tuple[Position, V]]:
        """All of it. The map must not change meanwhile."""
        for ledger, values in self._ledgers.items():
            for entry, value in values.items():
                yield Position(ledger, entry), value

    def clear(self) -> None:
        self._ledgers.clear()


class PendingAcks(PositionMap[int]):
    """The entries that one consumer was given and has not acknowledged, each with its unacknowledged messages.

    Invariant: ``unacked`` is the sum of the messages left in all entries here and never negative (semantics I3.8).
    Entries are put in by ``of_ledger``; the caller adds their messages to ``unacked``.
    """

    __slots__ = ("unacked",)

    def __init__(self) -> None:
        super().__init__()
        self.unacked = 0

    def remove(self, position: Position) -> int:
        """The whole entry is acknowledged, or taken back; how many messages of it were open, 0 if it was not here."""
        messages = self.pop(position) or 0
        self.unacked -= messages
        return messages

    def remove_all(self, ledger: int, entries: Sequence[int]) -> list[int]:
        """``remove`` of many of one ledger; those that were not here."""
        gone = self.pop_all(ledger, entries, 0)
        self.unacked -= sum(gone)
        if all(gone):
            return []
        return [entry for entry, messages in zip(entries, gone, strict=True) if not messages]

    def reduce(self, position: Position, remaining: int) -> int:
        """Only ``remaining`` (> 0) messages of the entry, which is in here, are still open. Returns how many were
        closed."""
        messages = self[position]
        gone = max(0, messages - remaining)
        self[position] = messages - gone
        self.unacked -= gone
        return gone

    def take_first(self, most: int) -> list[Position]:
        """Take out up to ``most`` entries, those that came first, and return them."""
        positions = list(islice(self, most))
        for ledger, run in groupby(positions, lambda position: position.ledger):
            self.unacked -= sum(self.pop_all(ledger, [position.entry for position in run], 0))
        return positions
