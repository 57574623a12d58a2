# SPDX-License-Identifier: Apache-2.0
"""The reference model of a whole broker's machine: one log, and for each subscription what must be true of it.

Owns no broker: it is told what was asked for and what came, and says when something came that must not. ``open``:
position -> bits of messages that nobody has acknowledged; ``safe``: the same, as it was when all was durable last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker_core.base.positions import Position
from broker_core.base.settings import Settings
from broker_core.broker.requests import SubscriptionType
from broker_core.broker.sinks import Delivery
from broker_core.testing.virtual_timers import VirtualTimers
from broker_core.wire.ack_sets import all_bits, words_of_bits
from tests.broker.clients import Client
from tests.broker.whole.chunks import ChunkModel
from tests.broker.whole.entry import Entry

SINGLE_ACTIVE = (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)


class SubscriptionModel:
    """One subscription. ``owner``: which client of Shared or Key_Shared holds an entry; ``counts``: its redeliveries.

    ``first_sent``: entries that were delivered since consumers came, for the order of keys; ``passed``: how far a
    single active consumer has been served since the last rewind, None right after one. ``is_ending``: somebody has
    terminated the topic; ``told_end``: who has heard of it. ``catch_up`` brings the log up to date.
    ``holds_back``: delays are in force; while they are not, what is held back already still may wait.
    """

    def __init__(
        self,
        name: str,
        log: dict[Position, Entry],
        clock: VirtualTimers,
        settings: Settings,
        catch_up: Callable[[], None],
    ) -> None:
        self.name = name
        self.catch_up = catch_up
        self.log = log
        self.clock = clock
        self.settings = settings
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
        self.chunks = ChunkModel()
        self.is_ending = False
        self.told_end: set[Client] = set()
        self.holds_back = True

    # -- what a delivery must be

    def delivered_to(self, client: Client, delivery: Delivery) -> None:
        """Check one delivery and take note of it."""
        position = delivery.entry.position
        if position not in self.log:
            self.catch_up()
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
        assert self.passed_ms >= self.served_from_ms, "2.3.4.1: served before the pause was over"
        expected = next((each for each in self.unacked() if self.passed is None or each > self.passed), None)
        assert position == expected, f"{position} instead of {expected} (I2.3, I2.5)"
        self.passed = position

    def _shared_out(self, client: Client, position: Position, count: int) -> None:
        entry, now_ms = self.log[position], self.clock.now_ms()
        assert position not in self.owner, f"{position} is with two consumers (I2.2, I6.5)"
        assert count == self.counts.get(position, 0), "I4.5"
        assert self.unacked_of(client) < self.settings.max_unacked_messages_per_consumer, "I2.6: limit + one slice"
        assert now_ms >= entry.due_ms or not self.holds_back, f"{position} came {entry.due_ms - now_ms} ms early (I6.1)"
        if self.kind is SubscriptionType.KEY_SHARED:
            self._of_its_key(client, position)
        elif self.chunks.delivered(entry.chunk, client):
            assert not self._overtaken(position), f"I5.8: {entry.chunk} overtook {self._overtaken(position)}"
        else:
            better = [each for each in self.clients if each.priority < client.priority and each.is_available]
            assert not better, "I2.6: a better priority waits"
        self.owner[position] = client
        self.first_sent.add(position)

    def _of_its_key(self, client: Client, position: Position) -> None:
        entry = self.log[position]
        same = [each for each, other in self.log.items() if other.key == entry.key and self.open[each]]
        assert all(self.owner.get(each, client) is client for each in same), (
            f"key {entry.key} is with two consumers (I2.11)"
        )
        if self._is_unsent(position) and not entry.due_ms:
            skipped = [each for each in same if each < position and self._is_unsent(each) and not self.log[each].due_ms]
            assert not skipped, f"{position} of key {entry.key} before {skipped} (I2.12)"

    def _overtaken(self, position: Position) -> list[Position]:
        """Earlier chunks of the same message that were never sent, if this one is sent for the first time."""
        chunk = self.log[position].chunk
        return [
            each
            for each, entry in self.log.items()
            if self._is_unsent(position) and self._is_unsent(each) and self.open[each] and each < position
            if chunk is not None and entry.chunk is not None and entry.chunk.uuid == chunk.uuid
        ]

    def _is_unsent(self, position: Position) -> bool:
        return position not in self.first_sent

    def ended(self, client: Client) -> None:
        assert self.is_ending, "the topic goes on"
        assert not self.unacked(), "7.5: told of the end before the last acknowledgement"
        assert client not in self.told_end, "told twice"
        self.told_end.add(client)

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

    def left(self, leavers: Sequence[Client]) -> None:
        for client in leavers:
            self.clients.remove(client)
            client.closed = True
            self.chunks.left(client)
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
        self.chunks.holder.clear()

    def taken_back(self, client: Client, positions: list[Position]) -> None:
        for position in positions:
            if self.owner.get(position) is client:
                del self.owner[position]
                self.counts[position] = self.counts.get(position, 0) + 1
        if self.kind not in SINGLE_ACTIVE:
            client.seen = [each for each in client.seen if self.owner.get(each) is client]

    def rewound(self, client: Client) -> None:
        """All that is unacknowledged comes again, if it is the active one that asks."""
        if client is self.leader:
            self.passed = None
            client.seen.clear()

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
        if former is None:
            self.served_from_ms = 0
        elif self.served_from_ms <= self.passed_ms:
            self.served_from_ms = self.passed_ms + self.settings.active_consumer_failover_delay_time_millis

    # -- questions

    @property
    def passed_ms(self) -> int:
        """Time that does not jump when somebody sets the clock."""
        return round(self.clock.monotonic() * 1000)

    def unacked(self) -> list[Position]:
        return [position for position, bits in self.open.items() if bits]

    def unacked_of(self, client: Client) -> int:
        return sum(self.open[position].bit_count() for position, owner in self.owner.items() if owner is client)

    def overdue(self, *, is_blocked: bool, due_by_ms: int = 0) -> list[Position]:
        """What should have been delivered, once nothing more happens by itself (I2.7, I6.1).

        Of delayed entries those that were due at ``due_by_ms``: a timer may have to be waited for.
        """
        if self.kind is None:
            return []
        if self.kind in SINGLE_ACTIVE:
            assert self.leader is not None
            ready = self.leader.writable and self.leader.permits > 0 and self.passed_ms >= self.served_from_ms
            return [each for each in self.unacked() if ready and (self.passed is None or each > self.passed)]
        enough = self.clients if self.kind is SubscriptionType.SHARED or len(self.clients) == 1 else []
        if is_blocked or not any(client.is_available for client in enough):
            return []
        return [
            position
            for position in self.unacked()
            if position not in self.owner
            and self.log[position].due_ms <= due_by_ms
            and self.chunks.may_go(self.log[position].chunk)
        ]
