# SPDX-License-Identifier: Apache-2.0
"""Frames for the readers of frames, and feeding them as a socket would."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Reader(Protocol[T_co]):
    """Either reader of frames."""

    def get_buffer(self) -> memoryview: ...

    def buffer_updated(self, count: int) -> Sequence[T_co]: ...


def feed(reader: Reader[T_co], data: bytes, pieces: Sequence[int]) -> list[T_co]:
    """Read ``data`` in pieces of the given sizes, over and over, as a socket would fill the buffer."""
    frames: list[T_co] = []
    at = turn = 0
    while at < len(data):
        room = reader.get_buffer()
        assert len(room) > 0
        count = min(len(room), pieces[turn % len(pieces)], len(data) - at)
        room[:count] = data[at : at + count]
        frames += reader.buffer_updated(count)
        at += count
        turn += 1
    return frames


def frame(command: bytes, body: bytes) -> bytes:
    """A frame, made the plain way."""
    return struct.pack(">II", 4 + len(command) + len(body), len(command)) + command + body
