# SPDX-License-Identifier: Apache-2.0
"""Which pages SQLite will take from a write-ahead log. Reads bytes only; source: "WAL file format" of SQLite's docs.

A frame counts if its salts are those of the log's header and its checksum continues that of the frame before it, and
if a frame at or behind it ends a transaction.
"""

from __future__ import annotations

import sys
from array import array
from struct import Struct
from typing import Final

_HEADER: Final = Struct(">IIIIIIII")
_FRAME: Final = Struct(">IIIIII")
_MAGIC: Final = 0x377F0682
"""With checksums of little-endian words; plus one: of big-endian ones."""

_U32: Final = 0xFFFFFFFF


def committed_pages(data: bytes) -> set[int]:
    """Numbers, from 1, of the pages in the whole transactions of a log before its first frame that does not fit."""
    if len(data) < _HEADER.size:
        return set()
    magic, _version, page_bytes, _checkpoint, *salts, first, second = _HEADER.unpack_from(data)
    order = "little" if magic == _MAGIC else "big"
    running = _summed(data[: _HEADER.size - 8], (0, 0), order)
    if magic & ~1 != _MAGIC or running != (first, second) or not page_bytes:
        return set()
    committed: set[int] = set()
    waiting: set[int] = set()
    at = _HEADER.size
    while at + _FRAME.size + page_bytes <= len(data):
        page, pages_after, *rest = _FRAME.unpack_from(data, at)
        body = at + _FRAME.size
        running = _summed(data[at : at + 8] + data[body : body + page_bytes], running, order)
        if rest != [*salts, *running]:
            break
        waiting.add(page)
        if pages_after:
            committed |= waiting
            waiting = set()
        at = body + page_bytes
    return committed


def _summed(data: bytes, start: tuple[int, int], order: str) -> tuple[int, int]:
    words = array("I", data)
    if sys.byteorder != order:
        words.byteswap()
    first, second = start
    for i in range(0, len(words), 2):
        first = (first + words[i] + second) & _U32
        second = (second + words[i + 1] + first) & _U32
    return first, second
