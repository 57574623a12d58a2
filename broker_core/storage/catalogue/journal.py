# SPDX-License-Identifier: Apache-2.0
"""What SQLite cannot say of the catalogue by itself (``meta.changes``): what its pages were, and what came after.

SQLite drops the end of a write-ahead log from the first frame that is damaged, and believes every page of the file that
has the right form. So this file holds, from the last time that the log was merged into ``meta.db``: a checksum of each
page of it, and every transaction since, with its number. The opening of the catalogue compares: pages that differ
are damage, and transactions that SQLite has lost are read from here.

A new file takes the place of the old one after each merge and before the next transaction, synced; the transactions are
written behind SQLite's own sync and synced here up to a second later, so that this file never knows of one that is not
durable, and none waits for it.
Knows neither SQL nor what a transaction means.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Final

from broker_core.storage.disk import Disk, File, write_again, write_fully
from broker_core.storage.records import (
    FILE_HEADER_BYTES,
    HEAD_BYTES,
    KIND_CATALOGUE,
    TAG_CHANGE,
    TAG_INDEX,
    FileHeader,
    Head,
    body_holds,
    crc32c,
    encode_record,
)
from broker_core.storage.scan import Gap, walk

_PAGES_PER_READ: Final = 256


@dataclass(slots=True)
class Recorded:
    """What a file of this kind says.

    Attributes:
        base: Number of the last transaction that is in the pages.
        page_bytes: Size of a page.
        sums: Checksum of each page.
        changes: The transactions after ``base``, as they were handed in, one after the other without a gap.
        end: Where valid bytes end.
        whole: Nothing but that is in it. If not, power was lost, or it is damaged: the transactions behind may be in
            SQLite's log, and if they are, nothing is missing.
    """

    base: int
    page_bytes: int
    sums: array[int]
    changes: list[bytes] = field(default_factory=list)
    end: int = 0
    whole: bool = True

    @property
    def last(self) -> int:
        """Number of the last transaction."""
        return self.base + len(self.changes)


def read_journal(disk: Disk, path: str) -> Recorded | None:
    """What the file says; None if it is missing, or damaged so that nothing can be compared. OSError as the disk's."""
    try:
        file = disk.open_read_only(path)
    except FileNotFoundError:
        return None
    with closing(file):
        size = file.size()
        header = FileHeader.decode(file.read(0, FILE_HEADER_BYTES))
        if header is None or header.kind != KIND_CATALOGUE:
            return None
        records = walk(file, header.seed, FILE_HEADER_BYTES, size)
        found = _pages(file, header, next(records, None))
        if found is not None:
            _read_changes(file, found, records)
            found.whole = found.whole and found.end == size
        return found


def _pages(file: File, header: FileHeader, first: tuple[int, Head] | Gap | None) -> Recorded | None:
    if not isinstance(first, tuple) or isinstance(first, Gap):
        return None
    offset, head = first
    body = file.read(offset + HEAD_BYTES, head.length)
    if head.tag != TAG_INDEX or not body_holds(head, body) or len(body) != 4 * head.b or head.a != header.id:
        return None
    return Recorded(head.a, head.c, _little(array("I", body)), end=offset + HEAD_BYTES + head.length)


def _read_changes(file: File, found: Recorded, records: Iterator[tuple[int, Head] | Gap]) -> None:
    for record in records:
        if isinstance(record, Gap):
            found.whole = False
            return
        offset, head = record
        body = file.read(offset + HEAD_BYTES, head.length)
        if head.tag != TAG_CHANGE or head.a != found.last + 1 or not body_holds(head, body):
            found.whole = False
            return
        found.changes.append(body)
        found.end = offset + HEAD_BYTES + head.length


def page_sums(file: File, page_bytes: int) -> array[int]:
    """The checksums of the pages of a file; a half page at its end counts as one. OSError as the disk raises it."""
    sums: array[int] = array("I")
    offset, size = 0, file.size()
    while offset < size:
        data = file.read(offset, _PAGES_PER_READ * page_bytes)
        sums.extend(crc32c(data[at : at + page_bytes]) for at in range(0, len(data), page_bytes))
        offset += len(data)
    return sums


def differing_pages(found: array[int], expected: array[int]) -> set[int]:
    """Numbers, from 1, of the pages whose checksums differ or which only one of the two has."""
    if found == expected:
        return set()
    count = max(len(found), len(expected))
    return {page + 1 for page in range(count) if found[page : page + 1] != expected[page : page + 1]}


class CatalogueJournal:
    """The writing side.

    Attributes:
        base: The transaction that the pages hold, -1 before the file is begun or resumed.
        unsynced: Whether transactions were written since the file was last synced.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self.path: Final = path
        self.base = -1
        self.unsynced = False
        self._disk = disk
        self._file: File | None = None
        self._seed = 0
        self._end = 0

    def resume(self, recorded: Recorded) -> None:
        """Go on with the file that was read, which is ``whole``; it is written again. OSError as the disk raises it."""
        self._file = self._disk.open(self.path)
        write_again(self._file, 0, recorded.end)
        self.unsynced = True
        self._seed = _header(recorded.base).seed
        self._end = recorded.end
        self.base = recorded.base

    def begin(self, base: int, page_bytes: int, sums: array[int]) -> None:
        """Replace the file, durably: from now on ``sums`` are those of the pages, which hold transaction ``base``."""
        self.close()
        header = _header(base)
        self._seed = header.seed
        body = _little(sums).tobytes()
        fields = (base, len(sums), page_bytes)
        data = header.encode() + encode_record(self._seed, FILE_HEADER_BYTES, TAG_INDEX, 0, fields, body)
        fresh = self.path + ".new"
        with suppress(FileNotFoundError):
            self._disk.unlink(fresh)
        self._file = self._disk.open(fresh, create=True)
        write_fully(self._file, 0, [data])
        self._file.sync()
        self._disk.rename(fresh, self.path)
        self._disk.sync_dir(self.path.rpartition("/")[0])
        self._end = len(data)
        self.base = base
        self.unsynced = False

    def append(self, number: int, change: bytes) -> None:
        """Transaction ``number`` is durable in SQLite's log."""
        if self._file is not None:
            record = encode_record(self._seed, self._end, TAG_CHANGE, 0, (number, 0, 0), change)
            write_fully(self._file, self._end, [record])
            self._end += len(record)
            self.unsynced = True

    def sync(self) -> None:
        """Make the transactions durable here too. OSError as the disk raises it."""
        if self._file is not None:
            self._file.sync()
            self.unsynced = False

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _header(base: int) -> FileHeader:
    return FileHeader(KIND_CATALOGUE, base, 0, 0, 0)


def _little(values: array[int]) -> array[int]:
    """``values`` in the file's order of bytes, or back."""
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values
