# SPDX-License-Identifier: Apache-2.0
"""Putting the chunks of large messages together again. Pure, but for ``PartsInFile``: time is given, acks and permits
are the owner's.

One object serves one consumer of one topic or partition. It keeps a context for each message of which a part has
arrived, oldest first, at most ``max_pending`` of them, and says of every chunk what becomes of it (``Outcome``). It
never looks at acknowledgements or redelivery counts. Invariants (I5.2 to I5.5): a payload is handed out only when all
its chunks came in order and their sizes add up; no part that exceeds the stated total is kept; every position that is
given up appears in exactly one ``Outcome`` or ``expire``.
Source: PIP-37; Pulsar docs, "Messages - Chunking"; semantics 5.3.
"""

from __future__ import annotations

import logging
import os
import tempfile
import weakref
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from broker_core.base.errors import PulsarishError, RemoteProtocolError
from broker_core.base.positions import ChunkMessageId, MessageId, Position
from broker_core.client.chunks.chunk_split import CHUNKED_BYTES_MAX
from broker_core.client.messages.file_value import FileValue
from broker_core.client.messages.message import Message, Source
from broker_core.wire.compression import NONE, decompress
from broker_core.wire.entry import BrokerEntry, BytesLike
from broker_core.wire.heads import MessageHead
from broker_core.wire.proto import pulsar_api_pb2 as pb

logger = logging.getLogger(__name__)


class ChunkInfo(NamedTuple):
    """Metadata of a chunk: which of how many, of which message, and how large that is in all."""

    uuid: str
    chunk_id: int
    chunks: int
    total_bytes: int
    publish_time_ms: int
    codec: int = NONE
    """Compression of the whole message."""


def chunk_info(metadata: pb.MessageMetadata) -> ChunkInfo:
    """The ``ChunkInfo`` of a chunk's metadata."""
    return ChunkInfo(
        metadata.uuid,
        metadata.chunk_id,
        metadata.num_chunks_from_msg,
        metadata.total_chunk_msg_size,
        metadata.publish_time,
        metadata.compression,
    )


class Joined(NamedTuple):
    """A complete message: its payload as it travelled (compressed perhaps), and the entries of all its chunks."""

    payload: bytes | FileValue
    positions: tuple[Position, ...]


class Outcome(NamedTuple):
    """The consequence of one chunk. ``mismatch``: how the sizes of a complete message contradict each other, if so."""

    joined: Joined | None = None
    acks: tuple[Position, ...] = ()
    """Entries of no use to anybody, to be acknowledged."""
    awaits: tuple[Position, ...] = ()
    """Entries that had to make room for others: delivered again, they may still become a message."""
    orphans: tuple[Position, ...] = ()
    """Chunks whose earlier ones are not here. Unless those come again before these expire, acknowledge these then."""
    mismatch: str = ""


NOTHING: Final = Outcome()

DROPPED_MAX: Final = 1000
"""Messages that had to make room and are remembered, to know the rest of their chunks from orphans."""

_ROOMY: Final = Path("/var/tmp")  # noqa: S108 - only files without a name are made there


