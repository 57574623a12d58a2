# SPDX-License-Identifier: Apache-2.0
"""Where message indexes lie in the logs of many partitions: searches that go on side by side.

Each round asks for the next guess of all searches at once, so many partitions take as many round trips as one. Needs a
broker that tells message indexes. Must not know why somebody looks for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from broker_core.base.positions import Position
from broker_core.client.columnar.index_search import IndexedEntry, IndexSearch
from pulsarish_spark.places.offsets import Offset


class Shown(Protocol):
    """What shows entries; a ``BrokerView``."""

    def look_at(self, places: Iterable[tuple[str, Position]]) -> None:
        """Ask for the first entries at or behind ``places`` all at once, for questions about them that come next."""
        ...

    def indexed(self, name: str, position: Position) -> IndexedEntry | None:
        """The first entry at or behind ``position``; None if there is none."""
        ...

    def offset_at(self, name: str, position: Position) -> Offset | None:
        """The place of that entry as an offset."""
        ...


class Wanted(NamedTuple):
    """Message ``message_index`` of one partition, which lies in [first, end); both have indexes."""

    name: str
    message_index: int
    first: Offset
    end: Offset


def entries_of_indexes(shown: Shown, wanted: Sequence[Wanted]) -> list[Offset]:
    """The first message of the entry with each of the messages, in the order of ``wanted``."""
    shown.look_at((each.name, each.first.position) for each in wanted)
    answers: dict[int, Offset] = {}
    searches: dict[int, IndexSearch] = {}
    for number, each in enumerate(wanted):
        low = shown.indexed(each.name, each.first.position)
        if low is None or each.message_index <= low.last:
            answers[number] = each.end if low is None else Offset(low.position, low.first)
        else:
            high = IndexedEntry(each.end.position, each.end.message_index, each.end.message_index)
            searches[number] = IndexSearch(each.message_index, low, high)
    _search(shown, wanted, searches)
    found = {number: search.answer for number, search in searches.items()}
    inside = {number: at for number, at in found.items() if at < wanted[number].end.position}
    shown.look_at((wanted[number].name, at) for number, at in inside.items())
    for number in found:
        at = shown.offset_at(wanted[number].name, inside[number]) if number in inside else None
        answers[number] = at or wanted[number].end
    return [answers[number] for number in range(len(wanted))]


def _search(shown: Shown, wanted: Sequence[Wanted], searches: dict[int, IndexSearch]) -> None:
    while guesses := {number: guess for number, each in searches.items() if (guess := each.guess()) is not None}:
        shown.look_at((wanted[number].name, guess) for number, guess in guesses.items())
        for number, guess in guesses.items():
            searches[number].found(guess, shown.indexed(wanted[number].name, guess))
