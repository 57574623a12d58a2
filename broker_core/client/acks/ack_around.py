# SPDX-License-Identifier: Apache-2.0
"""Cumulative acknowledgement beside messages in chunks that end later: what was delivered between their chunks. Pure.

A message in chunks stands where its last chunk does (semantics 5.1.5), so acknowledging everything up to an entry
before that says nothing about it. On the broker it would cover its first chunks all the same: after a lost connection
only the rest would come again, and the message would be lost. While there is such a message, only what lies before it
is acknowledged as a whole, and what lies between, entry by entry. Serves one partition of an Exclusive or Failover
subscription, where entries come in order, and after a loss or a rewind once more in order, from an earlier one on: they
are acknowledged once more then, since the broker may not have heard of it. Source: semantics 3.1.7, 3.5.1.
"""

from __future__ import annotations

import math
from bisect import bisect_left

from broker_core.base.positions import Position


class DeliveredEntries:
    """What was delivered while a message in chunks was under way, as runs of entries: few, however many came."""

    def __init__(self) -> None:
        self._runs: list[tuple[int, int, int]] = []
        self._last: Position | None = None

    def note(self, position: Position) -> None:
        """An entry was delivered, perhaps not for the first time."""
        if self._last is None or position > self._last:
            self._last = position
        ledger, entry = position
        at = bisect_left(self._runs, (ledger, entry, math.inf))
        if at and self._runs[at - 1][0] == ledger:
            _, first, last = self._runs[at - 1]
            if entry <= last:
                return
            if entry == last + 1:
                self._runs[at - 1] = (ledger, first, entry)
                return
        self._runs.insert(at, (ledger, entry, entry))

    def knows(self, position: Position) -> bool:
        """Whether all that was delivered up to ``position`` has been noted."""
        return self._last is not None and position <= self._last

    def take_through(self, position: Position) -> list[Position]:
        """Take out the noted positions up to ``position``: each is returned once, unless it is delivered again."""
        taken: list[Position] = []
        left: list[tuple[int, int, int]] = []
        for ledger, first, last in self._runs:
            end = last if ledger < position.ledger else min(last, position.entry) if ledger == position.ledger else -1
            taken += [Position(ledger, entry) for entry in range(first, end + 1)]
            if end < last:
                left.append((ledger, max(first, end + 1), last))
        self._runs = left
        return taken

    def clear(self) -> None:
        """Nothing that was delivered matters any more."""
        self._runs.clear()
        self._last = None
