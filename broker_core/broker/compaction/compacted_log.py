# SPDX-License-Identifier: Apache-2.0
"""``CompactedLog``: a topic as a consumer with ``readCompacted`` sees it: its view, then the log behind the horizon.

It answers the questions of a cursor and a dispatcher as the log does, so all that goes on from there is the same: up to
the horizon the entries of the view are all that there are. Their places in the log may be deleted; no position is
corrected to the first entry that is left there, which would pass over the rest of the view.

A consumer keeps the view that was the newest when it came, its own, and reads the log behind the horizon of that: a
newer view lacks the tombstones of keys whose values the consumer has. Where the log behind its own view was deleted,
what the newest view has kept of the deleted entries takes their place. So three parts follow each other:

    its own view | the newest view, as far as the log is deleted | the log
                 own horizon                                     trimmed

Without a consumer its own view is always the newest one.
Source: semantics 7.4.
"""

from __future__ import annotations

from typing import Protocol

from broker_core.base.errors import CorruptEntryError, ProtocolError
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.broker.compaction.topic_compaction import TopicCompaction
from broker_core.broker.cursors.seeking import HOLES_COUNTED_MAX, before_time
from broker_core.broker.positions import PositionSet
from broker_core.storage.ledger import StoredEntry, UnreadableEntryError
from broker_core.storage.topic_log import TopicLog
from broker_core.storage.views import View, ViewRow
from broker_core.wire.entry import read_metadata


class ReadingCursor(Protocol):
    """The cursor that reads here."""

    mark_delete: Position


