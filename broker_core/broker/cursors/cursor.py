# SPDX-License-Identifier: Apache-2.0
"""``Cursor``: what one subscription has acknowledged. Pure algorithm; storing the changes is ``cursor_journal``'s.

State: everything up to ``mark_delete`` is acknowledged, further entries one by one (``deleted``), and of some batches
single messages (``partial``: position -> bits that are still unacknowledged).

Invariants (semantics I3.1, I3.2): ``mark_delete`` goes back only by ``reset``; the next existing entry after it is not
acknowledged; all of ``deleted`` and ``partial`` lies after it; no entry is in both; a cleared bit stays cleared.
The caller checks that positions exist in the log before it acknowledges them.

Transactions: what a transaction acknowledges comes here when it commits, all of it in one turn, which the journal
writes as one record. Until then it is pending (``transactions.pending_acks``).
Entries of aborted transactions (``aborted``, which the topic keeps for all its cursors) count as acknowledged, but are
in no cursor's state and in no record.

An ack costs the same however many holes there are: only the ack of the very next entry can move ``mark_delete``, and
then whole runs are skipped at a time. Source: Pulsar docs, "Acknowledgement"; PIP-54 (batch index); semantics 3.4, 3.5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from pyroaring import BitMap

from broker_core.base.invariants import invariant
from broker_core.base.positions import Position, positions_of
from broker_core.broker.positions import PositionSet
from broker_core.storage.cursor_state import AlsoAcked, CursorChange, CursorState, Deleted, MarkDelete, Partial
from broker_core.storage.ledger import StoredEntry, UnreadableEntryError
from broker_core.wire.ack_sets import words_of_bits

_NO_ENTRIES: Final = PositionSet()


class LogGeometry(Protocol):
    """Which entries exist. Positions are durable entries, or stand between them."""

    @property
    def last_confirmed(self) -> Position:
        """The last entry that is durable; entry -1 if there is none."""

    def next_valid(self, position: Position) -> Position:
        """The first entry after ``position``, or where the next one would go."""

    def previous(self, position: Position) -> Position:
        """The last entry before ``position``, or a place before the first entry."""

    def count_entries(self, lower_exclusive: Position, upper_inclusive: Position) -> int: ...


class EntryLog(LogGeometry, Protocol):
    """The entries that a subscription reads and acknowledges: the log of its topic, or with ``readCompacted`` the view
    and the log behind it. ``LedgerList`` says what each method is for."""

    @property
    def last_confirmed(self) -> Position: ...

    @property
    def readable_end(self) -> Position: ...

    def contains(self, position: Position) -> bool: ...

    def count_messages(self, lower_exclusive: Position, upper_inclusive: Position) -> int: ...

    def lost_at(self, position: Position) -> UnreadableEntryError | None: ...

    def read(self, start: Position, entries_max: int, bytes_max: int) -> list[StoredEntry]: ...


class CountsAcked(Protocol):
    """A log with gaps: some of what is acknowledged may not be in it."""

    def count_acked(self, acked: PositionSet, lower_exclusive: Position, upper_inclusive: Position) -> int:
        """How many entries of ``acked`` it has in (lower, upper]."""


class Cursor:
    """The acknowledgements of one subscription over one log."""

    __slots__ = (
        "_fresh", "_fresh_partial", "_gaps", "_log", "_recorded", "_stored", "aborted", "deleted", "mark_delete",
        "partial",
    )  # fmt: skip

    def __init__(
        self, log: LogGeometry, mark_delete: Position, *, aborted: PositionSet | None = None, stored: bool = True
    ) -> None:
        """``aborted``: the topic's dead entries, which grow; call ``settle`` after that. ``stored``: a journal calls
        ``drain_change``; without one no changes are collected."""
        self._log = log
        self._gaps: CountsAcked | None = None
        self.aborted: PositionSet = _NO_ENTRIES if aborted is None else aborted
        self.mark_delete = mark_delete
        self.deleted = PositionSet()
        self.partial: dict[Position, int] = {}
        self._stored = stored
        self._recorded = mark_delete
        self._fresh = PositionSet()
        self._fresh_partial: set[Position] = set()
        self._begin()

    def read_from(self, log: LogGeometry, gaps: CountsAcked | None = None) -> None:
        """Entries come from ``log`` from now on: a consumer reads the compacted view, or does not any more. ``gaps``:
        the same log, if it does not have all positions."""
        self._log = log
        self._gaps = gaps

    def restore(self, deleted: Mapping[int, BitMap], partial: Mapping[Position, int], last: Position) -> None:
        """Take over what was recovered beside ``mark_delete``, up to ``last``; nothing of it counts as a change."""
        self.deleted.replace(deleted)
        self.deleted.discard_through(self.mark_delete)
        self.deleted.discard_after(last)
        self.partial = {p: bits for p, bits in partial.items() if self.mark_delete < p <= last and not self.is_acked(p)}
        self.settle()

    # -- questions

    def untouched_from(self, position: Position) -> bool:
        """Whether it is certain that nothing at or after ``position`` is acknowledged: the usual case of a new read."""
        if position <= self.mark_delete or self.partial:
            return False
        last = self.deleted.last()
        if last is not None and last >= position:
            return False
        last = self.aborted.last()
        return last is None or last < position

    def is_acked(self, position: Position) -> bool:
        return position <= self.mark_delete or position in self.deleted or position in self.aborted

    def first_unacked(self) -> Position:
        """Where reading begins: the first entry after ``mark_delete``."""
        return self._log.next_valid(self.mark_delete)

    def skip_acked(self, position: Position) -> Position:
        """The first place at or after ``position`` that is not acknowledged."""
        if position <= self.mark_delete:
            position = self.first_unacked()
        while (end := self._acked_through(position)) is not None:
            position = self._log.next_valid(end)
        return position

    def _acked_through(self, position: Position) -> Position | None:
        """The end of a run of acknowledged entries that begins at ``position``, perhaps not of the whole run."""
        end = self.deleted.run_end(position)
        return self.aborted.run_end(position) if end is None and self.aborted else end

    def backlog_entries(self) -> int:
        """Entries that are not acknowledged, those of open transactions among them (semantics 3.6.8)."""
        return self.unacked_between(self.mark_delete, self._log.last_confirmed)

    def unacked_between(self, lower_exclusive: Position, upper_inclusive: Position) -> int:
        """Unacknowledged entries in (lower, upper]; ``lower_exclusive`` is not before ``mark_delete``."""
        entries = self._log.count_entries(lower_exclusive, upper_inclusive)
        for acked in (self.deleted, self.aborted):
            if acked and self._gaps is not None:
                entries -= self._gaps.count_acked(acked, lower_exclusive, upper_inclusive)
            elif acked:
                entries -= acked.count_through(upper_inclusive) - acked.count_through(lower_exclusive)
        return max(entries, 0)

    # -- acknowledgements; call ``settle`` after the last one of a request

    def ack(self, position: Position) -> bool:
        """Acknowledge one entry; false if it was acknowledged before."""
        mark_delete = self.mark_delete
        if position <= mark_delete or position in self.deleted or position in self.aborted:
            return False
        if self.partial:
            self.partial.pop(position, None)
        if position[1] == mark_delete[1] + 1 and position[0] == mark_delete[0]:
            self.mark_delete = position
        else:
            self.deleted.add(position)
            if self._stored:
                self._fresh.add(position)
        return True

    def ack_entries(self, ledger: int, entries: Sequence[int]) -> None:
        """``ack`` of many entries of one ledger."""
        if self.partial or self.aborted or (ledger, min(entries)) <= self.mark_delete:
            for position in positions_of(ledger, entries):
                self.ack(position)
        elif self.deleted.add_all(ledger, entries) and self._stored:
            self._fresh.add_all(ledger, entries)

    def ack_partial(self, position: Position, unacked_bits: int) -> int:
        """Acknowledge the messages of one batch whose bit is 0; returns the bits still open, 0 = the whole entry."""
        if self.is_acked(position):
            return 0
        left = self.partial.get(position, unacked_bits) & unacked_bits
        if not left:
            self.ack(position)
        else:
            self.partial[position] = left
            if self._stored:
                self._fresh_partial.add(position)
        return left

    def ack_through(self, position: Position) -> bool:
        """Acknowledge everything up to and including ``position``; false if that is nothing new."""
        if position <= self.mark_delete:
            return False
        self.mark_delete = position
        self.deleted.discard_through(position)
        if self.partial:
            for each in [each for each in self.partial if each <= position]:
                del self.partial[each]
        return True

    def settle(self) -> None:
        """Move ``mark_delete`` over all that is acknowledged without a gap."""
        if not self.deleted and not self.aborted:
            return
        mark_delete = self.mark_delete
        while (end := self._acked_through(self._log.next_valid(mark_delete))) is not None:
            mark_delete = end
        if mark_delete != self.mark_delete:
            self.mark_delete = mark_delete
            self.deleted.discard_through(mark_delete)
        invariant(not self.partial or mark_delete not in self.partial, "%s is acknowledged twice over", mark_delete)

    def reset(self, mark_delete: Position, partial: Mapping[Position, int] | None = None) -> None:
        """Forget all acknowledgements and stand right after ``mark_delete``: the only way back."""
        self.mark_delete = self._recorded = mark_delete
        self.deleted.clear()
        self.partial = {position: bits for position, bits in (partial or {}).items() if position not in self.aborted}
        self._fresh.clear()
        self._fresh_partial.clear()
        self._begin()

    def _begin(self) -> None:
        """A reader stays where it asked to begin, in front of dead entries too: it is told what lies before that."""
        if self._stored:
            self.settle()

    # -- for storing

    def drain_change(self) -> CursorChange | None:
        """The net change since the last call, as one record however many acks it was; None if there is none.

        Applying it twice does no harm.
        """
        mark_delete, before = self.mark_delete, self._recorded
        self._recorded = mark_delete
        deleted: dict[int, BitMap] = {}
        if self._fresh:
            fresh, self._fresh = self._fresh, PositionSet()
            fresh.discard_through(mark_delete)
            deleted = fresh.bitmaps()
        open_bits = {position: self.partial.get(position) for position in self._fresh_partial}
        self._fresh_partial.clear()
        partial = {position: words_of_bits(bits) for position, bits in open_bits.items() if bits}
        if not deleted and not partial:
            return MarkDelete(mark_delete) if mark_delete != before else None
        if mark_delete == before and len(deleted) + len(partial) == 1:
            for position, words in partial.items():
                return Partial(position, words)
            for ledger, entries in deleted.items():
                first, last = entries.min(), entries.max()
                if last - first + 1 == len(entries):
                    return Deleted(ledger, first, last)
        return AlsoAcked(CursorState(mark_delete, deleted, partial))

    def state(self) -> CursorState:
        """A copy of everything, for a snapshot."""
        words = {position: words_of_bits(bits) for position, bits in self.partial.items()}
        return CursorState(self.mark_delete, self.deleted.bitmaps(), words)
