# SPDX-License-Identifier: Apache-2.0
"""Delayed messages with our client, on our broker and on Apache Pulsar."""

from __future__ import annotations

import json
import time

import pytest

from broker_core.base.errors import UsageError
from broker_core.client import Client
from broker_core.client.messages.outgoing import outgoing
from broker_core.client.producing.batching import EntryEncoder
from broker_core.wire.entry import read_metadata
from tests.client.conftest import Service, admin_path
from tests.client.helpers import EARLY_S, WAIT_S


def test_shared_holds_back_and_exclusive_does_not(client: Client, topic: str) -> None:
    """6.1.1, 6.1.2 (I6.1, I6.10): a delay by the client's clock; the order is that of the times."""
    with (
        client.subscribe(topic, "shared", type="shared") as shared,
        client.subscribe(topic, "exclusive") as exclusive,
        client.create_producer(topic) as producer,
    ):
        begun = time.time()
        # What is due together on Apache Pulsar comes in the order of the log, so the times are more than a tick apart.
        producer.send_async("late", deliver_after_s=10)
        producer.send_async("soon", deliver_at_ms=round((begun + 6) * 1000))
        producer.send_async("now")
        assert [exclusive.receive(WAIT_S).value for _ in range(3)] == [b"late", b"soon", b"now"]
        for value, after_s in ((b"now", 0.0), (b"soon", 6.0), (b"late", 10.0)):
            message = shared.receive(WAIT_S)
            shared.acknowledge(message)
            assert message.value == value
            assert time.time() >= begun + after_s - EARLY_S


def test_a_delayed_message_is_in_no_batch(client: Client, topic: str) -> None:
    """6.1.1 (I1.6): it goes alone, and those before and after it keep their places."""
    with (
        client.create_reader(topic) as reader,
        client.create_producer(topic, batching_max_publish_delay_s=60.0) as producer,
    ):
        for text in ("a", "b"):
            producer.send_async(text)
        producer.send_async("c", deliver_after_s=1)
        for text in ("d", "e"):
            producer.send_async(text)
        producer.flush()
        messages = [reader.read_next(WAIT_S) for _ in range(5)]
    assert [message.value for message in messages] == [b"a", b"b", b"c", b"d", b"e"]
    assert [message.message_id.batch_index for message in messages] == [0, 1, -1, 0, 1]


@pytest.mark.parametrize(
    "fields", [{"deliver_after_s": -1}, {"deliver_at_ms": -1}, {"deliver_at_ms": 5, "deliver_after_s": 5}]
)
def test_a_delay_that_makes_no_sense_is_refused(client: Client, topic: str, fields: dict[str, int]) -> None:
    """6.1.1: before anything is sent."""
    with client.create_producer(topic) as producer, pytest.raises(UsageError, match="deliver"):
        producer.send("x", **fields)  # type: ignore[arg-type] # fields of MessageFields


def test_statistics_count_what_waits(client: Client, service: Service, topic: str) -> None:
    """6.2.4: as msgDelayed, and as a part of the backlog."""
    with (
        client.subscribe(topic, "s", type="shared") as consumer,
        client.create_producer(topic) as producer,
    ):
        for _ in range(5):
            producer.send("later", deliver_after_s=60)
        producer.send("now")
        assert consumer.receive(WAIT_S).value == b"now"
        stats = json.loads(service.admin("GET", f"{admin_path(topic)}/stats"))["subscriptions"]["s"]
    assert (stats["msgDelayed"], stats["msgBacklog"]) == (5, 6)


def test_the_time_travels_in_the_metadata() -> None:
    """6.1.1, 1.5: deliver_at_time is absolute, whichever way it was given."""
    encoder = EntryEncoder(0)
    encoder.producer_name = "p"
    for message, at in ((outgoing("x", deliver_at_ms=777), 777), (outgoing("x", deliver_after_s=1.5), 6500)):
        body, _size = encoder.single(message, 0, 5000)
        assert read_metadata(body).deliver_at_time == at
