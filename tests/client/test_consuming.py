# SPDX-License-Identifier: Apache-2.0
"""Consumers, on both servers: receiving, queue sizes, subscription types, partitions, last message id."""

import threading
import time
from collections.abc import Callable

import pytest

from broker_core.base.errors import (
    AlreadyClosedError,
    ConsumerBusyError,
    OperationTimeoutError,
    UsageError,
)
from broker_core.client import Client, Message
from tests.client.conftest import Service
from tests.client.helpers import WAIT_S, assert_nothing_comes, eventually, numbered, send, take, values


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("queue_size", [0, 1, 3, 1000])
def test_every_message_comes_once_and_in_order(client: Client, topic: str, queue_size: int, batched: bool) -> None:
    """4.1 any receiver queue size, with batches and without: all messages, in order, and no stall."""
    send(client, topic, 50, batched=batched)
    consumer = client.subscribe(topic, "s", initial_position="earliest", receiver_queue_size=queue_size)
    messages = take(consumer, 50)
    assert values(messages) == numbered(0, 50)
    assert [message.redelivery_count for message in messages] == [0] * 50
    assert_nothing_comes(consumer)


def test_without_prefetch_messages_stay_for_others(client: Client, topic: str) -> None:
    """4.1.4 and I4.2 a consumer with queue size 0 that does not receive takes nothing from a Shared subscription."""
    idle = client.subscribe(topic, "s", type="shared", initial_position="earliest", receiver_queue_size=0)
    busy = client.subscribe(topic, "s", type="shared", initial_position="earliest", receiver_queue_size=0)
    send(client, topic, 10, batched=False)
    assert values(take(busy, 9)) == numbered(0, 9)
    assert values(take(idle, 1)) == ["m9"]


def test_initial_position_matters_for_a_new_subscription_only(client: Client, topic: str) -> None:
    """1.9.1 latest or earliest when a subscription is first created; ignored for an existing one."""
    send(client, topic, 3)
    client.subscribe(topic, "late").close()
    early = client.subscribe(topic, "early", initial_position="earliest")
    late = client.subscribe(topic, "late", initial_position="earliest")
    send(client, topic, 2, first=3)
    assert values(take(early, 5)) == numbered(0, 5)
    assert values(take(late, 2)) == numbered(3, 5)


def test_a_subscription_survives_its_consumer(client: Client, topic: str) -> None:
    """1.9.2 a durable cursor survives disconnects: what was not acknowledged comes again, with the same ids."""
    send(client, topic, 20, batched=False)
    first = client.subscribe(topic, "s", initial_position="earliest")
    messages = take(first, 20)
    for message in messages[:12]:
        first.acknowledge(message)
    first.close()
    again = take(client.subscribe(topic, "s"), 8)
    assert [message.message_id for message in again] == [message.message_id for message in messages[12:]]


def test_exclusive_means_one_consumer(client: Client, topic: str) -> None:
    """2.2 a second consumer is refused until the first has left."""
    first = client.subscribe(topic, "s")
    with pytest.raises(ConsumerBusyError):
        client.subscribe(topic, "s")
    first.close()
    client.subscribe(topic, "s").close()


def test_failover_passes_to_the_next(client: Client, service: Service, topic: str) -> None:
    """2.3 one consumer is active; when it leaves, the other gets what was not acknowledged."""
    service.create_partitioned(topic, 1)
    topic = f"{topic}-partition-0"  # On a plain topic a hash of its name may choose the other (2.3.3).
    send(client, topic, 10, batched=False)
    options = {"type": "failover", "initial_position": "earliest", "receiver_queue_size": 5}
    first = client.subscribe(topic, "s", consumer_name="a", **options)  # type: ignore[arg-type]
    eventually(lambda: first.is_active, "the only consumer becomes active")
    second = client.subscribe(topic, "s", consumer_name="b", **options)  # type: ignore[arg-type]
    # All of them: where the first leaves in the middle of a read, Apache Pulsar 4.2.4 may serve the second never.
    messages = take(first, 10)
    first.acknowledge_cumulative(messages[2], wait=True)
    assert not second.is_active
    first.close()
    assert values(take(second, 7)) == numbered(3, 10)
    eventually(lambda: second.is_active, "the other consumer becomes active")


def test_shared_spreads_messages(client: Client, topic: str) -> None:
    """2.4 every message goes to one of the consumers."""
    consumers = [
        client.subscribe(topic, "s", type="shared", initial_position="earliest", receiver_queue_size=2)
        for _ in range(2)
    ]
    send(client, topic, 40, batched=False)
    seen: list[list[str]] = [[], []]
    while sum(map(len, seen)) < 40:
        for mine, consumer in zip(seen, consumers, strict=True):
            if consumer.has_message_available():
                try:
                    message = consumer.receive(0.2)
                except OperationTimeoutError:
                    continue
                consumer.acknowledge(message)
                mine += values([message])
    assert sorted(seen[0] + seen[1]) == sorted(numbered(0, 40))
    assert all(seen)


