# SPDX-License-Identifier: Apache-2.0
"""The ledgers of one topic, in order, and the positions of the durable entries in them (semantics 1.3).

Positions form one order over all ledgers; empty and deleted ledgers are stepped over. Knows neither how entries are
written nor when ledgers are deleted: ``topic_log`` adds that.

Invariants:
- ``next_valid(previous(p)) == p`` for each entry; ``count_entries`` is additive over adjacent ranges (I1.2).
- Ledger ids grow, and entry ids are dense within a ledger.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from broker_core.base.positions import Position
from broker_core.storage.ledger import Ledger, LedgerInfo, StoredEntry, UnreadableEntryError
from broker_core.wire.heads import TxnId


class LedgerList:
    """The base of ``TopicLog``: what of it can be asked and read.

    ``last_confirmed`` is the newest durable entry. When there is none: the last deleted entry, or (ledger, -1) of the
    ledger just begun, or (-1, -1) for a topic that was never written. Never moves backwards.
    """

    def __init__(self, ledgers: list[Ledger], trimmed: Position, trimmed_next_index: int) -> None:
        """``trimmed``: the last entry that retention has deleted, and the message index behind it."""
        self._ledgers = ledgers
        self._ids = [ledger.id for ledger in ledgers]
        self._before = [0] * len(ledgers)
        self._count_from(0)
        self._trimmed = trimmed
        self._trimmed_next_index = trimmed_next_index
        self.last_confirmed = self._find_last_confirmed()
        self._hidden_from: Position | None = None

    # -- positions

    @property
    def readable_end(self) -> Position:
        """The last position that is shown to readers (in Pulsar ``maxReadPosition``): reads, seeks and the last message
        id end there. ``last_confirmed`` unless entries are hidden: what is stored beyond may not be delivered yet."""
        hidden = self._hidden_from
        return self.last_confirmed if hidden is None or hidden > self.last_confirmed else self.previous(hidden)

    def hide_from(self, position: Position | None) -> None:
        """Show readers nothing at or after ``position``, which may not be durable yet; None: everything durable."""
        self._hidden_from = position

    @property
    def first_position(self) -> Position:
        """The position just before the first entry: ``next_valid`` of it is the first entry, once there is one."""
        return Position(self._ids[0], -1) if self._ids else self._trimmed

    @property
    def trimmed(self) -> Position:
        """The last entry that retention has deleted; before all entries if there is none."""
        return self._trimmed

    def next_valid(self, position: Position) -> Position:
        """The first entry after ``position``; if there is none yet, the position after ``last_confirmed``.

        The next append may get a greater position than that, in a new ledger; ``read`` finds it from there.
        """
        ids, ledgers = self._ids, self._ledgers
        i = bisect_left(ids, position.ledger)
        if i < len(ids) and ids[i] == position.ledger:
            entry = max(position.entry + 1, 0)
            if entry < ledgers[i].entries:
                return Position(position.ledger, entry)
            i += 1
        while i < len(ids):
            if ledgers[i].entries:
                return Position(ids[i], 0)
            i += 1
        return Position(self.last_confirmed.ledger, self.last_confirmed.entry + 1)

    def previous(self, position: Position) -> Position:
        """The last entry before ``position``, or ``first_position`` if none is."""
        i = bisect_right(self._ids, position.ledger) - 1
        if i >= 0 and self._ids[i] == position.ledger:
            entry = min(position.entry, self._ledgers[i].entries) - 1
            if entry >= 0:
                return Position(position.ledger, entry)
            i -= 1
        while i >= 0:
            if self._ledgers[i].entries:
                return Position(self._ids[i], self._ledgers[i].entries - 1)
            i -= 1
        return self.first_position

    def contains(self, position: Position) -> bool:
        """Whether a durable entry has this position."""
        ledger = self._ledger(position.ledger)
        return ledger is not None and 0 <= position.entry < ledger.entries

    def count_entries(self, lower_exclusive: Position, upper_inclusive: Position) -> int:
        """Durable entries in (lower, upper]; 0 if upper is not after lower."""
        return max(self._rank(upper_inclusive) - self._rank(lower_exclusive), 0)

    def count_messages(self, lower_exclusive: Position, upper_inclusive: Position) -> int:
        """Messages of the durable entries in (lower, upper], by message index."""
        return max(self._index_after(upper_inclusive) - self._index_after(lower_exclusive), 0)

    def lost_at(self, position: Position) -> UnreadableEntryError | None:
        """Why the entry at ``position`` cannot be read, if it is known to be lost or was found to be damaged."""
        ledger = self._ledger(position.ledger)
        return ledger.lost_at(position.entry) if ledger is not None and self.contains(position) else None

    def bytes_between(self, lower_exclusive: Position, upper_inclusive: Position) -> int:
        """About how many bytes of files the entries in (lower, upper] take: exact for whole ledgers, else pro rata."""
        total = 0
        for ledger in self._ledgers:
            if not ledger.entries or not lower_exclusive.ledger <= ledger.id <= upper_inclusive.ledger:
                continue
            lower = Position(ledger.id, -1) if ledger.id > lower_exclusive.ledger else lower_exclusive
            upper = Position(ledger.id, ledger.entries) if ledger.id < upper_inclusive.ledger else upper_inclusive
            total += ledger.end * self.count_entries(lower, upper) // ledger.entries
        return total

    def position_of_index(self, index: int) -> Position:
        """The entry that holds message number ``index``.

        The first entry if that message was deleted, the position after ``last_confirmed`` if it is not there yet.
        """
        i = bisect_right(self._ledgers, index, key=lambda ledger: ledger.next_index)
        while i < len(self._ledgers) and not self._ledgers[i].entries:
            i += 1
        if i == len(self._ledgers):
            return self.next_valid(self.last_confirmed)
        ledger = self._ledgers[i]
        return Position(ledger.id, bisect_left(ledger.index().indexes, index, 0, ledger.entries - 1))

    @property
    def entries_count(self) -> int:
        """Durable entries that exist."""
        return self._before[-1] + self._ledgers[-1].entries - self._before[0] if self._ledgers else 0

    @property
    def size_bytes(self) -> int:
        """Bytes of the files of all ledgers."""
        return sum(ledger.info.size_bytes for ledger in self._ledgers)

    def ledgers(self) -> list[LedgerInfo]:
        """All ledgers, oldest first."""
        return [ledger.info for ledger in self._ledgers]

    # -- reading

    def read(
        self, start: Position, entries_max: int, bytes_max: int, *, through: Position | None = None
    ) -> list[StoredEntry]:
        """Entries in order, from ``start`` or the first entry after it.

        Returns at least one entry if there is one, at most ``entries_max``; bodies together exceed ``bytes_max``
        only if the first alone does. May return fewer than asked before the end: read on from after the last.

        ``through``: the last entry that is wanted, ``readable_end`` by default. What recovers its own state from the
        log reads through ``last_confirmed``.

        Raises:
            UnreadableEntryError: the first entry of the range cannot be read; its ``position`` says which it is.
        """
        end = self.readable_end if through is None else through
        number, entry = start
        ledger = self._ledger(number)
        if ledger is None or not 0 <= entry < ledger.entries:
            number, entry = self.next_valid(start)
            ledger = self._ledger(number)
        if number >= end.ledger:
            left = end.entry - entry + 1 if number == end.ledger else 0
            if left <= 0:
                return []
            entries_max = min(entries_max, left)
        if ledger is None:
            return []
        return ledger.read(entry, entries_max, bytes_max)

    def transactions(self, after: Position) -> Iterator[tuple[Position, TxnId]]:
        """The durable entries after ``after`` that were sent in a transaction, each with that, in order.

        Entries that are damaged, or lost with their ledger, are passed over: they are never delivered.

        Raises:
            UnreadableEntryError: the disk refused to read a ledger.
        """
        for ledger in self._ledgers[bisect_left(self._ids, after.ledger) :]:
            first = after.entry + 1 if ledger.id == after.ledger else 0
            try:
                for entry, transaction in ledger.transactions(first):
                    yield Position(ledger.id, entry), transaction
            except UnreadableEntryError as error:
                if error.refused:
                    raise
            except OSError as error:
                what = f"{ledger.path} cannot be read: {error.strerror or error}"
                raise UnreadableEntryError(what, position=Position(ledger.id, first), refused=True) from error

    # -- changes, for TopicLog

    def _add_ledger(self, ledger: Ledger) -> None:
        """A new ledger was begun."""
        self._ledgers.append(ledger)
        self._ids.append(ledger.id)
        self._before.append(0)
        self._count_from(len(self._ids) - 2)
        self.last_confirmed = self._find_last_confirmed()

    def entries_durable(self, ledger: Ledger) -> None:
        """``LedgerWriter`` reports: more entries of ``ledger`` became durable, and their callbacks come next."""
        self._count_from(bisect_left(self._ids, ledger.id))
        self.last_confirmed = self._find_last_confirmed()

    def _remove_through(self, ledger: Ledger, trimmed: Position) -> None:
        """Retention deletes a ledger and all before it; ``trimmed`` is the last entry that it has deleted."""
        count = self._ledgers.index(ledger) + 1
        self._trimmed, self._trimmed_next_index = trimmed, ledger.next_index
        del self._ledgers[:count], self._ids[:count], self._before[:count]
        self.last_confirmed = self._find_last_confirmed()

    def _remove_all(self) -> list[Ledger]:
        """The topic is deleted; the ledgers that it had."""
        gone, self._ledgers, self._ids, self._before = self._ledgers, [], [], []
        return gone

    # -- inside

    def _ledger(self, ledger: int) -> Ledger | None:
        i = bisect_left(self._ids, ledger)
        return self._ledgers[i] if i < len(self._ids) and self._ids[i] == ledger else None

    def _count_from(self, i: int) -> None:
        """Renew ``_before`` (durable entries before each ledger) for all ledgers after number ``i``."""
        for j in range(max(i + 1, 1), len(self._ledgers)):
            self._before[j] = self._before[j - 1] + self._ledgers[j - 1].entries

    def _find_last_confirmed(self) -> Position:
        for ledger in reversed(self._ledgers):
            if ledger.entries:
                return Position(ledger.id, ledger.entries - 1)
        return Position(self._ids[0], -1) if self._ids else self._trimmed

    def _rank(self, position: Position) -> int:
        """Durable entries at or before ``position``, plus a constant."""
        i = bisect_right(self._ids, position.ledger) - 1
        if i < 0:
            return self._before[0] if self._before else 0
        ledger = self._ledgers[i]
        here = ledger.entries if ledger.id < position.ledger else min(max(position.entry + 1, 0), ledger.entries)
        return self._before[i] + here

    def _index_after(self, position: Position) -> int:
        """Message index after the last durable entry at or before ``position``."""
        i = bisect_right(self._ids, position.ledger) - 1
        while i >= 0 and not self._ledgers[i].entries:
            i -= 1
        if i < 0:
            return self._ledgers[0].first_index if self._ledgers else self._trimmed_next_index
        ledger = self._ledgers[i]
        if ledger.id < position.ledger or position.entry >= ledger.entries - 1:
            return ledger.next_index
        return ledger.first_index if position.entry < 0 else ledger.index(position.entry).indexes[position.entry] + 1
