# SPDX-License-Identifier: Apache-2.0
"""Compacted topics as clients read them, and their null values, which delete keys (semantics 7.4)."""

from __future__ import annotations

import json
import time

import pytest

from tests.behaviour.cell import Cell, take, take_all, take_and_ack, take_values, values
from tests.behaviour.interface import EARLIEST, LATEST, PATIENCE_MS, Id, Outgoing, RefusedError, SubscriptionType

FIRST = (("a", "a1"), ("b", "b1"), ("a", "a2"), ("c", "c1"), ("b", None))
"""Of which compaction keeps a2 and c1."""


def send(cell: Cell, topic: str, *messages: tuple[str | None, str | None]) -> list[Id]:
    """Send keys with values, None for a deletion, each as an entry."""
    producer = cell.producer(topic)
    sent = [producer.send(Outgoing(key=key, value=value)) for key, value in messages]
    producer.close()
    return sent


def send_batch(cell: Cell, topic: str, *messages: tuple[str | None, str | None]) -> None:
    """Send them as one entry."""
    producer = cell.producer(topic, batching=True)
    producer.send_together([Outgoing(key=key, value=value) for key, value in messages])
    producer.close()


def compact(cell: Cell, topic: str) -> None:
    cell.admin("PUT", topic, "compaction")
    if cell.service.kind != "pulsarish":
        time.sleep(0.5)  # an Apache Pulsar shows the former status for a moment
    until = time.monotonic() + PATIENCE_MS / 1000
    while (status := json.loads(cell.admin("GET", topic, "compaction"))["status"]) != "SUCCESS":
        assert time.monotonic() < until, status
        time.sleep(0.05)  # a request each time


def test_a_reader_gets_the_last_message_of_each_key(cell: Cell) -> None:
    """7.4.1, 7.4.7: null values of this client delete their keys; then comes all that is newer."""
    topic = cell.topic()
    send(cell, topic, *FIRST)
    compact(cell, topic)
    reader = cell.reader(topic, compacted=True)
    assert take_values(reader, 2) == ["a2", "c1"]
    send(cell, topic, ("d", "d1"), ("a", None))
    assert take_values(reader, 1) == ["d1"]
    compact(cell, topic)
    assert values(take_all(cell.reader(topic, compacted=True))) == ["c1", "d1"]


def test_of_a_batch_a_reader_gets_what_is_kept(cell: Cell) -> None:
    """7.4.3: and nothing of what is not."""
    topic = cell.topic()
    send_batch(cell, topic, *FIRST)
    compact(cell, topic)
    reader = cell.reader(topic, compacted=True)
    assert take_values(reader, 2) == ["a2", "c1"]
    send_batch(cell, topic, ("d", "d1"), ("a", None))
    assert take_values(reader, 2) == ["d1", ""]
    compact(cell, topic)
    assert values(take_all(cell.reader(topic, compacted=True))) == ["c1", "d1"]


def test_a_deletion_is_a_message_without_a_value(cell: Cell) -> None:
    """7.4.1: to those who read the log it is one like others."""
    topic = cell.topic()
    send(cell, topic, *FIRST)
    compact(cell, topic)
    assert take_values(cell.reader(topic), 5) == ["a1", "b1", "a2", "c1", ""]


def test_messages_without_a_key_are_left_out(cell: Cell) -> None:
    """7.4.2: and stay in the log."""
    topic = cell.topic()
    send(cell, topic, (None, "x"), ("a", "a1"), (None, "y"))
    compact(cell, topic)
    assert values(take_all(cell.reader(topic, compacted=True))) == ["a1"]
    assert take_values(cell.reader(topic), 3) == ["x", "a1", "y"]


def test_a_reader_of_a_view_knows_whether_there_is_more(cell: Cell) -> None:
    """7.4.8: though the last messages of the log were left out."""
    topic = cell.topic()
    send(cell, topic, *FIRST)
    compact(cell, topic)
    reader = cell.reader(topic, compacted=True)
    seen: list[str] = []
    while reader.has_message_available():
        seen += take_values(reader, 1)
    assert seen == ["a2", "c1"]


