# SPDX-License-Identifier: Apache-2.0
"""Redelivery on request: refusing, asking for everything, timing out, giving up (semantics 4)."""

from __future__ import annotations

import re
import time

import pytest

from tests.behaviour.cell import Cell, take, take_all, take_and_ack, take_values, values
from tests.behaviour.interface import SILENCE_MS, RefusedError, SubscriptionType
from tests.client.helpers import eventually

HELD_UP_MS = 4000
"""A delay that does not end between two steps of a test, though a busy machine holds one of them up."""


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared"])
def test_a_refused_message_comes_again_alone_and_counted(cell: Cell, kind: SubscriptionType) -> None:
    """4.3.1, 4.4.1, 4.4.3: the count rises each time, others are left alone."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type=kind, nack_delay_ms=100)
    cell.send(topic, "ab", key="k")
    first, second = take(consumer, 2)
    consumer.ack(first)
    assert second.redelivery_count == 0
    for count in (1, 2):
        consumer.nack(second)
        (second,) = take(consumer, 1)
        assert (second.value, second.redelivery_count) == ("b", count)
    consumer.ack(second)
    assert take_all(consumer) == []


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared"])
def test_what_a_blocked_consumer_refuses_comes_again_to_it(cell: Cell, kind: SubscriptionType) -> None:
    """2.4.7: at once, though it has not acknowledged half of what it may have; anything else waits for that."""
    topic = cell.topic_where_consumers_may_hold(4)
    consumer = cell.consumer(topic, type=kind, nack_delay_ms=100)
    cell.send(topic, "abcdef", key="k")
    held = {message.value: message for message in take(consumer, 4)}
    assert (sorted(held), take_all(consumer)) == (["a", "b", "c", "d"], [])
    for count in (1, 2):
        consumer.nack(held["c"])
        (held["c"],) = take(consumer, 1)
        assert (held["c"].value, held["c"].redelivery_count) == ("c", count)
    assert take_all(consumer) == []
    for value in "ab":
        consumer.ack(held[value])
    assert take_values(consumer, 2) == ["e", "f"]


def test_a_refused_message_does_not_come_early(cell: Cell) -> None:
    """4.3.1, 4.3.4: after its delay."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type="Shared", nack_delay_ms=1000)
    cell.send(topic, "a")
    message = take(consumer, 1)[0]
    refused_at = time.monotonic()
    consumer.nack(message)
    assert take_values(consumer, 1) == ["a"]
    assert time.monotonic() - refused_at >= 1.0


@pytest.mark.parametrize("kind", ["Exclusive", "Failover"])
def test_refusing_goes_back_to_the_first_unacknowledged(cell: Cell, kind: SubscriptionType) -> None:
    """4.3.7, 2.3.5.2, 2.3.5.3: everything that is not acknowledged comes again, in order, uncounted (2.3.5.4)."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type=kind, nack_delay_ms=100)
    cell.send(topic, "abcd")
    first, second, _, _ = take(consumer, 4)
    consumer.ack(first)
    eventually(lambda: cell.backlog(topic) == 3, "the server has seen what is acknowledged")
    consumer.nack(second)
    again = take(consumer, 3)
    assert values(again) == ["b", "c", "d"]
    assert {message.redelivery_count for message in again} == {0}


def test_acknowledging_a_refused_message_ends_the_matter(cell: Cell) -> None:
    """4.3.6: it does not come again (the broker ignores a request for what is acknowledged, 4.4.1)."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type="Shared", nack_delay_ms=HELD_UP_MS)
    cell.send(topic, "ab")
    message, refused_after = take(consumer, 2)
    consumer.nack(message)
    consumer.ack(message)
    consumer.nack(refused_after)
    assert values(take_and_ack(consumer, 1)) == ["b"]
    assert take_all(consumer) == []


def test_a_message_refused_twice_comes_again_once(cell: Cell) -> None:
    """4.3.5: the later time wins."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type="Shared", nack_delay_ms=HELD_UP_MS)
    cell.send(topic, "ab")
    message, refused_after = take(consumer, 2)
    consumer.nack_twice(message)
    consumer.nack(refused_after)
    assert [(again.value, again.redelivery_count) for again in take(consumer, 2)] == [("a", 1), ("b", 1)]
    assert take_all(consumer) == []


def test_refusing_one_of_a_batch_brings_back_the_rest_of_it(cell: Cell) -> None:
    """4.3.1 (3.6.6): the entry comes again, without what was acknowledged."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type="Shared", nack_delay_ms=1000)
    cell.send_batch(topic, "abc")
    messages = take(consumer, 3)
    consumer.ack(messages[0])
    consumer.ack(messages[2])
    consumer.nack(messages[1])
    assert take_values(consumer, 1) == ["b"]
    assert take_all(consumer) == []


@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
def test_asking_for_everything_brings_what_is_unacknowledged(cell: Cell, kind: SubscriptionType) -> None:
    """4.4.2, 2.3.5.2."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type=kind)
    cell.send(topic, "abc")
    messages = take(consumer, 3)
    consumer.ack(messages[1])
    # A read that is under way when the request comes carries the former epoch on Apache Pulsar, and is dropped.
    time.sleep(SILENCE_MS / 1000)
    consumer.redeliver_all()
    assert sorted(take_values(consumer, 2)) == ["a", "c"]


@pytest.mark.parametrize("kind", ["Shared", "Exclusive"])
def test_what_is_not_acknowledged_in_time_comes_again(cell: Cell, kind: SubscriptionType) -> None:
    """4.2.2, 4.2.3, 4.2.5: not before the time is over; acknowledged ones stay away (4.2.4)."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type=kind, ack_timeout_ms=HELD_UP_MS)
    cell.send(topic, "abc")
    taken_at = time.monotonic()
    take_and_ack(consumer, 1)
    take(consumer, 2)
    again = take_and_ack(consumer, 2)
    assert time.monotonic() - taken_at >= HELD_UP_MS / 1000 - 0.1
    assert sorted(values(again)) == ["b", "c"]
    assert take_all(consumer) == []


