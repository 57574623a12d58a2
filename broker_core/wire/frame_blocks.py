# SPDX-License-Identifier: Apache-2.0
"""Frames that stay where they were received, for a reader that takes many large entries and copies them only once,
decoded.

As ``frames.FrameReader``, but a large body is handed out as a view of the block of memory that the socket was read
into. Invariants: no byte that a view shows is written again; views of one block tell so by their ``obj``, and lie in
it in the order in which they came. A view keeps its whole block in memory. Knows neither sockets nor commands.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from broker_core.wire.core.frames import cut_frames
from broker_core.wire.frames import SIZE_BYTES, bad_sizes

BLOCK_BYTES: Final = 4 * 1024 * 1024
"""One block, unless a frame needs a larger one: several of the entries that writers in bulk make."""

_BLOCK_BYTES_FIRST: Final = 64 * 1024
"""The first one, until a read fills it: most micro-batches are small."""

_VIEWED_BYTES_MIN: Final = 16 * 1024
"""A smaller body is copied, which is as quick as showing it and keeps no block."""

_ROOM_BYTES_MIN: Final = 256 * 1024
"""The next block begins when less room than this is left behind what was received, so that every read is worth its
cost."""

FrameInPlace: TypeAlias = tuple[bytes, bytes | memoryview]
"""The serialised command, and the body where it lies."""


class BlockFrameReader:
    """Cuts frames out of a byte stream; made for ``asyncio.BufferedProtocol``.

    Call ``get_buffer``, fill some of the view, then ``buffer_updated`` with the number of bytes filled. After a
    RemoteProtocolError the stream has no boundaries any more: close the connection.
    """

    __slots__ = ("_block", "_end", "_frame_bytes_max", "_new_block", "_start", "_viewed_end")

    def __init__(self, frame_bytes_max: int, new_block: Callable[[int], Any], unread: bytes = b"") -> None:
        """``frame_bytes_max``: largest frame accepted, without its total size field. ``new_block`` gives so many bytes
        of memory that is taken as it is written. ``unread`` was received before."""
        self._frame_bytes_max = frame_bytes_max
        self._new_block = new_block
        self._block = memoryview(new_block(max(_BLOCK_BYTES_FIRST, 2 * len(unread))))
        self._block[: len(unread)] = unread
        self._start = 0
        self._end = len(unread)
        self._viewed_end = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes of frames that have not arrived completely."""
        return self._end - self._start

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """The free room, never empty. ``sizehint`` is ignored: how much is read is up to the socket."""
        if self._start == self._end:
            self._start = self._end = self._viewed_end
        room = len(self._block) - self._end
        if room < min(_ROOM_BYTES_MIN, len(self._block) // 4):
            self._begin_block(self._block_bytes())
        return self._block[self._end :]

    def buffer_updated(self, count: int) -> list[FrameInPlace]:
        """Take note of ``count`` new bytes and return the frames that are complete now, in order.

        Raises RemoteProtocolError when a size field is impossible or above the limit.
        """
        self._end += count
        is_full = self._end == len(self._block)
        frames = self._take()
        if is_full and len(self._block) < BLOCK_BYTES:
            self._begin_block(BLOCK_BYTES)
        return frames

    def _take(self) -> list[FrameInPlace]:
        frames, self._start, viewed_end, is_bad = cut_frames(
            self._block, self._start, self._end, self._frame_bytes_max, sys.maxsize, sys.maxsize, _VIEWED_BYTES_MIN
        )
        self._viewed_end = max(viewed_end, self._viewed_end)
        if is_bad:
            raise bad_sizes(self._block, self._start, self._frame_bytes_max)
        return frames

    def _block_bytes(self) -> int:
        """How large the next block should be. It doubles as bytes of a frame arrive, rather than trusting its size."""
        largest = max(BLOCK_BYTES, self._frame_bytes_max + SIZE_BYTES + _ROOM_BYTES_MIN)
        return min(largest, max(BLOCK_BYTES, 2 * self.pending_bytes))

    def _begin_block(self, size: int) -> None:
        """Go on at the front of another block, or of this one if nobody sees it, with what is not complete yet."""
        pending = self.pending_bytes
        block = self._block
        if self._viewed_end or size > len(block):
            block = memoryview(self._new_block(size))
        block[:pending] = self._block[self._start : self._end]
        self._block = block
        self._start, self._end, self._viewed_end = 0, pending, 0