@pytest.mark.parametrize("inclusive", [False, True])
def test_a_reader_begins_inside_a_view(cell: Cell, inclusive: bool) -> None:
    """7.4.7: at or behind a message that is kept, and at one that is not, where the next one comes."""
    topic = cell.topic()
    places = send(cell, topic, *FIRST)
    compact(cell, topic)
    send(cell, topic, ("d", "d1"))

    def seen(start: Id) -> list[str]:
        return values(take_all(cell.reader(topic, start, inclusive=inclusive, compacted=True)))

    assert seen(places[1]) == ["a2", "c1", "d1"]
    assert seen(places[2]) == (["a2", "c1", "d1"] if inclusive else ["c1", "d1"])
    assert seen(places[4]) == ["d1"]


def test_a_reader_of_a_view_that_begins_latest_gets_what_comes(cell: Cell) -> None:
    """7.4.7: nothing of the view."""
    topic = cell.topic()
    send(cell, topic, *FIRST)
    compact(cell, topic)
    reader = cell.reader(topic, LATEST, compacted=True)
    send(cell, topic, ("d", "d1"))
    assert take_values(reader, 1) == ["d1"]


@pytest.mark.parametrize("kind", ["Exclusive", "Failover"])
def test_a_consumer_goes_on_where_it_was_in_a_view(cell: Cell, kind: SubscriptionType) -> None:
    """7.4.7: what it has acknowledged does not come again; others get everything of the log."""
    topic = cell.topic()
    send(cell, topic, *FIRST)
    compact(cell, topic)
    consumer = cell.consumer(topic, type=kind, initial_position="Earliest", compacted=True)
    consumer.ack_cumulative(take(consumer, 1)[0])
    assert take_values(consumer, 1) == ["c1"]
    consumer.close()
    again = cell.consumer(topic, type=kind, compacted=True)
    assert take_values(again, 1) == ["c1"]
    assert take_values(cell.consumer(topic, "other", initial_position="Earliest"), 4) == ["a1", "b1", "a2", "c1"]


def test_a_consumer_seeks_in_a_view(cell: Cell) -> None:
    """7.4.7: to the beginning, and behind a message of it."""
    topic = cell.topic()
    send(cell, topic, *FIRST)
    compact(cell, topic)
    consumer = cell.consumer(topic, initial_position="Earliest", compacted=True)
    first, _ = take_and_ack(consumer, 2)
    consumer.seek(EARLIEST)
    assert take_values(consumer, 2) == ["a2", "c1"]
    consumer.seek(first.message_id)
    assert take_values(consumer, 1) == ["c1"]


def test_the_last_message_id_is_one_of_the_view(cell: Cell) -> None:
    """7.4.8: of a batch the last message that is kept."""
    topic = cell.topic()
    send_batch(cell, topic, *FIRST)
    compact(cell, topic)
    consumer = cell.consumer(topic, initial_position="Earliest", compacted=True)
    last = take(consumer, 2)[-1].message_id
    found = consumer.last_message_id()
    assert (found.ledger, found.entry, found.batch_index) == (last.ledger, last.entry, 3)


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared"])
def test_a_view_is_for_one_consumer(cell: Cell, kind: SubscriptionType) -> None:
    """7.4.7: those that share a subscription are refused."""
    topic = cell.topic()
    with pytest.raises(RefusedError):
        cell.consumer(topic, type=kind, compacted=True)


def test_a_table_of_a_compacted_topic_has_no_deleted_keys(cell: Cell) -> None:
    """7.13, 7.4.9: neither of what is compacted, nor of what is newer."""
    topic = cell.topic()
    send(cell, topic, *FIRST)
    compact(cell, topic)
    view = cell.table_view(topic)
    assert view.rows() == {"a": "a2", "c": "c1"}
    send(cell, topic, ("d", "d1"), ("a", None))
    until = time.monotonic() + PATIENCE_MS / 1000
    while view.rows() != {"c": "c1", "d": "d1"}:
        assert time.monotonic() < until, view.rows()
        time.sleep(0.05)  # clients tell nobody when a table is up to date
