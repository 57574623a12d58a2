# SPDX-License-Identifier: Apache-2.0
"""Acknowledging and redelivery, on both servers."""

import asyncio
import time

import pytest

from broker_core.base.errors import UsageError
from broker_core.base.positions import MessageId
from broker_core.client import AsyncClient, Client, ClientConfig, Consumer, Message
from tests.client.conftest import Service
from tests.client.helpers import WAIT_S, assert_nothing_comes, eventually, numbered, send, take, values


def left_over(client: Client, topic: str, count: int, **options: object) -> list[str]:
    """What a new consumer of the subscription gets: everything that is not acknowledged."""
    with client.subscribe(topic, "s", **options) as consumer:  # type: ignore[arg-type]
        found = values(take(consumer, count))
        assert_nothing_comes(consumer)
    return found


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("group_time_s", [0, 0.1])
def test_messages_of_a_batch_are_acknowledged_one_by_one(
    client: Client, topic: str, wait: bool, group_time_s: float
) -> None:
    """3.1.6 with index acks only the other messages of the batch come again."""
    send(client, topic, 10)
    consumer = client.subscribe(topic, "s", initial_position="earliest", acknowledgment_group_time_s=group_time_s)
    for message in take(consumer, 10)[1:9]:
        consumer.acknowledge(message, wait=wait)
    consumer.close()
    assert left_over(client, topic, 2) == ["m0", "m9"]


def test_without_index_acks_the_whole_batch_comes_again(client: Client, topic: str) -> None:
    """3.1.5 with index acks off an entry is acknowledged as a whole, when its last message is."""
    send(client, topic, 20)
    consumer = client.subscribe(topic, "s", initial_position="earliest", batch_index_ack_enabled=False)
    messages = take(consumer, 20)
    for message in messages[:19]:
        consumer.acknowledge(message)
    consumer.close()
    assert left_over(client, topic, 10, batch_index_ack_enabled=False) == numbered(10, 20)


@pytest.mark.parametrize("index_acks", [True, False])
@pytest.mark.parametrize("batched", [True, False])
def test_a_cumulative_ack_covers_everything_before(client: Client, topic: str, batched: bool, index_acks: bool) -> None:
    """3.1.5 and 3.1.6 cumulative ack in the middle of a batch, with and without index acks."""
    send(client, topic, 30, batched=batched)
    options = {"batch_index_ack_enabled": index_acks}
    consumer = client.subscribe(topic, "s", initial_position="earliest", **options)  # type: ignore[arg-type]
    consumer.acknowledge_cumulative(take(consumer, 30)[14], wait=True)
    consumer.close()
    first = 10 if batched and not index_acks else 15
    assert left_over(client, topic, 30 - first, **options) == numbered(first, 30)


def test_shared_subscriptions_have_no_cumulative_ack(client: Client, topic: str) -> None:
    """3.3.1 an error to the caller, not a silent nothing."""
    send(client, topic, 1)
    consumer = client.subscribe(topic, "s", type="shared", initial_position="earliest")
    with pytest.raises(UsageError, match="shared"):
        consumer.acknowledge_cumulative(take(consumer, 1)[0])


def test_an_ack_by_id_needs_the_batch_size(client: Client, topic: str) -> None:
    """An id read from text does not tell how large its batch is; the error says what to do."""
    send(client, topic, 10)
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    message = take(consumer, 10)[3]
    with pytest.raises(UsageError, match="size of its batch"):
        consumer.acknowledge(MessageId.parse(str(message.message_id)))
    consumer.acknowledge(MessageId(message.message_id.ledger, message.message_id.entry), wait=True)
    consumer.close()
    assert left_over(client, topic, 0) == []


def test_acks_wait_for_the_group_time(client: Client, topic: str) -> None:
    """3.1.1 and 3.1.2 acks travel together when the group time is over, or when the group is full."""
    send(client, topic, 10, batched=False)
    options = {"acknowledgment_group_time_s": 30, "max_acknowledgment_group_size": 5}
    consumer = client.subscribe(topic, "s", initial_position="earliest", **options)  # type: ignore[arg-type]
    messages = take(consumer, 10)
    for message in messages[:4]:
        consumer.acknowledge(message)
    assert backlog_of(consumer, messages[0].message_id) == "none acknowledged"
    consumer.acknowledge(messages[4])
    eventually(lambda: backlog_of(consumer, messages[0].message_id) == "some acknowledged", "the full group is sent")


def backlog_of(consumer: Consumer, first: MessageId) -> str:
    """Whether the broker has heard of any ack, by its mark-delete position."""
    last = consumer._thread.run(consumer._inner.last_messages())[0]
    assert last.mark_delete is not None
    return "some acknowledged" if last.mark_delete >= first.position else "none acknowledged"


