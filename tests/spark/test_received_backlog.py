# SPDX-License-Identifier: Apache-2.0
"""What consumers of a query were given, and the batches that are chosen from it."""

from __future__ import annotations

from broker_core.client import Given, GivenEntry
from broker_core.testing.virtual_timers import VirtualTimers
from broker_core.wire.entry_peek import ChunkPlace
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.queue.entry_ids import EntryRun, apart
from pulsarish_spark.queue.queue_offset import PartitionBatch, QueueOffset
from pulsarish_spark.queue.received_backlog import KEPT_S, Acknowledged, Choice, Dropped, ReceivedBacklog, Source

KEY = TopicPartition("persistent://a/b/c", 0)
FIRST, SECOND = Source(KEY, 0), Source(KEY, 1)


def entry(number: int, messages: int = 1, chunk: ChunkPlace | None = None) -> GivenEntry:
    return GivenEntry(0, number, messages, chunk=chunk)


def numbers(choice: Choice) -> list[int]:
    """The entries of a choice in its order."""
    return [each.entry for _, unit in choice.units for each in apart(unit)]


def ids(chosen: Choice | Dropped) -> dict[Source, list[int]]:
    """By consumer; all are of ledger 0."""
    return {source: ledgers[0].tolist() for source, ledgers in chosen.ids().items()}


def test_lines_are_taken_from_by_turns_up_to_the_limit() -> None:
    """And in the order in which the broker gave; the line whose entry did not fit is first next time."""
    received = ReceivedBacklog()
    received.add(FIRST, Given(1, [entry(0), entry(1), entry(2)]))
    received.add(SECOND, Given(1, [entry(10, 3), entry(11, 3)]))
    assert numbers(received.choose(4)) == [0, 10]
    assert numbers(received.choose(4)) == [1, 11]
    assert numbers(received.choose(4)) == [2]
    assert received.is_empty


def test_one_entry_is_taken_though_it_is_larger_than_the_limit() -> None:
    """Or it would never be."""
    received = ReceivedBacklog()
    received.add(FIRST, Given(1, [entry(0, 100), entry(1, 100)]))
    assert numbers(received.choose(10)) == [0]


def test_what_is_put_back_is_chosen_in_the_same_order() -> None:
    """As if it had not been taken."""
    received = ReceivedBacklog()
    received.add(FIRST, Given(1, [entry(0), entry(1), entry(2)]))
    received.put_back(received.choose(3).units[1:])
    assert numbers(received.choose(3)) == [1, 2]


def test_a_session_that_ends_takes_what_it_gave_with_it() -> None:
    """Half a message in chunks too: its entries come again."""
    received = ReceivedBacklog()
    assert received.add(FIRST, Given(1, [entry(0), entry(1, 0, ChunkPlace("m", 0, 2))]))
    assert not received.add(FIRST, Given(1, [entry(2)]))
    assert received.add(FIRST, Given(2, [entry(5), entry(6, 1, ChunkPlace("m", 1, 2))]))
    assert numbers(received.choose(10)) == [5]


