# SPDX-License-Identifier: Apache-2.0
"""``MessageSet``: whole entries and single messages of batches, by position.

Whole entries are bitmaps, a bit or two for each; batches of which a part is in it have an integer each, bit i for the
message of batch index i. Knows neither how many messages an entry has nor which entries exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker_core.base.positions import Position
from broker_core.broker.positions import PositionSet

WHOLE: Final = -1
"""The bits of a whole entry, however many messages it has: all are 1."""


class MessageSet:
    """A set of messages. Invariants: no entry is in both parts; no batch has no bits."""

    __slots__ = ("batches", "whole")

    def __init__(self) -> None:
        self.whole = PositionSet()
        self.batches: dict[Position, int] = {}

    def __bool__(self) -> bool:
        return bool(self.whole) or bool(self.batches)

    def __len__(self) -> int:
        """How many entries have a message in it."""
        return len(self.whole) + len(self.batches)

    def get(self, position: Position) -> int:
        """The messages of one entry."""
        return WHOLE if position in self.whole else self.batches.get(position, 0)

    def add(self, position: Position, bits: int) -> None:
        """Put messages of one entry in."""
        bits |= self.get(position)
        if bits == WHOLE:
            self.batches.pop(position, None)
            self.whole.add(position)
        elif bits:
            self.batches[position] = bits

    def remove(self, position: Position, bits: int = WHOLE) -> None:
        """Take messages of one entry out, as far as they are in it. Only the whole of a whole entry can be taken."""
        if bits == WHOLE:
            self.whole.discard(position)
        left = self.batches.pop(position, 0) & ~bits
        if left:
            self.batches[position] = left

    def remove_through(self, position: Position) -> None:
        """Take out everything up to and including ``position``."""
        self.whole.discard_through(position)
        for each in [each for each in self.batches if each <= position]:
            del self.batches[each]

    def items(self) -> Iterator[tuple[Position, int]]:
        """Each entry with its messages; whole entries first, both in order. The set must not change meanwhile."""
        for position in self.whole:
            yield position, WHOLE
        for position in sorted(self.batches):
            yield position, self.batches[position]

    def clear(self) -> None:
        self.whole.clear()
        self.batches.clear()
