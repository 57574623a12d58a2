# SPDX-License-Identifier: Apache-2.0
"""Appends to the open ledger of a topic, and closes it.

Order of a ledger's life on disk, so that a crash at any point leaves nothing ambiguous:
1. The catalogue gets a row LEDGER_CREATING.
2. The first group writes file header and first entries, syncs the file and its directory.
3. The row becomes LEDGER_OPEN; only then are the first entries reported durable.
4. Closing appends the footer like another entry; after that is durable the row becomes LEDGER_CLOSED with the summary.

The commit worker does steps 1 to 3 in one job; opening a ledger costs the loop's thread no file operation.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, Protocol

from broker_core.base.errors import StorageError
from broker_core.base.invariants import invariant
from broker_core.base.positions import Position
from broker_core.storage.catalogue import LEDGER_CLOSED, LEDGER_CREATING, LEDGER_OPEN
from broker_core.storage.commit import OnDurable, WriteQueue
from broker_core.storage.context import StoreContext
from broker_core.storage.ledger import Ledger
from broker_core.storage.ledger_index import LedgerIndex, encode_footer, encode_part
from broker_core.storage.records import (
    ENTRY_BODY_BYTES_MIN,
    ENTRY_MAGIC,
    FILE_HEADER_BYTES,
    HEAD_BYTES,
    KIND_LEDGER,
    TAG_ENTRY,
    FileHeader,
    crc32c_from,
    encode_mark,
    pack_crc,
    pack_head,
)

INDEX_EVERY_ENTRIES: Final = 64 * 1024
"""Entries between two INDEX records, each of a MiB then. Recovery reads at most so many entries, and those of the last
group, one by one: some 0.1 s."""

INDEX_EVERY_BYTES: Final = 128 << 20
"""Bytes between two INDEX records; with large entries this is reached before ``INDEX_EVERY_ENTRIES``."""

INDEX_ENTRIES_MAX: Final = 1 << 20
"""A ledger with so many entries is closed however young it is: its index is in memory while it is open, 16 MiB then."""

_MS_PER_MINUTE: Final = 60_000
_MIB: Final = 1024 * 1024


class DurableListener(Protocol):
    """The topic log that a writer belongs to."""

    def entries_durable(self, ledger: Ledger) -> None:
        """More entries of ``ledger`` became durable; their callbacks come next."""
        ...

    def callbacks_done(self) -> None:
        """The callbacks of these entries were called."""
        ...


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

    def __init__(self, context: StoreContext, topic_id: int, next_index: int, log: DurableListener) -> None:
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
        self.queue.buffers.append(FileHeader(KIND_LEDGER, row.id, topic_id, created_ms, next_index).encode())
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
