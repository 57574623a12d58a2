# SPDX-License-Identifier: Apache-2.0
"""``ManyConsumersDispatcher``: serves all consumers of a Shared or Key_Shared subscription at the same time.

It is put together from parts. An entry that was read and is not acknowledged, in a transaction either, is in exactly
one of three places: held by a consumer (``GivenOut``), in the ``WaitingRoom``, or with ``DelayedTracker``. These are
all the ways between them:

::

    log
     | read
     v             deal
    EntrySource ------------------------------------> GivenOut -------- acked --> gone
     |        |                                        |    ^
     | not    | no consumer                 taken back |    | deal
     | due    | can take it                            v    |
     |        +-------------------------------------> WaitingRoom ----- acked --> gone
     v                      due                          ^   |
    DelayedTracker --------------------------------------+   |
     ^  |             not due any more: the clock went back  |
     |  +-- acked --> gone                                   |
     +-------------------------------------------------------+

An entry that is acknowledged in a transaction goes as if it were acknowledged. When the transaction is aborted, it goes
to the waiting room, or if a consumer holds another part of its batch, to that one.

* ``GivenOut`` is the book of what consumers hold, with permits, counts and limits.
* ``WaitingRoom`` has what no consumer holds: the replay set; on Shared also chunks that wait for one consumer, on
  Key_Shared entries by what their key waits for.
* Subclasses deal, which is to choose the consumers: in turns (``shared.SharedDispatcher``), by key
  (``key_shared.dispatcher.KeySharedDispatcher``).
* ``EntrySource`` reads, waiting entries before new ones, and holds back what is not due.

Consumers may hold very many entries. What all of them hold is taken back, or passed over, a thousand entries in a pass,
and nothing is given out before that is done. So no dealing sees it half done, whatever comes in between.
Source: Pulsar docs, "Subscription types - Shared"; semantics 2.4, 3.3, 4.4, 6.2.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from broker_core.base.positions import Position
from broker_core.base.settings import Settings
from broker_core.broker.consumer import Consumer
from broker_core.broker.dispatch.dispatcher import DispatchContext, Dispatcher, DispatchStats
from broker_core.broker.dispatch.entry_source import EntrySource
from broker_core.broker.dispatch.given_out import GivenOut, WaitingRoom
from broker_core.broker.dispatch.passes import Passes
from broker_core.broker.dispatch.round_robin import RoundRobin
from broker_core.broker.rate_limits import Gate, Room
from broker_core.broker.requests import SubscriptionType
from broker_core.broker.sinks import Delivery
from broker_core.broker.transactions.pending_acks import CumulativeAck
from broker_core.wire.ack_sets import words_of_bits

_SHARE_OF_A_PASS: Final = 2
"""Entries that a pass reads for each of many consumers, where most of its cost is going from one to the other. With
four an entry would cost less still, but other subscriptions would wait for twice as long."""

_TIDIED_A_PASS: Final = 1000
"""Entries that a pass takes back or passes over. Of a Key_Shared subscription they take some milliseconds."""


class ManyConsumersDispatcher(Dispatcher, ABC):
    """Dispatches one Shared or Key_Shared subscription. Its subclass deals."""

    def __init__(self, kind: SubscriptionType, context: DispatchContext, room: WaitingRoom) -> None:
        super().__init__(context.cursor)
        self.kind = kind
        self.room = room
        self._context = context
        self._members: RoundRobin[Consumer] = RoundRobin()
        self._passes = Passes(context.host.turns, self._pass)
        self._gate = Gate(context.rate, context.host.dispatch_rate, self._passes.kick)
        self.book = GivenOut(context, self._members, room, self._passes)
        self.source = EntrySource(context, self.book, room, self._passes.kick)
        self.acked = self.book.acked
        self.acked_entries = self.book.acked_entries
        self.set_aside = self.book.set_aside  # type: ignore[method-assign]
        self._returning: dict[Consumer, None] = {}
        self._passed_over: Position | None = None
        context.acks.listeners.append(self)

    @property
    def consumers(self) -> Sequence[Consumer]:
        return list(self._members)

    @property
    def read_position(self) -> Position:
        return self.source.read_position

    @property
    def unacked_messages(self) -> int:
        return self.book.unacked.messages

    @property
    def blocked(self) -> bool:
        return self.book.unacked.stopped

    @property
    def delayed_entries(self) -> int:
        return self.source.delayed_entries

    def stats(self) -> DispatchStats:
        return DispatchStats(
            type=self.kind.label,
            unacked_messages=self.unacked_messages,
            blocked=self.blocked,
            replay_entries=len(self.room),
            delayed_entries=self.delayed_entries,
        )

    # -- consumers

    def remove(self, leavers: Sequence[Consumer]) -> None:
        """The unacknowledged entries of ``leavers`` go to other consumers, counted as redelivered (semantics 2.4.9)."""
        self._members.remove(leavers)
        self._left(leavers)
        self._take_all_back(leavers)

    @abstractmethod
    def _left(self, leavers: Sequence[Consumer]) -> None:
        """``leavers`` are no members any more; the entries that they hold are taken back next."""

    def close(self) -> None:
        self._passes.close()
        self._gate.close()
        self.book.close()
        self._context.acks.listeners.remove(self)
        self.source.close()

    # -- events

    def can_take_more(self, consumer: Consumer) -> None:
        self.book.refresh(consumer)
        self._passes.kick()

    def entries_came(self) -> None:
        self._passes.kick()

    def read_again(self, positions: Sequence[Position]) -> None:
        """They wait for replay again."""
        self.book.wait_again(positions)
        self._passes.kick()

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None) -> None:
        """Take back what is pending at this consumer; ids that are not are ignored (semantics 4.4.1)."""
        if positions is None:
            self._take_all_back((consumer,))
            return
        self.book.take(consumer, positions)
        self.book.unacked.settle()
        self._passes.kick()

    def acks_settled(self) -> None:
        self.book.acks_settled()
        if self._passes.woken:
            self._passes.kick()

    def give_back(self, messages: Mapping[Position, int], cumulative: CumulativeAck | None) -> None:
        """An entry that was not read yet will be. A cumulative acknowledgement is of a dispatcher of another type, so
        nothing of it was given out by this one."""
        read_position = self.source.read_position
        back = {position: bits for position, bits in messages.items() if position < read_position}
        if cumulative is not None:
            cursor, log = self._cursor, self._context.reader.log
            each = cursor.skip_acked(cursor.first_unacked())
            while each <= cumulative.position and each < read_position:
                back[each] = back.get(each, 0) | cumulative.covers(each)
                each = cursor.skip_acked(log.next_valid(each))
        for position, bits in back.items():
            self.book.give_back(position, bits)
        self._passes.kick()

    def _send_what_comes_back(self, rates: Room) -> bool:
        """Send messages to consumers that hold other messages of their entries, and have room; true if there are more
        than ``rates`` leave room for."""
        book, traffic = self.book, self._context.traffic
        messages_max, bytes_max = traffic.messages + rates.messages, traffic.bytes + rates.size_bytes
        for position, bits in list(book.coming_back.items()):
            if traffic.messages >= messages_max or traffic.bytes >= bytes_max:
                return True
            owner = book.owners.get(position)
            if owner is not None and book.room_at(owner) <= 0:
                continue
            del book.coming_back[position]
            entry = None if owner is None else self.source.read_one(position)
            if owner is None or entry is None:
                continue
            bits &= self._context.open.left_of(position, entry.messages)
            if bits:
                redeliveries = book.redeliveries.get(position) or 0
                book.send_more(owner, Delivery(entry, redeliveries, words_of_bits(bits)), bits.bit_count())
        return False

    def settings_changed(self, settings: Settings) -> None:
        self.book.limit_consumers(settings.max_unacked_messages_per_consumer)
        self.book.unacked.set_limit(settings.max_unacked_messages_per_subscription)
        self._passes.kick()
        self.source.settings_changed(settings)

    def passed_over(self, mark_delete: Position) -> None:
        """Entries up to ``mark_delete`` that consumers hold, or that wait, are acknowledged for all (semantics 7.2)."""
        self.book.redeliveries.forget_through(mark_delete)  # wherever they waited
        self.source.passed_over(mark_delete)
        self._passed_over = mark_delete
        self._tidy_up()
        self._passes.kick()

    # -- tidying up

    def _take_all_back(self, consumers: Sequence[Consumer]) -> None:
        """Take back all that is pending at ``consumers``, whether they have left or not."""
        self._returning.update(dict.fromkeys(consumers))
        self._tidy_up()
        self._passes.kick()

    def _tidy_up(self) -> None:
        """Take back and pass over some of what has to be: all of it, as a rule."""
        book, room = self.book, _TIDIED_A_PASS
        while self._returning and room > 0:
            consumer = next(iter(self._returning))
            room -= book.take_first(consumer, room) + 1
            if not consumer.pending:
                del self._returning[consumer]
                book.unblock_if_room(consumer)
        if self._passed_over is not None and room > 0:
            self._pass_some_over(self._passed_over, room)
        book.unacked.settle()

    def _pass_some_over(self, mark_delete: Position, most: int) -> None:
        """Up to ``most`` entries of each kind: those that consumers hold, and those that wait."""
        held = self.book.owners.first_through(mark_delete, most)
        for position in held:
            self.acked(position, 0)
        if self.room.discard_through(mark_delete, most) and len(held) < most:
            self._passed_over = None

    # -- one pass (semantics 2.4.4)

    def _pass(self) -> bool:
        """Tidy up, or read once and deal out; true if it is worth coming back."""
        self._passes.woken = False
        if self._returning or self._passed_over is not None:
            self._tidy_up()
            return True
        self.book.now_ms = self._context.host.clock.now_ms()
        if self.book.unacked.stopped:
            return False
        if self.book.coming_back and self._within_rates(self._send_what_comes_back):
            return True
        wanted = self._wanted_entries()
        if not wanted:
            return False
        if self._gate.limited:
            return self._within_rates(lambda room: self._deal_out(min(wanted, self._entries_for(room))))
        return self._deal_out(wanted)

    def _within_rates(self, send: Callable[[Room], bool]) -> bool:
        """Send no more than the rates leave room for, as far as the mean size of entries tells."""
        room = self._gate.room()
        if room is None:
            return False
        traffic = self._context.traffic
        messages, size_bytes = traffic.messages, traffic.bytes
        more = send(room)
        self._gate.take(traffic.messages - messages, traffic.bytes - size_bytes)
        return more

    def _entries_for(self, room: Room) -> int:
        messages = min(room.messages, room.size_bytes / max(1.0, self._context.traffic.bytes_per_message))
        return max(1, int(messages / self.book.average_messages))

    @abstractmethod
    def _deal_out(self, wanted: int) -> bool:
        """Read up to ``wanted`` entries once and deal them out; true if it is worth coming back."""

    def _wanted_entries(self) -> int:
        """How many entries to read: what the available consumers have permits for, within the limit of one pass.

        With many consumers that limit is two for each: most of what a pass costs there is to go from one to the other.
        """
        share = _SHARE_OF_A_PASS * self._members.available_count()
        entries_max = max(self._context.settings.dispatcher_max_read_batch_size, share)
        average_messages = self.book.average_messages
        messages_max = entries_max * average_messages
        permits = 0
        for consumer in self._members.available():
            if not consumer.sink.writable:
                self._members.set_available(consumer, False)
                continue
            permits += consumer.permits
            if permits >= messages_max:
                return entries_max
        return max(1, int(permits / average_messages)) if permits else 0
