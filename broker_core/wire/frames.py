# SPDX-License-Identifier: Apache-2.0
"""Frames: how commands and entries are cut out of a byte stream and put into it.

Simple frame: total size (4 bytes, big endian, not counting itself), command size (4), serialised BaseCommand.
Payload frame: the same, then the body, which is an entry (``entry.py``). A frame does not say which of the two it is;
what follows the command is the body, empty for a simple frame.

Owns the read buffer of one connection. Knows neither sockets nor what a command means. Invariants: a view handed out
by ``get_buffer`` is never empty; memory never exceeds one frame of ``frame_bytes_max`` by more than the size fields,
nor what its owner allows; a size that is not allowed is refused as soon as it is read, before anything is allocated.
Source: Pulsar docs, "Binary protocol - Framing".
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from google.protobuf.message import EncodeError

from broker_core.base.errors import LocalProtocolError, RemoteProtocolError
from broker_core.wire.core.frames import cut_frames
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

SIZE_BYTES: Final = 4
"""One size field."""

HEAD_BYTES: Final = 2 * SIZE_BYTES
"""Both of a frame."""

BUFFER_BYTES_FIRST: Final = 2 * 1024
"""The buffer of a new connection: ten thousand idle ones must not hold much."""
_BUFFER_BYTES_BUSY: Final = (64 * 1024, 1024 * 1024)
"""The sizes to which a buffer grows as soon as a read fills it: large enough that frames are rarely cut by its end."""
_TLS_STARTS: Final = (b"\x15\x03", b"\x16\x03")
"""An alert and a greeting: what one who speaks TLS says first to one who does not."""
_SPARE_BYTES: Final = 16 * 1024
"""How much more than one frame of the largest size the buffer may hold, so that there is always room to read into."""

_sizes_from = struct.Struct(">II").unpack_from
"""The two size fields of the frame that begins at an offset of a buffer."""
_pack_sizes = struct.Struct(">II").pack

Frame: TypeAlias = tuple[bytes, bytes]
"""One frame, copied out of the buffer: the serialised command, and the body (b"" if there is none). A plain tuple: to
make one with names takes a third of what cutting it out takes."""


class FrameReader:
    """Cuts frames out of a byte stream; made for ``asyncio.BufferedProtocol``.

    Call ``get_buffer``, fill some of the view, then ``buffer_updated`` with the number of bytes filled; or ``filled``
    and, as often as there is time, ``take``, before anything more is read. After a RemoteProtocolError the stream has
    no boundaries any more: close the connection.
    """

    __slots__ = (
        "_allocate", "_buffer", "_capacity_max", "_end", "_frame_bytes_max", "_start", "_view", "allowed_bytes",
    )  # fmt: skip

    def __init__(
        self, frame_bytes_max: int, *, allowed_bytes: int | None = None, allocate: Callable[[int], Any] = bytearray
    ) -> None:
        """``frame_bytes_max``: largest frame accepted, without its total size field.

        ``allowed_bytes`` (None: what it takes) is how large the buffer may be. Its owner sees to it that nothing is
        read while ``needed_bytes`` is more. ``allocate`` makes a buffer; unless it is ``bytearray``, one whose memory
        is taken as it is written, so that all that is allowed may be had at once.
        """
        self.allow_frames(frame_bytes_max)
        self._allocate = allocate
        self.allowed_bytes = self._capacity_max if allowed_bytes is None else allowed_bytes
        self._buffer: Any = bytearray(BUFFER_BYTES_FIRST)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes of frames that were not taken, or have not arrived completely."""
        return self._end - self._start

    @property
    def pending(self) -> bytes:
        """The pending bytes, copied."""
        return self._view[self._start : self._end].tobytes()

    @property
    def capacity_bytes(self) -> int:
        """Bytes of the buffer."""
        return len(self._view)

    @property
    def has_frame(self) -> bool:
        """Whether ``take`` would find one, or an impossible size."""
        pending = self._end - self._start
        if pending < HEAD_BYTES:
            return False
        front = self._front_bytes()
        return pending >= front or front > self._frame_bytes_max + SIZE_BYTES

    @property
    def needed_bytes(self) -> int:
        """How large the buffer must be for the frame at the front; not more than the first one if that is not known."""
        if self._end - self._start < HEAD_BYTES:
            return BUFFER_BYTES_FIRST
        return max(BUFFER_BYTES_FIRST, min(self._front_bytes(), self._capacity_max))

    @property
    def busy_bytes(self) -> int:
        """How large the buffer should be: more than it is if the last read has filled it."""
        capacity = len(self._view)
        if self._end == capacity:
            for busy in _BUFFER_BYTES_BUSY:
                if capacity < min(busy, self._capacity_max):
                    return min(busy, self._capacity_max)
        return capacity

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """The free room, never empty. ``sizehint`` is ignored: how much is read is up to the socket."""
        if self._start == self._end:
            self._start = self._end = 0
        elif 4 * self._end > 3 * len(self._view):
            self._make_room()
        return self._view[self._end :]

    def buffer_updated(self, count: int) -> list[Frame]:
        """Take note of ``count`` new bytes and return the frames that are complete now, in order.

        Raises RemoteProtocolError when a size field is impossible or above the limit.
        """
        self.filled(count)
        frames = self.take()
        self.grow_if_busy()
        return frames

    def filled(self, count: int) -> None:
        """Take note of ``count`` new bytes."""
        self._end += count

    def allow_frames(self, frame_bytes_max: int) -> None:
        """Accept frames of another size from now on."""
        self._frame_bytes_max = frame_bytes_max
        self._capacity_max = frame_bytes_max + HEAD_BYTES + _SPARE_BYTES

    def take(self, frames_max: int = sys.maxsize, command_bytes_max: int = sys.maxsize) -> list[Frame]:
        """The next frames that are complete, in order; no more than one behind ``command_bytes_max`` of commands.

        RemoteProtocolError as ``buffer_updated``.
        """
        frames, self._start, _, is_bad = cut_frames(
            self._view, self._start, self._end, self._frame_bytes_max, frames_max, command_bytes_max, sys.maxsize
        )
        if is_bad:
            raise _bad_sizes(self._view, self._start, self._frame_bytes_max)
        return frames

    def grow_if_busy(self) -> None:
        """Have a larger buffer if the last read has filled this one, as far as that is allowed."""
        wanted = self.busy_bytes
        if wanted > len(self._view):
            self._grow(wanted)

    def shrink(self) -> None:
        """Have the smallest buffer that holds what was not taken."""
        capacity = max(BUFFER_BYTES_FIRST, self._end - self._start)
        if capacity < len(self._view):
            self._replace(bytearray(capacity))

    def _front_bytes(self) -> int:
        total, _command_size = _sizes_from(self._buffer, self._start)
        return int(total) + SIZE_BYTES

    def _make_room(self) -> None:
        """Move what is unread to the front, or grow if that is most of the buffer."""
        unread, capacity = self._end - self._start, len(self._view)
        if 2 * unread > capacity and capacity < min(self._capacity_max, self.allowed_bytes):
            # Doubling as bytes arrive, rather than trusting the size announced, makes a peer pay for our memory.
            self._grow(2 * capacity)
        elif self._start:
            self._view[:unread] = self._view[self._start : self._end]
            self._start, self._end = 0, unread

    def _grow(self, capacity: int) -> None:
        most = min(self._capacity_max, self.allowed_bytes)
        capacity = min(capacity, most) if self._allocate is bytearray else most
        if capacity > len(self._view):
            self._replace(self._allocate(capacity))

    def _replace(self, buffer: Any) -> None:
        unread = self._end - self._start
        view = memoryview(buffer)
        view[:unread] = self._view[self._start : self._end]
        self._buffer, self._view = buffer, view
        self._start, self._end = 0, unread


