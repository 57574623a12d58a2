# SPDX-License-Identifier: Apache-2.0
"""Readers, seeking and last message ids as the official client uses them."""

import time

import pulsar
import pytest

from tests.compat.receiving import PATIENCE_MS, nothing_comes, receive, send_batch, send_texts, texts


def read(reader: pulsar.Reader, count: int) -> list[str]:
    """The next messages as text."""
    return [reader.read_next(PATIENCE_MS).data().decode() for _ in range(count)]


def test_a_reader_from_the_earliest_sees_everything(client: pulsar.Client, topic: str) -> None:
    """1.4.3."""
    send_texts(client.create_producer(topic), "abc")
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert read(reader, 3) == ["a", "b", "c"]
    assert nothing_comes(reader)


def test_a_reader_from_the_latest_sees_only_what_comes(client: pulsar.Client, topic: str) -> None:
    """1.4.3."""
    producer = client.create_producer(topic)
    send_texts(producer, "ab")
    reader = client.create_reader(topic, pulsar.MessageId.latest)
    assert nothing_comes(reader)
    send_texts(producer, "c")
    assert read(reader, 1) == ["c"]


@pytest.mark.parametrize(("inclusive", "expected"), [(False, ["c", "d"]), (True, ["b", "c", "d"])])
def test_a_reader_from_an_id(client: pulsar.Client, topic: str, inclusive: bool, expected: list[str]) -> None:
    """1.4.6: the broker stands at the entry, the client drops it unless it is wanted."""
    ids = send_texts(client.create_producer(topic, batching_enabled=False), "abcd")
    reader = client.create_reader(topic, ids[1], start_message_id_inclusive=inclusive)
    assert read(reader, len(expected)) == expected
    assert nothing_comes(reader)


@pytest.mark.parametrize(("inclusive", "expected"), [(False, ["c", "d"]), (True, ["b", "c", "d"])])
def test_a_reader_from_an_id_inside_a_batch(
    client: pulsar.Client, topic: str, inclusive: bool, expected: list[str]
) -> None:
    """The entry comes whole, the client skips what is before the start."""
    first = client.create_reader(topic, pulsar.MessageId.earliest)
    send_batch(client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000), "abcd")
    start = [first.read_next(PATIENCE_MS).message_id() for _ in range(4)][1]
    reader = client.create_reader(topic, start, start_message_id_inclusive=inclusive)
    assert read(reader, len(expected)) == expected


def test_has_message_available_follows_the_log(client: pulsar.Client, topic: str) -> None:
    """An empty topic has entry id -1 as its last message."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert not reader.has_message_available()
    producer = client.create_producer(topic, batching_enabled=True)
    send_batch(producer, "abc")
    seen = []
    while reader.has_message_available():
        seen += read(reader, 1)
    assert seen == ["a", "b", "c"]


def test_has_message_available_for_a_reader_at_the_latest(client: pulsar.Client, topic: str) -> None:
    """What was there before does not count."""
    producer = client.create_producer(topic)
    send_texts(producer, "ab")
    reader = client.create_reader(topic, pulsar.MessageId.latest)
    assert not reader.has_message_available()
    send_texts(producer, "c")
    assert reader.has_message_available()


def test_the_last_message_id_is_that_of_the_last_message(client: pulsar.Client, topic: str) -> None:
    """Of a batch: the last message inside."""
    consumer = client.subscribe(topic, "s")
    assert consumer.get_last_message_id().entry_id() == -1
    send_batch(client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000), "abc")
    last = receive(consumer, 3)[-1].message_id()
    found = consumer.get_last_message_id()
    assert (found.ledger_id(), found.entry_id(), found.batch_index()) == (last.ledger_id(), last.entry_id(), 2)


@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared], ids=str)
def test_seek_by_id_brings_what_is_behind_it(client: pulsar.Client, topic: str, kind: pulsar.ConsumerType) -> None:
    """1.4.6: exclusive by default; acknowledgements are forgotten."""
    consumer = client.subscribe(topic, "s", kind)
    ids = send_texts(client.create_producer(topic, batching_enabled=False), "abcd")
    receive(consumer, 4)
    consumer.seek(ids[1])
    assert texts(receive(consumer, 2)) == ["c", "d"]
    consumer.seek(pulsar.MessageId.earliest)
    assert texts(receive(consumer, 4)) == ["a", "b", "c", "d"]
    consumer.seek(pulsar.MessageId.latest)
    assert nothing_comes(consumer)


def test_seek_by_time_brings_what_was_published_since(client: pulsar.Client, topic: str) -> None:
    """1.4.6: the first message that was stored at or after it."""
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=False)
    send_texts(producer, "ab")
    receive(consumer, 2)
    middle = time.time_ns() // 1_000_000 + 1
    while time.time_ns() // 1_000_000 < middle:  # these times are milliseconds
        pass
    send_texts(producer, "cd")
    assert texts(receive(consumer, 2)) == ["c", "d"]
    consumer.seek(middle)
    assert texts(receive(consumer, 2)) == ["c", "d"]
    consumer.seek(0)
    assert texts(receive(consumer, 4)) == ["a", "b", "c", "d"]


def test_a_reader_seeks_by_time_and_id(client: pulsar.Client, topic: str) -> None:
    """Its subscription is not durable and must survive the disconnect that a seek causes."""
    ids = send_texts(client.create_producer(topic, batching_enabled=False), "abcd")
    reader = client.create_reader(topic, pulsar.MessageId.latest)
    reader.seek(0)
    assert read(reader, 4) == ["a", "b", "c", "d"]
    reader.seek(ids[2])
    assert read(reader, 1) == ["d"]


def test_a_table_view_holds_the_newest_value_of_each_key(client: pulsar.Client, topic: str) -> None:
    """The client reads from the earliest message and follows."""
    producer = client.create_producer(topic)
    producer.send(b"1", partition_key="a")
    producer.send(b"2", partition_key="b")
    producer.send(b"3", partition_key="a")
    view = client.create_table_view(topic)
    assert {key: view.get(key) for key in ("a", "b")} == {"a": b"3", "b": b"2"}
    view.close()
