# SPDX-License-Identifier: Apache-2.0
"""``WaitingKeys``: entries that were read and cannot be sent yet, by what they wait for.

An entry waits either for room at the owner of its hash (``queues``) or for its hash to drain (``stalled``). The
caller knows the owner of a hash; it must name the same owner when it takes an entry out as when it put it in, so when
the mapping changes it puts those entries anew that have another owner then. Source: semantics 2.9 (look-ahead), 2.11.
"""

from __future__ import annotations

from broker_core.base.positions import Position
from broker_core.broker.consumer import Consumer
from broker_core.broker.positions.position_set import PositionSet


class WaitingKeys:
    """Positions by consumer and by hash. Invariant: ``entries_of`` counts exactly what is in both; no empty set.

    A hash is in ``entries_of`` if any entry of it waits: later ones must not overtake it.
    """

    def __init__(self) -> None:
        self.queues: dict[Consumer, PositionSet] = {}
        self._stalled: dict[int, PositionSet] = {}
        self.entries_of: dict[int, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, position: Position, hash_: int, owner: Consumer, *, stalled: bool) -> None:
        """``position`` waits for ``owner``, or first of all for its hash to drain."""
        found = self._stalled.get(hash_) if stalled else self.queues.get(owner)
        if found is None:
            found = PositionSet()
            if stalled:
                self._stalled[hash_] = found
            else:
                self.queues[owner] = found
        if found.add(position):
            self.entries_of[hash_] = self.entries_of.get(hash_, 0) + 1
            self._count += 1

    def discard(self, position: Position, hash_: int, owner: Consumer | None) -> None:
        """``position`` waits no more; harmless if it did not."""
        stalled = self._stalled.get(hash_)
        if stalled is not None and stalled.discard(position):
            if not stalled:
                del self._stalled[hash_]
        else:
            queue = self.queues.get(owner) if owner is not None else None
            if queue is None or not queue.discard(position):
                return
            if not queue:
                del self.queues[owner]  # type: ignore[arg-type] # it has a queue, so it is not None
        self._count -= 1
        left = self.entries_of[hash_] - 1
        if left:
            self.entries_of[hash_] = left
        else:
            del self.entries_of[hash_]

    def release(self, hash_: int, owner: Consumer) -> bool:
        """The hash has drained: what waited for that goes to ``owner``; false if nothing did."""
        stalled = self._stalled.pop(hash_, None)
        if stalled is None:
            return False
        queue = self.queues.setdefault(owner, PositionSet())
        for position in stalled:
            queue.add(position)
        return True

    def stalled(self) -> list[int]:
        """The hashes that have to drain before what waits of them can go."""
        return list(self._stalled)
