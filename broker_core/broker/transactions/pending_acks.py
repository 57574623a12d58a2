# SPDX-License-Identifier: Apache-2.0
"""``PendingAcks``: the acknowledgements of one subscription inside transactions that are not over, and their conflicts.

Pure algorithm: storing them, applying them to the cursor and delivering messages again is ``transactional_acks``'s.

State: for each transaction the messages that it acknowledges one by one, and the union of these; and one slot for a
cumulative acknowledgement, which is of one transaction. ``sizes`` has the number of messages of each batch of which a
part is pending.

Invariants: a message is pending in at most one transaction; a position is in the union as long as a transaction has
it; nothing here is ever given to a consumer (``open_messages``). An ordinary acknowledgement is never refused: it goes
to the cursor at once, and is dropped here (``acked``, ``passed``), so neither commit nor abort touches it.

Source: Pulsar docs, "Transactions"; PIP-31. Two differences to Apache Pulsar: an acknowledgement that repeats one of
the same transaction is accepted, and what the cumulative acknowledgement of another transaction covers is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.broker.positions import PositionSet
from broker_core.broker.transactions.message_set import WHOLE, MessageSet
from broker_core.wire.ack_sets import all_bits
from broker_core.wire.heads import TxnId
from broker_core.wire.transactions import shown


class AckedMessages(NamedTuple):
    """The messages of one entry that an acknowledgement names: all of it (``bits`` is WHOLE), or some of a batch of
    ``size``."""

    position: Position
    bits: int = WHOLE
    size: int = 1


class CumulativeAck(NamedTuple):
    """Everything up to ``position`` is acknowledged, but for the messages ``left`` of that entry of ``size``."""

    transaction: TxnId
    position: Position
    left: int = 0
    size: int = 1

    def covers(self, position: Position) -> int:
        """The messages of one entry that it acknowledges, as bits."""
        if position < self.position or (position == self.position and not self.left):
            return WHOLE
        return all_bits(self.size) & ~self.left if position == self.position else 0

    def goes_beyond(self, other: CumulativeAck) -> bool:
        """Whether it acknowledges more than ``other``."""
        if self.position != other.position:
            return self.position > other.position
        return self.left != other.left and not self.left & ~other.left


class Ended(NamedTuple):
    """The acknowledgements of a transaction that has ended, without those that an ordinary one has come before."""

    messages: list[AckedMessages]
    cumulative: CumulativeAck | None


class AckedByCursor(Protocol):
    """The cursor, as far as conflicts depend on it."""

    mark_delete: Position
    partial: dict[Position, int]

    def is_acked(self, position: Position) -> bool: ...


class PendingAcks:
    """The pending acknowledgements of one subscription.

    Attributes:
        any: Whether something is pending: all that an ordinary acknowledgement, or a read, has to ask.
        highest: No entry after this one is pending.
        cumulative: The slot of the cumulative acknowledgement.
        outdated: Transactions of which an ordinary acknowledgement has taken something, so what is stored is more.
    """

    __slots__ = ("_of", "any", "cumulative", "highest", "outdated", "sizes", "union")

    def __init__(self) -> None:
        self._of: dict[TxnId, MessageSet] = {}
        self.union = MessageSet()
        self.sizes: dict[Position, int] = {}
        self.cumulative: CumulativeAck | None = None
        self.outdated: set[TxnId] = set()
        self.any = False
        self.highest = POSITION_EARLIEST

    # -- questions

    @property
    def transactions(self) -> list[TxnId]:
        """The transactions that have acknowledged something here."""
        slot = self.cumulative
        return [*self._of] if slot is None or slot.transaction in self._of else [*self._of, slot.transaction]

    def listed(self, transaction: TxnId) -> list[AckedMessages]:
        """The messages that one transaction acknowledges one by one."""
        messages = self._of.get(transaction)
        if messages is None:
            return []
        return [AckedMessages(position, bits, self.sizes.get(position, 1)) for position, bits in messages.items()]

    def parts_of(self, transaction: TxnId) -> tuple[PositionSet, list[AckedMessages]]:
        """The same in another form: whole entries as bitmaps, and the rest."""
        messages = self._of.get(transaction)
        if messages is None:
            return PositionSet(), []
        batches = [
            AckedMessages(each, bits, self.sizes.get(each, 1)) for each, bits in sorted(messages.batches.items())
        ]
        return messages.whole, batches

    def cumulative_of(self, transaction: TxnId) -> CumulativeAck | None:
        """The cumulative acknowledgement of one transaction."""
        slot = self.cumulative
        return slot if slot is not None and slot.transaction == transaction else None

    def in_transaction(self, transaction: TxnId, position: Position) -> AckedMessages:
        """The messages of one entry that one transaction acknowledges one by one."""
        messages = self._of.get(transaction)
        bits = 0 if messages is None else messages.get(position)
        return AckedMessages(position, bits, self.sizes.get(position, 1))

    def untouched_from(self, position: Position) -> bool:
        """Whether it is certain that nothing at or after ``position`` is pending: the usual case of a new read."""
        return position > self.highest

    def pending_at(self, position: Position) -> int:
        """The messages of one entry that are pending in any transaction, as bits."""
        bits = self.union.get(position)
        return bits if self.cumulative is None else bits | self.cumulative.covers(position)

    # -- conflicts

    def conflict(self, transaction: TxnId, acks: Iterable[AckedMessages], cursor: AckedByCursor) -> str:
        """Why messages cannot be acknowledged one by one in ``transaction``; empty if all of them can."""
        own, slot = self._of.get(transaction), self.cumulative
        if slot is not None and slot.transaction == transaction:
            slot = None
        for position, bits, size in acks:
            if cursor.is_acked(position):
                return f"message {position} is acknowledged already"
            left = cursor.partial.get(position)
            if left is not None and bits != WHOLE and bits & all_bits(size) & ~left:
                return f"a message of batch {position} is acknowledged already"
            others = self.union.get(position)
            if others and own is not None:
                others &= ~own.get(position)
            if bits & others:
                return f"message {position} is acknowledged in another transaction, which is not over"
            if slot is not None and bits & slot.covers(position):
                return f"message {position} is before the cumulative acknowledgement of {_named(slot.transaction)}"
        return ""

    def cumulative_conflict(self, ack: CumulativeAck, cursor: AckedByCursor) -> str:
        """Why everything up to a message cannot be acknowledged; empty if it can."""
        slot = self.cumulative
        if ack.position <= cursor.mark_delete:
            return f"message {ack.position} is acknowledged already"
        if slot is not None and slot.transaction != ack.transaction:
            return f"{_named(slot.transaction)}, which is not over, has a cumulative acknowledgement"
        if slot is not None and not ack.goes_beyond(slot):
            return f"message {ack.position} is not after {slot.position}, which the transaction has acknowledged before"
        for transaction, messages in self._of.items():
            if transaction != ack.transaction and (covered := _first_covered(ack, messages, cursor)) is not None:
                return f"it would cover message {covered}, which is acknowledged in {_named(transaction)}"
        return ""

    # -- changes

    def add(self, transaction: TxnId, acks: Sequence[AckedMessages]) -> None:
        """Messages without a conflict are pending from now on."""
        if not acks:
            return
        messages = self._of.setdefault(transaction, MessageSet())
        for position, bits, size in acks:
            messages.add(position, bits)
            self.union.add(position, bits)
            if position in self.union.batches:
                self.sizes[position] = size
            elif self.sizes:
                self.sizes.pop(position, None)
            if position > self.highest:
                self.highest = position
        self.any = True

    def set_cumulative(self, ack: CumulativeAck) -> None:
        """Everything up to a message, without a conflict, is pending from now on."""
        self.cumulative = ack
        self.highest = max(self.highest, ack.position)
        self.any = True

    def end(self, transaction: TxnId) -> Ended:
        """``transaction`` is over: take out what is pending in it, and nothing else."""
        ended = self.listed(transaction)
        self._of.pop(transaction, None)
        cumulative = self.cumulative_of(transaction)
        if cumulative is not None:
            self.cumulative = None
        self.outdated.discard(transaction)
        for position, bits, _size in ended:
            self._release(position, bits)
        self._tidy()
        return Ended(ended, cumulative)

    def take_back(self, transaction: TxnId, position: Position, bits: int) -> None:
        """Messages of one entry are not acknowledged in ``transaction`` after all."""
        messages = self._of.get(transaction)
        if messages is not None and (bits := messages.get(position) & bits):
            messages.remove(position, bits)
            self._release(position, bits)
            self._tidy()

    # -- ordinary acknowledgements, which win

    def acked(self, position: Position, left: int) -> None:
        """All messages of an entry but ``left`` are acknowledged for good."""
        gone = self.union.get(position)
        if not gone or (gone == WHOLE and left) or not gone & ~left:
            return
        for transaction, messages in self._of.items():
            if bits := messages.get(position) & ~left:
                messages.remove(position, bits)
                self._release(position, bits)
                self.outdated.add(transaction)
        self._tidy()

    def acked_entries(self, ledger: int, entries: Iterable[int]) -> None:
        """``acked`` of many whole entries of one ledger."""
        for entry in entries:
            self.acked(Position(ledger, entry), 0)

    def passed(self, mark_delete: Position) -> None:
        """Everything up to ``mark_delete`` is acknowledged for good. The slot stays held, though it may be void now."""
        for transaction, messages in self._of.items():
            before = len(messages)
            messages.remove_through(mark_delete)
            if len(messages) != before:
                self.outdated.add(transaction)
        self.union.remove_through(mark_delete)
        for position in [each for each in self.sizes if each <= mark_delete]:
            del self.sizes[position]
        self._tidy()

    # -- parts

    def _release(self, position: Position, bits: int) -> None:
        self.union.remove(position, bits)
        if self.sizes and position not in self.union.batches:
            self.sizes.pop(position, None)

    def _tidy(self) -> None:
        for transaction in [each for each, messages in self._of.items() if not messages]:
            del self._of[transaction]
        self.any = bool(self._of) or self.cumulative is not None
        if not self.any:
            self.highest = POSITION_EARLIEST


def _first_covered(ack: CumulativeAck, messages: MessageSet, cursor: AckedByCursor) -> Position | None:
    """An entry of which ``ack`` would acknowledge a message that is pending among ``messages``."""
    for position in messages.whole:
        if not ack.covers(position):
            break
        if not cursor.is_acked(position):
            return position
    for position, bits in messages.batches.items():
        if bits & ack.covers(position) and not cursor.is_acked(position):
            return position
    return None


def _named(transaction: TxnId) -> str:
    return f"transaction {shown(transaction)}"
