# SPDX-License-Identifier: Apache-2.0
"""Counting the messages of a range of entries where no index tells them: the entries are read, and dropped at once.

The protocol hands out no entry without its payload, so a count costs what reading costs, and every count has bounds. A
subscription of its own that is not durable, on the client's shared connection; permits are given so that hardly more
entries come than are counted. Invariants: entries are counted in order, each once, over any number of reconnects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from broker_core.base.errors import ConnectionLostError, PulsarishError
from broker_core.base.names import TopicName
from broker_core.base.positions import Position
from broker_core.client.columnar.arrival import Arrival, ReattachTimer, of_entry
from broker_core.client.columnar.probes import passed_over
from broker_core.client.connecting.connection import Connection, EntriesOnly
from broker_core.client.connecting.network import Network
from broker_core.client.connecting.subscribing import (
    flow,
    last_message_id,
    leave_silently,
    reading_from,
    register,
)
from broker_core.wire.commands import read_position
from broker_core.wire.entry import messages_of, split_broker_entry
from broker_core.wire.heads import MessageHead

ENTRIES_AHEAD_MAX: Final = 400
"""Entries that may be on their way when the count ends."""

ENTRIES_FIRST: Final = 10
"""Entries that are asked for before anything is known of their sizes."""

COUNTS_AT_ONCE: Final = 64
"""Counts of one call that run at a time: each makes a subscription for its time, and a query may read thousands of
partitions."""


class Span(NamedTuple):
    """The entries in [start, end) of a plain topic or one partition, to be counted up to one that reaches a bound."""

    topic: str
    start: Position
    end: Position
    messages_max: int
    entries_max: int
    bytes_max: int


class Counted(NamedTuple):
    """Entries that follow each other: where each is, and how many messages, and bytes, there are up to its end."""

    positions: Sequence[Position]
    sums: Sequence[int]
    byte_sums: Sequence[int]
    is_whole: bool
    """Whether the range holds nothing behind them."""

    @property
    def messages(self) -> int:
        return self.sums[-1] if self.sums else 0


class EntryCount(EntriesOnly):
    """One count of a span."""

    def __init__(self, network: Network, span: Span) -> None:
        self._network = network
        self._topic = TopicName.parse(span.topic)
        self._span = span
        self._next = span.start
        self._positions: list[Position] = []
        self._sums: list[int] = []
        self._byte_sums: list[int] = []
        self._is_whole = span.start >= span.end
        self._failure: PulsarishError | None = None
        self._id = -1
        self._connection: Connection | None = None
        self._balance = 0  # permits that the broker has, in messages
        self._ahead = 0
        self._arrival = Arrival(network.loop)
        self._reattaching = ReattachTimer(network.loop, network.config.operation_timeout_s)

    async def run(self) -> Counted:
        """Count, over reconnects; raises ChecksumMismatchError and the like for an entry that cannot be read."""
        if not self._is_done:
            await self._network.retried(self._count, f"count the messages of {self._topic} after {self._next}")
        return Counted(self._positions, self._sums, self._byte_sums, self._is_whole)

    @property
    def _is_done(self) -> bool:
        span = self._span
        return self._is_whole or (
            bool(self._sums)
            and (
                self._sums[-1] >= span.messages_max
                or len(self._sums) >= span.entries_max
                or self._byte_sums[-1] >= span.bytes_max
            )
        )

    # -- asking

    async def _count(self) -> None:
        self._failure = None
        self._balance = 0
        self._id = self._network.next_consumer_id()
        lookup = self._network.lookup
        target = await lookup.known_broker_of(self._topic)
        connection = await self._network.pool.shared(target)
        compacted = self._network.config.compacted_entries
        await register(connection, self._id, self, reading_from(self._topic, self._next, "count", compacted=compacted))
        lookup.serves(self._topic, target)
        self._connection = connection
        try:
            while not self._has_ended():
                before = len(self._sums)
                self._give_permits()
                if not await self._arrival.came():
                    await self._look_for_more(connection)
                if len(self._sums) > before:
                    self._reattaching.reset()
                elif self._reattaching.is_over:
                    self._reattaching.renew()
                    raise ConnectionLostError(f"no entry of {self._topic} at or after {self._next} came")
            if self._failure is not None:
                raise self._failure
        finally:
            self._connection = None
            leave_silently(connection, self._id)

    def _give_permits(self) -> None:
        """Permit the entries that are likely to be wanted, judged by those that came.

        A broker that has permits for some messages may send as many entries, however many messages these hold.
        """
        span, seen = self._span, len(self._sums)
        ahead = ENTRIES_FIRST
        if seen:
            left, left_bytes = span.messages_max - self._sums[-1], span.bytes_max - self._byte_sums[-1]
            ahead = min(left * seen // self._sums[-1], left_bytes * seen // self._byte_sums[-1], 2 * seen)
        ahead = max(1, min(ahead, span.entries_max - seen, ENTRIES_AHEAD_MAX))
        if self._balance <= ahead // 2 and self._connection is not None:
            self._connection.send(flow(self._id, ahead - self._balance))
            self._balance = self._ahead = ahead

    async def _look_for_more(self, connection: Connection) -> None:
        last = read_position((await last_message_id(connection, self._id)).last_message_id)
        at = self._next
        # A filter of entries may drop all that there still is.
        if last < at or (await passed_over(self._network, self._topic, at, last) >= last and self._next == at):
            self._is_whole = True

    # -- the broker's side

    def message(self, head: MessageHead, body: bytes) -> None:
        position = Position(head.ledger, head.entry)
        if self._has_ended() or position < self._next:
            return
        if position >= self._span.end:
            self._is_whole = True
        else:
            self._note(position, body)
        if self._has_ended() or self._balance <= self._ahead // 2:
            self._arrival.tell()

    def _has_ended(self) -> bool:
        return self._is_done or self._failure is not None

    def _note(self, position: Position, body: bytes) -> None:
        try:
            messages = messages_of(split_broker_entry(body)[1])
        except PulsarishError as failure:
            self._failure = of_entry(position, self._topic, failure)
            return
        self._balance -= messages
        self._next = Position(position.ledger, position.entry + 1)
        self._positions.append(position)
        self._sums.append(messages + (self._sums[-1] if self._sums else 0))
        self._byte_sums.append(len(body) + (self._byte_sums[-1] if self._byte_sums else 0))
        self._is_whole = self._next >= self._span.end

    def detached(self, connection: Connection, reason: PulsarishError, address: str) -> None:
        self._failure = ConnectionLostError(f"a count of {self._topic} lost its broker: {reason.message}")
        self._arrival.tell()
