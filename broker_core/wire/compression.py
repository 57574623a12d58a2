# SPDX-License-Identifier: Apache-2.0
"""The payload codecs of Pulsar: none, lz4 (raw block), zlib, zstd, snappy (raw).

A payload comes from anywhere, so its plain size, stated by the entry and perhaps again inside the payload, is compared
with the limit before memory is taken for it, and with the result afterwards.
Source: Pulsar docs, "Messages - Compression".
"""

from __future__ import annotations

import zlib
from typing import Final

import cramjam
import lz4.block
import zstandard

from broker_core.base.errors import RemoteProtocolError, UsageError
from broker_core.wire.entry import BytesLike

NONE: Final = 0
LZ4: Final = 1
ZLIB: Final = 2
ZSTD: Final = 3
SNAPPY: Final = 4

CODECS: Final = {"none": NONE, "lz4": LZ4, "zlib": ZLIB, "zstd": ZSTD, "snappy": SNAPPY}
"""Codec numbers of the protocol by the names that users write."""
_NAMES: Final = {number: name for name, number in CODECS.items()}

_ZSTD_WINDOW_BYTES_MAX: Final = 8 * 1024 * 1024
"""Decoding takes this much memory beside the result; no encoder at its usual levels asks for more."""


def codec_of_name(name: str) -> int:
    """The codec that a user named; UsageError if there is none."""
    try:
        return CODECS[name.lower()]
    except KeyError:
        raise UsageError(f"there is no compression {name!r}", hint=f"choose among {', '.join(CODECS)}") from None


def compress(codec: int, data: BytesLike) -> BytesLike:
    """``data`` as it travels under ``codec``; itself if that is NONE."""
    if codec == NONE:
        return data
    if codec == LZ4:
        packed: bytes = lz4.block.compress(data, store_size=False)
        return packed
    if codec == ZLIB:
        return zlib.compress(data)
    if codec == ZSTD:
        return zstandard.ZstdCompressor().compress(data)
    if codec == SNAPPY:
        return memoryview(cramjam.snappy.compress_raw(data))
    raise UsageError(f"there is no compression {codec}")


def decompress(codec: int, data: BytesLike, uncompressed_size: int, bytes_max: int) -> BytesLike:
    """The plain payload of exactly ``uncompressed_size`` bytes, which may be ``bytes_max`` at most.

    Raises RemoteProtocolError if a size lies or ``data`` is damaged. ``data`` itself is returned under NONE.
    """
    if codec == NONE:
        return data
    if uncompressed_size > bytes_max:
        raise RemoteProtocolError(
            f"a payload states {uncompressed_size} bytes before compression, more than the {bytes_max} allowed"
        )
    try:
        plain = _decompress(codec, data, uncompressed_size)
    except (lz4.block.LZ4BlockError, zlib.error, zstandard.ZstdError, cramjam.DecompressionError) as error:
        raise RemoteProtocolError(f"a payload cannot be decompressed as {_NAMES[codec]}: {error}") from error
    if len(plain) != uncompressed_size:
        raise RemoteProtocolError(
            f"a payload states {uncompressed_size} bytes before compression but {_NAMES[codec]} makes it {len(plain)}"
        )
    return plain


def _decompress(codec: int, data: BytesLike, size: int) -> BytesLike:
    """At most ``size`` bytes, one more where the codec cannot tell, out of ``data``."""
    if codec == LZ4:
        plain: bytes = lz4.block.decompress(data, uncompressed_size=size)
        return plain
    if codec == ZLIB:
        return _inflate(data, size)
    if codec == ZSTD:
        return _unzstd(data, size)
    if codec == SNAPPY:
        # The codec trusts the size that the payload begins with.
        if cramjam.snappy.decompress_raw_len(data) != size:
            raise RemoteProtocolError(f"a snappy payload does not hold the {size} bytes that its entry states")
        return memoryview(cramjam.snappy.decompress_raw(data))
    raise RemoteProtocolError(f"compression {codec} is not one that this version knows")


def _inflate(data: BytesLike, size: int) -> bytes:
    stream = zlib.decompressobj()
    plain = stream.decompress(data, size + 1)
    # Compaction by Apache Pulsar writes all bytes, and not the end of the stream.
    if len(plain) < size and not stream.eof:
        raise RemoteProtocolError("a zlib payload is cut off")
    return plain


def _unzstd(data: BytesLike, size: int) -> bytes:
    frame = zstandard.get_frame_parameters(data)
    # The codec trusts the size in the frame over any limit that it is given.
    if frame.content_size not in (size, zstandard.CONTENTSIZE_UNKNOWN):
        raise RemoteProtocolError(f"a zstd payload does not hold the {size} bytes that its entry states")
    if frame.window_size > max(_ZSTD_WINDOW_BYTES_MAX, size):
        raise RemoteProtocolError(f"a zstd payload asks for a window of {frame.window_size} bytes")
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=max(size, 1))
