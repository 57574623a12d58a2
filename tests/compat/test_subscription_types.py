# SPDX-License-Identifier: Apache-2.0
"""Permits of a single message, as the official client gives them to an Exclusive subscription."""

from collections.abc import Callable

import pulsar

from tests.compat.receiving import send_texts

NewClient = Callable[[], pulsar.Client]


def test_a_consumer_without_a_queue_gets_one_message_for_each_receive(client: pulsar.Client, topic: str) -> None:
    """4.1.4: permits of exactly one."""
    consumer = client.subscribe(topic, "s", receiver_queue_size=0, initial_position=pulsar.InitialPosition.Earliest)
    send_texts(client.create_producer(topic, batching_enabled=False), "abc")
    for word in "abc":
        message = consumer.receive()
        assert message.data().decode() == word
        consumer.acknowledge(message)
