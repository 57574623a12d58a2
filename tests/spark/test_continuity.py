# SPDX-License-Identifier: Apache-2.0
"""Data loss is found where it happens: at the start, in the middle, at a change of ledgers, at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from broker_core.base.positions import Position
from broker_core.client import Bounds
from broker_core.wire.entry import EntryRef, seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata
from pulsarish_spark.losses.loss import DataLossError, LossPolicy
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.tasks.planning import EntryRange
from pulsarish_spark.tasks.range_reader import Continuity

KEY = TopicPartition("persistent://public/default/t", 1)


def entry(ledger: int, number: int, index: int, messages: int = 1) -> EntryRef:
    """An entry whose last message has ``index``."""
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=messages)
    return EntryRef(ledger, number, seal_entry(metadata.SerializeToString(), b""), index)


def is_there(at: Position) -> Bounds:
    """What a broker tells whose ledgers are there, and have nothing to give at ``at`` and behind it."""
    return Bounds(Position(at.ledger, at.entry - 1), None)


def is_gone(at: Position) -> Bounds:
    """What a broker tells that has deleted the ledger of ``at``."""
    return Bounds(Position(at.ledger + 4, -1), None)


def read(
    start: Offset,
    end: Offset,
    entries: list[EntryRef],
    around: Callable[[Position], Bounds] = is_gone,
    *,
    fail: bool = True,
    exact: bool = True,
) -> None:
    """Watch ``entries`` go by, in two lists."""
    wanted = EntryRange(KEY, f"{KEY.topic}-partition-1", True, start, end, exact)
    continuity = Continuity(wanted, end, LossPolicy(fail), around)
    for group in (entries[: len(entries) // 2], entries[len(entries) // 2 :]):
        if group:
            continuity.check(group)
    continuity.finish()


def at(ledger: int, number: int, index: int = -1) -> Offset:
    return Offset(Position(ledger, number), index)


def test_a_whole_range_over_two_ledgers_is_fine() -> None:
    """Indexes show that nothing lies between the last entry of one ledger and the first of the next."""
    read(at(5, 2, 10), at(7, 1, 16), [entry(5, 2, 10), entry(5, 3, 13, 3), entry(6, 0, 14), entry(7, 0, 15)])
    read(at(5, 2), at(7, 1), [entry(5, 2, -1), entry(5, 3, -1), entry(6, 0, -1), entry(7, 0, -1)], is_there)


@pytest.mark.parametrize("indexed", [True, False])
def test_what_a_broker_gives_to_nobody_is_no_loss(*, indexed: bool) -> None:
    """Entries at the start, in the middle, at both sides of a change of ledgers, in a ledger of their own, and at the
    end, as long as the ledger is there in which they come next. They have indexes, too."""

    def given(ledger: int, number: int, index: int) -> EntryRef:
        return entry(ledger, number, index if indexed else -1)

    def place(ledger: int, number: int, index: int) -> Offset:
        return at(ledger, number, index if indexed else -1)

    entries = [given(5, 4, 14), given(5, 5, 15), given(5, 7, 17), given(7, 2, 24), given(7, 4, 26)]
    read(place(5, 2, 12), place(7, 8, 30), entries, is_there)
    read(place(5, 2, 12), place(7, 8, 30), [], is_there)
    read(place(5, 5, 15), place(5, 7, 17), [given(5, 5, 15)], is_there)


def test_holes_at_the_beginning_of_a_ledger_are_no_loss_though_the_one_before_is_gone() -> None:
    """Indexes are missing before its first message, as many as it has entries there; one more is lost."""
    read(at(5, 4, 14), at(7, 3, 18), [entry(5, 4, 14), entry(7, 2, 17)])
    with pytest.raises(DataLossError, match=r"at 5:5@15, but the next message is 7:2@18: 1 message lost"):
        read(at(5, 4, 14), at(7, 3, 19), [entry(5, 4, 14), entry(7, 2, 18)])


def test_an_end_before_which_something_comes_that_was_not_read_is_told() -> None:
    """A broker that had nothing more to give has given nothing of it."""

    def comes(position: Position) -> Bounds:
        return is_there(position)._replace(first=entry(5, 6, 16))

    read(at(5, 5, 15), at(5, 6, 16), [], comes)
    with pytest.raises(DataLossError, match=r"nothing between 5:5@15 and 5:7@17: 2 messages lost"):
        read(at(5, 5, 15), at(5, 7, 17), [], comes)


LOSSES = [
    (
        at(5, 2, 10),
        at(6, 3, 17),
        [entry(6, 0, 14, 1), *(entry(6, n, 14 + n) for n in (1, 2))],
        f"partition {KEY} should go on at 5:2@10, but the next message is 6:0@14: 4 messages lost",
    ),
    (
        at(5, 2, 10),
        at(6, 1, 20),
        [entry(5, 2, 10), entry(6, 0, 19)],
        f"partition {KEY} should go on at 5:3@11, but the next message is 6:0@19: 8 messages lost",
    ),
    (
        at(5, 2),
        at(6, 2),
        [entry(5, 2, -1), entry(6, 1, -1)],
        (f"partition {KEY} should go on at 5:3, but the next message is 6:1: an unknown number of messages lost"),
    ),
    (
        at(5, 2, 10),
        at(5, 5, 13),
        [entry(5, 2, 10)],
        f"partition {KEY} has nothing between 5:3@11 and 5:5@13: 2 messages lost",
    ),
    (
        at(5, 2, 10),
        at(5, 3, 11),
        [],
        f"partition {KEY} has nothing between 5:2@10 and 5:3@11: 1 message lost",
    ),
    (
        at(5, 2, 10),
        at(7, 1, 1),
        [entry(7, 0, 0)],
        f"partition {KEY} should go on at 5:2@10, but 7:0@0 comes next: it was deleted or replaced",
    ),
    (
        at(5, 2, 10),
        at(5, 3, 9),
        [entry(5, 2, 8)],
        f"partition {KEY} should go on at 5:2@10, but 5:2@8 comes next: it was deleted or replaced",
    ),
    (
        at(5, 2, 10),
        Offset(Position(5, 4), 14, 2),
        [entry(5, 2, 10)],
        f"partition {KEY} has nothing between 5:3@11 and 5:4:1:2@14: 3 messages lost",
    ),
    (
        at(5, 2),
        Offset(Position(5, 3), -1, 2),
        [entry(5, 2, -1)],
        f"partition {KEY} has nothing between 5:3 and 5:3:1:2: an unknown number of messages lost",
    ),
    (
        at(5, 9),
        Offset(Position(6, 0), -1, 2),
        [entry(5, 9, -1)],
        f"partition {KEY} has nothing between 5:10 and 6:0:1:2: an unknown number of messages lost",
    ),
]


@pytest.mark.parametrize(("start", "end", "entries", "text"), LOSSES)
def test_what_is_missing_is_named_and_counted(start: Offset, end: Offset, entries: list[EntryRef], text: str) -> None:
    """The error names topic, partition, both positions and the count, and what to do."""
    with pytest.raises(DataLossError) as caught:
        read(start, end, entries)
    assert str(caught.value) == (
        f"{text}; retention or somebody deleted them; restore them, start a new checkpoint, "
        'or go on without them: .option("failOnDataLoss", "false")'
    )


@pytest.mark.parametrize(("start", "end", "entries", "text"), LOSSES)
def test_with_fail_on_data_loss_false_it_is_one_warning(
    start: Offset, end: Offset, entries: list[EntryRef], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Reading goes on with what is there."""
    with caplog.at_level(logging.WARNING):
        read(start, end, entries, fail=False)
    assert [record.getMessage() for record in caplog.records] == [
        f"data loss what={text} effect=reading goes on because failOnDataLoss is false"
    ]


def test_an_earliest_start_takes_what_is_first_then() -> None:
    """A batch read planned before retention deleted the oldest ledger is not an error."""
    read(at(5, 2, 10), at(5, 8, 16), [entry(5, 7, 15)], exact=False)
    read(at(5, 2, 10), at(5, 8, 16), [], exact=False)


def test_a_start_inside_an_entry_expects_the_whole_entry() -> None:
    """The first members of the batch are read and dropped."""
    read(Offset(Position(5, 2), 12, 2), at(5, 3, 14), [entry(5, 2, 13, 4)])


def test_an_end_inside_an_entry_expects_that_entry() -> None:
    """Its last members are read and dropped, or are not there: an id may be of more than the entry has."""
    for inside in (1, 3, 9):
        read(at(5, 2, 10), Offset(Position(5, 3), 11 + inside, inside), [entry(5, 2, 10), entry(5, 3, 14, 4)])
        read(at(5, 2), Offset(Position(5, 3), -1, inside), [entry(5, 2, -1), entry(5, 3, -1, 4)])
