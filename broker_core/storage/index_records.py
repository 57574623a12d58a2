# SPDX-License-Identifier: Apache-2.0
"""Finds and reads the INDEX records of a ledger that a crash left open, from its end backwards.

Whatever is not exactly as it was written makes the answer "none", and the caller reads the whole file instead: a chain
with a hole would be worse than none. Knows nothing of damage or of what to do about it.
"""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

from broker_core.storage.disk import File
from broker_core.storage.ledger_index import decode_part
from broker_core.storage.records import FILE_HEADER_BYTES, HEAD_BYTES, TAG_MARK, Head, decode_head

_WINDOW_BYTES: Final = 1 << 20
"""Bytes searched at once for the last mark. Most files end with it; otherwise it is a group away from the end."""

_SEARCH_BYTES: Final = 256 << 20
"""How far back the last mark is looked for: more than any group holds (``maxMessagePublishBufferSizeInMB``)."""


class Parts(NamedTuple):
    """What a whole chain of INDEX records holds. ``end`` is the file offset behind the last record."""

    offsets: array[int]
    indexes: array[int]
    end: int


def find_last_mark(file: File, seed: int, size: int) -> tuple[int, Head] | None:
    """The last valid commit mark and its offset. OSError as the disk raises it."""
    stop = max(size - _SEARCH_BYTES, 0)
    end = size
    while end > stop:
        base = max(end - _WINDOW_BYTES, stop)
        # A head may stick out of the window at its end.
        window = file.read(base, min(end + HEAD_BYTES - 1, size) - base)
        at = len(window)
        while (at := window.rfind(TAG_MARK, 0, at)) >= 0:
            head = decode_head(seed, base + at, window, at)
            if head is not None and not head.length:
                return base + at, head
            at += len(TAG_MARK) - 1
        end = base
    return None


def read_part(file: File, seed: int, offset: int) -> tuple[Head, array[int], array[int]] | None:
    """The INDEX record at ``offset`` with its offsets and indexes; None if it is damaged."""
    head = decode_head(seed, offset, file.read(offset, HEAD_BYTES))
    if head is None:
        return None
    found = decode_part(head, file.read(offset + HEAD_BYTES, head.length))
    return None if found is None else (head, *found)


def load_parts(file: File, seed: int, offset: int) -> Parts | None:
    """The chain that ends with the INDEX record at ``offset``; None unless all of it is there and fits together."""
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
