# SPDX-License-Identifier: Apache-2.0
"""Dispatch of Key_Shared subscriptions: each key has one consumer at a time, and gets to it in order.

A mapping (``selector``) says whose a key is. When it changes, a key that the old owner still has unacknowledged entries
of waits for them (``draining``, or ``recorded_positions`` on top of it), unless consumers allowed out-of-order delivery
or bring their own ranges, which never move. An entry that its owner cannot take now waits apart (``waiting``) and
holds up later ones of its hash, while other keys go on, up to a limit of waiting entries (look-ahead). Entries that
nobody owns (``_holes``) are only remembered by position and looked at again when somebody joins.

Every unacknowledged entry that was read is in one place: pending at a consumer, in ``waiting``, in ``_unrouted`` (its
hash is not known yet), in ``_holes``, or not due. ``_replay`` is the union of ``waiting`` and ``_unrouted``.
Source: Pulsar docs, "Key_Shared"; PIP-34, PIP-119, PIP-282, PIP-379; semantics 2.5 to 2.11.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from broker_core.base.errors import ConsumerBusyError
from broker_core.base.positions import Position
from broker_core.broker.consumer import Consumer, EntryAcks
from broker_core.broker.dispatch.dispatcher import DispatchContext, DispatchStats
from broker_core.broker.dispatch.key_shared.draining import DrainingHashes
from broker_core.broker.dispatch.key_shared.key_stats import key_stats
from broker_core.broker.dispatch.key_shared.recorded_positions import RecordedPositions
from broker_core.broker.dispatch.key_shared.selector import Hashes, Selector
from broker_core.broker.dispatch.key_shared.selectors import make_selector
from broker_core.broker.dispatch.key_shared.waiting import WaitingKeys
from broker_core.broker.dispatch.multiple import MultipleConsumersDispatcher, by_ledger, entries_of
from broker_core.broker.positions.position_map import PositionMap
from broker_core.broker.positions.position_set import PositionSet
from broker_core.broker.requests import KeySharedMode, KeySharedPolicy, SubscriptionType
from broker_core.broker.sinks import Delivery
from broker_core.wire.entry_peek import sticky_key

_HASHES_KNOWN_MAX: Final = 1 << 16
"""Owners that are remembered by hash: all of them where hashes are slots."""

_ALL_HASHES: Final = range(1 << 32)
"""Of any mapping."""


class KeySharedDispatcher(MultipleConsumersDispatcher):
    """Serves the consumers of one Key_Shared subscription. ``policy`` is that of the first one and binds all."""

    kind = SubscriptionType.KEY_SHARED

    def __init__(self, context: DispatchContext, policy: KeySharedPolicy) -> None:
        super().__init__(context)
        settings = context.settings
        self.policy = policy
        self.selector: Selector[Consumer] = make_selector(policy.mode, settings)
        self.draining = DrainingHashes()
        self.recorded = RecordedPositions()
        self._keys_move = policy.mode is KeySharedMode.AUTO_SPLIT and not policy.allow_out_of_order
        self._classic = settings.subscription_key_shared_use_classic_persistent_implementation
        self._keyless = None if settings.key_shared_spread_keyless else b"NONE_KEY"
        self._waiting = WaitingKeys()
        self._hashes: PositionMap[int] = PositionMap()
        self._owners_of_hashes: dict[int, Consumer] = {}
        self._unrouted = PositionSet()
        self._holes = PositionSet()

    @property
    def replay_entries(self) -> int:
        return len(self._replay) + len(self._holes)

    def stats(self) -> DispatchStats:
        keys = key_stats(self.consumers, self.selector, self.draining, self.recorded.items())
        return replace(super().stats(), key_shared=self.policy, keys=keys)

    # -- consumers

    def add(self, consumer: Consumer) -> None:
        self._check_policy(consumer)
        losers = self.selector.add(consumer)
        unacked = self._cursor.first_unacked() < self.read_position
        if self._classic and self._keys_move and unacked and len(self._crowd):
            self.recorded.record(consumer, self.read_position)
        self._crowd.add(consumer, 0)
        self._owners_of_hashes.clear()
        if losers and self._hashes:
            self._hashes_moved(losers, among=self.selector.hashes_of(consumer))
        for position in self._holes:  # one of them may be its
            self._replay.add(position)
            self._unrouted.add(position)
        self._holes.clear()
        self._passes.kick()  # others may go on: the look-ahead has grown with the crowd

    def _check_policy(self, consumer: Consumer) -> None:
        wish = consumer.request.key_shared
        if wish.mode is not self.policy.mode or wish.allow_out_of_order is not self.policy.allow_out_of_order:
            raise ConsumerBusyError(
                f"subscription {self._context.subscription!r} of {self._context.topic} is of different type: its keys "
                f"are shared out as {_describe(self.policy)}, asked for was {_describe(wish)}",
                hint="use the same Key_Shared policy, or wait until all its consumers have left",
            )

    def _left(self, leavers: Sequence[Consumer]) -> None:
        """Their keys are others' now; what they had will wait for those."""
        losers: set[Consumer] = set()
        for consumer in leavers:
            losers.update(self.selector.remove(consumer))
            self.draining.forget(consumer)
            self.draining.cleared.pop(consumer, None)
            self.recorded.forget(consumer)
        if len(self._crowd) == 1:
            self.recorded.clear()
        self._owners_of_hashes.clear()
        self._hashes_moved(losers.difference(leavers), leavers)

    def _hashes_moved(
        self, losers: Collection[Consumer], leavers: Sequence[Consumer] = (), *, among: Hashes = _ALL_HASHES
    ) -> None:
        """Find what drains at ``losers``, and put anew what waits and is not theirs or the ``leavers``' any more.

        Whatever else waits stays where it is. ``among``: no others have moved, and nobody need ask whose those are.
        """
        select, hashes = self.selector.select, self._hashes
        if self._keys_move:
            for loser in losers:
                moved = filter(among.__contains__, self.draining.pending_at(loser))
                self.draining.begin(loser, [hash_ for hash_ in moved if select(hash_) is not loser])
        for former in (*losers, *leavers):
            for position in list(self._waiting.queues.get(former, ())):
                hash_ = hashes[position]
                if hash_ in among and select(hash_) is not former:
                    self._waiting.discard(position, hash_, former)
                    self._requeue(position)
        for hash_ in filter(among.__contains__, self._waiting.stalled()):
            heir = select(hash_)
            if heir is not None and not self.draining.blocks(hash_, heir):
                self._waiting.release(hash_, heir)

    # -- waiting entries

    def _requeue(self, position: Position) -> None:
        hash_ = self._hashes.get(position)
        if hash_ is None:
            self._replay.add(position)
            self._unrouted.add(position)
            return
        owner = self.selector.select(hash_)
        stalled = owner is not None and self.draining.blocks(hash_, owner)
        self._wait(position, hash_, owner, stalled=stalled)

    def _wait(self, position: Position, hash_: int, owner: Consumer | None, *, stalled: bool) -> None:
        """``position`` cannot be sent to ``owner`` now; ``stalled``: not before its hash has drained."""
        if self._unrouted:
            self._unrouted.discard(position)
        if owner is None:
            self._replay.discard(position)
            self._hashes.pop(position)
            self._holes.add(position)
        else:
            self._replay.add(position)
            self._hashes[position] = hash_
            self._waiting.add(position, hash_, owner, stalled=stalled)

    def _unqueue(self, position: Position) -> None:
        if self._replay.discard(position):
            hash_ = self._hashes.get(position)
            if hash_ is None:
                self._unrouted.discard(position)
            else:
                self._waiting.discard(position, hash_, self.selector.select(hash_))
        elif self._holes:
            self._holes.discard(position)

    def _drop(self, position: Position) -> None:
        self._unqueue(position)
        self._hashes.pop(position)

    def _ready_to_go(self) -> int:
        # What waits for its owner says nothing about other keys, which due entries may have.
        gate = self.recorded.gate
        if gate is None or self._look_ahead_room() > 0:
            return len(self._unrouted)
        return self._unrouted.count_through(Position(gate.ledger, gate.entry - 1))  # nothing else can be sent now

    # -- acknowledgements and redelivery

    def acked(self, position: Position, remaining: int) -> None:
        owner = self._book_ack(position, remaining)
        if not remaining:
            hash_ = self._hashes.pop(position)
            if owner is None:
                self._woken = True  # if it waited there is room now to look further ahead
            elif self._keys_move:
                self._gone(owner, (hash_,))

    def acked_entries(self, ledger: int, acks: Sequence[EntryAcks], entries: Sequence[int]) -> None:
        super().acked_entries(ledger, acks, entries)
        if not self._keys_move:
            self._hashes.forget_all(ledger, entries)
            return
        for consumer, theirs in acks:  # what of it was pending at others is not in ``_hashes`` any more
            self._gone(consumer, self._hashes.pop_all(ledger, theirs, None))

    def acks_settled(self) -> None:
        if self.recorded and self.recorded.advance(self._cursor.first_unacked()):
            self._woken = True
        super().acks_settled()

    def passed_over(self, mark_delete: Position) -> None:
        self._holes.discard_through(mark_delete)
        super().passed_over(mark_delete)

    def _take_back(self, consumer: Consumer, positions: Iterable[Position]) -> None:
        positions = list(positions)
        super()._take_back(consumer, positions)
        if self._keys_move:
            self._gone(consumer, map(self._hashes.get, positions))
        for position in filter(self._cursor.is_acked, positions):
            self._hashes.pop(position)

    def _gone(self, owner: Consumer, hashes: Iterable[int | None]) -> None:
        """Entries of these hashes are not pending at ``owner`` any more; None: of an entry that was not."""
        for hash_ in self.draining.gone(owner, hashes):
            heir = self.selector.select(hash_)
            if heir is not None and self._waiting.release(hash_, heir):
                self._woken = True

    # -- one pass

    def _read_and_deal(self, wanted: int) -> bool:
        """What waits and can go, else new entries while not too many wait (semantics 2.9, look-ahead)."""
        if self.recorded:
            self.recorded.advance(self._cursor.first_unacked())
        if self._waiting.queues and self._deal_waiting():
            return True
        room = self._look_ahead_room()
        if room <= 0:
            return self._deal_what_newcomers_wait_for(wanted)
        if not self._unrouted:
            return self._pass_log(min(wanted, room))
        for ledger, run in by_ledger(self._read_waiting(self._unrouted, min(wanted, room))):
            self._deal(ledger, run)
        return True

    def _look_ahead_room(self) -> int:
        """How many more entries may wait before no new ones are read."""
        return self._look_ahead_max() - len(self._waiting)

    def _look_ahead_max(self) -> int:
        """Entries that may wait before no new ones are read; 0 in both settings: any number."""
        settings = self._context.settings
        limits = (
            settings.key_shared_look_ahead_msg_in_replay_threshold_per_consumer * len(self._crowd),
            settings.key_shared_look_ahead_msg_in_replay_threshold_per_subscription,
        )
        return min((limit for limit in limits if limit), default=1 << 62)

    def _deal_what_newcomers_wait_for(self, wanted: int) -> bool:
        """Entries from before a recorded position go out however many wait: those may wait for just these."""
        gate, first = self.recorded.gate, self._unrouted.first()
        if gate is None or first is None or first >= gate:
            return False
        for ledger, run in by_ledger(self._read_waiting(self._unrouted, wanted)):
            self._deal(ledger, [delivery for delivery in run if delivery.entry.position < gate])
        return True

    def _deal_waiting(self) -> bool:
        """Send what waits to consumers that have room by now; false if nobody has."""
        entries_max = self._context.settings.dispatcher_max_read_batch_size
        in_order = not self.policy.allow_out_of_order
        done = False
        for consumer in [consumer for consumer in self._waiting.queues if consumer.permits > 0]:
            queue = self._waiting.queues[consumer]
            room = min(self._room(consumer), self._unacked.budget())
            limit = self.recorded.limit(consumer) if self.recorded else None
            first = queue.first()
            if room <= 0 or first is None or self._reader.refuses(first) or (limit is not None and first >= limit):
                continue
            for ledger, run in by_ledger(self._read_waiting(queue, min(room, entries_max), in_order=in_order)):
                share: list[Delivery] = []
                for delivery in run:
                    position = delivery.entry.position
                    if room <= 0 or (limit is not None and position >= limit):
                        break
                    self._unqueue(position)
                    share.append(delivery)
                    room -= self._cost(delivery)
                if share:
                    self._sent(*self._send(consumer, ledger, share))
                    given, owners = entries_of(share), [consumer] * len(share)
                    self._owners.put_all(ledger, given, owners)
                    if self._keys_move:
                        self.draining.given(owners, self._hashes.get_all(ledger, given))
            done = True
        return done

    def _owner_of(self, hash_: int) -> Consumer | None:
        """Whose ``hash_`` is; found again without asking the selector until the mapping changes."""
        owner = self.selector.select(hash_)
        if owner is not None:
            if len(self._owners_of_hashes) >= _HASHES_KNOWN_MAX:
                self._owners_of_hashes.clear()
            self._owners_of_hashes[hash_] = owner
        return owner

    def _deal(self, ledger: int, deliveries: list[Delivery]) -> Sequence[Delivery]:
        """Give each entry to the owner of its key, or let it wait; stops when nobody can take anything."""
        known, hash_of, keyless = self._owners_of_hashes, self.selector.hash_of, self._keyless
        waiting = () if self.policy.allow_out_of_order else self._waiting.entries_of
        recorded, draining = self.recorded or None, self.draining or None
        dealt: list[int] = []
        owners: list[Consumer] = []
        hashes: list[int] = []
        left: Sequence[Delivery] = ()
        shares: dict[Consumer, list[Delivery]] = {}
        rooms: dict[Consumer, int] = {}
        hungry, budget = self._crowd.available_count(), self._unacked.budget()
        for number, (delivery, cost) in enumerate(zip(deliveries, self._costs(deliveries), strict=True)):
            if not hungry or budget <= 0:
                left = deliveries[number:]
                break
            position = delivery.entry.position
            hash_ = hash_of(sticky_key(delivery.entry.body, keyless))
            owner = known.get(hash_) or self._owner_of(hash_)
            if owner is None:
                self._wait(position, hash_, None, stalled=False)
                continue
            room = rooms.get(owner)
            if room is None:
                late = recorded is not None and owner in recorded
                room = rooms[owner] = 0 if late else self._room(owner)
            stalled = draining is not None and draining.blocks(hash_, owner)
            if stalled or room <= 0 or hash_ in waiting:
                self._wait(position, hash_, owner, stalled=stalled)
                self._passes.end_turn()  # it is read twice now; permits that are under way may spare that to the next
                continue
            dealt.append(position.entry)
            owners.append(owner)
            hashes.append(hash_)
            share = shares.get(owner)
            if share is None:
                shares[owner] = [delivery]
            else:
                share.append(delivery)
            rooms[owner] = room - cost
            budget -= cost
            if room <= cost:
                hungry -= 1
        if dealt:
            self._hand_out_all(ledger, shares)
            self._owners.put_all(ledger, dealt, owners)
            self._hashes.put_all(ledger, dealt, hashes)
            if self._keys_move:
                self.draining.given(owners, hashes)
        return left

    def _hand_out_all(self, ledger: int, shares: Mapping[Consumer, list[Delivery]]) -> None:
        entries = messages = size_bytes = 0
        unrouted = bool(self._unrouted)
        for consumer, share in shares.items():
            if unrouted:
                for delivery in share:
                    self._unrouted.discard(delivery.entry.position)
                    self._replay.discard(delivery.entry.position)
            cost, its_bytes = self._send(consumer, ledger, share)
            entries += len(share)
            messages += cost
            size_bytes += its_bytes
        self._sent(messages, size_bytes)
        self._average_messages = max(1.0, messages / entries)


def _describe(policy: KeySharedPolicy) -> str:
    return policy.mode.name + (", out of order allowed" if policy.allow_out_of_order else "")
