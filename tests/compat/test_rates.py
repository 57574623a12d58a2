# SPDX-License-Identifier: Apache-2.0
"""Rates of publishing and of dispatch that are set over the admin REST, measured with the official client (7.16)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import httpx
import pulsar
import pytest

from broker_core.testing.running_broker import RunningBroker
from tests.compat.receiving import receive, send_batch

RATE = 500
"""Messages in a second."""

COUNT = 2000


def set_policy(broker: RunningBroker, topic: str, name: str, value: dict[str, int]) -> None:
    path = topic.replace("://", "/")
    answer = httpx.post(f"{broker.http_url}/admin/v2/{path}/{name}", json=value, timeout=60)
    assert answer.status_code == 204, answer.text


def rate_of(times_s: list[float]) -> float:
    """Events in a second from the first to the last."""
    return (len(times_s) - 1) / (times_s[-1] - times_s[0])


def send_all(producers: list[pulsar.Producer], count: int, size: int = 10) -> list[float]:
    """Send so many messages, in turns; when each receipt came."""
    times_s: list[float] = []
    all_here = threading.Event()

    def sent(result: pulsar.Result, _message_id: pulsar.MessageId) -> None:
        assert result == pulsar.Result.Ok
        times_s.append(time.monotonic())
        if len(times_s) == count:
            all_here.set()

    for number in range(count):
        producers[number % len(producers)].send_async(b"x" * size, sent)
    assert all_here.wait(60)
    return times_s


@pytest.mark.parametrize("batched", [False, True])
def test_a_producer_publishes_at_the_rate_of_the_topic(
    client: pulsar.Client, broker: RunningBroker, topic: str, batched: bool
) -> None:
    """7.16: within a tenth of what is set, whether messages come one by one or in batches."""
    options = {"batching_max_messages": 20} if batched else {}
    producer = client.create_producer(
        topic, batching_enabled=batched, block_if_queue_full=True, send_timeout_millis=0, **options
    )
    producer.send(b"first")
    set_policy(broker, topic, "publishRate", {"publishThrottlingRateInMsg": RATE})
    assert rate_of(send_all([producer], COUNT)) == pytest.approx(RATE, rel=0.1)


def test_producers_of_several_connections_publish_at_the_rate_together(
    new_client_of: Callable[[], pulsar.Client], broker: RunningBroker, topic: str
) -> None:
    """7.16: the rate is the topic's, and bytes are limited like messages."""
    producers = [
        new_client_of().create_producer(
            topic, batching_enabled=False, block_if_queue_full=True, send_timeout_millis=0, max_pending_messages=200
        )
        for _ in range(3)
    ]
    for producer in producers:
        producer.send(b"first")
    set_policy(broker, topic, "publishRate", {"publishThrottlingRateInByte": 1000 * RATE})
    rate = rate_of(send_all(producers, COUNT, size=950))
    assert rate == pytest.approx(RATE, rel=0.1)


@pytest.mark.parametrize("policy", ["dispatchRate", "subscriptionDispatchRate"])
@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared])
def test_consumers_are_sent_messages_at_the_rate(
    client: pulsar.Client, broker: RunningBroker, topic: str, policy: str, kind: pulsar.ConsumerType
) -> None:
    """7.16: within a tenth of what is set; all of it is the lower of topic and subscription."""
    client.subscribe(topic, "s", consumer_type=kind).close()
    producer = client.create_producer(topic, batching_enabled=False, block_if_queue_full=True)
    send_batch(producer, map(str, range(COUNT)))
    set_policy(broker, topic, policy, {"dispatchThrottlingRateInMsg": RATE, "ratePeriodInSecond": 1})
    consumer = client.subscribe(topic, "s", consumer_type=kind)
    times_s = []
    for _ in range(COUNT):
        receive(consumer, 1)
        times_s.append(time.monotonic())
    assert rate_of(times_s) == pytest.approx(RATE, rel=0.1)


def test_a_client_beyond_its_rate_still_hears_from_the_broker(
    client: pulsar.Client, broker: RunningBroker, topic: str
) -> None:
    """7.16: its connection is read on when the rate is gone, and nothing was lost."""
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=False, send_timeout_millis=0)
    set_policy(broker, topic, "publishRate", {"publishThrottlingRateInMsg": 1})
    for number in range(200):
        producer.send_async(str(number).encode(), None)
    set_policy(broker, topic, "publishRate", {"publishThrottlingRateInMsg": 0})
    assert [int(message.data()) for message in receive(consumer, 200)] == list(range(200))
