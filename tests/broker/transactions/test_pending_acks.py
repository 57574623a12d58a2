# SPDX-License-Identifier: Apache-2.0
"""The conflict table of acknowledgements in transactions, row by row, without a broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.broker.cursors.cursor import Cursor
from broker_core.broker.transactions.message_set import WHOLE, MessageSet
from broker_core.broker.transactions.pending_acks import AckedMessages, CumulativeAck, PendingAcks
from broker_core.wire.ack_sets import all_bits
from broker_core.wire.heads import TxnId

ONE, TWO = TxnId(0, 1), TxnId(0, 2)
BATCH = 5
"""Messages of each batch."""


class OneLedger:
    """A log of ten entries."""

    readable_end = last_confirmed = Position(1, 9)

    def next_valid(self, position: Position) -> Position:
        return Position(1, max(position.entry + 1, 0))

    def previous(self, position: Position) -> Position:
        return Position(1, position.entry - 1)

    def count_entries(self, lower_exclusive: Position, upper_inclusive: Position) -> int:
        return upper_inclusive.entry - lower_exclusive.entry


def at(entry: int) -> Position:
    return Position(1, entry)


def whole(entry: int) -> AckedMessages:
    return AckedMessages(at(entry))


def some(entry: int, *indexes: int) -> AckedMessages:
    return AckedMessages(at(entry), sum(1 << index for index in indexes), BATCH)


def through(transaction: TxnId, entry: int, index: int | None = None) -> CumulativeAck:
    """Up to an entry, or up to the message ``index`` of a batch."""
    left = 0 if index is None else all_bits(BATCH) & ~all_bits(index + 1)
    return CumulativeAck(transaction, at(entry), left, BATCH)


class Acks:
    """A cursor and what is pending beside it."""

    def __init__(self) -> None:
        self.cursor = Cursor(OneLedger(), Position(1, -1), stored=False)
        self.pending = PendingAcks()

    def ack(self, transaction: TxnId, *acks: AckedMessages) -> bool:
        """Whether it was accepted."""
        if self.pending.conflict(transaction, acks, self.cursor):
            return False
        self.pending.add(transaction, acks)
        return True

    def ack_through(self, ack: CumulativeAck) -> bool:
        """Whether it was accepted."""
        if self.pending.cumulative_conflict(ack, self.cursor):
            return False
        self.pending.set_cumulative(ack)
        return True

    def plain(self, entry: int, *indexes: int) -> None:
        """An ordinary acknowledgement of an entry, or of messages of a batch."""
        bits = all_bits(BATCH) & ~sum(1 << index for index in indexes) if indexes else 0
        if not indexes:
            self.cursor.ack(at(entry))
        left = self.cursor.ack_partial(at(entry), bits)
        self.pending.acked(at(entry), left)

    def plain_through(self, entry: int) -> None:
        self.cursor.ack_through(at(entry))
        self.pending.passed(at(entry))


Step = Callable[[Acks], object]

INDIVIDUAL: list[tuple[str, list[Step], bool]] = [
    ("nothing before", [], True),
    ("acknowledged before", [lambda a: a.plain(3)], False),
    ("at the mark-delete position", [lambda a: a.plain_through(3)], False),
    ("before the mark-delete position", [lambda a: a.plain_through(5)], False),
    ("a neighbour is acknowledged", [lambda a: a.plain(4)], True),
    ("pending in another transaction", [lambda a: a.ack(TWO, whole(3))], False),
    ("a part of it is pending in another transaction", [lambda a: a.ack(TWO, some(3, 1))], False),
    ("pending in the same transaction", [lambda a: a.ack(ONE, whole(3))], True),
    ("a part of it is pending in the same transaction", [lambda a: a.ack(ONE, some(3, 1))], True),
    ("a part of it is acknowledged", [lambda a: a.plain(3, 0)], True),
    ("under a cumulative one of another transaction", [lambda a: a.ack_through(through(TWO, 5))], False),
    ("it ends a cumulative one of another transaction", [lambda a: a.ack_through(through(TWO, 3))], False),
    ("a part ends a cumulative one of another transaction", [lambda a: a.ack_through(through(TWO, 3, 1))], False),
    ("behind a cumulative one of another transaction", [lambda a: a.ack_through(through(TWO, 2))], True),
    ("under a cumulative one of the same transaction", [lambda a: a.ack_through(through(ONE, 5))], True),
    ("the other transaction is over", [lambda a: a.ack(TWO, whole(3)), lambda a: a.pending.end(TWO)], True),
    (
        "an ordinary one came behind that of another transaction",
        [lambda a: a.ack(TWO, whole(3)), lambda a: a.plain(3)],
        False,
    ),
]


@pytest.mark.parametrize(("before", "accepted"), [row[1:] for row in INDIVIDUAL], ids=[row[0] for row in INDIVIDUAL])
def test_whole_entry(before: list[Step], accepted: bool) -> None:
    """9.8.2: entry 3 is acknowledged in transaction ONE after the steps of the row."""
    acks = Acks()
    for step in before:
        step(acks)
    assert acks.ack(ONE, whole(3)) is accepted


PARTS: list[tuple[str, list[Step], bool]] = [
    ("nothing before", [], True),
    ("the same message is acknowledged", [lambda a: a.plain(3, 1)], False),
    ("one of them is acknowledged", [lambda a: a.plain(3, 2)], False),
    ("others of the batch are acknowledged", [lambda a: a.plain(3, 0, 4)], True),
    ("the whole batch is acknowledged", [lambda a: a.plain(3)], False),
    ("the same messages are pending in another transaction", [lambda a: a.ack(TWO, some(3, 1, 2))], False),
    ("one of them is pending in another transaction", [lambda a: a.ack(TWO, some(3, 2, 3))], False),
    ("others are pending in another transaction", [lambda a: a.ack(TWO, some(3, 0, 3))], True),
    ("the whole batch is pending in another transaction", [lambda a: a.ack(TWO, whole(3))], False),
    ("the same messages are pending in the same transaction", [lambda a: a.ack(ONE, some(3, 1, 2))], True),
    ("fewer are pending in the same transaction", [lambda a: a.ack(ONE, some(3, 1))], True),
    ("the whole batch is pending in the same transaction", [lambda a: a.ack(ONE, whole(3))], True),
    ("under a cumulative one of another transaction", [lambda a: a.ack_through(through(TWO, 4))], False),
    ("a cumulative one of another transaction reaches one", [lambda a: a.ack_through(through(TWO, 3, 1))], False),
    ("a cumulative one of another transaction ends before", [lambda a: a.ack_through(through(TWO, 3, 0))], True),
]


@pytest.mark.parametrize(("before", "accepted"), [row[1:] for row in PARTS], ids=[row[0] for row in PARTS])
def test_messages_of_a_batch(before: list[Step], accepted: bool) -> None:
    """9.8.2: messages 1 and 2 of batch 3 are acknowledged in transaction ONE after the steps of the row."""
    acks = Acks()
    for step in before:
        step(acks)
    assert acks.ack(ONE, some(3, 1, 2)) is accepted


CUMULATIVE: list[tuple[str, list[Step], bool]] = [
    ("nothing before", [], True),
    ("at the mark-delete position", [lambda a: a.plain_through(3)], False),
    ("before the mark-delete position", [lambda a: a.plain_through(4)], False),
    ("behind the mark-delete position", [lambda a: a.plain_through(2)], True),
    ("the entry alone is acknowledged", [lambda a: a.plain(3)], True),
    ("another transaction holds the slot, before", [lambda a: a.ack_through(through(TWO, 1))], False),
    ("another transaction holds the slot, behind", [lambda a: a.ack_through(through(TWO, 7))], False),
    ("the same transaction, before", [lambda a: a.ack_through(through(ONE, 2))], True),
    ("the same transaction, at the same entry", [lambda a: a.ack_through(through(ONE, 3))], False),
    ("the same transaction, behind", [lambda a: a.ack_through(through(ONE, 4))], False),
    ("the same transaction, into the same batch", [lambda a: a.ack_through(through(ONE, 3, 2))], True),
    ("it covers a message of another transaction", [lambda a: a.ack(TWO, whole(1))], False),
    ("it covers a part of another transaction", [lambda a: a.ack(TWO, some(1, 4))], False),
    ("it ends with a message of another transaction", [lambda a: a.ack(TWO, whole(3))], False),
    ("another transaction has a message behind", [lambda a: a.ack(TWO, whole(4))], True),
    ("it covers a message of the same transaction", [lambda a: a.ack(ONE, whole(1))], True),
    (
        "an ordinary one came behind that which it covers",
        [lambda a: a.ack(TWO, whole(1)), lambda a: a.plain(1)],
        True,
    ),
]


@pytest.mark.parametrize(("before", "accepted"), [row[1:] for row in CUMULATIVE], ids=[row[0] for row in CUMULATIVE])
def test_cumulative(before: list[Step], accepted: bool) -> None:
    """9.8.3: everything up to entry 3 is acknowledged in transaction ONE after the steps of the row."""
    acks = Acks()
    for step in before:
        step(acks)
    assert acks.ack_through(through(ONE, 3)) is accepted


INTO_A_BATCH: list[tuple[str, list[Step], bool]] = [
    ("nothing before", [], True),
    ("the same transaction, an earlier message", [lambda a: a.ack_through(through(ONE, 3, 1))], True),
    ("the same transaction, the same message", [lambda a: a.ack_through(through(ONE, 3, 2))], False),
    ("the same transaction, a later message", [lambda a: a.ack_through(through(ONE, 3, 3))], False),
    ("the same transaction, the whole batch", [lambda a: a.ack_through(through(ONE, 3))], False),
    ("another transaction has a message up to it", [lambda a: a.ack(TWO, some(3, 2))], False),
    ("another transaction has a message behind it", [lambda a: a.ack(TWO, some(3, 3))], True),
]


@pytest.mark.parametrize(("before", "accepted"), [row[1:] for row in INTO_A_BATCH], ids=[r[0] for r in INTO_A_BATCH])
def test_cumulative_into_a_batch(before: list[Step], accepted: bool) -> None:
    """9.8.3: everything up to message 2 of batch 3 is acknowledged in transaction ONE after the steps of the row."""
    acks = Acks()
    for step in before:
        step(acks)
    assert acks.ack_through(through(ONE, 3, 2)) is accepted


class TestOneConflictOfMany:
    """9.8.2: a list of messages is acknowledged as a whole or not at all."""

    def test_nothing_of_the_list_is_pending(self) -> None:
        """T18: a conflicting acknowledgement changes nothing."""
        acks = Acks()
        acks.ack(TWO, whole(4))
        assert not acks.ack(ONE, whole(3), whole(4), whole(5))
        assert acks.pending.transactions == [TWO]
        assert acks.ack(TWO, whole(3), whole(5))

    def test_a_message_may_be_named_twice(self) -> None:
        """9.8.2: repeats inside of a transaction are accepted, in one list too."""
        acks = Acks()
        assert acks.ack(ONE, some(3, 1), some(3, 1), some(3, 2))
        assert acks.pending.listed(ONE) == [some(3, 1, 2)]


class TestEnds:
    """9.8.6, 9.8.7: of the end of a transaction only its own messages know."""

    def test_own_bits_leave_and_others_stay(self) -> None:
        """T9: bits of other transactions do not change."""
        acks = Acks()
        acks.ack(ONE, some(3, 0, 1), whole(5))
        acks.ack(TWO, some(3, 2))
        ended = acks.pending.end(ONE)
        assert ended.messages == [whole(5), some(3, 0, 1)]
        assert acks.pending.pending_at(at(3)) == 0b00100
        assert acks.pending.pending_at(at(5)) == 0

    def test_the_slot_of_another_transaction_stays(self) -> None:
        """Defect "replayed abort of any transaction clears another one's cumulative slot"."""
        acks = Acks()
        acks.ack_through(through(ONE, 2))
        acks.ack(TWO, whole(5))
        assert acks.pending.end(TWO).cumulative is None
        assert acks.pending.cumulative == through(ONE, 2)

    def test_both_kinds_end_together(self) -> None:
        """Defect "none of the individual acks is applied while another transaction has the slot"."""
        acks = Acks()
        acks.ack(ONE, whole(5))
        acks.ack_through(through(ONE, 2))
        ended = acks.pending.end(ONE)
        assert (ended.messages, ended.cumulative) == ([whole(5)], through(ONE, 2))

    def test_nothing_is_left_when_all_are_over(self) -> None:
        """T19, #14974: memory depends on what is pending, not on what was."""
        acks = Acks()
        for number in range(100):
            transaction = TxnId(0, number)
            assert acks.ack(transaction, whole(3), some(4, number % BATCH))
            if number % 2:
                acks.plain_through(0)
            acks.pending.end(transaction)
        pending = acks.pending
        assert not pending.any
        assert not pending.transactions
        assert not pending.union
        assert not pending.sizes
        assert pending.highest == POSITION_EARLIEST

    def test_what_an_ordinary_acknowledgement_took_is_not_ended(self) -> None:
        """9.8.5: the ordinary acknowledgement wins; commit and abort find nothing of it."""
        acks = Acks()
        acks.ack(ONE, whole(3), some(4, 0, 1))
        acks.plain(3)
        acks.plain(4, 1, 2)
        assert acks.pending.end(ONE).messages == [some(4, 0)]


class TestMessageSet:
    """The set that pending messages are in."""

    def test_an_entry_becomes_whole(self) -> None:
        """A batch of which a part is in it is in it once when all of it is."""
        messages = MessageSet()
        messages.add(at(3), 0b01)
        messages.add(at(3), WHOLE)
        messages.add(at(3), 0b10)
        assert list(messages.items()) == [(at(3), WHOLE)]
        assert len(messages) == 1

    def test_parts_are_taken_out(self) -> None:
        """The rest stays, and an entry without a rest is gone."""
        messages = MessageSet()
        messages.add(at(3), 0b111)
        messages.remove(at(3), 0b010)
        assert messages.get(at(3)) == 0b101
        messages.remove(at(3), 0b111)
        assert not messages

    def test_a_prefix_is_taken_out(self) -> None:
        """Whole entries and parts up to a position."""
        messages = MessageSet()
        for entry in range(4):
            messages.add(at(entry), WHOLE if entry % 2 else 1)
        messages.remove_through(at(1))
        assert list(messages.items()) == [(at(3), WHOLE), (at(2), 1)]
