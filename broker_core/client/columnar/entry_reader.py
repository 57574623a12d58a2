# SPDX-License-Identifier: Apache-2.0
"""Bulk reading: the entries of one topic or partition in an exact range of positions, as they are stored.

A subscription of its own that is not durable, on a connection of its own, which is paused while more than
``buffer_bytes_max`` wait to be taken: the broker's socket fills and the broker stops, whatever permits are out. The
connection of a short range is left to the next reader; that of a long one is closed, for much more may be on its way.
Invariants: entries come in order, each once, over any number of reconnects; none at or behind ``end`` is handed out;
each has passed its checksum. Not owned: what trimmed data means, which is the caller's decision (``first_position``,
``ended_early``). Source: semantics 1.4.6 (the broker begins AT the start), architecture "How Spark maps on Pulsar".
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from broker_core.base.allocator import keep_some
from broker_core.base.errors import (
    AlreadyClosedError,
    ConnectionLostError,
    OperationTimeoutError,
    PulsarishError,
)
from broker_core.base.names import TopicName
from broker_core.base.positions import Position
from broker_core.client.columnar.arrival import Arrival, ReattachTimer, delivered_entry
from broker_core.client.columnar.probes import passed_over
from broker_core.client.connecting.attachment import Attachment
from broker_core.client.connecting.connection import Connection, EntriesOnly
from broker_core.client.connecting.network import Network
from broker_core.client.connecting.subscribing import (
    Subscribing,
    flow,
    last_message_id,
    leave_silently,
    reader_subscription,
    register,
    start_leaving,
)
from broker_core.client.settings.config import EntryReaderConfig
from broker_core.wire.commands import read_position
from broker_core.wire.entry import BytesLike, EntryRef
from broker_core.wire.heads import MessageHead

PERMITS: Final = 1_000_000_000
"""Permits in messages: more than any reader will see, so that only bytes hold the broker back. Twice as much still fits
in the 32 bits in which brokers count."""

EARLY_PERMITS: Final = 1000
"""Permits before the broker has answered the subscribe: as many as any consumer's queue takes. They come on top of the
expected messages, for a broker may ignore them."""

SHORT_BYTES_MAX: Final = 1024 * 1024
"""Bytes of a short range: opening a connection takes about as long as reading it."""


def _new_block(size: int) -> Any:
    import numpy as np  # Here, for not all who import this read in bulk.

    keep_some()
    return np.empty(size, np.uint8)


def _in_place(data: BytesLike) -> Any:
    """``data`` as the checksum library takes it, not copied."""
    import numpy as np

    return np.frombuffer(data, np.uint8)


class AsyncEntryReader(EntriesOnly):
    """Reads the range [start, end) of ``topic``; ``end`` None: for ever. Made by ``AsyncClient.read_entries``."""

    def __init__(
        self,
        network: Network,
        topic: TopicName,
        start: Position,
        end: Position | None,
        config: EntryReaderConfig,
    ) -> None:
        self.topic = topic
        self.first_position: Position | None = None
        """Position of the first entry handed out: behind ``start`` if the data between was deleted."""
        self.ended_early = False
        """True if the topic holds nothing more although ``end`` was not reached."""
        self.next_position = start
        """Position of the next entry: everything before it was handed out, or is not stored."""
        self._network = network
        self._end = end
        self._buffer_bytes_max = config.buffer_bytes_max
        self._messages_expected = config.messages_expected
        self._read_compacted = config.read_compacted or network.config.compacted_entries
        self._timeout_s = network.config.operation_timeout_s if config.timeout_s is None else config.timeout_s
        self._id = network.next_consumer_id()
        self._subscription = reader_subscription("entries")
        self._arriving_at = start
        self._buffer: list[EntryRef] = []
        self._buffer_bytes = 0
        self._bytes_read = 0
        self._is_topped_up = False
        self._complete = end is not None and start >= end
        self._failure: PulsarishError | None = None
        self._arrival = Arrival(network.loop)
        self._reattaching = ReattachTimer(network.loop, self._timeout_s)
        self._port: Connection | None = None
        self._attachment = Attachment(network, topic, self, f"reading of {topic}", dedicated=True)

    async def open(self) -> None:
        """Subscribe, unless the range is empty."""
        if not self._complete:
            await self._attachment.open()

    @property
    def is_exhausted(self) -> bool:
        """Whether every entry of the range was handed out. May be asked on any thread."""
        # In this order: what completes the range is in the buffer before.
        return self._complete and not self._buffer and self._failure is None

    async def next_entries(self) -> list[EntryRef]:
        """The entries that are here, at least one; an empty list when the range is complete.

        Raises OperationTimeoutError without progress, ChecksumMismatchError for a damaged entry.
        """
        deadline = self._network.loop.time() + self._timeout_s
        self._reattaching.reset()
        while not self._buffer:
            if self._failure is not None:
                raise self._failure
            if self._complete:
                return []
            if not await self._arrival.came():
                await self._look_for_more()
                if not self._buffer and self._end is not None and self._network.loop.time() >= deadline:
                    raise self._stalled()
        return self._hand_out()

    def __aiter__(self) -> AsyncIterator[list[EntryRef]]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[list[EntryRef]]:
        while entries := await self.next_entries():
            yield entries

    async def close(self) -> None:
        """Close the connection. Harmless if closed."""
        self._network.open.discard(self)
        self._failure = self._failure or AlreadyClosedError(f"the reading of {self.topic} is closed")
        self._buffer = []
        self._arrival.tell()
        self._let_go()
        await self._network.to_the_end(self._attachment.close())

    # -- the broker's side

    async def attach(self, connection: Connection) -> None:
        request = Subscribing(
            topic=self.topic,
            subscription=self._subscription,
            durable=False,
            create_topic=False,
            initial_position="earliest",
            start=self._arriving_at,
            read_compacted=self._read_compacted,
        )
        self._port = None  # the one of before is lost
        connection.receive_in_blocks(_new_block)
        await register(connection, self._id, self, request, permits=EARLY_PERMITS)
        self._port = connection
        self._is_topped_up = not self._messages_expected
        if self._complete or self._failure is not None:
            self._network.loop.call_soon(self._let_go)  # the attachment must have its connection first
        else:
            connection.send(flow(self._id, self._messages_expected or PERMITS))

    def detached(self, connection: Connection, reason: PulsarishError, address: str) -> None:
        if self._complete:
            return
        connection.close()
        self._attachment.detached(connection, reason, address)

    def given_up(self, failure: PulsarishError) -> None:
        self._failure = self._failure or failure
        self._arrival.tell()

    def message(self, head: MessageHead, body: bytes) -> None:
        position = Position(head.ledger, head.entry)
        if self._complete or self._failure is not None or position < self._arriving_at:
            return
        if self._end is not None and position >= self._end:
            self._finish()
            return
        try:
            self._buffer.append(delivered_entry(head, body, self.topic, _in_place))
        except PulsarishError as failure:
            self._failure = failure
            self._let_go()
            self._arrival.tell()
            return
        self._arriving_at = Position(head.ledger, head.entry + 1)
        self._buffer_bytes += len(body)
        self._bytes_read += len(body)
        if self._end is not None and self._arriving_at >= self._end:
            self._finish()
        elif self._buffer_bytes >= self._buffer_bytes_max and self._port is not None:
            self._port.pause_reading()
        self._arrival.tell()

    # -- inside

    def _hand_out(self) -> list[EntryRef]:
        entries, self._buffer = self._buffer, []
        self._buffer_bytes = 0
        last = entries[-1]
        if self.first_position is None:
            self.first_position = Position(entries[0].ledger, entries[0].entry)
        self.next_position = Position(last.ledger, last.entry + 1)
        if self._port is not None and not self._complete:
            self._port.resume_reading()
        return entries

    async def _look_for_more(self) -> None:
        """Find out why no entry comes: the range holds nothing more, or more permits are needed than were given."""
        connection = self._attachment.connection
        if connection is None:
            return
        asking = self._network.loop.create_task(last_message_id(connection, self._id))
        # Not the answer alone: entries that come before it may fill the buffer, and nothing is read then.
        await self._arrival.came_or(asking)
        if not asking.done():
            asking.cancel()
            return
        try:
            last = read_position(asking.result().last_message_id)
        except (ConnectionLostError, OperationTimeoutError):
            return  # The attachment is being made anew, or the deadline will tell.
        if self._buffer or self._complete:
            return
        if last >= self._arriving_at and not self._is_topped_up:
            self._is_topped_up = True
            connection.send(flow(self._id, PERMITS))
        elif self._end is not None and (last < self._arriving_at or await self._passes_over(last)):
            self.ended_early = True
            self._finish()
        elif last >= self._arriving_at and self._reattaching.is_over:
            self._reattaching.renew()
            connection.close()  # Which has the reader attached anew.

    async def _passes_over(self, last: Position) -> bool:
        """Whether the broker gives to nobody what it still has, up to ``last``: a filter of entries may drop it."""
        probing = self._network.loop.create_task(passed_over(self._network, self.topic, self._arriving_at, last))
        await self._arrival.came_or(probing)
        if not probing.done():
            probing.cancel()
            return False
        try:
            return probing.result() >= last and not self._buffer and not self._complete
        except PulsarishError:
            return False  # The deadline will tell.

    def _finish(self) -> None:
        self._complete = True
        self._let_go()

    def _let_go(self) -> None:
        """Leave the connection, and end it where entries behind the range are still on their way."""
        connection, self._port = self._port, None
        if connection is None:
            return
        if self._complete and self._bytes_read <= SHORT_BYTES_MAX:
            self._attachment.give_back(start_leaving(connection, self._id))
        else:
            leave_silently(connection, self._id)
            connection.close()

    def _stalled(self) -> OperationTimeoutError:
        return OperationTimeoutError(
            f"no entry of {self.topic} at or after {self._arriving_at} came in {self._timeout_s:g} s, "
            f"though the topic has more before {self._end}",
            hint="is the broker reachable and healthy?",
        )
