# SPDX-License-Identifier: Apache-2.0
"""Acknowledgements of the official client: what was acknowledged stays away, everything else comes back."""

from collections.abc import Callable

import pulsar
import pytest

from tests.compat.receiving import PATIENCE_MS, nothing_comes, receive, send_batch, send_texts, texts

KINDS = [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover, pulsar.ConsumerType.Shared]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_only_what_was_not_acknowledged_comes_again(
    client: pulsar.Client, topic: str, kind: pulsar.ConsumerType
) -> None:
    """3.4: individual acks with holes, over a new consumer of the same subscription."""
    consumer = client.subscribe(topic, "s", kind)
    send_texts(client.create_producer(topic, batching_enabled=False), "abcdef")
    for message in receive(consumer, 6, ack=False):
        if message.data() in (b"a", b"c", b"d"):
            consumer.acknowledge(message)
    consumer.close()
    again = client.subscribe(topic, "s", kind)
    assert sorted(texts(receive(again, 3))) == ["b", "e", "f"]
    assert nothing_comes(again)


@pytest.mark.parametrize("kind", KINDS[:2], ids=str)
def test_a_cumulative_ack_covers_everything_before_it(
    client: pulsar.Client, topic: str, kind: pulsar.ConsumerType
) -> None:
    """3.5.1."""
    consumer = client.subscribe(topic, "s", kind)
    send_texts(client.create_producer(topic, batching_enabled=False), "abcdef")
    consumer.acknowledge_cumulative(receive(consumer, 4, ack=False)[-1])
    consumer.close()
    assert texts(receive(client.subscribe(topic, "s", kind), 2)) == ["e", "f"]


def test_without_batch_index_acks_the_whole_batch_comes_again(client: pulsar.Client, topic: str) -> None:
    """3.1.5: the client acknowledges an entry when all its messages are."""
    consumer = client.subscribe(topic, "s")
    send_batch(client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000), "abcd")
    for message in receive(consumer, 4, ack=False)[:3]:
        consumer.acknowledge(message)
    consumer.close()
    assert texts(receive(client.subscribe(topic, "s"), 4)) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_with_batch_index_acks_only_the_rest_of_the_batch_comes_again(
    client: pulsar.Client, topic: str, kind: pulsar.ConsumerType
) -> None:
    """3.6.6: the ack set travels with the entry."""
    consumer = client.subscribe(topic, "s", kind, batch_index_ack_enabled=True)
    send_batch(client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000), "abcd")
    for message in receive(consumer, 4, ack=False):
        if message.data() in (b"a", b"c"):
            consumer.acknowledge(message)
    consumer.close()
    again = client.subscribe(topic, "s", kind, batch_index_ack_enabled=True)
    assert texts(receive(again, 2)) == ["b", "d"]
    assert nothing_comes(again)


def test_a_cumulative_ack_inside_a_batch_keeps_the_messages_behind_it(client: pulsar.Client, topic: str) -> None:
    """3.5.2."""
    consumer = client.subscribe(topic, "s", batch_index_ack_enabled=True)
    send_batch(client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000), "abcd")
    consumer.acknowledge_cumulative(receive(consumer, 4, ack=False)[1])
    consumer.close()
    assert texts(receive(client.subscribe(topic, "s", batch_index_ack_enabled=True), 2)) == ["c", "d"]


def test_a_negative_ack_on_shared_brings_that_message_with_a_count(client: pulsar.Client, topic: str) -> None:
    """4.4: the redelivery count rises each time."""
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=100)
    send_texts(client.create_producer(topic, batching_enabled=False), "ab")
    first, second = receive(consumer, 2, ack=False)
    consumer.acknowledge(first)
    assert second.redelivery_count() == 0
    for count in (1, 2):
        consumer.negative_acknowledge(second)
        (second,) = receive(consumer, 1, ack=False)
        assert (second.data(), second.redelivery_count()) == (b"b", count)
    consumer.acknowledge(second)
    assert nothing_comes(consumer)


def test_a_negative_ack_on_exclusive_rewinds_to_the_first_unacknowledged(client: pulsar.Client, topic: str) -> None:
    """2.3.5.2: single-active dispatch sends everything that is not acknowledged again, in order."""
    consumer = client.subscribe(topic, "s", negative_ack_redelivery_delay_ms=100)
    send_texts(client.create_producer(topic, batching_enabled=False), "abc")
    first, second, _ = receive(consumer, 3, ack=False)
    consumer.acknowledge(first)
    consumer.negative_acknowledge(second)
    assert texts(receive(consumer, 2)) == ["b", "c"]


def test_redeliver_unacknowledged_messages_brings_all_again(client: pulsar.Client, topic: str) -> None:
    """4.4.2."""
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    send_texts(client.create_producer(topic, batching_enabled=False), "abc")
    receive(consumer, 3, ack=False)
    consumer.redeliver_unacknowledged_messages()
    assert sorted(texts(receive(consumer, 3))) == ["a", "b", "c"]


def test_messages_of_a_client_that_vanishes_go_to_another(
    client: pulsar.Client, new_client_of: Callable[[], pulsar.Client], topic: str
) -> None:
    """2.4.9: what it held is redelivered, counted once more."""
    vanishing = new_client_of()
    first = vanishing.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    send_texts(client.create_producer(topic, batching_enabled=False), "abc")
    receive(first, 3, ack=False)
    second = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    vanishing.close()
    again = receive(second, 3)
    assert sorted(texts(again)) == ["a", "b", "c"]
    assert {message.redelivery_count() for message in again} == {1}


def test_the_dead_letter_policy_of_the_client_works(client: pulsar.Client, topic: str) -> None:
    """4.7: the client counts by the broker's redelivery count."""
    policy = pulsar.ConsumerDeadLetterPolicy(2, f"{topic}-DLQ", "dead")
    consumer = client.subscribe(
        topic,
        "s",
        pulsar.ConsumerType.Shared,
        negative_ack_redelivery_delay_ms=100,
        dead_letter_policy=policy,
    )
    client.create_producer(topic, batching_enabled=False).send(b"poison")
    for _ in range(3):
        consumer.negative_acknowledge(consumer.receive(PATIENCE_MS))
    assert nothing_comes(consumer)
    # The policy names a first subscription of the dead letter topic, so nothing was lost before anybody looked.
    assert texts(receive(client.subscribe(f"{topic}-DLQ", "dead"), 1)) == ["poison"]
