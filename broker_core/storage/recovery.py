# SPDX-License-Identifier: Apache-2.0
"""What a ledger file holds, when its footer does not say: the rules of recovery, in one place.

Truth is what the scan finds, judged by the commit marks:
- Bytes before the highest *covered offset* of any valid mark were synced once. If they are not valid now, they are
  damaged: the entries there keep their ids and become unreadable, everything behind stays readable.
- Bytes behind it belong to the last groups, of which a crash may have torn the last. The first invalid record there is
  where the ledger ends; it and all behind were never confirmed.
- A ledger that the catalogue knows as closed is covered up to its footer.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import NamedTuple

from broker_core.storage.disk import File
from broker_core.storage.ledger_index import DAMAGED, LedgerIndex
from broker_core.storage.metadata import LedgerRow
from broker_core.storage.records import (
    FILE_HEADER_BYTES,
    HEAD_BYTES,
    TAG_ENTRY,
    TAG_FOOTER,
    TAG_MARK,
    Head,
    body_holds,
    decode_head,
)
from broker_core.storage.scan import Gap, walk


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
    """

    index: LedgerIndex
    covered: int = 0
    end: int = 0
    damages: list[DamagedRange] = field(default_factory=list)


def scan_open_ledger(file: File, seed: int, first_index: int) -> ScannedLedger:
    """Scan a ledger that was not closed. OSError as the disk raises it."""
    scan = _Scan(file, seed, first_index)
    size = file.size()
    end = size
    for found in walk(file, seed, min(FILE_HEADER_BYTES, size), size):
        if isinstance(found, Gap):
            scan.gap(found)
        elif found[1].tag == TAG_FOOTER:
            end = found[0]  # closing was interrupted before the catalogue knew; a new footer will take its place
            break
        else:
            scan.record(*found)
    return scan.judge(end)


def scan_closed_ledger(file: File, seed: int, row: LedgerRow) -> ScannedLedger:
    """Scan a closed ledger whose footer is damaged; entries of ``row`` that cannot be found are damaged too.

    OSError as the disk raises it.
    """
    scan = _Scan(file, seed, row.first_index)
    size = min(file.size(), row.footer_offset)
    for found in walk(file, seed, min(FILE_HEADER_BYTES, size), size):
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

    def gap(self, gap: Gap) -> None:
        self._gap = gap if self._gap is None else Gap(self._gap.start, gap.end)

    def record(self, offset: int, head: Head) -> None:
        index = self.result.index
        if head.tag == TAG_ENTRY and self._may_follow(head.a, head.b - head.detail + 1):
            self.missing_until(head.a, head.b - head.detail + 1)
            index.add(offset, head.b)
        elif head.tag == TAG_MARK and head.c <= offset and self._may_follow(head.a, head.b):
            self.missing_until(head.a, head.b)
            self.result.covered = max(self.result.covered, head.c)
        else:
            # A valid head that cannot be here: count it as damage rather than trust it.
            self.gap(Gap(offset, offset + HEAD_BYTES + head.length))

    def _may_follow(self, entry: int, first_index: int) -> bool:
        index = self.result.index
        if self._gap is None:
            return entry == index.entries and first_index == index.next_index
        return entry >= index.entries and first_index >= index.next_index

    def missing_until(self, entries: int, next_index: int) -> None:
        """Entry ``entries`` comes next: whatever lies between was in the gap."""
        gap, self._gap = self._gap, None
        if gap is None:
            return
        index = self.result.index
        first = index.entries
        self.result.damages.append(DamagedRange(gap.start, gap.end, first, entries - 1))
        index.add_damaged(entries - first, gap.start, next_index)

    def judge(self, end: int) -> ScannedLedger:
        """Cut the torn tail off: the first thing behind the covered bytes that is not valid, and all that follows."""
        result, index = self.result, self.result.index
        self.missing_until(index.entries, index.next_index)
        torn = [damage for damage in result.damages if damage.start >= result.covered]
        result.damages = [damage for damage in result.damages if damage.start < result.covered]
        result.end = min([end, *(damage.start for damage in torn)])
        kept = _entries_before(index, result.end)
        for entry in range(_entries_before(index, result.covered), kept):
            if read_whole_entry(self._file, self._seed, index.offsets[entry]) is None:
                kept, result.end = entry, index.offsets[entry]
                break
        index.cut(kept)
        index.end = result.end
        return result


def _entries_before(index: LedgerIndex, offset: int) -> int:
    """How many entries begin before a file offset."""
    return bisect_left(index.offsets, offset, key=lambda value: value & ~DAMAGED)


def read_whole_entry(file: File, seed: int, offset: int) -> tuple[Head, bytes] | None:
    """Head and body of the entry at ``offset``, or None unless both are as they were written."""
    head = decode_head(seed, offset, file.read(offset, HEAD_BYTES))
    if head is None or head.tag != TAG_ENTRY:
        return None
    body = file.read(offset + HEAD_BYTES, head.length)
    return (head, body) if body_holds(head, body) else None
