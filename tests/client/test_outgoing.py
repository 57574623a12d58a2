# SPDX-License-Identifier: Apache-2.0
"""What an application may send is checked where it can be told: what passes can be encoded."""

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.base.errors import UsageError
from broker_core.base.positions import MessageId
from broker_core.client import AsyncClient, Client, ProducerInterceptor
from broker_core.client.messages.outgoing import OutgoingMessage, outgoing
from broker_core.client.producing.batching import BatchBuilder, EntryEncoder, KeyBatchBuilder
from broker_core.client.settings.config import BatchingType, ClientConfig
from broker_core.testing.running_broker import RunningBroker
from tests.client.conftest import Service
from tests.client.helpers import take, values

UNFIT: list[dict[str, Any]] = [
    {"key": "\ud800"},
    {"ordering_key": "text"},
    {"properties": {"a": b"bytes"}},
    {"properties": {"\udfff": "a"}},
    {"properties": ["a", "b"]},
    {"event_time_ms": 2**63},
    {"event_time_ms": -(2**63) - 1},
    {"event_time_ms": 1.5},
    {"sequence_id": 2**64},
    {"deliver_at_ms": 2**63},
    {"deliver_at_ms": -1},
    {"deliver_after_s": 1e300},
    {"deliver_after_s": math.nan},
    {"deliver_after_s": math.inf},
]


@pytest.mark.parametrize("fields", UNFIT)
def test_what_cannot_be_encoded_is_refused(fields: dict[str, Any]) -> None:
    """Later it would fail beside others' messages in a batch, and whoever waits for its receipt would wait for ever."""
    with pytest.raises(UsageError):
        outgoing(b"x", **fields)


