# SPDX-License-Identifier: Apache-2.0
"""Entries: what a SEND frame carries after its command, and what a log stores and a MESSAGE frame delivers unchanged.

Body of an entry: magic 0x0e01, CRC32C (4 bytes) of all that follows it, metadata size (4), MessageMetadata, payload.
A body without magic and checksum is legal from old clients; ``ensure_checksum`` adds them before storing. On delivery
the broker may put magic 0x0e02, size (4) and BrokerEntryMetadata in front.

Knows nothing of frames, ledgers or of what a payload means. Sizes are checked before they are used.
Source: Pulsar docs, "Binary protocol - Message"; PIP-70 for the broker entry metadata.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

import google_crc32c
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from broker_core.base.errors import ChecksumMismatchError, RemoteProtocolError
from broker_core.base.limits import METADATA_BYTES_MAX
from broker_core.base.positions import to_signed64
from broker_core.wire.proto.pulsar_api_pb2 import BrokerEntryMetadata, MessageMetadata

BytesLike: TypeAlias = bytes | memoryview

MAGIC_CHECKSUM: Final = b"\x0e\x01"
MAGIC_BROKER_ENTRY: Final = b"\x0e\x02"
CHECKSUM_HEAD_BYTES: Final = 6
"""Magic and checksum; the checksum covers everything behind them."""
_BROKER_HEAD_BYTES: Final = 6
_SIZE_BYTES: Final = 4
_SUMMED_BYTES: Final = 64 * 1024
"""Copied and summed at a time."""
_MESSAGES_TAG: Final = b"\x58"
"""Field 11, the number of messages in a batch, a varint."""
_COMPRESSION: Final = MessageMetadata.COMPRESSION_FIELD_NUMBER

_u32_from = struct.Struct(">I").unpack_from
_pack_u32 = struct.Struct(">I").pack


class EntryRef(NamedTuple):
    """A stored entry as a reader got it, without the broker entry metadata.

    ``index`` is the message index of its LAST message and ``broker_timestamp`` milliseconds; -1 where unknown.
    """

    ledger: int
    entry: int
    body: BytesLike
    index: int = -1  # type: ignore[assignment] # hides tuple.index, which a record has no use for
    broker_timestamp: int = -1


class BrokerEntry(NamedTuple):
    """BrokerEntryMetadata: broker time in milliseconds and index of the entry's last message; -1 where absent."""

    broker_timestamp: int
    index: int  # type: ignore[assignment] # hides tuple.index, which a record has no use for


def seal_entry(metadata: bytes, payload: BytesLike) -> bytes:
    """The body of an entry from its serialised MessageMetadata and its payload (compressed if the metadata says so)."""
    plain = bytes(payload)
    return entry_head(metadata, plain) + plain


def entry_head(metadata: bytes, payload: BytesLike) -> bytes:
    """The part of ``seal_entry`` before the payload: a large payload need not be copied behind it."""
    head = _pack_u32(len(metadata)) + metadata
    checksum = google_crc32c.extend(google_crc32c.value(head), bytes(payload))
    return b"".join((MAGIC_CHECKSUM, _pack_u32(checksum), head))


def entry_head_bytes(metadata: bytes) -> int:
    """How long ``entry_head`` is."""
    return CHECKSUM_HEAD_BYTES + _SIZE_BYTES + len(metadata)


def verify_entry(body: BytesLike, as_summed: Callable[[BytesLike], Any] = bytes) -> None:
    """Check the checksum, if there is one, and that the metadata lies inside ``body``.

    ``as_summed`` makes of a part of ``body`` what the checksum library takes: bytes, or what gives it their memory
    without a copy, as numpy's arrays do.

    Raises ChecksumMismatchError, or RemoteProtocolError if ``body`` is not an entry at all.
    """
    start, _end = _metadata_bounds(body)
    if start == CHECKSUM_HEAD_BYTES + _SIZE_BYTES:
        stated = _u32_from(body, 2)[0]
        actual = _crc(body, CHECKSUM_HEAD_BYTES, as_summed)
        if stated != actual:
            raise ChecksumMismatchError(
                f"an entry of {len(body)} bytes has checksum {actual:#010x} but states {stated:#010x}",
                hint="the bytes changed on their way; send the message again",
            )


def ensure_checksum(body: bytes) -> bytes:
    """``body`` itself if it has magic and checksum, else a copy with both in front. Does not verify."""
    if body[:2] == MAGIC_CHECKSUM:
        return body
    return b"".join((MAGIC_CHECKSUM, _pack_u32(_crc(body)), body))


def _crc(data: BytesLike, start: int = 0, as_summed: Callable[[BytesLike], Any] = bytes) -> int:
    """The checksum of ``data`` from ``start`` on."""
    # The library does not take a view. Copying one costs as much as the checksum itself, and as much again where the
    # copy is too large for the processor's cache.
    end = start + _SUMMED_BYTES
    checksum: int = google_crc32c.value(as_summed(data[start:end]))
    while end < len(data):
        checksum = google_crc32c.extend(checksum, as_summed(data[end : end + _SUMMED_BYTES]))
        end += _SUMMED_BYTES
    return checksum


