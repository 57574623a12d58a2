# SPDX-License-Identifier: Apache-2.0
"""Admission of published entries: each must be intact, readable, and honest about how many messages it holds.

Later readers size things by the count (indexes, permits, batch walks) and stop at metadata that they cannot parse, so
neither a lie nor rubbish must reach the log. This runs for every entry: what an honest small entry looks like is
checked in line, everything else by ``_admit_unusual``, which also finds the words for a refusal.
Source: Pulsar docs, "Binary protocol - Message"; the limits are in ``base.limits``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

import google_crc32c
from google.protobuf.message import DecodeError

from broker_core.base.errors import NotAllowedError, RemoteProtocolError
from broker_core.base.limits import BATCH_MESSAGES_MAX, SMALL_ENTRY_BYTES_MAX
from broker_core.wire.core.metadata import has_usual_metadata
from broker_core.wire.entry import ensure_checksum, verify_entry
from broker_core.wire.heads import SendHead
from broker_core.wire.proto.pulsar_api_pb2 import LZ4, SNAPPY, ZLIB, ZSTD, CompressionType, MessageMetadata

_HEAD_BYTES: Final = 10
"""Magic 2, checksum 4, metadata size 4."""
_MAGIC: Final = 0x0E01
_MEMBER_BYTES_MIN: Final = 6
"""Size prefix (4) and the one required field of SingleMessageMetadata (2)."""

_MOST_FROM: Final = {
    LZ4: (255, 1),  # one more byte of length stands for 255 bytes at most
    ZLIB: (1032, 1),  # a match of 258 bytes takes two bits at least
    ZSTD: (32_768, 1),  # a block of 128 KiB takes four bytes at least
    SNAPPY: (64, 3),  # a copy of 64 bytes takes three
}
"""How many bytes of plain payload each codec can make of so many bytes: what its format allows, no encoder more."""

_head_from = struct.Struct(">HII").unpack_from
_parse_metadata = MessageMetadata.FromString
_crc32c = google_crc32c.value


def admit_all(sends: Iterable[tuple[SendHead, bytes]], admitted: list[bytes]) -> None:
    """Add the bytes to store for each of ``sends`` to ``admitted``: its body, with a checksum if that had none.

    Stops behind the first that cannot be stored with ChecksumMismatchError for a wrong checksum, RemoteProtocolError
    for something that is not an entry, and NotAllowedError for a count that cannot be true.
    """
    for head, body in sends:
        messages = head.num_messages
        admitted.append(body if messages == 1 and is_usual(body) else _admit_unusual(body, messages))


def is_usual(body: bytes) -> bool:
    """Whether it is certain that ``body`` is a small, whole entry of one message. If not, ``_admit_unusual`` looks."""
    if not _HEAD_BYTES <= len(body) <= SMALL_ENTRY_BYTES_MAX:
        return False
    magic, checksum, _metadata_bytes = _head_from(body)
    return magic == _MAGIC and has_usual_metadata(body) and _crc32c(body[6:]) == checksum


def _admit_unusual(body: bytes, announced: int) -> bytes:
    verify_entry(body)
    body = ensure_checksum(body)
    metadata_end = _HEAD_BYTES + _head_from(body)[2]
    try:
        metadata = _parse_metadata(body[_HEAD_BYTES:metadata_end])
    except DecodeError as error:
        raise RemoteProtocolError(f"the metadata of an entry cannot be read: {error}") from error
    if not metadata.IsInitialized():
        raise RemoteProtocolError("the metadata of an entry lacks a required field")
    stated = metadata.num_messages_in_batch
    if stated != announced:
        raise NotAllowedError(
            f"SEND announces {announced} messages but the metadata of its entry states {stated}",
            hint="num_messages must equal num_messages_in_batch",
        )
    if not 1 <= stated <= BATCH_MESSAGES_MAX:
        raise NotAllowedError(f"an entry states {stated} messages; 1 to {BATCH_MESSAGES_MAX} are possible")
    is_chunk = metadata.HasField("chunk_id") and stated == 1  # its sizes are those of the whole message
    if metadata.HasField("num_messages_in_batch") and not is_chunk:
        _check_room(metadata, len(body) - metadata_end)
    return body


def _check_room(metadata: MessageMetadata, payload_bytes: int) -> None:
    """NotAllowedError if a batch claims more messages, or more bytes before compression, than its payload can hold.

    Encryption comes last and shortens nothing, so what is encrypted is measured in the same way.
    """
    messages, plain_bytes = metadata.num_messages_in_batch, payload_bytes
    if metadata.compression:
        plain_bytes = metadata.uncompressed_size
        most, of_bytes = _MOST_FROM[metadata.compression]
        if plain_bytes * of_bytes > payload_bytes * most:
            raise NotAllowedError(
                f"an entry states {plain_bytes} bytes before compression; its {payload_bytes} of "
                f"{CompressionType.Name(metadata.compression)} cannot hold so many"
            )
    if messages * _MEMBER_BYTES_MIN > plain_bytes:
        raise NotAllowedError(f"an entry states {messages} messages in {plain_bytes} bytes, which cannot hold so many")
