# SPDX-License-Identifier: Apache-2.0
"""One chunk as it was delivered, and the message that comes of all chunks together. Pure.

Source: semantics 5.1.5, 5.3.
"""

from __future__ import annotations

from typing import NamedTuple

from broker_core.base.errors import PulsarishError, RemoteProtocolError
from broker_core.base.positions import ChunkMessageId, MessageId, Position
from broker_core.client.chunks.chunk_assembly import ChunkInfo, Joined
from broker_core.client.chunks.chunk_split import CHUNKED_BYTES_MAX
from broker_core.client.messages.file_value import FileValue
from broker_core.client.messages.message import Message, Source
from broker_core.wire.compression import decompress
from broker_core.wire.entry import BrokerEntry
from broker_core.wire.heads import MessageHead
from broker_core.wire.proto import pulsar_api_pb2 as pb


class ReceivedChunk(NamedTuple):
    """A part of a large message, as it was delivered."""

    info: ChunkInfo
    part: memoryview
    head: MessageHead
    metadata: pb.MessageMetadata
    broker: BrokerEntry

    @property
    def position(self) -> Position:
        return Position(self.head.ledger, self.head.entry)


def chunked_message(source: Source, last: ReceivedChunk, joined: Joined) -> Message:
    """The message of which all chunks are here; it counts as delivered with its last chunk.

    Raises RemoteProtocolError if its payload is damaged; the text names the entry.
    """
    head, metadata = last.head, last.metadata
    first = joined.positions[0]
    value = joined.payload
    try:
        if not isinstance(value, FileValue):
            value = bytes(decompress(metadata.compression, value, metadata.uncompressed_size, CHUNKED_BYTES_MAX))
    except RemoteProtocolError as failure:
        raise naming_entry(last.position, failure) from failure
    return Message(
        source,
        ChunkMessageId.of(
            MessageId(first.ledger, first.entry, head.partition),
            MessageId(head.ledger, head.entry, head.partition),
            joined.positions,
        ),
        value,
        metadata,
        None,
        head.redelivery_count,
        last.broker.index,
        last.broker.broker_timestamp,
    )


def naming_entry(position: Position, failure: PulsarishError) -> PulsarishError:
    """``failure``, naming the entry that it is about."""
    return type(failure)(f"entry {position}: {failure.message}", hint=failure.hint)