def test_the_largest_numbers_can_be_encoded() -> None:
    """A delay is added to the time of publishing, and the next sequence id is one more."""
    encoder = EntryEncoder(0)
    encoder.producer_name = "p"
    builder = BatchBuilder(encoder, 10, 1000)
    for number in range(2):
        fields: dict[str, Any] = {"event_time_ms": 2**62, "deliver_after_s": 2**62 // 1000}
        message = outgoing("ü", key="é", ordering_key=b"o", properties={"ö": "ß"}, **fields)
        builder.add(message, 2**62 + number, None)
        assert len(builder.take_all(2**41)) == 1


@pytest.mark.parametrize("by_number", [True, False])
def test_limits_of_batches_by_key_are_over_all_keys(*, by_number: bool) -> None:
    """2.10.2: by number or by bytes, however little each key has; then all leave, one entry for each key."""
    messages = [outgoing(b"12345678", key=f"key {number}") for number in range(4)]
    encoder = EntryEncoder(0)
    encoder.producer_name = "p"
    builder = KeyBatchBuilder(encoder, 4 if by_number else 100, 100_000 if by_number else 4 * messages[0].size_bytes)
    for number, message in enumerate(messages):
        assert (builder.is_full, builder.has_room_for(message)) == (False, True)
        builder.add(message, number, None)
    assert (builder.is_full, builder.has_room_for(messages[0])) == (True, by_number)
    assert len(builder.take_all(1)) == 4
    assert not builder.is_full


def test_a_message_that_is_refused_harms_no_other(client: Client, topic: str) -> None:
    """It is not sent, nobody waits for it, and the producer goes on."""
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    with client.create_producer(topic, batching_max_publish_delay_s=60.0) as producer:
        producer.send_async("before")
        for fields in UNFIT:
            with pytest.raises(UsageError):
                producer.send("never", **fields)
        producer.send("after")
    assert values(take(consumer, 2)) == ["before", "after"]


@pytest.mark.parametrize("batching_type", ["default", "key_based"])
def test_a_batch_is_no_larger_than_the_broker_takes(tmp_path: Path, batching_type: BatchingType) -> None:
    """1.3.5, 1.7.5: a batch that is closed by bytes was refused as too large where the broker takes less than these,
    with all the small messages in it."""
    sent = [(f"{number}:{'x' * (number % 900)}", {"a": "b"}) for number in range(200)]
    with RunningBroker(tmp_path / "data", {"maxMessageSize": 2048}) as broker, Client(broker.service_url) as client:
        consumer = client.subscribe("t", "s", initial_position="earliest")
        with client.create_producer("t", batching_type=batching_type, batching_max_publish_delay_s=60.0) as producer:
            for value, properties in sent:
                producer.send_async(value, key=value[0], properties=properties)
        messages = take(consumer, 200)
    assert sorted(values(messages)) == sorted(value for value, _ in sent)
    sizes = [message.message_id.batch_size for message in messages]
    assert max(sizes) > 2
    if batching_type == "default":
        assert [message.sequence_id for message in messages] == list(range(200))


class Spoiling(ProducerInterceptor):
    """Does to messages with the value "never" what ``spoil`` does, and leaves others alone."""

    def __init__(self) -> None:
        self.spoil: Callable[[OutgoingMessage], Any] = lambda message: message

    def before_send(self, message: OutgoingMessage) -> OutgoingMessage:
        spoilt: OutgoingMessage = self.spoil(message) if message.value == b"never" else message
        return spoilt


def spoils() -> list[Callable[[OutgoingMessage], Any]]:
    """What an interceptor may do wrong: the same as an application, and a thing or two more."""
    unfit = [each for each in UNFIT if "deliver_after_s" not in each] + [{"deliver_after_ms": 2**63}, {"value": 1.5}]
    return [lambda message, fields=fields: message._replace(**fields) for fields in unfit] + [lambda message: "text"]


@pytest.mark.parametrize("batching", [False, True])
def test_an_interceptor_cannot_make_a_message_that_hangs(client: Client, topic: str, batching: bool) -> None:
    """7.11: what it leaves is checked like what an application sends; others of the batch are stored."""
    spoiling = Spoiling()
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    options: dict[str, Any] = {"batching_enabled": batching, "batching_max_publish_delay_s": 5.0}
    with client.create_producer(topic, interceptors=[spoiling], **options) as producer:
        for number, spoiling.spoil in enumerate(spoils()):
            producer.send_async(f"before {number}")
            with pytest.raises(UsageError):
                producer.send("never")
            with pytest.raises(UsageError):
                producer.send_async("never")
            producer.send_async(f"after {number}")
        producer.flush()
        assert producer.stats().pending_messages == 0
    expected = [f"{word} {number}" for number in range(len(spoils())) for word in ("before", "after")]
    assert values(take(consumer, len(expected))) == expected


def test_the_asyncio_producer_refuses_it_as_well(service: Service, topic: str) -> None:
    """7.11: the waiting coroutine gets the error, those that send beside it their ids."""
    spoiling = Spoiling()
    spoiling.spoil = lambda message: message._replace(properties={"a": 1})  # type: ignore[dict-item]

    async def send_all() -> list[MessageId | BaseException]:
        async with AsyncClient(ClientConfig(service_url=service.service_url)) as client:
            producer = await client.create_producer(topic, interceptors=[spoiling])
            sends = (producer.send(value) for value in ("one", "never", "two"))
            return await asyncio.gather(*sends, return_exceptions=True)

    assert [type(each) for each in asyncio.run(send_all())] == [MessageId, UsageError, MessageId]


class Growing(ProducerInterceptor):
    """Makes messages large, and gives what an application might: text and a key of bytes."""

    def before_send(self, message: OutgoingMessage) -> OutgoingMessage:
        return message._replace(value="x" * 1000, key=b"\xff")  # type: ignore[arg-type] # it is taken all the same


def test_what_an_interceptor_adds_is_counted_and_normalised(client: Client, topic: str) -> None:
    """1.7.6, 7.11: the room that a message takes in the queue is that of what is sent."""
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    options: dict[str, Any] = {"batching_max_bytes": 1500, "batching_max_publish_delay_s": 5.0}
    with client.create_producer(topic, interceptors=[Growing()], **options) as producer:
        for _ in range(4):
            producer.send_async("small")
    got = take(consumer, 4)
    assert {(message.value, message.key, message.message_id.batch_size) for message in got} == {
        (b"x" * 1000, b"\xff", 0)
    }


def test_properties_are_those_at_the_time_of_sending(client: Client, topic: str) -> None:
    """The application may go on with its dictionary at once, while the message waits in its batch."""
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    with client.create_producer(topic, batching_max_publish_delay_s=5.0) as producer:
        properties: dict[str, str] = {}
        for number in range(50):
            properties["number"] = str(number)
            properties[f"more {number}"] = ""
            producer.send_async("x", properties=properties)
    got = take(consumer, 50)
    assert [(message.properties["number"], len(message.properties)) for message in got] == [
        (str(number), number + 2) for number in range(50)
    ]
