# SPDX-License-Identifier: Apache-2.0
"""Producers of a topic that gets more partitions while they live, on both servers."""

from __future__ import annotations

import pytest

from broker_core.base.errors import ProducerFencedError
from broker_core.client import Client, Producer
from tests.client.conftest import Service, admin_path
from tests.client.helpers import eventually

LOOK_S = 0.1
"""How often the producers of these tests look for new partitions."""

ONLY_WHEN_WOKEN_S = 3600.0

KEY = "key-1"
"""Its Murmur3 hash is 1 modulo 2 and 3 modulo 4 (semantics 1.2.3)."""


def grow(service: Service, topic: str, partitions: int) -> None:
    service.admin("POST", f"{admin_path(topic)}/partitions", str(partitions))


def partition_of(producer: Producer, key: str | None = None) -> int:
    """Where a message goes now."""
    return producer.send("x", key=key).partition


def is_free(client: Client, topic: str) -> bool:
    """Whether nobody else produces to ``topic``."""
    try:
        client.create_producer(topic, access_mode="exclusive").close()
    except ProducerFencedError:
        return False
    return True


def look_now(producer: Producer) -> None:
    discovery = producer._inner._growth
    assert discovery is not None
    producer._thread.post(discovery.wake)


def test_producers_send_to_partitions_that_are_added(service: Service, client: Client, topic: str) -> None:
    """1.2.2, 1.2.3 by themselves, with and without a key; a key may then have another partition."""
    service.create_partitioned(topic, 2)
    options = {"batching_enabled": False, "auto_update_partitions_interval_s": LOOK_S}
    with client.create_producer(topic, **options) as producer:  # type: ignore[arg-type]
        assert {partition_of(producer) for _ in range(4)} == {0, 1}
        assert partition_of(producer, KEY) == 1
        grow(service, topic, 4)
        eventually(lambda: partition_of(producer) > 1, "messages go to new partitions")
        assert {partition_of(producer) for _ in range(4)} == {0, 1, 2, 3}
        assert partition_of(producer, KEY) == 3
        assert producer.stats().messages_confirmed > 10


def test_who_does_not_look_keeps_to_the_partitions_of_the_beginning(
    service: Service, client: Client, topic: str
) -> None:
    """1.2.2 with the interval 0; another producer shows that the new partition is there."""
    service.create_partitioned(topic, 1)
    with (
        client.create_producer(topic, batching_enabled=False, auto_update_partitions_interval_s=0) as still,
        client.create_producer(topic, batching_enabled=False, auto_update_partitions_interval_s=LOOK_S) as looking,
    ):
        grow(service, topic, 2)
        eventually(lambda: partition_of(looking) == 1, "messages go to the new partition")
        assert {partition_of(still) for _ in range(4)} == {0}


def test_a_partition_that_refuses_is_tried_again(
    service: Service, client: Client, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """1.2.2, 1.7.4 until then nothing changes, and the other new partitions are not occupied."""
    service.create_partitioned(topic, 1)
    options = {"batching_enabled": False, "access_mode": "exclusive"}
    with client.create_producer(topic, auto_update_partitions_interval_s=ONLY_WHEN_WOKEN_S, **options) as producer:  # type: ignore[arg-type]
        grow(service, topic, 3)
        with client.create_producer(f"{topic}-partition-2", **options):  # type: ignore[arg-type]
            look_now(producer)
            eventually(lambda: "discovery failed" in caplog.text, "the refusal is logged")
            assert {partition_of(producer) for _ in range(4)} == {0}
            client.create_producer(f"{topic}-partition-1", **options).close()  # type: ignore[arg-type]
        look_now(producer)
        eventually(lambda: partition_of(producer) > 0, "messages go to new partitions")
        assert {partition_of(producer) for _ in range(3)} == {0, 1, 2}


def test_a_producer_is_closed_whatever_it_looks_for(service: Service, client: Client, topic: str) -> None:
    """1.2.2, 1.7.4 also while a new partition makes it wait for its turn."""
    service.create_partitioned(topic, 1)
    options = {"access_mode": "wait_for_exclusive", "auto_update_partitions_interval_s": ONLY_WHEN_WOKEN_S}
    producer = client.create_producer(topic, **options)  # type: ignore[arg-type]
    grow(service, topic, 2)
    with client.create_producer(f"{topic}-partition-1", access_mode="exclusive") as other:
        look_now(producer)
        assert partition_of(producer) == 0
        producer.close()
        assert partition_of(other) == -1
    for partition in range(2):
        # An Apache Pulsar gives a turn also to who does not wait for it any more, and takes it back a moment later.
        eventually(lambda name=f"{topic}-partition-{partition}": is_free(client, name), "nobody is left")  # type: ignore[misc]
