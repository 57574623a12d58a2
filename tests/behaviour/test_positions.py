# SPDX-License-Identifier: Apache-2.0
"""Where reading goes on: seek, readers, last ids, tables (semantics 1.4, 1.9, 7.13)."""

from __future__ import annotations

import json
import time

import pytest

from tests.behaviour.cell import Cell, take, take_all, take_and_ack, take_values, values
from tests.behaviour.interface import EARLIEST, LATEST, SubscriptionType
from tests.client.helpers import until_acks_are_stored


@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
def test_seek_goes_behind_a_message(cell: Cell, kind: SubscriptionType) -> None:
    """1.4.6: acknowledgements are forgotten; earliest and latest are the ends (1.4.3)."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type=kind)
    ids = cell.send(topic, "abcd")
    take_and_ack(consumer, 4)
    until_acks_are_stored(cell.service, topic)
    consumer.seek(ids[1])
    assert take_values(consumer, 2) == ["c", "d"]
    consumer.seek(EARLIEST)
    assert take_values(consumer, 4) == ["a", "b", "c", "d"]
    consumer.seek(LATEST)
    cell.send(topic, "e")
    assert take_values(consumer, 1) == ["e"]


def test_seek_goes_into_a_batch(cell: Cell) -> None:
    """1.4.6, 1.4.5: behind one message of it."""
    topic = cell.topic()
    consumer = cell.consumer(topic)
    cell.send_batch(topic, "abcd")
    target = take_and_ack(consumer, 4)[1].message_id
    until_acks_are_stored(cell.service, topic)
    consumer.seek(target)
    assert take_values(consumer, 2) == ["c", "d"]


def test_seek_by_time_is_inclusive(cell: Cell) -> None:
    """1.4.6: the first message published, or stored by a broker that keeps its own time, at or after it."""
    topic = cell.topic()
    consumer = cell.consumer(topic)
    cell.send(topic, "ab")
    take_and_ack(consumer, 2)
    middle = time.time_ns() // 1_000_000 + 1
    while time.time_ns() // 1_000_000 < middle:  # these times are milliseconds
        pass
    cell.send(topic, "cd")
    take_and_ack(consumer, 2)
    until_acks_are_stored(cell.service, topic)
    consumer.seek(middle)
    assert take_values(consumer, 2) == ["c", "d"]
    consumer.seek(1)
    assert take_values(consumer, 4) == ["a", "b", "c", "d"]


def test_seek_forgets_counts(cell: Cell) -> None:
    """4.4.3, 1.4.6: what comes after a seek was never redelivered."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type="Shared", nack_delay_ms=100)
    cell.send(topic, "a")
    consumer.nack(take(consumer, 1)[0])
    assert take(consumer, 1)[0].redelivery_count == 1
    consumer.seek(EARLIEST)
    assert take(consumer, 1)[0].redelivery_count == 0


def test_seek_by_time_moves_all_partitions(cell: Cell) -> None:
    """1.2.4, 1.4.6: a time means something in each."""
    topic = cell.topic(partitions=2)
    consumer = cell.consumer(topic)
    for partition in range(2):
        cell.send(f"{topic}-partition-{partition}", [f"{partition}"])
    take_and_ack(consumer, 2)
    for partition in range(2):
        until_acks_are_stored(cell.service, f"{topic}-partition-{partition}")
    consumer.seek(1)
    assert sorted(take_values(consumer, 2)) == ["0", "1"]


def test_a_reader_sees_everything_or_what_comes(cell: Cell) -> None:
    """7.13, 1.4.3: from the earliest or the latest."""
    topic = cell.topic()
    cell.send(topic, "ab")
    early, late = cell.reader(topic, EARLIEST), cell.reader(topic, LATEST)
    assert not late.has_message_available()
    cell.send(topic, "c")
    assert take_values(early, 3) == ["a", "b", "c"]
    assert take_values(late, 1) == ["c"]
    assert not early.has_message_available()


@pytest.mark.parametrize("inclusive", [False, True])
@pytest.mark.parametrize("batched", [False, True])
def test_a_reader_begins_behind_a_message_or_at_it(cell: Cell, inclusive: bool, batched: bool) -> None:
    """1.4.6, 1.9.2: also inside a batch, without a subscription that stays."""
    topic = cell.topic()
    if batched:
        cell.send_batch(topic, "abcd")
    else:
        cell.send(topic, "abcd")
    start = take(cell.reader(topic), 2)[1].message_id
    reader = cell.reader(topic, start, inclusive=inclusive)
    assert take_values(reader, 3 if inclusive else 2) == (["b"] if inclusive else []) + ["c", "d"]
    assert not reader.has_message_available()


