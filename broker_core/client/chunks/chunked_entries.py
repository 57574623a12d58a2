# SPDX-License-Identifier: Apache-2.0
"""Messages in chunks among the entries of an exact range: each becomes one entry, so that it can be read as columns.

The rule: a message in chunks belongs to the range that holds its last chunk, and its position is that of its last
chunk. So consecutive ranges have every message once, a range gives the same messages however often it is read, and
nothing has to be known of the entries behind it. Chunks of the message that lie before the range are looked up there,
in steps that grow up to the beginning of the topic; if they are gone, the message is lost, which the caller is told. A
message without a last chunk (its producer died) is no message: what there is of it is passed over in silence.
Owns the assembly over one range. Knows nothing of rows or of the way entries come. Source: semantics 5.1.5, 5.3;
architecture, "In Spark".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from broker_core.base.errors import RemoteProtocolError
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.client.chunks.chunk_assembly import ChunkAssembly, Joined, chunk_info
from broker_core.client.messages.file_value import in_memory
from broker_core.wire.entry import EntryRef, read_metadata, seal_entry, split_entry
from broker_core.wire.proto import pulsar_api_pb2 as pb

ReadEntries: TypeAlias = Callable[[Position, Position], Iterable[Sequence[EntryRef]]]
"""The entries of [start, end) of the same topic."""

LOOK_BACK_ENTRIES: Final = (100, 10_000)
"""Entries before the range among which the first chunk is sought, one try after the other; then the whole topic."""

_CHUNK_FIELDS: Final = ("uuid", "chunk_id", "num_chunks_from_msg", "total_chunk_msg_size")


class ChunkedEntries:
    """The chunks of one range that begins at ``start``."""

    def __init__(self, start: Position, read: ReadEntries, on_lost: Callable[[str], None]) -> None:
        """``on_lost`` hears of messages that end here and cannot be put together any more; it may raise."""
        self._start = start
        self._read = read
        self._on_lost = on_lost
        self._assembly = _new_assembly()
        self._before = _new_assembly()
        self._tries = 0
        self._seen: set[str] = set()
        self._done: set[str] = set()

    @property
    def unfinished_from(self) -> Position | None:
        """First entry of the earliest message of which a chunk was here, and not the last one; None if there is
        none."""
        return min(self._assembly.first_positions, default=None)

    def joined(self, entries: Sequence[EntryRef]) -> list[EntryRef]:
        """``entries``, the next of the range, with one whole entry in the place of each last chunk, and no chunks."""
        whole = []
        for entry in entries:
            metadata = _chunk_metadata(entry)
            if metadata is None:
                whole.append(entry)
                continue
            made = self._take(entry, metadata)
            if made is not None:
                whole.append(_whole_entry(entry, metadata, made))
        return whole

    def _take(self, entry: EntryRef, metadata: pb.MessageMetadata) -> Joined | None:
        info = chunk_info(metadata)
        if info.chunk_id > 0 and info.uuid not in self._seen:
            self._look_back(info.uuid)
        self._seen.add(info.uuid)
        outcome = self._assembly.receive(info, Position(entry.ledger, entry.entry), _part(entry), 0.0, 0)
        if outcome.joined is not None:
            self._done.add(info.uuid)
        elif outcome.orphans and info.chunk_id == info.chunks - 1 and info.uuid not in self._done:
            why = outcome.mismatch or "chunks before it are missing"
            self._on_lost(f"the message of {info.chunks} chunks that ends at {entry.ledger}:{entry.entry}: {why}")
        return outcome.joined

    def _look_back(self, uuid: str) -> None:
        """Take over what lies before the range of a message that was begun there, or complete already."""
        while uuid not in self._before and uuid not in self._done and self._tries <= len(LOOK_BACK_ENTRIES):
            self._before = _new_assembly()
            for entries in self._read(self._look_back_from(self._tries), self._start):
                for entry in entries:
                    metadata = _chunk_metadata(entry)
                    if metadata is not None:
                        position = Position(entry.ledger, entry.entry)
                        outcome = self._before.receive(chunk_info(metadata), position, _part(entry), 0.0, 0)
                        if outcome.joined is not None:
                            self._done.add(metadata.uuid)
            self._tries += 1
        self._assembly.adopt(self._before, uuid)

    def _look_back_from(self, tries: int) -> Position:
        if tries < len(LOOK_BACK_ENTRIES) and self._start.entry > 0:
            return Position(self._start.ledger, max(0, self._start.entry - LOOK_BACK_ENTRIES[tries]))
        return POSITION_EARLIEST


def _new_assembly() -> ChunkAssembly:
    return ChunkAssembly(max_pending=0, expire_s=0.0, auto_ack_oldest=False, orphan_expire_s=0.0)


def _chunk_metadata(entry: EntryRef) -> pb.MessageMetadata | None:
    """The metadata of a chunk; None of any other entry, also of one whose metadata cannot be read: decoding that tells
    what is wrong with it."""
    try:
        metadata = read_metadata(entry.body)
    except RemoteProtocolError:
        return None
    is_chunk = metadata.num_chunks_from_msg > 1 and metadata.HasField("chunk_id")
    return metadata if is_chunk else None


def _part(entry: EntryRef) -> memoryview:
    return split_entry(entry.body)[1]


def _whole_entry(last: EntryRef, metadata: pb.MessageMetadata, joined: Joined) -> EntryRef:
    for name in _CHUNK_FIELDS:
        metadata.ClearField(name)
    return last._replace(body=seal_entry(metadata.SerializeToString(), in_memory(joined.payload)))
