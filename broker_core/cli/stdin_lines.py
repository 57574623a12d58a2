# SPDX-License-Identifier: Apache-2.0
"""The lines of stdin, for a command that Ctrl-C must end whenever it comes.

A signal that comes just before a thread falls asleep in a read does not wake it, so waiting is done in short naps.
"""

from __future__ import annotations

import io
import select
import sys
from collections.abc import Iterator
from typing import Final

NAP_S: Final = 0.25
_READ_BYTES: Final = 1 << 16


def stdin_lines() -> Iterator[bytes]:
    """Each line without its newline, as soon as it is there; the last one needs none."""
    begun: list[bytes] = []
    for chunk in iter(_next_chunk, b""):
        first, *more = chunk.split(b"\n")
        begun.append(first)
        if more:
            yield b"".join(begun)
            yield from more[:-1]
            begun = [more[-1]]
    last = b"".join(begun)
    if last:
        yield last


def _next_chunk() -> bytes:
    """What can be read now, after waiting for it if need be; nothing at the end."""
    stdin = sys.stdin.buffer
    assert isinstance(stdin, io.BufferedIOBase)
    try:
        descriptor = stdin.fileno()
    except io.UnsupportedOperation:
        return stdin.read1(_READ_BYTES)
    while not select.select([descriptor], [], [], NAP_S)[0]:
        pass
    return stdin.read1(_READ_BYTES)
