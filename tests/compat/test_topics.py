# SPDX-License-Identifier: Apache-2.0
"""Partitioned topics, several topics at once, patterns: what the official client makes of lookups and listings."""

import re
import urllib.request
from collections import Counter

import pulsar
import pytest

from broker_core.testing.running_broker import RunningBroker
from tests.compat.receiving import PATIENCE_MS, nothing_comes, receive, send_texts, texts


def create_partitions(broker: RunningBroker, topic: str, partitions: int) -> None:
    """Make them by the admin REST, as other tools do."""
    path = topic.replace("://", "/")
    request = urllib.request.Request(
        f"{broker.http_url}/admin/v2/{path}/partitions", method="PUT", data=str(partitions).encode()
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 204


@pytest.fixture
def partitioned(broker: RunningBroker, topic: str) -> str:
    """A topic with three partitions."""
    create_partitions(broker, topic, 3)
    return topic


def test_a_partitioned_topic_spreads_keys_and_keeps_their_order(client: pulsar.Client, partitioned: str) -> None:
    """1.2: a key belongs to one partition; ids carry the partition."""
    assert len(client.get_topic_partitions(partitioned)) == 3
    consumer = client.subscribe(partitioned, "s")
    producer = client.create_producer(partitioned)
    for number in range(60):
        producer.send(str(number).encode(), partition_key=f"key-{number % 6}")
    messages = receive(consumer, 60)
    homes: dict[str, set[int]] = {}
    for message in messages:
        homes.setdefault(message.partition_key(), set()).add(message.message_id().partition())
    assert all(len(partitions) == 1 for partitions in homes.values())
    assert {partition for partitions in homes.values() for partition in partitions} <= {0, 1, 2}
    for key in range(6):
        mine = [int(message.data()) for message in messages if message.partition_key() == f"key-{key}"]
        assert mine == list(range(key, 60, 6))


def test_keyless_messages_go_round_all_partitions(client: pulsar.Client, partitioned: str) -> None:
    """1.2.3: round robin."""
    consumer = client.subscribe(partitioned, "s")
    producer = client.create_producer(
        partitioned, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution, batching_enabled=False
    )
    send_texts(producer, "abcdef")
    partitions = Counter(message.message_id().partition() for message in receive(consumer, 6))
    assert partitions == {0: 2, 1: 2, 2: 2}


def test_failover_consumers_share_out_the_partitions(client: pulsar.Client, partitioned: str) -> None:
    """2.3.2: partition p belongs to candidate p mod m in the order of names; all to the one that is left."""
    first = client.subscribe(partitioned, "s", pulsar.ConsumerType.Failover, consumer_name="a")
    second = client.subscribe(partitioned, "s", pulsar.ConsumerType.Failover, consumer_name="b")
    producer = client.create_producer(
        partitioned, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution, batching_enabled=False
    )
    send_texts(producer, "abcdef")
    assert {message.message_id().partition() for message in receive(first, 4)} == {0, 2}
    assert {message.message_id().partition() for message in receive(second, 2)} == {1}
    first.close()
    send_texts(producer, "ghi")
    assert sorted(texts(receive(second, 3))) == ["g", "h", "i"]


def test_a_reader_of_one_partition_sees_only_it(client: pulsar.Client, partitioned: str) -> None:
    """1.2.1: a partition is an ordinary topic."""
    producer = client.create_producer(
        partitioned, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution, batching_enabled=False
    )
    send_texts(producer, "abcdef")
    reader = client.create_reader(f"{partitioned}-partition-1", pulsar.MessageId.earliest)
    seen = []
    while reader.has_message_available():
        seen.append(reader.read_next(PATIENCE_MS))
    assert len(seen) == 2
    assert {message.message_id().partition() for message in seen} <= {1, -1}


def test_a_consumer_of_several_topics(client: pulsar.Client, topic: str) -> None:
    """1.4.2: ids of different topics do not compare; acks find their topic."""
    topics = [f"{topic}-{letter}" for letter in "xyz"]
    consumer = client.subscribe(topics, "s")
    for name in topics:
        send_texts(client.create_producer(name), [name[-1]])
    messages = receive(consumer, 3)
    assert sorted(texts(messages)) == ["x", "y", "z"]
    assert {message.topic_name() for message in messages} == set(topics)
    consumer.close()
    assert nothing_comes(client.subscribe(topics, "s"))


def test_a_pattern_consumer_finds_its_topics(client: pulsar.Client, topic: str) -> None:
    """The client lists the namespace and picks by itself."""
    for letter in "xyz":
        client.create_producer(f"{topic}-{letter}").close()
    consumer = client.subscribe(re.compile(f"{topic}-[xy]"), "s", pulsar.ConsumerType.Exclusive)
    for letter in "xyz":
        send_texts(client.create_producer(f"{topic}-{letter}"), [letter])
    assert sorted(texts(receive(consumer, 2))) == ["x", "y"]
    assert nothing_comes(consumer)


def test_lookup_by_http_works_too(broker: RunningBroker, topic: str) -> None:
    """A client may be given the HTTP address; it looks topics up there and then speaks the binary protocol."""
    client = pulsar.Client(broker.http_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(topic, "s")
    send_texts(client.create_producer(topic), "ab")
    assert texts(receive(consumer, 2)) == ["a", "b"]
    client.close()
