# SPDX-License-Identifier: Apache-2.0
"""How Shared subscriptions deal: entries go out in slices, round robin among the consumers with room.

Entries that were read but found no consumer are simply read again later; chunks of large messages that found their one
consumer without room wait in ``ChunkAffinity``, apart from the replay set.
Source: Pulsar docs, "Subscription types - Shared"; semantics 2.4.2, 2.4.3, 4.4.4, 5.2.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Collection, Sequence
from itertools import accumulate, islice, repeat, takewhile
from typing import Final, Generic, TypeVar

from broker_core.base.positions import Position
from broker_core.broker.consumer import Consumer
from broker_core.broker.dispatch.dispatcher import DispatchContext
from broker_core.broker.dispatch.entry_source import by_ledger
from broker_core.broker.dispatch.given_out import entries_of
from broker_core.broker.dispatch.many_consumers import ManyConsumersDispatcher
from broker_core.broker.positions import PositionSet
from broker_core.broker.requests import SubscriptionType
from broker_core.broker.sinks import Delivery
from broker_core.wire.entry_peek import ChunkPlace, chunk_place, may_be_chunks

C = TypeVar("C")

UUIDS_MAX: Final = 10_000
"""Messages under way at a time. Messages whose last chunk never comes would stay for ever, so the oldest are
forgotten."""

WAITING_MAX: Final = 1000
"""While so many chunks wait, nothing new is read: entries of several MiB must not be read ahead without end."""


class ChunkAffinity(Generic[C]):
    """The consumer of each chunked message, by the message's uuid, and the chunks that found that consumer without
    permits. All chunks of one message go to one consumer, in order.

    A message gets its consumer when its first chunk is sent, and loses it with its last one, or when the consumer
    leaves. A chunk whose message has none goes to any consumer: its earlier chunks are out of reach, and the client
    knows what to do with it. Invariants (I5.8): a later chunk never overtakes one that waits; a position waits for one
    consumer at most. ``waiting``: by the consumer that they wait for. Source: PIP-37, Pulsar 2.11's shared assignment
    of chunks.
    """

    def __init__(self) -> None:
        self._consumers: OrderedDict[str, C] = OrderedDict()
        self.waiting: dict[C, set[Position]] = {}
        self._count = 0

    def __len__(self) -> int:
        """Chunks that wait for their consumer."""
        return self._count

    @property
    def is_full(self) -> bool:
        """Whether so many wait that nothing new should be read."""
        return self._count >= WAITING_MAX

    def consumer_of(self, chunk: ChunkPlace) -> C | None:
        """The consumer that has to get ``chunk``, None if any may."""
        return self._consumers.get(chunk.uuid)

    def sent(self, chunk: ChunkPlace, consumer: C) -> None:
        """``chunk`` goes to ``consumer``."""
        if chunk.chunk_id >= chunk.chunks - 1:
            self._consumers.pop(chunk.uuid, None)
        elif chunk.chunk_id == 0:
            self._consumers[chunk.uuid] = consumer
            if len(self._consumers) > UUIDS_MAX:
                self._consumers.popitem(last=False)

    def wait(self, consumer: C, position: Position) -> None:
        """The chunk at ``position`` waits until ``consumer`` can take it."""
        waiting = self.waiting.setdefault(consumer, set())
        self._count += position not in waiting
        waiting.add(position)

    def release(self, consumer: C) -> set[Position]:
        """``consumer`` can take entries again: what waited for it."""
        released = self.waiting.pop(consumer, set())
        self._count -= len(released)
        return released

    def discard(self, position: Position) -> None:
        """The entry need not be sent any more. Harmless if it did not wait."""
        if not self._count:
            return
        for consumer, waiting in self.waiting.items():
            if position in waiting:
                waiting.discard(position)
                self._count -= 1
                if not waiting:
                    del self.waiting[consumer]
                return

    def discard_through(self, mark_delete: Position) -> None:
        """Everything up to ``mark_delete`` need not be sent any more."""
        for position in [each for waiting in self.waiting.values() for each in waiting if each <= mark_delete]:
            self.discard(position)

    def left(self, leavers: Collection[C]) -> set[Position]:
        """``leavers`` are gone and any consumer may have their messages; what waited for them."""
        gone = set(leavers)
        for uuid in [uuid for uuid, consumer in self._consumers.items() if consumer in gone]:
            del self._consumers[uuid]
        return set().union(*map(self.release, gone))


class SharedWaitingRoom:
    """An entry waits in ``replay`` for any consumer, or in ``affinity`` for the one that has the chunks before it."""

    def __init__(self) -> None:
        self.replay = PositionSet()
        self.affinity: ChunkAffinity[Consumer] = ChunkAffinity()

    def __len__(self) -> int:
        return len(self.replay) + len(self.affinity)

    def add(self, position: Position) -> None:
        self.replay.add(position)

    def wait_for(self, consumer: Consumer, position: Position) -> None:
        """The chunk at ``position`` waits until ``consumer`` can take it."""
        self.replay.discard(position)
        self.affinity.wait(consumer, position)

    def release(self, consumer: Consumer) -> None:
        """``consumer`` can take the chunks that waited for it."""
        for position in self.affinity.release(consumer):
            self.replay.add(position)

    def left(self, leavers: Sequence[Consumer]) -> None:
        """Chunks that waited for ``leavers`` wait for any consumer."""
        for position in self.affinity.left(leavers):
            self.replay.add(position)

    def take(self, ledger: int, entries: Sequence[int]) -> None:
        if self.replay:
            for entry in entries:
                self.replay.discard(Position(ledger, entry))

    def discard(self, position: Position) -> None:
        self.replay.discard(position)
        self.affinity.discard(position)

    def discard_through(self, mark_delete: Position, most: int) -> bool:
        self.affinity.discard_through(mark_delete)
        gone = list(islice(takewhile(lambda each: each <= mark_delete, self.replay), most))
        for position in gone:
            self.replay.discard(position)
        return len(gone) < most


class SharedDispatcher(ManyConsumersDispatcher):
    """Dispatches one Shared subscription."""

    room: SharedWaitingRoom

    def __init__(self, context: DispatchContext) -> None:
        super().__init__(SubscriptionType.SHARED, context, SharedWaitingRoom())
        self._slice_messages_max = context.settings.dispatcher_max_round_robin_batch_size

    def add(self, consumer: Consumer) -> None:
        self._members.add(consumer, consumer.priority)

    def _left(self, leavers: Sequence[Consumer]) -> None:
        self.room.left(leavers)

    def _deal_out(self, wanted: int) -> bool:
        """Deal entries that wait, or else new ones."""
        room = self.room
        self.source.release_due(wanted, room.replay.__len__)
        if room.affinity:
            self._release_chunks()
        if not room.replay:
            return not room.affinity.is_full and self.source.read_on(wanted, self._deal)
        for ledger, run in by_ledger(self.source.read_waiting(room.replay, wanted)):
            if self._deal(ledger, run):
                break
        return True

    def _deal(self, ledger: int, deliveries: list[Delivery]) -> Sequence[Delivery]:
        """Give slices to one consumer after the other."""
        book = self.book
        costs = book.costs(deliveries)
        left, dealt = sum(costs), 0
        if deliveries:
            book.average_messages = max(1.0, left / len(deliveries))
        bodies = [delivery.entry.body for delivery in deliveries]
        if may_be_chunks(bodies):
            chunks = [chunk_place(body) for body in bodies]
            if any(chunks):
                return self._deal_singly(ledger, deliveries, chunks)
        owners: list[Consumer] = []
        while dealt < len(deliveries) and not book.unacked.stopped:
            consumer = self._next_consumer()
            if consumer is None:
                break
            room = book.room_at(consumer)
            most = self._slice_entries(min(room, left), left, len(deliveries) - dealt)
            spent = list(accumulate(costs[dealt : dealt + most]))
            end = dealt + min(bisect_left(spent, room) + 1, most)  # the last one may go beyond the room
            messages, size_bytes = book.send(consumer, ledger, deliveries[dealt:end])
            book.count(messages, size_bytes)
            owners += repeat(consumer, end - dealt)
            dealt, left = end, left - messages
        if dealt:
            book.given(ledger, entries_of(deliveries[:dealt]), owners)
        return deliveries[dealt:]

    def _next_consumer(self) -> Consumer | None:
        while (consumer := self._members.next()) is not None:
            if consumer.sink.writable:
                return consumer
            self._members.set_available(consumer, False)
        return None

    def _slice_entries(self, room: int, messages_left: int, entries_left: int) -> int:
        """Entries given in one go, judged by the mean size of those that are left (semantics 2.4.3)."""
        messages = min(room, self._slice_messages_max)
        average = max(1, messages_left // entries_left)
        return min(entries_left, max(1, messages // average))

    # -- chunks of large messages (semantics 5.2)

    def _deal_singly(
        self, ledger: int, deliveries: list[Delivery], chunks: list[ChunkPlace | None]
    ) -> Sequence[Delivery]:
        """Give entry by entry, a chunk to the consumer that has the chunks before it. If that has no room the chunk
        waits for it, and the entries behind do not."""
        book, affinity = self.book, self.room.affinity
        for number, (delivery, chunk) in enumerate(zip(deliveries, chunks, strict=True)):
            if book.unacked.stopped:
                return deliveries[number:]
            position = delivery.entry.position
            consumer = affinity.consumer_of(chunk) if chunk is not None else None
            if consumer is not None and not self._can_take(consumer):
                self.room.wait_for(consumer, position)
                continue
            consumer = consumer or self._next_consumer()
            if consumer is None:
                return deliveries[number:]
            if chunk is not None:
                affinity.sent(chunk, consumer)
            book.count(*book.send(consumer, ledger, [delivery]))
            book.given(ledger, (position.entry,), (consumer,))
        return []

    def _can_take(self, consumer: Consumer) -> bool:
        """Whether a chunk may go to ``consumer``: it has room, and no earlier chunk waits for it."""
        return consumer not in self.room.affinity.waiting and self.book.room_at(consumer) > 0

    def _release_chunks(self) -> None:
        """Let chunks go on whose consumers have room again."""
        for consumer in list(self.room.affinity.waiting):
            if self.book.room_at(consumer) > 0:
                self.room.release(consumer)
