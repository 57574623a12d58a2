# SPDX-License-Identifier: Apache-2.0
"""Questions about a topic's log that the protocol has no command for, answered by short-lived readers.

Last entry, first entry at a position and the one before, entry of a message index. Owns a waiting reader for each topic
that was asked for its end a moment ago, and a small memory of the last answers. A reader is a subscription that tools
show, with a backlog that grows, so none stays longer than ``LINGER_S``. Source: architecture decision 1 (what the
protocol lacks is done on the client's side); PIP-70 for the message index.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple, TypeVar

from broker_core.base.errors import (
    ChecksumMismatchError,
    ConnectionLostError,
    PartitionUnmadeError,
    ProtocolError,
    PulsarishError,
    UnsupportedVersionError,
    UsageError,
)
from broker_core.base.names import TopicName
from broker_core.base.positions import POSITION_EARLIEST, POSITION_LATEST, Position
from broker_core.client.columnar.arrival import QUIET_S, ReattachTimer, delivered_entry
from broker_core.client.columnar.index_search import IndexedEntry, IndexSearch
from broker_core.client.connecting.connection import Connection, EntriesOnly
from broker_core.client.connecting.network import Network
from broker_core.client.connecting.subscribing import (
    flow,
    last_message_id,
    leave_silently,
    reading_from,
    register,
)
from broker_core.wire.commands import read_message_id, read_position
from broker_core.wire.entry import EntryRef, messages_of, published_ms
from broker_core.wire.heads import MessageHead
from broker_core.wire.proto import pulsar_api_pb2 as pb

T = TypeVar("T")

LINGER_S: Final = 1.0
"""Time for which a reader waits for the next question about its topic's end: a planner has several in a row."""

PASSING_S: Final = 1.0
"""Time for which a broker may pass over entries that it gives to nobody. It does that as it reads them."""


class LastEntry(NamedTuple):
    """The newest entry of a topic. ``position.entry`` is -1 if there is none; ``index`` of its last message or -1.

    ``published_ms``: the publish time of the entry, -1 where nobody has looked at the entry itself.
    """

    position: Position
    index: int  # type: ignore[assignment] # hides tuple.index, which a record has no use for
    messages: int
    published_ms: int = -1


DAMAGED: Final = (ChecksumMismatchError, ProtocolError)
"""Errors with which looking at a damaged entry ends."""


class Bounds(NamedTuple):
    """Entries around a position: the last one before it, its number -1 if there is none, and the first one at or behind
    it. ``before`` is in a later ledger if that of the position is deleted."""

    before: Position
    first: EntryRef | None


NO_ENTRY: Final = LastEntry(POSITION_EARLIEST, -1, 0)
"""The newest entry of a partition that nobody has used yet."""


class Edges(NamedTuple):
    """First and newest entry of a topic. ``first`` is None if ``last`` says that there is none."""

    first: EntryRef | None
    last: LastEntry


def last_of(answer: pb.CommandGetLastMessageIdResponse) -> tuple[Position, int]:
    """Position of a topic's last entry, and how many messages it has (0 if the topic is empty)."""
    last = read_message_id(answer.last_message_id)
    return last.position, 0 if last.entry < 0 else max(last.batch_index, 0) + 1


def _stands_behind(answer: pb.CommandGetLastMessageIdResponse) -> Position:
    """The last entry that a reader is done with, of which it has acknowledged none itself."""
    return read_position(answer.consumer_mark_delete_position)


