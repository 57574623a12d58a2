# SPDX-License-Identifier: Apache-2.0
"""``Entry``: what a random history knows of one stored entry, and the bytes that a client would send for it."""

from __future__ import annotations

from typing import NamedTuple

from broker_core.storage.ledger import StoredEntry
from broker_core.wire.entry import read_metadata, seal_entry
from broker_core.wire.entry_peek import ChunkPlace
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata


class Entry(NamedTuple):
    """``due_ms``: not to be delivered before, 0 if it is not delayed. ``producer`` and ``sequence_id`` are the sender's
    to fill in. ``stored_ms``: the broker's time, 0 before the entry is stored."""

    messages: int = 1
    key: str = "a"
    due_ms: int = 0
    published_ms: int = 1
    chunk: ChunkPlace | None = None
    producer: str = ""
    sequence_id: int = 0
    stored_ms: int = 0

    @property
    def highest_sequence_id(self) -> int:
        """As a client states it: -1 unless this is a batch."""
        return self.sequence_id + self.messages - 1 if self.messages > 1 else -1

    def body(self) -> bytes:
        metadata = MessageMetadata(
            producer_name=self.producer,
            sequence_id=self.sequence_id,
            publish_time=self.published_ms,
            partition_key=self.key,
        )
        if self.messages > 1:
            metadata.num_messages_in_batch = self.messages
            metadata.highest_sequence_id = self.highest_sequence_id
        if self.due_ms:
            metadata.deliver_at_time = self.due_ms
        if self.chunk is not None:
            metadata.uuid, metadata.chunk_id, metadata.num_chunks_from_msg = self.chunk
        return seal_entry(metadata.SerializeToString(), b"x")

    @classmethod
    def of(cls, stored: StoredEntry) -> Entry:
        """Back from the log."""
        metadata = read_metadata(stored.body)
        chunk = None
        if metadata.HasField("uuid"):
            chunk = ChunkPlace(metadata.uuid, metadata.chunk_id, metadata.num_chunks_from_msg)
        return cls(
            stored.messages,
            metadata.partition_key,
            metadata.deliver_at_time,
            metadata.publish_time,
            chunk,
            metadata.producer_name,
            metadata.sequence_id,
            stored.broker_timestamp,
        )
