# SPDX-License-Identifier: Apache-2.0
"""``Selector``: a mapping from keys to consumers, for Key_Shared, and the slots that mappings divide.

A mapping turns the sticky key of an entry into a number, its hash, and says which consumer owns that hash. What the
hash is (a slot of 65,536, a point of a ring) is the mapping's own business; equal keys have equal hashes. Mappings know
nothing of entries, permits or time. Source: PIP-34, PIP-119, PIP-379; semantics 2.5 to 2.8.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple, Protocol, TypeVar

from broker_core.base.hashing import murmur3_unsigned

SLOTS: Final = 1 << 16
"""How many slots there are where a mapping divides slots."""

_SLOT_MASK: Final = SLOTS - 1


class Named(Protocol):
    """A consumer as mappings see it: an object that is only equal to itself, with a name."""

    @property
    def name(self) -> str: ...


C = TypeVar("C", bound=Named)


class HashRange(NamedTuple):
    """The hashes ``start`` to ``end``, both included."""

    start: int
    end: int

    def __str__(self) -> str:
        """As in Pulsar's statistics."""
        return f"[{self.start}, {self.end}]"


class Hashes(Protocol):
    """A set of hashes; ``in`` is all that it has to answer."""

    def __contains__(self, hash_: int, /) -> bool: ...


class Selector(Protocol[C]):
    """Owners of hashes."""

    def hash_of(self, key: bytes) -> int:
        """The hash of a sticky key."""

    def select(self, hash_: int) -> C | None:
        """The consumer that owns it; None if none does."""

    def add(self, consumer: C) -> Collection[C]:
        """Let a consumer in; those that lost hashes to it. ConsumerAssignError: refused, and nothing has changed."""

    def remove(self, consumer: C) -> Collection[C]:
        """Let it go; others that lost hashes by it, which happens only where points of a ring are shared."""

    def hashes_of(self, consumer: C) -> Hashes:
        """The hashes of a member, and perhaps more where a point of a ring is shared."""

    def ranges(self) -> list[tuple[HashRange, C]]:
        """Ranges and their owners, in order, neighbours of one owner joined. Computed by each call, for statistics."""


def slot_of(key: bytes) -> int:
    """Slot of a sticky key, 1 to 65535. Slot 0 never occurs, its keys are in slot 1, as in Pulsar 4."""
    return murmur3_unsigned(key) & _SLOT_MASK or 1


def joined(ranges: Iterable[tuple[HashRange, C]]) -> list[tuple[HashRange, C]]:
    """Touching ranges of one owner as one; ``ranges`` are in order."""
    result: list[tuple[HashRange, C]] = []
    for each, owner in ranges:
        if each.start > each.end:
            continue
        if result and result[-1][1] is owner and result[-1][0].end + 1 == each.start:
            result[-1] = (HashRange(result[-1][0].start, each.end), owner)
        else:
            result.append((each, owner))
    return result
