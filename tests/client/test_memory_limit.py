# SPDX-License-Identifier: Apache-2.0
"""What all producers of a client together may have waiting for receipts, and a consumer queued; on both servers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from broker_core.base.errors import ConfigError, QueueFullError
from broker_core.client import Client, ClientConfig, Producer
from broker_core.client.blocking.handles import take_room
from broker_core.client.connecting.send_window import SendWindow
from tests.client.conftest import Service
from tests.client.helpers import WAIT_S

LIMIT = 10_000
MORE_THAN_HALF = b"x" * 6_000


@pytest.fixture
def limited(service: Service) -> Iterator[Client]:
    with Client(service.service_url, memory_limit_bytes=LIMIT) as opened:
        yield opened


def holding(client: Client, topic: str) -> Producer:
    """A producer that keeps more than half of the limit until it is flushed."""
    producer = client.create_producer(topic, batching_max_publish_delay_s=60)
    producer.send_async(MORE_THAN_HALF)
    return producer


def test_the_limit_is_that_of_all_producers(limited: Client, new_topic: Callable[[], str]) -> None:
    """1.7.6 what one holds is not there for the others; receipts give it back."""
    first, second = holding(limited, new_topic()), limited.create_producer(new_topic())
    with pytest.raises(QueueFullError, match="memory_limit_bytes"):
        second.send_async(MORE_THAN_HALF)
    second.send(b"small")
    first.flush()
    second.send(MORE_THAN_HALF)
    first.send(MORE_THAN_HALF)


def test_who_waits_for_room_is_woken_by_another_producer(limited: Client, new_topic: Callable[[], str]) -> None:
    """1.7.6 with block_if_queue_full, though the producer that waits has nothing under way itself."""
    first = holding(limited, new_topic())
    second = limited.create_producer(new_topic(), block_if_queue_full=True)
    begun, sent = threading.Event(), threading.Event()

    def wait_for_room() -> None:
        begun.set()
        second.send_async(MORE_THAN_HALF)
        second.flush()
        sent.set()

    thread = threading.Thread(target=wait_for_room)
    thread.start()
    assert begun.wait(WAIT_S)
    assert not sent.wait(0.1)
    first.flush()
    assert sent.wait(WAIT_S)
    thread.join()


def test_a_message_above_the_limit_is_sent_alone(limited: Client, topic: str) -> None:
    """1.7.6 else it could never be sent."""
    with limited.create_producer(topic, batching_max_publish_delay_s=60) as producer:
        producer.send(b"x" * 3 * LIMIT)
        producer.send_async(b"x" * 3 * LIMIT)
        with pytest.raises(QueueFullError):
            producer.send_async(b"small")


def test_a_limit_of_nothing_is_none() -> None:
    """1.7.6 as in Pulsar, 0 takes the limit away."""
    unlimited = SendWindow(0, 0)
    assert all(unlimited.try_take(1 << 40) for _ in range(10))
    assert ClientConfig(service_url="pulsar://localhost").memory_limit_bytes == 64 * 1024 * 1024
    with pytest.raises(ConfigError, match="memory_limit_bytes"):
        ClientConfig(service_url="pulsar://localhost", memory_limit_bytes=-1)


def test_everybody_who_waits_is_woken_once() -> None:
    """1.7.6 and who waits for nothing is told so."""
    limit = SendWindow(0, 10)
    woken: list[str] = []
    limit.wake_later(lambda: woken.append("early"))
    assert limit.try_take(10)
    assert not limit.try_take(1)
    for name in "ab":
        limit.wake_later(lambda name=name: woken.append(name))  # type: ignore[misc]
    limit.give_back(0, 5)
    assert woken == ["early", "a", "b"]
    limit.give_back(1, 5)
    assert (woken, limit.bytes) == (["early", "a", "b"], 0)


def test_who_waits_in_vain_waits_once() -> None:
    """1.7.6 a producer that waits for its own receipts is woken by those of others, and must not grow with each."""
    memory = SendWindow(0, 100)
    full, busy = SendWindow(1, 100, memory), SendWindow(0, 100, memory)
    assert full.try_take(10)
    woken: list[bool] = []

    def wake() -> None:
        woken.append(full.try_take(10))
        if not woken[-1]:
            full.wake_later(wake)

    full.wake_later(wake)
    for _ in range(5):
        assert busy.try_take(10)
        busy.give_back(1, 10)
    assert woken == [False] * 5
    full.give_back(1, 10)
    assert woken == [False] * 5 + [True]


def test_room_that_comes_before_the_wait_for_it_is_seen() -> None:
    """1.7.6 the receipt may come between the look and the wait, and what others hold need not end."""

    class ReceiptAtOnce(SendWindow):
        def try_take(self, size_bytes: int) -> bool:
            taken = super().try_take(size_bytes)
            if not taken:
                self.give_back(1, 10)
            return taken

    memory = SendWindow(0, 100)
    assert memory.try_take(10)
    window = ReceiptAtOnce(1, 100, memory)
    assert window.try_take(10)
    take_room(window, 10, 0.5, lambda: QueueFullError("no room"))
    assert window.messages == 1


def test_large_messages_do_not_pile_up_in_a_consumer(service: Service, client: Client, topic: str) -> None:
    """4.1.9 a backlog larger than the limit comes piece by piece, whole and in order, over all partitions."""
    service.create_partitioned(topic, 2)
    values = [bytes([number]) * 200_000 for number in range(60)]
    with client.create_producer(topic, batching_enabled=False) as producer:
        for value in values:
            producer.send(value)
    limit = 2_000_000
    with Client(service.service_url, memory_limit_bytes=limit) as frugal:
        consumer = frugal.subscribe(
            topic, "s", initial_position="earliest", auto_scaled_receiver_queue_size_enabled=True
        )
        got = []
        for _ in values:
            got.append(consumer.receive(WAIT_S).value or b"")
            assert sum(part.permits.queue_size for part in consumer._inner.children) * len(values[0]) <= limit
        assert sorted(got) == values
