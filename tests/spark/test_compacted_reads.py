# SPDX-License-Identifier: Apache-2.0
"""Batch reads of compacted topics: of each key the last message, and no loss where compaction has left some out."""

from __future__ import annotations

import json
import time
from typing import Any, Final

import pytest

from broker_core.client import Client
from pulsarish_spark import read_arrow
from tests.spark.brokers import Broker, eventually

PATIENCE_S: Final = 60.0

Messages = list[tuple[str | None, str | None]]

FIRST: Final[Messages] = [("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("b", None)]


def send(broker: Broker, topic: str, messages: Messages, *, batching: bool = False) -> None:
    with (
        Client(broker.service_url) as client,
        client.create_producer(topic, batching_enabled=batching) as producer,
    ):
        for key, value in messages:
            producer.send_async(value, key=key)
        producer.flush()


def compact(broker: Broker, topic: str) -> None:
    path, until = f"persistent/public/default/{topic}/compaction", time.monotonic() + PATIENCE_S
    broker.admin("PUT", path)
    time.sleep(0.5 if broker.kind != "pulsarish" else 0)  # an Apache Pulsar shows the former status for a moment
    while (status := broker.admin("GET", path)["status"]) != "SUCCESS":
        assert time.monotonic() < until, status
        time.sleep(0.05)  # a request each time


def rows(broker: Broker, topic: str, **options: object) -> list[tuple[str, bytes | None]]:
    """Keys and values of a compacted read."""
    given = {"service.url": broker.service_url, "readCompacted": "true", "columns": "key,value", **options}
    found: list[dict[str, Any]] = read_arrow(topic, **given).read_all().to_pylist()
    return [(row["key"].decode(), row["value"]) for row in found]


@pytest.mark.parametrize("batching", [False, True])
def test_a_batch_has_the_last_message_of_each_key(cell: Broker, topic: str, batching: bool) -> None:
    """7.4.7: the view, then what has come since, on each broker; without the option all messages."""
    send(cell, topic, [*FIRST], batching=batching)
    compact(cell, topic)
    assert rows(cell, topic) == [("a", b"2"), ("c", b"1")]
    send(cell, topic, [("d", "1"), ("a", None)], batching=batching)
    assert rows(cell, topic) == [("a", b"2"), ("c", b"1"), ("d", b"1"), ("a", None)]
    assert len(rows(cell, topic, readCompacted="false")) == 7
    compact(cell, topic)
    assert rows(cell, topic) == [("c", b"1"), ("d", b"1")]


def test_messages_whose_ledgers_are_deleted_are_read_from_the_view(trimming: Broker, topic: str) -> None:
    """7.4.10: from the first message, from one that was left out, and cut into tasks; what is not there is no loss."""
    send(trimming, topic, [(f"k{number % 7}", str(number)) for number in range(100)])
    ids = [
        row["message_id"]
        for row in read_arrow(topic, **{"service.url": trimming.service_url}, columns="message_id")
        .read_all()
        .to_pylist()
    ]
    compact(trimming, topic)
    send(trimming, topic, [("new", str(number)) for number in range(12)])
    trimming.trim(topic)
    eventually(lambda: len(trimming.ledgers(topic)) < 5, "the ledgers of what is compacted are deleted")
    last = [(f"k{number % 7}", str(number).encode()) for number in range(93, 100)]
    new = [("new", str(number).encode()) for number in range(12)]
    assert rows(trimming, topic) == last + new
    assert rows(trimming, topic, minPartitions=3) == last + new
    start = json.dumps({topic: {"0": ids[40]}})
    assert rows(trimming, topic, startingOffsets=start) == last + new
    middle = json.dumps({topic: {"0": ids[96]}})
    assert rows(trimming, topic, startingOffsets=middle) == last[3:] + new
    assert rows(trimming, topic, startingOffsets=middle, endingOffsets=json.dumps({topic: {"0": ids[98]}})) == last[3:5]
