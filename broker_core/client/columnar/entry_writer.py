# SPDX-License-Identifier: Apache-2.0
"""Bulk writing: Arrow record batches in, entries out, over all partitions that a topic has when the writer is made.

Owns routing, encoding and the bookkeeping of which rows are in flight. ``route`` and ``encode`` are heavy and may run
on any one thread; everything else runs on the event loop's. Invariants: rows of one partition are stored in the order
written, whatever led them there, also over reconnects; in-flight bytes stay within the window, which several writers
may share; after the first failure, or a write that was cut off, nothing more is sent.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.base.errors import (
    AlreadyClosedError,
    OperationTimeoutError,
    PulsarishError,
    RowError,
    RowsUnconfirmedError,
)
from broker_core.base.names import TopicName, shown_name
from broker_core.base.positions import Position
from broker_core.client.chunks.chunk_split import check_can_be_chunked, chunk_entries, part_bytes_max
from broker_core.client.connecting.chance import CHANCE
from broker_core.client.connecting.gathered import open_all
from broker_core.client.connecting.network import Network
from broker_core.client.connecting.send_window import SendWindow
from broker_core.client.connecting.waiting import settle
from broker_core.client.producing.producer import topic_schema
from broker_core.client.producing.send_lane import OutgoingEntry, SendLane
from broker_core.client.schemas.auto import AutoProduceSchema
from broker_core.client.settings.config import ProducerConfig, WriterConfig
from broker_core.client.transactions.transaction import AsyncTransaction
from broker_core.wire.batch import (
    UNDECODABLE,
    EncodedEntry,
    columns,
    decode_entries,
    encode_entries,
    key_groups,
    route_rows,
    rows_by_place,
)
from broker_core.wire.compression import codec_of_name
from broker_core.wire.entry import BytesLike, EntryRef, read_metadata, text_of
from broker_core.wire.heads import TxnId
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata

RowNumbers = NDArray[np.int64]

Routed: TypeAlias = list[tuple[int, RowNumbers]]
"""The rows of each partition that gets some, in their order; partitions are numbers from 0, also without any."""

BY_KEY: Final = -1
"""In place of a partition: the key of the row decides, or the turn where it has none."""


class EncodedRows(NamedTuple):
    """An entry, the partition it goes to (a number from 0, also for a topic without), and the rows in it."""

    lane: int
    entry: EncodedEntry
    rows: RowNumbers

    @property
    def size_bytes(self) -> int:
        return len(self.entry.body) + len(self.entry.tail)


class _RowsWithin:
    """The transaction of a writer, and the lanes that take part in it."""

    def __init__(self, network: Network, txn: AsyncTransaction) -> None:
        self.txn = txn
        self.lanes: set[int] = set()
        self._network = network

    async def join(self, topics: dict[int, TopicName]) -> None:
        """Tell the coordinator of lanes and their topics; raises why it refuses."""
        await asyncio.gather(*(self._join(topic) for topic in topics.values()))
        self.lanes.update(topics)

    async def _join(self, topic: TopicName) -> None:
        self.txn.check_open(self._network)
        joined: asyncio.Future[None] = self._network.loop.create_future()

        def registered(failure: PulsarishError | None) -> None:
            settle(joined, failure)

        self.txn.produce(topic, registered)
        await joined


class AsyncEntryWriter:
    """Writes rows to one topic. Made by ``AsyncClient.write_rows``."""

    def __init__(
        self,
        network: Network,
        topic: TopicName,
        partitions: int,
        config: WriterConfig,
        window: SendWindow | None,
        txn: AsyncTransaction | None = None,
    ) -> None:
        self.config = config
        self.topic = topic
        self.window = window or SendWindow(0, config.window_bytes_max)
        self.rows_written = 0
        """Rows given to ``encode`` so far."""
        self.rows_confirmed = 0
        """Rows that the broker has stored."""
        limit_s = config.send_timeout_s
        self.timeout_s = network.config.operation_timeout_s if limit_s is None else limit_s
        self._network = network
        self._codec = codec_of_name(config.compression)
        self._of_lanes = ProducerConfig(
            name=config.name, compression=config.compression, send_timeout_s=self.timeout_s, schema=config.schema
        )
        names = [topic.partition(index) for index in range(partitions)] or [topic]
        self._lanes = [SendLane(network, each, self._of_lanes) for each in names]
        self._next_sequence_ids: dict[int, int] = {}  # of the lanes that are open
        self._within = None if txn is None else _RowsWithin(network, txn)
        self._keyless_turn = CHANCE.randrange(len(names))
        self._torn: set[tuple[int, int]] = set()  # lane and sequence id of messages of which a chunk has failed
        self._failure: PulsarishError | None = None
        self._turns = asyncio.Lock()
        self._closed = False
        self._submitted = 0
        self._unconfirmed: dict[int, EncodedRows] = {}  # by their turn: in flight, or failed

    @classmethod
    async def create(
        cls,
        network: Network,
        topic: TopicName,
        config: WriterConfig,
        window: SendWindow | None = None,
        txn: AsyncTransaction | None = None,
    ) -> AsyncEntryWriter:
        """Find the partitions, and register at every broker concerned unless that is to be lazy.

        ``window``: one that this writer shares with others, instead of its own. ``txn``: a transaction of all rows.
        """
        if txn is not None:
            txn.check_open(network)
        if config.chunking_enabled:
            check_can_be_chunked(topic)
        if isinstance(config.schema, AutoProduceSchema):
            config = msgspec.structs.replace(config, schema=await topic_schema(network, topic))
        partitions = await network.partitions(topic, f"create a writer of {topic}", create=True)
        writer = cls(network, topic, partitions, config, window, txn)
        if not config.lazy_start_partitioned_producers:
            await writer._register(range(writer.partitions))
        return writer

    @property
    def partitions(self) -> int:
        """Partitions to write to: 1 for a topic that has none."""
        return len(self._lanes)

    def closed_lanes(self, routed: Routed) -> list[int]:
        """The partitions among ``routed`` for which ``open_lanes`` has to be called."""
        within = self._within
        return [
            lane
            for lane, _ in routed
            if lane not in self._next_sequence_ids or (within is not None and lane not in within.lanes)
        ]

    async def open_lanes(self, lanes: Sequence[int]) -> None:
        """Have partitions take rows: register at their brokers and, in a transaction, with its coordinator."""
        await self._register(lane for lane in lanes if lane not in self._next_sequence_ids)
        if self._within is not None and lanes:
            await self._within.join({lane: self._lanes[lane].topic for lane in lanes})

    async def _register(self, lanes: Iterable[int]) -> None:
        """Register at the brokers of partitions: at all of them or, with an error, at none."""
        opening = list(lanes)
        try:
            await open_all([self._lanes[lane] for lane in opening])
        except BaseException:
            for lane in opening:  # A lane that was closed does not open again.
                self._lanes[lane] = SendLane(self._network, self._lanes[lane].topic, self._of_lanes)
            raise
        for lane in opening:
            self._next_sequence_ids[lane] = self._lanes[lane].last_sequence_id + 1

    def route(self, rows: pa.RecordBatch, partitions: NDArray[np.int64] | None = None) -> Routed:
        """Which of ``rows`` go where. ``partitions``: that of each row, or BY_KEY; None: all by key."""
        if partitions is None:
            found = self._route_by_key(rows)
        else:
            by_key = np.flatnonzero(partitions == BY_KEY)
            lanes = partitions.copy()
            if len(by_key):
                for lane, numbers in enumerate(self._route_by_key(rows.take(columns.numbers(by_key)))):
                    lanes[by_key[numbers]] = lane
            found = rows_by_place(lanes, len(self._lanes))
        return [(lane, numbers) for lane, numbers in enumerate(found) if len(numbers)]

    def encode(self, rows: pa.RecordBatch, routed: Routed) -> list[EncodedRows]:
        """The entries that carry ``rows``, those of each partition in their order. All of them are to be submitted.

        Columns: ``wire.batch.encode_entries`` has them. ``routed``: where ``route`` sends them, whose lanes are open.
        UsageError for what cannot be sent, RowError for a row that cannot, by its number in ``rows``; nothing of
        ``rows`` counts as written then.
        """
        self.check()
        encoded: list[EncodedRows] = []
        sequence_ids = dict(self._next_sequence_ids)
        for lane, numbers in routed:
            try:
                mine = self._encode_part(rows, numbers, lane)
            except RowError as error:
                raise RowError(int(numbers[error.row]), error.flaw, hint=error.hint) from error
            sequence_ids[lane] = mine[-1].entry.highest_sequence_id + 1
            encoded += mine
        self._next_sequence_ids = sequence_ids
        self.rows_written += rows.num_rows
        if self.config.message_routing_mode == "round_robin":
            self._keyless_turn += 1
        return encoded

    def submit(self, encoded: EncodedRows) -> None:
        """Send an entry for which room was taken in the window; after a failure it is dropped instead."""
        size, entry, within = encoded.size_bytes, encoded.entry, self._within
        if self._failure is not None or self._closed:
            self.window.give_back(1, size)
            return
        if within is not None:
            within.txn.begun()
        self._submitted += 1
        turn = self._submitted
        self._unconfirmed[turn] = encoded

        def done(position: Position | None, failure: PulsarishError | None) -> None:
            self.window.give_back(1, size)
            message = (encoded.lane, entry.sequence_id)
            if within is not None:
                within.txn.done(failure)
            if failure is not None:
                self._failure = self._failure or failure
                if entry.chunks_behind >= 0:
                    self._torn.add(message)
                return
            del self._unconfirmed[turn]
            if entry.chunks_behind <= 0 and message not in self._torn:
                self.rows_confirmed += len(encoded.rows)

        highest = entry.highest_sequence_id if entry.messages > 1 else -1
        is_chunk = entry.chunks_behind >= 0
        self._lanes[encoded.lane].submit(
            OutgoingEntry(
                entry.body, entry.messages, entry.sequence_id, highest, done, entry.tail, is_chunk, self._txn_id
            )
        )

    async def write(self, rows: pa.RecordBatch) -> None:
        """Send ``rows``; returns as soon as they fit in the window. Raises RowsUnconfirmedError after a failure.

        Several at once are done one after the other, in the order of the calls. One that is cancelled is a failure.
        """
        async with self._turns:
            routed = await asyncio.to_thread(self.route, rows)
            await self.open_lanes(self.closed_lanes(routed))
            try:
                for each in await asyncio.to_thread(self.encode, rows, routed):
                    await self._reserve(each.size_bytes)
                    self.submit(each)
            except asyncio.CancelledError as cause:
                self.cut_off(cause)
                raise

    def cut_off(self, cause: BaseException) -> None:
        """Rows that were encoded will never be submitted: nothing may follow them, and ``flush`` tells of them."""
        if not isinstance(cause, PulsarishError):
            cause = PulsarishError(f"a write was cut off ({type(cause).__name__})")
        self._failure = self._failure or cause
        if self._within is not None:
            self._within.txn.fail(self._failure)

    async def flush(self) -> None:
        """Return when every row is stored; RowsUnconfirmedError says which may not be."""
        await asyncio.gather(*(lane.drained() for lane in self._lanes))
        self.check()

    async def close(self) -> None:
        """Flush, then leave the brokers; raises what ``flush`` would. Harmless if closed."""
        if self._closed:
            return
        try:
            await self.flush()
        finally:
            self._closed = True
            await self._network.to_the_end(self._leave())
        if self._failure is not None:
            self.check()  # Rows that came meanwhile.

    def check(self) -> None:
        """Raise what went wrong, if anything did. What is in flight then may or may not be stored."""
        if self._failure is not None:
            unconfirmed = list(self._unconfirmed.values())
            rows = [each.rows for each in unconfirmed]
            unknown = np.unique(np.concatenate(rows)) if rows else np.zeros(0, np.int64)
            key = first_key(unconfirmed[0].entry) if unconfirmed else None
            named = "" if key is None else f", the first of them the row with the key {shown_name(key)}"
            raise RowsUnconfirmedError(
                f"writing to {self.topic} failed: {self._failure.message}; of {self.rows_written} rows "
                f"{self.rows_confirmed} are stored, {len(unknown)} may or may not be{named}, the others are not",
                hint=self._failure.hint,
                unknown_rows=tuple(unknown.tolist()),
            ) from self._failure
        if self._closed:
            raise AlreadyClosedError(f"the writer of {self.topic} is closed")

    def no_room(self) -> OperationTimeoutError:
        """The error when no receipt comes for so long that nothing more can be sent."""
        return OperationTimeoutError(
            f"the writer of {self.topic} found no room in its window for {self.timeout_s:g} s, and sends nothing more"
        )

    @property
    def _txn_id(self) -> TxnId | None:
        return None if self._within is None else self._within.txn.id

    async def _reserve(self, size: int) -> None:
        while not self.window.try_take(size):
            await self._network.woken(self.window.wake_later)
        if self._failure is not None or self._closed:
            self.window.give_back(1, size)
            await self.flush()

    def _route_by_key(self, rows: pa.RecordBatch) -> list[RowNumbers]:
        count = rows.num_rows
        if len(self._lanes) == 1:
            return [np.arange(count)]
        routed = route_rows(
            rows,
            len(self._lanes),
            keyless_first=self._keyless_turn,
            keyless_spread=self.config.message_routing_mode == "round_robin",
            scheme=self.config.hashing_scheme,
        )
        return [columns.values_of(part) for part in routed]

    def _encode_part(self, rows: pa.RecordBatch, numbers: RowNumbers, lane: int) -> list[EncodedRows]:
        """The entries of one partition, which gets the rows ``numbers``; RowError counts among these."""
        part = rows if len(numbers) == rows.num_rows else rows.take(columns.numbers(numbers))
        order, borders = key_groups(part) if self.config.batching_type == "key_based" else (None, None)
        if order is not None:
            part = part.take(columns.numbers(order))
        try:
            entries = self._encode_in_order(part, lane, borders)
        except RowError as error:
            row = error.row if order is None else int(order[error.row])
            raise RowError(row, error.flaw, hint=error.hint) from error
        placed = (numbers if order is None else numbers[order]) + self.rows_written
        found, at = [], 0
        for entry in entries:
            found.append(EncodedRows(lane, entry, placed[at : at + entry.messages]))
            if entry.chunks_behind <= 0:
                at += entry.messages
        return found

    def _encode_in_order(self, rows: pa.RecordBatch, lane: int, borders: RowNumbers | None) -> list[EncodedEntry]:
        config, of_broker = self.config, self._lanes[lane]
        chunk_bytes_max = config.chunk_max_message_size if config.chunking_enabled else 0

        def cut(metadata: MessageMetadata, payload: BytesLike) -> Sequence[tuple[bytes, BytesLike]]:
            limit = part_bytes_max(metadata, len(payload), of_broker.max_message_size, chunk_bytes_max)
            return chunk_entries(metadata, payload, limit) if len(payload) > limit else ()

        return encode_entries(
            rows,
            producer_name=of_broker.name,
            first_sequence_id=self._next_sequence_ids[lane],
            publish_time_ms=self._network.clock.now_ms(),
            compression=self._codec,
            messages_max=config.batching_max_messages,
            bytes_max=min(config.batching_max_bytes, chunk_bytes_max if chunk_bytes_max > 0 else sys.maxsize),
            message_bytes_max=of_broker.max_message_size,
            borders=borders,
            cut=cut if config.chunking_enabled else None,
            transaction=self._txn_id,
            schema_version=of_broker.schema_version,
        )

    async def _leave(self) -> None:
        self._network.open.discard(self)
        await asyncio.gather(*(lane.close() for lane in self._lanes))


def first_key(entry: EncodedEntry) -> str | bytes | None:
    """The key of the first row in an entry, or chunk of one, that is sent from here; None if the row has none. The key
    is read back from the entry: rows are not kept for it."""
    body = bytes(entry.body) + bytes(entry.tail)
    if entry.chunks_behind >= 0:
        metadata = read_metadata(body)
        return text_of(metadata.partition_key) if metadata.HasField("partition_key") else None
    try:
        key: bytes | None = decode_entries([EntryRef(0, 0, body)], {"key"}).column("key")[0].as_py()
    except UNDECODABLE:  # A copy of an entry that nobody here can decode.
        return None
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return key
