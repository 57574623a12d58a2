# SPDX-License-Identifier: Apache-2.0
"""Reads the INDEX records of a ledger that a crash left open, from the newest that the catalogue knows backwards.

Nothing is searched for: bodies are users' bytes, and a user who knows the numbers of a ledger could write one that
looks like a record at its place. The catalogue says where the newest record is, and each where the one before is.
Anything that is not exactly as it was written makes the answer "none", and the caller reads the whole file instead: a
chain with a hole would be worse than none. Knows nothing of damage or of what to do about it.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from broker_core.storage.disk import File
from broker_core.storage.ledger_index import decode_part
from broker_core.storage.records import FILE_HEADER_BYTES, HEAD_BYTES, Head, decode_head


class Parts(NamedTuple):
    """What a whole chain of INDEX records holds. ``end`` is the file offset behind the last record."""

    offsets: array[int]
    indexes: array[int]
    end: int


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
