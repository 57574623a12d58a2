# SPDX-License-Identifier: Apache-2.0
"""Delayed messages of the official client, also over a restart of the broker."""

from __future__ import annotations

import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pulsar
import pytest

from broker_core.testing.running_broker import RunningBroker
from tests.compat.conftest import new_client
from tests.compat.receiving import PATIENCE_MS

IN_MEMORY = "org.apache.pulsar.broker.delayed.InMemoryDelayedDeliveryTrackerFactory"
STRICT = {"isDelayedDeliveryDeliverAtTimeStrict": True, "delayedDeliveryTickTimeMillis": 20}


@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared])
def test_deliver_after_and_deliver_at(client: pulsar.Client, topic: str, kind: pulsar.ConsumerType) -> None:
    """6.1.1, 6.1.2 (I6.1): both ways of the official client; none early by more than a tick."""
    consumer = client.subscribe(topic, "s", consumer_type=kind)
    producer = client.create_producer(topic)
    begun = time.time()
    producer.send(b"late", deliver_after=timedelta(seconds=9), partition_key="a")
    producer.send(b"soon", deliver_at=round((begun + 6.0) * 1000), partition_key="b")
    producer.send(b"now", partition_key="c")
    for value, after_s in ((b"now", 0.0), (b"soon", 6.0), (b"late", 9.0)):
        message = consumer.receive(PATIENCE_MS)
        consumer.acknowledge(message)
        assert message.data() == value
        assert time.time() >= begun + after_s - 1.0


@pytest.mark.parametrize("more", [{}, {"delayedDeliveryTrackerFactoryClassName": IN_MEMORY}])
def test_a_restart_makes_none_early_lost_or_twice(tmp_path: Path, more: dict[str, object]) -> None:
    """6.2.5, 6.4.6 (I6.5, I6.7): 400 messages in buckets of 50, the broker is killed while they wait."""
    settings = {**STRICT, "delayedDeliveryMinIndexCountPerBucket": 50, **more}
    with RunningBroker(tmp_path / "data", settings) as broker:
        due: dict[bytes, float] = {}
        with closing(new_client(broker)) as client:
            client.subscribe("t", "s", consumer_type=pulsar.ConsumerType.Shared)
            producer = client.create_producer("t", batching_enabled=True)
            base = time.time() + 3
            for number in range(400):
                name = b"%d" % number
                due[name] = base + (number * 37 % 400) / 100
                producer.send_async(name, None, deliver_at=round(due[name] * 1000))
            producer.flush()
            time.sleep(0.2)
        broker.kill()
        broker.start()
        with closing(new_client(broker)) as client:
            consumer = client.subscribe("t", "s", consumer_type=pulsar.ConsumerType.Shared)
            seen: set[bytes] = set()
            for _ in range(400):
                message = consumer.receive(PATIENCE_MS)
                assert time.time() * 1000 >= int(due[message.data()] * 1000) - 1
                assert message.data() not in seen
                seen.add(message.data())
                consumer.acknowledge(message)
            with pytest.raises(pulsar.Timeout):
                consumer.receive(300)
