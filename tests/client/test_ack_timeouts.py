# SPDX-License-Identifier: Apache-2.0
"""Ack timeouts and nacks over several partitions, on both servers."""

import time
from typing import TypedDict

import pytest

from broker_core.client import Client, Consumer, Message, RedeliveryBackoff
from tests.client.conftest import Service
from tests.client.helpers import WAIT_S, assert_nothing_comes, eventually, numbered, send, take, values


class Timeout(TypedDict):
    """An ack timeout."""

    ack_timeout_s: float
    ack_timeout_tick_s: float


TIMEOUT: Timeout = {"ack_timeout_s": 1.0, "ack_timeout_tick_s": 0.1}
"""The shortest that there is."""

LONGER: Timeout = {"ack_timeout_s": 4.0, "ack_timeout_tick_s": 0.1}
"""For tests that acknowledge or refuse within it, on a machine that may be busy with something else."""


def until_queued(consumer: Consumer, count: int) -> None:
    """Look at the queue without taking from it."""
    eventually(lambda: len(consumer._inner._queue) >= count, f"{count} messages have come")


@pytest.mark.parametrize("partitions", [0, 2])
def test_a_nack_over_partitions_is_redelivered_once(
    service: Service, client: Client, topic: str, partitions: int
) -> None:
    """4.5 (I4.4) ack timeout 4 s, nack delay 5 s, nack at t = 0: one redelivery, at t >= 5 s, for each message."""
    if partitions:
        service.create_partitioned(topic, partitions)
    send(client, topic, 8, batched=False)
    consumer = client.subscribe(
        topic, "s", type="shared", initial_position="earliest", negative_ack_redelivery_delay_s=5, **LONGER
    )
    until_queued(consumer, 8)  # The time of those that are taken runs while others have yet to come.
    messages = take(consumer, 8)
    nacked_at = time.monotonic()
    for message in messages:
        consumer.negative_acknowledge(message)
    again: list[Message] = []
    while len(again) < 8:
        message = consumer.receive(WAIT_S)
        assert time.monotonic() - nacked_at >= 5
        again.append(message)
        consumer.acknowledge(message)
    assert [message.redelivery_count for message in again] == [1] * 8
    assert sorted(values(again)) == numbered(0, 8)
    assert_nothing_comes(consumer, 4.5)


def test_a_message_that_is_not_acknowledged_comes_again(client: Client, topic: str) -> None:
    """4.2.2, 4.2.3, 4.4.3 it comes after its timeout with count 1, others do not; queued messages have time."""
    send(client, topic, 5, batched=False)
    consumer = client.subscribe(topic, "s", type="shared", initial_position="earliest", **LONGER)
    until_queued(consumer, 5)
    taken_at = time.monotonic()
    first = take(consumer, 2)
    consumer.acknowledge(first[0])
    for message in take(consumer, 3):
        consumer.acknowledge(message)
    again = consumer.receive(WAIT_S)
    assert time.monotonic() - taken_at >= 4
    assert (again.message_id, again.redelivery_count) == (first[1].message_id, 1)
    consumer.acknowledge(again)
    assert_nothing_comes(consumer, 4.5)


def test_an_ack_timeout_can_back_off(client: Client, topic: str) -> None:
    """4.2.6 1 s, and then 0.5 s, 1 s by redelivery count."""
    send(client, topic, 1, batched=False)
    consumer = client.subscribe(
        topic,
        "s",
        type="shared",
        initial_position="earliest",
        ack_timeout_redelivery_backoff=RedeliveryBackoff(min_s=0.5, max_s=60),
        **TIMEOUT,
    )
    for least_s in (1.5, 2.0):
        taken_at = time.monotonic()
        take(consumer, 1)
        until_queued(consumer, 1)
        assert time.monotonic() - taken_at >= least_s
    assert take(consumer, 1)[0].redelivery_count == 2


def test_an_ack_timeout_on_exclusive_brings_everything_in_order(client: Client, topic: str) -> None:
    """4.2.5 one message is late: all that are not acknowledged come again, from the queue too, in order."""
    send(client, topic, 10, batched=False)
    consumer = client.subscribe(
        topic, "s", initial_position="earliest", receiver_queue_size=4, **LONGER
    )  # fmt: skip
    consumer.acknowledge_cumulative(take(consumer, 3)[1])
    part = consumer._inner.children[0]
    eventually(lambda: part.progress.epoch == 1, "the timeout is over")
    seen: list[str] = []
    while seen[-8:] != numbered(2, 10):
        message = consumer.receive(WAIT_S)
        seen += values([message])
    consumer.acknowledge_cumulative(message, wait=True)
    assert_nothing_comes(consumer)


def test_a_nack_backs_off_by_its_count(client: Client, topic: str) -> None:
    """4.3.3 0.2 s, 0.4 s, 0.8 s for the first three nacks, never early; the count is visible (I4.5)."""
    send(client, topic, 1, batched=False)
    consumer = client.subscribe(
        topic, "s", type="shared", initial_position="earliest",
        negative_ack_redelivery_backoff=RedeliveryBackoff(min_s=0.2, max_s=1),
    )  # fmt: skip
    for count, delay_s in enumerate((0.2, 0.4, 0.8)):
        message = take(consumer, 1)[0]
        assert message.redelivery_count == count
        nacked_at = time.monotonic()
        consumer.negative_acknowledge(message)
        until_queued(consumer, 1)
        assert time.monotonic() - nacked_at >= delay_s


@pytest.mark.parametrize("queue_size", [0, 1])
def test_small_queues_redeliver_too(client: Client, topic: str, queue_size: int) -> None:
    """4.1.3, 4.1.4 (I4.2) without prefetch, or with one message of it, nacks and permits go on for ever."""
    send(client, topic, 10, batched=False)
    consumer = client.subscribe(
        topic, "s", type="shared", initial_position="earliest", receiver_queue_size=queue_size,
        negative_ack_redelivery_delay_s=0.05, negative_ack_precision_bits=0,
    )  # fmt: skip
    counts: dict[str, list[int]] = {}
    while sum(map(len, counts.values())) < 30:
        message = consumer.receive(WAIT_S)
        seen = counts.setdefault(values([message])[0], [])
        seen.append(message.redelivery_count)
        if len(seen) < 3:
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)
    assert counts == {each: [0, 1, 2] for each in numbered(0, 10)}
    assert_nothing_comes(consumer)


def test_a_batch_without_prefetch(client: Client, topic: str) -> None:
    """4.1.4 a batch overdraws the one permit, and the rest of it is there without asking."""
    send(client, topic, 30)
    consumer = client.subscribe(topic, "s", initial_position="earliest", receiver_queue_size=0)
    assert values(take(consumer, 30)) == numbered(0, 30)
    assert_nothing_comes(consumer)


def test_acks_with_receipt_travel_in_groups(client: Client, topic: str) -> None:
    """3.1.9 with receipts enabled acknowledging returns when the group that carries the ack is answered."""
    send(client, topic, 3, batched=False)
    consumer = client.subscribe(
        topic, "s", initial_position="earliest", ack_receipt_enabled=True, acknowledgment_group_time_s=0.4
    )
    messages = take(consumer, 3)
    began = time.monotonic()
    consumer.acknowledge(messages[0])
    assert time.monotonic() - began >= 0.4
    consumer.acknowledge(messages[1], wait=True)
    consumer.acknowledge_cumulative(messages[2])
    last = consumer._thread.run(consumer._inner.last_messages())[0]
    assert last.mark_delete == messages[2].message_id.position
