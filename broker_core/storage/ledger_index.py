# SPDX-License-Identifier: Apache-2.0
"""Place and messages of each entry of a ledger; footer and index records keep this beside the entries.

An index is two compact arrays (16 bytes an entry). It is always derived: from appends, from the footer, or by scanning
the file. An entry whose bytes are known to be damaged keeps its number; its offset carries the DAMAGED bit.
"""

from __future__ import annotations

import sys
from array import array
from collections import OrderedDict
from typing import Final, NamedTuple

from broker_core.storage.disk import File
from broker_core.storage.records import (
    FILE_HEADER_BYTES,
    HEAD_BYTES,
    TAG_FOOTER,
    TAG_INDEX,
    Head,
    encode_record,
)
from broker_core.storage.scan import read_record

INDEX_CACHE_BYTES: Final = 32 * 1024 * 1024
"""Memory for indexes of closed ledgers: two million entries, or forty full ledgers being read at a time."""

DAMAGED: Final = 1 << 63
"""Set in the offset of an entry that cannot be read. The rest is where the damage begins."""

_HIGH_BYTE: Final = 7
"""Where the byte of that bit is in an offset as it is stored. Only with that bit it is no ASCII."""


class LedgerIndex:
    """Offset and last message index of every entry, by entry id.

    Attributes:
        first_index: Message index of the first message that the ledger can hold.
        end: File offset behind the last entry and its marks.
        damaged: Whether any offset has the DAMAGED bit.
    """

    __slots__ = ("damaged", "end", "first_index", "indexes", "offsets")

    def __init__(self, first_index: int, end: int) -> None:
        self.first_index = first_index
        self.end = end
        self.damaged = False
        self.offsets: array[int] = array("Q")
        self.indexes: array[int] = array("Q")

    @property
    def entries(self) -> int:
        return len(self.offsets)

    @property
    def next_index(self) -> int:
        """Message index after the last entry."""
        return self.indexes[-1] + 1 if self.indexes else self.first_index

    @property
    def size_bytes(self) -> int:
        """Memory that the arrays take."""
        return 16 * len(self.offsets)

    def first_index_of(self, entry: int) -> int:
        """Message index of the first message of an entry."""
        return self.indexes[entry - 1] + 1 if entry else self.first_index

    def add(self, offset: int, last_index: int) -> None:
        self.offsets.append(offset)
        self.indexes.append(last_index)

    def add_damaged(self, entries: int, offset: int, next_index: int) -> None:
        """``entries`` entries are unreadable from ``offset`` on; the entry after them begins with ``next_index``.

        Their messages cannot be told apart any more: all but the last get one message each.
        """
        self.damaged = self.damaged or entries > 0
        for left in range(entries - 1, -1, -1):
            index = max(self.next_index, next_index - 1) if left == 0 else self.next_index
            self.add(offset | DAMAGED, index)

    def cut(self, entries: int) -> None:
        """Forget all entries from number ``entries`` on."""
        del self.offsets[entries:]
        del self.indexes[entries:]


def _little(values: array[int]) -> bytes:
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()


def _from_little(data: bytes | memoryview) -> array[int]:
    values = array("Q")
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def encode_footer(seed: int, offset: int, index: LedgerIndex) -> bytes:
    """The footer record for a ledger whose last byte is before ``offset``."""
    fields = (index.entries, index.next_index, index.first_index)
    return encode_record(seed, offset, TAG_FOOTER, 0, fields, _little(index.offsets) + _little(index.indexes))


def read_footer(file: File, seed: int, offset: int) -> LedgerIndex | None:
    """The index in the footer at ``offset``; None if it is damaged."""
    head, body = read_record(file, seed, offset) or (None, b"")
    if head is None or head.tag != TAG_FOOTER or len(body) != 16 * head.a:
        return None
    index = LedgerIndex(head.c, offset)
    columns = memoryview(body)
    index.offsets = _from_little(columns[: 8 * head.a])
    index.indexes = _from_little(columns[8 * head.a :])
    index.damaged = not body[_HIGH_BYTE : 8 * head.a : 8].isascii()  # of a million offsets: 1 ms, where max takes 20
    return index


def encode_part(seed: int, offset: int, index: LedgerIndex, first: int, previous: int) -> bytes:
    """The INDEX record at ``offset`` for all entries from number ``first`` on; the one before it is at ``previous``."""
    body = _little(index.offsets[first:]) + _little(index.indexes[first:])
    return encode_record(seed, offset, TAG_INDEX, 0, (index.entries, index.next_index, previous), body)


class Parts(NamedTuple):
    """Content of a whole chain of INDEX records. ``end`` is the file offset behind the last record."""

    offsets: array[int]
    indexes: array[int]
    end: int


def read_part(file: File, seed: int, offset: int) -> tuple[Head, array[int], array[int]] | None:
    """The INDEX record at ``offset`` with its offsets and indexes; None if it is damaged or something else."""
    head, body = read_record(file, seed, offset) or (None, b"")
    half = len(body) // 2
    if head is None or head.tag != TAG_INDEX or half % 8 or half > 8 * head.a:
        return None
    return head, _from_little(body[:half]), _from_little(body[half:])


def load_parts(file: File, seed: int, offset: int) -> Parts | None:
    """The chain that ends with the INDEX record at ``offset``; None unless all of it is there and fits together.

    Nothing is searched for: bodies are users' bytes, and a user who knows the numbers of a ledger could write one that
    looks like a record at its place. The catalogue says where the newest record is, and each where the one before is.
    The caller reads the whole file instead of a chain with a hole.
    """
    found: list[tuple[Head, array[int], array[int]]] = []
    end = 0
    while offset:
        part = read_part(file, seed, offset) if offset >= FILE_HEADER_BYTES else None
        if part is None or part[0].c >= offset:
            return None
        head = part[0]
        end = end or offset + HEAD_BYTES + head.length
        found.append(part)
        offset = head.c
    offsets: array[int] = array("Q")
    indexes: array[int] = array("Q")
    for head, part_offsets, part_indexes in reversed(found):
        offsets += part_offsets
        indexes += part_indexes
        if not part_indexes or len(offsets) != head.a or indexes[-1] + 1 != head.b:
            return None
    return Parts(offsets, indexes, end)


class IndexCache:
    """Indexes of closed ledgers that were read lately, bounded by memory, least recently used out first."""

    def __init__(self, bytes_max: int = INDEX_CACHE_BYTES) -> None:
        self._bytes_max = bytes_max
        self._size = 0
        self._indexes: OrderedDict[int, LedgerIndex] = OrderedDict()

    def get(self, ledger: int) -> LedgerIndex | None:
        found = self._indexes.get(ledger)
        if found is not None:
            self._indexes.move_to_end(ledger)
        return found

    def put(self, ledger: int, index: LedgerIndex) -> None:
        self.forget(ledger)
        self._indexes[ledger] = index
        self._size += index.size_bytes
        while self._size > self._bytes_max and len(self._indexes) > 1:
            _, oldest = self._indexes.popitem(last=False)
            self._size -= oldest.size_bytes

    def forget(self, ledger: int) -> None:
        found = self._indexes.pop(ledger, None)
        if found is not None:
            self._size -= found.size_bytes
