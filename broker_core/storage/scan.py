# SPDX-License-Identifier: Apache-2.0
"""Walks over a log file record by record and finds its way again behind damaged bytes.

Pure of policy: it reports heads and gaps. Whether a gap is a torn tail or damage depends on the commit marks and is
decided by ``recovery``. ``walk`` does not verify bodies.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from broker_core.storage.disk import File
from broker_core.storage.records import HEAD_BYTES, TAGS, Head, body_holds, crc32c_from, decode_head, place, unpack_head

WINDOW_BYTES: Final = 1 << 20
"""Bytes read at once. Larger windows were not faster, smaller ones cost system calls."""


class Gap(NamedTuple):
    """Bytes from ``start`` to ``end`` that hold no valid record head."""

    start: int
    end: int


def walk(file: File, seed: int, start: int, end: int) -> Iterator[tuple[int, Head] | Gap]:
    """All records from ``start`` on whose head is valid and which end by ``end``, in file order, and the gaps between.

    A gap ends at the next valid head, found by its tag; the head's crc, which knows the file and the offset, tells a
    real one from bytes that look like one. OSError as the disk raises it.
    """
    offset = start
    window, base = b"", start
    while offset < end:
        at = offset - base
        if at + HEAD_BYTES > len(window):
            window, base, at = file.read(offset, min(WINDOW_BYTES, end - offset)), offset, 0
        if at + HEAD_BYTES <= len(window):
            tag, length, detail, check, a, b, c, crc = unpack_head(window, at)
            after = offset + HEAD_BYTES + length
            if crc == crc32c_from(place(seed, offset), window[at : at + HEAD_BYTES - 4]) and after <= end:
                yield offset, Head(tag, length, detail, check, a, b, c)
                offset = after
                continue
        found = _next_head(file, seed, offset + 1, end)
        yield Gap(offset, found)
        offset = found


def _next_head(file: File, seed: int, start: int, end: int) -> int:
    """Offset of the first valid head at or after ``start``, or ``end``."""
    base = start
    while base < end:
        window = file.read(base, min(WINDOW_BYTES, end - base))
        for found in TAGS.finditer(window):
            at = found.start()
            head = decode_head(seed, base + at, window, at)
            if head is not None and base + at + HEAD_BYTES + head.length <= end:
                return base + at
        if len(window) < HEAD_BYTES or base + len(window) >= end:
            return end
        base += len(window) - (HEAD_BYTES - 1)
    return end


def read_record(file: File, seed: int, offset: int) -> tuple[Head, bytes] | None:
    """Head and body of the record at ``offset``, or None unless both are as they were written."""
    head = decode_head(seed, offset, file.read(offset, HEAD_BYTES))
    if head is None:
        return None
    body = file.read(offset + HEAD_BYTES, head.length)
    return (head, body) if body_holds(head, body) else None
