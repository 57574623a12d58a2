# SPDX-License-Identifier: Apache-2.0
"""Grouping of acknowledgements."""

from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.positions import MessageId, Position
from broker_core.client.acks.ack_groups import AckCommand, AckGrouping
from broker_core.wire.ack_sets import bits_of_words


def entry(number: int, index: int = -1, size: int = 0) -> MessageId:
    return MessageId(1, number, -1, index, size)


def at(number: int) -> Position:
    return Position(1, number)


class ModelBroker:
    """What a broker remembers of acks: whole entries, and what is left of partly acknowledged ones."""

    def __init__(self) -> None:
        self.acked: set[Position] = set()
        self.remaining: dict[Position, int] = {}
        self.mark_delete = Position(1, -1)

    def take(self, commands: list[AckCommand]) -> None:
        for command in commands:
            for position, words in command.ids:
                if command.cumulative:
                    through = position if words is None else Position(position.ledger, position.entry - 1)
                    self.mark_delete = max(self.mark_delete, through)
                if words is not None:
                    left = self.remaining.get(position, -1) & bits_of_words(words)
                    self.remaining[position] = left
                elif not command.cumulative:
                    self.acked.add(position)

    def is_acked(self, message_id: MessageId) -> bool:
        position = message_id.position
        if position <= self.mark_delete or position in self.acked:
            return True
        left = self.remaining.get(position, -1)
        return left == 0 or (message_id.batch_index >= 0 and not left >> message_id.batch_index & 1)


def test_words_have_the_lowest_index_in_the_lowest_bit() -> None:
    """3.1.6 vectors: batch of 3 after cumulative at 0, after individual 1; batch of 70 with only 69 left."""
    grouping = AckGrouping(batch_index_acks=True)
    grouping.received(at(1), 0b111)
    grouping.cumulative(entry(1, 0, 3))
    assert grouping.take(1000) == [AckCommand(True, [(at(1), (6,))])]
    other = AckGrouping(batch_index_acks=True)
    other.individual(entry(1, 1, 3))
    assert other.take(1000) == [AckCommand(False, [(at(1), (5,))])]


def test_the_rest_of_a_batch_may_be_acknowledged_singly_behind_a_cumulative_ack() -> None:
    """3.1.5, 3.1.7: the cumulative ack ends in the middle of the batch, and what lies behind it there still counts."""
    for together in (True, False):
        grouping, broker = AckGrouping(batch_index_acks=True), ModelBroker()
        grouping.received(at(1), 0b1111)
        grouping.cumulative(entry(1, 1, 4))
        if not together:
            broker.take(grouping.take(1000))
        grouping.individual(entry(1, 2, 4))
        broker.take(grouping.take(1000))
        assert broker.is_acked(entry(1, 2, 4))
        assert not broker.is_acked(entry(1, 3, 4))
        assert grouping.individual(entry(1, 3, 4))
        broker.take(grouping.take(1000))
        assert broker.is_acked(entry(1))


def test_without_index_acks_an_entry_is_acked_with_its_last_message() -> None:
    """3.1.5 batched, index acks off: nothing is sent before all messages of the entry are acknowledged."""
    grouping = AckGrouping(batch_index_acks=False)
    grouping.received(at(5), 0b111)
    for index in (2, 0):
        grouping.individual(entry(5, index, 3))
        assert grouping.take(1000) == []
    grouping.individual(entry(5, 1, 3))
    assert grouping.take(1000) == [AckCommand(False, [(at(5), None)])]


def test_without_index_acks_a_cumulative_ack_inside_a_batch_covers_the_entries_before() -> None:
    """3.1.5 cumulative at index i: ack of the previous entry, once per batch; at the last index, of the entry."""
    grouping = AckGrouping(batch_index_acks=False)
    grouping.received(at(5), 0b111)
    grouping.cumulative(entry(5, 0, 3))
    assert grouping.take(1000) == [AckCommand(True, [(at(4), None)])]
    grouping.cumulative(entry(5, 1, 3))
    assert grouping.take(1000) == []
    grouping.cumulative(entry(5, 2, 3))
    assert grouping.take(1000) == [AckCommand(True, [(at(5), None)])]


def test_a_cumulative_ack_of_all_that_is_open_is_one_of_the_entry() -> None:
    """3.1.5 the later messages of the batch were acknowledged one by one before."""
    for index_acks in (False, True):
        grouping = AckGrouping(batch_index_acks=index_acks)
        grouping.received(at(5), 0b110)
        grouping.individual(entry(5, 2, 3))
        grouping.take(1000)
        grouping.cumulative(entry(5, 1, 3))
        assert grouping.take(1000) == [AckCommand(True, [(at(5), None)])]


def test_the_cumulative_ack_only_grows() -> None:
    """3.1.4 only the greatest id is kept, and one at or below it is ignored."""
    grouping = AckGrouping(batch_index_acks=True)
    for number in (3, 7, 5, 7):
        grouping.cumulative(entry(number))
    assert grouping.take(1000) == [AckCommand(True, [(at(7), None)])]
    grouping.cumulative(entry(7))
    assert grouping.take(1000) == []