class PartsInMemory:
    """Parts as they came."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[BytesLike] = []

    def append(self, part: BytesLike) -> None:
        self._parts.append(part)

    def joined(self) -> bytes:
        return b"".join(self._parts)


class PartsInFile:
    """Parts in a temporary file, except those after the first that found no room: no part is lost for that.

    The file has no name and is gone with the last that uses it. It is in ``TMPDIR``, or else in ``/var/tmp``, which is
    made for large files where ``/tmp`` may be memory.
    """

    def __init__(self) -> None:
        self._file = -1
        self._closing: weakref.finalize[..., PartsInFile] | None = None
        self._size_bytes = 0
        self._rest: list[BytesLike] = []

    def append(self, part: BytesLike) -> None:
        if self._rest:
            self._rest.append(part)
            return
        try:
            if self._closing is None:
                self._file = _unnamed_file()
                self._closing = weakref.finalize(self, os.close, self._file)
            left = memoryview(part)
            while left:
                left = left[os.pwrite(self._file, left, self._size_bytes + len(part) - len(left)) :]
            self._size_bytes += len(part)
        except OSError as error:
            logger.warning(
                "consumer value in memory reason=%r advice=%r", error.strerror, "set TMPDIR to where room is"
            )
            self._rest.append(part)

    def joined(self) -> bytes | FileValue:
        if self._closing is None:
            return b"".join(self._rest)
        self._closing.detach()
        value = FileValue(self._file)
        return b"".join((value.part(0, self._size_bytes), *self._rest)) if self._rest else value


Parts: TypeAlias = PartsInMemory | PartsInFile
"""The parts of one value, in order; ``joined``, called once at the end, is the value."""


def _unnamed_file() -> int:
    directory = _ROOMY if "TMPDIR" not in os.environ and os.access(_ROOMY, os.W_OK) else None
    with tempfile.TemporaryFile(dir=directory) as file:
        return os.dup(file.fileno())


class _Context:
    """An incomplete message."""

    __slots__ = ("last_chunk", "parts", "positions", "received_s", "size_bytes")

    def __init__(self, position: Position, parts: Parts, part: BytesLike, now_s: float) -> None:
        self.positions = [position]
        self.parts = parts
        parts.append(part)
        self.size_bytes = len(part)
        self.last_chunk = 0
        self.received_s = now_s


class ChunkAssembly:
    """The messages of one partition that are not complete."""

    def __init__(
        self,
        *,
        max_pending: int,
        expire_s: float,
        auto_ack_oldest: bool,
        orphan_expire_s: float,
        new_parts: Callable[[ChunkInfo], Parts] = lambda info: PartsInMemory(),
    ) -> None:
        """``max_pending`` 0: any number of messages; ``expire_s`` 0: incomplete ones are kept for ever.

        ``orphan_expire_s``: a chunk that continues nothing is of use until so long after it was published; 0: for ever.
        ``new_parts``: where the parts of a message are kept.
        """
        self.buffered_bytes = 0
        """Sum of the parts that are kept."""
        self._max_pending = max_pending
        self._expire_s = expire_s
        self._orphan_expire_ms = orphan_expire_s * 1000
        self._new_parts = new_parts
        self._auto_ack_oldest = auto_ack_oldest
        self._contexts: OrderedDict[str, _Context] = OrderedDict()
        self._dropped: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._contexts)

    def __contains__(self, uuid: object) -> bool:
        """Whether the message has begun and is not complete."""
        return uuid in self._contexts

    @property
    def oldest_received_s(self) -> float | None:
        """The time of the first chunk of the oldest incomplete message; None if there is none."""
        return next((context.received_s for context in self._contexts.values()), None)

    @property
    def first_positions(self) -> list[Position]:
        """First chunks of the incomplete messages."""
        return [context.positions[0] for context in self._contexts.values()]

    @property
    def positions(self) -> list[Position]:
        """All chunks of the incomplete messages."""
        return [position for context in self._contexts.values() for position in context.positions]

    def receive(self, info: ChunkInfo, position: Position, part: BytesLike, now_s: float, now_ms: int) -> Outcome:
        """Take one chunk. ``now_s``: monotonic time, ``now_ms``: the wall clock, to be held against publish times."""
        if info.chunk_id == 0 and info.chunks > 1:
            return self._begin(info, position, part, now_s)
        context = self._contexts.get(info.uuid)
        if context is not None and 0 <= info.chunk_id <= context.last_chunk:
            # The same entry once more is a redelivery; another one was sent twice and is not needed (5.3.3).
            return NOTHING if position in context.positions else Outcome(acks=(position,))
        if context is None or info.chunk_id != context.last_chunk + 1 or info.chunk_id >= info.chunks:
            return self._stray(info, position, now_ms)
        return self._append(context, info, position, part)

    def expire(self, now_s: float) -> list[tuple[Position, ...]]:
        """Forget what is incomplete for too long; returns the entries of each message (5.3.7)."""
        given_up: list[tuple[Position, ...]] = []
        while self._expire_s:
            oldest = next(iter(self._contexts), None)
            if oldest is None or self._contexts[oldest].received_s + self._expire_s > now_s:
                break
            given_up.append(self._forget(oldest))
        return given_up

    def postpone(self, now_s: float) -> None:
        """Incomplete messages do not age for the time until now."""
        for context in self._contexts.values():
            context.received_s = now_s

    def adopt(self, other: ChunkAssembly, uuid: str) -> None:
        """Take an incomplete message over from ``other``, if it has it."""
        context = other._contexts.get(uuid)
        if context is not None:
            other._forget(uuid)
            self._contexts[uuid] = context
            self.buffered_bytes += context.size_bytes

    def clear(self) -> None:
        """Forget all: everything comes again from the first unacknowledged entry (5.3.9)."""
        self._contexts.clear()
        self._dropped.clear()
        self.buffered_bytes = 0

    def _begin(self, info: ChunkInfo, position: Position, part: BytesLike, now_s: float) -> Outcome:
        acks: list[Position] = []
        awaits: list[Position] = []
        earlier = self._contexts.get(info.uuid)
        if earlier is not None:
            begun = self._forget(info.uuid)
            if position not in begun:
                acks += begun  # Sent again from its start: what came before cannot be continued (5.3.2).
        self._dropped.pop(info.uuid, None)
        if len(part) > info.total_bytes:
            return Outcome(acks=tuple(acks), orphans=(position,), mismatch=_too_much(info, len(part)))
        self._contexts[info.uuid] = _Context(position, self._new_parts(info), part, now_s)
        self.buffered_bytes += len(part)
        if 0 < self._max_pending < len(self._contexts):
            oldest = next(iter(self._contexts))
            if not self._auto_ack_oldest:
                self._remember_dropped(oldest)
            (acks if self._auto_ack_oldest else awaits).extend(self._forget(oldest))
        return Outcome(acks=tuple(acks), awaits=tuple(awaits))

    def _append(self, context: _Context, info: ChunkInfo, position: Position, part: BytesLike) -> Outcome:
        context.positions.append(position)
        context.parts.append(part)
        context.size_bytes += len(part)
        self.buffered_bytes += len(part)
        context.last_chunk = info.chunk_id
        if context.size_bytes > info.total_bytes:
            return Outcome(orphans=self._forget(info.uuid), mismatch=_too_much(info, context.size_bytes))
        if info.chunk_id < info.chunks - 1:
            return NOTHING
        parts, size_bytes = context.parts, context.size_bytes
        positions = self._forget(info.uuid)
        if size_bytes != info.total_bytes:
            return Outcome(orphans=positions, mismatch=f"its chunks hold {size_bytes} of {info.total_bytes} bytes")
        return Outcome(joined=Joined(parts.joined(), positions))

    def _stray(self, info: ChunkInfo, position: Position, now_ms: int) -> Outcome:
        """A chunk that continues nothing: its message cannot be completed from here on (5.3.3)."""
        lost = (*self._forget(info.uuid), position)
        if info.uuid in self._dropped:
            return Outcome(awaits=lost)  # However old it is: its beginning comes again.
        if self._orphan_expire_ms and now_ms > info.publish_time_ms + self._orphan_expire_ms:
            return Outcome(acks=lost)
        return Outcome(orphans=lost)

    def _remember_dropped(self, uuid: str) -> None:
        self._dropped[uuid] = None
        if len(self._dropped) > DROPPED_MAX:
            self._dropped.popitem(last=False)

    def _forget(self, uuid: str) -> tuple[Position, ...]:
        context = self._contexts.pop(uuid, None)
        if context is None:
            return ()
        self.buffered_bytes -= context.size_bytes
        return tuple(context.positions)


def _too_much(info: ChunkInfo, size_bytes: int) -> str:
    return f"its first {info.chunk_id + 1} chunks hold {size_bytes} bytes, but it states {info.total_bytes} in all"


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
