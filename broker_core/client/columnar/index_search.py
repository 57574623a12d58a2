# SPDX-License-Identifier: Apache-2.0
"""Finding the entry of a message index by asking for few entries. Pure: the owner fetches what ``guess`` names.

All that can be asked is "the first entry at or after a position". How many entries a ledger has is not known before
a guess has gone past its end. Invariant: the answer lies strictly between ``_low`` and ``_high``, and each answer
moves one of them, so the search ends; guesses are interpolated first and halved when that does not help.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker_core.base.positions import Position

INTERPOLATIONS_MAX: Final = 6
"""After this many interpolated guesses the range is halved, so that oddly spread indexes cannot make it long."""


class IndexedEntry(NamedTuple):
    """An entry and the indexes of its first and last message."""

    position: Position
    first: int
    last: int


class IndexSearch:
    """Looks for message ``index`` between the entries ``low`` and ``high``, in neither of which it is."""

    def __init__(self, index: int, low: IndexedEntry, high: IndexedEntry) -> None:
        self._index = index
        self._low = low
        self._high = high.position
        self._high_index = high.first
        self._answer: Position | None = None
        self._guesses = 0
        self._step = 1

    @property
    def answer(self) -> Position:
        """The entry, once ``guess`` gives None. If no entry holds the index, the one behind it."""
        return self._high if self._answer is None else self._answer

    def guess(self) -> Position | None:
        """The position to ask for next, or None when the search is over."""
        low = self._low.position
        if self._answer is not None or self._high <= Position(low.ledger, low.entry + 1):
            return None
        self._guesses += 1
        if low.ledger != self._high.ledger:
            return Position(low.ledger, low.entry + self._entries_ahead())
        room = self._high.entry - low.entry - 1
        if self._guesses > INTERPOLATIONS_MAX:
            ahead = room // 2
        else:
            ahead = (self._index - self._low.last - 1) * room // (self._high_index - self._low.last - 1)
        return Position(low.ledger, low.entry + 1 + min(ahead, room - 1))

    def found(self, guess: Position, entry: IndexedEntry | None) -> None:
        """``entry`` is the first at or after ``guess``."""
        if entry is None or entry.position >= self._high:
            self._high = guess
        elif entry.first > self._index:
            # Nothing lies between the guess and the entry, so the guess is the tighter bound.
            self._high, self._high_index = guess, entry.first
        elif entry.last < self._index:
            self._low = entry
        else:
            self._answer = entry.position

    def _entries_ahead(self) -> int:
        """Entries to go ahead in a ledger of unknown length: by the size of the last entry, at least twice as many as
        before.

        Going past the ledger's end is no loss, as it gives the first entry of the next one.
        """
        per_entry = self._low.last - self._low.first + 1
        self._step = max(2 * self._step, (self._index - self._low.last - 1) // per_entry + 1)
        return self._step
