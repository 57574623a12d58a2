# SPDX-License-Identifier: Apache-2.0
"""Bytes of the log files: file header, records, commit marks. Pure; knows neither files nor their writers.

A log file is one 64-byte file header, then records back to back. Every record is a 44-byte head and a body:

    tag 4 | length u32 | detail u32 | body check 4 | a i64 | b i64 | c i64 | head crc u32        (little-endian)

    tag      detail    a          b            c                   body
    ENTRY    messages  entry id   last index   broker time, ms     the entry as it travelled
    TXN      messages  entry id   last index   broker time, ms     a transaction's id, and the entry as it travelled
    MARK     0         entries    next index   covered offset      none
    INDEX    0         entries    next index   see below           offsets and indexes of some entries
    FOOTER   0         entries    next index   first index         offsets and indexes of all entries
    CHANGE   kind      cursor id  0            epoch               a change of one cursor

In the catalogue (kind 4) a CHANGE has other fields:

    CHANGE   0         number     0            0                   the changes of one group
    CHANGE   1         number     0            0                   a snapshot of all tables

*Body check.* An entry brings its own CRC32C (bytes 2 to 6, over all that follows); it is copied into the head as it is,
so the body is never summed a second time. Other bodies are summed when they are written.

*Transaction's id.* An entry that was sent in a transaction has 20 bytes before it, which belong to the record's body
but not to the body check: the two halves of the id, and a checksum of them, of the body check and of the entry's
numbers. An entry whose id is damaged is a damaged entry. Other entries cost nothing more.

*Head crc.* CRC32C of the first 40 bytes, started from a value that stands for file and place: ``seed`` (of kind, id,
owner, creation time) mixed with the file offset. So a block that was written to the wrong place, belongs to an
earlier file, or is zeroed, never passes. The head holds the body check, so verifying one crc of 40 bytes and the
entry's own checksum proves the whole record.

*Commit marks.* A mark says: all bytes before ``covered offset`` of this file were synced. It takes the 44 bytes that
were left free behind its group, and is written after the sync of that group without a sync of its own; the next group's
sync carries it along.
(Beginning the next group with the mark would leave an idle file unmarked; this way a file that
rests is always marked, at the price of one small write.) Recovery may drop bytes only beyond the last mark.

*Index records.* Each holds what a footer would, of the entries since the INDEX record before it; ``c`` is the offset of
that one, 0 for none. Each is noted in the catalogue once it is synced. So recovery goes from there back along the
chain, and reads only what is behind, however much the ledger holds. A file without them is read from its beginning.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

import google_crc32c

from broker_core.base.invariants import invariant
from broker_core.wire.heads import TxnId

FILE_HEADER_BYTES: Final = 64
HEAD_BYTES: Final = 44

MAGIC: Final = b"\x89PSHLOG\n"
FILE_VERSION: Final = 1

KIND_LEDGER: Final = 1
KIND_CURSORS: Final = 2
KIND_CATALOGUE: Final = 4
"""Kind 3 are the buckets of delayed messages, which have no records."""

TAG_ENTRY: Final = b"\xf5E\x9c\xd1"
TAG_MARK: Final = b"\xf5M\x9c\xd2"
TAG_FOOTER: Final = b"\xf5F\x9c\xd3"
TAG_CHANGE: Final = b"\xf5C\x9c\xd4"
TAG_INDEX: Final = b"\xf5I\x9c\xd5"
TAG_TXN: Final = b"\xf5T\x9c\xd6"
TAGS: Final = re.compile(b"\xf5[EMFCIT]\x9c[\xd1-\xd6]", re.DOTALL)

ENTRY_TAGS: Final = (TAG_ENTRY, TAG_TXN)
"""Records that are entries."""

_SUMMED_BYTES: Final = 64 * 1024
"""Copied and summed at a time: the library takes bytes objects only, and this much stays in the processor's cache."""

NO_BODY_CHECK: Final = bytes(4)

ENTRY_BODY_BYTES_MIN: Final = 6
ENTRY_MAGIC: Final = b"\x0e\x01"
"""How every stored entry begins; its CRC32C follows (wire protocol, "payload commands")."""

_FILE_HEADER: Final = Struct("<8sIIqqqq12xI")
_SEED: Final = Struct("<Iqqq")
_HEAD: Final = Struct("<4sII4sqqqI")
HEAD_WITHOUT_CRC: Final = Struct("<4sII4sqqq")
_CRC: Final = Struct("<I")
_TXN: Final = Struct("<qqI")
_TXN_SUMMED: Final = Struct("<qq4sqq")

TXN_BYTES: Final = _TXN.size
"""Bytes of a transaction's id before the entry in a TXN record."""

crc32c: Final[Callable[[bytes], int]] = google_crc32c.value
crc32c_from: Final[Callable[[int, bytes], int]] = google_crc32c.extend
pack_head = HEAD_WITHOUT_CRC.pack
pack_crc = _CRC.pack
unpack_head = _HEAD.unpack_from