def test_every_ack_with_receipt_is_answered_once(service: Service, topic: str) -> None:
    """I3.6 many acks at the same time, single and cumulative: each returns, and all are in force then."""

    async def run() -> None:
        async with AsyncClient(ClientConfig(service_url=service.service_url)) as client:
            consumer = await client.subscribe(topic, "s", initial_position="earliest")
            producer = await client.create_producer(topic, batching_max_messages=10)
            await asyncio.gather(*(producer.send(f"m{number}") for number in range(100)))
            messages = [await consumer.receive(WAIT_S) for _ in range(100)]
            single = [consumer.acknowledge(message, wait=True) for message in messages[50:]]
            cumulative = [consumer.acknowledge_cumulative(message, wait=True) for message in messages[:50]]
            await asyncio.wait_for(asyncio.gather(*single, *cumulative), WAIT_S)
            await consumer.acknowledge(messages[0], wait=True)
            last = (await consumer.last_messages())[0]
            assert last.mark_delete == last.message_id.position

    asyncio.run(run())


def test_a_nack_on_shared_brings_one_message_again(client: Client, topic: str) -> None:
    """4.3 and I4.4 the message comes again, not before its delay, with its count raised; others do not."""
    send(client, topic, 5, batched=False)
    consumer = client.subscribe(
        topic, "s", type="shared", initial_position="earliest", negative_ack_redelivery_delay_s=0.3
    )
    messages = take(consumer, 5)
    for message in messages[:2] + messages[3:]:
        consumer.acknowledge(message)
    nacked_at = time.monotonic()
    consumer.negative_acknowledge(messages[2])
    again = consumer.receive(WAIT_S)
    assert time.monotonic() - nacked_at >= 0.3
    assert (again.message_id, again.redelivery_count) == (messages[2].message_id, 1)
    consumer.acknowledge(again)
    assert_nothing_comes(consumer, 0.5)


def test_an_ack_takes_a_nack_back(client: Client, topic: str) -> None:
    """4.3.6 acknowledged before the delay is over: nothing comes again."""
    send(client, topic, 1, batched=False)
    consumer = client.subscribe(
        topic, "s", type="shared", initial_position="earliest", negative_ack_redelivery_delay_s=4
    )
    message = take(consumer, 1)[0]
    consumer.negative_acknowledge(message)
    consumer.acknowledge(message)
    assert_nothing_comes(consumer, 4.5)


@pytest.mark.parametrize("kind", ["exclusive", "failover"])
def test_a_nack_on_a_single_active_consumer_rewinds(client: Client, topic: str, kind: str) -> None:
    """4.3.7 everything from the mark-delete position on comes again, in order."""
    send(client, topic, 30)
    consumer = client.subscribe(
        topic, "s", type=kind, initial_position="earliest", negative_ack_redelivery_delay_s=0.2,  # type: ignore[arg-type]
        receiver_queue_size=20,
    )  # fmt: skip
    messages = take(consumer, 15)
    # What an Apache Pulsar is reading when it rewinds bears the epoch of before, which tells a client to drop it.
    eventually(lambda: len(consumer._inner._queue) == 15, "nothing is on its way")
    consumer.acknowledge_cumulative(messages[9])
    consumer.negative_acknowledge(messages[12])
    seen: list[str] = []
    while seen[-1:] != ["m29"] or "m10" not in seen:
        seen += values([consumer.receive(WAIT_S)])
    assert seen[-20:] == numbered(10, 30)


def test_redeliver_all_brings_everything_unacknowledged(client: Client, topic: str) -> None:
    """4.2.5 and 3.1.11 everything unacknowledged comes again, in order, with permits intact.

    Asked for when nothing is on its way: entries that an Apache Pulsar was reading at that moment bear the epoch of
    before, which tells a client to drop them.
    """
    send(client, topic, 40, batched=False)
    consumer = client.subscribe(topic, "s", initial_position="earliest", receiver_queue_size=10)
    messages = take(consumer, 40)
    for _ in range(3):
        consumer.redeliver_unacknowledged()
        assert values(rewound(consumer, "m0", 40)) == numbered(0, 40)
    consumer.acknowledge_cumulative(messages[4], wait=True)
    consumer.redeliver_unacknowledged()
    assert values(rewound(consumer, "m5", 35)) == numbered(5, 40)
    assert_nothing_comes(consumer)


def rewound(consumer: Consumer, first: str, count: int) -> list[Message]:
    """``count`` messages from ``first`` on, after what was on its way when the broker rewound."""
    while values([message := consumer.receive(WAIT_S)]) != [first]:
        pass
    return [message, *take(consumer, count - 1)]
