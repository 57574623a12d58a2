# SPDX-License-Identifier: Apache-2.0
"""``DrainingHashes``: hashes whose new owner must wait until the old one has acknowledged what it was given.

Only such hashes wait; all others of a newcomer flow at once. Invariants (semantics I2.13): the count of a hash is the
number of pending entries of that hash at a consumer, never 0; without pending entries nothing drains.

Pending entries are counted as they come and go, whether their hash drains or not: a join that had to count them would
hold up everybody else for as long as that takes. Source: PIP-379; semantics 2.9, variant 2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from broker_core.base.invariants import invariant
from broker_core.base.positions import Position
from broker_core.broker.consumer import Consumer
from broker_core.broker.dispatch.key_shared.selectors import HashRange, Selector


class _Draining:
    """One hash. ``owner``: the old one, which has pending entries of it; ``blocked``: how often it held one up."""

    __slots__ = ("blocked", "owner")

    def __init__(self, owner: Consumer) -> None:
        self.owner = owner
        self.blocked = 0


class DrainingHashStats(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A hash that now belongs to another consumer, which waits until this one has acknowledged."""

    hash: int
    unack_msgs: int
    blocked_attempts: int


class DrainingHashes:
    """Hash -> old owner, and the other way round: with many consumers each join asks for those of many owners."""

    def __init__(self) -> None:
        self._pending: dict[Consumer, dict[int, int]] = {}
        self._hashes: dict[int, _Draining] = {}
        self._of: dict[Consumer, set[int]] = {}
        self.cleared: dict[Consumer, int] = {}

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, hash_: int) -> bool:
        return hash_ in self._hashes

    def given(self, owners: Sequence[Consumer], hashes: Sequence[int]) -> None:
        """Each of ``owners`` has a pending entry of the hash at the same place in ``hashes``."""
        for owner, hash_ in zip(owners, hashes, strict=True):
            counts = self._pending.get(owner)
            if counts is None:
                counts = self._pending[owner] = {}
            counts[hash_] = counts.get(hash_, 0) + 1

    def gone(self, owner: Consumer, hashes: Iterable[int | None]) -> list[int]:
        """Count down: entries with these hashes are no longer pending at ``owner``. Returns the hashes that have
        drained.

        A None among ``hashes`` is passed over.
        """
        counts = self._pending.get(owner)
        drained: list[int] = []
        if counts is None:
            return drained
        for hash_ in hashes:
            if hash_ is None:
                continue
            left = counts[hash_] - 1
            if left:
                counts[hash_] = left
                continue
            del counts[hash_]
            if hash_ in self._hashes and self._hashes[hash_].owner is owner:
                self._end(hash_, owner)
                drained.append(hash_)
        if not counts:
            del self._pending[owner]
        if drained:
            self.cleared[owner] = self.cleared.get(owner, 0) + len(drained)
        return drained

    def pending_at(self, owner: Consumer) -> Collection[int]:
        """The hashes that ``owner`` has pending entries of."""
        return self._pending.get(owner, {}).keys()

    def begin(self, owner: Consumer, hashes: Iterable[int]) -> None:
        """Let these hashes drain: entries with them are pending at ``owner``, which has lost them to other
        consumers."""
        begun = set(hashes)
        for hash_ in begun:
            known = self._hashes.setdefault(hash_, _Draining(owner))
            invariant(known.owner is owner, "hash %s is pending at two consumers", hash_)
        if begun:
            self._of.setdefault(owner, set()).update(begun)

    def blocks(self, hash_: int, consumer: Consumer) -> bool:
        """Whether ``consumer``, the present owner of the hash, must wait. If it got the hash back, draining ends."""
        draining = self._hashes.get(hash_)
        if draining is None:
            return False
        if draining.owner is consumer:
            self._end(hash_, consumer)
            return False
        draining.blocked += 1
        return True

    def forget(self, owner: Consumer) -> None:
        """``owner`` has left: nothing waits for it any more."""
        self._pending.pop(owner, None)
        for hash_ in self._of.pop(owner, ()):
            del self._hashes[hash_]

    def _end(self, hash_: int, owner: Consumer) -> None:
        del self._hashes[hash_]
        theirs = self._of[owner]
        theirs.discard(hash_)
        if not theirs:
            del self._of[owner]

    def of(self, owner: Consumer) -> list[DrainingHashStats]:
        """Hashes that others wait for at ``owner``."""
        counts = self._pending.get(owner, {})
        return [
            DrainingHashStats(hash=each, unack_msgs=counts[each], blocked_attempts=self._hashes[each].blocked)
            for each in sorted(self._of.get(owner, ()))
        ]


class RecordedPositions(dict[Consumer, Position]):
    """Newcomers wait until everything that was read before they came is acknowledged: newcomer -> read position when it
    joined; the positions rise in the order of joining.

    The older guard of key order, for ``subscriptionKeySharedUseClassicPersistentImplementation``. A consumer that does
    not acknowledge holds up all newcomers, which is why ``DrainingHashes`` is the default. Invariant (semantics I2.14):
    a newcomer gets nothing at or after its recorded position before all below that is acknowledged. Source: PIP-34;
    semantics 2.9, variant 1.
    """

    @property
    def gate(self) -> Position | None:
        """Entries for any newcomer lie below this; None: there is no newcomer."""
        return min(self.values(), default=None)

    def limit(self, consumer: Consumer) -> Position | None:
        """Entries for ``consumer`` lie below this; None: it may have any."""
        return self.gate if consumer in self else None

    def advance(self, first_unacked: Position) -> bool:
        """Everything below ``first_unacked`` is acknowledged; true if that lets anybody go on."""
        free = [consumer for consumer, position in self.items() if position <= first_unacked]
        for consumer in free:
            del self[consumer]
        return bool(free)


class KeyStats(NamedTuple):
    """Statistics of one consumer: the hashes that it owns, those that drain at it, and where it joined if it
    waits."""

    ranges: tuple[HashRange, ...] = ()
    draining: tuple[DrainingHashStats, ...] = ()
    draining_cleared: int = 0
    joined_at: str = ""


def key_stats(
    consumers: Iterable[Consumer],
    selector: Selector[Consumer],
    draining: DrainingHashes,
    joined_at: Mapping[Consumer, Position],
) -> dict[Consumer, KeyStats]:
    """The statistics of each of ``consumers``."""
    ranges: dict[Consumer, list[HashRange]] = {consumer: [] for consumer in consumers}
    for each, owner in selector.ranges():
        ranges[owner].append(each)
    return {
        consumer: KeyStats(
            tuple(owned),
            tuple(draining.of(consumer)),
            draining.cleared.get(consumer, 0),
            str(joined_at.get(consumer, "")),
        )
        for consumer, owned in ranges.items()
    }
