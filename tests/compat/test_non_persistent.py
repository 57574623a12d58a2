# SPDX-License-Identifier: Apache-2.0
"""Non-persistent topics with the official client and ours, also with each other."""

import itertools

import pulsar
import pytest

from broker_core.client import Client
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire import commands
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.compat.receiving import receive, texts

_numbers = itertools.count()

TYPES = [
    pulsar.ConsumerType.Exclusive,
    pulsar.ConsumerType.Shared,
    pulsar.ConsumerType.Failover,
    pulsar.ConsumerType.KeyShared,
]


@pytest.fixture
def topic() -> str:
    """A topic that no other test uses."""
    return f"non-persistent://public/default/n-{next(_numbers)}"


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_connected_consumers_get_what_is_sent(client: pulsar.Client, topic: str, kind: pulsar.ConsumerType) -> None:
    """1.1.8: every subscription type; acks are taken."""
    consumer = client.subscribe(topic, "s", kind)
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(10):
        producer.send(str(number).encode(), partition_key=f"k{number % 3}")
    messages = receive(consumer, 10)
    assert texts(messages) == [str(number) for number in range(10)]
    for message in messages:
        consumer.acknowledge(message)


def test_batches_pass(client: pulsar.Client, topic: str) -> None:
    """1.1.8: an entry is passed on whole."""
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for number in range(20):
        producer.send_async(str(number).encode(), None)
    producer.flush()
    assert texts(receive(consumer, 20)) == [str(number) for number in range(20)]


def test_what_was_sent_before_is_gone(client: pulsar.Client, topic: str) -> None:
    """1.1.8: nothing is stored for a consumer that comes later, whatever position it asks for."""
    producer = client.create_producer(topic)
    producer.send(b"gone")
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    producer.send(b"here")
    assert texts(receive(consumer, 1)) == ["here"]


def test_our_client_and_the_official_one_understand_each_other(
    broker: RunningBroker, client: pulsar.Client, topic: str
) -> None:
    """1.1.8: in both directions."""
    with Client(broker.service_url) as ours:
        theirs = client.subscribe(topic, "theirs", pulsar.ConsumerType.Shared)
        mine = ours.subscribe(topic, "mine", type="shared")
        with ours.create_producer(topic) as producer:
            producer.send("from ours")
        client.create_producer(topic).send(b"from theirs")
        received = [mine.receive(60) for _ in range(2)]
        for message in received:
            mine.acknowledge(message)
        assert [message.value for message in received] == [b"from ours", b"from theirs"]
        assert texts(receive(theirs, 2)) == ["from ours", "from theirs"]


def test_without_permits_messages_are_dropped(broker: RunningBroker, client: pulsar.Client, topic: str) -> None:
    """1.1.8: dropped, not kept until permits come."""
    with RawClient(broker.service_url) as raw:
        must_succeed(raw.subscribe(topic, "s", permits=1))
        producer = client.create_producer(topic, batching_enabled=False)
        producer.send(b"first")
        assert raw.next_frame().body.endswith(b"first")
        producer.send(b"dropped")
        raw.flow(0, 1)
        assert raw.ask(commands.ping()).type == BaseCommand.PONG  # so the permit has arrived
        producer.send(b"second")
        assert raw.next_frame().body.endswith(b"second")
