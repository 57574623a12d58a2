# SPDX-License-Identifier: Apache-2.0
"""Dispatch of Exclusive and Failover subscriptions: one consumer is active and gets everything in order.

Entries go out in strict order of position. Sending again means going back to the first unacknowledged entry, be it on
request or because another consumer became the active one; so nothing has to be remembered for each entry. Only after
the abort of a transaction exactly those messages are sent again that it had acknowledged (``_again``), out of order.
Source: Pulsar docs, "Subscription types"; semantics 2.2, 2.3.4, 2.3.5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, islice

from broker_core.base.clock import TimerHandle
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.broker.consumer import Consumer
from broker_core.broker.dispatch.active_consumer import ActiveConsumer
from broker_core.broker.dispatch.dispatcher import DispatchContext, Dispatcher, DispatchStats
from broker_core.broker.dispatch.key_shared.selectors import StickyRanges, wanted_ranges
from broker_core.broker.dispatch.passes import Passes
from broker_core.broker.positions import PositionSet
from broker_core.broker.rate_limits import Gate
from broker_core.broker.requests import SubscriptionType
from broker_core.broker.sinks import Delivery
from broker_core.broker.transactions.message_set import WHOLE, MessageSet
from broker_core.broker.transactions.pending_acks import CumulativeAck
from broker_core.storage.ledger import StoredEntry
from broker_core.wire.ack_sets import all_bits, words_of_bits
from broker_core.wire.entry_peek import sticky_key

_JUMPED_A_PASS = 2000
"""Entries of a cumulative acknowledgement in a transaction that are noted in one pass, which takes some 3 ms."""

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
        self._open = context.open
        self._again = MessageSet()
        self._jumped = MessageSet()
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
        if self.active is not None:
            self._context.serve(self.active)
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
        """Reading goes on where it stopped; ``positions`` were to be sent again."""
        self.give_back(dict.fromkeys(positions, WHOLE), None)

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
        self._again.clear()
        self._jumped.clear()
        self._reader.retry_damaged()

    # -- transactions

    def give_back(self, messages: Mapping[Position, int], cumulative: CumulativeAck | None) -> None:
        """An entry that was not read yet will be. What the consumer was given before it acknowledged it cumulatively
        stays with it: Pulsar sends nothing of that, for it would come behind newer messages."""
        for position, bits in messages.items():
            if position < self.read_position:
                self._again.add(position, bits)
        if cumulative is not None:
            for position, bits in self._jumped.items():
                self._again.add(position, bits)
            self._jumped.clear()
        self._passes.kick()

    def _skip(self, start: Position) -> Position:
        """The first place at or after ``start`` of which something is open. What is passed because of a cumulative
        acknowledgement in a transaction is remembered: nobody has it if that is aborted. Of very many entries only
        some are passed at a time."""
        slot = self._open.pending.cumulative
        if slot is None or start > slot.position:
            return self._open.skip(start)
        log = self._reader.log
        each, left = self._cursor.skip_acked(start), _JUMPED_A_PASS
        while each <= slot.position:
            if not left:
                return each
            left -= 1
            self._jumped.add(each, slot.covers(each))
            each = self._cursor.skip_acked(log.next_valid(each))
        return self._open.skip(start)

    def _send_again(self, consumer: Consumer, messages_max: int, entries_max: int, bytes_max: int) -> None:
        """Send messages that a transaction had acknowledged, which was aborted."""
        again, wanted = self._again, PositionSet()
        for position in chain(islice(again.whole, entries_max), islice(sorted(again.batches), entries_max)):
            wanted.add(position)
        entries, missing = self._reader.read_set(wanted, entries_max, bytes_max)
        for position in missing:
            again.remove(position)
        slot = self._open.pending.cumulative
        deliveries: list[Delivery] = []
        messages = 0
        for entry in entries:
            if messages >= messages_max:
                break
            position = entry.position
            back = again.get(position)
            again.remove(position)
            if slot is not None:
                self._jumped.add(position, back & slot.covers(position))
            bits = back & self._open.left_of(position, entry.messages)
            if bits:
                deliveries.append(_delivery(entry, bits))
                messages += bits.bit_count()
        if deliveries:
            self._hand_out(consumer, deliveries, messages)

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
        entries_max = min(settings.dispatcher_max_read_batch_size, max(1, int(messages / self._average_messages)))
        bytes_max = min(settings.dispatcher_max_read_size_bytes, room.size_bytes)
        if self._again:
            self._send_again(consumer, messages, entries_max, bytes_max)
            return True
        start = self.read_position
        if not self._open.untouched_from(start):
            start = self.read_position = self._skip(start)
            slot = self._open.pending.cumulative
            if slot is not None and slot.covers(start) == WHOLE:
                return True  # there is more to pass
        entries = self._reader.read(start, entries_max, bytes_max)
        if not entries:
            return False
        if self._filter is not None:
            self._sort_out(self._filter, entries)
        if self._open.untouched_from(entries[0].position):
            self._send(consumer, entries)
        else:
            self._send_filtered(consumer, entries)
        return consumer.permits > 0 and self._reader.has_more(self.read_position)

    def _send(self, consumer: Consumer, entries: list[StoredEntry]) -> None:
        """The usual case: nothing of ``entries`` is acknowledged, all of it is sent unless permits run out."""
        messages = sum([entry.messages for entry in entries])
        if messages > consumer.permits:
            entries, messages = _affordable(entries, consumer.permits)
        self._pass_by(entries[-1])
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
        left_of = self._open.left_of
        deliveries: list[Delivery] = []
        messages = 0
        for entry in entries:
            bits = left_of(entry.position, entry.messages)
            if not bits:
                continue
            if messages >= consumer.permits:
                break
            deliveries.append(_delivery(entry, bits))
            messages += bits.bit_count()
        self._pass_by(deliveries[-1].entry if deliveries else entries[-1])
        if deliveries:
            self._hand_out(consumer, deliveries, messages)

    def _hand_out(self, consumer: Consumer, deliveries: list[Delivery], messages: int) -> None:
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


def _delivery(entry: StoredEntry, bits: int) -> Delivery:
    """Delivery of the messages ``bits`` of ``entry``."""
    return Delivery(entry, 0, None if bits == all_bits(entry.messages) else words_of_bits(bits))


def _affordable(entries: list[StoredEntry], permits: int) -> tuple[list[StoredEntry], int]:
    """The first of ``entries`` that ``permits`` pay for, the last one maybe on credit; and their messages."""
    messages = 0
    for count, entry in enumerate(entries):
        if messages >= permits:
            return entries[:count], messages
        messages += entry.messages
    return entries, messages
