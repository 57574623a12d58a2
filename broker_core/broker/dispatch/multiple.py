# SPDX-License-Identifier: Apache-2.0
"""What Shared and Key_Shared have in common: many consumers at once, each entry with exactly one of them.

Every unacknowledged entry that was read is in exactly one place: with one consumer (``Consumer.pending``, which
``_owners`` finds), in the set of those that wait to be sent again (``_replay``), or with ``DelayedEntries`` because it
is not due. Waiting entries go before new ones, lowest position first. Permits, pending acks, redelivery counts, the
limits of unacknowledged messages and the order of work in one pass are here; who gets an entry is the subclass's
(``_deal``).

Consumers may hold very many entries. What all of them hold is taken back, or passed over, a thousand entries in a pass,
and nothing is given out before that is done. So nobody sees it half done, whatever comes in between.
Source: Pulsar docs, "Subscription types - Shared"; semantics 2.4, 3.3, 4.4, 6.2.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, islice, repeat, takewhile
from typing import Final

from broker_core.base.invariants import invariant
from broker_core.base.positions import Position
from broker_core.base.settings import Settings
from broker_core.broker.consumer import Consumer, EntryAcks
from broker_core.broker.dispatch.dispatcher import DelayedEntries, DispatchContext, DispatchStats
from broker_core.broker.dispatch.passes import Passes
from broker_core.broker.dispatch.redelivery import RedeliveryCounter
from broker_core.broker.dispatch.round_robin import RoundRobin
from broker_core.broker.dispatch.unacked_limits import SubscriptionUnacked
from broker_core.broker.positions.position_map import PositionMap
from broker_core.broker.positions.position_set import PositionSet
from broker_core.broker.requests import SubscriptionType
from broker_core.broker.sinks import Delivery
from broker_core.storage.ledger import StoredEntry
from broker_core.wire.ack_sets import words_of_bits

_FEW: Final = 4
"""So many entries are booked one by one: to gather them first costs more."""

_SHARE_OF_A_PASS: Final = 2
"""Entries that a pass reads for each consumer of a large crowd, where most of its cost is going from one to the other.
With four an entry would cost less still, but nobody else would be served for twice as long."""

_TIDIED_A_PASS: Final = 1000
"""Entries that a pass takes back or passes over. Of a Key_Shared subscription they take some milliseconds."""

_delivery_of_fields = partial(tuple.__new__, Delivery)


class MultipleConsumersDispatcher(ABC):
    """Serves all consumers of one subscription at a time."""

    kind: SubscriptionType

    def __init__(self, context: DispatchContext) -> None:
        settings = context.settings
        self.read_position = context.cursor.first_unacked()
        self._context = context
        self._traffic = (context.traffic, context.topic_traffic)
        self._cursor = context.cursor
        self._reader = context.reader
        self._crowd: RoundRobin[Consumer] = RoundRobin()
        self._owners: PositionMap[Consumer] = PositionMap()
        self._replay = PositionSet()
        self._redeliveries = RedeliveryCounter(enabled=settings.subscription_redelivery_tracker_enabled)
        self._returning: dict[Consumer, None] = {}
        self._passed_over: Position | None = None
        self._consumer_limit = settings.max_unacked_messages_per_consumer
        self._average_messages = 1.0
        self._woken = False
        self._pass_ms = 0
        self._passes = Passes(context.turn, self._pass)
        self._unacked = SubscriptionUnacked(
            context.unacked, settings.max_unacked_messages_per_subscription, self._passes.kick_later
        )
        self._delayed: DelayedEntries | None = None
        self._hold_back()
        context.acks.listeners.append(self)

    @property
    def consumers(self) -> Sequence[Consumer]:
        return list(self._crowd)

    @property
    def unacked_messages(self) -> int:
        return self._unacked.messages

    @property
    def blocked(self) -> bool:
        return self._unacked.stopped

    @property
    def replay_entries(self) -> int:
        """Entries that wait to be sent again."""
        return len(self._replay)

    def stats(self) -> DispatchStats:
        return DispatchStats(
            type=self.kind.label,
            unacked_messages=self.unacked_messages,
            blocked=self.blocked,
            replay_entries=self.replay_entries,
            delayed_entries=self._delayed.delayed_entries if self._delayed is not None else 0,
        )

    # -- for subclasses

    @abstractmethod
    def _deal(self, ledger: int, deliveries: list[Delivery]) -> Sequence[Delivery]:
        """Hand out what can be handed out of these, which are of one ledger; the rest, from where dealing stopped."""

    def _requeue(self, position: Position) -> None:
        """``position`` waits to be sent again."""
        self._replay.add(position)

    def _unqueue(self, position: Position) -> None:
        """``position`` does not wait any more; harmless if it did not."""
        self._replay.discard(position)

    def _drop(self, position: Position) -> None:
        """``position`` need not be sent any more."""
        self._unqueue(position)

    def _ready_to_go(self) -> int:
        """Entries that wait to be sent again and may find somebody: with enough of them no due ones are taken out."""
        return len(self._replay)

    @abstractmethod
    def _left(self, leavers: Sequence[Consumer]) -> None:
        """``leavers`` are not of the crowd any more; what they had is taken back next."""

    # -- consumers

    def add(self, consumer: Consumer) -> None:
        self._crowd.add(consumer, consumer.priority)

    def remove(self, leavers: Sequence[Consumer]) -> None:
        """Their unacknowledged entries go to others, counted as redelivered (semantics 2.4.9)."""
        self._crowd.remove(leavers)
        self._left(leavers)
        self._take_all_back(leavers)

    def close(self) -> None:
        self._passes.stop()
        self._unacked.close()
        self._context.acks.listeners.remove(self)
        if self._delayed is not None:
            self._delayed.close()

    # -- events

    def can_take_more(self, consumer: Consumer) -> None:
        self._refresh(consumer)
        self._passes.kick()

    def entries_came(self) -> None:
        self._passes.kick()

    def read_again(self, positions: Sequence[Position]) -> None:
        """They wait for replay again."""
        for position in positions:
            if position not in self._owners and not self._cursor.is_acked(position):
                self._requeue(position)
        self._passes.kick()

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None) -> None:
        """Take back what is pending at this consumer; ids that are not are ignored (semantics 4.4.1)."""
        if positions is None:
            self._take_all_back((consumer,))
            return
        pending = consumer.pending
        before = pending.unacked
        taken = [p for p in positions if pending.remove(p)]
        self._unacked.returned(before - pending.unacked)
        self._take_back(consumer, taken)
        self._unblock_if_room(consumer)
        self._unacked.settle()
        self._passes.kick()

    def acked(self, position: Position, remaining: int) -> None:
        self._book_ack(position, remaining)

    def _book_ack(self, position: Position, remaining: int) -> Consumer | None:
        """Book an ack with whoever was given the entry, which need not be who sent it (semantics 3.3.2); the former."""
        messages = 0
        if not remaining:
            owner = self._owners.pop(position)
            if owner is not None:
                messages = owner.pending.remove(position)
            else:
                self._unqueue(position)  # what is pending does not wait as well
            self._redeliveries.forget(position)
        else:
            owner = self._owners.get(position)
            if owner is not None:
                messages = owner.pending.reduce(position, remaining)
        self._unacked.returned(messages)
        if owner is not None and owner.blocked:
            self._unblock_if_room(owner)
        return owner

    def acked_entries(self, ledger: int, acks: Sequence[EntryAcks], entries: Sequence[int]) -> None:
        returned = 0
        for consumer, theirs in acks:
            pending = consumer.pending
            before = pending.unacked
            others = pending.remove_all(ledger, theirs)
            returned += before - pending.unacked
            for entry in others:
                self.acked(Position(ledger, entry), 0)
            if consumer.blocked:
                self._unblock_if_room(consumer)
        self._unacked.returned(returned)
        self._owners.forget_all(ledger, entries)
        self._redeliveries.forget_all(ledger, entries)

    def acks_settled(self) -> None:
        self._unacked.settle()
        if self._woken:
            self._passes.kick()

    def settings_changed(self, settings: Settings) -> None:
        self._consumer_limit = settings.max_unacked_messages_per_consumer
        for consumer in self._crowd:
            self._block_if_full(consumer)
            self._unblock_if_room(consumer)
            self._refresh(consumer)
        self._unacked.set_limit(settings.max_unacked_messages_per_subscription)
        self._passes.kick()
        if self._delayed is not None:
            self._delayed.settings_changed(settings)  # what is held back already keeps its time (semantics 6.1.9)
        else:
            self._hold_back()

    def passed_over(self, mark_delete: Position) -> None:
        """What consumers hold or what waits of it is acknowledged for all (semantics 7.2)."""
        self._redeliveries.forget_through(mark_delete)  # wherever they waited
        if self._delayed is not None:
            self._delayed.passed_over(mark_delete)
        self._passed_over = mark_delete
        self._tidy_up()
        self._passes.kick()

    def _take_all_back(self, consumers: Sequence[Consumer]) -> None:
        """Take back all that is pending at ``consumers``, whether they have left or not."""
        self._returning.update(dict.fromkeys(consumers))
        self._tidy_up()
        self._passes.kick()

    def _tidy_up(self) -> None:
        """Take back and pass over some of what has to be: all of it, as a rule."""
        room = _TIDIED_A_PASS
        while self._returning and room > 0:
            consumer = next(iter(self._returning))
            before = consumer.pending.unacked
            taken = consumer.pending.take_first(room)
            self._unacked.returned(before - consumer.pending.unacked)
            self._take_back(consumer, taken)
            room -= len(taken) + 1
            if not consumer.pending:
                del self._returning[consumer]
                self._unblock_if_room(consumer)
        if self._passed_over is not None and room > 0:
            self._pass_some_over(self._passed_over, room)
        self._unacked.settle()

    def _pass_some_over(self, mark_delete: Position, most: int) -> None:
        """Up to ``most`` entries of each kind: those that consumers hold, and those that wait."""
        held = self._owners.first_through(mark_delete, most)
        for position in held:
            self.acked(position, 0)
        waiting = list(islice(takewhile(lambda each: each <= mark_delete, self._replay), most))
        for position in waiting:
            self._drop(position)
        if len(held) < most and len(waiting) < most:
            self._passed_over = None

    def _take_back(self, consumer: Consumer, positions: Iterable[Position]) -> None:
        for position in positions:
            former = self._owners.pop(position)
            invariant(former is not None, "%s was with a consumer, and nobody was its owner", position)
            if not self._cursor.is_acked(position):
                self._redeliveries.increment(position)
                self._requeue(position)
                consumer.redelivered.messages += 1

    # -- limits of single consumers (semantics 2.4.7)

    def _block_if_full(self, consumer: Consumer) -> None:
        if self._consumer_limit and consumer.pending.unacked >= self._consumer_limit:
            consumer.blocked = True

    def _unblock_if_room(self, consumer: Consumer) -> None:
        limit = self._consumer_limit
        if consumer.blocked and (not limit or consumer.pending.unacked <= limit // 2):
            consumer.blocked = False
            consumer.release_parked_permits()
            self._refresh(consumer)
            self._woken = True

    def _refresh(self, consumer: Consumer) -> None:
        self._crowd.set_available(consumer, consumer.permits > 0 and not consumer.blocked)

    # -- one pass (semantics 2.4.4)

    def _pass(self) -> bool:
        """Tidy up, or read once and deal out; true if it is worth coming back."""
        self._woken = False
        if self._returning or self._passed_over is not None:
            self._tidy_up()
            return True
        self._pass_ms = self._context.clock.now_ms()
        if self.blocked:
            return False
        wanted = self._wanted_entries()
        if not wanted:
            return False
        if self._delayed is not None and self._ready_to_go() < wanted:
            self._release_due(wanted)
        return self._read_and_deal(wanted)

    def _read_and_deal(self, wanted: int) -> bool:
        """Waiting entries first, one kind in one pass; true if there may be more to do."""
        if not self._replay:
            return self._pass_log(wanted)
        deliveries = self._read_waiting(self._replay, wanted)
        for ledger, run in by_ledger(deliveries):
            left = self._deal(ledger, run)
            for delivery in run[: len(run) - len(left)]:
                self._unqueue(delivery.entry.position)
            if left:
                break
        return True

    def _read_waiting(self, waiting: PositionSet, wanted: int, *, in_order: bool = False) -> list[Delivery]:
        """The lowest of ``waiting``, a part of the replay set; what need not be sent any more is taken out."""
        bytes_max = self._context.settings.dispatcher_max_read_size_bytes
        entries, missing = self._reader.read_set(waiting, wanted, bytes_max, in_order=in_order)
        for position in missing:
            self._drop(position)
        deliveries = self._deliveries(entries)
        if len(deliveries) < len(entries):
            for entry in entries:
                if self._cursor.is_acked(entry.position):
                    self._drop(entry.position)
        if self._delayed is None:
            return deliveries
        due = {entry.position for entry in self._delayed.hold_back_again([each.entry for each in deliveries])}
        for delivery in deliveries:
            if delivery.entry.position not in due:
                self._unqueue(delivery.entry.position)
        return [delivery for delivery in deliveries if delivery.entry.position in due]

    def _pass_log(self, wanted: int) -> bool:
        """Read on in the log; true if there is more."""
        delayed = self._delayed
        if delayed is not None and delayed.paused:
            return False
        start = self.read_position
        untouched = self._cursor.untouched_from(start)
        if not untouched:
            start = self.read_position = self._cursor.skip_acked(start)
        if delayed is not None:
            start = self.read_position = delayed.skip_held(start)
        entries = self._reader.read(start, wanted, self._context.settings.dispatcher_max_read_size_bytes)
        if not entries:
            return False
        due = entries if delayed is None else delayed.hold_back(entries)
        ledger, entry = entries[-1].position
        left = self._deal(ledger, _first_deliveries(due) if untouched else self._deliveries(due))
        if left and due is entries:
            self.read_position = left[0].entry.position
        else:
            # What was held back must not be read twice, so those that found nobody wait apart (semantics 2.4.5).
            for delivery in left:
                self._requeue(delivery.entry.position)
            self.read_position = Position(ledger, entry + 1)
        return self._reader.has_more(self.read_position)

    def _wanted_entries(self) -> int:
        """How many entries to read: what the available consumers have permits for, within the limit of one pass.

        In a large crowd that limit is two for each: most of what a pass costs there is to go from one to the other.
        """
        crowd_share = _SHARE_OF_A_PASS * self._crowd.available_count()
        entries_max = max(self._context.settings.dispatcher_max_read_batch_size, crowd_share)
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
        deliveries = []
        for entry in entries:
            position = entry.position
            if not cursor.is_acked(position):
                bits = cursor.partial.get(position)
                deliveries.append(Delivery(entry, count(position), words_of_bits(bits) if bits else None))
        return deliveries

    # -- delayed delivery (semantics 6.2)

    def _release_due(self, wanted: int) -> None:
        """What has become due waits to be sent, unless it was acknowledged or sent meanwhile."""
        assert self._delayed is not None
        for position in self._delayed.take_due(wanted, self.read_position):
            if not self._cursor.is_acked(position) and position not in self._owners:
                self._requeue(position)

    def _hold_back(self) -> None:
        """Hold messages back from now on, unless delayed delivery is switched off."""
        self._delayed = self._context.track_delays()
        if self._delayed is not None:
            self._delayed.start(self._passes.kick)

    # -- handing out

    def _room(self, consumer: Consumer) -> int:
        """Messages that this consumer may be given now, though the last entry may go beyond."""
        if consumer.blocked or not consumer.sink.writable:
            return 0
        room, limit = consumer.permits, self._consumer_limit
        if limit and consumer.pending.unacked + room > limit:
            return limit - consumer.pending.unacked
        return room

    def _send(self, consumer: Consumer, ledger: int, deliveries: list[Delivery]) -> tuple[int, int]:
        """Send ``deliveries``, all of one ledger; their messages and bytes. ``_owners`` and ``_sent`` come after it."""
        if len(deliveries) <= _FEW:  # as in a large crowd
            messages = size_bytes = 0
            for delivery in deliveries:
                cost = self._cost(delivery)
                consumer.pending.add(delivery.entry.position, cost)
                messages += cost
                size_bytes += len(delivery.entry.body)
        else:
            costs = self._costs(deliveries)
            messages, size_bytes = sum(costs), sum([len(delivery.entry.body) for delivery in deliveries])
            consumer.pending.add_all(ledger, entries_of(deliveries), costs, messages)
        consumer.send(deliveries, messages, size_bytes, self._pass_ms)
        self._block_if_full(consumer)
        if consumer.permits <= 0 or consumer.blocked:
            self._refresh(consumer)
        return messages, size_bytes

    def _sent(self, messages: int, size_bytes: int) -> None:
        """Book what was sent, to one consumer or to many."""
        self._unacked.given(messages)
        for traffic in self._traffic:
            traffic.messages += messages
            traffic.bytes += size_bytes

    def _costs(self, deliveries: Iterable[Delivery]) -> list[int]:
        """``_cost`` of each."""
        if not self._cursor.partial:
            return [delivery.entry.messages for delivery in deliveries]
        return [self._cost(delivery) for delivery in deliveries]

    def _cost(self, delivery: Delivery) -> int:
        """Permits and unacknowledged messages of one delivery: the messages of the entry that are still open."""
        if delivery.ack_set is None:
            return delivery.entry.messages
        return self._cursor.partial[delivery.entry.position].bit_count()


def by_ledger(deliveries: Iterable[Delivery]) -> Iterator[tuple[int, list[Delivery]]]:
    """``deliveries`` in runs of one ledger. A replay may come from several, and not in their order."""
    for ledger, run in groupby(deliveries, lambda delivery: delivery.entry.position.ledger):
        yield ledger, list(run)


def entries_of(deliveries: Iterable[Delivery]) -> list[int]:
    """Their entry ids."""
    return [delivery.entry.position.entry for delivery in deliveries]


def _first_deliveries(entries: list[StoredEntry]) -> list[Delivery]:
    """``entries`` are given out for the first time, and nothing of them is acknowledged."""
    return list(map(_delivery_of_fields, zip(entries, repeat(0), repeat(None), strict=False)))
