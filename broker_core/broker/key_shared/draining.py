# SPDX-License-Identifier: Apache-2.0
"""``DrainingHashes``: hashes whose new owner must wait until the old one has acknowledged what it was given.

Only such hashes wait; all others of a newcomer flow at once. Invariants (semantics I2.13): the count of a hash is the
number of pending entries of that hash at its old owner, never 0; without pending entries nothing drains.
Source: PIP-379; semantics 2.9, variant 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker_core.base.invariants import invariant
from broker_core.broker.consumer import Consumer


class _Draining:
    """One hash. ``pending``: entries that its old owner has not acknowledged; ``blocked``: how often it held one up."""

    __slots__ = ("blocked", "owner", "pending")

    def __init__(self, owner: Consumer, pending: int) -> None:
        self.owner = owner
        self.pending = pending
        self.blocked = 0


class DrainingHash(NamedTuple):
    """For statistics."""

    hash: int
    unacked_entries: int
    blocked_attempts: int


class DrainingHashes:
    """Hash -> old owner, and the other way round: with many consumers each join asks for those of many owners."""

    def __init__(self) -> None:
        self._hashes: dict[int, _Draining] = {}
        self._of: dict[Consumer, set[int]] = {}
        self.cleared: dict[Consumer, int] = {}

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, hash_: int) -> bool:
        return hash_ in self._hashes

    def begin(self, owner: Consumer, pending: Mapping[int, int]) -> None:
        """Hashes of ``owner``, with its pending entries of each, are somebody else's now, or were so before."""
        for hash_, entries in pending.items():
            known = self._hashes.get(hash_)
            if known is None:
                self._hashes[hash_] = _Draining(owner, entries)
            else:
                invariant(known.owner is owner, "hash %s is pending at two consumers", hash_)
                known.pending = entries
        if pending:
            self._of.setdefault(owner, set()).update(pending)

    def blocks(self, hash_: int, consumer: Consumer) -> bool:
        """Whether ``consumer``, its owner now, must wait. If it is the old one, there is nothing to wait for."""
        draining = self._hashes.get(hash_)
        if draining is None:
            return False
        if draining.owner is consumer:
            self._end(hash_, consumer)
            return False
        draining.blocked += 1
        return True

    def settled(self, hash_: int, owner: Consumer) -> bool:
        """A pending entry of ``owner`` is gone; true if the hash is free now."""
        draining = self._hashes.get(hash_)
        if draining is None or draining.owner is not owner:
            return False
        draining.pending -= 1
        if draining.pending:
            return False
        self._end(hash_, owner)
        self.cleared[owner] = self.cleared.get(owner, 0) + 1
        return True

    def forget(self, owner: Consumer) -> None:
        """Nothing waits for ``owner`` any more."""
        for hash_ in self._of.pop(owner, ()):
            del self._hashes[hash_]

    def _end(self, hash_: int, owner: Consumer) -> None:
        del self._hashes[hash_]
        theirs = self._of[owner]
        theirs.discard(hash_)
        if not theirs:
            del self._of[owner]

    def of(self, owner: Consumer) -> list[DrainingHash]:
        """What others wait for at ``owner``."""
        found = [(hash_, self._hashes[hash_]) for hash_ in sorted(self._of.get(owner, ()))]
        return [DrainingHash(hash_, draining.pending, draining.blocked) for hash_, draining in found]
