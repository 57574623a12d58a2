# SPDX-License-Identifier: Apache-2.0
"""Which pages SQLite will take from a write-ahead log. Reads bytes only; source: "WAL file format" of SQLite's docs.

A frame counts if its salts are those of the log's header and its checksum continues that of the frame before it, and
if a frame at or behind it ends a transaction.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from struct import Struct
from typing import Final

_HEADER: Final = Struct(">IIIIIIII")
_FRAME: Final = Struct(">IIIIII")
_MAGIC: Final = 0x377F0682
"""Magic number of a log whose checksums are of little-endian words; plus one: of big-endian words."""

_U32: Final = 0xFFFFFFFF


def committed_pages(data: bytes) -> set[int]:
    """Numbers, from 1, of the pages in the whole transactions of a log before its first frame that does not fit."""
    committed: set[int] = set()
    waiting: set[int] = set()
    for page, pages_after, _at in _fitting(data):
        waiting.add(page)
        if pages_after:
            committed |= waiting
            waiting = set()
    return committed


def commits_behind_damage(data: bytes, read: int) -> int:
    """How many transactions end behind the first frame that does not fit, in frames of the same log.

    ``read``: how many SQLite has read from it, as far as is known; if these are all that end in it, nothing is summed.
    All but the last of them had been synced, for SQLite begins none before that of the one before it has returned.
    """
    size = _frame_bytes(data)
    if not size or sum(1 for _ in _ends(data, _HEADER.size, size)) == read:
        return 0
    last = max((at for _page, _pages_after, at in _fitting(data)), default=_HEADER.size - size)
    return sum(1 for at in _ends(data, last + 2 * size, size) if _follows(data, at, size))


def _ends(data: bytes, at: int, size: int) -> Iterator[int]:
    """Where transactions end in the frames from ``at`` on, whether these fit or not."""
    body = b""
    while at + size <= len(data):
        _page, pages_after, *rest = _FRAME.unpack_from(data, at)
        if pages_after and tuple(rest[:2]) == _salts(data):
            # SQLite may repeat the last frame of a transaction up to the end of a sector.
            before, body = body, data[at + _FRAME.size : at + size]
            if body != before:
                yield at
        at += size


def _follows(data: bytes, at: int, size: int) -> bool:
    """Whether the checksum of the frame at ``at`` continues the one that the frame before it has, right or wrong."""
    magic = _HEADER.unpack_from(data)[0]
    first, second = _FRAME.unpack_from(data, at - size)[4:]
    found = _summed(data[at : at + 8] + data[at + _FRAME.size : at + size], (first, second), _order(magic))
    return found == _FRAME.unpack_from(data, at)[4:]


def _frame_bytes(data: bytes) -> int:
    """Size of a frame with its page; 0 if the header of the log does not fit."""
    if len(data) < _HEADER.size:
        return 0
    magic, _version, page_bytes, *_rest, first, second = _HEADER.unpack_from(data)
    summed = _summed(data[: _HEADER.size - 8], (0, 0), _order(magic))
    fits = magic & ~1 == _MAGIC and summed == (first, second) and page_bytes
    return _FRAME.size + page_bytes if fits else 0


def _order(magic: int) -> str:
    return "little" if magic == _MAGIC else "big"


def _salts(data: bytes) -> tuple[int, int]:
    first, second = _HEADER.unpack_from(data)[4:6]
    return first, second


def _fitting(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Page, pages after the transaction (0: it goes on) and offset of each frame before the first that does not fit."""
    size = _frame_bytes(data)
    if not size:
        return
    magic, *_rest, first, second = _HEADER.unpack_from(data)
    order, running = _order(magic), (first, second)
    at = _HEADER.size
    while at + size <= len(data):
        page, pages_after, *rest = _FRAME.unpack_from(data, at)
        running = _summed(data[at : at + 8] + data[at + _FRAME.size : at + size], running, order)
        if rest != [*_salts(data), *running]:
            return
        yield page, pages_after, at
        at += size


def _summed(data: bytes, start: tuple[int, int], order: str) -> tuple[int, int]:
    words = array("I", data)
    if sys.byteorder != order:
        words.byteswap()
    first, second = start
    for i in range(0, len(words), 2):
        first = (first + words[i] + second) & _U32
        second = (second + words[i + 1] + first) & _U32
    return first, second
