# SPDX-License-Identifier: Apache-2.0
"""From a delivered entry to the messages in it, one by one. Pure.

For applications that take messages singly; bulk readers use the columnar ``wire.batch`` instead. Nothing is believed:
checksum, sizes and counts are verified before anything is handed out. Source: semantics 1.5, 3.6.6.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from broker_core.base.errors import RemoteProtocolError, ServerError, UnsupportedVersionError
from broker_core.base.limits import BATCH_MESSAGES_MAX
from broker_core.base.positions import MessageId, Position
from broker_core.client.chunks.chunk_assembly import ReceivedChunk, chunk_info, naming_entry
from broker_core.client.messages.message import Message, Source
from broker_core.wire.ack_sets import bits_of_words
from broker_core.wire.compression import NONE, decompress
from broker_core.wire.entry import BrokerEntry, codec_of, read_metadata, split_broker_entry, split_entry, verify_entry
from broker_core.wire.heads import MessageHead
from broker_core.wire.proto import pulsar_api_pb2 as pb

UNCOMPRESSED_BYTES_MAX: Final = 128 * 1024 * 1024
"""The plain payload of one entry. Far above what 5 MiB of any real data unpack to, far below a machine's memory."""

_BROKER_SAYS_NOTHING: Final = BrokerEntry(-1, -1)

_size_from = struct.Struct(">I").unpack_from


class Unpacked(NamedTuple):
    """``messages`` without those that are acknowledged already, or that a compaction left out; ``remaining``: a bit for
    each message of a batch that is one of these.

    ``charged``: permits that the broker took. ``batch_size`` 0: not a batch. ``chunk``: the entry is a part of a
    message, and holds none itself. ``size_bytes``: of the payload, not compressed.
    """

    messages: list[Message]
    batch_size: int
    remaining: int
    charged: int
    chunk: ReceivedChunk | None = None
    size_bytes: int = 0


def unpack(source: Source, head: MessageHead, body: bytes) -> Unpacked:
    """The messages of a delivered entry.

    Raises ChecksumMismatchError or RemoteProtocolError if it is damaged, UnsupportedVersionError if it holds what this
    client cannot show (encryption); the text names the entry.
    """
    try:
        return _unpack(source, head, body)
    except (RemoteProtocolError, ServerError) as failure:
        raise naming_entry(Position(head.ledger, head.entry), failure) from failure


def charged_for(head: MessageHead, body: bytes) -> int:
    """Permits that the broker took for an entry that cannot be unpacked, as far as the entry still tells; never 0."""
    try:
        count = read_metadata(split_broker_entry(body)[1]).num_messages_in_batch
    except (RemoteProtocolError, ServerError):
        return 1
    if not 0 < count <= BATCH_MESSAGES_MAX:
        return 1
    remaining = (1 << count) - 1
    return (remaining & bits_of_words(head.ack_set) if head.ack_set else remaining).bit_count() or 1


def _unpack(source: Source, head: MessageHead, body: bytes) -> Unpacked:
    broker, entry = split_broker_entry(body)
    if broker is None:
        broker = _BROKER_SAYS_NOTHING
    verify_entry(entry)
    metadata = read_metadata(entry)
    _refuse_unknown(metadata)
    payload = split_entry(entry)[1]
    if metadata.HasField("num_messages_in_batch"):
        return _unpack_batch(source, head, metadata, payload, broker)
    if metadata.num_chunks_from_msg > 1 and metadata.HasField("chunk_id"):
        chunk = ReceivedChunk(chunk_info(metadata), payload, head, metadata, broker)
        return Unpacked([], 0, 0, 1, chunk, len(payload))
    if metadata.HasField("marker_type"):
        return Unpacked([], 0, 0, 1)
    plain = _plain(metadata, payload)
    message_id = MessageId(head.ledger, head.entry, head.partition)
    message = _message(source, head, metadata, broker, message_id, None, plain)
    return Unpacked([message], 0, 0, 1, size_bytes=len(plain))


def _unpack_batch(
    source: Source, head: MessageHead, metadata: pb.MessageMetadata, payload: memoryview, broker: BrokerEntry
) -> Unpacked:
    count = metadata.num_messages_in_batch
    if not 0 < count <= BATCH_MESSAGES_MAX:
        raise RemoteProtocolError(f"it states {count} messages")
    remaining = (1 << count) - 1
    if head.ack_set:
        remaining &= bits_of_words(head.ack_set)
    plain = _plain(metadata, payload)
    charged, messages = remaining.bit_count(), []
    for index, each in enumerate(_members(plain, count)):
        if each[0].compacted_out:
            remaining &= ~(1 << index)  # Nobody is shown it, so nobody could acknowledge it.
        elif remaining >> index & 1:
            message_id = MessageId(head.ledger, head.entry, head.partition, index, count)
            messages.append(_message(source, head, metadata, broker, message_id, *each))
    return Unpacked(messages, count, remaining, charged, size_bytes=len(plain))


def _plain(metadata: pb.MessageMetadata, payload: memoryview) -> bytes:
    codec = codec_of(metadata)
    if codec == NONE:
        return payload.tobytes()
    return bytes(decompress(codec, payload, metadata.uncompressed_size, UNCOMPRESSED_BYTES_MAX))


def _refuse_unknown(metadata: pb.MessageMetadata) -> None:
    if metadata.HasField("encryption_algo") or metadata.encryption_keys:
        raise UnsupportedVersionError("it is encrypted", hint="this client has no keys")


def _members(plain: bytes, count: int) -> list[tuple[pb.SingleMessageMetadata, bytes]]:
    """Metadata and payload of each message of a batch. Each has at least its size field, so this ends."""
    members = []
    at, end = 0, len(plain)
    parse = pb.SingleMessageMetadata.FromString
    try:
        for _ in range(count):
            start = at + 4 + _size_from(plain, at)[0]
            if start > end:
                raise RemoteProtocolError("a message of its batch is cut off")
            single = parse(plain[at + 4 : start])
            at = start + single.payload_size
            if single.payload_size < 0 or at > end:
                raise RemoteProtocolError("a message of its batch is cut off")
            members.append((single, plain[start:at]))
    except (DecodeError, struct.error) as error:
        raise RemoteProtocolError(f"its batch cannot be read: {error}") from error
    return members


def _message(
    source: Source,
    head: MessageHead,
    metadata: pb.MessageMetadata,
    broker: BrokerEntry,
    message_id: MessageId,
    single: pb.SingleMessageMetadata | None,
    value: bytes,
) -> Message:
    own, behind = (metadata, 0) if single is None else (single, message_id.batch_size - 1 - message_id.batch_index)
    index = broker.index - behind if broker.index >= 0 else -1
    shown = None if own.null_value else value
    redelivery_count, time_ms = head.redelivery_count, broker.broker_timestamp
    return Message(source, message_id, shown, metadata, single, redelivery_count, index, time_ms)
