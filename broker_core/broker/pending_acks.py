# SPDX-License-Identifier: Apache-2.0
"""``PendingAcks``: the entries that one consumer was given and has not acknowledged.

Used where entries are acknowledged one by one (Shared). Invariant: ``unacked`` is the sum of the messages left in all
entries here and never negative (semantics I3.8). Entries stay in the order in which they were given.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker_core.base.invariants import invariant
from broker_core.base.positions import Position


class PendingAcks:
    """Position -> messages of the entry that are still unacknowledged."""

    __slots__ = ("_messages", "unacked")

    def __init__(self) -> None:
        self._messages: dict[Position, int] = {}
        self.unacked = 0

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, position: Position) -> bool:
        return position in self._messages

    def __iter__(self) -> Iterator[Position]:
        return iter(self._messages)

    def add(self, position: Position, messages: int) -> None:
        invariant(position not in self._messages, "%s was given twice to one consumer", position)
        self._messages[position] = messages
        self.unacked += messages

    def remove(self, position: Position) -> bool:
        """The whole entry is acknowledged, or taken back; false if it was not here."""
        messages = self._messages.pop(position, None)
        if messages is None:
            return False
        self.unacked -= messages
        return True

    def reduce(self, position: Position, remaining: int) -> bool:
        """Some of the entry's messages are acknowledged, ``remaining`` (> 0) are not; false if it was not here."""
        messages = self._messages.get(position)
        if messages is None:
            return False
        remaining = min(remaining, messages)
        self._messages[position] = remaining
        self.unacked -= messages - remaining
        return True

    def take_all(self) -> list[Position]:
        """Empty it and return what was in it."""
        positions = list(self._messages)
        self._messages.clear()
        self.unacked = 0
        return positions
