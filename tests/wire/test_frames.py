# SPDX-License-Identifier: Apache-2.0
"""Frames out of a byte stream that arrives in any pieces, and refusal of sizes that cannot be."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.base.errors import LocalProtocolError, RemoteProtocolError
from broker_core.wire.commands import ping, success
from broker_core.wire.frames import FrameReader, encode_command
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.wire.feeding import feed, frame

FRAME_BYTES_MAX = 300_000


@settings(derandomize=True, deadline=None, max_examples=80)
@given(
    parts=st.lists(
        st.tuples(st.integers(1, 300), st.one_of(st.integers(0, 300), st.integers(0, 250_000))), min_size=1, max_size=8
    ),
    pieces=st.lists(st.one_of(st.integers(1, 20), st.integers(1, 100_000)), min_size=1, max_size=5),
)
def test_frames_do_not_depend_on_how_the_stream_is_cut(parts: list[tuple[int, int]], pieces: list[int]) -> None:
    """Whatever the network does with the pieces, the same frames come out in the same order."""
    wanted = [
        (bytes([number + 1]) * command_size, bytes([255 - number]) * body_size)
        for number, (command_size, body_size) in enumerate(parts)
    ]
    reader = FrameReader(FRAME_BYTES_MAX)
    assert feed(reader, b"".join(frame(*one) for one in wanted), [*pieces, 10_000]) == wanted
    assert reader.pending_bytes == 0


def test_a_frame_of_the_largest_size_is_read() -> None:
    """The limit itself is allowed; the buffer grows for it."""
    body = b"x" * (FRAME_BYTES_MAX - 4 - 5)
    reader = FrameReader(FRAME_BYTES_MAX)
    assert feed(reader, frame(b"hello", body) * 3, [70_000]) == [(b"hello", body)] * 3


@pytest.mark.parametrize(
    "sizes",
    [
        (FRAME_BYTES_MAX + 1, 10),
        (0xFFFFFFFF, 10),
        (0x47455420, 0x2F204854),  # "GET / HT"
        (3, 0),
        (0, 0),
        (100, 97),
        (100, 0xFFFFFFFF),
        (100, 0),
    ],
)
def test_impossible_sizes_are_refused_at_once(sizes: tuple[int, int]) -> None:
    """A size is judged before its frame has arrived, and nothing is allocated for it."""
    reader = FrameReader(FRAME_BYTES_MAX)
    room = len(reader.get_buffer())
    with pytest.raises(RemoteProtocolError, match="announced"):
        feed(reader, struct.pack(">II", *sizes), [8])
    assert len(reader.get_buffer()) <= room


@pytest.mark.parametrize(
    ("start", "told"),
    [
        (b"HTTP/1.1", "the peer speaks HTTP; give the port of the binary protocol"),
        (b"\x15\x03\x03\x00\x02\x02\x46\x00", "the peer speaks TLS"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "the peer speaks TLS"),
    ],
)
def test_who_speaks_something_else_is_recognised(start: bytes, told: str) -> None:
    """The wrong port is a common mistake, and "a frame of 1213486160 bytes" helps nobody to find it."""
    with pytest.raises(RemoteProtocolError, match=told):
        feed(FrameReader(FRAME_BYTES_MAX), start, [8])


def test_an_idle_connection_holds_little_memory() -> None:
    """The first buffer is small; only traffic makes it grow, and never beyond one frame and some room."""
    reader = FrameReader(5 * 1024 * 1024)
    assert len(reader.get_buffer()) <= 2048
    feed(reader, frame(b"c", b"") * 300_000, [1 << 20])
    assert len(reader.get_buffer()) == 1 << 20
    small = FrameReader(1000)
    feed(small, frame(b"c", b"x" * 900) * 1000, [1 << 20])
    assert len(small.get_buffer()) <= 1000 + 8 + 16 * 1024


def test_a_large_size_alone_takes_no_memory() -> None:
    """A peer that announces a large frame and sends nothing of it does not make the buffer grow."""
    reader = FrameReader(5 * 1024 * 1024)
    assert feed(reader, struct.pack(">II", 5 * 1024 * 1024, 10), [8]) == []
    assert len(reader.get_buffer()) <= 2048
    assert reader.pending_bytes == 8


def test_commands_travel_in_simple_frames() -> None:
    """Two encoded commands come out as they went in, without a body."""
    frames = feed(FrameReader(1000), encode_command(ping()) + encode_command(success(0)), [7])
    assert [BaseCommand.FromString(command) for command, _body in frames] == [ping(), success(0)]
    assert [body for _command, body in frames] == [b"", b""]


def test_an_incomplete_command_is_not_sent() -> None:
    """A command without its required fields is our own mistake."""
    with pytest.raises(LocalProtocolError, match="required"):
        encode_command(BaseCommand())
