# SPDX-License-Identifier: Apache-2.0
"""What every waiting room can do: it keeps the entries that were read and that no consumer holds (semantics 2.4.5).

Each way of dealing has a room of its own: ``chunk_affinity.SharedWaitingRoom`` and
``key_shared.waiting_room.KeyWaitingRoom``. Rooms know positions, not permits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from broker_core.base.positions import Position


class WaitingRoom(Protocol):
    """The waiting entries of one subscription. ``GivenOut`` and the dealer move entries in and out."""

    def __len__(self) -> int:
        """How many wait."""
        ...

    def add(self, position: Position) -> None:
        """An entry that no consumer holds any more waits to be sent again."""
        ...

    def take(self, ledger: int, entries: Sequence[int]) -> None:
        """These entries were given to consumers. Those of them that waited here wait no more."""
        ...

    def discard(self, position: Position) -> None:
        """The entry need not be sent any more. Harmless if it does not wait."""
        ...

    def discard_through(self, mark_delete: Position, most: int) -> bool:
        """Entries up to ``mark_delete`` need not be sent any more: take up to ``most`` of them out. Whether that was
        all."""
        ...
