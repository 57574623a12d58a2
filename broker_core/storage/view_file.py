# SPDX-License-Identifier: Apache-2.0
"""Bytes of a compacted view: the entries that one compaction of a topic has kept, in the order of their ids. Pure.

    file header 64 | blocks | directory | trailer 72              (little-endian)

A *block* has some 64 KiB: a table with 40 bytes for each of its entries (ledger, entry, index of its last message,
broker time, messages, size), then the entries as they travel. The *directory* has 48 bytes for each block, in columns,
so that memory holds a thousandth of what is stored and one read finds any entry. All parts have checksums. A file is
written once and never changed; unlike buckets of delayed messages it may be all that is left of its entries.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable
from struct import Struct
from typing import Final

from broker_core.base.errors import StorageError
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.storage.ledger import StoredEntry
from broker_core.storage.records import FILE_HEADER_BYTES, FileHeader, crc32c

KIND_VIEW: Final = 5

BLOCK_BYTES: Final = 64 * 1024
"""A block is closed when it has so many; a large entry is a block of its own."""

_MAGIC: Final = b"\x89PSHVIEW"
_ROW: Final = Struct("<qqqqII")
_COLUMNS: Final = "QQqqqII"
"""Types of the columns of the directory: offset, entries before, first ledger, entry and time, size, checksum."""

_TRAILER: Final = Struct("<8sQQQqqII12xI")
_CRC: Final = Struct("<I")


class DamagedViewError(StorageError):
    """A compacted view cannot be read or is not what was written."""


def _in_order(column: array[int]) -> array[int]:
    """A column as it is stored, or one that was stored as it is used: little-endian."""
    if sys.byteorder == "big":
        column.byteswap()
    return column


class ViewBuilder:
    """Makes the bytes of one view, piece by piece.

    Attributes:
        entries: Entries that were added.
        pending_bytes: Bytes that ``take`` would return.
        end: Bytes of the file so far, pending ones too.
    """

    def __init__(self, topic_id: int, number: int) -> None:
        self.entries = 0
        self._pending = [FileHeader(KIND_VIEW, number, topic_id, 0, 0).encode()]
        self.end = self.pending_bytes = FILE_HEADER_BYTES
        self._rows: list[bytes] = []
        self._bodies: list[bytes] = []
        self._block_bytes = 0
        self._first: StoredEntry | None = None
        self._last = POSITION_EARLIEST
        self._directory = tuple(array(kind) for kind in _COLUMNS)

    def add(self, entry: StoredEntry) -> None:
        """Add an entry, which comes behind those that were added before."""
        (ledger, number), body, messages, index, time_ms = entry
        if self._first is None:
            self._first = entry
        self._rows.append(_ROW.pack(ledger, number, index, time_ms, messages, len(body)))
        self._bodies.append(body)
        self._block_bytes += _ROW.size + len(body)
        self._last = entry.position
        self.entries += 1
        if self._block_bytes >= BLOCK_BYTES:
            self._seal()

    def _seal(self) -> None:
        if self._first is None:
            return
        block = b"".join((*self._rows, *self._bodies))
        (ledger, entry), first_ms = self._first.position, self._first.broker_timestamp
        before = self.entries - len(self._rows)
        row = (self.end, before, ledger, entry, first_ms, len(block), crc32c(block))
        for column, value in zip(self._directory, row, strict=True):
            column.append(value)
        self._put(block)
        self._rows, self._bodies, self._block_bytes, self._first = [], [], 0, None

    def _put(self, data: bytes) -> None:
        self._pending.append(data)
        self.pending_bytes += len(data)
        self.end += len(data)

    def finish(self) -> None:
        """No entry comes any more: what is left to ``take`` ends the file."""
        self._seal()
        blocks, at = len(self._directory[0]), self.end
        directory = b"".join(_in_order(column).tobytes() for column in self._directory)
        self._put(directory)
        counts = (at, blocks, self.entries, *self._last, crc32c(directory), 0)
        trailer = _TRAILER.pack(_MAGIC, *counts, 0)[: -_CRC.size]
        self._put(trailer + _CRC.pack(crc32c(trailer)))

    def take(self) -> tuple[int, list[bytes]]:
        """The next bytes to write, and the offset in the file where they go."""
        pieces, self._pending = self._pending, []
        at = self.end - self.pending_bytes
        self.pending_bytes = 0
        return at, pieces


class ViewFile:
    """A view that is read: which blocks there are. ``read`` gives bytes of the file; it raises DamagedViewError.

    Attributes:
        entries: How many entries it holds.
        last: The position of the last one; before all entries if there is none.
        size_bytes: Size of the file.
        blocks: How many blocks it has.
    """

    def __init__(self, topic_id: int, number: int, size_bytes: int, read: Callable[[int, int], bytes]) -> None:
        """DamagedViewError: it is not what was written."""
        self.size_bytes: Final = size_bytes
        self._read = read
        header = FileHeader.decode(read(0, FILE_HEADER_BYTES))
        if header is None or header[:3] != (KIND_VIEW, number, topic_id):
            raise DamagedViewError(f"the view {topic_id}-{number} does not begin as it was written")
        at = size_bytes - _TRAILER.size
        trailer = read(at, _TRAILER.size) if at >= FILE_HEADER_BYTES else b""
        if len(trailer) < _TRAILER.size or _CRC.pack(crc32c(trailer[: -_CRC.size])) != trailer[-_CRC.size :]:
            raise DamagedViewError(f"the view {topic_id}-{number} does not end as it was written")
        _magic, start, self.blocks, self.entries, *last, crc, _, _ = _TRAILER.unpack(trailer)
        self.last: Final = Position(*last)
        directory = read(start, at - start)
        if crc32c(directory) != crc:
            raise DamagedViewError(f"the directory of the view {topic_id}-{number} is not what was written")
        columns, at = [], 0
        for kind in _COLUMNS:
            column = array(kind)
            end = at + self.blocks * column.itemsize
            column.frombytes(directory[at:end])
            columns.append(_in_order(column))
            at = end
        self._offsets, self._before, self._ledgers, self._entries, self._times_ms, self._sizes, self._checks = columns
        self._before.append(self.entries)

    def first_of(self, block: int) -> Position:
        """The position of the first entry of a block."""
        return Position(self._ledgers[block], self._entries[block])

    def through_of(self, block: int) -> Position:
        """No entry of a block lies behind this position, and none of the next one before it."""
        if block + 1 == self.blocks:
            return self.last
        ledger, entry = self.first_of(block + 1)
        return Position(ledger, entry - 1)

    def entries_before(self, block: int) -> int:
        """Entries of the blocks before this one."""
        return int(self._before[block])

    def block_of(self, position: Position) -> int:
        """The block in which an entry at ``position`` would be; 0 if it lies before all."""
        return max(bisect_right(range(self.blocks), position, key=self.first_of) - 1, 0)

    def block_of_time(self, time_ms: int) -> int:
        """The block in which the first entry is, or behind which it comes, that was stored at or after that time."""
        return max(bisect_right(self._times_ms, time_ms - 1) - 1, 0)

    def load(self, block: int) -> list[StoredEntry]:
        """The entries of a block. DamagedViewError: it is not what was written."""
        data = self._read(self._offsets[block], self._sizes[block])
        count = self._before[block + 1] - self._before[block]
        if len(data) != self._sizes[block] or crc32c(data) != self._checks[block]:
            raise DamagedViewError(f"the entries of a view from {self.first_of(block)} on are not what was written")
        at = count * _ROW.size
        found = []
        for ledger, entry, index, time_ms, messages, size in _ROW.iter_unpack(data[:at]):
            found.append(StoredEntry(Position(ledger, entry), data[at : at + size], messages, index, time_ms))
            at += size
        return found
