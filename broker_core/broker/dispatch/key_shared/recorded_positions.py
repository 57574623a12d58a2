# SPDX-License-Identifier: Apache-2.0
"""``RecordedPositions``: newcomers wait until everything that was read before they came is acknowledged.

The older guard of key order, for ``subscriptionKeySharedUseClassicPersistentImplementation``. A consumer that does not
acknowledge holds up all newcomers, which is why ``draining`` is the default. Invariant (semantics I2.14): a newcomer
gets nothing at or after its recorded position before all below that is acknowledged. Source: PIP-34; semantics 2.9,
variant 1.
"""

from __future__ import annotations

from broker_core.base.positions import Position
from broker_core.broker.consumer import Consumer


class RecordedPositions:
    """Newcomer -> read position when it joined; the positions rise in the order of joining."""

    def __init__(self) -> None:
        self._joined_at: dict[Consumer, Position] = {}

    def __len__(self) -> int:
        return len(self._joined_at)

    def __contains__(self, consumer: Consumer) -> bool:
        """Whether ``consumer`` is a newcomer that must wait."""
        return consumer in self._joined_at

    def record(self, consumer: Consumer, read_position: Position) -> None:
        """``consumer`` joined while others had something to acknowledge."""
        self._joined_at[consumer] = read_position

    def forget(self, consumer: Consumer) -> None:
        self._joined_at.pop(consumer, None)

    def clear(self) -> None:
        self._joined_at.clear()

    @property
    def gate(self) -> Position | None:
        """What any newcomer may be sent lies below this; None: there is no newcomer."""
        return min(self._joined_at.values(), default=None)

    def limit(self, consumer: Consumer) -> Position | None:
        """What ``consumer`` may be sent lies below this; None: anything."""
        return self.gate if consumer in self._joined_at else None

    def advance(self, first_unacked: Position) -> bool:
        """Everything below ``first_unacked`` is acknowledged; true if that lets anybody go on."""
        free = [consumer for consumer, position in self._joined_at.items() if position <= first_unacked]
        for consumer in free:
            del self._joined_at[consumer]
        return bool(free)

    def items(self) -> dict[Consumer, Position]:
        """Each newcomer with its recorded position, for statistics."""
        return dict(self._joined_at)
