# SPDX-License-Identifier: Apache-2.0
"""``GivenOut``: which consumer holds which entry of a Shared or Key_Shared subscription, and what that counts against.

An entry is held by the consumer that ``owners`` names, and is among its pending acks, or it is in the waiting room, or
neither. Between the two it moves only here: ``given`` takes it out of the room, ``acked`` out of either, ``take`` and
``take_first`` put it back into the room. So it is never in both (see the drawing in ``many_consumers``). A consumer
holds the messages of an entry that are open; those that come back to it when a transaction is aborted are
``coming_back`` until they are sent.

Also here: permits, redelivery counts, and the limits of unacknowledged messages. Source: Pulsar docs, "Subscription
types - Shared"; semantics 2.4.6, 2.4.7, 3.3, 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from broker_core.base.invariants import invariant
from broker_core.base.positions import Position
from broker_core.broker.consumer import Consumer, EntryAcks
from broker_core.broker.dispatch.dispatcher import DispatchContext
from broker_core.broker.dispatch.passes import Passes
from broker_core.broker.dispatch.round_robin import RoundRobin
from broker_core.broker.dispatch.unacked_limits import SubscriptionUnacked
from broker_core.broker.positions import PositionMap
from broker_core.broker.sinks import Delivery
from broker_core.wire.ack_sets import bits_of_words


class WaitingRoom(Protocol):
    """The entries of one subscription that were read and that no consumer holds (semantics 2.4.5): for Shared
    ``SharedWaitingRoom``, for Key_Shared ``KeyWaitingRoom``. Rooms know positions, not permits."""

    def __len__(self) -> int:
        """How many wait."""

    def add(self, position: Position) -> None:
        """An entry that no consumer holds any more waits to be sent again."""

    def take(self, ledger: int, entries: Sequence[int]) -> None:
        """Entries were given to consumers; the ones that waited here wait no more."""

    def discard(self, position: Position) -> None:
        """The entry need not be sent any more. Harmless if it does not wait."""

    def discard_through(self, mark_delete: Position, most: int) -> bool:
        """Entries up to ``mark_delete`` need not be sent any more: take up to ``most`` of them out. Whether that was
        all."""


class PendingWatcher(Protocol):
    """A listener that hears which entries are no longer pending. Key_Shared uses it to let later entries of the same
    keys go on."""

    def entry_gone(self, owner: Consumer, position: Position) -> None:
        """The entry that ``owner`` held was acknowledged."""

    def entries_gone(self, ledger: int, acks: Sequence[EntryAcks]) -> None:
        """Whole entries of one ledger were acknowledged; those that another consumer held went by ``entry_gone``."""

    def taken_back(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        """``consumer`` does not hold these entries any more. Entries that are not acknowledged wait again."""

    def settled(self) -> None:
        """All acknowledgements of one request were reported."""


class GivenOut:
    """The book of one subscription. ``members`` are its consumers, of which those with permits are available.

    ``average_messages``: messages of an entry, as far as the last ones tell. ``now_ms``: when the present pass began.
    """

    __slots__ = (
        "_consumer_limit", "_counts_redeliveries", "_cursor", "_members", "_passes", "_pending_acks", "_room",
        "_traffic", "_watcher", "average_messages", "coming_back", "now_ms", "owners", "redeliveries", "unacked",
    )  # fmt: skip

    def __init__(
        self, context: DispatchContext, members: RoundRobin[Consumer], room: WaitingRoom, passes: Passes
    ) -> None:
        settings = context.settings
        self._cursor = context.cursor
        self._pending_acks = context.open.pending
        self._traffic = (context.traffic, context.host.traffic_out)
        self._members = members
        self._room = room
        self._passes = passes
        self._consumer_limit = settings.max_unacked_messages_per_consumer
        self.owners: PositionMap[Consumer] = PositionMap()
        self.redeliveries: PositionMap[int] = PositionMap()
        self.coming_back: dict[Position, int] = {}
        self._counts_redeliveries = settings.subscription_redelivery_tracker_enabled
        self.unacked = SubscriptionUnacked(
            context.host.unacked, settings.max_unacked_messages_per_subscription, passes.kick_later
        )
        self._watcher: PendingWatcher | None = None
        self.average_messages = 1.0
        self.now_ms = 0

    def watch(self, watcher: PendingWatcher) -> None:
        """Tell ``watcher`` from now on of entries that are no longer pending. A book has at most one."""
        invariant(self._watcher is None, "a book of what is given out has one watcher")
        self._watcher = watcher

    def close(self) -> None:
        """Nothing is given out any more, and the watcher is told nothing."""
        self._watcher = None
        self.unacked.close()

    # -- to a consumer

    def room_at(self, consumer: Consumer) -> int:
        """Messages that this consumer may be given now, though the last entry may go beyond."""
        if consumer.blocked or not consumer.sink.writable:
            return 0
        room, limit = consumer.permits, self._consumer_limit
        if limit and consumer.pending.unacked + room > limit:
            return limit - consumer.pending.unacked
        return room

    def send(self, consumer: Consumer, ledger: int, deliveries: list[Delivery]) -> tuple[int, int]:
        """Send ``deliveries``, all of one ledger; their messages and bytes. ``count`` and ``given`` come after it, for
        several consumers together."""
        pending, partial = consumer.pending, self._cursor.partial
        held, beside_pending = pending.of_ledger(ledger), self._pending_acks.any
        before, messages, size_bytes = len(held), 0, 0
        # One loop that calls nothing: with many consumers each gets a few entries of a pass, and calls would cost most.
        for entry, _redelivery_count, ack_set in deliveries:
            position, body, cost, _index, _timestamp = entry
            if ack_set is not None:
                cost = (bits_of_words(ack_set) if beside_pending else partial[position]).bit_count()
            held[position.entry] = cost
            messages += cost
            size_bytes += len(body)
        if len(held) != before + len(deliveries):
            invariant(False, "one of %s was given twice to one consumer", [each.entry.position for each in deliveries])
        pending.unacked += messages
        self._hand_over(consumer, deliveries, messages, size_bytes)
        return messages, size_bytes

    def send_more(self, consumer: Consumer, delivery: Delivery, messages: int) -> None:
        """Send ``messages`` of an entry to ``consumer``, which holds others of it already."""
        size_bytes = len(delivery.entry.body)
        consumer.pending[delivery.entry.position] += messages
        consumer.pending.unacked += messages
        self._hand_over(consumer, [delivery], messages, size_bytes)
        self.count(messages, size_bytes)

    def _hand_over(self, consumer: Consumer, deliveries: list[Delivery], messages: int, size_bytes: int) -> None:
        consumer.send(deliveries, messages, size_bytes, self.now_ms)
        self._block_if_full(consumer)
        if consumer.permits <= 0 or consumer.blocked:
            self._members.set_available(consumer, False)

    def count(self, messages: int, size_bytes: int) -> None:
        """Count what was sent."""
        self.unacked.given(messages)
        for traffic in self._traffic:
            traffic.messages += messages
            traffic.bytes += size_bytes

    def given(self, ledger: int, entries: Sequence[int], owners: Sequence[Consumer]) -> None:
        """Each of ``entries`` was sent to the consumer at the same place in ``owners``; none of them waits any more."""
        if not self.owners.put_all(ledger, entries, owners):
            invariant(False, "one of %s:%s was given out though a consumer had it", ledger, entries)
        self._room.take(ledger, entries)

    def costs(self, deliveries: Iterable[Delivery]) -> list[int]:
        """``cost`` of each."""
        if not self._cursor.partial and not self._pending_acks.any:
            return [delivery.entry.messages for delivery in deliveries]
        return [self.cost(delivery) for delivery in deliveries]

    def cost(self, delivery: Delivery) -> int:
        """Permits and unacknowledged messages of one delivery: the messages of the entry that are still open."""
        if delivery.ack_set is None:
            return delivery.entry.messages
        return bits_of_words(delivery.ack_set).bit_count()

    # -- acknowledged

    def acked(self, position: Position, left: int) -> None:
        """Book an ack with the consumer that holds the entry, which need not have sent it (semantics 3.3.2)."""
        if left and self.coming_back and position in self.coming_back:
            self._acked_beside_coming_back(position, left)
            return
        messages = 0
        if left:
            owner = self.owners.get(position)
            if owner is not None:
                messages = owner.pending.reduce(position, left.bit_count())
        else:
            owner = self.owners.pop(position)
            self.redeliveries.pop(position)
            if owner is None:
                self._room.discard(position)
                self._passes.woken = True  # where it waited there is room for another one
            else:
                messages = owner.pending.remove(position)
                if self._watcher is not None:
                    self._watcher.entry_gone(owner, position)
        self.unacked.returned(messages)
        if owner is not None and owner.blocked:
            self.unblock_if_room(owner)

    def _acked_beside_coming_back(self, position: Position, left: int) -> None:
        coming_back = self.coming_back.pop(position) & left
        held = left & ~coming_back
        self.set_aside(position, held)
        if not coming_back:
            return
        if held:
            self.coming_back[position] = coming_back
        else:
            self._room.add(position)  # nobody holds anything of it any more, so anybody may have them

    def set_aside(self, position: Position, left: int) -> None:
        """Book an ack in a transaction. The entry may come back, and then its redeliveries are counted on."""
        redeliveries = self.redeliveries.get(position)
        self.acked(position, left)
        if redeliveries:
            self.redeliveries[position] = redeliveries

    def acked_entries(self, ledger: int, acks: Sequence[EntryAcks], entries: Sequence[int]) -> None:
        """``acked`` of many whole entries of one ledger."""
        returned = 0
        for consumer, theirs in acks:
            pending = consumer.pending
            before = pending.unacked
            others = pending.remove_all(ledger, theirs)
            returned += before - pending.unacked
            for entry in others:
                self.acked(Position(ledger, entry), 0)
            if consumer.blocked:
                self.unblock_if_room(consumer)
        self.unacked.returned(returned)
        self.owners.forget_all(ledger, entries)
        self.redeliveries.forget_all(ledger, entries)
        if self._watcher is not None:
            self._watcher.entries_gone(ledger, acks)

    def acks_settled(self) -> None:
        """All acknowledgements of one request were reported."""
        if self._watcher is not None:
            self._watcher.settled()
        self.unacked.settle()

    # -- back to the waiting room

    def give_back(self, position: Position, bits: int) -> None:
        """Messages of an entry are open again, as the transaction that had acknowledged them is aborted. If a consumer
        holds others of the entry, they go to it as well."""
        self.count_redelivery(position)
        if position in self.owners:
            self.coming_back[position] = self.coming_back.get(position, 0) | bits
        else:
            self._room.add(position)

    def take(self, consumer: Consumer, positions: Iterable[Position]) -> None:
        """Take back those of ``positions`` that ``consumer`` holds; it may have them again at once."""
        pending = consumer.pending
        before = pending.unacked
        taken = [position for position in positions if pending.remove(position)]
        self._take_back(consumer, taken, before)
        if taken:
            self._unblock_at(consumer, self._consumer_limit - 1)

    def take_first(self, consumer: Consumer, most: int) -> int:
        """Take back up to ``most`` entries, those that ``consumer`` was given first; how many that were."""
        before = consumer.pending.unacked
        taken = consumer.pending.take_first(most)
        self._take_back(consumer, taken, before)
        return len(taken)

    def _take_back(self, consumer: Consumer, positions: Sequence[Position], unacked_before: int) -> None:
        self.unacked.returned(unacked_before - consumer.pending.unacked)
        for position in positions:
            former = self.owners.pop(position)
            if self.coming_back:
                self.coming_back.pop(position, None)  # they wait with the rest of their entry
            invariant(former is consumer, "%s was pending at a consumer that did not own it", position)
            if not self._cursor.is_acked(position):
                self.count_redelivery(position)
                self._room.add(position)
                consumer.redelivered.messages += 1
        if self._watcher is not None:
            self._watcher.taken_back(consumer, positions)

    def count_redelivery(self, position: Position) -> None:
        """The entry is sent once more."""
        if self._counts_redeliveries:
            self.redeliveries[position] = (self.redeliveries.get(position) or 0) + 1

    def wait_again(self, positions: Iterable[Position]) -> None:
        """Let entries wait that were out of reach, unless they were acknowledged or given out meanwhile."""
        for position in positions:
            if position not in self.owners and not self._cursor.is_acked(position):
                self._room.add(position)

    # -- limits of single consumers (semantics 2.4.7)

    def limit_consumers(self, limit: int) -> None:
        """Each consumer may have so many unacknowledged messages from now on (0: any number)."""
        self._consumer_limit = limit
        for consumer in self._members:
            self._block_if_full(consumer)
            self.unblock_if_room(consumer)
            self.refresh(consumer)

    def _block_if_full(self, consumer: Consumer) -> None:
        if self._consumer_limit and consumer.pending.unacked >= self._consumer_limit:
            consumer.blocked = True

    def unblock_if_room(self, consumer: Consumer) -> None:
        """Let ``consumer`` go on if it was blocked and no more than half of its limit is unacknowledged."""
        self._unblock_at(consumer, self._consumer_limit // 2)

    def _unblock_at(self, consumer: Consumer, unacked: int) -> None:
        """Let it go on if it was blocked and has no more than ``unacked`` messages, or there is no limit any more."""
        if consumer.blocked and (not self._consumer_limit or consumer.pending.unacked <= unacked):
            consumer.blocked = False
            consumer.release_parked_permits()
            self.refresh(consumer)
            self._passes.woken = True

    def refresh(self, consumer: Consumer) -> None:
        """``consumer`` may have become available, or unavailable."""
        self._members.set_available(consumer, consumer.permits > 0 and not consumer.blocked)


def entries_of(deliveries: Iterable[Delivery]) -> list[int]:
    """The entry ids of ``deliveries``."""
    return [delivery.entry.position.entry for delivery in deliveries]
