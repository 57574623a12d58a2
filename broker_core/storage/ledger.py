# SPDX-License-Identifier: Apache-2.0
"""One ledger: its file, its index, reading it. ``topic_log`` appends to the one open ledger of a topic.

Entry numbers here are entry ids of this ledger. Only durable entries are visible: ``entries`` counts them.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from enum import Enum
from functools import partial
from itertools import accumulate
from operator import sub
from typing import Final, NamedTuple

from pyroaring import BitMap

from broker_core.base.errors import CorruptEntryError
from broker_core.base.positions import POSITION_EARLIEST, Position, positions_of
from broker_core.storage import layout
from broker_core.storage.catalogue import LEDGER_CLOSED, LedgerRow
from broker_core.storage.context import StoreContext
from broker_core.storage.disk import File, no_file
from broker_core.storage.ledger_index import DAMAGED, LedgerIndex, read_footer
from broker_core.storage.records import (
    ENTRY_MAGIC,
    ENTRY_TAGS,
    FILE_HEADER_BYTES,
    HEAD_BYTES,
    TAG_ENTRY,
    TAG_TXN,
    TXN_BYTES,
    FileHeader,
    Head,
    body_holds,
    crc32c,
    crc32c_from,
    decode_head,
    decode_transaction,
    entry_of_transaction,
    place,
    unpack_head,
)
from broker_core.storage.recovery import DamagedRange, scan_closed_ledger
from broker_core.storage.scan import Gap, walk
from broker_core.wire.heads import TxnId

READ_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes fetched by one read of a file. Larger reads were not faster and would hold more memory for each consumer."""


_LARGE_BYTES: Final = 32 * 1024
"""Entries of this size on average are read one by one: that costs less than to copy them out of what was read."""


class StoredEntry(NamedTuple):
    """One entry as it was stored.

    Attributes:
        position: Its ledger and entry id.
        body: Exactly the bytes that the producer sent after its command.
        messages: How many messages it holds.
        index: Message index, within the topic, of its last message.
        broker_timestamp: When the broker appended it, milliseconds since the epoch.
    """

    position: Position
    body: bytes
    messages: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which is not called on an entry
    broker_timestamp: int


_entry_of_fields = partial(tuple.__new__, StoredEntry)


class LedgerInfo(NamedTuple):
    """Numbers of a ledger that are known without reading it. Times are broker time in ms, 0 when it is empty."""

    id: int
    closed: bool
    entries: int
    size_bytes: int
    first_index: int
    next_index: int
    created_ms: int
    first_ms: int
    last_ms: int