class FileHeader(NamedTuple):
    """Identity of a log file. ``owner`` is the topic id of a ledger, 0 for cursors."""

    kind: int
    id: int
    owner: int
    created_ms: int
    first_index: int

    @property
    def seed(self) -> int:
        """Start value of the head crcs of the file's records."""
        return crc32c(_SEED.pack(self.kind, self.id, self.owner, self.created_ms))

    def encode(self) -> bytes:
        data = _FILE_HEADER.pack(MAGIC, FILE_VERSION, *self, 0)
        return data[:-4] + pack_crc(crc32c(data[:-4]))

    @classmethod
    def decode(cls, data: bytes) -> FileHeader | None:
        """The header in the first bytes of a file, or None if it is damaged, cut off or of another version."""
        if len(data) < FILE_HEADER_BYTES:
            return None
        magic, version, *fields, crc = _FILE_HEADER.unpack_from(data)
        if magic != MAGIC or version != FILE_VERSION or crc != crc32c(data[: FILE_HEADER_BYTES - 4]):
            return None
        if any(data[48:60]):
            return None
        return cls(*fields)


class Head(NamedTuple):
    """The head of one record, without its crc. See the module's table for ``detail``, ``a``, ``b`` and ``c``."""

    tag: bytes
    length: int
    detail: int
    check: bytes
    a: int
    b: int
    c: int


def synced_through(index_at: int) -> int:
    """Up to where an open ledger was synced for certain: behind the head of its INDEX record at ``index_at`` (0: none).

    Such a record is noted in the catalogue only after its sync.
    """
    return index_at + HEAD_BYTES if index_at else 0


def place(seed: int, offset: int) -> int:
    """The start value for the head crc of the record at ``offset``."""
    return seed ^ (offset & 0xFFFFFFFF) ^ (offset >> 32)


def encode_head(seed: int, offset: int, head: Head) -> bytes:
    """The 44 bytes of a head."""
    data = pack_head(*head)
    return data + pack_crc(crc32c_from(place(seed, offset), data))


def decode_head(seed: int, offset: int, data: bytes, at: int = 0) -> Head | None:
    """The head at ``data[at:]``, which was read from file offset ``offset``; None unless its crc holds."""
    if at + HEAD_BYTES > len(data):
        return None
    tag, length, detail, check, a, b, c, crc = unpack_head(data, at)
    if crc != crc32c_from(place(seed, offset), data[at : at + HEAD_BYTES - 4]):
        return None
    return Head(tag, length, detail, check, a, b, c)


def encode_record(seed: int, offset: int, tag: bytes, detail: int, fields: tuple[int, int, int], body: bytes) -> bytes:
    """A whole record whose body has no checksum of its own."""
    invariant(tag not in ENTRY_TAGS, "an entry brings its own checksum")
    check = pack_crc(crc32c(body)) if body else NO_BODY_CHECK
    return encode_head(seed, offset, Head(tag, len(body), detail, check, *fields)) + body


def encode_mark(seed: int, offset: int, covered: int, entries: int, next_index: int) -> bytes:
    """The mark at ``offset`` that covers all bytes before ``covered``."""
    return encode_head(seed, offset, Head(TAG_MARK, 0, 0, NO_BODY_CHECK, entries, next_index, covered))


def body_holds(head: Head, body: bytes) -> bool:
    """Whether ``body`` is what ``head`` was written for."""
    if len(body) != head.length:
        return False
    if head.tag in ENTRY_TAGS:
        entry = body if head.tag == TAG_ENTRY else entry_of_transaction(head, body)
        return entry[:2] == ENTRY_MAGIC and entry[2:6] == head.check and entry_holds(entry)
    return head.check == (pack_crc(crc32c(body)) if body else NO_BODY_CHECK)


def encode_transaction(transaction: TxnId, check: bytes, entry: int, last_index: int) -> bytes:
    """The bytes before an entry that was sent in ``transaction``; ``check`` is the body check of its record."""
    return _TXN.pack(*transaction, crc32c(_TXN_SUMMED.pack(*transaction, check, entry, last_index)))


def decode_transaction(head: Head, body: bytes) -> TxnId | None:
    """The transaction of an entry; ``body`` is the body of its record or the begin of it. None unless it has one, whose
    checksum holds."""
    if head.tag != TAG_TXN or len(body) < TXN_BYTES:
        return None
    most, least, crc = _TXN.unpack_from(body)
    if crc != crc32c(_TXN_SUMMED.pack(most, least, head.check, head.a, head.b)):
        return None
    return TxnId(most, least)


def entry_of_transaction(head: Head, body: bytes) -> bytes:
    """The entry in the body of a TXN record; nothing where the record is another one, or the id is damaged."""
    return b"" if decode_transaction(head, body) is None else body[TXN_BYTES:]


def is_sealed(body: bytes) -> bool:
    """Whether an entry brings its checksum."""
    return body[:2] == ENTRY_MAGIC and len(body) >= ENTRY_BODY_BYTES_MIN


def entry_holds(body: bytes) -> bool:
    """Whether an entry's own checksum is right."""
    checksum = crc32c(body[6:_SUMMED_BYTES])
    for at in range(_SUMMED_BYTES, len(body), _SUMMED_BYTES):
        checksum = crc32c_from(checksum, body[at : at + _SUMMED_BYTES])
    return checksum == int.from_bytes(body[2:6], "big")