class CompactedLog:
    """The entries that one subscription with readCompacted reads: the view, then the log behind it."""

    def __init__(self, log: TopicLog, compaction: TopicCompaction, cursor: ReadingCursor | None = None) -> None:
        """``cursor`` moves over what it reads; None where only questions are asked."""
        self._log = log
        self._compaction = compaction
        self._cursor = cursor
        self._bound: View | None = None

    # -- which view

    @property
    def _view(self) -> View:
        return self._bound or self._compaction.view

    def bind(self) -> None:
        """A consumer came, or the subscription was moved: the newest view is the one to read."""
        self.unbind()
        self._bound = self._compaction.view
        self._bound.readers.add(self)

    def unbind(self) -> None:
        """The consumer has left."""
        former, self._bound = self._bound, None
        if former is not None:
            former.left_by(self)
            self._compaction.remove_superseded()

    def superseded(self) -> None:
        """There is a newer view: let go of this one if all of it is acknowledged. Its horizon stays."""
        bound = self._bound
        if bound is not None and self._cursor is not None and self._cursor.mark_delete >= bound.horizon:
            bound.left_by(self)
            ledger, entry = bound.horizon
            self._bound = View(ViewRow(ledger, entry), None)

    @property
    def _gap_end(self) -> Position:
        """Behind the own horizon and up to here the newest view stands for deleted entries of the log."""
        return min(self._log.trimmed, self._compaction.view.horizon)

    @property
    def _sparse_end(self) -> Position:
        """Up to here the views are all there is; behind it is the log."""
        return max(self._view.horizon, self._gap_end)

    def _view_with(self, position: Position) -> View | None:
        """The view that has the entry at ``position`` if there is any; None: the log has."""
        if position <= self._view.horizon:
            return self._view
        return self._compaction.view if position <= self._gap_end else None

    # -- positions

    @property
    def last_confirmed(self) -> Position:
        return self._log.last_confirmed

    @property
    def readable_end(self) -> Position:
        return self._log.readable_end

    def next_valid(self, position: Position) -> Position:
        """As that of the log."""
        view, gap_end = self._view, self._gap_end
        if position < view.horizon:
            found = view.first_after(position)
            if found is not None:
                return found
            position = view.horizon
        if position < gap_end:
            found = self._compaction.view.first_after(position)
            if found is not None and found <= gap_end:
                return found
        return self._log.next_valid(position)

    def previous(self, position: Position) -> Position:
        """As that of the log."""
        horizon, before = self._view.horizon, self._log.previous(position)
        if before > horizon and self._log.contains(before):
            return before
        in_gap = self._compaction.view.last_before(min(position, _behind(self._gap_end)))
        if in_gap is not None and in_gap > horizon:
            return in_gap
        found = self._view.last_before(position)
        if found is not None:
            return found
        return POSITION_EARLIEST if horizon > POSITION_EARLIEST else before

    def contains(self, position: Position) -> bool:
        view = self._view_with(position)
        return self._log.contains(position) if view is None else view.contains(position)

    def count_entries(self, lower_exclusive: Position, upper_inclusive: Position) -> int:
        """As that of the log."""
        horizon = self._view.horizon
        total, lower = 0, lower_exclusive
        for view, end in ((self._view, horizon), (self._compaction.view, self._gap_end)):
            upper = min(upper_inclusive, end)
            if lower < upper:
                total += view.count_through(upper) - view.count_through(lower)
                lower = upper
        return total + self._log.count_entries(max(lower, min(horizon, upper_inclusive)), upper_inclusive)

    def count_acked(self, acked: PositionSet, lower_exclusive: Position, upper_inclusive: Position) -> int:
        """How many of ``acked`` there are in (lower, upper]; none in the views if looking them up takes long."""
        sparse_end = min(self._sparse_end, upper_inclusive)
        total = acked.count_through(upper_inclusive) - acked.count_through(max(lower_exclusive, sparse_end))
        if lower_exclusive >= sparse_end or acked.runs_count() > HOLES_COUNTED_MAX:
            return total
        for ledger, first, last in acked.runs():
            lower = max(Position(ledger, first - 1), lower_exclusive)
            if lower >= sparse_end:
                break
            upper = min(Position(ledger, last), sparse_end)
            if lower < upper:
                total += self.count_entries(lower, upper)
        return total

    def count_messages(self, lower_exclusive: Position, upper_inclusive: Position) -> int:
        """As that of the log, for one entry."""
        view = self._view_with(upper_inclusive)
        if view is None:
            return self._log.count_messages(lower_exclusive, upper_inclusive)
        return view.entry(upper_inclusive).messages if view.contains(upper_inclusive) else 0

    def lost_at(self, position: Position) -> UnreadableEntryError | None:
        """As that of the log."""
        view = self._view_with(position)
        return self._log.lost_at(position) if view is None else view.lost_at(position)

    def before_time(self, time_ms: int) -> Position:
        """Right before the first entry that was stored at or after ``time_ms``."""
        for view, end in ((self._view, self._view.horizon), (self._compaction.view, self._gap_end)):
            found = view.at_time(time_ms)
            if found is not None and found <= end:
                return self.previous(found)
        return max(before_time(self._log, time_ms), self._view.horizon)

    # -- reading

    def read(self, start: Position, entries_max: int, bytes_max: int) -> list[StoredEntry]:
        """As that of the log."""
        view, gap_end = self._view, self._gap_end
        if start <= view.horizon:
            found = view.read(start, entries_max, bytes_max)
            if found:
                return found
            start = _behind(view.horizon)
        if start <= gap_end:
            found = self._compaction.view.read(start, entries_max, bytes_max)
            if found and found[0].position <= gap_end:
                return [entry for entry in found if entry.position <= gap_end]
        return self._log.read(start, entries_max, bytes_max)

    def last_message(self, of_log: tuple[Position, int]) -> tuple[Position, int]:
        """Position of the last entry that a consumer gets, and the index of its last message that is kept, plus one (0:
        not a batch); ``of_log``: those of the log. Entry -1 if there is none."""
        if of_log[0].entry >= 0 and self._view_with(of_log[0]) is None:
            return of_log
        position = self.previous(_behind(self._sparse_end))
        view = self._view_with(position)
        if view is None or not view.contains(position):
            return POSITION_EARLIEST, 0
        try:
            metadata = read_metadata(view.entry(position).body)
        except (CorruptEntryError, ProtocolError):
            return position, 0
        if not metadata.HasField("num_messages_in_batch"):
            return position, 0
        kept = metadata.compacted_batch_indexes
        return position, max(kept) + 1 if kept else metadata.num_messages_in_batch


def _behind(position: Position) -> Position:
    return Position(position.ledger, position.entry + 1)
