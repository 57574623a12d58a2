# SPDX-License-Identifier: Apache-2.0
"""Bulk writing: Arrow record batches in, entries out, over all partitions that a topic has when the writer is made.

Owns routing, encoding and the bookkeeping of which rows are in flight. ``encode`` is heavy and may run on any one
thread; everything else runs on the event loop's. Invariants: rows of one partition are stored in the order written,
also over reconnects; in-flight bytes stay within the window; after the first failure nothing more is sent.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.base.errors import AlreadyClosedError, OperationTimeoutError, PulsarishError, RowsUnconfirmedError
from broker_core.base.names import TopicName
from broker_core.base.positions import Position
from broker_core.client.connecting.network import Network
from broker_core.client.connecting.opening import open_all
from broker_core.client.connecting.retrying import retrying
from broker_core.client.producing.send_lane import OutgoingEntry, SendLane
from broker_core.client.producing.send_window import SendWindow
from broker_core.client.settings.config import ProducerConfig, WriterConfig
from broker_core.wire.batch import EncodedEntry, columns, encode_entries, route_rows
from broker_core.wire.compression import codec_of_name

RowNumbers = NDArray[np.int64]


class EncodedRows(NamedTuple):
    """An entry, the partition it goes to (a number from 0, also for a topic without), and the rows in it."""

    lane: int
    entry: EncodedEntry
    rows: RowNumbers


class AsyncEntryWriter:
    """Writes rows to one topic. Made by ``AsyncClient.write_rows``."""

    def __init__(self, network: Network, topic: TopicName, partitions: int, config: WriterConfig) -> None:
        self.config = config
        self.topic = topic
        self.window = SendWindow(0, config.window_bytes_max)
        self.rows_written = 0
        """Rows given to ``encode`` so far."""
        self.rows_confirmed = 0
        """Rows that the broker has stored."""
        patience_s = config.send_timeout_s
        self.timeout_s = network.config.operation_timeout_s if patience_s is None else patience_s
        self._network = network
        self._codec = codec_of_name(config.compression)
        of_lanes = ProducerConfig(name=config.name, compression=config.compression, send_timeout_s=self.timeout_s)
        names = [topic.partition(index) for index in range(partitions)] or [topic]
        self._lanes = [SendLane(network, each, of_lanes) for each in names]
        self._next_sequence_ids = [0] * len(names)
        self._keyless_turn = 0
        self._failure: PulsarishError | None = None
        self._unknown_rows: list[RowNumbers] = []

    @classmethod
    async def create(cls, network: Network, topic: TopicName, config: WriterConfig) -> AsyncEntryWriter:
        """Find the partitions and register at every broker concerned."""
        partitions = await retrying(
            lambda: network.lookup.partitions(topic, create=True),
            f"writer of {topic}",
            network.config.operation_timeout_s,
            network.new_backoff(),
        )
        writer = cls(network, topic, partitions, config)
        await open_all(writer._lanes)
        writer._next_sequence_ids = [lane.last_sequence_id + 1 for lane in writer._lanes]
        return writer

    def encode(self, rows: pa.RecordBatch) -> list[EncodedRows]:
        """The entries that carry ``rows``. UsageError for what cannot be sent; nothing of ``rows`` is sent then.

        Columns: key, key_is_bytes, value, ordering_key, properties, event_time, deliver_at; see
        ``wire.batch.encode_entries``.
        """
        self.check()
        first_row = self.rows_written
        encoded: list[EncodedRows] = []
        sequence_ids = list(self._next_sequence_ids)
        for lane, numbers in enumerate(self._route(rows)):
            if not len(numbers):
                continue
            part = rows if len(numbers) == rows.num_rows else rows.take(columns.numbers(numbers))
            at = 0
            for entry in self._encode_part(part, lane, sequence_ids[lane]):
                taken = numbers[at : at + entry.messages]
                encoded.append(EncodedRows(lane, entry, taken + first_row))
                at += entry.messages
            sequence_ids[lane] += len(numbers)
        self._next_sequence_ids = sequence_ids
        self.rows_written += rows.num_rows
        self._keyless_turn += 1
        return encoded

    def submit(self, encoded: EncodedRows) -> None:
        """Send an entry for which room was taken in the window; after a failure it is dropped instead."""
        size = len(encoded.entry.body)
        if self._failure is not None:
            self.window.give_back(1, size)
            return

        def done(position: Position | None, failure: PulsarishError | None) -> None:
            self.window.give_back(1, size)
            if failure is None:
                self.rows_confirmed += len(encoded.rows)
            else:
                self._failure = self._failure or failure
                self._unknown_rows.append(encoded.rows)

        entry = encoded.entry
        highest = entry.highest_sequence_id if entry.messages > 1 else -1
        self._lanes[encoded.lane].submit(OutgoingEntry(entry.body, entry.messages, entry.sequence_id, highest, done))

    async def write(self, rows: pa.RecordBatch) -> None:
        """Send ``rows``; returns as soon as they fit in the window. Raises RowsUnconfirmedError after a failure."""
        for each in await asyncio.to_thread(self.encode, rows):
            await self._reserve(len(each.entry.body))
            self.submit(each)

    async def flush(self) -> None:
        """Return when every row is stored; RowsUnconfirmedError says which may not be."""
        await asyncio.gather(*(lane.drained() for lane in self._lanes))
        self.check()

    async def close(self) -> None:
        """Flush, then leave the brokers; raises what ``flush`` would. Harmless if closed."""
        if isinstance(self._failure, AlreadyClosedError):
            return
        try:
            await self.flush()
        finally:
            self._failure = AlreadyClosedError(f"the writer of {self.topic} is closed")
            await self._network.to_the_end(self._leave())

    def check(self) -> None:
        """Raise what went wrong, if anything did."""
        if isinstance(self._failure, AlreadyClosedError):
            raise self._failure
        if self._failure is not None:
            unknown = np.sort(np.concatenate(self._unknown_rows)) if self._unknown_rows else np.empty(0, np.int64)
            raise RowsUnconfirmedError(
                f"writing to {self.topic} failed: {self._failure.message}; of {self.rows_written} rows "
                f"{self.rows_confirmed} are stored, {len(unknown)} may or may not be, the others are not",
                hint=self._failure.hint,
                unknown_rows=tuple(unknown.tolist()),
            ) from self._failure

    def no_room(self) -> OperationTimeoutError:
        """The error when no receipt comes for so long that nothing more can be sent."""
        return OperationTimeoutError(f"the writer of {self.topic} found no room in its window for {self.timeout_s:g} s")

    async def _reserve(self, size: int) -> None:
        while not self.window.try_take(size):
            await self._network.woken(self.window.wake_later)
        if self._failure is not None:
            self.window.give_back(1, size)
            await self.flush()

    def _route(self, rows: pa.RecordBatch) -> list[RowNumbers]:
        count = rows.num_rows
        if len(self._lanes) == 1:
            return [np.arange(count)]
        routed = route_rows(rows, len(self._lanes), keyless_first=self._keyless_turn, scheme=self.config.hashing_scheme)
        return [columns.values_of(part) for part in routed]

    def _encode_part(self, rows: pa.RecordBatch, lane: int, first_sequence_id: int) -> list[EncodedEntry]:
        return encode_entries(
            rows,
            producer_name=self._lanes[lane].name,
            first_sequence_id=first_sequence_id,
            publish_time_ms=self._network.clock.now_ms(),
            compression=self._codec,
            messages_max=self.config.batching_max_messages,
            bytes_max=self.config.batching_max_bytes,
            message_bytes_max=self._lanes[lane].max_message_size,
        )

    async def _leave(self) -> None:
        self._network.open.discard(self)
        await asyncio.gather(*(lane.close() for lane in self._lanes))
