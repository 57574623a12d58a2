# SPDX-License-Identifier: Apache-2.0
"""``pulsarish consume`` over patterns, with ack timeout and dead letters."""

from __future__ import annotations

import pytest

from broker_core.client import Client
from broker_core.testing.running_broker import RunningBroker
from tests.cli.conftest import Pulsarish

WAIT_S = 60.0


def test_consuming_a_pattern(pulsarish: Pulsarish, topic: str) -> None:
    """1.2.4 All topics that match, under one subscription; nothing is left for the next run."""
    for name in ("a", "b", "other"):
        pulsarish("produce", f"{topic}-{name}", "-m", name)
    command = ("consume", f"{topic}-[ab]", "--topics-pattern", "-s", "s", "--exit", "-o", "raw")
    shown = pulsarish(*command)
    assert (shown.returncode, sorted(shown.stdout.split())) == (0, [b"a", b"b"])
    assert pulsarish(*command).stdout == b""


def test_a_message_that_was_redelivered_too_often_is_set_aside(
    pulsarish: Pulsarish, broker: RunningBroker, topic: str
) -> None:
    """4.7.4 With --dead-letter 1 a message of count 2 is not printed; it is in the dead letter topic."""
    with Client(broker.service_url) as client:
        options = {"type": "shared", "initial_position": "earliest", "negative_ack_redelivery_delay_s": 0.05}
        client.subscribe(topic, "s", receiver_queue_size=0, **options)  # type: ignore[arg-type] # keeps the counts
        pulsarish("produce", topic, "-m", "poison")
        with client.subscribe(topic, "s", **options) as consumer:  # type: ignore[arg-type]
            for _ in range(2):
                consumer.negative_acknowledge(consumer.receive(WAIT_S))
            assert consumer.receive(WAIT_S).redelivery_count == 2
        pulsarish("produce", topic, "-m", "good")
        arguments = ("-s", "s", "-t", "shared", "--ack-timeout", "5", "--dead-letter", "1", "-n", "1", "-o", "raw")
        assert pulsarish("consume", topic, *arguments).stdout == b"good\n"
    assert pulsarish("consume", f"{topic}-s-DLQ", "--exit", "-o", "raw").stdout == b"poison\n"


def test_what_was_not_asked_for_is_not_counted_as_delivered(
    pulsarish: Pulsarish, broker: RunningBroker, topic: str
) -> None:
    """2.4.9, 4.4.3 With -n 1 one message is printed; a thousand behind it were fetched too, came back as redelivered,
    and were dead letters after some runs, though nobody had seen them."""
    with Client(broker.service_url) as client:
        client.subscribe(topic, "s", type="shared", receiver_queue_size=0)  # keeps the counts
        with client.create_producer(topic, batching_enabled=False) as producer:
            for number in range(20):
                producer.send_async(f"{number}")
        shown = pulsarish("consume", topic, "-s", "s", "-t", "shared", "-n", "1", "-o", "raw")
        assert shown.stdout == b"0\n"
        with client.subscribe(topic, "s", type="shared") as consumer:
            counts = [consumer.receive(WAIT_S).redelivery_count for _ in range(19)]
    assert sum(counts) <= 1  # A permit that comes back may bring one more.


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--topics-pattern"], "needs a subscription"),
        (["--ack-timeout", "5"], "needs a subscription"),
        (["--ack-timeout", "0.5", "-s", "s"], "--ack-timeout"),
        (["--dead-letter", "3"], "needs a subscription"),
        (["--dead-letter", "3", "-s", "s"], "no effect on --type exclusive"),
        (["--dead-letter-topic", "d", "-s", "s"], "is for --dead-letter"),
        (["--dead-letter-topic", "", "--dead-letter", "3", "-s", "s", "-t", "shared"], "--dead-letter-topic is empty"),
    ],
)
def test_what_does_not_fit_together_is_said(pulsarish: Pulsarish, topic: str, arguments: list[str], says: str) -> None:
    """4.7.2 A wrong combination is an error that says what to do, before anything is created."""
    refused = pulsarish("consume", topic, *arguments)
    assert refused.returncode == 2
    assert says in refused.stderr.decode()