class Probe(EntriesOnly):
    """A reader that takes at most one entry. Lives on a shared connection; ``leave`` it when done."""

    def __init__(self, network: Network, topic: TopicName, start: Position) -> None:
        self._network = network
        self._topic = topic
        self._start = start
        self._id = network.next_consumer_id()
        self._connection: Connection | None = None
        self._lost: PulsarishError | None = None
        self._left = False
        self._arrival: asyncio.Future[EntryRef] = network.loop.create_future()

    @classmethod
    @asynccontextmanager
    async def at(
        cls, network: Network, topic: TopicName, start: Position, *, permits: int = 0
    ) -> AsyncGenerator[Probe, None]:
        """A reader that is attached at ``start``, and left at the end."""
        probe = cls(network, topic, start)
        try:
            await probe.attach(permits=permits)
            yield probe
        finally:
            probe.leave()

    @property
    def is_attached(self) -> bool:
        return not self._left and self._connection is not None and self._lost is None and self._connection.is_open

    async def attach(self, *, permits: int = 0) -> None:
        """Subscribe at the start; with a permit the first entry may be on its way before ``first_entry``."""
        lookup = self._network.lookup
        target = await lookup.known_broker_of(self._topic)
        connection = await lookup.connect(target)
        compacted = self._network.config.compacted_entries
        request = reading_from(self._topic, self._start, "probe", compacted=compacted)
        await register(connection, self._id, self, request, permits=permits)
        lookup.serves(self._topic, target)
        self._connection = connection

    async def last(self) -> tuple[Position, int]:
        """Position of the topic's last entry, and how many messages it has (0 if the topic is empty)."""
        return last_of(await last_message_id(self._attached(), self._id))

    async def first_entry(self) -> EntryRef | None:
        """The entry at or after the start, None if there is none."""
        timer = ReattachTimer(self._network.loop, self._network.config.operation_timeout_s)
        while True:
            connection = self._attached()
            if self._arrival.done():
                return await self._arrival
            connection.send(flow(self._id, 1))
            if await self._has_nothing(connection, timer):
                return None
            if not self._arrival.done():
                timer.renew()
                await self._attach_anew()

    async def _has_nothing(self, connection: Connection, timer: ReattachTimer) -> bool:
        """Whether nothing comes; False as soon as the entry is there, or was awaited long enough."""
        while not self._arrival.done() and not timer.is_over:
            answer = await last_message_id(connection, self._id)
            last = read_position(answer.last_message_id)
            # The last entry may be one that the broker gives to nobody, which a filter of entries drops.
            is_over = last.entry < 0 or last < self._start or last <= _stands_behind(answer)
            if is_over and not self._arrival.done():
                return True
            await asyncio.wait([self._arrival], timeout=min(QUIET_S, max(timer.left_s, 0.0)))
        return False

    async def _attach_anew(self) -> None:
        """Attach anew: the broker has an entry for the reader, and does not send it."""
        if self._connection is not None:
            leave_silently(self._connection, self._id)
        self._id, self._connection = self._network.next_consumer_id(), None
        await self.attach()

    async def bounds(self) -> Bounds:
        """The entries before and behind the start, in any ledgers; asked before there are permits."""
        # A subscription has acknowledged everything before its start, and the broker names the last entry of that. As
        # soon as there are permits it acknowledges also what it gives to nobody.
        before = _stands_behind(await last_message_id(self._attached(), self._id))
        return Bounds(before, await self.first_entry())

    async def passed_over(self, until: Position) -> Position:
        """The last entry, up to ``until``, that the broker gives to nobody, and none from the start up to it; one
        before the start if there is none, or the broker takes longer than ``PASSING_S``."""
        connection = self._attached()
        connection.send(flow(self._id, 1))
        deadline = self._network.loop.time() + PASSING_S
        while True:
            passed = _stands_behind(await last_message_id(connection, self._id))
            if passed >= until or self._arrival.done() or self._network.loop.time() >= deadline:
                return min(passed, until)
            await asyncio.wait([self._arrival], timeout=PASSING_S / 20)

    def leave(self) -> None:
        """Tell the broker that the reader is gone."""
        self._left = True
        if self._connection is not None:
            leave_silently(self._connection, self._id)
        if not self._arrival.done():
            self._arrival.cancel()

    def _attached(self) -> Connection:
        if self._connection is None or self._lost is not None:
            raise self._lost or ConnectionLostError(f"a reader of {self._topic} is not attached")
        return self._connection

    # -- the broker's side

    def message(self, head: MessageHead, body: bytes) -> None:
        if self._arrival.done():
            return
        try:
            self._arrival.set_result(delivered_entry(head, body, self._topic))
        except PulsarishError as failure:
            self._arrival.set_exception(failure)

    def detached(self, connection: Connection, reason: PulsarishError, address: str) -> None:
        self._lost = ConnectionLostError(f"a reader of {self._topic} lost its broker: {reason.message}")
        if not self._arrival.done():
            self._arrival.set_exception(self._lost)
            self._arrival.exception()  # Looked at, or asyncio would log it if no task waits.


