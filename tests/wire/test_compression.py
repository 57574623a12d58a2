# SPDX-License-Identifier: Apache-2.0
"""Payload codecs: round trips, and payloads that lie about their size."""

from __future__ import annotations

import contextlib
import tracemalloc
import zlib
from collections.abc import Callable, Mapping

import cramjam
import lz4.block
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.base.errors import RemoteProtocolError, UsageError
from broker_core.wire.compression import CODECS, LZ4, NONE, SNAPPY, ZLIB, ZSTD, codec_of_name, compress, decompress

PACKING = [LZ4, ZLIB, ZSTD, SNAPPY]
MIB = 1024 * 1024
BOMBS: Mapping[str, Callable[[bytes], tuple[int, bytes]]] = {
    "lz4": lambda plain: (LZ4, lz4.block.compress(plain, store_size=False)),
    "zlib": lambda plain: (ZLIB, zlib.compress(plain)),
    "zstd": lambda plain: (ZSTD, zstandard.ZstdCompressor().compress(plain)),
    "zstd of unknown size": lambda plain: (ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress(plain)),
    "snappy": lambda plain: (SNAPPY, bytes(cramjam.snappy.compress_raw(plain))),
    "snappy of 4 GiB in 5 bytes": lambda _: (SNAPPY, b"\xff\xff\xff\xff\x0f"),
}


@pytest.fixture
def bomb() -> bytes:
    """Made when it is needed, for every worker of the test runner imports this file."""
    return bytes(64 * MIB)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.binary(max_size=2000), st.integers(1, 50), st.sampled_from([NONE, *PACKING]))
def test_what_is_compressed_comes_back(data: bytes, times: int, codec: int) -> None:
    """Every codec, with data that repeats and data that does not, and with nothing at all."""
    plain = data * times
    packed = compress(codec, plain)
    assert bytes(decompress(codec, packed, len(plain), 5 * MIB)) == plain
    assert bytes(decompress(codec, memoryview(bytes(packed)), len(plain), 5 * MIB)) == plain
    assert bytes(compress(codec, memoryview(plain))) == bytes(packed)


def test_numbers_are_those_of_the_protocol() -> None:
    """The names that users write, any case."""
    assert {name: codec_of_name(name.upper()) for name in CODECS} == {
        "none": 0, "lz4": 1, "zlib": 2, "zstd": 3, "snappy": 4
    }  # fmt: skip
    with pytest.raises(UsageError, match="brotli"):
        codec_of_name("brotli")


@pytest.mark.parametrize("codec", PACKING)
@pytest.mark.parametrize("stated", [0, 999, 1001, 100_000])
def test_a_stated_size_that_lies_is_refused(codec: int, stated: int) -> None:
    """The result must have exactly the size that the entry states."""
    packed = compress(codec, b"0123456789" * 100)
    with pytest.raises(RemoteProtocolError):
        decompress(codec, packed, stated, 5 * MIB)


@pytest.mark.parametrize("codec", PACKING)
def test_a_size_above_the_limit_is_refused_unseen(codec: int) -> None:
    """The payload is not even looked at."""
    with pytest.raises(RemoteProtocolError, match="more than the 1000 allowed"):
        decompress(codec, b"anything", 1001, 1000)


@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_takes_no_memory(kind: str, bomb: bytes) -> None:
    """A payload that would become larger than stated is stopped at the stated size, whatever it claims itself."""
    codec, packed = BOMBS[kind](bomb)
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError):
            decompress(codec, packed, 1000, 5 * MIB)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", [ZSTD, SNAPPY])
def test_a_payload_that_states_its_own_size_is_asked_first(codec: int, bomb: bytes) -> None:
    """These codecs allocate what the payload says, so that it is compared before they see it."""
    with pytest.raises(RemoteProtocolError, match="does not hold the 1000 bytes"):
        decompress(codec, compress(codec, bomb), 1000, 5 * MIB)


def test_a_zstd_window_of_gigabytes_is_refused() -> None:
    """A frame header alone can ask for a window that decoding would have to hold."""
    huge_window = b"\x28\xb5\x2f\xfd" + b"\x00" + b"\xa8" + b"\x01\x00\x00"
    assert zstandard.get_frame_parameters(huge_window).window_size >= 1 << 30
    with pytest.raises(RemoteProtocolError, match="window"):
        decompress(ZSTD, huge_window, 1000, 5 * MIB)


def test_a_zlib_payload_may_lack_its_end() -> None:
    """7.4.3: what compaction by Apache Pulsar rewrites is flushed and not finished; all bytes must be there."""
    stream = zlib.compressobj()
    unfinished = stream.compress(b"some text") + stream.flush(zlib.Z_SYNC_FLUSH)
    assert decompress(ZLIB, unfinished, 9, 1000) == b"some text"
    for size in (8, 10):
        with pytest.raises(RemoteProtocolError):
            decompress(ZLIB, unfinished, size, 1000)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.sampled_from(PACKING), st.data())
def test_damaged_payloads_are_refused_or_have_the_stated_size(codec: int, data: st.DataObject) -> None:
    """No input leads to anything but a payload of the stated size or a protocol error."""
    packed = bytearray(compress(codec, b"some text, some text, some more text " * 20))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(packed[: data.draw(st.integers(0, len(packed)))])
    with contextlib.suppress(RemoteProtocolError):
        assert len(decompress(codec, cut, 740, 5 * MIB)) == 740


@pytest.mark.parametrize("codec", [-1, 5, 99])
def test_unknown_codecs_are_refused(codec: int) -> None:
    """A codec of a later version is named in the error."""
    with pytest.raises(RemoteProtocolError, match=str(codec)):
        decompress(codec, b"", 0, 1000)
    with pytest.raises(UsageError, match=str(codec)):
        compress(codec, b"")