def split_entry(body: BytesLike) -> tuple[memoryview, memoryview]:
    """Views of the serialised MessageMetadata and of the payload. Does not verify the checksum.

    Raises RemoteProtocolError if the metadata does not lie inside ``body``.
    """
    start, end = _metadata_bounds(body)
    view = memoryview(body)
    return view[start:end], view[end:]


def read_metadata(body: BytesLike) -> MessageMetadata:
    """The MessageMetadata of an entry; RemoteProtocolError if it cannot be read."""
    start, end = _metadata_bounds(body)
    try:
        metadata = MessageMetadata.FromString(bytes(body[start:end]))
    except DecodeError as error:
        raise RemoteProtocolError(f"the metadata of an entry cannot be read: {error}") from error
    if not metadata.IsInitialized():
        raise RemoteProtocolError("the metadata of an entry lacks producer name, sequence id or publish time")
    return metadata


def codec_of(metadata: MessageMetadata) -> int:
    """The number of the codec of the payload, also of an unknown codec: protobuf's runtime puts that among the unknown
    fields, and the payload would look plain. So it does with a field of that number that is no number at all."""
    if metadata.compression:
        return metadata.compression
    unknown = UnknownFieldSet(metadata)
    found = [unknown[at].data for at in range(len(unknown)) if unknown[at].field_number == _COMPRESSION]
    numbers = [each for each in found if isinstance(each, int)]
    return numbers[-1] if numbers else 0


def published_ms(body: BytesLike) -> int:
    """When the producer says that it published an entry, milliseconds since the epoch; errors as ``read_metadata``."""
    return read_metadata(body).publish_time


def stored_ms(entry: EntryRef) -> int:
    """The time by which a broker tells how old ``entry`` is: its own where it stores that with each entry and tells it,
    else that of the producer, which it then has to believe; errors as ``read_metadata``."""
    return entry.broker_timestamp if entry.broker_timestamp >= 0 else published_ms(entry.body)


def messages_of(body: bytes | memoryview) -> int:
    """How many messages an entry says that it holds, at least one; 1 if its metadata cannot be read: a count must not
    stop at an entry, and decoding that tells what is wrong with it."""
    try:
        start, end = _metadata_bounds(body)
        metadata = bytes(body[start:end])
        if _MESSAGES_TAG not in metadata:
            return 1  # Certain, and a tenth of the cost. The same byte may occur elsewhere, so finding proves nothing.
        return max(MessageMetadata.FromString(metadata).num_messages_in_batch, 1)
    except (DecodeError, RemoteProtocolError):
        return 1


def text_of(field: str | bytes) -> str:
    """A text field of the metadata of an entry, of which nobody has checked that it is UTF-8.

    The runtime hands out bytes where it is not; clients in other languages write keys like that.
    """
    return field if isinstance(field, str) else field.decode("utf-8", "replace")


def _metadata_bounds(body: BytesLike) -> tuple[int, int]:
    """Where the MessageMetadata starts and ends."""
    size_at = CHECKSUM_HEAD_BYTES if body[:2] == MAGIC_CHECKSUM else 0
    start = size_at + _SIZE_BYTES
    if len(body) < start:
        raise RemoteProtocolError(f"an entry of {len(body)} bytes is too short to hold its own sizes")
    size: int = _u32_from(body, size_at)[0]
    if size > METADATA_BYTES_MAX:
        raise RemoteProtocolError(f"the metadata of an entry has {size} bytes, more than {METADATA_BYTES_MAX}")
    if start + size > len(body):
        raise RemoteProtocolError(
            f"an entry states {size} bytes of metadata but holds only {len(body) - start} behind its sizes"
        )
    return start, start + size


# -- broker entry metadata


def split_broker_entry(body: BytesLike) -> tuple[BrokerEntry | None, BytesLike]:
    """Broker entry metadata, if there are any, and the entry behind them (a view into ``body`` then, no copy).

    Raises RemoteProtocolError if the prefix is not valid.
    """
    if body[:2] != MAGIC_BROKER_ENTRY:
        return None, body
    if len(body) < _BROKER_HEAD_BYTES:
        raise RemoteProtocolError(f"broker entry metadata is cut off after {len(body)} bytes")
    end = _BROKER_HEAD_BYTES + _u32_from(body, 2)[0]
    if end > len(body):
        raise RemoteProtocolError(f"broker entry metadata of {end - _BROKER_HEAD_BYTES} bytes is longer than its frame")
    try:
        data = BrokerEntryMetadata.FromString(bytes(body[_BROKER_HEAD_BYTES:end]))
    except DecodeError as error:
        raise RemoteProtocolError(f"broker entry metadata cannot be read: {error}") from error
    timestamp = to_signed64(data.broker_timestamp) if data.HasField("broker_timestamp") else -1
    index = to_signed64(data.index) if data.HasField("index") else -1
    return BrokerEntry(timestamp, index), memoryview(body)[end:]