class _Waiting:
    """A reader at a topic's end, which is closed when it was not asked for a while."""

    def __init__(self, probe: Probe, loop: asyncio.AbstractEventLoop) -> None:
        self.probe = probe
        self._loop = loop
        self._asking = 0
        self._leaving: asyncio.TimerHandle | None = None

    async def last(self) -> tuple[Position, int]:
        """The reader's ``last``, after which it lingers."""
        self._stay()
        self._asking += 1
        try:
            return await self.probe.last()
        finally:
            self._asking -= 1
            if not self._asking:
                self._leaving = self._loop.call_later(LINGER_S, self.probe.leave)

    def leave(self) -> None:
        """Leave the broker at once."""
        self._stay()
        self.probe.leave()

    def _stay(self) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None


class Probes:
    """All questions of one client. ``topic`` is always a plain topic or one partition.

    ``unmade_ok``: a partition that its topic names and that is not there is empty; else it is a PartitionUnmadeError.
    It is for those who know of nothing that it has had: one that was deleted looks the same.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self._waiting: dict[TopicName, _Waiting] = {}
        self._last: dict[TopicName, LastEntry] = {}
        self._without_index: set[TopicName] = set()
        self._locks: defaultdict[TopicName, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def last_entry(self, topic: TopicName, *, unmade_ok: bool = False) -> LastEntry:
        """The newest entry; one round trip, and one small read if it is a new one."""
        asking = self._network.retried(lambda: self._last_entry(topic), f"look at the last entry of {topic}")
        return await unless_unmade(asking, NO_ENTRY, unmade_ok=unmade_ok)

    async def first_entry_at(self, topic: TopicName, position: Position, *, unmade_ok: bool = False) -> EntryRef | None:
        """The first entry at or after ``position``, in any ledger; None if there is none."""
        task = f"look at the entry at {position} of {topic}"
        asking = self._network.retried(lambda: self._first_entry_at(topic, position), task)
        return await unless_unmade(asking, None, unmade_ok=unmade_ok)

    async def edges(self, topic: TopicName, *, unmade_ok: bool = False) -> Edges:
        """The first entry, and the newest one: one reader for both, and a small read more for the newest one's index.

        The end is asked for first: a message that comes in between is behind it, not before the beginning.
        """
        asking = self._network.retried(lambda: self._edges(topic), f"look at the first and last entry of {topic}")
        return await unless_unmade(asking, Edges(None, NO_ENTRY), unmade_ok=unmade_ok)

    async def bounds_at(self, topic: TopicName, position: Position, *, unmade_ok: bool = False) -> Bounds:
        """The first entry at or after ``position`` and the last one before it, in whatever ledgers: the latter tells
        how long its ledger became."""
        task = f"look at the entries around {position} of {topic}"
        asking = self._network.retried(lambda: self._bounds_at(topic, position), task)
        return await unless_unmade(asking, Bounds(NO_ENTRY.position, None), unmade_ok=unmade_ok)

    async def passed_over(self, topic: TopicName, position: Position, until: Position) -> Position:
        """The last entry, up to ``until``, that the broker gives to nobody, and none from ``position`` up to it; one
        before ``position`` if there is none."""
        what = f"ask what is passed over at {position} of {topic}"
        return await self._network.retried(lambda: passed_over(self._network, topic, position, until), what)

    async def position_of_index(self, topic: TopicName, index: int, low: Position, high: Position) -> Position:
        """The entry that holds message ``index``, searched from ``low`` to ``high`` or to the topic's end.

        An index before them gives the first entry at or after ``low``. Raises UsageError for an index behind ``high``,
        UnsupportedVersionError if the broker does not tell message indexes.
        """
        first, last = await self._indexed(topic, low), await self._indexed(topic, high)
        if last is None:
            last = await self._indexed(topic, (await self.last_entry(topic)).position)
        if first is None or last is None or index > last.last:
            raise UsageError(f"message {index} of {topic} does not exist between {low} and {high}")
        if index <= first.last:
            return first.position
        if index >= last.first:
            return last.position
        search = IndexSearch(index, first, last)
        while (guess := search.guess()) is not None:
            search.found(guess, await self._indexed(topic, guess))
        return search.answer

    def remember(self, topic: TopicName, last: LastEntry) -> None:
        """The newest entry of ``topic``, which its owner has seen without a question."""
        self._last[topic] = last

    async def published_at(self, topic: TopicName, position: Position, *, from_memory: bool = True) -> int | None:
        """The publish time of the entry at ``position``, in milliseconds; None if there is no such entry, or if it
        cannot be read. ``from_memory``: the newest entry that was seen needs no question; else it is forgotten, for
        the log may be another one now."""
        known = self._last.get(topic) if from_memory else self._last.pop(topic, None)
        if from_memory and known is not None and known.position == position and known.published_ms >= 0:
            return known.published_ms
        try:
            entry = await self.first_entry_at(topic, position, unmade_ok=True)
            if entry is None or Position(entry.ledger, entry.entry) != position:
                return None
            return published_ms(entry.body)
        except DAMAGED:
            return None

    def close(self) -> None:
        """Leave the brokers."""
        for waiting in self._waiting.values():
            waiting.leave()
        self._waiting.clear()

    async def with_index(self, topic: TopicName, position: Position, messages: int) -> LastEntry:
        """The last entry with its index; ``messages`` 0: the topic is empty."""
        task = f"ask for the message index of {position} of {topic}"
        return await self._network.retried(lambda: self._with_index(topic, position, messages), task)

    async def _with_index(self, topic: TopicName, position: Position, messages: int) -> LastEntry:
        known = self._last.get(topic)
        if known is not None and known.position == position:
            return known
        index = published = -1
        if messages and topic not in self._without_index:
            entry = await self._first_entry_at(topic, position)
            if entry is not None and entry.index < 0:
                self._without_index.add(topic)
            if entry is not None and Position(entry.ledger, entry.entry) == position:
                index, published = entry.index, published_ms(entry.body)
        self._last[topic] = LastEntry(position, index, messages, published)
        return self._last[topic]

    async def _last_entry(self, topic: TopicName) -> LastEntry:
        async with self._locks[topic]:
            waiting = self._waiting.get(topic)
            if waiting is None or not waiting.probe.is_attached:
                probe = Probe(self._network, topic, POSITION_LATEST)
                await probe.attach()
                waiting = self._waiting[topic] = _Waiting(probe, self._network.loop)
        position, messages = await waiting.last()
        return await self._with_index(topic, position, messages)

    async def _edges(self, topic: TopicName) -> Edges:
        async with Probe.at(self._network, topic, POSITION_EARLIEST, permits=1) as probe:
            position, messages = await probe.last()
            first = await probe.first_entry() if messages else None
        if first is not None and Position(first.ledger, first.entry) > position:
            first = None  # All that there was is deleted, and this came behind the end.
        if first is not None and Position(first.ledger, first.entry) == position:
            self._last[topic] = LastEntry(position, first.index, messages, published_ms(first.body))
        return Edges(first, await self._with_index(topic, position, messages))

    async def _bounds_at(self, topic: TopicName, position: Position) -> Bounds:
        async with Probe.at(self._network, topic, position) as probe:
            return await probe.bounds()

    async def _first_entry_at(self, topic: TopicName, position: Position) -> EntryRef | None:
        async with Probe.at(self._network, topic, position, permits=1) as probe:
            return await probe.first_entry()

    async def _indexed(self, topic: TopicName, position: Position) -> IndexedEntry | None:
        entry = await self.first_entry_at(topic, position)
        if entry is None:
            return None
        if entry.index < 0:
            raise UnsupportedVersionError(
                f"the broker of {topic} does not tell message indexes",
                hint="give message ids instead, or have the broker append and expose broker entry metadata",
            )
        first = entry.index - messages_of(entry.body) + 1
        return IndexedEntry(Position(entry.ledger, entry.entry), first, entry.index)


async def passed_over(network: Network, topic: TopicName, position: Position, until: Position) -> Position:
    """The last entry, up to ``until``, that the broker gives to nobody, and none from ``position`` up to it; one before
    ``position`` if there is none. One attempt."""
    async with Probe.at(network, topic, position) as probe:
        return await probe.passed_over(until)


async def unless_unmade(asking: Awaitable[T], empty: T, *, unmade_ok: bool) -> T:
    """The answer of ``asking``; ``empty`` for a partition that is not there, if ``unmade_ok``."""
    try:
        return await asking
    except PartitionUnmadeError:
        if not unmade_ok:
            raise
        return empty
