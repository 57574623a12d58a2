# SPDX-License-Identifier: Apache-2.0
"""Frames that stay where they were received: the same frames as by copying, in memory that is not written again."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.base.errors import RemoteProtocolError
from broker_core.wire.frames import BLOCK_BYTES, BlockFrameReader
from tests.wire.feeding import feed, frame

FRAME_BYTES_MAX = 5 * 1024 * 1024


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    sizes=st.lists(st.one_of(st.integers(0, 300), st.integers(0, 900_000)), min_size=1, max_size=20),
    pieces=st.lists(st.one_of(st.integers(5_000, 70_000), st.integers(1, 2_000_000)), min_size=1, max_size=5),
    unread=st.integers(0, 100_000),
)
def test_what_was_handed_out_stays_as_it_came(sizes: list[int], pieces: list[int], unread: int) -> None:
    """However the stream is cut, all frames come out whole, and what comes later does not change them."""
    wanted = [(b"%d" % number, bytes([number]) * size) for number, size in enumerate(sizes)]
    stream = b"".join(frame(*one) for one in wanted)
    reader = BlockFrameReader(FRAME_BYTES_MAX, bytearray, stream[: min(unread, 7)])
    frames = feed(reader, stream[min(unread, 7) :], [*pieces, 50_000])
    assert [(command, bytes(body)) for command, body in frames] == wanted
    assert reader.pending_bytes == 0


def test_the_largest_frames_are_read_one_behind_the_other() -> None:
    """A frame that is larger than a block gets a larger one."""
    body = b"x" * (FRAME_BYTES_MAX - 4 - 5)
    reader = BlockFrameReader(FRAME_BYTES_MAX, bytearray)
    assert feed(reader, frame(b"hello", body) * 3, [700_000]) == [(b"hello", body)] * 3


def test_large_bodies_share_the_memory_that_they_were_received_into() -> None:
    """Views of one block can be decoded where they are; small bodies keep no block in memory."""
    reader = BlockFrameReader(FRAME_BYTES_MAX, bytearray)
    feed(reader, frame(b"grow", bytes(100_000)), [100_000])
    frames = feed(reader, frame(b"large", bytes(200_000)) * 3 + frame(b"small", bytes(100)), [BLOCK_BYTES])
    large, small = [body for _, body in frames[:3]], frames[3][1]
    assert all(isinstance(body, memoryview) and body.readonly for body in large)
    assert len({id(body.obj) for body in large if isinstance(body, memoryview)}) == 1
    assert isinstance(small, bytes)


def test_a_block_that_nobody_sees_is_used_again() -> None:
    """Small entries, however many, need no new memory."""
    made: list[int] = []

    def new_block(size: int) -> bytearray:
        made.append(size)
        return bytearray(size)

    reader = BlockFrameReader(FRAME_BYTES_MAX, new_block)
    feed(reader, frame(b"small", bytes(1000)) * 20_000, [BLOCK_BYTES])
    assert len(made) == 2


@pytest.mark.parametrize("sizes", [(FRAME_BYTES_MAX + 1, 10), (3, 0), (100, 97), (100, 0)])
def test_impossible_sizes_are_refused_at_once(sizes: tuple[int, int]) -> None:
    """A size is judged before its frame has arrived."""
    with pytest.raises(RemoteProtocolError):
        feed(BlockFrameReader(FRAME_BYTES_MAX, bytearray), struct.pack(">II", *sizes), [8])