def test_a_reader_begins_so_long_ago(cell: Cell) -> None:
    """1.4.6, 7.13: with the first message published since then."""
    topic = cell.topic()
    cell.send(topic, "ab")
    reader = cell.reader(topic, rollback_s=3600)
    assert reader.has_message_available()
    assert take_values(reader, 2) == ["a", "b"]
    assert not reader.has_message_available()


def reset_into_batch(cell: Cell, index: int, *, excluded: bool) -> str:
    """A topic of the batch abcd and then e, which an operator has reset to message ``index`` of that batch."""
    topic = cell.topic()
    consumer = cell.consumer(topic)
    cell.send_batch(topic, "abcd")
    cell.send(topic, "e")
    place = take(consumer, 4)[0].message_id
    consumer.close()
    body = {"ledgerId": place.ledger, "entryId": place.entry, "batchIndex": index, "excluded": excluded}
    cell.admin("POST", topic, "subscription/s/resetcursor", json.dumps(body))
    return topic


@pytest.mark.parametrize("excluded", [False, True])
@pytest.mark.parametrize("index", [0, 2, 3])
def test_an_operator_resets_into_a_batch(cell: Cell, index: int, excluded: bool) -> None:
    """1.4.6: before one message of it, or behind it."""
    topic = reset_into_batch(cell, index, excluded=excluded)
    wanted = list("abcde")[index + excluded :]
    assert take_values(cell.consumer(topic), len(wanted)) == wanted


@pytest.mark.parametrize("excluded", [False, True])
def test_an_operator_who_names_no_message_of_a_batch_gets_all_of_it(cell: Cell, excluded: bool) -> None:
    """1.4.6: an index behind the batch passes over nothing that was not excluded."""
    topic = reset_into_batch(cell, 7, excluded=excluded)
    wanted = ["e"] if excluded else list("abcde")
    assert take_values(cell.consumer(topic), len(wanted)) == wanted


def test_a_reader_knows_whether_there_is_more(cell: Cell) -> None:
    """7.13: until the last message of the last batch."""
    topic = cell.topic()
    reader = cell.reader(topic)
    assert not reader.has_message_available()
    cell.send_batch(topic, "abc")
    cell.send(topic, "d")
    seen: list[str] = []
    while reader.has_message_available():
        seen += take_values(reader, 1)
    assert seen == ["a", "b", "c", "d"]


def test_a_reader_does_not_take_from_subscriptions(cell: Cell) -> None:
    """1.9.2, 3.6.7: it reads for itself."""
    topic = cell.topic()
    consumer = cell.consumer(topic)
    cell.send(topic, "ab")
    assert take_values(cell.reader(topic), 2) == ["a", "b"]
    assert take_values(consumer, 2) == ["a", "b"]


def test_the_last_message_id_is_that_of_the_last_message(cell: Cell) -> None:
    """1.4.1, 1.4.2: of a batch, the last one inside; of an empty topic, entry -1."""
    topic = cell.topic()
    consumer = cell.consumer(topic)
    assert consumer.last_message_id().entry == -1
    cell.send_batch(topic, "abc")
    last = take(consumer, 3)[-1].message_id
    found = consumer.last_message_id()
    assert (found.ledger, found.entry, found.batch_index) == (last.ledger, last.entry, 2)


def test_a_table_holds_the_newest_value_of_each_key(cell: Cell) -> None:
    """7.13: read from the earliest message, and kept up to date."""
    topic = cell.topic()
    for key, value in (("a", "1"), ("b", "2"), ("a", "3")):
        cell.send(topic, [value], key=key)
    assert cell.table_view(topic).rows() == {"a": "3", "b": "2"}


def test_what_was_not_received_is_still_there_later(cell: Cell) -> None:
    """3.7, 1.9.2: nothing that was published between two consumers of a subscription is missing."""
    topic = cell.topic()
    cell.consumer(topic).close()
    cell.send(topic, "ab")
    first = cell.consumer(topic)
    assert values(take_and_ack(first, 2)) == ["a", "b"]
    first.close()
    cell.send(topic, "c")
    second = cell.consumer(topic)
    assert take_values(second, 1) == ["c"]
    assert take_all(second) == []
