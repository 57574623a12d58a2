# SPDX-License-Identifier: Apache-2.0
"""How Key_Shared subscriptions deal: each key has one consumer at a time, which gets its entries in order.

A mapping (``Selector``) says which consumer owns a key. When it changes, a key of which the old owner still has
unacknowledged entries waits for them (``DrainingHashes``, or ``RecordedPositions`` on top), unless consumers allowed
out-of-order delivery or bring their own ranges, which never move. An entry that its owner cannot take now waits in
``waiting_room`` and holds up later ones of its hash, while other keys go on, up to a limit of waiting entries
(look-ahead). Source: Pulsar docs, "Key_Shared"; PIP-34, PIP-119, PIP-282, PIP-379; semantics 2.5 to 2.11.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from broker_core.base.errors import ConsumerBusyError
from broker_core.base.positions import Position
from broker_core.broker.consumer import Consumer, EntryAcks
from broker_core.broker.dispatch.dispatcher import DispatchContext, DispatchStats
from broker_core.broker.dispatch.entry_source import by_ledger
from broker_core.broker.dispatch.given_out import entries_of
from broker_core.broker.dispatch.key_shared.draining import DrainingHashes, RecordedPositions, key_stats
from broker_core.broker.dispatch.key_shared.selectors import Hashes, make_selector
from broker_core.broker.dispatch.key_shared.waiting_room import KeyWaitingRoom
from broker_core.broker.dispatch.many_consumers import ManyConsumersDispatcher
from broker_core.broker.requests import KeySharedMode, KeySharedPolicy, SubscriptionType
from broker_core.broker.sinks import Delivery
from broker_core.wire.entry_peek import sticky_keys

_HASHES_KNOWN_MAX: Final = 1 << 16
"""Owners that are remembered by hash: all of them where hashes are slots."""

_ALL_HASHES: Final = range(1 << 32)
"""Every hash that a mapping may compute."""


class KeySharedDispatcher(ManyConsumersDispatcher):
    """Dispatches one Key_Shared subscription. ``policy`` is that of the first consumer and binds all."""

    room: KeyWaitingRoom

    def __init__(self, policy: KeySharedPolicy, context: DispatchContext) -> None:
        settings = context.settings
        self.policy = policy
        self.selector = make_selector(policy.mode, settings)
        self.draining = DrainingHashes()
        self.recorded = RecordedPositions()
        super().__init__(SubscriptionType.KEY_SHARED, context, KeyWaitingRoom(self.selector, self.draining))
        self._hashes = self.room.hashes
        self._owners_of_hashes: dict[int, Consumer] = {}
        self._keys_move = policy.mode is KeySharedMode.AUTO_SPLIT and not policy.allow_out_of_order
        self._records = self._keys_move and settings.subscription_key_shared_use_classic_persistent_implementation
        self._keyless = None if settings.key_shared_spread_keyless else b"NONE_KEY"
        self.book.watch(self)

    def stats(self) -> DispatchStats:
        keys = key_stats(self._members, self.selector, self.draining, self.recorded)
        return replace(super().stats(), key_shared=self.policy, keys=keys)

    # -- consumers

    def add(self, consumer: Consumer) -> None:
        self._check_policy(consumer)
        losers = self.selector.add(consumer)
        unacked = self._cursor.first_unacked() < self.source.read_position
        if self._records and unacked and len(self._members):
            self.recorded[consumer] = self.source.read_position
        self._members.add(consumer, 0)
        self._owners_of_hashes.clear()
        if losers and self._hashes:
            self._hashes_moved(losers, among=self.selector.hashes_of(consumer))
        self.room.look_at_holes()
        self._passes.kick()  # others may go on: with one more consumer more entries may wait

    def _check_policy(self, consumer: Consumer) -> None:
        wanted = consumer.request.key_shared
        if wanted.mode is not self.policy.mode or wanted.allow_out_of_order is not self.policy.allow_out_of_order:
            raise ConsumerBusyError(
                f"subscription {self._context.subscription!r} of {self._context.host.name} is of different type: its "
                f"keys are shared out as {_describe(self.policy)}, asked for was {_describe(wanted)}",
                hint="use the same Key_Shared policy, or wait until all its consumers have left",
            )

    def _left(self, leavers: Sequence[Consumer]) -> None:
        """The keys of ``leavers`` get other owners; entries that the leavers held will wait for these."""
        losers: set[Consumer] = set()
        for consumer in leavers:
            losers.update(self.selector.remove(consumer))
            self.draining.forget(consumer)
            self.draining.cleared.pop(consumer, None)
            self.recorded.pop(consumer, None)
        if len(self._members) == 1:
            self.recorded.clear()
        self._owners_of_hashes.clear()
        self._hashes_moved(losers.difference(leavers), leavers)

    def _hashes_moved(
        self, losers: Collection[Consumer], leavers: Sequence[Consumer] = (), *, among: Hashes = _ALL_HASHES
    ) -> None:
        """Begin draining the hashes that ``losers`` have lost, and let entries wait for the new owners of their hashes
        that waited for ``losers`` or ``leavers``.

        All other waiting entries stay where they are. ``among``: only these hashes can have moved, so that owners of
        others need not be looked up.
        """
        select, waiting = self.selector.select, self.room.keys
        if self._keys_move:
            for loser in losers:
                moved = filter(among.__contains__, self.draining.pending_at(loser))
                self.draining.begin(loser, [hash_ for hash_ in moved if select(hash_) is not loser])
        for former in (*losers, *leavers):
            for position in list(waiting.queues.get(former, ())):
                hash_ = self._hashes[position]
                if hash_ in among and select(hash_) is not former:
                    waiting.discard(position, hash_, former)
                    self.room.route(position, hash_)
        for hash_ in filter(among.__contains__, waiting.stalled()):
            owner = select(hash_)
            if owner is not None and not self.draining.blocks(hash_, owner):
                waiting.release(hash_, owner)

    # -- entries that are not pending any more

    def entry_gone(self, owner: Consumer, position: Position) -> None:
        hash_ = self._hashes.pop(position)
        if self._keys_move:
            self._gone(owner, (hash_,))

    def entries_gone(self, ledger: int, acks: Sequence[EntryAcks]) -> None:
        for consumer, theirs in acks:  # ``entry_gone`` has removed those from ``_hashes`` that others held
            if self._keys_move:
                self._gone(consumer, self._hashes.pop_all(ledger, theirs, None))
            else:
                self._hashes.forget_all(ledger, theirs)

    def taken_back(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        if self._keys_move:
            self._gone(consumer, map(self._hashes.get, positions))
        for position in filter(self._cursor.is_acked, positions):
            self._hashes.pop(position)

    def settled(self) -> None:
        if self.recorded and self.recorded.advance(self._cursor.first_unacked()):
            self._passes.woken = True

    def _gone(self, owner: Consumer, hashes: Iterable[int | None]) -> None:
        """Entries with these hashes are no longer pending at ``owner``; None stands for an entry that was not
        pending."""
        for hash_ in self.draining.gone(owner, hashes):
            present_owner = self.selector.select(hash_)
            if present_owner is not None and self.room.keys.release(hash_, present_owner):
                self._passes.woken = True

    # -- one pass

    def _deal_out(self, wanted: int) -> bool:
        """Deal entries that wait and can go, else new entries while not too many wait (semantics 2.9, look-ahead)."""
        self.source.release_due(wanted, self._ready)
        if self.recorded:
            self.recorded.advance(self._cursor.first_unacked())
        if self.room.keys.queues and self._deal_waiting():
            return True
        room = self.look_ahead_room()
        if room <= 0:
            return self._deal_before_recorded(wanted)
        if not self.room.unrouted:
            return self.source.read_on(min(wanted, room), self._deal)
        for ledger, run in by_ledger(self.source.read_waiting(self.room.unrouted, min(wanted, room))):
            self._deal(ledger, run)
        return True

    def _ready(self) -> int:
        """Waiting entries that may find a consumer: with enough of them no due ones are taken out."""
        # What waits for its owner says nothing about other keys, which due entries may have.
        unrouted, gate = self.room.unrouted, self.recorded.gate
        if gate is None or self.look_ahead_room() > 0:
            return len(unrouted)
        return unrouted.count_through(Position(gate.ledger, gate.entry - 1))  # nothing else can be sent now

    def look_ahead_room(self) -> int:
        """How many more entries may wait before no new ones are read; any number if both settings are 0."""
        settings = self._context.settings
        limits = (
            settings.key_shared_look_ahead_msg_in_replay_threshold_per_consumer * len(self._members),
            settings.key_shared_look_ahead_msg_in_replay_threshold_per_subscription,
        )
        return min((limit for limit in limits if limit), default=1 << 62) - len(self.room.keys)

    def _deal_before_recorded(self, wanted: int) -> bool:
        """Entries from before a recorded position go out however many wait: those may wait for just these."""
        gate, first = self.recorded.gate, self.room.unrouted.first()
        if gate is None or first is None or first >= gate:
            return False
        for ledger, run in by_ledger(self.source.read_waiting(self.room.unrouted, wanted)):
            self._deal(ledger, [delivery for delivery in run if delivery.entry.position < gate])
        return True

    def _deal_waiting(self) -> bool:
        """Send what waits to consumers that have room by now; false if none has."""
        entries_max = self._context.settings.dispatcher_max_read_batch_size
        in_order = not self.policy.allow_out_of_order
        book, queues = self.book, self.room.keys.queues
        done = False
        for consumer in [consumer for consumer in queues if consumer.permits > 0]:
            queue = queues[consumer]
            room = min(book.room_at(consumer), book.unacked.budget())
            limit = self.recorded.limit(consumer) if self.recorded else None
            first = queue.first()
            if room <= 0 or first is None or first in self._context.reader.refused:
                continue
            if limit is not None and first >= limit:
                continue
            for ledger, run in by_ledger(self.source.read_waiting(queue, min(room, entries_max), in_order=in_order)):
                room = self._send_waiting(consumer, ledger, run, room, limit)
            done = True
        return done

    def _send_waiting(
        self, consumer: Consumer, ledger: int, run: list[Delivery], room: int, limit: Position | None
    ) -> int:
        """Send what ``consumer`` has ``room`` for of what waited for it, below ``limit``; the room that is left."""
        book = self.book
        share: list[Delivery] = []
        for delivery in run:
            position = delivery.entry.position
            if room <= 0 or (limit is not None and position >= limit):
                break
            self.room.take_queued(position)
            share.append(delivery)
            room -= book.cost(delivery)
        if share:
            book.count(*book.send(consumer, ledger, share))
            given, owners = entries_of(share), [consumer] * len(share)
            book.given(ledger, given, owners)
            if self._keys_move:
                self.draining.given(owners, self._hashes.get_all(ledger, given))
        return room

    def _owner_of(self, hash_: int) -> Consumer | None:
        """The owner of ``hash_``; found again without asking the selector until the mapping changes."""
        owner = self.selector.select(hash_)
        if owner is not None:
            if len(self._owners_of_hashes) >= _HASHES_KNOWN_MAX:
                self._owners_of_hashes.clear()
            self._owners_of_hashes[hash_] = owner
        return owner

    def _deal(self, ledger: int, deliveries: list[Delivery]) -> Sequence[Delivery]:
        """Give each entry to the owner of its key, or let it wait; stops when no consumer can take anything."""
        keys = sticky_keys([delivery.entry.body for delivery in deliveries], self._keyless)
        hashes = list(map(self.selector.hash_of, keys))
        costs = self.book.costs(deliveries)
        owners = self._owners_with_room(hashes, costs)
        if owners is None:
            return self._deal_each(ledger, deliveries, hashes, costs)
        if deliveries:
            self._hand_out(ledger, deliveries, owners, hashes)
        return ()

    def _owners_with_room(self, hashes: Sequence[int], costs: Sequence[int]) -> list[Consumer] | None:
        """The owners of ``hashes``, if all of them can take all of their entries at once and nothing waits; else None.

        Nearly always so, and then no entry has to be looked at by itself.
        """
        if self.recorded or self.draining or self.room.keys or sum(costs) > self.book.unacked.budget():
            return None
        known = self._owners_of_hashes
        owners = [known.get(hash_) or self._owner_of(hash_) for hash_ in hashes]
        needed = Counter(owners)
        dearest, room_at = max(costs, default=0), self.book.room_at
        if any(owner is None or room_at(owner) < entries * dearest for owner, entries in needed.items()):
            return None
        return owners  # type: ignore[return-value] # none of them is None

    def _deal_each(
        self, ledger: int, deliveries: list[Delivery], hashes: Sequence[int], costs: Sequence[int]
    ) -> Sequence[Delivery]:
        """``_deal`` for entries of which some cannot be sent now. What the loop decides is booked once, after it."""
        book, room_of_keys = self.book, self.room
        waiting = () if self.policy.allow_out_of_order else room_of_keys.keys.entries_of
        recorded, draining = self.recorded or None, self.draining or None
        dealt: list[Delivery] = []
        owners: list[Consumer] = []
        their_hashes: list[int] = []
        left: Sequence[Delivery] = ()
        rooms: dict[Consumer, int] = {}
        available, budget = self._members.available_count(), book.unacked.budget()
        for number, (delivery, hash_, cost) in enumerate(zip(deliveries, hashes, costs, strict=True)):
            if not available or budget <= 0:
                left = deliveries[number:]
                break
            position = delivery.entry.position
            owner = self._owners_of_hashes.get(hash_) or self._owner_of(hash_)
            if owner is None:
                room_of_keys.wait(position, hash_, None, stalled=False)
                continue
            room = rooms.get(owner)
            if room is None:
                late = recorded is not None and owner in recorded
                room = rooms[owner] = 0 if late else book.room_at(owner)
            stalled = draining is not None and draining.blocks(hash_, owner)
            if stalled or room <= 0 or hash_ in waiting:
                room_of_keys.wait(position, hash_, owner, stalled=stalled)
                self._passes.end_turn()  # it is read twice now; permits on their way may spare later entries that
                continue
            dealt.append(delivery)
            owners.append(owner)
            their_hashes.append(hash_)
            rooms[owner] = room - cost
            budget -= cost
            if room <= cost:
                available -= 1
        if dealt:
            self._hand_out(ledger, dealt, owners, their_hashes)
        return left

    def _hand_out(
        self, ledger: int, deliveries: Sequence[Delivery], owners: Sequence[Consumer], hashes: Sequence[int]
    ) -> None:
        """Send each of ``deliveries`` to the owner at the same place, and book it."""
        shares: defaultdict[Consumer, list[Delivery]] = defaultdict(list)
        for owner, delivery in zip(owners, deliveries, strict=True):
            shares[owner].append(delivery)
        self._send_all(ledger, shares)
        entries = entries_of(deliveries)
        self.book.given(ledger, entries, owners)
        self._hashes.put_all(ledger, entries, hashes)
        if self._keys_move:
            self.draining.given(owners, hashes)

    def _send_all(self, ledger: int, shares: Mapping[Consumer, list[Delivery]]) -> None:
        entries = messages = size_bytes = 0
        send = self.book.send
        for consumer, share in shares.items():
            cost, its_bytes = send(consumer, ledger, share)
            entries += len(share)
            messages += cost
            size_bytes += its_bytes
        self.book.count(messages, size_bytes)
        self.book.average_messages = max(1.0, messages / entries)


def _describe(policy: KeySharedPolicy) -> str:
    return policy.mode.name + (", out of order allowed" if policy.allow_out_of_order else "")
