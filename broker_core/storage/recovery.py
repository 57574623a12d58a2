# SPDX-License-Identifier: Apache-2.0
"""Entries of a ledger file whose footer does not tell them: the rules of recovery, in one place.

Truth is what the scan finds, judged by the commit marks:
- Bytes before the highest *covered offset* of any valid mark, and of the copy of the newest one (``mark_copies``), were
  synced once, and so was the head of the newest INDEX record that the catalogue knows of, and the first entry. If they
  are not valid now, or not there at all, they are damaged: the entries there keep their ids and become unreadable,
  everything behind stays readable.
- Bytes behind it belong to the last groups, of which a crash may have torn the last. The first invalid record there is
  where the ledger ends; it and all behind were never confirmed.
- The entries of the INDEX records that the catalogue knows of need not be looked at, because they were synced; damage
  there is found when they are read.
- Behind damage the next record is searched for, and what is found may be a forgery in the body of an entry. A forgery
  can waste entry ids, but no more than entries could have been in the damaged bytes before it.
- A ledger that the catalogue knows as closed is covered up to its footer.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker_core.storage.catalogue import LedgerRow
from broker_core.storage.disk import File
from broker_core.storage.ledger_index import DAMAGED, LedgerIndex, load_parts, read_part
from broker_core.storage.records import (
    ENTRY_BODY_BYTES_MIN,
    ENTRY_TAGS,
    FILE_HEADER_BYTES,
    HEAD_BYTES,
    NO_BODY_CHECK,
    TAG_FOOTER,
    TAG_INDEX,
    TAG_MARK,
    TAG_TXN,
    FileHeader,
    Head,
    crc32c_from,
    place,
    synced_through,
    unpack_head,
)
from broker_core.storage.scan import WINDOW_BYTES, Gap, read_record, walk

_LARGE_BODY_BYTES: Final = 32 * 1024
"""From this size on, stepping from head to head is faster than reading everything."""


class DamagedRange(NamedTuple):
    """Entries ``first`` to ``last`` (none if last < first) are hit by damage in the bytes ``start`` to ``end``."""

    start: int
    end: int
    first: int
    last: int


@dataclass(slots=True)
class ScannedLedger:
    """The result of a scan.

    Attributes:
        index: All entries, damaged ones included.
        covered: Bytes before this offset had been synced.
        end: Where valid bytes end; what is behind was never confirmed.
        lost: How many of the entries are damaged or gone.
        in_transactions: Of the entries that were looked at one by one, those that were sent in a transaction.
        recognized: Whether anything in the file is of this ledger. If not, it must be left alone.
    """

    index: LedgerIndex
    covered: int = 0
    end: int = 0
    recognized: bool = True
    damages: list[DamagedRange] = field(default_factory=list)
    in_transactions: list[int] = field(default_factory=list)

    @property
    def lost(self) -> int:
        return sum(1 for offset in self.index.offsets if offset & DAMAGED) if self.index.damaged else 0


def scan_open_ledger(file: File, row: LedgerRow, copy: Head | None) -> ScannedLedger:
    """Scan a ledger that was not closed; ``copy`` is the copy of its newest mark, if there is one.

    OSError as the disk raises it.
    """
    seed = row.header.seed
    index_at = row.footer_offset  # see LedgerRow
    scan = _Scan(file, seed, row.first_index)
    size = file.size()
    newest = copy or least_synced(row)
    synced = scan.result.covered = max(synced_through(index_at), newest.c)
    end = max(size, synced)
    start = scan.from_index_records(index_at) or min(FILE_HEADER_BYTES, size)
    for found in walk(file, seed, scan.undisturbed(start, size), size):
        if isinstance(found, Gap):
            scan.gap(found)
        elif found[1].tag == TAG_FOOTER:
            end = found[0]  # closing was interrupted before the catalogue knew; a new footer will take its place
            break
        else:
            scan.record(*found)
    own = FileHeader.decode(file.read(0, FILE_HEADER_BYTES)) == row.header
    scan.result.recognized = own or scan.result.index.entries > 0
    if size < synced:
        scan.gap(Gap(size, synced))
    return scan.judge(end, newest)


def least_synced(row: LedgerRow) -> Head:
    """State of an open ledger of which there is no mark: the catalogue heard of it after its first group."""
    covered = FILE_HEADER_BYTES + HEAD_BYTES + ENTRY_BODY_BYTES_MIN
    return Head(TAG_MARK, 0, 0, NO_BODY_CHECK, 1, row.first_index + 1, covered)


def scan_closed_ledger(file: File, seed: int, row: LedgerRow) -> ScannedLedger:
    """Scan a closed ledger whose footer is damaged; entries of ``row`` that cannot be found are damaged too.

    OSError as the disk raises it.
    """
    scan = _Scan(file, seed, row.first_index)
    size = min(file.size(), row.footer_offset)
    for found in walk(file, seed, scan.undisturbed(min(FILE_HEADER_BYTES, size), size), size):
        if isinstance(found, Gap):
            scan.gap(found)
        else:
            scan.record(*found)
    if size < row.footer_offset:
        scan.gap(Gap(size, row.footer_offset))
    scan.missing_until(row.entries, row.next_index)
    result = scan.result
    result.covered = result.end = result.index.end = row.footer_offset
    return result


class _Scan:
    """Builds the index from what the walk reports, filling in the entries that a gap swallowed."""

    def __init__(self, file: File, seed: int, first_index: int) -> None:
        self.result = ScannedLedger(LedgerIndex(first_index, FILE_HEADER_BYTES))
        self._file = file
        self._seed = seed
        self._gap: Gap | None = None
        self._parts: list[int] = []

    def from_index_records(self, index_at: int) -> int:
        """Take over what the INDEX records hold; the offset behind the last of them, 0 if there is none to rely on."""
        parts = load_parts(self._file, self._seed, index_at) if index_at else None
        if parts is None:
            return 0
        index = self.result.index
        index.offsets, index.indexes = parts.offsets, parts.indexes
        self.result.covered = max(self.result.covered, parts.end)  # a mark behind it may be known of already
        return parts.end

    def undisturbed(self, offset: int, end: int) -> int:
        """Take in entries and marks for as long as each is what must follow; where that ends, and ``walk`` goes on.

        What ``walk`` and ``record`` would do, in one flat loop: it runs for each entry of a ledger that a crash left
        open, while its clients wait. Large bodies are stepped over unread.
        """
        index, seed, file = self.result.index, self._seed, self._file
        entries, next_index = index.entries, index.next_index
        window, base, length = b"", offset, 0
        while offset < end:
            at = offset - base
            if at + HEAD_BYTES > len(window):
                size = HEAD_BYTES if length > _LARGE_BODY_BYTES else WINDOW_BYTES
                window, base, at = file.read(offset, min(size, end - offset)), offset, 0
                if len(window) < HEAD_BYTES:
                    break
            tag, length, messages, _, entry, last, covered, crc = unpack_head(window, at)
            after = offset + HEAD_BYTES + length
            if crc != crc32c_from(place(seed, offset), window[at : at + HEAD_BYTES - 4]) or after > end:
                break
            if tag in ENTRY_TAGS and entry == entries and last - messages + 1 == next_index:
                index.add(offset, last)
                if tag == TAG_TXN:
                    self.result.in_transactions.append(entry)
                entries += 1
                next_index = last + 1
            elif tag == TAG_MARK and covered <= offset and entry == entries and last == next_index:
                self.result.covered = max(self.result.covered, covered)
            elif tag == TAG_INDEX and entry == entries and last == next_index:
                self._parts.append(offset)
            else:
                break
            offset = after
        return offset

    def gap(self, gap: Gap) -> None:
        self._gap = gap if self._gap is None else Gap(self._gap.start, gap.end)

    def record(self, offset: int, head: Head) -> None:
        index = self.result.index
        if head.tag in ENTRY_TAGS and self._may_follow(head.a, head.b - head.detail + 1):
            self.missing_until(head.a, head.b - head.detail + 1)
            index.add(offset, head.b)
            if head.tag == TAG_TXN:
                self.result.in_transactions.append(head.a)
        elif head.tag == TAG_MARK and head.c <= offset and self._may_follow(head.a, head.b):
            self.missing_until(head.a, head.b)
            self.result.covered = max(self.result.covered, head.c)
        elif head.tag == TAG_INDEX and self._may_follow(head.a, head.b):
            self.missing_until(head.a, head.b)
            self._parts.append(offset)
        else:
            # A valid head that cannot be here: count it as damage rather than trust it.
            self.gap(Gap(offset, offset + HEAD_BYTES + head.length))

    def _may_follow(self, entry: int, first_index: int) -> bool:
        index = self.result.index
        if self._gap is None:
            return entry == index.entries and first_index == index.next_index
        swallowed_max = (self._gap.end - self._gap.start) // (HEAD_BYTES + ENTRY_BODY_BYTES_MIN)
        return 0 <= entry - index.entries <= swallowed_max and first_index >= index.next_index

    def missing_until(self, entries: int, next_index: int) -> None:
        """Entry ``entries`` comes next: whatever lies between was in the gap."""
        gap, self._gap = self._gap, None
        if gap is None:
            return
        index = self.result.index
        first = index.entries
        self.result.damages.append(DamagedRange(gap.start, gap.end, first, entries - 1))
        index.add_damaged(entries - first, gap.start, next_index)

    def judge(self, end: int, newest: Head) -> ScannedLedger:
        """Cut the torn tail off: the first thing behind the covered bytes that is not valid, and all that follows.

        ``newest``: what is known of the end that was synced; entries that are not found before it are lost.
        """
        result, index = self.result, self.result.index
        if self._gap is not None and self._gap.start < newest.c and newest.a > index.entries:
            self.missing_until(newest.a, newest.b)
        self.missing_until(index.entries, index.next_index)
        torn = [damage for damage in result.damages if damage.start >= result.covered]
        result.damages = [damage for damage in result.damages if damage.start < result.covered]
        parts = [at for at in self._parts if at >= result.covered and read_part(self._file, self._seed, at) is None]
        result.end = min([end, *(damage.start for damage in torn), *parts])
        kept = _entries_before(index, result.end)
        for entry in range(_entries_before(index, result.covered), kept):
            found = read_record(self._file, self._seed, index.offsets[entry])
            if found is None or found[0].tag not in ENTRY_TAGS:
                kept, result.end = entry, index.offsets[entry]
                break
        index.cut(kept)
        index.end = result.end
        result.in_transactions = [entry for entry in result.in_transactions if entry < kept]
        return result


def _entries_before(index: LedgerIndex, offset: int) -> int:
    """How many entries begin before a file offset."""
    return bisect_left(index.offsets, offset, key=lambda value: value & ~DAMAGED)
