# SPDX-License-Identifier: Apache-2.0
"""Which consumer gets the next slice of a Shared subscription: best priority first, round robin inside a priority.

Each priority level keeps its consumers in order of joining and one bit a consumer for "available", so that a turn
costs the same with three consumers and with a thousand. The caller decides which are available, and must tell every
change. Source: Pulsar docs, "Subscription types - Shared", ``priorityLevel``; semantics 2.4.2.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Generic, TypeVar

C = TypeVar("C")


class _PriorityLevel(Generic[C]):
    """The consumers of one priority. ``available``: bit i is set when ``members[i]`` can take entries."""

    __slots__ = ("available", "members", "turn")

    def __init__(self) -> None:
        self.members: list[C] = []
        self.available = 0
        self.turn = 0

    def next(self) -> C:
        ahead = self.available >> self.turn
        waiting, base = (ahead, self.turn) if ahead else (self.available, 0)
        index = base + (waiting & -waiting).bit_length() - 1
        self.turn = index + 1
        return self.members[index]

    def remove(self, index: int) -> None:
        del self.members[index]
        below = self.available & ((1 << index) - 1)
        self.available = below | (self.available >> (index + 1)) << index
        if index < self.turn:
            self.turn -= 1


class RoundRobin(Generic[C]):
    """Consumers in order. Consumers that are not available are passed over."""

    def __init__(self) -> None:
        self._levels: dict[int, _PriorityLevel[C]] = {}
        self._order: list[int] = []
        self._places: dict[C, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[C]:
        """All members, best priority first, in order of joining."""
        return chain.from_iterable([self._levels[priority].members for priority in self._order])

    def add(self, member: C, priority: int) -> None:
        """Let ``member`` in; it is not available until ``set_available`` says so."""
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = _PriorityLevel()
            insort(self._order, priority)
        self._places[member] = (priority, len(level.members))
        level.members.append(member)

    def remove(self, leavers: Iterable[C]) -> None:
        """Let members go; those behind them move up, once for all of them."""
        gone: dict[int, list[int]] = {}
        for member in leavers:
            priority, index = self._places.pop(member)
            gone.setdefault(priority, []).append(index)
        for priority, indexes in gone.items():
            level = self._levels[priority]
            for index in sorted(indexes, reverse=True):
                level.remove(index)
            first = min(indexes)
            for moved, other in enumerate(level.members[first:], first):
                self._places[other] = (priority, moved)
            if not level.members:
                del self._levels[priority]
                self._order.remove(priority)

    def set_available(self, member: C, available: bool) -> None:
        place = self._places.get(member)
        if place is None:
            return
        priority, index = place
        if available:
            self._levels[priority].available |= 1 << index
        else:
            self._levels[priority].available &= ~(1 << index)

    def available_count(self) -> int:
        """How many members of all levels are available."""
        return sum(level.available.bit_count() for level in self._levels.values())

    def next(self) -> C | None:
        """The member whose turn it is, or None if none is available. Taking the turn passes it on."""
        for priority in self._order:
            level = self._levels[priority]
            if level.available:
                return level.next()
        return None

    def available(self) -> Iterator[C]:
        """The available members, best level first, without taking a turn."""
        for priority in self._order:
            level = self._levels[priority]
            bits = level.available
            while bits:
                lowest = bits & -bits
                yield level.members[lowest.bit_length() - 1]
                bits ^= lowest