def test_partitions_are_one_stream(service: Service, client: Client, topic: str) -> None:
    """1.2.4 one consumer over all partitions: every message once, in order, and acks go to the right one."""
    service.create_partitioned(topic, 4)
    send(client, topic, 200, batched=False)
    consumer = client.subscribe(topic, "s", initial_position="earliest", receiver_queue_size=10)
    assert consumer.topics == [f"{topic}-partition-{index}" for index in range(4)]
    messages = take(consumer, 200)
    assert sorted(values(messages)) == sorted(numbered(0, 200))
    by_partition: dict[int, list[Message]] = {}
    for message in messages:
        by_partition.setdefault(message.message_id.partition, []).append(message)
    for ours in by_partition.values():
        assert [message.message_id for message in ours] == sorted(message.message_id for message in ours)
        consumer.acknowledge_cumulative(ours[-1].message_id, wait=True)
    consumer.close()
    assert_nothing_comes(client.subscribe(topic, "s"))


def test_partitions_share_one_limit(service: Service, client: Client, topic: str) -> None:
    """4.1.5 the limit over all partitions is divided among them: never more than that wait here."""
    service.create_partitioned(topic, 4)
    send(client, topic, 200, batched=False)
    consumer = client.subscribe(
        topic, "s", initial_position="earliest", max_total_receiver_queue_size_across_partitions=8
    )
    eventually(lambda: len(consumer._inner._queue) == 8, "all partitions have sent what they may")
    time.sleep(0.1)
    assert len(consumer._inner._queue) == 8
    assert sorted(values(take(consumer, 200))) == sorted(numbered(0, 200))


def test_prefetch_cannot_be_off_over_partitions(service: Service, client: Client, topic: str) -> None:
    """4.1.4 queue size 0 is not possible with partitions, and the error says so."""
    service.create_partitioned(topic, 2)
    with pytest.raises(UsageError, match="receiver_queue_size 0"):
        client.subscribe(topic, "s", receiver_queue_size=0)


def test_one_subscription_over_several_topics(client: Client, new_topic: Callable[[], str]) -> None:
    """A consumer of a list of topics receives from all and acknowledges by message; an id alone is not enough."""
    topics = [new_topic(), new_topic()]
    consumer = client.subscribe(topics, "s", initial_position="earliest")
    for number, topic in enumerate(topics):
        send(client, topic, 3, first=10 * number)
    messages = take(consumer, 6)
    assert {message.topic for message in messages} == set(topics)
    with pytest.raises(UsageError, match="which of 2 topics"):
        consumer.acknowledge(messages[0].message_id)
    for message in messages:
        consumer.acknowledge(message, wait=True)
    consumer.close()
    assert_nothing_comes(client.subscribe(topics, "s"))


@pytest.mark.parametrize("batched", [True, False])
def test_the_last_message_id_is_that_of_the_last_message(client: Client, topic: str, batched: bool) -> None:
    """A.5 of the wire notes: entry -1 for an empty topic, the last message of the last batch otherwise."""
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    assert consumer.last_message_id().entry == -1
    assert not consumer.has_message_available()
    send(client, topic, 7, batched=batched)
    last = take(consumer, 7)[-1].message_id
    found = consumer.last_message_id()
    assert (found.position, found.batch_index) == (last.position, last.batch_index)
    assert not consumer.has_message_available()


def test_unsubscribing_forgets(client: Client, topic: str) -> None:
    """A subscription that was deleted and made again is a new one."""
    send(client, topic, 3)
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    consumer.acknowledge_cumulative(take(consumer, 3)[-1])
    consumer.unsubscribe()
    assert values(take(client.subscribe(topic, "s", initial_position="earliest"), 3)) == numbered(0, 3)


def test_receive_gives_up_in_time_and_wakes_for_a_message(client: Client, topic: str) -> None:
    """A receive that waits returns with the message, and with an error when its time is over."""
    consumer = client.subscribe(topic, "s")
    started = time.monotonic()
    with pytest.raises(OperationTimeoutError, match="'s'"):
        consumer.receive(0.2)
    assert time.monotonic() - started >= 0.2
    received: list[Message] = []
    waiting = threading.Thread(target=lambda: received.append(consumer.receive(WAIT_S)))
    waiting.start()
    send(client, topic, 1)
    waiting.join(WAIT_S)
    assert values(received) == ["m0"]


def test_a_closed_consumer_says_so(client: Client, topic: str) -> None:
    """Also to those who wait in receive while it is closed."""
    consumer = client.subscribe(topic, "s")
    failures: list[Exception] = []

    def wait() -> None:
        try:
            consumer.receive()
        except AlreadyClosedError as failure:
            failures.append(failure)

    waiting = threading.Thread(target=wait)
    waiting.start()
    eventually(lambda: consumer._inner._queue.has_waiters, "the thread waits")
    consumer.close()
    waiting.join(WAIT_S)
    assert len(failures) == 1
    with pytest.raises(AlreadyClosedError):
        consumer.receive(0)
