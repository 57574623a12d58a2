# SPDX-License-Identifier: Apache-2.0
"""``PendingAcks``: the entries that one consumer was given and has not acknowledged.

Used where entries are acknowledged one by one (Shared). Invariant: ``unacked`` is the sum of the messages left in all
entries here and never negative (semantics I3.8).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, islice

from broker_core.base.positions import Position
from broker_core.broker.positions.position_map import PositionMap


class PendingAcks:
    """Position -> messages of the entry that are still unacknowledged."""

    __slots__ = ("_messages", "unacked")

    def __init__(self) -> None:
        self._messages: PositionMap[int] = PositionMap()
        self.unacked = 0

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, position: Position) -> bool:
        return position in self._messages

    def __iter__(self) -> Iterator[Position]:
        return iter(self._messages)

    def of_ledger(self, ledger: int) -> dict[int, int]:
        """The entries of one ledger, for a book that puts at least one in and adds its messages to ``unacked``."""
        return self._messages.of_ledger(ledger)

    def remove(self, position: Position) -> int:
        """The whole entry is acknowledged, or taken back; how many messages of it were open, 0 if it was not here."""
        messages = self._messages.pop(position) or 0
        self.unacked -= messages
        return messages

    def remove_all(self, ledger: int, entries: Sequence[int]) -> list[int]:
        """``remove`` of many of one ledger; those that were not here."""
        gone = self._messages.pop_all(ledger, entries, 0)
        self.unacked -= sum(gone)
        if all(gone):
            return []
        return [entry for entry, messages in zip(entries, gone, strict=True) if not messages]

    def reduce(self, position: Position, remaining: int) -> int:
        """Only ``remaining`` (> 0) messages of the entry, which is in here, are still open. Returns how many were
        closed."""
        messages = self._messages[position]
        gone = max(0, messages - remaining)
        self._messages[position] = messages - gone
        self.unacked -= gone
        return gone

    def take_first(self, most: int) -> list[Position]:
        """Take out up to ``most`` entries, those that came first, and return them."""
        positions = list(islice(self._messages, most))
        for ledger, run in groupby(positions, lambda position: position.ledger):
            self.unacked -= sum(self._messages.pop_all(ledger, [position.entry for position in run], 0))
        return positions