class UnreadableEntryError(CorruptEntryError):
    """The entry at ``position`` exists but cannot be read, nor can those up to ``through``; entries after it may.

    ``refused``: the disk did not give it, which says nothing about what is there; it may another time.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        position: Position = POSITION_EARLIEST,
        through: Position | None = None,
        refused: bool = False,
    ) -> None:
        super().__init__(message, hint=hint)
        self.position = position
        self.through = through or position
        self.refused = refused


class Ledger:
    """The readable side of a ledger.

    Attributes:
        id: Ledger id.
        entries: Durable entries; ids 0 to ``entries`` - 1.
        next_index: Message index after the last durable entry.
        end: File offset behind the last durable entry.
        closed: Nothing will be appended any more.
        missing: The catalogue knows the file but the directory lacks it, or something else is in its place.
        first_ms, last_ms: Broker time of the first and last durable entry, 0 when empty.
        live_index: The index while it may still grow; a closed ledger loads its index when it needs it.
    """

    __slots__ = (
        "_context", "_found_damaged", "closed", "created_ms", "end", "entries", "first_index", "first_ms", "id",
        "last_ms", "live_index", "missing", "next_index", "path", "row", "seed",
    )  # fmt: skip

    def __init__(self, context: StoreContext, row: LedgerRow) -> None:
        self._context = context
        self.row = row
        self.id: Final = row.id
        self.path: Final = layout.ledger_path(context.directory, row.id)
        self.seed: Final = row.header.seed
        self.created_ms: Final = row.created_ms
        self.first_index: Final = row.first_index
        closed = row.state == LEDGER_CLOSED
        self.closed = closed
        self.entries = row.entries
        self.next_index = max(row.next_index, row.first_index)
        self.end = row.footer_offset
        self.first_ms = row.first_ms
        self.last_ms = row.last_ms
        self.missing = row.id in context.ledgers_missing
        self.live_index: LedgerIndex | None = None
        self._found_damaged = BitMap()

    @property
    def info(self) -> LedgerInfo:
        size = self.row.size_bytes if self.row.state == LEDGER_CLOSED else self.end
        return LedgerInfo(
            self.id, self.closed, self.entries, size, self.first_index, self.next_index, self.created_ms,
            self.first_ms, self.last_ms,
        )  # fmt: skip

    def index(self, entry: int = 0) -> LedgerIndex:
        """Offsets and message indexes of all entries; ``entry`` is the one that the caller wants to find.

        Raises:
            UnreadableEntryError: the file cannot be read at all; names ``entry``.
        """
        if self.live_index is not None:
            return self.live_index
        if self.missing:
            raise self._unreadable(entry, "is lost")
        found = self._context.indexes.get(self.id)
        if found is None:
            try:
                found = self._load_index()
            except OSError as e:
                raise self._not_given(entry, e) from e
            self._context.indexes.put(self.id, found)
        return found

    @property
    def lost(self) -> int:
        """Entries that are known to be damaged or gone."""
        return self.entries if self.missing else self.row.lost

    def find_damage(self) -> None:
        """The file has another size than the catalogue says: find out what of it is lost."""
        try:
            index = self.index()
        except UnreadableEntryError:
            return  # a read raises the error
        lost = sum(1 for offset in index.offsets if offset & DAMAGED) if index.damaged else 0
        self.row = self.row._replace(lost=max(lost, self.row.lost))

    def lost_at(self, entry: int) -> UnreadableEntryError | None:
        """Why ``entry`` cannot be read, if it is one of those that are ``lost``, or was found damaged and still is."""
        if not self.lost and entry not in self._found_damaged:
            return None
        try:
            if not self.index(entry).offsets[entry] & DAMAGED and entry not in self._found_damaged:
                return None
            self.read(entry, 1, 1)
        except UnreadableEntryError as error:
            return None if error.refused else error
        self._found_damaged.discard(entry)
        return None

    def _load_index(self) -> LedgerIndex:
        file = self._context.handles.get(self.path)
        index = read_footer(file, self.seed, self.end)
        if index is not None and index.entries == self.entries:
            return index
        scanned = scan_closed_ledger(file, self.seed, self.row)
        footer = DamagedRange(self.end, self.row.size_bytes, 0, -1)
        self._context.quarantine.note(self.path, self.row, footer, "footer")
        for damage in scanned.damages:
            self._context.quarantine.note(self.path, self.row, damage, "record")
        return scanned.index

    def read(self, entry: int, entries_max: int, bytes_max: int) -> list[StoredEntry]:
        """Durable entries from ``entry`` on, which exists: at least one, at most about ``bytes_max`` bytes.

        Raises:
            UnreadableEntryError: ``entry`` itself cannot be read. (If a later one cannot, the result ends before it.)
        """
        stop = min(self.entries, entry + max(entries_max, 1))
        chunk = self._context.tail_cache.find(self.id, entry)
        if chunk is not None:
            skip = entry - chunk.first
            stop = min(stop, chunk.first + len(chunk.bodies))
            cached = slice(skip, stop - chunk.first)
            return self._from_cache(entry, stop, bytes_max, chunk.bodies[cached], chunk.times[cached])
        index = self.index(entry)
        try:
            return self._from_file(index, entry, self._stop_by_bytes(index, entry, stop, bytes_max))
        except OSError:
            pass
        # Part of that range cannot be read. One entry alone shows whether it is this one.
        try:
            return self._from_file(index, entry, entry + 1)
        except OSError as e:
            raise self._not_given(entry, e) from e

    def transactions(self, first: int) -> Iterator[tuple[int, TxnId]]:
        """The durable entries from ``first`` on that were sent in a transaction, each with that. Bodies are not
        verified, and damage is passed over: what is damaged is never delivered.

        OSError as the disk raises it; UnreadableEntryError: the file cannot be read at all.
        """
        if first >= self.entries:
            return
        offset = self.index(first).offsets[first] & ~DAMAGED
        file = self._context.handles.get(self.path)
        for found in walk(file, self.seed, offset, self.end):
            if isinstance(found, Gap) or found[1].tag != TAG_TXN:
                continue
            at, head = found
            transaction = decode_transaction(head, file.read(at + HEAD_BYTES, TXN_BYTES))
            if transaction is not None and head.a < self.entries:
                yield head.a, transaction

    def _from_cache(
        self, entry: int, stop: int, bytes_max: int, bodies: list[bytes], times: list[int]
    ) -> list[StoredEntry]:
        index = self.index(entry)
        if len(bodies) == 1:
            last = index.indexes[entry]
            messages_of_it = last - index.first_index_of(entry) + 1
            return [StoredEntry(Position(self.id, entry), bodies[0], messages_of_it, last, times[0])]
        sizes = list(accumulate(map(len, bodies)))
        fitting = max(bisect_right(sizes, bytes_max), 1)
        if fitting < len(bodies):
            stop = entry + fitting
        lasts = index.indexes[entry:stop]
        messages = map(sub, lasts, [index.first_index_of(entry) - 1, *lasts])
        positions = positions_of(self.id, range(entry, stop))
        return list(map(_entry_of_fields, zip(positions, bodies, messages, lasts, times, strict=False)))

    def _stop_by_bytes(self, index: LedgerIndex, entry: int, stop: int, bytes_max: int) -> int:
        """The first entry after ``entry`` that does not fit any more, or ``stop``."""
        offsets = index.offsets
        if index.damaged:
            for number in range(entry + 1, stop):
                if offsets[number] & DAMAGED:
                    stop = number
                    break
        limit = offsets[entry] + min(bytes_max, READ_BYTES_MAX)
        if (offsets[stop] if stop < len(offsets) else self.end) <= limit:
            return stop
        return max(bisect_right(offsets, limit, entry + 1, stop) - 1, entry + 1)

    def _from_file(self, index: LedgerIndex, entry: int, stop: int) -> list[StoredEntry]:
        offsets = index.offsets
        base = offsets[entry]
        if base & DAMAGED:
            raise self._unreadable(entry, "is damaged")
        after = offsets[stop] & ~DAMAGED if stop < len(offsets) else self.end
        file = self._context.handles.get(self.path)
        if after - base >= _LARGE_BYTES * (stop - entry):
            found = self._large_from_file(file, entry, offsets[entry:stop], after)
        else:
            found = self._verified(entry, offsets[entry:stop], file.read(base, after - base))
        if not found:
            self._found_damaged.add(entry)
            end = after if stop == entry + 1 else offsets[entry + 1] & ~DAMAGED
            self._context.quarantine.note(self.path, self.row, DamagedRange(base, end, entry, entry), "record")
            raise self._unreadable(entry, "fails its checksum")
        return found

    def _large_from_file(self, file: File, first: int, offsets: Sequence[int], end: int) -> list[StoredEntry]:
        """As ``_verified``, each read by itself: the system copies it to where it stays."""
        found: list[StoredEntry] = []
        for number, (offset, after) in enumerate(zip(offsets, [*offsets[1:], end], strict=True), first):
            head = decode_head(self.seed, offset, file.read(offset, HEAD_BYTES))
            if head is None or head.a != number or head.length > after - offset - HEAD_BYTES:
                break
            body = file.read(offset + HEAD_BYTES, head.length)
            if head.tag not in ENTRY_TAGS or not body_holds(head, body):
                break
            entry = body if head.tag == TAG_ENTRY else body[TXN_BYTES:]
            found.append(StoredEntry(Position(self.id, number), entry, head.detail, head.b, head.c))
        return found

    def _verified(self, first: int, offsets: Sequence[int], data: bytes) -> list[StoredEntry]:
        """The entries from ``first`` on, at these ``offsets``, the first of which is that of ``data``; those in front
        of the first one that is not what was written there.

        The loop runs for every entry that is read from the file: keep it flat.
        """
        base, seed = offsets[0], self.seed
        found: list[StoredEntry] = []
        for position, offset in zip(positions_of(self.id, range(first, first + len(offsets))), offsets, strict=True):
            at = offset - base
            start = at + HEAD_BYTES
            if start > len(data):
                break
            tag, length, messages, check, entry, index, time_ms, crc = unpack_head(data, at)
            if crc != crc32c_from(place(seed, offset), data[at : start - 4]) or entry != position[1]:
                break
            body = data[start : start + length]
            if tag != TAG_ENTRY:
                body = entry_of_transaction(Head(tag, length, messages, check, entry, index, time_ms), body)
            if body[:2] != ENTRY_MAGIC or body[2:6] != check or crc32c(body[6:]) != int.from_bytes(check, "big"):
                break
            found.append(_entry_of_fields((position, body, messages, index, time_ms)))
        return found

    def _not_given(self, entry: int, error: OSError) -> UnreadableEntryError:
        """Error for a read that the disk refused; a file that is not there is lost, others may be read another time."""
        if self.row.state == LEDGER_CLOSED:
            self.missing = self._context.lost_without_file(self.row, error) is not None
        return self._unreadable(entry, f"cannot be read ({error.strerror or error})", refused=not no_file(error))

    def _unreadable(self, entry: int, why: str, *, refused: bool = False) -> UnreadableEntryError:
        position = through = Position(self.id, entry)
        if self.missing:
            why = "is lost: the file is missing or another one"
            through = Position(self.id, self.entries - 1)
        return UnreadableEntryError(
            f"entry {position} in {self.path} {why}",
            hint="the file was left as it is; run the doctor, restore the file from a backup or skip the entry",
            position=position,
            through=through,
            refused=refused and not self.missing,
        )


class Removal(Enum):
    """Outcome of the removal of a file."""

    REMOVED = "removed"
    NOT_OURS = "not ours"
    """Something else has its name: another ledger's file or no file at all. It was left."""
    UNREADABLE = "unreadable"
    """The disk does not say whose it is, perhaps for a while."""


