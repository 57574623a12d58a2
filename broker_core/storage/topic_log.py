# SPDX-License-Identifier: Apache-2.0
"""The log of one topic ("managed ledger"): a row of ledgers, of which the last may be open (semantics 1.3).

Order of a ledger's life on disk, so that a crash at any point leaves nothing ambiguous:
1. The catalogue gets a row LEDGER_CREATING.
2. The first group writes file header and first entries, syncs the file and its directory.
3. The row becomes LEDGER_OPEN; only then are the first entries reported durable.
4. Closing appends the footer like another entry; after that is durable the row becomes LEDGER_CLOSED with the summary.

The commit worker does steps 1 to 3 in one job; opening a ledger costs the loop's thread no file operation.

Entry ids are given at append; everything that is asked and read (``ledger_list``) shows durable entries only. A loaded
log opens no ledger until the first append, so that restarts leave no pile of empty ones (our reading of 1.3.2).

Invariant: message indexes never repeat, also after everything was deleted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final

from broker_core.base.errors import AlreadyClosedError, StorageError
from broker_core.base.invariants import invariant
from broker_core.base.positions import Position
from broker_core.storage.catalogue import LEDGER_CLOSED, LEDGER_CREATING, LEDGER_OPEN, TopicRow
from broker_core.storage.commit import OnDurable, WriteQueue
from broker_core.storage.context import StoreContext
from broker_core.storage.ledger import Ledger, remove_ledgers
from broker_core.storage.ledger_index import LedgerIndex, encode_footer, encode_part
from broker_core.storage.ledger_list import LedgerList
from broker_core.storage.records import (
    ENTRY_BODY_BYTES_MIN,
    ENTRY_MAGIC,
    FILE_HEADER_BYTES,
    HEAD_BYTES,
    TAG_ENTRY,
    TAG_TXN,
    TXN_BYTES,
    Head,
    crc32c_from,
    encode_head,
    encode_mark,
    encode_transaction,
    is_sealed,
    pack_crc,
    pack_head,
)
from broker_core.wire.heads import TxnId

INDEX_EVERY_ENTRIES: Final = 64 * 1024
"""Entries between two INDEX records, each of a MiB then. Recovery reads at most so many entries, and those of the last
group, one by one: some 0.1 s."""

INDEX_EVERY_BYTES: Final = 128 << 20
"""Bytes between two INDEX records; with large entries this is reached before ``INDEX_EVERY_ENTRIES``."""

INDEX_ENTRIES_MAX: Final = 1 << 20
"""A ledger with so many entries is closed however young it is: its index is in memory while it is open, 16 MiB then."""

_MS_PER_MINUTE: Final = 60_000
_MIB: Final = 1024 * 1024


class LogTerminatedError(StorageError):
    """Nothing can be appended any more, for good."""


class TopicLog(LedgerList):
    """Append, read and find entries of one topic. Made by ``Store.open_log``.

    Attributes:
        topic_id: The topic's id in the catalogue.
        name: Its full name.
        closed: Whether ``close`` or ``delete`` was called.
        error: Why nothing can be appended (entries are lost, and are not given up by a setting), or None.
    """

    def __init__(
        self, context: StoreContext, topic: TopicRow, ledgers: list[Ledger], on_done: Callable[[TopicLog], None]
    ) -> None:
        """``on_done`` is called when the log is closed or deleted and nothing of it waits to be written, so that
        this object is no longer needed; it may be called more than once."""
        super().__init__(ledgers, topic.trimmed, topic.trimmed_next_index)
        self._context = context
        self._on_done = on_done
        self._clock = context.clock
        self.topic_id: Final = topic.id
        self.name: Final = topic.name
        self._next_index = ledgers[-1].next_index if ledgers else topic.trimmed_next_index
        self._writer: LedgerWriter | None = None
        self._writers: list[LedgerWriter] = []
        self._sealed_entries = 0
        self._listeners: list[Callable[[], None]] = []
        self._waiting: list[Callable[[], None]] = []
        self.closed = False
        self._terminated = False
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

    def append_in(self, transaction: TxnId, body: bytes, messages: int, on_durable: OnDurable) -> Position:
        """``append`` of an entry that was sent in a transaction, whose id is stored beside it.

        It is synced before it is called durable, whatever the durability: the decision to commit, which follows, is.
        """
        now_ms = self._clock.now_ms()
        writer = self._writer
        if writer is None or writer.due(now_ms):
            writer = self._next_writer()
        return writer.append_in(transaction, body, messages, now_ms, on_durable)

    def _next_writer(self) -> LedgerWriter:
        if self.closed:
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
        self._add_ledger(writer.ledger)
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

    def callbacks_done(self) -> None:
        """``LedgerWriter`` reports: the callbacks of these entries were called."""
        for listener in list(self._listeners):
            listener()
        self._tell_if_done()

    @property
    def next_index(self) -> int:
        """Message index that the next append begins with; also the number of messages ever appended."""
        return self._next_index if self._writer is None else self._writer.next_index

    @property
    def entries_added(self) -> int:
        """Entries appended since the log was opened, durable or not."""
        return self._sealed_entries + (0 if self._writer is None else self._writer.entries)

    @property
    def synced(self) -> bool:
        """Whether all entries up to ``last_confirmed`` will survive a power loss; with ``durability=async`` that is so
        once a second, when the listeners are called."""
        return all(writer.synced for writer in self._writers)

    def when_stored(self, then: OnDurable) -> None:
        """Call ``then`` when all that was appended so far is durable, at once if it is; else with the error."""
        undrained = self._undrained()
        if not undrained:
            then(self._context.commits.error)
            return
        queue = (self._writer or undrained[-1]).queue  # the open one comes last
        queue.callbacks.append(then)
        if not queue.waiting:
            self._context.commits.wake(queue)

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
        self._remove_through(gone[-1], trimmed)
        remove_ledgers(self._context, gone)
        self.error = self._refusal()
        return ids

    def close(self) -> None:
        """Close the open ledger; what was appended still becomes durable. Harmless if closed before."""
        if not self.closed:
            self.closed = True
            if self._context.commits.error is None:
                self._seal()
            self._tell_if_done()

    @property
    def drained(self) -> bool:
        """Nothing of this log is waiting to be written."""
        return not self._undrained()

    def when_drained(self, then: Callable[[], None]) -> None:
        """Call ``then`` when what ``close`` has left is written, or the log is used again; at once if so.

        If the disk refuses, ``then`` is never called.
        """
        if self.closed and not self.drained:
            self._waiting.append(then)
        else:
            then()

    def reopen(self) -> None:
        """Undo ``close``, and ``terminate``, which the caller remembers; the next append begins a new ledger."""
        self.closed = False
        self._terminated = False
        self._tell_waiting()

    def delete(self) -> None:
        """Delete the topic: its entries, its row, its subscriptions, in one step. Entries not yet durable get an error.

        The caller drops the cursors of the subscriptions.
        """
        self.closed = True
        self._writer = None
        self._context.catalogue.delete_topic(self.topic_id)
        self._context.quarantine.report.topic_deleted(self.name)
        for writer in self._undrained():
            writer.abandon(StorageError(f"topic {self.name} was deleted"))
        remove_ledgers(self._context, self._remove_all())
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
        if self.closed and self.drained and self._context.commits.error is None:
            self._on_done(self)
            self._tell_waiting()

    def _tell_waiting(self) -> None:
        if not self._waiting:
            return  # no list for each of thousands that are unloaded together: Python would look at all of them at once
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()

    def _undrained(self) -> list[LedgerWriter]:
        """Writers with something that waits to be written; the open one may come and go."""
        return [writer for writer in self._writers if not writer.queue.drained]


class LedgerWriter:
    """The writing side of one ledger.

    Attributes:
        ledger: The reading side, which shows what is durable.
        queue: Where the bytes wait.
        roll_after_ms: Before this time the ledger is too young to be closed for its size; 0 once its index is full.
        synced: Whether all that was reported durable will survive a power loss; not so between two syncs of
            ``durability=async``.
        next_index: Message index that the next append begins with.
    """

    __slots__ = (
        "_abandoned", "_bodies", "_commits", "_context", "_footer_at", "_index", "_log", "_part_at", "_parted",
        "_times", "ledger", "next_index", "queue", "roll_after_ms", "synced",
    )  # fmt: skip

    def __init__(self, context: StoreContext, topic_id: int, next_index: int, log: TopicLog) -> None:
        """Begin a new ledger whose first message has index ``next_index``."""
        created_ms = context.clock.now_ms()
        row = context.catalogue.ledgers.create(topic_id, created_ms, next_index)
        self._context = context
        self._commits = context.commits
        self._log = log
        self.ledger: Final = Ledger(context, row)
        self._index = self.ledger.live_index = LedgerIndex(next_index, FILE_HEADER_BYTES)
        self.ledger.end = FILE_HEADER_BYTES
        self.next_index = next_index
        self._bodies: list[bytes] = []
        self._times: list[int] = []
        self._footer_at = -1
        self._part_at = 0
        self._parted = 0
        self._abandoned = False
        self.synced = True
        self.roll_after_ms = (
            created_ms + context.settings.managed_ledger_min_ledger_rollover_time_minutes * _MS_PER_MINUTE
        )
        self.queue: Final = WriteQueue(self.ledger.path, row.id, self, start=0, fresh=True)
        self.queue.buffers.append(row.header.encode())
        self.queue.end = FILE_HEADER_BYTES

    @property
    def entries(self) -> int:
        """Entries appended, durable or not."""
        return len(self._index.offsets)

    def append_all(
        self, bodies: Sequence[bytes], messages: Sequence[int], now_ms: int, on_durable: OnDurable
    ) -> Position:
        """Queue entries that become durable together; where the first is, the others follow it.

        The loop runs for every entry that is published: keep it flat.
        """
        sealed = {body[:2] for body in bodies} == {ENTRY_MAGIC} and min(map(len, bodies)) >= ENTRY_BODY_BYTES_MIN
        invariant(sealed and min(messages) >= 1, "an entry must bring its checksum and at least one message")
        if self._commits.error is not None:
            raise self._commits.error
        queue, index, seed = self.queue, self._index, self.ledger.seed
        buffers, offsets, indexes = queue.buffers, index.offsets, index.indexes
        offset, last_index = queue.end, self.next_index - 1
        first = entry = len(offsets)
        for body, count in zip(bodies, messages, strict=True):
            size = len(body)
            last_index += count
            head = pack_head(TAG_ENTRY, size, count, body[2:6], entry, last_index, now_ms)
            buffers += (head, pack_crc(crc32c_from(seed ^ (offset & 0xFFFFFFFF) ^ (offset >> 32), head)), body)
            offsets.append(offset)
            indexes.append(last_index)
            offset += HEAD_BYTES + size
            entry += 1
        queue.callbacks.append(on_durable)
        queue.end, self.next_index = offset, last_index + 1
        self._bodies += bodies
        self._times += [now_ms] * len(bodies)
        if entry >= INDEX_ENTRIES_MAX:
            self.roll_after_ms = 0
        if not queue.waiting:
            self._commits.wake(queue)
        return Position(self.ledger.id, first)

    def append_in(self, transaction: TxnId, body: bytes, messages: int, now_ms: int, on_durable: OnDurable) -> Position:
        """Queue an entry that was sent in a transaction."""
        invariant(is_sealed(body) and messages >= 1, "an entry must bring its checksum and at least one message")
        if self._commits.error is not None:
            raise self._commits.error
        queue, index = self.queue, self._index
        entry, last_index = len(index.offsets), self.next_index + messages - 1
        head = Head(TAG_TXN, TXN_BYTES + len(body), messages, body[2:6], entry, last_index, now_ms)
        prefix = encode_transaction(transaction, head.check, entry, last_index)
        queue.buffers += (encode_head(self.ledger.seed, queue.end, head), prefix, body)
        queue.sync_always = True
        index.add(queue.end, last_index)
        queue.callbacks.append(on_durable)
        queue.end += HEAD_BYTES + head.length
        self.next_index = last_index + 1
        self._bodies.append(body)
        self._times.append(now_ms)
        if entry + 1 >= INDEX_ENTRIES_MAX:
            self.roll_after_ms = 0
        if not queue.waiting:
            self._commits.wake(queue)
        return Position(self.ledger.id, entry)

    def due(self, now_ms: int) -> bool:
        """Whether the ledger is to be closed (semantics 1.3.2: by entries, size or age, but not a young one).

        One whose index is full is closed at any age, and one from the future, for the clock was set back, is not young.
        """
        settings = self._context.settings
        if self.ledger.created_ms <= now_ms < self.roll_after_ms or not self.entries:
            return False
        age_ms = now_ms - self.ledger.created_ms
        return (
            self.entries >= INDEX_ENTRIES_MAX
            or self.entries >= settings.managed_ledger_max_entries_per_ledger
            or self.queue.end >= settings.managed_ledger_max_size_per_ledger_mbytes * _MIB
            or age_ms >= settings.managed_ledger_max_ledger_rollover_time_minutes * _MS_PER_MINUTE
        )

    def seal(self) -> None:
        """Append the footer. Nothing can be appended any more."""
        invariant(self._footer_at < 0, "ledger %s is sealed already", self.ledger.id)
        queue = self.queue
        footer = encode_footer(self.ledger.seed, queue.end, self._index)
        self._footer_at = queue.end
        queue.buffers.append(footer)
        queue.end += len(footer)
        queue.sync_always = True  # the row LEDGER_CLOSED is always synced, and stands for the whole file
        queue.marked = False
        self.ledger.closed = True
        if not queue.waiting:
            self._commits.wake(queue)

    def abandon(self, error: StorageError) -> None:
        """The topic is deleted: drop what waits; what is in flight no longer matters."""
        self._abandoned = True
        self._context.marks.release(self.ledger.id)
        self._commits.cancel(self.queue, error)

    # -- GroupOwner

    def mark(self, offset: int) -> bytes:
        return encode_mark(self.ledger.seed, offset, offset, self.entries, self.next_index)

    def group_begins(self) -> None:
        ledger = self.ledger
        if ledger.row.state == LEDGER_CREATING and not self._abandoned:
            self._context.catalogue.ledgers.mark_open(ledger.id)
            ledger.row = ledger.row._replace(state=LEDGER_OPEN)

    def group_durable(self, end: int) -> None:
        if self._abandoned:
            return
        ledger = self.ledger
        self.synced = self.queue.synced >= end
        sealed = 0 <= self._footer_at < end
        first = ledger.entries
        durable = bisect_left(self._index.offsets, end, lo=first)
        if durable > first:
            self._publish(first, durable, self._footer_at if sealed else end)
            self._log.entries_durable(ledger)
        if sealed:
            self._close(end)
        elif self._footer_at < 0:
            self._note_part()
            self._write_part_if_due()

    def _note_part(self) -> None:
        """Note the newest INDEX record in the catalogue once it was synced: recovery relies on that place."""
        row, at = self.ledger.row, self._part_at
        if row.footer_offset < at < self.queue.synced:
            self._context.catalogue.ledgers.note_index_record(row.id, at)
            self.ledger.row = row._replace(footer_offset=at)

    def _write_part_if_due(self) -> None:
        queue = self.queue
        fresh = self.entries - self._parted
        if not fresh or (fresh < INDEX_EVERY_ENTRIES and queue.end - self._part_at < INDEX_EVERY_BYTES):
            return
        part = encode_part(self.ledger.seed, queue.end, self._index, self._parted, self._part_at)
        self._parted, self._part_at = self.entries, queue.end
        queue.buffers.append(part)
        queue.end += len(part)
        if not queue.waiting:
            self._commits.wake(queue)

    def group_done(self) -> None:
        self._log.callbacks_done()

    def _publish(self, first: int, durable: int, end: int) -> None:
        """Make entries visible and keep their bytes for consumers that are caught up."""
        ledger, index = self.ledger, self._index
        count = durable - first
        bodies, times = self._bodies[:count], self._times[:count]
        del self._bodies[:count], self._times[:count]
        self._context.tail_cache.add(ledger.id, first, bodies, times, end - ledger.end)
        ledger.first_ms = ledger.first_ms or times[0]
        ledger.last_ms = times[-1]
        ledger.next_index = index.indexes[durable - 1] + 1
        ledger.end = index.end = end
        ledger.entries = durable

    def _close(self, size_bytes: int) -> None:
        ledger = self.ledger
        row = ledger.row._replace(
            state=LEDGER_CLOSED,
            next_index=ledger.next_index,
            entries=ledger.entries,
            footer_offset=self._footer_at,
            size_bytes=size_bytes,
            first_ms=ledger.first_ms,
            last_ms=ledger.last_ms,
        )
        self._context.catalogue.ledgers.mark_closed(row)
        self._context.marks.release(row.id)
        ledger.row = row
        ledger.end = self._footer_at
        ledger.live_index = None
        self._context.indexes.put(ledger.id, self._index)