# -- frames that stay where they were received

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
    """As ``FrameReader``, for a reader that takes many large entries and copies them only once, decoded.

    A large body is a view of the block of memory that the socket was read into. No byte that a view shows is written
    again; views of one block tell so by their ``obj``, and lie in it in the order in which they came. A view keeps its
    whole block in memory.
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
            # It doubles as bytes of a frame arrive, rather than trusting its size.
            largest = max(BLOCK_BYTES, self._frame_bytes_max + SIZE_BYTES + _ROOM_BYTES_MIN)
            self._begin_block(min(largest, max(BLOCK_BYTES, 2 * self.pending_bytes)))
        return self._block[self._end :]

    def buffer_updated(self, count: int) -> list[FrameInPlace]:
        """Take note of ``count`` new bytes and return the frames that are complete now, in order.

        Raises RemoteProtocolError when a size field is impossible or above the limit.
        """
        self._end += count
        is_full = self._end == len(self._block)
        frames, self._start, viewed_end, is_bad = cut_frames(
            self._block, self._start, self._end, self._frame_bytes_max, sys.maxsize, sys.maxsize, _VIEWED_BYTES_MIN
        )
        self._viewed_end = max(viewed_end, self._viewed_end)
        if is_bad:
            raise _bad_sizes(self._block, self._start, self._frame_bytes_max)
        if is_full and len(self._block) < BLOCK_BYTES:
            self._begin_block(BLOCK_BYTES)
        return frames

    def _begin_block(self, size: int) -> None:
        """Go on at the front of another block, or of this one if nobody sees it, with what is not complete yet."""
        pending = self.pending_bytes
        block = self._block
        if self._viewed_end or size > len(block):
            block = memoryview(self._new_block(size))
        block[:pending] = self._block[self._start : self._end]
        self._block = block
        self._start, self._end, self._viewed_end = 0, pending, 0


def _bad_sizes(view: memoryview, at: int, frame_bytes_max: int) -> RemoteProtocolError:
    """The error for two size fields that cannot be, or are above the limit."""
    total, command_size = _sizes_from(view, at)
    start = total.to_bytes(SIZE_BYTES, "big")
    if start == b"HTTP":
        return RemoteProtocolError(
            "the peer speaks HTTP", hint="give the port of the binary protocol, usually 6650, not that of the REST"
        )
    if start[:2] in _TLS_STARTS:
        return RemoteProtocolError("the peer speaks TLS, which is not supported", hint="use a port without it")
    if total > frame_bytes_max:
        return RemoteProtocolError(
            f"a frame of {total} bytes was announced, more than the {frame_bytes_max} allowed",
            hint="the peer does not speak the Pulsar protocol, or its maxMessageSize is larger than ours",
        )
    return RemoteProtocolError(
        f"a command of {command_size} bytes was announced in a frame of {total}",
        hint="the peer does not speak the Pulsar protocol",
    )


def encode_command(command: BaseCommand) -> bytes:
    """A simple frame. LocalProtocolError if a required field of ``command`` is missing."""
    try:
        serialised = command.SerializeToString()
    except EncodeError as error:
        raise LocalProtocolError(f"a command lacks required fields: {error}") from error
    size = len(serialised)
    return _pack_sizes(size + SIZE_BYTES, size) + serialised
