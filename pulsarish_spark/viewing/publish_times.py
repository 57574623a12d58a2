# SPDX-License-Identifier: Apache-2.0
"""Where a window of publish times begins and ends in the log of a partition, though clocks of producers differ.

A broker finds a time by halving the log, as if publish times rose with positions. They do not where the clock of a
producer is wrong, and then what it finds is one of several places. So entries before the beginning, and behind the end,
are read and dropped: those nearby one by one, those further away here and there, at distances that double. Where one
belongs to the window, the window is read from or up to it, with the rows of other times between, and a warning says so.
What was not looked at is not known; that is said once, without alarm, for it is so in every large topic.

Used by one thread, or by several of which each has partitions of its own. Must not know what reads the window.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from broker_core.base.errors import ChecksumMismatchError, ProtocolError
from broker_core.base.positions import Position
from broker_core.client import Client, Counted, Span
from broker_core.wire.entry import EntryRef, published_ms

logger = logging.getLogger(__name__)

LOOK_ENTRIES: Final = 20_000
LOOK_ENTRIES_MIN: Final = 100
"""So many entries of all partitions together, but at least so many of each, are looked at, on each side of a window:
as many as are read in some tenths of a second. As many again wherever one was found."""

LOOK_BYTES: Final = 64 * 1024 * 1024
LOOK_BYTES_MIN: Final = 256 * 1024
"""As ``LOOK_ENTRIES`` and ``LOOK_ENTRIES_MIN``, in bytes."""

EXTENT_MAX: Final = 20
"""How many times that is looked at in one partition: a log in which no time is in order is not read as a whole."""

FIRST_STRETCH: Final = 16
"""Entries that are read to learn how large they are."""

PROBES_MAX: Final = 24
"""Further places, each twice as far away as the one before: enough for any log."""

_MESSAGES_MAX: Final = 2**62
_LEDGER_END: Final = 2**62


class _Seen(NamedTuple):
    """``found``: the farthest entry that belongs to the window. ``is_whole``: nothing lies beyond what was seen."""

    found: Position | None
    is_whole: bool


class _Side(NamedTuple):
    """How to look before a place, or behind it: at entries that follow each other, about so many, and at one so far
    away; None: there are none. ``beyond``: the place from which to look on behind an entry."""

    stretch: Callable[[str, Position, int], _Stretch | None]
    probe: Callable[[str, Position, int], EntryRef | None]
    beyond: Callable[[Position], Position]


class PublishTimes:
    """The publish times of the partitions of one read."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._entries = LOOK_ENTRIES
        self._bytes = LOOK_BYTES
        self._told = False
        self._before = _Side(self._stretch_before, self._probe_before, lambda position: position)
        self._behind = _Side(self._stretch_behind, self._probe_behind, lambda at: Position(at.ledger, at.entry + 1))

    def share(self, partitions: int) -> None:
        """So many partitions are asked about next, and share what is looked at."""
        self._entries = max(LOOK_ENTRIES // max(partitions, 1), LOOK_ENTRIES_MIN)
        self._bytes = max(LOOK_BYTES // max(partitions, 1), LOOK_BYTES_MIN)

    def first(self, name: str, time_ms: int, before: Position) -> Position | None:
        """The first entry before ``before`` that was seen to be published at or after ``time_ms``; None if none was."""
        return self._farthest(name, before, lambda time: time >= time_ms, self._before)

    def last(self, name: str, time_ms: int, behind: Position) -> Position | None:
        """The last entry at or behind ``behind`` that was seen to be published before ``time_ms``; None if none was."""
        return self._farthest(name, behind, lambda time: time < time_ms, self._behind)

    def _farthest(self, name: str, start: Position, belongs: Callable[[int], bool], side: _Side) -> Position | None:
        found: Position | None = None
        at = start
        for _ in range(EXTENT_MAX):
            try:
                seen = self._near(name, at, belongs, side)
                if seen.found is None and not seen.is_whole:
                    seen = self._far(name, at, belongs, side)
            except (ChecksumMismatchError, ProtocolError) as error:
                logger.warning("publish times were looked at up to a damaged entry topic=%s error=%s", name, error)
                return found
            if seen.found is None:
                self._tell_rest(name, is_whole=seen.is_whole)
                return found
            found, at = seen.found, side.beyond(seen.found)
        logger.warning("publish times are too disordered to find all of a window topic=%s seen_to=%s", name, found)
        return found

    def _near(self, name: str, start: Position, belongs: Callable[[int], bool], side: _Side) -> _Seen:
        """Look at entries one by one, from ``start`` away."""
        found: Position | None = None
        at, entries, size = start, 0, 0
        count = FIRST_STRETCH
        while entries < self._entries and size < self._bytes:
            looked = side.stretch(name, at, min(count, self._entries - entries))
            if looked is None:
                return _Seen(found, is_whole=True)
            inside = [place for place, time in looked.entries if belongs(time)]
            found = looked.farthest(inside) if inside else found
            at, entries, size = looked.next, entries + len(looked.entries), size + looked.bytes
            count = max(1, min(4 * count, (self._bytes - size) * max(entries, 1) // max(size, 1)))
        return _Seen(found, is_whole=False)

    def _far(self, name: str, start: Position, belongs: Callable[[int], bool], side: _Side) -> _Seen:
        """Look at single entries, each twice as far away as the one before."""
        found: Position | None = None
        at, distance = start, self._entries
        for _ in range(PROBES_MAX):
            entry = side.probe(name, at, distance)
            if entry is None:
                break
            at = Position(entry.ledger, entry.entry)
            if belongs(published_ms(entry.body)):
                found = at
            distance *= 2
        return _Seen(found, is_whole=False)

    # -- before

    def _stretch_before(self, name: str, at: Position, count: int) -> _Stretch | None:
        """The entries before ``at``, in its ledger or the one before; None if there are none."""
        end = self._behind_what_is_before(name, at)
        if end is None:
            return None
        start = Position(end.ledger, max(end.entry - count, 0))
        looked = self._counted(name, start, end)
        return _Stretch.of(looked, start, min) if looked.positions else None

    def _probe_before(self, name: str, at: Position, distance: int) -> EntryRef | None:
        """An entry about ``distance`` before ``at``: the first of its ledger, or of the one before, if it has fewer."""
        end = self._behind_what_is_before(name, at)
        if end is None:
            return None
        entry = self._client.first_entry_at(name, Position(end.ledger, max(end.entry - distance, 0)))
        return entry if entry is not None and Position(entry.ledger, entry.entry) < end else None

    def _behind_what_is_before(self, name: str, at: Position) -> Position | None:
        """``at``, or where the ledger before it ends if ``at`` begins one; None if nothing is before."""
        if at.entry > 0:
            return at
        before = self._client.bounds_at(name, Position(at.ledger, 0)).before
        if before.entry < 0 or before.ledger >= at.ledger:
            return None
        return Position(before.ledger, before.entry + 1)

    # -- behind

    def _stretch_behind(self, name: str, at: Position, count: int) -> _Stretch | None:
        """The entries at and behind ``at``; None if there are none."""
        looked = self._counted(name, at, Position(_LEDGER_END, 0), count)
        if not looked.positions:
            return None
        last = looked.positions[-1]
        return _Stretch.of(looked, Position(last.ledger, last.entry + 1), max)

    def _probe_behind(self, name: str, at: Position, distance: int) -> EntryRef | None:
        """An entry about ``distance`` behind ``at``, or the first of the next ledger."""
        return self._client.first_entry_at(name, Position(at.ledger, at.entry + distance))

    def _counted(self, name: str, start: Position, end: Position, count: int = _MESSAGES_MAX) -> Counted:
        span = Span(name, start, end, _MESSAGES_MAX, count, _MESSAGES_MAX, with_times=True)
        return self._client.count_entries([span])[0]

    def _tell_rest(self, name: str, *, is_whole: bool) -> None:
        if not is_whole and not self._told:
            self._told = True
            logger.info(
                "a window of publish times was found by the clocks of producers topic=%s looked_at=%d effect=%s",
                name,
                self._entries,
                "where such a clock is wrong, rows of the window that lie far outside of it are not read",
            )


class _Stretch(NamedTuple):
    """Entries that follow each other with their publish times. ``next``: where to look on."""

    entries: list[tuple[Position, int]]
    bytes: int
    next: Position
    farthest: Callable[[list[Position]], Position]

    @classmethod
    def of(cls, counted: Counted, next_: Position, farthest: Callable[[list[Position]], Position]) -> _Stretch:
        entries = [*zip(counted.positions, counted.times_ms, strict=True)]
        return cls(entries, counted.byte_sums[-1], next_, farthest)
