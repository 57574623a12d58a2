# SPDX-License-Identifier: Apache-2.0
"""Cutting the content of a file into chunks that are read when they are sent, so that few of them are in memory.

As ``chunk_split``, whose rules of sizes and numbers hold here too; only the parts come later. Source: PIP-37.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker_core.client.chunks.chunk_split import ChunkEntry, numbered
from broker_core.client.messages.file_value import FileValue
from broker_core.wire.entry import entry_head, entry_head_bytes
from broker_core.wire.proto import pulsar_api_pb2 as pb


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
