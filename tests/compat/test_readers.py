# SPDX-License-Identifier: Apache-2.0
"""Readers, seeking and last message ids as the official client uses them."""

import time

import pulsar

from tests.compat.receiving import PATIENCE_MS, receive, send_batch, send_texts, texts


def read(reader: pulsar.Reader, count: int) -> list[str]:
    """The next messages as text."""
    return [reader.read_next(PATIENCE_MS).data().decode() for _ in range(count)]


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
