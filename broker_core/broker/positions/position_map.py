# SPDX-License-Identifier: Apache-2.0
"""``PositionMap``: what is remembered of single entries, one dictionary of entry ids for each ledger.

Used for what every entry goes through on its way out and back: its consumer, its open messages, its hash. A number
is hashed in a fraction of the time that a ``Position`` takes, and entries that travel together share a ledger, so many
can be put in or taken out at a time without making a ``Position`` of each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice, repeat
from typing import Generic, TypeVar

from broker_core.base.positions import Position, positions_of

V = TypeVar("V")
D = TypeVar("D")


class PositionMap(Generic[V]):
    """Position -> value, ledger by ledger in the order in which they came. Invariant: no empty dictionary is kept."""

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
        theirs = self._ledgers.get(ledger)
        if theirs is None:
            theirs = self._ledgers[ledger] = {}
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
