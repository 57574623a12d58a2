# SPDX-License-Identifier: Apache-2.0
"""The reference model of a whole broker's machine: one log, and for each subscription what must be true of it.

Owns no broker: it is told what was asked for and what came, and says when something came that must not. ``open``:
position -> bits of messages that nobody has acknowledged; ``safe``: the same, as it was when all was durable last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from broker_core.base.positions import Position
from broker_core.base.settings import Settings
from broker_core.broker import Consumer, Delivery, SubscriptionType
from broker_core.broker.ack_sets import all_bits, words_of_bits
from broker_core.testing.virtual_timers import VirtualTimers

LIMITS = Settings(
    managed_ledger_max_entries_per_ledger=4,
    managed_ledger_min_ledger_rollover_time_minutes=0,
    managed_ledger_cache_size_mbytes=1,
    dispatcher_max_read_batch_size=5,
    dispatcher_max_round_robin_batch_size=3,
    max_unacked_messages_per_consumer=8,
    max_unacked_messages_per_subscription=14,
    active_consumer_failover_delay_time_millis=300,
)
"""Everything small, so that every limit and border is met often."""

SINGLE_ACTIVE = (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)


class Entry(NamedTuple):
    """What the log holds at a position."""

    messages: int
    key: str


@dataclass(eq=False)
class Client:
    """One consumer as its client sees it. ``granted`` and ``spent`` are permits, in messages."""

    model: SubscriptionModel
    name: str
    priority: int
    writable: bool = True
    closed: bool = False
    granted: int = 0
    spent: int = 0
    active: bool | None = None
    seen: list[Position] = field(default_factory=list)
    consumer: Consumer = None  # type: ignore[assignment] # set right after subscribing

    @property
    def permits(self) -> int:
        return self.granted - self.spent

    @property
    def is_available(self) -> bool:
        return self.permits > 0 and self.writable and not self.consumer.blocked

    def deliver(self, deliveries: list[Delivery]) -> None:
        assert deliveries
        self.model.learn_receipts()
        assert not self.closed, "delivered to a closed consumer"
        assert self.writable, "delivered to a connection that takes nothing"
        for delivery in deliveries:
            self.model.delivered_to(self, delivery)

    def active_changed(self, active: bool) -> None:
        assert self.active is not active, "told the same twice (2.3.4.2)"
        self.active = active

    def closed_by_broker(self) -> None:
        self.closed = True

    def end_of_topic(self) -> None:
        raise AssertionError("the topic is never terminated")


class SubscriptionModel:
    """One subscription. ``owner``: which client of Shared or Key_Shared holds an entry; ``counts``: its redeliveries.

    ``first_sent``: entries that were delivered since consumers came, for the order of keys; ``passed``: how far a
    single active consumer has been served since the last rewind, None right after one. ``learn_receipts`` brings the
    log up to date before a delivery is judged.
    """

    def __init__(
        self, name: str, log: dict[Position, Entry], clock: VirtualTimers, learn_receipts: Callable[[], None]
    ) -> None:
        self.learn_receipts = learn_receipts
        self.name = name
        self.log = log
        self.clock = clock
        self.open: dict[Position, int] = {}
        self.safe: dict[Position, int] = {}
        self.kind: SubscriptionType | None = None
        self.clients: list[Client] = []
        self.owner: dict[Position, Client] = {}
        self.counts: dict[Position, int] = {}
        self.first_sent: set[Position] = set()
        self.leader: Client | None = None
        self.passed: Position | None = None
        self.served_from_ms = 0

    # -- what a delivery must be

    def delivered_to(self, client: Client, delivery: Delivery) -> None:
        """Check one delivery and take note of it."""
        position = delivery.entry.position
        assert position in self.log, "not durable"
        assert delivery.entry.messages == self.log[position].messages
        left = self.open[position]
        assert left, f"{position} was acknowledged (I2.1)"
        whole = left == all_bits(delivery.entry.messages)
        assert delivery.ack_set == (None if whole else words_of_bits(left)), "3.6.6"
        assert client.permits > 0, "sent without permits (I2.6)"
        if self.kind in SINGLE_ACTIVE:
            self._in_line(client, position, delivery.redelivery_count)
        else:
            self._shared_out(client, position, delivery.redelivery_count)
        client.spent += left.bit_count()
        client.seen.append(position)

    def _in_line(self, client: Client, position: Position, count: int) -> None:
        assert client is self.leader, "I2.3: only the active consumer is served"
        assert count == 0, "2.3.5.4"
        assert self.clock.now_ms() >= self.served_from_ms, "2.3.4.1: served before the pause was over"
        expected = next((each for each in self.unacked() if self.passed is None or each > self.passed), None)
        assert position == expected, f"{position} instead of {expected} (I2.3, I2.5)"
        self.passed = position

    def _shared_out(self, client: Client, position: Position, count: int) -> None:
        assert position not in self.owner, f"{position} is with two consumers (I2.2)"
        assert count == self.counts.get(position, 0), "I4.5"
        assert self.unacked_of(client) < LIMITS.max_unacked_messages_per_consumer, "I2.6: more than limit + one slice"
        if self.kind is SubscriptionType.KEY_SHARED:
            self._of_its_key(client, position)
        else:
            better = [each for each in self.clients if each.priority < client.priority and each.is_available]
            assert not better, "I2.6: a better priority waits"
        self.owner[position] = client
        self.first_sent.add(position)

    def _of_its_key(self, client: Client, position: Position) -> None:
        key = self.log[position].key
        same = [each for each, entry in self.log.items() if entry.key == key and self.open[each]]
        assert all(self.owner.get(each, client) is client for each in same), f"key {key} is with two consumers (I2.11)"
        if position not in self.first_sent:
            skipped = [each for each in same if each < position and each not in self.first_sent]
            assert not skipped, f"{position} of key {key} before {skipped} (I2.12)"

    # -- what happened

    def learn(self, position: Position, messages: int) -> None:
        self.open.setdefault(position, all_bits(messages))
        self.safe.setdefault(position, all_bits(messages))

    def forget(self, position: Position) -> None:
        assert not self.open[position], f"{position} was deleted but {self.name} has not acknowledged it (I7.1)"
        del self.open[position], self.safe[position]
        for client in self.clients:
            client.seen = [each for each in client.seen if each != position]

    def joined(self, client: Client, kind: SubscriptionType) -> None:
        self.kind = kind
        self.clients.append(client)
        self._elect()

    def left(self, client: Client) -> None:
        self.clients.remove(client)
        client.closed = True
        self.taken_back(client, [position for position, owner in self.owner.items() if owner is client])
        if not self.clients:
            self.abandoned()
        self._elect()

    def abandoned(self) -> None:
        """All consumers are gone: what was only in memory begins anew."""
        for client in self.clients:
            client.closed = True
        self.clients = []
        self.kind = self.leader = None
        self.served_from_ms = 0
        self.owner.clear()
        self.counts.clear()
        self.first_sent.clear()

    def taken_back(self, client: Client, positions: list[Position]) -> None:
        for position in positions:
            if self.owner.get(position) is client:
                del self.owner[position]
                self.counts[position] = self.counts.get(position, 0) + 1

    def rewound(self, client: Client) -> None:
        if client is self.leader:
            self.passed = None

    def acked(self, position: Position, left: int) -> None:
        before = self.open[position]
        self.open[position] = before & left
        if before and not self.open[position]:
            self.owner.pop(position, None)
            self.counts.pop(position, None)

    def acked_through(self, target: Position, left: int) -> None:
        for position in self.open:
            if position < target:
                self.acked(position, 0)
        self.acked(target, left)

    def reset_to(self, target: Position, left: int) -> None:
        """A seek: everything before ``target`` counts as acknowledged, of ``target`` what ``left`` leaves out."""
        self.abandoned()
        for position in self.open:
            self.open[position] = 0 if position < target else all_bits(self.log[position].messages)
        if left:
            self.open[target] = left

    def _elect(self) -> None:
        """2.3.1, 2.3.3: the first who came, of the best priority; a change is followed by a pause."""
        if self.kind not in SINGLE_ACTIVE:
            return
        former = self.leader
        best = min((client.priority for client in self.clients), default=0)
        self.leader = next((client for client in self.clients if client.priority == best), None)
        if self.leader is None or self.leader is former:
            return
        self.passed = None
        now = self.clock.now_ms()
        if former is None:
            self.served_from_ms = 0
        elif self.served_from_ms <= now:
            self.served_from_ms = now + LIMITS.active_consumer_failover_delay_time_millis

    # -- questions

    def unacked(self) -> list[Position]:
        return [position for position, bits in self.open.items() if bits]

    def unacked_of(self, client: Client) -> int:
        return sum(self.open[position].bit_count() for position, owner in self.owner.items() if owner is client)

    def overdue(self, *, is_blocked: bool) -> list[Position]:
        """What should have been delivered, once nothing more happens by itself (I2.7)."""
        if self.kind is None:
            return []
        if self.kind in SINGLE_ACTIVE:
            assert self.leader is not None
            ready = self.leader.writable and self.leader.permits > 0 and self.clock.now_ms() >= self.served_from_ms
            return [each for each in self.unacked() if ready and (self.passed is None or each > self.passed)]
        enough = self.clients if self.kind is SubscriptionType.SHARED or len(self.clients) == 1 else []
        if is_blocked or not any(client.is_available for client in enough):
            return []
        return [position for position in self.unacked() if position not in self.owner]
