# SPDX-License-Identifier: Apache-2.0
"""Cutting one large message into chunks, the entries that carry its parts. Pure, but for reading a file.

Owns how large a chunk may be and what its metadata says; knows nothing of connections or receipts, and does not
compress (that comes before). Invariants: the parts joined are the payload; every chunk but the last is as large as
allowed; metadata and part together stay within the broker's message size; a payload in memory is never copied, only
looked at; parts of a file are read when they are sent, so that few of them are in memory.
Source: PIP-37, PIP-131; Pulsar docs, "Messages - Chunking"; semantics 5.1.2, 5.1.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from broker_core.base.errors import ConfigError, UsageError
from broker_core.base.limits import METADATA_BYTES_MAX
from broker_core.base.names import TopicName
from broker_core.client.messages.file_value import FileValue
from broker_core.wire.entry import BytesLike, entry_head, entry_head_bytes
from broker_core.wire.proto import pulsar_api_pb2 as pb

CHUNKED_BYTES_MAX: Final = 2**31 - 1
"""The sizes of a chunked message travel in signed fields of 32 bits."""


class ChunkEntry(NamedTuple):
    """A chunk to be sent: the head before its part, and a view of the part."""

    head: bytes
    part: memoryview


def check_can_be_chunked(topic: TopicName) -> None:
    """ConfigError for a topic that stores nothing: its brokers would lose single chunks."""
    if not topic.persistent:
        raise ConfigError(
            f"chunking_enabled is not possible on {topic}: its messages are not stored", hint="use a persistent topic"
        )


def chunk_count(size_bytes: int, limit_bytes: int) -> int:
    """Number of parts of at most ``limit_bytes`` of a payload; 1 for an empty one."""
    return max(1, -(-size_bytes // limit_bytes))


def split(payload: BytesLike, limit_bytes: int) -> list[memoryview]:
    """Views of the parts of ``payload``, in order, each of ``limit_bytes`` except perhaps the last."""
    view = memoryview(payload)
    return [view[at : at + limit_bytes] for at in range(0, len(view), limit_bytes)] or [view]


def part_bytes_max(metadata: pb.MessageMetadata, size_bytes: int, message_bytes_max: int, chunk_bytes_max: int) -> int:
    """The largest part: ``message_bytes_max`` less the metadata of a chunk, or ``chunk_bytes_max`` (0: unlimited).

    Raises UsageError if the metadata alone leaves no room, or if the message is larger than chunks can tell.
    """
    if size_bytes > CHUNKED_BYTES_MAX:
        raise UsageError(
            f"a message of {size_bytes} bytes is larger than {CHUNKED_BYTES_MAX}, the most that chunks can carry",
            hint="store it elsewhere and send where it is",
        )
    # No chunk has a higher number than this, so that no chunk's metadata is larger.
    widest = numbered(metadata, size_bytes, size_bytes + 1, size_bytes)
    limit = message_bytes_max - widest.ByteSize()
    if limit <= 0 or widest.ByteSize() > METADATA_BYTES_MAX:
        raise UsageError(
            f"the properties and keys of a message take {widest.ByteSize()} bytes beside its value, "
            "and the broker has no room for that",
            hint="put them into the value",
        )
    return min(limit, chunk_bytes_max) if chunk_bytes_max > 0 else limit


def chunk_entries(metadata: pb.MessageMetadata, payload: BytesLike, limit_bytes: int) -> list[ChunkEntry]:
    """The chunks of ``payload``, each with the fields of ``metadata`` and its own number."""
    parts = split(payload, limit_bytes)
    entries = []
    for number, part in enumerate(parts):
        chunk = numbered(metadata, number, len(parts), len(payload))
        entries.append(ChunkEntry(entry_head(chunk.SerializeToString(), part), part))
    return entries


def numbered(metadata: pb.MessageMetadata, chunk_id: int, chunks: int, total_bytes: int) -> pb.MessageMetadata:
    """The metadata of one chunk."""
    chunk = pb.MessageMetadata()
    chunk.CopyFrom(metadata)
    chunk.uuid = f"{metadata.producer_name}-{metadata.sequence_id}"
    chunk.chunk_id = chunk_id
    chunk.num_chunks_from_msg = min(chunks, CHUNKED_BYTES_MAX)
    chunk.total_chunk_msg_size = total_bytes
    return chunk


class FileChunk:
    """The entry of one part of a file. Its length is that of the entry."""

    __slots__ = ("_end", "_file", "_metadata", "_start")

    def __init__(self, metadata: bytes, file: FileValue, start: int, end: int) -> None:
        self._metadata = metadata
        self._file = file
        self._start = start
        self._end = end

    def __len__(self) -> int:
        return entry_head_bytes(self._metadata) + self._end - self._start

    def read(self) -> ChunkEntry:
        """The entry; UsageError if the file cannot be read, or was changed."""
        part = self._file.part(self._start, self._end)
        return ChunkEntry(entry_head(self._metadata, part), memoryview(part))


def file_chunks(metadata: pb.MessageMetadata, file: FileValue, limit_bytes: int) -> Iterator[FileChunk]:
    """The chunks of ``file``, each with the fields of ``metadata`` and its own number; one that fits has none."""
    size = len(file)
    if size <= limit_bytes:
        yield FileChunk(metadata.SerializeToString(), file, 0, size)
        return
    starts = range(0, size, limit_bytes)
    for number, start in enumerate(starts):
        chunk = numbered(metadata, number, len(starts), size)
        yield FileChunk(chunk.SerializeToString(), file, start, min(start + limit_bytes, size))