def test_chunks_are_chosen_together_where_the_last_one_stands() -> None:
    """And count as one message."""
    received = ReceivedBacklog()
    chunks = [entry(number, number // 2, ChunkPlace("m", number, 3)) for number in (0, 1)]
    received.add(FIRST, Given(1, [*chunks, entry(5)]))
    assert numbers(received.choose(10)) == [5]
    received.add(FIRST, Given(1, [entry(2, 1, ChunkPlace("m", 2, 3)), entry(6)]))
    choice = received.choose(1)
    assert (numbers(choice), choice.messages) == ([0, 1, 2], 1)


def test_what_two_consumers_were_given_is_in_a_batch_once() -> None:
    """The one after the other, but both have spent permits on it."""
    received = ReceivedBacklog()
    received.add(FIRST, Given(1, [entry(0), entry(1)]))
    received.add(SECOND, Given(1, [entry(1)]))
    choice = received.choose(10)
    assert numbers(choice) == [0, 1]
    assert choice.taken() == {FIRST: 2, SECOND: 1}


def test_entries_in_a_row_are_cut_where_the_batch_ends() -> None:
    """The rest comes next; what lies behind a gap, or came before, is not of the row."""
    received = ReceivedBacklog()
    again = GivenEntry(0, 7, 1, redelivery_count=1)
    received.add(FIRST, Given(1, [*(entry(number) for number in range(5)), entry(6), again, entry(8)]))
    choice = received.choose(3)
    assert (choice.entries(), choice.messages) == ({KEY: [EntryRun(0, 0, 1), EntryRun(0, 1, 2), EntryRun(0, 2, 3)]}, 3)
    choice = received.choose(40)
    assert (choice.entries(), choice.messages) == (
        {KEY: [EntryRun(0, 3, 5), EntryRun(0, 6, 7), again, EntryRun(0, 8, 9)]},
        5,
    )


def test_of_rows_that_overlap_each_entry_is_in_the_batch_once() -> None:
    """Also where other lines have entries between them, and of each ledger by itself."""
    received = ReceivedBacklog()
    received.add(FIRST, Given(1, [entry(number) for number in range(10)]))
    received.add(SECOND, Given(1, [*(entry(number) for number in range(8, 14)), GivenEntry(1, 8, 1), entry(3, 5)]))
    choice = received.choose(100)
    assert sorted(numbers(choice)) == sorted([*range(14), 8])
    assert choice.taken() == {FIRST: 10, SECOND: 12}
    assert ids(choice) == {FIRST: list(range(10)), SECOND: [10, 11, 12, 13]}
    assert sum(len(unit) for _, unit in choice.repeats) == 3


def test_what_is_in_a_batch_already_is_dropped_out_of_a_row() -> None:
    """And what is left of the row stays in its order."""
    received = ReceivedBacklog()
    received.add(FIRST, Given(1, [entry(number) for number in range(6)]))
    dropped = received.drop(lambda _key, given: given.entry in (1, 4))
    assert dropped.messages() == {FIRST: 2}
    assert ids(dropped) == {FIRST: [1, 4]}
    assert numbers(received.choose(10)) == [0, 2, 3, 5]


def test_what_is_in_a_batch_already_is_dropped() -> None:
    """Of that partition, and told by consumer, whose permits it has taken."""
    received = ReceivedBacklog()
    received.add(FIRST, Given(1, [entry(0, 5), entry(1, 3)]))
    other = Source(TopicPartition("persistent://a/b/d", 0), 0)
    received.add(other, Given(1, [entry(0)]))
    dropped = received.drop(lambda key, given: key == KEY and given.entry == 0)
    assert dropped.messages() == {FIRST: 5}
    assert ids(dropped) == {FIRST: [0]}
    assert sorted(numbers(received.choose(10))) == [0, 1]


def test_single_chunks_that_are_in_a_batch_already_are_dropped() -> None:
    """A broker may give again some chunks of a message alone; those before the last have taken no permit."""
    received = ReceivedBacklog()
    chunks = [entry(number, int(number == 2), ChunkPlace("u", number, 3)) for number in range(3)]
    received.add(FIRST, Given(1, [chunks[0], chunks[2]]))
    dropped = received.drop(lambda _key, given: given.entry in range(3))
    assert dropped.messages() == {FIRST: 1}
    assert ids(dropped) == {FIRST: [0, 2]}
    received.add(FIRST, Given(1, [chunks[1]]))
    assert received.is_empty


def test_acknowledged_entries_are_known_while_they_may_come_again() -> None:
    """A ledger is forgotten when nothing of it was acknowledged for a while."""
    clock = VirtualTimers()
    acknowledged = Acknowledged(clock)
    acknowledged.add(QueueOffset(1, 1, {KEY: PartitionBatch.of([entry(5)])}))
    other = TopicPartition(KEY.topic, 1)
    assert [acknowledged.has(key, entry(n)) for key, n in ((KEY, 5), (KEY, 6), (other, 5))] == [True, False, False]
    clock.sleep(KEPT_S + 1)
    acknowledged.add(QueueOffset(2, 1, {other: PartitionBatch.of([entry(0)])}))
    assert not acknowledged.has(KEY, entry(5))
    assert acknowledged.has(other, entry(0))
