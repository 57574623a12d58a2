# SPDX-License-Identifier: Apache-2.0
"""Producer access modes with the official client."""

import threading
from collections.abc import Callable

import pulsar
import pytest

from tests.compat.receiving import receive, texts

MODES = pulsar.ProducerAccessMode


def test_an_exclusive_producer_is_alone(client: pulsar.Client, topic: str) -> None:
    """1.7.4: others are refused with the errors that the client knows."""
    producer = client.create_producer(topic, access_mode=MODES.Exclusive)
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic)
    with pytest.raises(pulsar.ProducerFenced):
        client.create_producer(topic, access_mode=MODES.Exclusive)
    producer.close()
    client.create_producer(topic)


def test_fencing_ends_the_producer_before(
    client: pulsar.Client, new_client_of: Callable[[], pulsar.Client], topic: str
) -> None:
    """1.7.4: the older producer reconnects with its epoch, is fenced, and fails for good."""
    consumer = client.subscribe(topic, "s")
    # Of its own client, since closing one that has a fenced producer says that it is closed already.
    older = new_client_of().create_producer(topic, access_mode=MODES.Exclusive)
    older.send(b"old")
    newer = client.create_producer(topic, access_mode=MODES.ExclusiveWithFencing)
    newer.send(b"new")
    with pytest.raises(pulsar.ProducerFenced):
        older.send(b"late")
    assert texts(receive(consumer, 2)) == ["old", "new"]


def test_waiting_for_exclusive_access(
    client: pulsar.Client, new_client_of: Callable[[], pulsar.Client], topic: str
) -> None:
    """1.7.4: the producer is made when the one before it has closed, or when that one's client is gone."""
    holder = new_client_of()
    holder.create_producer(topic, access_mode=MODES.Exclusive)
    made: list[pulsar.Producer] = []
    waiting = threading.Thread(
        target=lambda: made.append(client.create_producer(topic, access_mode=MODES.WaitForExclusive))
    )
    waiting.start()
    waiting.join(0.5)
    assert waiting.is_alive()
    holder.close()
    waiting.join(60)
    assert made[0].send(b"mine").entry_id() == 0
