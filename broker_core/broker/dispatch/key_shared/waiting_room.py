# SPDX-License-Identifier: Apache-2.0
"""``KeyWaitingRoom``: the entries of a Key_Shared subscription that were read and that no consumer holds.

An entry waits in one of three places: in ``keys`` if its hash is known, in ``unrouted`` if not, or in ``holes`` if no
consumer owns its hash. ``replay`` is the union of the first two. Holes are only remembered by position and looked at
again when a consumer joins. ``hashes`` has the hash of every entry in ``keys`` and of every pending one; the others'
are found when they are read. Source: semantics 2.9 (look-ahead), 2.10, 2.11.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, takewhile

from broker_core.base.positions import Position
from broker_core.broker.consumer import Consumer
from broker_core.broker.dispatch.key_shared.draining import DrainingHashes
from broker_core.broker.dispatch.key_shared.selectors import Selector
from broker_core.broker.positions import PositionMap, PositionSet


class WaitingKeys:
    """Entries whose hash is known, by consumer and by hash: an entry waits for room at the owner of its hash
    (``queues``) or for its hash to drain (``stalled``).

    A hash is in ``entries_of`` if any entry of it waits: later ones must not overtake it. The caller names the same
    owner when it takes an entry out as when it put it in; when the mapping changes, it puts entries anew that have
    another owner then. Invariant: ``entries_of`` counts exactly the entries in both; no empty set.
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


class KeyWaitingRoom:
    """Where an entry waits follows from ``selector`` and ``draining``, which must not change unnoticed (``route``)."""

    def __init__(self, selector: Selector[Consumer], draining: DrainingHashes) -> None:
        self._selector = selector
        self._draining = draining
        self.keys = WaitingKeys()
        self.hashes: PositionMap[int] = PositionMap()
        self.replay = PositionSet()
        self.unrouted = PositionSet()
        self.holes = PositionSet()

    def __len__(self) -> int:
        return len(self.replay) + len(self.holes)

    def add(self, position: Position) -> None:
        hash_ = self.hashes.get(position)
        if hash_ is None:
            self.replay.add(position)
            self.unrouted.add(position)
        else:
            self.route(position, hash_)

    def route(self, position: Position, hash_: int) -> None:
        """``position`` waits for the present owner of its hash."""
        owner = self._selector.select(hash_)
        stalled = owner is not None and self._draining.blocks(hash_, owner)
        self.wait(position, hash_, owner, stalled=stalled)

    def wait(self, position: Position, hash_: int, owner: Consumer | None, *, stalled: bool) -> None:
        """``position`` cannot be sent to ``owner`` now; ``stalled``: not before its hash has drained."""
        if self.unrouted:
            self.unrouted.discard(position)
        if owner is None:
            self.replay.discard(position)
            self.hashes.pop(position)
            self.holes.add(position)
        else:
            self.replay.add(position)
            self.hashes[position] = hash_
            self.keys.add(position, hash_, owner, stalled=stalled)

    def take(self, ledger: int, entries: Sequence[int]) -> None:
        if self.unrouted:
            for entry in entries:
                position = Position(ledger, entry)
                self.unrouted.discard(position)
                self.replay.discard(position)

    def take_queued(self, position: Position) -> None:
        """``position``, which waits for the owner of its hash, is on its way to it."""
        self.replay.discard(position)
        hash_ = self.hashes[position]
        self.keys.discard(position, hash_, self._selector.select(hash_))

    def discard(self, position: Position) -> None:
        if self.replay.discard(position):
            hash_ = self.hashes.pop(position)
            if hash_ is None:
                self.unrouted.discard(position)
            else:
                self.keys.discard(position, hash_, self._selector.select(hash_))
        elif self.holes:
            self.holes.discard(position)

    def discard_through(self, mark_delete: Position, most: int) -> bool:
        self.holes.discard_through(mark_delete)
        gone = list(islice(takewhile(lambda each: each <= mark_delete, self.replay), most))
        for position in gone:
            self.discard(position)
        return len(gone) < most

    def look_at_holes(self) -> None:
        """One of them may belong to a consumer that has joined: they are read again."""
        for position in self.holes:
            self.replay.add(position)
            self.unrouted.add(position)
        self.holes.clear()
