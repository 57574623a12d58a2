# SPDX-License-Identifier: Apache-2.0
"""Places in a log: where a subscription must stand so that a given entry, or the first one of a given time, is the next
to come; ``Backlog``, the unacknowledged rest behind a place; ``StoredMessages``, the questions of administrators.

Answers are mark-delete positions: the entry right before the wanted one. Source: semantics 1.4.6.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate, chain
from typing import Final, NamedTuple

from broker_core.base.errors import CorruptEntryError, ProtocolError
from broker_core.base.positions import POSITION_EARLIEST, POSITION_LATEST, Position
from broker_core.broker.cursors.cursor import Cursor, EntryLog
from broker_core.broker.positions import PositionSet
from broker_core.storage.ledger import StoredEntry, UnreadableEntryError
from broker_core.storage.topic_log import TopicLog
from broker_core.wire.ack_sets import all_bits, words_of_bits
from broker_core.wire.entry import read_metadata
from broker_core.wire.heads import TxnId

_DAMAGED_MAX = 100
"""Damaged entries of one ledger that are tried before the rest of it is passed over; each takes some 0.05 ms."""


def before_position(log: EntryLog, position: Position) -> Position:
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


HOLES_COUNTED_MAX: Final = 10_000
"""Runs of acknowledged entries of which the messages are counted one by one for statistics; it takes some 30 ms."""


class BacklogPart(NamedTuple):
    """The backlog behind some position: how much it is, its first unacknowledged entry and the last entry stored."""

    entries: int
    messages: int
    first: Position
    last: Position


class Backlog:
    """The backlog of one cursor over one log, counted from what the log and the cursor know: no entry is read.

    Entries of open transactions, and what waits behind them, are part of it: they are to come, unless they are aborted.
    Invariant: entries are exact; messages are too up to HOLES_COUNTED_MAX holes, beyond that by mean entry size. Where
    a ledger cannot be read, nobody knows how many messages its entries hold: then entries are counted instead.
    """

    def __init__(self, log: TopicLog, cursor: Cursor) -> None:
        self._log = log
        self._cursor = cursor

    def entries(self, after: Position | None = None) -> int:
        """Unacknowledged entries behind ``after``; of the whole backlog without it."""
        start = self._start(after)
        return self._cursor.unacked_between(start, self._log.last_confirmed)

    def messages(self, after: Position | None = None) -> int:
        """Unacknowledged messages behind ``after``, those that are left of batches included."""
        start = self._start(after)
        try:
            return self._messages(start)
        except CorruptEntryError:
            return self.entries(start)

    def bytes(self) -> int:
        """About how many bytes on disk lie behind the mark-delete position."""
        return self._log.bytes_between(self._cursor.mark_delete, self._log.last_confirmed)

    def nth(self, count: int) -> Position | None:
        """The ``count``-th unacknowledged entry, from 1 on; None if there are fewer. Found by halving: millions of
        entries and holes cost a few dozen counts."""
        cursor, places = self._cursor, Places(self._log)

        def unacked_through(number: int) -> int:
            return cursor.unacked_between(cursor.mark_delete, places.position(number))

        number = bisect_left(range(places.count), count, key=unacked_through)
        return places.position(number) if count and number < places.count else None

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
        end = log.last_confirmed
        messages = log.count_messages(after, end)
        if cursor.deleted.runs_count() + cursor.aborted.runs_count() > HOLES_COUNTED_MAX:
            return messages * cursor.unacked_between(after, end) // max(log.count_entries(after, end), 1)
        for ledger, first, last in chain(cursor.deleted.runs(), cursor.aborted.runs()):
            messages -= log.count_messages(max(Position(ledger, first - 1), after), Position(ledger, last))
        for position, bits in cursor.partial.items():
            held = log.count_messages(max(Position(position.ledger, position.entry - 1), after), position)
            messages -= held - min(held, bits.bit_count())
        return messages


class TransactionOfEntry(NamedTuple):
    """The transaction that an entry was sent in, None for none; whether that was aborted; and whether the entry is not
    shown to readers yet, which may be because of another transaction."""

    name: TxnId | None
    is_aborted: bool
    is_hidden: bool


class StoredMessages:
    """The readable entries of one log, for questions of clients and administrators. Changes nothing.

    ``aborted``: entries among them that no reader gets.
    """

    def __init__(self, log: TopicLog, aborted: PositionSet) -> None:
        self._log = log
        self._aborted = aborted

    # -- where one is

    @property
    def last(self) -> Position:
        """The last one; entry -1 if there is none."""
        return self._log.readable_end

    def last_entry(self) -> tuple[Position, int]:
        """Position of the last one that a reader gets, and the size of its batch (0: not a batch); entry -1 if there is
        none."""
        last = self._log.readable_end
        while (start := self._aborted.run_start(last)) is not None:
            before = self._log.previous(start)
            if not self._log.contains(before):
                return POSITION_EARLIEST, 0
            last = before
        if last.entry < 0:
            return last, 0
        try:
            found = self._log.read(last, 1, 1)
            if not found:
                return Position(last.ledger, -1), 0
            metadata = read_metadata(found[0].body)
        except (CorruptEntryError, ProtocolError):
            return last, 0
        return last, metadata.num_messages_in_batch if metadata.HasField("num_messages_in_batch") else 0

    def holds(self, position: Position) -> bool:
        """Whether there is an entry at ``position``."""
        return self._log.contains(position)

    def nth(self, number: int, *, from_end: bool = False) -> Position | None:
        """The ``number``-th entry, from 1 on, or the farthest if there are fewer; None if there is none at all."""
        places = Places(self._log)
        if not places.count:
            return None
        place = min(max(number, 1), places.count)
        return places.position(places.count - place if from_end else place - 1)

    def at_time(self, time_ms: int) -> Position:
        """The first entry stored at or after that time; behind the last one if there is none."""
        return self._log.next_valid(before_time(self._log, time_ms))

    def of_index(self, index: int) -> Position | None:
        """The entry that holds message number ``index`` of the topic, counted from 0 on; None if none does now."""
        position = self._log.position_of_index(max(index, 0))
        oldest = next((ledger.first_index for ledger in self._log.ledgers()), 0)
        return position if index >= oldest and self._log.contains(position) else None

    # -- where to go from one

    def through(self, position: Position, *, excluded: bool = False) -> Position:
        """The last entry up to ``position``, or before it if that is ``excluded``."""
        return self._log.previous(position if excluded else self._log.next_valid(position))

    def first_wanted(
        self, position: Position, batch_index: int, *, excluded: bool
    ) -> tuple[Position, tuple[int, ...] | None]:
        """The entry to stand before so that the message at ``batch_index`` of ``position`` (-1: the entry) is the next
        one, or the message behind it if that is ``excluded``; and the ack set that hides the messages before it."""
        if batch_index >= 0 and self._log.contains(position):
            whole = all_bits(self._log.count_messages(self._log.previous(position), position))
            first = min(batch_index + excluded, whole.bit_length())
            left = whole >> first << first
            if left:
                return position, words_of_bits(left)
        return (self._log.next_valid(position) if excluded else position), None

    # -- what they hold

    def read(self, position: Position) -> StoredEntry:
        """The entry at ``position``, which there is, also one that no reader gets; StorageError: it cannot be read."""
        (entry,) = self._log.read(position, 1, 1, through=position)
        return entry

    def transaction_of(self, position: Position) -> TransactionOfEntry:
        """The transaction of the entry at ``position``, and what is known of its end. StorageError if that cannot be
        read."""
        found = next(self._log.transactions(position._replace(entry=position.entry - 1)), None)
        name = found[1] if found is not None and found[0] == position else None
        return TransactionOfEntry(name, position in self._aborted, position > self._log.readable_end)

    @property
    def size_bytes(self) -> int:
        """Bytes on disk of all of them."""
        return self._log.size_bytes

    def bytes_behind(self, position: Position) -> int:
        """About how many bytes on disk lie behind ``position``."""
        return self._log.bytes_between(position, self._log.readable_end)