def test_what_a_cumulative_ack_covers_is_forgotten() -> None:
    """3.1.4 Else a consumer would remember something of every batch that it has ever received."""
    grouping = AckGrouping(batch_index_acks=True)
    for number in range(5):
        grouping.received(at(number), 0b11)
    grouping.cumulative(entry(3, 0, 2))
    assert dict(grouping._open) == {at(3): 0b10, at(4): 0b11}
    grouping.cumulative(entry(3, 1, 2))
    assert dict(grouping._open) == {at(4): 0b11}


def test_the_cumulative_ack_goes_first_and_lists_are_cut() -> None:
    """3.1.2 a flush sends the cumulative ack, then individual acks, which it does not cover, in lists of the limit."""
    grouping = AckGrouping(batch_index_acks=True)
    for number in (1, 20, 21, 22):
        grouping.individual(entry(number))
    grouping.cumulative(entry(10))
    assert grouping.take(2) == [
        AckCommand(True, [(at(10), None)]),
        AckCommand(False, [(at(20), None), (at(21), None)]),
        AckCommand(False, [(at(22), None)]),
    ]


def test_the_chunks_of_a_message_leave_together() -> None:
    """3.1.7, 5.1.5 also where the list would be cut; what follows is cut as ever."""
    grouping = AckGrouping(batch_index_acks=True)
    grouping.individual(entry(1))
    grouping.chunks([at(2), at(3)])
    for number in (4, 5, 6):
        grouping.individual(entry(number))
    assert grouping.take(2) == [
        AckCommand(False, [(at(1), None), (at(2), None), (at(3), None), (at(4), None)]),
        AckCommand(False, [(at(5), None), (at(6), None)]),
    ]


def test_single_messages_are_gathered_as_a_set() -> None:
    """3.1.3 not batched: each entry once, however often it is acknowledged, in the order of the first time."""
    grouping = AckGrouping(batch_index_acks=True)
    for number in (7, 3, 7, 3, 5):
        assert grouping.individual(entry(number))
    assert grouping.pending_count == 3
    assert grouping.take(1000) == [AckCommand(False, [(at(7), None), (at(3), None), (at(5), None)])]


def test_nothing_to_send_is_no_command() -> None:
    """3.1.12 an empty ack list makes no command."""
    grouping = AckGrouping(batch_index_acks=True)
    assert grouping.take(1000) == []
    assert grouping.pending_count == 0


def test_redelivered_messages_with_an_ack_on_its_way_are_recognised() -> None:
    """3.1.8 duplicates: below the cumulative ack (index-aware), in the pending set, or a cleared bit."""
    grouping = AckGrouping(batch_index_acks=True)
    grouping.received(at(9), 0b1111)
    grouping.individual(entry(12))
    grouping.individual(entry(13, 0, 2))
    grouping.cumulative(entry(9, 1, 4))
    duplicates = [(8, -1), (9, 0), (9, 1), (12, -1), (12, 5), (13, 0)]
    fresh = [(9, 2), (9, -1), (10, -1), (13, 1)]
    assert all(grouping.is_duplicate(at(number), index) for number, index in duplicates)
    assert not any(grouping.is_duplicate(at(number), index) for number, index in fresh)


def test_after_a_flush_single_acks_are_the_brokers_business() -> None:
    """3.1.8 the filter hides the race of an ack that is under way; after the flush only the cumulative ack counts."""
    grouping = AckGrouping(batch_index_acks=True)
    grouping.individual(entry(12))
    grouping.cumulative(entry(3))
    grouping.take(1000)
    assert not grouping.is_duplicate(at(12), -1)
    assert grouping.is_duplicate(at(3), -1)


def test_forgetting_begins_anew() -> None:
    """3.1.11 after a seek or a rewind nothing is pending and the last cumulative ack is earliest."""
    grouping = AckGrouping(batch_index_acks=True)
    grouping.cumulative(entry(9))
    grouping.individual(entry(12))
    grouping.forget()
    assert grouping.take(1000) == []
    assert not grouping.is_duplicate(at(1), -1)
    grouping.reattached(by_broker=False)
    assert grouping.take(1000) == []


def test_a_lost_cumulative_ack_is_repeated_on_the_next_connection() -> None:
    """3.1.12 acks sent but lost cause redelivery, which this client would filter: so it says the ack once more."""
    grouping = AckGrouping(batch_index_acks=True)
    grouping.cumulative(entry(9))
    first = grouping.take(1000)
    grouping.reattached(by_broker=False)
    assert grouping.take(1000) == first


def test_an_ack_that_waits_survives_the_redelivery_that_it_crosses() -> None:
    """3.1.6, 3.1.8 the broker sends the batch again before it heard of an ack: the bit stays cleared."""
    grouping = AckGrouping(batch_index_acks=True)
    grouping.received(at(5), 0b111)
    grouping.individual(entry(5, 0, 3))
    grouping.received(at(5), 0b111)
    grouping.individual(entry(5, 1, 3))
    assert grouping.take(1000) == [AckCommand(False, [(at(5), (4,))])]


