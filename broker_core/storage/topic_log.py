# SPDX-License-Identifier: Apache-2.0
"""The log of one topic ("managed ledger"): a row of ledgers, of which the last may be open (semantics 1.3).

Entry ids are given at append; everything else here shows durable entries only. Positions form one order over
all ledgers; empty and deleted ledgers are stepped over. A loaded log opens no ledger until the first append, so that
restarts leave no pile of empty ones (our reading of 1.3.2).

Invariants:
- ``next_valid(previous(p)) == p`` for each entry; ``count_entries`` is additive over adjacent ranges (I1.2).
- Ledger ids grow, entry ids are dense, message indexes never repeat, also after everything was deleted.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Final

from broker_core.base.errors import AlreadyClosedError, StorageError
from broker_core.base.positions import Position
from broker_core.storage.catalogue import LEDGER_CLOSED, TopicRow
from broker_core.storage.commit import OnDurable
from broker_core.storage.context import StoreContext
from broker_core.storage.ledger import Ledger, LedgerInfo, StoredEntry, UnreadableEntryError, remove_ledgers
from broker_core.storage.ledger_writer import LedgerWriter


class LogTerminatedError(StorageError):
    """Nothing can be appended any more, for good."""


class TopicLog:
    """Append, read and find entries of one topic. Made by ``Store.open_log``.

    Attributes:
        topic_id: The topic's id in the catalogue.
        name: Its full name.
        error: Why nothing can be appended (entries are lost, and are not given up by a setting), or None.
    """

    def __init__(
        self, context: StoreContext, topic: TopicRow, ledgers: list[Ledger], on_done: Callable[[TopicLog], None]
    ) -> None:
        """``on_done`` is called when the log is closed or deleted and nothing of it waits to be written, so that
        this object is no longer needed; it may be called more than once."""
        self._context = context
        self._on_done = on_done
        self._clock = context.clock
        self.topic_id: Final = topic.id
        self.name: Final = topic.name
        self._ledgers = ledgers
        self._ids = [ledger.id for ledger in ledgers]
        self._before = [0] * len(ledgers)
        self._count_from(0)
        self._trimmed = topic.trimmed
        self._trimmed_next_index = topic.trimmed_next_index
        self._next_index = ledgers[-1].next_index if ledgers else topic.trimmed_next_index
        self._writer: LedgerWriter | None = None
        self._writers: list[LedgerWriter] = []
        self._sealed_entries = 0
        self._listeners: list[Callable[[], None]] = []
        self._waiting: list[Callable[[], None]] = []
        self._closed = False
        self._terminated = False
        self._last_confirmed = self._find_last_confirmed()
        self.error = self._refusal()

    # -- writing

    def append(self, body: bytes, messages: int, on_durable: OnDurable) -> Position:
        """Queue an entry and give it its id at once.

        Args:
            body: The entry as it travels: magic, CRC32C, metadata size, metadata, payload. Its checksum was verified.
            messages: How many messages it holds, at least 1.
            on_durable: Called once, in the order of appends: with None when the entry is durable, else with the error.

        Raises:
            DiskFailedError: the store has failed.
            LogTerminatedError: ``terminate`` was called.
            StorageError: this topic is read-only, see ``error``.
            AlreadyClosedError: the log was closed or deleted.
        """
        return self.append_all((body,), (messages,), on_durable)

    def append_all(self, bodies: Sequence[bytes], messages: Sequence[int], on_durable: OnDurable) -> Position:
        """``append`` of entries that came together; ``on_durable`` is called once for all of them.

        Returns the position of the first. The others follow it without a gap: they share a ledger, which may go beyond
        its limits by them.
        """
        now_ms = self._clock.now_ms()
        writer = self._writer
        if writer is None or (now_ms >= writer.roll_after_ms and writer.due(now_ms)):
            writer = self._next_writer()
        return writer.append_all(bodies, messages, now_ms, on_durable)

    def _next_writer(self) -> LedgerWriter:
        if self._closed:
            raise AlreadyClosedError(f"the log of {self.name} is closed")
        if self._terminated:
            raise LogTerminatedError(f"topic {self.name} was terminated")
        if self.error is not None:
            raise self.error
        if self._context.commits.error is not None:
            raise self._context.commits.error
        next_index = self.next_index
        self._seal()
        writer = self._writer = LedgerWriter(self._context, self.topic_id, next_index, self)
        self._writers = [*self._undrained(), writer]
        self._ledgers.append(writer.ledger)
        self._ids.append(writer.ledger.id)
        self._before.append(0)
        self._count_from(len(self._ids) - 2)
        self._last_confirmed = self._find_last_confirmed()
        return writer

    def _seal(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            self._next_index = writer.next_index
            self._sealed_entries += writer.entries
            writer.seal()

    def terminate(self) -> None:
        """Refuse every append from now on; what was appended still becomes durable. The caller remembers it."""
        self._terminated = True
        if self._context.commits.error is None:
            self._seal()

    def roll_if_due(self) -> bool:
        """Close the open ledger if it is full or old (semantics 1.3.2); whether it was. Call it now and then."""
        due = self._writer is not None and self._writer.due(self._clock.now_ms())
        if due:
            self._seal()
        return due

    def roll(self) -> None:
        """Close the open ledger, however small and young; one without entries stays open."""
        if self._writer is not None and self._writer.entries and self._context.commits.error is None:
            self._seal()

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` once after each commit group that advanced ``last_confirmed``, after its callbacks."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """Undo ``add_listener``."""
        self._listeners.remove(listener)

    def entries_durable(self, ledger: Ledger) -> None:
        """For LedgerWriter only."""
        self._count_from(bisect_left(self._ids, ledger.id))
        self._last_confirmed = self._find_last_confirmed()

    def entries_told(self) -> None:
        """For LedgerWriter only."""
        for listener in list(self._listeners):
            listener()
        self._tell_if_done()

    # -- positions

    @property
    def last_confirmed(self) -> Position:
        """The newest durable entry.

        When there is none: the last deleted entry, or (ledger, -1) of the ledger just begun, or (-1, -1) for a topic
        that was never written. Never moves backwards.
        """
        return self._last_confirmed

    @property
    def readable_end(self) -> Position:
        """The last position that is shown to readers (in Pulsar ``maxReadPosition``): reads, backlogs, seeks and the
        last message id end there. Today ``last_confirmed``; what is stored beyond it is not to be delivered yet."""
        return self._last_confirmed

    @property
    def first_position(self) -> Position:
        """The position just before the first entry: ``next_valid`` of it is the first entry, once there is one."""
        return Position(self._ids[0], -1) if self._ids else self._trimmed

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
        return Position(self._last_confirmed.ledger, self._last_confirmed.entry + 1)

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
            return self.next_valid(self._last_confirmed)
        ledger = self._ledgers[i]
        return Position(ledger.id, bisect_left(ledger.index().indexes, index, 0, ledger.entries - 1))

    @property
    def next_index(self) -> int:
        """Message index that the next append begins with; also the number of messages ever appended."""
        return self._next_index if self._writer is None else self._writer.next_index

    @property
    def entries_added(self) -> int:
        """Entries appended since the log was opened, durable or not."""
        return self._sealed_entries + (0 if self._writer is None else self._writer.entries)

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

    # -- deleting and closing

    def trim(self, before: Position) -> list[int]:
        """Delete the ledgers that are closed and hold nothing at or after ``before``, oldest first; their ids.

        The files go away in the background, after that is durable.
        """
        if self.error is not None and any(ledger.missing for ledger in self._ledgers):
            return []  # what was lost may be restored
        count = 0
        for ledger in self._ledgers:
            closed = ledger.row.state == LEDGER_CLOSED or ledger.missing
            if not closed or Position(ledger.id, ledger.entries - 1) >= before:
                break
            count += 1
        if count == 0:
            return []
        gone = self._ledgers[:count]
        ids = self._ids[:count]
        trimmed = max(Position(gone[-1].id, gone[-1].entries - 1), self._trimmed)
        self._context.catalogue.trim_ledgers(self.topic_id, ids, trimmed, gone[-1].next_index)
        self._trimmed, self._trimmed_next_index = trimmed, gone[-1].next_index
        del self._ledgers[:count], self._ids[:count], self._before[:count]
        self._last_confirmed = self._find_last_confirmed()
        remove_ledgers(self._context, gone)
        self.error = self._refusal()
        return ids

    def close(self) -> None:
        """Close the open ledger; what was appended still becomes durable. Harmless if closed before."""
        if not self._closed:
            self._closed = True
            if self._context.commits.error is None:
                self._seal()
            self._tell_if_done()

    @property
    def closed(self) -> bool:
        """Whether ``close`` or ``delete`` was called."""
        return self._closed

    @property
    def drained(self) -> bool:
        """Nothing of this log is waiting to be written."""
        return not self._undrained()

    def when_drained(self, then: Callable[[], None]) -> None:
        """Call ``then`` when what ``close`` has left is written, or the log is used again; at once if so.

        If the disk refuses, ``then`` is never called.
        """
        if self._closed and not self.drained:
            self._waiting.append(then)
        else:
            then()

    def reopen(self) -> None:
        """Undo ``close``, and ``terminate``, which the caller remembers; the next append begins a new ledger."""
        self._closed = False
        self._terminated = False
        self._tell_waiting()

    def delete(self) -> None:
        """Delete the topic: its entries, its row, its subscriptions, in one step. Entries not yet durable get an error.

        The caller drops the cursors of the subscriptions.
        """
        self._closed = True
        self._writer = None
        self._context.catalogue.delete_topic(self.topic_id)
        for writer in self._undrained():
            writer.abandon(StorageError(f"topic {self.name} was deleted"))
        gone, self._ledgers, self._ids, self._before = self._ledgers, [], [], []
        remove_ledgers(self._context, gone)
        self._tell_if_done()

    # -- inside

    def _refusal(self) -> StorageError | None:
        lost = [ledger for ledger in self._ledgers if ledger.lost]
        if not lost or self._context.settings.auto_skip_non_recoverable_data:
            return None
        names = ", ".join(ledger.path + (" is missing" if ledger.missing else " is damaged") for ledger in lost[:3])
        return StorageError(
            f"topic {self.name} is read-only because {names}: {sum(each.lost for each in lost)} entries are lost",
            hint="restore the file from a backup, set autoSkipNonRecoverableData=true to give the entries up, or delete"
            " the topic",
        )

    def _tell_if_done(self) -> None:
        if self._closed and self.drained and self._context.commits.error is None:
            self._on_done(self)
            self._tell_waiting()

    def _tell_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()

    def _undrained(self) -> list[LedgerWriter]:
        self._writers = [writer for writer in self._writers if not writer.queue.drained]
        return self._writers

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
