# SPDX-License-Identifier: Apache-2.0
"""Dispatch of Shared subscriptions: entries are dealt out in slices, round robin among the consumers with room.

Everything but the choice of the consumer is ``multiple``'s. Entries that were read but found nobody are simply
read again later; chunks of large messages that found their one consumer without room wait in ``ChunkAffinity``.
Source: Pulsar docs, "Subscription types - Shared"; semantics 2.4.2, 2.4.3, 4.4.4, 5.2.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, repeat

from broker_core.base.positions import Position
from broker_core.broker.consumer import Consumer
from broker_core.broker.dispatch.chunk_affinity import ChunkAffinity
from broker_core.broker.dispatch.dispatcher import DispatchContext
from broker_core.broker.dispatch.multiple import MultipleConsumersDispatcher, entries_of
from broker_core.broker.requests import SubscriptionType
from broker_core.broker.sinks import Delivery
from broker_core.wire.entry_peek import ChunkPlace, chunk_place, may_be_chunks


class SharedDispatcher(MultipleConsumersDispatcher):
    """Deals the entries of one Shared subscription out to its consumers."""

    kind = SubscriptionType.SHARED

    def __init__(self, context: DispatchContext) -> None:
        super().__init__(context)
        self._affinity: ChunkAffinity[Consumer] = ChunkAffinity()
        self._set_aside: list[tuple[Consumer, Position]] = []

    @property
    def replay_entries(self) -> int:
        """Entries that wait to be sent again, or for the one consumer that can use them."""
        return len(self._replay) + len(self._affinity)

    def passed_over(self, mark_delete: Position) -> None:
        self._affinity.discard_through(mark_delete)
        super().passed_over(mark_delete)

    def _deal(self, ledger: int, deliveries: list[Delivery]) -> Sequence[Delivery]:
        """Give slices to one consumer after the other."""
        costs = self._costs(deliveries)
        left, dealt = sum(costs), 0
        if deliveries:
            self._average_messages = max(1.0, left / len(deliveries))
        bodies = [delivery.entry.body for delivery in deliveries]
        if may_be_chunks(bodies):
            chunks = [chunk_place(body) for body in bodies]
            if any(chunks):
                return self._deal_singly(ledger, deliveries, chunks)
        owners: list[Consumer] = []
        while dealt < len(deliveries) and not self.blocked:
            consumer = self._next_consumer()
            if consumer is None:
                break
            room = self._room(consumer)
            most = self._slice_entries(min(room, left), left, len(deliveries) - dealt)
            spent = list(accumulate(costs[dealt : dealt + most]))
            end = dealt + min(bisect_left(spent, room) + 1, most)  # the last one may go beyond the room
            messages, size_bytes = self._send(consumer, ledger, deliveries[dealt:end])
            self._sent(messages, size_bytes)
            owners += repeat(consumer, end - dealt)
            dealt, left = end, left - messages
        if dealt:
            self._owners.put_all(ledger, entries_of(deliveries[:dealt]), owners)
        return deliveries[dealt:]

    def _next_consumer(self) -> Consumer | None:
        while (consumer := self._crowd.next()) is not None:
            if consumer.sink.writable:
                return consumer
            self._crowd.set_available(consumer, False)
        return None

    def _slice_entries(self, room: int, messages_left: int, entries_left: int) -> int:
        """Entries given in one go, judged by the mean size of those that are left (semantics 2.4.3)."""
        messages = min(room, self._context.settings.dispatcher_max_round_robin_batch_size)
        average = max(1, messages_left // entries_left)
        return min(entries_left, max(1, messages // average))

    # -- chunks of large messages (semantics 5.2)

    def _deal_singly(
        self, ledger: int, deliveries: list[Delivery], chunks: list[ChunkPlace | None]
    ) -> Sequence[Delivery]:
        """Give entry by entry, a chunk to whoever has the chunks before it; nobody waits for one without room."""
        for number, (delivery, chunk) in enumerate(zip(deliveries, chunks, strict=True)):
            if self.blocked:
                return deliveries[number:]
            position = delivery.entry.position
            consumer = self._affinity.consumer_of(chunk) if chunk is not None else None
            if consumer is not None and not self._can_take(consumer):
                self._set_aside.append((consumer, position))
                continue
            consumer = consumer or self._next_consumer()
            if consumer is None:
                return deliveries[number:]
            if chunk is not None:
                self._affinity.sent(chunk, consumer)
            self._sent(*self._send(consumer, ledger, [delivery]))
            self._owners[position] = consumer
        return []

    def _can_take(self, consumer: Consumer) -> bool:
        overtakes = self._affinity.has_waiting(consumer) or any(other is consumer for other, _ in self._set_aside)
        return not overtakes and self._room(consumer) > 0

    def _read_and_deal(self, wanted: int) -> bool:
        more = super()._read_and_deal(wanted)
        for consumer, position in self._set_aside:
            self._affinity.wait(consumer, position)
        self._set_aside.clear()
        return more

    def _pass_log(self, wanted: int) -> bool:
        return not self._affinity.is_full and super()._pass_log(wanted)

    def _unqueue(self, position: Position) -> None:
        super()._unqueue(position)
        self._affinity.discard(position)

    def _refresh(self, consumer: Consumer) -> None:
        super()._refresh(consumer)
        if self._affinity.has_waiting(consumer) and consumer.permits > 0 and not consumer.blocked:
            for position in self._affinity.release(consumer):
                self._requeue(position)

    def _left(self, leavers: Sequence[Consumer]) -> None:
        for position in self._affinity.left(leavers):
            self._requeue(position)
