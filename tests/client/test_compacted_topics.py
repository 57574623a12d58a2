# SPDX-License-Identifier: Apache-2.0
"""Compacted topics, as our client and the official one read them, on our broker and on a real Apache Pulsar."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Final

import pulsar
import pytest

from broker_core.client import Client
from tests.client.conftest import Service, admin_path
from tests.client.helpers import eventually

PATIENCE_S: Final = 60.0
PATIENCE_MS: Final = 15_000

FIRST: Final = [("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("b", None)]


def compact(service: Service, topic: str) -> None:
    """Compact, and wait for the end. An Apache Pulsar may show the status of the run before for a moment."""
    path = f"{admin_path(topic)}/compaction"
    service.admin("PUT", path)
    until = time.monotonic() + PATIENCE_S
    while True:
        time.sleep(0.2 if service.kind == "apache" else 0.01)  # a request each time, of which it takes few
        status = json.loads(service.admin("GET", path))
        if status["status"] == "SUCCESS":
            return
        assert status["status"] in ("RUNNING", "NOT_RUN"), status
        assert time.monotonic() < until, status


def send(client: Client, topic: str, messages: list[tuple[str | None, str | None]], *, batching: bool = False) -> None:
    with client.create_producer(topic, batching_enabled=batching) as producer:
        for key, value in messages:
            producer.send_async(value, key=key)
        producer.flush()


def read_with_ours(client: Client, topic: str) -> list[tuple[str | bytes | None, bytes | None]]:
    """All messages that a compacted reader gets, as long as the client says that there are more."""
    found = []
    with client.create_reader(topic, read_compacted=True) as reader:
        while reader.has_message_available():
            message = reader.read_next(timeout_s=PATIENCE_MS / 1000)
            found.append((message.key, message.value))
    return found


@pytest.fixture
def official(service: Service) -> Iterator[pulsar.Client]:
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    with closing(pulsar.Client(service.service_url, operation_timeout_seconds=15, logger=logger)) as client:
        yield client


def read_with_official(client: pulsar.Client, topic: str) -> list[tuple[str, bytes]]:
    """The same, without the empty messages as which the C++ library shows what was left out of a batch."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=True)
    found = []
    while reader.has_message_available():
        message = reader.read_next(PATIENCE_MS)
        if message.partition_key():
            found.append((message.partition_key(), message.data()))
    reader.close()
    return found


@pytest.mark.parametrize("batching", [False, True])
def test_readers_see_the_last_value_of_each_key(
    client: Client, official: pulsar.Client, service: Service, topic: str, batching: bool
) -> None:
    """7.4.1, 7.4.3, 7.4.7, 7.4.8: the view, then what has come after it, and no wait for what is not there."""
    send(client, topic, [*FIRST], batching=batching)
    compact(service, topic)
    assert read_with_ours(client, topic) == [("a", b"2"), ("c", b"1")]
    assert read_with_official(official, topic) == [("a", b"2"), ("c", b"1")]
    send(client, topic, [("d", "1"), ("a", None)], batching=batching)
    assert read_with_ours(client, topic) == [("a", b"2"), ("c", b"1"), ("d", b"1"), ("a", None)]
    assert read_with_official(official, topic)[:3] == [("a", b"2"), ("c", b"1"), ("d", b"1")]
    compact(service, topic)
    assert read_with_ours(client, topic) == [("c", b"1"), ("d", b"1")]
    with client.create_reader(topic) as reader:
        assert [reader.read_next().key for _ in range(7)] == ["a", "b", "a", "c", "b", "d", "a"]


def test_table_views_of_a_compacted_topic(
    client: Client, official: pulsar.Client, service: Service, topic: str
) -> None:
    """7.4.7, 7.13: a table is the same before and after, and follows what comes."""
    send(client, topic, [*FIRST])
    with client.create_table_view(topic) as before:
        assert dict(before.snapshot()) == {"a": b"2", "c": b"1"}
        compact(service, topic)
        table = official.create_table_view(topic)
        with client.create_table_view(topic) as after:
            assert dict(after.snapshot()) == {"a": b"2", "c": b"1"}
            send(client, topic, [("a", None), ("e", "5")])
            for each in (before, after):
                each.refresh()
                assert dict(each.snapshot()) == {"c": b"1", "e": b"5"}
        eventually(lambda: table.get("e") is not None and table.get("a") is None, "the official table view has them")
        assert table.get("c") == b"1"
        table.close()


def test_null_values_of_the_official_client_are_tombstones(
    client: Client, official: pulsar.Client, service: Service, topic: str
) -> None:
    """7.4.1: whether a client sends no value or an empty one, alone or in a batch."""
    for batching in (False, True):
        producer = official.create_producer(topic, batching_enabled=batching)
        producer.send(b"1", partition_key="a")
        producer.send(b"1", partition_key="b")
        producer.send(b"", partition_key="a")
        producer.close()
    compact(service, topic)
    assert read_with_ours(client, topic) == read_with_official(official, topic) == [("b", b"1")]


def test_a_topic_whose_keys_are_all_deleted(
    client: Client, official: pulsar.Client, service: Service, topic: str
) -> None:
    """7.4.8: nobody waits for a message that is not there."""
    send(client, topic, [("a", "1"), ("a", None)])
    compact(service, topic)
    assert read_with_ours(client, topic) == []
    assert read_with_official(official, topic) == []
    send(client, topic, [("a", "3")])
    assert read_with_ours(client, topic) == read_with_official(official, topic) == [("a", b"3")]


def test_consumers_of_the_official_client(
    client: Client, official: pulsar.Client, service: Service, topic: str
) -> None:
    """7.4.7: Exclusive and Failover; a subscription goes on in the view where it was."""
    send(client, topic, [*FIRST, ("d", "1")])
    compact(service, topic)
    for kind, name in ((pulsar.ConsumerType.Exclusive, "e"), (pulsar.ConsumerType.Failover, "f")):
        got = []
        for _ in range(2):
            consumer = official.subscribe(
                topic, name, kind, initial_position=pulsar.InitialPosition.Earliest, is_read_compacted=True
            )
            message = consumer.receive(PATIENCE_MS)
            got.append((message.partition_key(), message.data()))
            consumer.acknowledge_cumulative(message)
            consumer.close()
        assert got == [("a", b"2"), ("c", b"1")]


def test_readers_of_the_official_client_begin_anywhere(
    client: Client, official: pulsar.Client, service: Service, topic: str
) -> None:
    """7.4.7: at ids that the view has, and at those of messages that are left out; seeks too."""
    producer = official.create_producer(topic, batching_enabled=False)
    ids = [producer.send((value or "").encode(), partition_key=key) for key, value in FIRST if key]
    producer.close()
    compact(service, topic)

    def read(reader: pulsar.Reader) -> list[bytes]:
        found = []
        while reader.has_message_available():
            found.append(reader.read_next(PATIENCE_MS).data())
        return found

    for start, expected in ((0, [b"2", b"1"]), (1, [b"2", b"1"]), (2, [b"1"]), (3, [])):
        reader = official.create_reader(topic, ids[start], is_read_compacted=True)
        assert read(reader) == expected, start
        reader.close()
    reader = official.create_reader(topic, pulsar.MessageId.latest, is_read_compacted=True)
    reader.seek(pulsar.MessageId.earliest)
    assert reader.read_next(PATIENCE_MS).data() == b"2"
    reader.close()