def unlink_ledger(context: StoreContext, row: LedgerRow) -> Removal:
    """Remove the file of a ledger, on any thread. OSError as the disk raises it."""
    path = layout.ledger_path(context.directory, row.id)
    try:
        with closing(context.disk.open_read_only(path)) as file:
            header = FileHeader.decode(file.read(0, FILE_HEADER_BYTES))
    except OSError as e:
        if no_file(e):
            return Removal.REMOVED if isinstance(e, FileNotFoundError) else Removal.NOT_OURS
        if e.errno == errno.EIO:  # one bad place must not stop the broker, and every later start of it
            return Removal.UNREADABLE
        raise
    unlike = header is None and row.id in context.ledgers_missing  # nothing in it was of this ledger
    if unlike or (header is not None and header[:4] != row.header[:4]):
        return Removal.NOT_OURS
    context.disk.unlink(path)
    return Removal.REMOVED


def forget_removed(context: StoreContext, rows: dict[int, LedgerRow], removals: Mapping[int, Removal]) -> None:
    """The rows of ledgers go, but for those whose files nobody could look into: the next start tries again."""
    for ledger, removal in removals.items():
        path = layout.ledger_path(context.directory, ledger)
        if removal is Removal.NOT_OURS:
            context.quarantine.note_unknown(path)
        elif removal is Removal.UNREADABLE:
            what = "is to be removed and cannot be read, so that it is still there; the next start tries again"
            context.quarantine.note_found(path, what, rows[ledger].topic_id)
    context.catalogue.ledgers.delete([ledger for ledger in rows if removals.get(ledger) is not Removal.UNREADABLE])


def remove_ledgers(context: StoreContext, ledgers: list[Ledger]) -> None:
    """Remove the files of ledgers whose rows are LEDGER_DELETING, then the rows. In the background, crash-proof."""

    removals: dict[int, Removal] = {}

    def unlink() -> None:
        removals.update((ledger.id, unlink_ledger(context, ledger.row)) for ledger in ledgers)
        context.disk.sync_dir(layout.ledgers_dir(context.directory))

    def forget() -> None:
        for ledger in ledgers:
            context.commits.forget(ledger.path)
        forget_removed(context, {ledger.id: ledger.row for ledger in ledgers}, removals)

    for ledger in ledgers:
        context.tail_cache.forget(ledger.id)
        context.indexes.forget(ledger.id)
    if ledgers:
        context.commits.submit(unlink, forget)
