# SPDX-License-Identifier: Apache-2.0
"""The reference model of a subscription whose messages are also acknowledged in transactions.

``pending``: transaction -> position -> bits that it has acknowledged and that no ordinary acknowledgement came before
(WHOLE: the entry, of which ordinary ones may have taken a part meanwhile);
``acks``: what was asked for in each, in order, for a crash keeps the first ones. ``slot`` is of the cumulative one.
``held`` are the bits of an entry that its owner has; ``coming`` those that go to it after an abort. ``again`` is the
same for a single active consumer, and ``sent`` what that was given since the last rewind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from broker_core.base.positions import Position
from broker_core.broker.requests import SubscriptionType
from broker_core.broker.sinks import Delivery
from broker_core.broker.transactions.message_set import WHOLE
from broker_core.wire.ack_sets import all_bits, bits_of_words
from broker_core.wire.heads import TxnId
from tests.broker.clients import Client
from tests.broker.whole.model import SINGLE_ACTIVE, SubscriptionModel


class Slot(NamedTuple):
    """Everything up to ``position`` but ``left``."""

    transaction: TxnId
    position: Position
    left: int


@dataclass
class Asked:
    """One acknowledgement in a transaction that was not refused; ``answered``: it is durable."""

    messages: dict[Position, int]
    slot: Slot | None
    answered: bool = False


class PendingModel(SubscriptionModel):
    """What must be true of one subscription with transactions. It has 33 methods: each event is one."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.pending: dict[TxnId, dict[Position, int]] = {}
        self.acks: dict[TxnId, list[Asked]] = {}
        self.slot: Slot | None = None
        self.held: dict[Position, int] = {}
        self.coming: dict[Position, int] = {}
        self.again: dict[Position, int] = {}
        self.sent: dict[Position, int] = {}
        self.given: set[Position] = set()
        self.vague: set[Position] = set()

    # -- what may be delivered

    def covered(self, position: Position) -> int:
        """The bits of an entry that the cumulative acknowledgement covers."""
        everything = all_bits(self.log[position].messages)
        if self.slot is None or position > self.slot.position:
            return 0
        return everything if position < self.slot.position else everything & ~self.slot.left

    def pending_at(self, position: Position) -> int:
        bits = self.covered(position)
        for messages in self.pending.values():
            bits |= messages.get(position, 0)
        return bits

    def deliverable(self, position: Position) -> int:
        return self.open[position] & ~self.pending_at(position)

    def waiting(self) -> list[Position]:
        """Entries of which something may be delivered."""
        return [position for position in self.open if self.deliverable(position)]

    # -- what a delivery must be

    def delivered_to(self, client: Client, delivery: Delivery) -> None:
        position, count = delivery.entry.position, delivery.redelivery_count
        if position not in self.log:
            self.catch_up()
        everything = all_bits(self.log[position].messages)
        got = bits_of_words(delivery.ack_set) if delivery.ack_set is not None else everything
        left = self.deliverable(position)
        assert got, "nothing of it"
        assert (delivery.ack_set is None) == (got == everything), "3.6.6"
        assert not got & ~left, f"{position}: {got:b} came, {left:b} may (T11)"
        assert client.permits > 0, "sent without permits (I2.6)"
        if position in self.vague:
            self.vague.discard(position)
            self.counts[position] = count
        if self.kind in SINGLE_ACTIVE:
            self._to_the_active(client, position, got, count)
        elif position in self.owner:
            assert self.owner[position] is client, f"{position} is with two consumers (I2.2)"
            assert got == self.coming.pop(position, 0), f"{position}: what was aborted comes, and nothing else (T9)"
            assert count == self.counts.get(position, 0), "I4.5"
            self.held[position] |= got
        else:
            assert got == left, f"{position}: {got:b} came instead of {left:b}"
            self._shared_out(client, position, count)
            self.held[position] = got
        self.given.add(position)
        client.spent += got.bit_count()
        client.seen.append(position)

    def _to_the_active(self, client: Client, position: Position, got: int, count: int) -> None:
        if self.passed is not None and position <= self.passed:
            assert client is self.leader, "I2.3: only the active consumer is served"
            assert got == self.again.pop(position, 0), f"{position}: what was aborted comes, and nothing else (T9)"
        else:
            assert got == self.deliverable(position)
            self._in_line(client, position, count)
        self.sent[position] = self.sent.get(position, 0) | got

    def unacked(self) -> list[Position]:
        return [position for position, bits in self.open.items() if bits]

    def _in_line(self, client: Client, position: Position, count: int) -> None:
        assert client is self.leader, "I2.3: only the active consumer is served"
        assert count == 0, "2.3.5.4"
        assert self.passed_ms >= self.served_from_ms, "2.3.4.1: served before the pause was over"
        expected = next((each for each in self.waiting() if self.passed is None or each > self.passed), None)
        assert position == expected, f"{position} instead of {expected} (I2.3, I2.5, T7)"
        self.passed = position

    def overdue(self, *, is_blocked: bool, due_by_ms: int = 0) -> list[Position]:
        """T5: what should have been delivered, once nothing more happens by itself."""
        if self.kind is None:
            return []
        if self.kind in SINGLE_ACTIVE:
            assert self.leader is not None
            if not self.leader.writable or self.leader.permits <= 0 or self.passed_ms < self.served_from_ms:
                return []
            return [*self.again, *(each for each in self.waiting() if self.passed is None or each > self.passed)]
        if is_blocked:
            return []
        late = [position for position in self.coming if self.owner[position].is_available]
        enough = self.clients if self.kind is SubscriptionType.SHARED or len(self.clients) == 1 else []
        if any(client.is_available for client in enough):
            late += [position for position in self.waiting() if position not in self.owner]
        return late

    def unacked_of(self, client: Client) -> int:
        return sum(self.held[position].bit_count() for position, owner in self.owner.items() if owner is client)

    # -- what happened

    def acked(self, position: Position, left: int) -> None:
        """An ordinary acknowledgement: it wins."""
        self.open[position] &= left
        for messages in self.pending.values():
            if position in messages and (messages[position] != WHOLE or not self.open[position]):
                messages[position] &= self.open[position]
        self.tidy(position)

    def tidy(self, position: Position) -> None:
        """Something of an entry is acknowledged or pending: nobody holds it, and it does not come back."""
        left = self.deliverable(position)
        if position in self.owner:
            self.held[position] &= left
            if position in self.coming:
                self.coming[position] &= left
                if not self.coming[position]:
                    del self.coming[position]
            if not self.held[position]:
                del self.owner[position], self.held[position]
                self.coming.pop(position, None)
        if position in self.again:
            lost = self.again[position] & ~left
            self.sent[position] = self.sent.get(position, 0) & ~(lost & self.covered(position))
            self.again[position] &= left
            if not self.again[position]:
                del self.again[position]
        if not self.open[position]:
            self.counts.pop(position, None)
            self.vague.discard(position)

    def forget(self, position: Position) -> None:
        for messages in self.pending.values():
            messages.pop(position, 0)  # a seek has passed it
        super().forget(position)

    def taken_back(self, client: Client, positions: list[Position]) -> None:
        for position in positions:
            if self.owner.get(position) is client:
                del self.held[position]
                self.coming.pop(position, None)
        super().taken_back(client, positions)

    def abandoned(self) -> None:
        super().abandoned()
        self._excuse_pending()
        self.held.clear()
        self.coming.clear()
        self.given.clear()
        self.vague.clear()
        self._begin_anew()

    def _excuse_pending(self) -> None:
        """What comes back after an abort comes behind later entries of its key (9.8.8)."""
        self.first_sent.update(position for position in self.open if self.pending_at(position))

    def _begin_anew(self) -> None:
        self.again.clear()
        self.sent.clear()

    def rewound(self, client: Client) -> None:
        super().rewound(client)
        if client is self.leader:
            self._begin_anew()

    def _elect(self) -> None:
        former = self.leader
        super()._elect()
        if self.leader is not former:
            self._begin_anew()

    def reset_to(self, target: Position, left: int) -> None:
        super().reset_to(target, left)
        for transaction, messages in self.pending.items():
            slot = self.slot if self.slot is not None and self.slot.transaction == transaction else None
            self.acks[transaction] = [Asked(dict(messages), slot, answered=True)]

    # -- transactions

    def begun(self, transaction: TxnId) -> None:
        self.pending[transaction] = {}
        self.acks[transaction] = []

    def conflicts(self, transaction: TxnId, acks: list[tuple[Position, int | None]]) -> bool:
        """9.8.2; None stands for a whole entry."""
        own = self.pending[transaction]
        for position, bits in acks:
            everything = all_bits(self.log[position].messages)
            if not self.open[position]:
                return True
            if bits is not None and bits & ~self.open[position]:
                return True
            others = 0
            for other, messages in self.pending.items():
                if other != transaction:
                    others |= messages.get(position, 0)
            others &= ~own.get(position, 0)
            if self.slot is not None and self.slot.transaction != transaction:
                others |= self.covered(position)
            if others & (everything if bits is None else bits):
                return True
        return False

    def pend(self, transaction: TxnId, acks: list[tuple[Position, int | None]]) -> Asked:
        own = self.pending[transaction]
        asked = Asked({}, None)
        for position, bits in acks:
            wanted = WHOLE if bits is None else bits
            own[position] = own.get(position, 0) | wanted
            asked.messages[position] = asked.messages.get(position, 0) | wanted
            self.first_sent.add(position)  # if it comes back, then behind later ones of its key
            self.tidy(position)
        self.acks[transaction].append(asked)
        return asked

    def conflicts_through(self, slot: Slot, mark_delete: Position) -> bool:
        """9.8.3."""
        now = self.slot
        if slot.position <= mark_delete:
            return True
        if now is not None:
            further = slot.position > now.position or (
                slot.position == now.position and slot.left != now.left and not slot.left & ~now.left
            )
            if now.transaction != slot.transaction or not further:
                return True
        return any(
            self.open[position] & bits & (all_bits(64) if position < slot.position else ~slot.left)
            for other, messages in self.pending.items()
            if other != slot.transaction
            for position, bits in messages.items()
            if position <= slot.position
        )

    def pend_through(self, slot: Slot) -> Asked:
        self.slot = slot
        asked = Asked({}, slot)
        self.acks[slot.transaction].append(asked)
        for position in self.open:
            if position <= slot.position:
                self.first_sent.add(position)
                self.tidy(position)
        return asked

    def _ended(self, transaction: TxnId) -> tuple[dict[Position, int], Slot | None]:
        slot = self.slot if self.slot is not None and self.slot.transaction == transaction else None
        if slot is not None:
            self.slot = None
        del self.acks[transaction]
        return self.pending.pop(transaction), slot

    def committed(self, transaction: TxnId) -> None:
        """T9: exactly the bits of the transaction are acknowledged."""
        messages, slot = self._ended(transaction)
        for position, bits in messages.items():
            self._acknowledge(position, bits)
        for position in self.open if slot is not None else ():
            assert slot is not None
            if position <= slot.position:
                self._acknowledge(position, ~slot.left if position == slot.position else -1)

    def _acknowledge(self, position: Position, bits: int) -> None:
        self.acked(position, ~bits)
        self.safe[position] &= ~bits

    def aborted(self, transaction: TxnId) -> None:
        """T9: exactly the bits of the transaction come again, of a cumulative one none that was sent."""
        cover = {position: self.covered(position) for position in self.open}
        messages, slot = self._ended(transaction)
        for position, bits in messages.items():
            self._back(position, bits & self.deliverable(position))
        if slot is None:
            return
        for position, bits in cover.items():
            self._back_under_slot(position, bits & self.deliverable(position))

    def _back(self, position: Position, bits: int) -> None:
        if not bits:
            return
        if self.kind in SINGLE_ACTIVE:
            if self.passed is not None and position <= self.passed:
                self.again[position] = self.again.get(position, 0) | bits
            return
        self.counts[position] = self.counts.get(position, 0) + 1
        if position in self.owner:
            self.coming[position] = self.coming.get(position, 0) | bits
        elif position not in self.given:
            self.vague.add(position)

    def _back_under_slot(self, position: Position, bits: int) -> None:
        if self.kind in SINGLE_ACTIVE:
            bits &= ~self.sent.get(position, 0)
        elif position in self.owner:
            bits &= ~self.held[position]
        self._back(position, bits & ~self.again.get(position, 0))
        if bits:
            self.vague.add(position)

    # -- crashes

    def recovered(self, transaction: TxnId, found: dict[Position, int], slot: Slot | None) -> None:
        """T10: what is pending after a start is what was asked for up to a moment, at least all that was answered."""
        asked = self.acks[transaction]
        answered = max((number + 1 for number, each in enumerate(asked) if each.answered), default=0)
        for count in range(len(asked), answered - 1, -1):
            messages: dict[Position, int] = {}
            expected_slot: Slot | None = None
            for each in asked[:count]:
                expected_slot = each.slot or expected_slot
                for position, bits in each.messages.items():
                    messages[position] = messages.get(position, 0) | bits
            left = {p: bits & self.open.get(p, 0) for p, bits in messages.items() if bits & self.open.get(p, 0)}
            if left == found and expected_slot == slot:
                self.pending[transaction] = {p: bits if messages[p] != WHOLE else WHOLE for p, bits in left.items()}
                self.acks[transaction] = [Asked(each.messages, each.slot, answered=True) for each in asked[:count]]
                if slot is not None:
                    self.slot = slot
                self._excuse_pending()
                return
        raise AssertionError(f"{found} and {slot} are pending, asked for was {asked}")
