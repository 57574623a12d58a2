# SPDX-License-Identifier: Apache-2.0
"""``Backlog``: what one cursor has not acknowledged. Counted from what the log and the cursor know: no entry is read.

Invariant: entries are exact; messages are too up to HOLES_COUNTED_MAX holes, beyond that by mean entry size. Where a
ledger cannot be read, it is unknown how many messages its entries hold: then entries are counted instead.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker_core.base.errors import CorruptEntryError
from broker_core.base.positions import Position
from broker_core.broker.cursors.cursor import Cursor
from broker_core.broker.cursors.seeking import nth_unacked
from broker_core.storage.topic_log import TopicLog

HOLES_COUNTED_MAX: Final = 10_000
"""Runs of acknowledged entries of which the messages are counted one by one for statistics; it takes some 30 ms."""


class BacklogPart(NamedTuple):
    """The backlog behind some position: how much it is, its first unacknowledged entry and the last entry stored."""

    entries: int
    messages: int
    first: Position
    last: Position


class Backlog:
    """The backlog of one cursor over one log."""

    def __init__(self, log: TopicLog, cursor: Cursor) -> None:
        self._log = log
        self._cursor = cursor

    def entries(self, after: Position | None = None) -> int:
        """Unacknowledged entries behind ``after``; of the whole backlog without it."""
        start = self._start(after)
        return self._log.count_entries(start, self._log.readable_end) - self._acked_entries(start)

    def messages(self, after: Position | None = None) -> int:
        """Unacknowledged messages behind ``after``, those that are left of batches included."""
        start = self._start(after)
        try:
            return self._messages(start)
        except CorruptEntryError:
            return self.entries(start)

    def bytes(self) -> int:
        """About how many bytes on disk lie behind the mark-delete position."""
        return self._log.bytes_between(self._cursor.mark_delete, self._log.readable_end)

    def nth(self, count: int) -> Position | None:
        """The ``count``-th unacknowledged entry, from 1 on; None if there are fewer."""
        return nth_unacked(self._log, self._cursor, count) if count else None

    def part(self, start: Position | None, *, excluded: bool = False) -> BacklogPart:
        """The backlog from the entry ``start`` on, or behind it if ``excluded``; all of it without ``start``."""
        before = start if start is None or excluded else self._log.previous(start)
        after = self._start(before)
        first = self._cursor.skip_acked(self._log.next_valid(after))
        return BacklogPart(self.entries(after), self.messages(after), first, self._log.readable_end)

    def _start(self, after: Position | None) -> Position:
        return self._cursor.mark_delete if after is None else max(after, self._cursor.mark_delete)

    def _messages(self, after: Position) -> int:
        log, cursor = self._log, self._cursor
        messages = log.count_messages(after, log.readable_end)
        if cursor.deleted_runs() > HOLES_COUNTED_MAX:
            entries = log.count_entries(after, log.readable_end)
            return messages - messages * self._acked_entries(after) // max(entries, 1)
        for ledger, first, last in cursor.deleted.runs():
            messages -= log.count_messages(max(Position(ledger, first - 1), after), Position(ledger, last))
        for position, bits in cursor.partial.items():
            held = log.count_messages(max(Position(position.ledger, position.entry - 1), after), position)
            messages -= held - min(held, bits.bit_count())
        return messages

    def _acked_entries(self, after: Position) -> int:
        return len(self._cursor.deleted) - self._cursor.deleted.count_through(after)
