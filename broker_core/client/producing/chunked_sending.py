# SPDX-License-Identifier: Apache-2.0
"""Sending messages that are larger than an entry may be, as chunks, for one partition of a producer.

Owns the decision whether a message is chunked, and the receipts of its chunks: the application hears once, of the last
one. Knows nothing of connections; order and resending are the lane's. All chunks of a message are submitted in one
go, so no message of the same producer comes between them; none is submitted if the message cannot be sent.
The content of a file that is not compressed is read when its chunks are sent; else the whole value is in memory.
Invariants: the whole payload is compressed before it is cut; all chunks bear the sequence id of the message; one place
in the window for each chunk. Source: PIP-37, PIP-131; semantics 5.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker_core.base.errors import PulsarishError, QueueFullError
from broker_core.base.positions import ChunkMessageId, MessageId, Position
from broker_core.client.chunks.chunk_split import FileChunk, chunk_count, chunk_entries, file_chunks, part_bytes_max
from broker_core.client.connecting.send_window import SendWindow
from broker_core.client.messages.file_value import FileValue
from broker_core.client.messages.outgoing import OnSent, OutgoingMessage
from broker_core.client.producing.batching import EntryEncoder
from broker_core.client.producing.send_lane import OutgoingEntry, SendLane
from broker_core.wire.entry import BytesLike, entry_head
from broker_core.wire.heads import TxnId
from broker_core.wire.proto import pulsar_api_pb2 as pb

_DUPLICATE: Final = -1
"""The ledger id in the receipt of a message that the broker had stored before."""


class ChunkedSending:
    """The large messages of one lane. ``chunk_bytes_max`` 0: as large as the broker takes."""

    def __init__(
        self,
        lane: SendLane,
        encoder: EntryEncoder,
        window: SendWindow,
        partition: int,
        *,
        chunk_bytes_max: int,
        may_overdraw: bool,
    ) -> None:
        """``may_overdraw``: a message may take more places in the window than are free, instead of being refused."""
        self._lane = lane
        self._encoder = encoder
        self._window = window
        self._partition = partition
        self._chunk_bytes_max = chunk_bytes_max
        self._may_overdraw = may_overdraw

    def is_large(self, message: OutgoingMessage) -> bool:
        """Whether ``message`` has to be looked at here; if not, it surely fits into one entry, and is in memory."""
        size = len(message.value or b"")
        return (
            isinstance(message.value, FileValue)
            or size > self._lane.max_message_size // 2
            or size > self._chunk_bytes_max > 0
        )

    def send(
        self,
        message: OutgoingMessage,
        sequence_id: int,
        publish_time_ms: int,
        done: OnSent,
        transaction: TxnId | None = None,
    ) -> None:
        """Send ``message``, for which one place in the window is taken; ``done`` is called once.

        Raises UsageError if it cannot be sent at all, QueueFullError if there is no room for all of its chunks;
        nothing of it is sent then.
        """
        metadata = self._encoder.metadata_of(message, sequence_id, publish_time_ms, transaction)
        payload: BytesLike | FileValue
        if isinstance(message.value, FileValue) and not self._encoder.compresses:
            payload = message.value
        else:
            payload = self._encoder.packed(metadata, message.payload)
        limit = part_bytes_max(metadata, len(payload), self._lane.max_message_size, self._chunk_bytes_max)
        chunks = chunk_count(len(payload), limit)
        if chunks > 1 and not self._window.try_take_more(chunks - 1, overdraw=self._may_overdraw):
            raise QueueFullError(
                f"a message of {len(payload)} bytes needs {chunks} places in the queue of the producer of "
                f"{self._lane.topic}, and so many are not free",
                hint="wait for receipts, set block_if_queue_full, or raise max_pending_messages",
            )
        receipts = _Receipts(chunks, self._partition, self._returning(chunks - 1, done))
        for body, tail in _entries(metadata, payload, limit):
            self._lane.submit(OutgoingEntry(body, 1, sequence_id, -1, receipts.take, tail, chunks > 1, transaction))

    def _returning(self, places: int, done: OnSent) -> OnSent:
        if not places:
            return done

        def give_back(message_id: MessageId | None, failure: PulsarishError | None) -> None:
            self._window.give_back(places, 0)
            done(message_id, failure)

        return give_back


def _entries(
    metadata: pb.MessageMetadata, payload: BytesLike | FileValue, limit: int
) -> Iterable[tuple[bytes | FileChunk, BytesLike]]:
    """Body and tail of each entry that carries a part of ``payload``, or all of it."""
    if isinstance(payload, FileValue):
        return ((chunk, b"") for chunk in file_chunks(metadata, payload, limit))
    if len(payload) <= limit:
        return [(entry_head(metadata.SerializeToString(), payload), payload)]
    return chunk_entries(metadata, payload, limit)


class _Receipts:
    """Collects the receipts of one message; they come in the order of its chunks."""

    __slots__ = ("_chunks", "_done", "_failure", "_partition", "_positions")

    def __init__(self, chunks: int, partition: int, done: OnSent) -> None:
        self._chunks = chunks
        self._partition = partition
        self._done = done
        self._positions: list[Position] = []
        self._failure: PulsarishError | None = None

    def take(self, position: Position | None, failure: PulsarishError | None) -> None:
        """The fate of the next chunk. One that failed fails the message; what is stored of it then stays unused."""
        self._chunks -= 1
        if position is None:
            self._failure = self._failure or failure
        else:
            self._positions.append(position)
        if self._chunks:
            return
        if self._failure is not None:
            self._done(None, self._failure)
        else:
            self._done(self._message_id(), None)

    def _message_id(self) -> MessageId:
        ends = self._positions[0], self._positions[-1]
        first, last = (MessageId(each.ledger, each.entry, self._partition) for each in ends)
        if len(self._positions) == 1 or last.ledger == _DUPLICATE:
            return last
        return ChunkMessageId.of(first, last, tuple(self._positions))
