# SPDX-License-Identifier: Apache-2.0
"""Dispatch of Shared subscriptions: entries are dealt out in slices, round robin among the consumers with room.

Every unacknowledged entry that was read is in exactly one place: with one consumer (``Consumer.pending``) or in the
set of those that wait to be sent again (``_replay``). Entries that were read but found nobody are simply read again
later. Waiting entries go before new ones, lowest position first. Source: Pulsar docs, "Subscription types - Shared";
semantics 2.4, 3.3, 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker_core.base.positions import Position
from broker_core.broker.ack_sets import words_of_bits
from broker_core.broker.consumer import Consumer
from broker_core.broker.dispatcher import DispatchContext
from broker_core.broker.passes import Passes
from broker_core.broker.position_set import PositionSet
from broker_core.broker.redelivery import RedeliveryCounter
from broker_core.broker.requests import SubscriptionType
from broker_core.broker.round_robin import RoundRobin
from broker_core.broker.sinks import Delivery
from broker_core.storage.ledger import StoredEntry


class SharedDispatcher:
    """Deals the entries of one Shared subscription out to its consumers."""

    kind = SubscriptionType.SHARED
    active: Consumer | None = None

    def __init__(self, context: DispatchContext) -> None:
        settings = context.settings
        self.read_position = context.cursor.first_unacked()
        self.unacked_messages = 0
        self.blocked = False
        self._context = context
        self._cursor = context.cursor
        self._reader = context.reader
        self._crowd: RoundRobin[Consumer] = RoundRobin()
        self._replay = PositionSet()
        self._redeliveries = RedeliveryCounter(enabled=settings.subscription_redelivery_tracker_enabled)
        self._consumer_limit = settings.max_unacked_messages_per_consumer
        self._subscription_limit = settings.max_unacked_messages_per_subscription
        self._average_messages = 1.0
        self._woken = False
        self._passes = Passes(context.timers, self._pass)

    @property
    def consumers(self) -> Sequence[Consumer]:
        return list(self._crowd)

    @property
    def replay_entries(self) -> int:
        """Entries that wait to be sent again."""
        return len(self._replay)

    # -- consumers

    def add(self, consumer: Consumer) -> None:
        self._crowd.add(consumer, consumer.priority)

    def remove(self, consumer: Consumer) -> None:
        """Its unacknowledged entries go to others, counted as redelivered (semantics 2.4.9)."""
        self._crowd.remove(consumer)
        self._take_back(consumer, consumer.pending.take_all())
        self.unacked_messages = sum(other.pending.unacked for other in self._crowd)
        self._resume_if_room()
        self._passes.kick()

    def close(self) -> None:
        self._passes.stop()

    # -- events

    def permits_came(self, consumer: Consumer) -> None:
        self._refresh(consumer)
        self._passes.kick()

    def writable_again(self, consumer: Consumer) -> None:
        self.permits_came(consumer)

    def entries_came(self) -> None:
        self._passes.kick()

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None) -> None:
        """Take back what is pending at this consumer; ids that are not are ignored (semantics 4.4.1)."""
        pending = consumer.pending
        before = pending.unacked
        taken = pending.take_all() if positions is None else [p for p in positions if pending.remove(p)]
        self.unacked_messages -= before - pending.unacked
        self._take_back(consumer, taken)
        self._unblock_if_room(consumer)
        self._resume_if_room()
        self._passes.kick()

    def acked(self, consumer: Consumer, position: Position, remaining: int) -> None:
        """Book it with whoever was given the entry, which need not be who acknowledged it (semantics 3.3.2)."""
        owner = consumer if position in consumer.pending else self._owner(position)
        if owner is not None:
            before = owner.pending.unacked
            if remaining:
                owner.pending.reduce(position, remaining)
            else:
                owner.pending.remove(position)
            self.unacked_messages -= before - owner.pending.unacked
            if owner.blocked:
                self._unblock_if_room(owner)
        if not remaining:
            self._replay.discard(position)
            self._redeliveries.forget(position)

    def acks_settled(self) -> None:
        self._resume_if_room()
        if self._woken:
            self._passes.kick()

    def _owner(self, position: Position) -> Consumer | None:
        return next((consumer for consumer in self._crowd if position in consumer.pending), None)

    def _take_back(self, consumer: Consumer, positions: Iterable[Position]) -> None:
        for position in positions:
            if not self._cursor.is_acked(position):
                self._redeliveries.increment(position)
                self._replay.add(position)
                consumer.redelivered.messages += 1

    # -- limits of unacknowledged messages (semantics 2.4.7)

    def _unblock_if_room(self, consumer: Consumer) -> None:
        if consumer.blocked and consumer.pending.unacked <= self._consumer_limit // 2:
            consumer.blocked = False
            consumer.release_parked_permits()
            self._refresh(consumer)
            self._woken = True

    def _resume_if_room(self) -> None:
        if self.blocked and self.unacked_messages < self._subscription_limit / 2:
            self.blocked = False
            self._woken = True

    def _refresh(self, consumer: Consumer) -> None:
        self._crowd.set_available(consumer, consumer.permits > 0 and not consumer.blocked)

    # -- sending

    def _pass(self) -> bool:
        """Read once and deal out; true if it is worth coming back."""
        self._woken = False
        if self.blocked:
            return False
        wanted = self._wanted_entries()
        if not wanted:
            return False
        if self._replay:
            return self._pass_replay(wanted)
        start = self.read_position
        if self._cursor.has_holes or start <= self._cursor.mark_delete:
            start = self.read_position = self._cursor.skip_acked(start)
        entries = self._reader.read(start, wanted, self._context.settings.dispatcher_max_read_size_bytes)
        if not entries:
            return False
        deliveries = self._deliveries(entries)
        dealt = self._deal(deliveries)
        if dealt < len(deliveries):
            self.read_position = deliveries[dealt].entry.position
        else:
            ledger, entry = entries[-1].position
            self.read_position = Position(ledger, entry + 1)
        return self._reader.has_more(self.read_position)

    def _pass_replay(self, wanted: int) -> bool:
        entries, missing = self._reader.read_set(
            self._replay, wanted, self._context.settings.dispatcher_max_read_size_bytes
        )
        for position in missing:
            self._replay.discard(position)
        deliveries = self._deliveries(entries)
        if len(deliveries) < len(entries):
            for entry in entries:
                if self._cursor.is_acked(entry.position):
                    self._replay.discard(entry.position)
        for delivery in deliveries[: self._deal(deliveries)]:
            self._replay.discard(delivery.entry.position)
        return True

    def _wanted_entries(self) -> int:
        """How many entries to read: what the available consumers have permits for, within the limit of one pass."""
        entries_max = self._context.settings.dispatcher_max_read_batch_size
        messages_max = entries_max * self._average_messages
        permits = 0
        for consumer in self._crowd.available():
            if not consumer.sink.writable:
                self._crowd.set_available(consumer, False)
                continue
            permits += consumer.permits
            if permits >= messages_max:
                return entries_max
        return max(1, int(permits / self._average_messages)) if permits else 0

    def _deliveries(self, entries: list[StoredEntry]) -> list[Delivery]:
        """Everything of ``entries`` that is not acknowledged."""
        cursor, count = self._cursor, self._redeliveries.count
        if not cursor.has_holes:
            return [Delivery(entry, count(entry.position), None) for entry in entries]
        deliveries = []
        for entry in entries:
            position = entry.position
            if not cursor.is_acked(position):
                bits = cursor.partial.get(position)
                deliveries.append(Delivery(entry, count(position), words_of_bits(bits) if bits else None))
        return deliveries

    def _deal(self, deliveries: list[Delivery]) -> int:
        """Give slices to one consumer after the other; returns how many of ``deliveries`` were given."""
        costs = [self._cost(delivery) for delivery in deliveries]
        left, dealt = sum(costs), 0
        if deliveries:
            self._average_messages = max(1.0, left / len(deliveries))
        while dealt < len(deliveries) and not self.blocked:
            consumer = self._next_consumer()
            if consumer is None:
                break
            room = self._room(consumer)
            slice_end = dealt + self._slice_entries(min(room, left), left, len(deliveries) - dealt)
            spent, first = 0, dealt
            while dealt < slice_end and spent < room:
                consumer.pending.add(deliveries[dealt].entry.position, costs[dealt])
                spent += costs[dealt]
                dealt += 1
            left -= spent
            self._hand_out(consumer, deliveries[first:dealt], spent)
        return dealt

    def _next_consumer(self) -> Consumer | None:
        while (consumer := self._crowd.next()) is not None:
            if consumer.sink.writable:
                return consumer
            self._crowd.set_available(consumer, False)
        return None

    def _room(self, consumer: Consumer) -> int:
        """Messages that this consumer may be given now, though the last entry may go beyond."""
        if not self._consumer_limit:
            return consumer.permits
        return min(consumer.permits, self._consumer_limit - consumer.pending.unacked)

    def _slice_entries(self, room: int, messages_left: int, entries_left: int) -> int:
        """Entries given in one go, judged by the mean size of those that are left (semantics 2.4.3)."""
        messages = min(room, self._context.settings.dispatcher_max_round_robin_batch_size)
        average = max(1, messages_left // entries_left)
        return min(entries_left, max(1, messages // average))

    def _hand_out(self, consumer: Consumer, deliveries: list[Delivery], messages: int) -> None:
        self.unacked_messages += messages
        if self._consumer_limit and consumer.pending.unacked >= self._consumer_limit:
            consumer.blocked = True
        if self._subscription_limit and self.unacked_messages >= self._subscription_limit:
            self.blocked = True
        size = sum([len(delivery.entry.body) for delivery in deliveries])
        for traffic in (self._context.traffic, self._context.topic_traffic):
            traffic.messages += messages
            traffic.bytes += size
        consumer.send(deliveries, messages, size, self._context.clock.now_ms())
        self._refresh(consumer)

    def _cost(self, delivery: Delivery) -> int:
        """Permits and unacknowledged messages of one delivery: the messages of the entry that are still open."""
        if delivery.ack_set is None:
            return delivery.entry.messages
        return self._cursor.partial[delivery.entry.position].bit_count()
