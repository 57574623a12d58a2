# SPDX-License-Identifier: Apache-2.0
"""Entries in a row that were given for the first time and hold one whole message each, as one value. Pure.

Where producers do not batch, nearly all entries are like that. What is done with each of them by itself, between the
broker's word and the noted offset, would take more time than to receive them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from broker_core.client import GivenEntry
from pulsarish_spark.queue.id_texts import Entries


class EntryRun(NamedTuple):
    """The entries from ``first`` to before ``end`` of one ledger."""

    ledger: int
    first: int
    end: int

    @property
    def messages(self) -> int:
        return self.end - self.first

    def apart(self) -> list[GivenEntry]:
        """Its entries."""
        return [GivenEntry(self.ledger, entry, 1) for entry in range(self.first, self.end)]

    def cut(self, messages: int) -> tuple[EntryRun, EntryRun]:
        """The first so many entries, and the others."""
        at = self.first + messages
        return EntryRun(self.ledger, self.first, at), EntryRun(self.ledger, at, self.end)


Some: TypeAlias = GivenEntry | EntryRun
"""One entry or several."""

_USUAL: Final = GivenEntry(0, 0, 1)[2:]
"""All that is known of an entry of a run but its place."""


def folded(given: Iterable[GivenEntry]) -> Iterator[Some]:
    """``given`` in its order, with runs in the place of what is in a row."""
    ledger, first, end = -1, 0, 0
    for entry in given:
        if entry[2:] != _USUAL:
            if end > first:
                yield EntryRun(ledger, first, end)
                first = end = 0
            yield entry
        elif entry[1] == end and entry[0] == ledger:
            end += 1
        else:
            if end > first:
                yield EntryRun(ledger, first, end)
            ledger, first = entry[:2]
            end = first + 1
    if end > first:
        yield EntryRun(ledger, first, end)


def apart(some: Iterable[Some]) -> Iterator[GivenEntry]:
    """All entries, one by one."""
    for each in some:
        if isinstance(each, EntryRun):
            yield from each.apart()
        else:
            yield each


def ids_of(some: Iterable[Some]) -> dict[int, Entries]:
    """The ids of ``some`` by ledger, sorted and each once."""
    bounds: dict[int, list[tuple[int, int]]] = {}
    for each in some:
        bound = (each.first, each.end) if isinstance(each, EntryRun) else (each.entry, each.entry + 1)
        bounds.setdefault(each.ledger, []).append(bound)
    return {ledger: np.unique(_within(np.array(found, np.int64))) for ledger, found in bounds.items()}


def _within(bounds: Entries) -> Entries:
    """All numbers from the first to before the second of each row."""
    firsts, lengths = bounds[:, 0], bounds[:, 1] - bounds[:, 0]
    before = np.cumsum(lengths) - lengths
    return np.repeat(firsts - before, lengths) + np.arange(int(lengths.sum()))
