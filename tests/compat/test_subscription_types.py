# SPDX-License-Identifier: Apache-2.0
"""Exclusive, Failover and Shared as the official client sees them."""

from collections.abc import Callable

import pulsar
import pytest

from tests.compat.receiving import nothing_comes, receive, send_texts, texts

NewClient = Callable[[], pulsar.Client]


def test_a_second_exclusive_consumer_is_busy(client: pulsar.Client, topic: str) -> None:
    """2.2.1."""
    client.subscribe(topic, "s")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s")


def test_another_type_is_refused_while_there_are_consumers(client: pulsar.Client, topic: str) -> None:
    """2.1.1."""
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s", pulsar.ConsumerType.Failover)
    consumer.close()
    client.subscribe(topic, "s", pulsar.ConsumerType.Failover)


def test_every_subscription_gets_every_message(client: pulsar.Client, topic: str) -> None:
    """2.1.5: fan-out."""
    consumers = [client.subscribe(topic, name) for name in ("one", "two", "three")]
    send_texts(client.create_producer(topic), "ab")
    for consumer in consumers:
        assert texts(receive(consumer, 2)) == ["a", "b"]


def test_the_initial_position_counts_for_a_new_subscription_only(client: pulsar.Client, topic: str) -> None:
    """1.9.1: Latest unless asked otherwise."""
    send_texts(client.create_producer(topic), "ab")
    assert nothing_comes(client.subscribe(topic, "latest"))
    earliest = client.subscribe(topic, "earliest", initial_position=pulsar.InitialPosition.Earliest)
    assert texts(receive(earliest, 2)) == ["a", "b"]


def test_a_failover_standby_takes_over_what_is_unacknowledged(
    client: pulsar.Client, new_client_of: NewClient, topic: str
) -> None:
    """2.3.4: the next one in order gets everything that was not acknowledged."""
    first_client = new_client_of()
    first = first_client.subscribe(topic, "s", pulsar.ConsumerType.Failover, consumer_name="a")
    second = client.subscribe(topic, "s", pulsar.ConsumerType.Failover, consumer_name="b")
    producer = client.create_producer(topic, batching_enabled=False)
    send_texts(producer, "abcd")
    first.acknowledge(receive(first, 2, ack=False)[0])
    assert nothing_comes(second)
    first_client.close()
    assert texts(receive(second, 3)) == ["b", "c", "d"]
    send_texts(producer, "e")
    assert texts(receive(second, 1)) == ["e"]


def test_shared_consumers_take_turns(client: pulsar.Client, topic: str) -> None:
    """2.4.1: each message goes to exactly one; all consumers get some."""
    consumers = [
        client.subscribe(topic, "s", pulsar.ConsumerType.Shared, receiver_queue_size=100, consumer_name=name)
        for name in "abc"
    ]
    words = [str(number) for number in range(300)]
    producer = client.create_producer(topic, batching_enabled=False)
    for word in words:
        producer.send_async(word.encode(), None)
    producer.flush()
    got: dict[int, list[str]] = {0: [], 1: [], 2: []}
    while sum(map(len, got.values())) < 300:
        for number, consumer in enumerate(consumers):
            try:
                message = consumer.receive(100)
            except pulsar.Timeout:
                continue
            consumer.acknowledge(message)
            got[number].append(message.data().decode())
    assert sorted(word for words_got in got.values() for word in words_got) == sorted(words)
    assert all(len(each) >= 40 for each in got.values())


def test_permits_limit_what_is_pushed(client: pulsar.Client, topic: str) -> None:
    """4.1: a consumer with a queue of 1 leaves the rest to others."""
    small = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, receiver_queue_size=1)
    send_texts(client.create_producer(topic, batching_enabled=False), "abcdef")
    large = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, receiver_queue_size=100)
    assert len(receive(large, 5)) == 5
    assert texts(receive(small, 1)) == ["a"]


def test_a_consumer_without_a_queue_gets_one_message_for_each_receive(client: pulsar.Client, topic: str) -> None:
    """4.1.4: permits of exactly one."""
    consumer = client.subscribe(topic, "s", receiver_queue_size=0, initial_position=pulsar.InitialPosition.Earliest)
    send_texts(client.create_producer(topic, batching_enabled=False), "abc")
    for word in "abc":
        message = consumer.receive()
        assert message.data().decode() == word
        consumer.acknowledge(message)


def test_unsubscribe_forgets_the_position(client: pulsar.Client, topic: str) -> None:
    """2.1.8: the cursor is deleted."""
    consumer = client.subscribe(topic, "s")
    send_texts(client.create_producer(topic), "ab")
    receive(consumer, 2)
    consumer.unsubscribe()
    again = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    assert texts(receive(again, 2)) == ["a", "b"]


def test_unsubscribe_is_refused_while_others_are_connected(client: pulsar.Client, topic: str) -> None:
    """2.1.8: only the sole consumer may."""
    first = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    with pytest.raises(pulsar.PulsarException):
        first.unsubscribe()