def test_a_refused_message_of_a_partition_comes_once_and_after_its_delay(cell: Cell) -> None:
    """4.5: although the timeout of acknowledgements is shorter than the delay."""
    topic = cell.topic(partitions=2)
    consumer = cell.consumer(topic, type="Shared", ack_timeout_ms=3000, nack_delay_ms=4500)
    cell.send(topic, "a")
    message = take(consumer, 1)[0]
    refused_at = time.monotonic()
    consumer.nack(message)
    again = take_and_ack(consumer, 1)
    assert time.monotonic() - refused_at >= 4.5
    assert [each.redelivery_count for each in again] == [1]
    assert take_all(consumer, 3300) == []


def test_a_message_that_is_refused_for_ever_becomes_a_dead_letter(cell: Cell) -> None:
    """4.7.8, 4.7.4, 4.7.1 (4.7.6): shown with counts 0, 1 and 2, then kept for whoever reads dead letters."""
    topic = cell.topic()
    consumer = cell.consumer(
        topic,
        type="Shared",
        nack_delay_ms=100,
        max_redeliver_count=2,
        dead_letter_topic=f"{topic}-dead",
        dead_letter_subscription="kept",
    )
    cell.send(topic, ["poison"], key="k", properties={"from": "test"})
    counts = []
    for _ in range(3):
        message = take(consumer, 1)[0]
        counts.append(message.redelivery_count)
        consumer.nack(message)
    assert counts == [0, 1, 2]
    (dead,) = take(cell.consumer(f"{topic}-dead", "kept"), 1)
    assert (dead.value, dead.key, dead.properties["from"]) == ("poison", "k", "test")
    assert dead.properties["REAL_TOPIC"] == topic
    # The official Python client writes its ids as (ledger,entry,partition,batch index).
    parts = [str(part) for part in message.message_id[:2]]
    assert re.findall(r"\d+", dead.properties["ORIGIN_MESSAGE_ID"])[:2] == parts
    eventually(lambda: cell.backlog(topic) == 0, "the original is acknowledged, which comes after the letter")
    consumer.close()
    cell.send(topic, ["healthy"])
    assert take_values(cell.consumer(topic, type="Shared"), 1) == ["healthy"]


def test_a_retried_message_comes_back_later_and_at_last_as_a_dead_letter(cell: Cell) -> None:
    """4.6.6, 4.6.3, 4.6.4, 4.6.7 (4.6.2): with a maximum of 2 it is shown three times."""
    topic = cell.topic()
    dead_letters = cell.consumer(f"{topic}-s-DLQ", "kept")
    consumer = cell.consumer(topic, type="Shared", retry=True, max_redeliver_count=2)
    sent = cell.send(topic, ["a"], key="k", properties={"from": "test"})[0]
    origin = None
    for attempt in range(3):
        message = take(consumer, 1)[0]
        assert (message.value, message.key, message.properties["from"]) == ("a", "k", "test")
        assert message.redelivery_count == 0
        assert message.properties.get("RECONSUMETIMES") == (str(attempt) if attempt else None)
        if attempt:
            assert message.topic == f"{topic}-s-RETRY"
            assert message.properties["DELAY_TIME"] == "200"
            assert message.properties["REAL_TOPIC"] == topic
            origin = origin or message.properties["ORIGIN_MESSAGE_ID"]
            assert message.properties["ORIGIN_MESSAGE_ID"] == origin
            assert origin.startswith(f"{sent.ledger}:{sent.entry}")
        consumer.reconsume_later(message, 200, {})
    (dead,) = take_and_ack(dead_letters, 1)
    assert (dead.value, dead.key, dead.properties["RECONSUMETIMES"]) == ("a", "k", "3")
    assert dead.properties["ORIGIN_MESSAGE_ID"] == origin
    assert take_all(consumer) == []


@pytest.mark.parametrize("kind", ["Exclusive", "Failover"])
def test_a_retried_message_may_acknowledge_all_before_it(cell: Cell, kind: str) -> None:
    """4.6.3, 3.5.1: it alone is copied; what is behind it stays."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type=kind, retry=True, max_redeliver_count=3)
    cell.send(topic, "abc")
    consumer.reconsume_later_cumulative(take(consumer, 2)[1], 100)
    assert sorted(take_values(consumer, 2)) == ["b", "c"]
    consumer.close()
    assert sorted(take_values(cell.consumer(topic, type=kind), 1)) == ["c"]


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared"])
def test_nothing_is_retried_cumulatively_where_others_consume(cell: Cell, kind: str) -> None:
    """4.6.3, 3.3.1: messages before one may be with others."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type=kind, retry=True)
    cell.send(topic, "a")
    (message,) = take(consumer, 1)
    with pytest.raises(RefusedError):
        consumer.reconsume_later_cumulative(message, 100)


def test_retrying_has_to_be_enabled(cell: Cell) -> None:
    """4.6.1: without a retry topic there is nowhere to put the copy."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type="Shared")
    cell.send(topic, "a")
    message = take(consumer, 1)[0]
    with pytest.raises(RefusedError):
        consumer.reconsume_later(message, 100, {})
