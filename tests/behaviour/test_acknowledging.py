# SPDX-License-Identifier: Apache-2.0
"""Acknowledging: what was acknowledged stays away, everything else comes back (semantics 3)."""

from __future__ import annotations

import pytest

from tests.behaviour.cell import Cell, take, take_all, take_values, values
from tests.behaviour.interface import RefusedError, SubscriptionType
from tests.client.helpers import eventually

ORDERED: list[SubscriptionType] = ["Exclusive", "Failover"]
ALL: list[SubscriptionType] = [*ORDERED, "Shared", "Key_Shared"]


@pytest.mark.parametrize("kind", ALL)
def test_only_what_was_not_acknowledged_comes_again(cell: Cell, kind: SubscriptionType) -> None:
    """3.4.2, 3.6.6: single acknowledgements leave holes."""
    topic = cell.topic()
    first = cell.consumer(topic, type=kind)
    cell.send(topic, "abcdef")
    for message in take(first, 6):
        if message.value in "acd":
            first.ack(message)
    first.close()
    again = cell.consumer(topic, type=kind)
    assert sorted(take_values(again, 3)) == ["b", "e", "f"]
    assert take_all(again) == []


@pytest.mark.parametrize("kind", ORDERED)
def test_a_cumulative_one_covers_everything_before_it(cell: Cell, kind: SubscriptionType) -> None:
    """3.5.1, 2.3.5.6: also what the application never acknowledged (3.1.4)."""
    topic = cell.topic()
    first = cell.consumer(topic, type=kind)
    cell.send(topic, "abcdef")
    first.ack_cumulative(take(first, 4)[-1])
    # Apache Pulsar begins to serve the first Failover consumer in a thread that notes only then that this was done;
    # a consumer that comes in between is never served (its pull request 3411).
    eventually(lambda: cell.backlog(topic) == 2, "the server has seen what is acknowledged")
    first.close()
    assert take_values(cell.consumer(topic, type=kind), 2) == ["e", "f"]


def test_an_older_cumulative_one_is_nothing(cell: Cell) -> None:
    """3.1.4, 3.5.3: the mark never goes back."""
    topic = cell.topic()
    first = cell.consumer(topic)
    cell.send(topic, "abcd")
    messages = take(first, 4)
    first.ack_cumulative(messages[2])
    first.ack_cumulative(messages[0])
    first.close()
    assert take_values(cell.consumer(topic), 1) == ["d"]


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared"])
def test_a_cumulative_one_is_refused_where_messages_are_shared(cell: Cell, kind: SubscriptionType) -> None:
    """3.3.1, 2.4.1, 2.10.5: messages before one may be with others."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type=kind)
    cell.send(topic, "a")
    message = take(consumer, 1)[0]
    with pytest.raises(RefusedError):
        consumer.ack_cumulative(message)


@pytest.mark.parametrize("kind", ALL)
def test_the_rest_of_a_batch_comes_again(cell: Cell, kind: SubscriptionType) -> None:
    """3.1.6, 3.4.3 (3.6.6): acknowledged one by one, inside an entry."""
    topic = cell.topic()
    first = cell.consumer(topic, type=kind)
    cell.send_batch(topic, "abcd")
    for message in take(first, 4):
        if message.value in "ac":
            first.ack(message)
    first.close()
    again = cell.consumer(topic, type=kind)
    assert take_values(again, 2) == ["b", "d"]
    assert take_all(again) == []


def test_without_batch_indexes_the_whole_batch_comes_again(cell: Cell) -> None:
    """3.1.5: an entry is acknowledged when all of it is."""
    topic = cell.topic()
    first = cell.consumer(topic, batch_index_acks=False)
    cell.send_batch(topic, "abcd")
    for message in take(first, 4)[:3]:
        first.ack(message)
    first.close()
    second = cell.consumer(topic, batch_index_acks=False)
    for message in take(second, 4):
        second.ack(message)
    second.close()
    cell.send(topic, "e")
    assert take_values(cell.consumer(topic, batch_index_acks=False), 1) == ["e"]


def test_a_cumulative_one_inside_a_batch_keeps_what_is_behind_it(cell: Cell) -> None:
    """3.5.2."""
    topic = cell.topic()
    first = cell.consumer(topic)
    cell.send(topic, "x")
    cell.send_batch(topic, "abcd")
    first.ack_cumulative(take(first, 3)[-1])
    first.close()
    assert take_values(cell.consumer(topic), 2) == ["c", "d"]


def test_without_batch_indexes_a_cumulative_one_stops_before_the_batch(cell: Cell) -> None:
    """3.1.5: nothing of the batch is acknowledged, everything before it is."""
    topic = cell.topic()
    first = cell.consumer(topic, batch_index_acks=False)
    cell.send(topic, "xy")
    cell.send_batch(topic, "abcd")
    first.ack_cumulative(take(first, 4)[-1])
    first.close()
    assert take_values(cell.consumer(topic, batch_index_acks=False), 4) == ["a", "b", "c", "d"]


def test_another_consumer_may_acknowledge(cell: Cell) -> None:
    """2.3.4.3: who was active may still acknowledge what it got when another one is."""
    topic = cell.topic(partitions=1)
    first = cell.consumer(topic, type="Failover", name="b")
    cell.send(topic, "ab")
    messages = take(first, 2)
    second = cell.consumer(topic, type="Failover", name="a")
    assert take_values(second, 2) == ["a", "b"]
    first.ack(messages[0])
    first.close()
    second.close()
    assert take_values(cell.consumer(topic, type="Failover"), 1) == ["b"]


def test_twice_is_as_good_as_once(cell: Cell) -> None:
    """3.4.1: acknowledging again changes nothing."""
    topic = cell.topic()
    first = cell.consumer(topic, type="Shared")
    cell.send(topic, "abc")
    messages = take(first, 3)
    for message in [messages[1], messages[1], messages[0], messages[1]]:
        first.ack(message)
    first.close()
    assert values(take(cell.consumer(topic, type="Shared"), 1)) == ["c"]
