# SPDX-License-Identifier: Apache-2.0
"""Where a subscription must stand so that a given entry, or the first one of a given time, is the next to come.

Those answers are mark-delete positions: the entry right before the wanted one. Source: semantics 1.4.6.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from broker_core.base.positions import POSITION_LATEST, Position
from broker_core.broker.cursors.cursor import Cursor
from broker_core.storage.ledger import StoredEntry, UnreadableEntryError
from broker_core.storage.topic_log import TopicLog

_DAMAGED_MAX = 100
"""Damaged entries of one ledger that are tried before the rest of it is passed over; each takes some 0.05 ms."""


def before_position(log: TopicLog, position: Position) -> Position:
    """Right before ``position``, kept inside the log: earliest and trimmed ids mean before the first stored entry,
    latest and ids to come mean after the last one."""
    last = log.readable_end
    return last if position > last else log.previous(position)


def before_time(log: TopicLog, time_ms: int) -> Position:
    """Right before the first entry that was stored at or after ``time_ms``; after the last one if there is none.

    By the broker's clock, as on an Apache Pulsar that stores its time with each entry. Found by halving, so few entries
    are read; where that clock was set back the answer is one of the places where the times pass the wanted one.
    """
    places = Places(log)
    number = bisect_left(range(places.count), time_ms, key=places.stored_ms)
    if number == places.count:
        return log.readable_end
    return log.previous(places.position(number))


def nth_unacked(log: TopicLog, cursor: Cursor, count: int) -> Position | None:
    """The ``count``-th entry, from 1 on, that ``cursor`` has not acknowledged; None if there are fewer.

    Found by halving: millions of entries and holes cost a few dozen counts.
    """
    places = Places(log)

    def unacked_through(number: int) -> int:
        position = places.position(number)
        return log.count_entries(cursor.mark_delete, position) - cursor.deleted.count_through(position)

    number = bisect_left(range(places.count), count, key=unacked_through)
    return places.position(number) if number < places.count else None


def first_readable(log: TopicLog, position: Position) -> StoredEntry | None:
    """The first entry at or after ``position`` that can be read. Behind many of a ledger that cannot, the rest of it is
    passed over: it takes minutes to find that out of each of a million."""
    ledger, damaged = position.ledger, 0
    while position <= log.readable_end:
        try:
            found = log.read(position, 1, 1)
        except UnreadableEntryError as error:
            through = error.through
            damaged = damaged + 1 if through.ledger == ledger else 1
            ledger = through.ledger
            position = log.next_valid(through if damaged < _DAMAGED_MAX else Position(ledger, POSITION_LATEST.entry))
        else:
            return found[0] if found else None
    return None


class Places:
    """The readable entries of a log, numbered from 0."""

    def __init__(self, log: TopicLog) -> None:
        self._log = log
        last = log.readable_end
        ledgers = [(info.id, info.entries) for info in log.ledgers() if info.entries and info.id <= last.ledger]
        self._ledgers = [ledger for ledger, _ in ledgers]
        counts = [min(entries, last.entry + 1) if ledger == last.ledger else entries for ledger, entries in ledgers]
        self._ends = list(accumulate(counts))
        self.count = self._ends[-1] if self._ends else 0

    def position(self, number: int) -> Position:
        place = bisect_left(self._ends, number + 1)
        before = self._ends[place - 1] if place else 0
        return Position(self._ledgers[place], number - before)

    def stored_ms(self, number: int) -> int:
        """When the first readable entry from ``number`` on was stored; a damaged entry counts as its successor."""
        entry = first_readable(self._log, self.position(number))
        return 1 << 63 if entry is None else entry.broker_timestamp
