# SPDX-License-Identifier: Apache-2.0
"""Dispatch of Exclusive and Failover subscriptions: one consumer is active and gets everything in order.

Entries go out in strict order of position. Sending again always means going back to the first unacknowledged entry, be
it on request or because another consumer became the active one; so nothing has to be remembered for each entry.
Source: Pulsar docs, "Subscription types"; semantics 2.2, 2.3.4, 2.3.5.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker_core.base.clock import TimerHandle
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.broker.consumer import Consumer
from broker_core.broker.dispatch.active_consumer import ActiveConsumer
from broker_core.broker.dispatch.dispatcher import DispatchContext, Dispatcher, DispatchStats
from broker_core.broker.dispatch.key_shared.selectors import StickyRanges, wanted_ranges
from broker_core.broker.dispatch.passes import Passes
from broker_core.broker.rate_limits import Gate
from broker_core.broker.requests import SubscriptionType
from broker_core.broker.sinks import Delivery
from broker_core.storage.ledger import StoredEntry
from broker_core.wire.ack_sets import words_of_bits
from broker_core.wire.entry_peek import sticky_key

_new_tuple = tuple.__new__


class SingleActiveDispatcher(Dispatcher):
    """Serves the active consumer of one Exclusive or Failover subscription."""

    read_position = POSITION_EARLIEST

    def __init__(self, kind: SubscriptionType, context: DispatchContext) -> None:
        super().__init__(context.cursor)
        settings = context.settings
        self.kind = kind
        self.read_position = context.cursor.first_unacked()
        self._context = context
        self._reader = context.reader
        self._active = ActiveConsumer(kind, context.host.name, settings)
        self._filter: StickyRanges[Consumer] | None = None
        self._takeover_delay_s = settings.active_consumer_failover_delay_time_millis / 1000
        self._takeover: TimerHandle | None = None
        self._average_messages = 1.0
        self._passes = Passes(context.host.turns, self._pass)
        self._gate = Gate(context.rate, context.host.dispatch_rate, self._passes.kick)

    @property
    def active(self) -> Consumer | None:
        """The consumer that is served."""
        return self._active.consumer

    @property
    def consumers(self) -> Sequence[Consumer]:
        return self._active.consumers

    # -- consumers

    def add(self, consumer: Consumer) -> None:
        former = self.active
        key_filter = self._filter_of(consumer)
        self._active.add(consumer)
        self._filter = key_filter
        self._follow(former)

    def _filter_of(self, consumer: Consumer) -> StickyRanges[Consumer] | None:
        """The key ranges that ``consumer`` brought; ConsumerAssignError if they cannot be."""
        if not self.kind.is_exclusive or self.consumers or not consumer.request.key_shared.ranges:
            return None
        ranges = StickyRanges(wanted_ranges)
        ranges.add(consumer)
        return ranges

    def remove(self, leavers: Sequence[Consumer]) -> None:
        former = self.active
        self._active.remove(leavers)
        self._follow(former)

    def close(self) -> None:
        self._passes.close()
        self._gate.close()
        self._cancel_takeover()

    def _follow(self, former: Consumer | None) -> None:
        """Hand over if ``former`` is not the active consumer any more."""
        if self.active is not former:
            self._hand_over(pause_s=self._takeover_delay_s if former is not None else 0)

    def _hand_over(self, pause_s: float) -> None:
        """The former consumer may still be busy with what it has, so its successor waits (semantics 2.3.4.1).

        A second change in the meantime does not prolong the pause: what was not served has nothing to finish.
        """
        self._passes.stop()
        if pause_s <= 0:
            self._take_over()
        elif self._takeover is None:
            self._takeover = self._context.host.timers.call_later(pause_s, self._take_over)

    def _take_over(self) -> None:
        self._cancel_takeover()
        self._rewind()
        self._passes.kick()

    def _cancel_takeover(self) -> None:
        if self._takeover is not None:
            self._takeover.cancel()
            self._takeover = None

    # -- events

    def can_take_more(self, consumer: Consumer) -> None:
        if consumer is self.active:
            self._passes.kick()

    def entries_came(self) -> None:
        self._passes.kick()

    def read_again(self, positions: Sequence[Position]) -> None:
        """Nothing is taken out of the order; reading goes on where it stopped."""
        self._passes.kick()

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None) -> None:
        """Everything unacknowledged again; single ids are not honoured here (semantics 2.3.5.2)."""
        if consumer is self.active:
            self._rewind()
            self._passes.kick()

    def stats(self) -> DispatchStats:
        active = self.active
        return DispatchStats(type=self.kind.label, active_consumer=active.name if active is not None else "")

    def _rewind(self) -> None:
        self.read_position = self._cursor.first_unacked()
        self._reader.retry_damaged()

    # -- sending

    def _pass(self) -> bool:
        """Read once and send; true if it is worth coming back."""
        consumer = self._active.consumer
        if consumer is None or self._takeover is not None or consumer.permits <= 0 or not consumer.sink.writable:
            return False
        room = self._gate.room()
        if room is None:
            return False
        settings = self._context.settings
        messages = min(consumer.permits, room.messages)
        start = self.read_position
        if not self._cursor.untouched_from(start):
            start = self.read_position = self._cursor.skip_acked(start)
        entries = self._reader.read(
            start,
            min(settings.dispatcher_max_read_batch_size, max(1, int(messages / self._average_messages))),
            min(settings.dispatcher_max_read_size_bytes, room.size_bytes),
        )
        if not entries:
            return False
        if self._filter is not None:
            self._sort_out(self._filter, entries)
        if self._cursor.untouched_from(entries[0].position):
            self._send(consumer, entries)
        else:
            self._send_filtered(consumer, entries)
        return consumer.permits > 0 and self._reader.has_more(self.read_position)

    def _send(self, consumer: Consumer, entries: list[StoredEntry]) -> None:
        """The usual case: nothing of ``entries`` is acknowledged, all of it is sent unless permits run out."""
        messages = sum([entry.messages for entry in entries])
        if messages > consumer.permits:
            entries, messages = _affordable(entries, consumer.permits)
        self._hand_out(consumer, [_new_tuple(Delivery, (entry, 0, None)) for entry in entries], messages)

    def _sort_out(self, wanted: StickyRanges[Consumer], entries: list[StoredEntry]) -> None:
        """Acknowledge what is outside of the ranges that the consumer brought (semantics 2.2.4)."""
        outside = [
            entry.position.entry for entry in entries if wanted.select(wanted.hash_of(sticky_key(entry.body))) is None
        ]
        if outside:
            self._context.acks.ack_unsent(entries[0].position.ledger, outside)

    def _send_filtered(self, consumer: Consumer, entries: list[StoredEntry]) -> None:
        """Leave out what is acknowledged and mask batches of which a part is; acknowledged messages cost no permits."""
        is_acked, partial = self._cursor.is_acked, self._cursor.partial
        deliveries: list[Delivery] = []
        messages = 0
        for entry in entries:
            position = entry.position
            if is_acked(position):
                continue
            if messages >= consumer.permits:
                break
            bits = partial.get(position)
            deliveries.append(Delivery(entry, 0, words_of_bits(bits) if bits else None))
            messages += bits.bit_count() if bits else entry.messages
        if deliveries:
            self._hand_out(consumer, deliveries, messages)
        else:
            self._pass_by(entries[-1])

    def _hand_out(self, consumer: Consumer, deliveries: list[Delivery], messages: int) -> None:
        self._pass_by(deliveries[-1].entry)
        self._average_messages = max(1.0, messages / len(deliveries))
        size = sum([len(delivery.entry.body) for delivery in deliveries])
        for traffic in (self._context.traffic, self._context.host.traffic_out):
            traffic.messages += messages
            traffic.bytes += size
        self._gate.take(messages, size)
        consumer.send(deliveries, messages, size, self._context.host.clock.now_ms())

    def _pass_by(self, entry: StoredEntry) -> None:
        ledger, number = entry.position
        self.read_position = Position(ledger, number + 1)


def _affordable(entries: list[StoredEntry], permits: int) -> tuple[list[StoredEntry], int]:
    """The first of ``entries`` that ``permits`` pay for, the last one maybe on credit; and their messages."""
    messages = 0
    for count, entry in enumerate(entries):
        if messages >= permits:
            return entries[:count], messages
        messages += entry.messages
    return entries, messages