def test_a_batch_is_whole_with_its_last_message() -> None:
    """3.1.5, 3.1.6 each ack tells whether the entry is acknowledged by it; then it leaves the trackers (3.1.10)."""
    for index_acks in (True, False):
        grouping = AckGrouping(batch_index_acks=index_acks)
        grouping.received(at(5), 0b1011)
        assert [grouping.individual(entry(5, index, 4)) for index in (3, 0, 1)] == [False, False, True]
        assert grouping.individual(entry(6))
        assert grouping.individual(entry(5, 2, 4))


def test_to_acknowledge_a_message_of_a_batch_again_does_not_end_the_batch() -> None:
    """3.1.10 The rest of it stays with the trackers, or it would time out no more."""
    for index_acks in (True, False):
        grouping = AckGrouping(batch_index_acks=index_acks)
        grouping.received(at(5), 0b11)
        assert [grouping.individual(entry(5, index, 2)) for index in (0, 0, 1, 1)] == [False, False, True, True]


def test_what_waits_of_a_batch_that_was_asked_for_again_is_kept() -> None:
    """3.1.6 An ack after that request adds to the one that waits: a bit stays cleared."""
    grouping = AckGrouping(batch_index_acks=True)
    grouping.received(at(5), 0b111)
    grouping.individual(entry(5, 0, 3))
    grouping.redelivering([at(5)])
    grouping.individual(entry(5, 1, 3))
    assert grouping.take(1000) == [AckCommand(False, [(at(5), (4,))])]


def test_what_was_open_of_a_batch_is_forgotten_with_its_place() -> None:
    """3.1.11 After a seek both messages come again: the late ack of one of them does not speak for the other."""
    grouping = AckGrouping(batch_index_acks=False)
    grouping.received(at(5), 0b11)
    grouping.individual(entry(5, 0, 2))
    grouping.forget()
    assert not grouping.individual(entry(5, 1, 2))
    assert grouping.take(1000) == []
    grouping.reattached(by_broker=False)
    assert not grouping._open  # on Shared it may come to somebody else


def test_a_reattachment_by_the_broker_begins_anew() -> None:
    """3.1.12 nothing sent was lost, but the subscription may stand elsewhere: no filter, and no repetition."""
    grouping = AckGrouping(batch_index_acks=True)
    grouping.cumulative(entry(9))
    grouping.take(1000)
    grouping.individual(entry(12))
    grouping.reattached(by_broker=True)
    assert grouping.take(1000) == [AckCommand(False, [(at(12), None)])]
    assert not grouping.is_duplicate(at(3), -1)
    grouping.cumulative(entry(8))
    grouping.reattached(by_broker=True)
    assert grouping.take(1000) == [AckCommand(True, [(at(8), None)])]


def test_what_is_asked_for_again_is_as_the_broker_says_then() -> None:
    """4.2.7 (3.1.5) without index acks a redelivered batch is wholly open, whatever was acknowledged of it."""
    grouping = AckGrouping(batch_index_acks=False)
    grouping.received(at(5), 0b11)
    grouping.individual(entry(5, 0, 2))
    grouping.redelivering([at(5)])
    assert not grouping._open  # it may come to somebody else
    grouping.received(at(5), 0b11)
    assert not grouping.individual(entry(5, 1, 2))
    assert grouping.take(1000) == []


SIZES = {number: (1, 3, 70)[number % 3] for number in range(9)}

acks = st.tuples(st.booleans(), st.integers(0, 8), st.integers(0, 69), st.booleans())


@given(st.lists(acks, max_size=40), st.booleans())
def test_grouped_acks_end_as_immediate_ones_do(given_acks: list[tuple[bool, int, int, bool]], index_acks: bool) -> None:
    """I3.5 grouped acks and a flush leave the broker in the state that acks sent at once leave it in."""
    grouped, immediate = (AckGrouping(batch_index_acks=index_acks) for _ in range(2))
    late, early = ModelBroker(), ModelBroker()
    for number, size in SIZES.items():
        for grouping in (grouped, immediate):
            if size > 1:
                grouping.received(at(number), (1 << size) - 1)
    last = Position(-1, -1)
    for cumulative, number, index, flush in given_acks:
        size = SIZES[number]
        message_id = entry(number) if size == 1 else entry(number, index % size, size)
        for grouping in (grouped, immediate):
            (grouping.cumulative if cumulative else grouping.individual)(message_id)
        early.take(immediate.take(1))
        if flush:
            late.take(grouped.take(1000))
        assert early.mark_delete >= last
        last = early.mark_delete
    late.take(grouped.take(1000))
    for number, size in SIZES.items():
        ids = [entry(number)] if size == 1 else [entry(number, index, size) for index in range(size)]
        assert [late.is_acked(each) for each in ids] == [early.is_acked(each) for each in ids]
