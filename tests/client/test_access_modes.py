# SPDX-License-Identifier: Apache-2.0
"""Producer access modes, on both servers."""

import threading

import pytest

from broker_core.base.errors import OperationTimeoutError, ProducerBusyError, ProducerFencedError, SendUnconfirmedError
from broker_core.client import Client, Producer
from tests.client.conftest import Service, admin_path
from tests.client.helpers import WAIT_S, take, values


def test_an_exclusive_producer_keeps_others_out(client: Client, topic: str) -> None:
    """1.7.4: Exclusive fails beside any other producer, Shared beside an exclusive one."""
    shared = client.create_producer(topic)
    with pytest.raises(ProducerFencedError):
        client.create_producer(topic, access_mode="exclusive")
    shared.close()
    with client.create_producer(topic, access_mode="exclusive") as exclusive:
        with pytest.raises(ProducerBusyError):
            client.create_producer(topic)
        with pytest.raises(ProducerFencedError):
            client.create_producer(topic, access_mode="exclusive")
        exclusive.send("mine")
    client.create_producer(topic).send("ours")


def test_an_exclusive_producer_survives_an_unloaded_topic(service: Service, client: Client, topic: str) -> None:
    """1.7.4: it comes back with its topic epoch, and goes on."""
    client.subscribe(topic, "s", initial_position="earliest").close()  # keeps what is sent
    with client.create_producer(topic, name="me", access_mode="exclusive") as producer:
        producer.send("a")
        service.admin("PUT", f"{admin_path(topic)}/unload")
        producer.send("b")
    assert values(take(client.subscribe(topic, "s"), 2)) == ["a", "b"]


def test_fencing_ends_the_other_producers(client: Client, topic: str) -> None:
    """1.7.4, 1.7.8: who is pushed out by ExclusiveWithFencing cannot write any more, and says why. Apache Pulsar tells
    it of the fence when it sends, by closing the connection, which says nothing about what was sent."""
    client.subscribe(topic, "s", initial_position="earliest").close()  # keeps what is sent
    older = client.create_producer(topic, access_mode="exclusive")
    older.send("old")
    newer = client.create_producer(topic, access_mode="exclusive_with_fencing")
    newer.send("new")
    with pytest.raises((ProducerFencedError, SendUnconfirmedError)):
        older.send("late")
    with pytest.raises(ProducerFencedError):
        older.send("later")
    newer.close()
    assert values(take(client.subscribe(topic, "s"), 2)) == ["old", "new"]


def test_one_waits_for_exclusive_access(service: Service, client: Client, topic: str) -> None:
    """1.7.4: WaitForExclusive succeeds when the producer before it has left, longer than any request may take."""
    first = client.create_producer(topic, access_mode="exclusive")
    first.send("first")
    with Client(service.service_url, operation_timeout_s=5) as impatient:
        made: list[Producer] = []

        def wait() -> None:
            made.append(impatient.create_producer(topic, access_mode="wait_for_exclusive"))

        waiting = threading.Thread(target=wait)
        waiting.start()
        waiting.join(5.5)
        assert waiting.is_alive()
        assert not made
        first.close()
        waiting.join(WAIT_S)
        made[0].send("second")
        with pytest.raises((ProducerBusyError, OperationTimeoutError)):
            impatient.create_producer(topic)
        consumer = client.subscribe(topic, "s", initial_position="earliest")
        assert values(take(consumer, 2)) == ["first", "second"]
