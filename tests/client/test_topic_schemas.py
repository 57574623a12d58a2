# SPDX-License-Identifier: Apache-2.0
"""Schemas of topics through our client, on both servers: asked for, brought along, and named by messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pyarrow as pa
import pytest

from broker_core.base.errors import IncompatibleSchemaError, TopicNotFoundError
from broker_core.base.names import TopicName
from broker_core.client import AsyncClient, Client, ClientConfig, Consumer, DeadLetterPolicy, Message
from broker_core.client.connecting import topic_schemas
from broker_core.client.connecting.topic_schemas import TopicSchemas
from broker_core.schemas.info import SchemaInfo, SchemaType, VersionedSchema
from tests.client.conftest import Service
from tests.client.helpers import WAIT_S, assert_nothing_comes, eventually, is_all_acknowledged, take
from tests.schemas.infos import INT32, STRING, avro

A, B = avro("a"), avro("a", "b=0")
BAD = avro("a", "x")


def versions(messages: list[Message]) -> list[int | None]:
    return [message.schema_version for message in messages]


def latest(client: Client, topic: str) -> VersionedSchema:
    found = client.get_schema(topic)
    assert found is not None
    return found


def test_schema_of_a_producer_is_the_topics(client: Client, topic: str) -> None:
    """10.13, 10.16: the newest one, each version by its number, and none where there is none."""
    assert client.get_schema(topic) is None
    for schema in (A, B, A):
        client.create_producer(topic, schema=schema).close()
    assert latest(client, topic) == (B, 1)
    assert client.get_schema(topic, 0) == VersionedSchema(A, 0)
    assert client.get_schema(topic, 7) is None
    with pytest.raises(IncompatibleSchemaError):
        client.create_producer(topic, schema=BAD)


def test_schema_is_added_to_a_topic_that_is_there(service: Service, client: Client, topic: str) -> None:
    """10.17: GET_OR_CREATE_SCHEMA, of a topic with partitions too; it makes no topic."""
    with pytest.raises(TopicNotFoundError):
        client.get_or_create_schema(topic, A)
    service.create_partitioned(topic, 2)
    client.create_producer(topic).close()
    assert [client.get_or_create_schema(topic, each) for each in (A, B, A)] == [0, 1, 0]
    assert client.get_schema(f"{topic}-partition-1") == latest(client, topic) == (B, 1)
    with pytest.raises(IncompatibleSchemaError):
        client.get_or_create_schema(topic, BAD)


@pytest.mark.parametrize("batched", [True, False])
def test_messages_name_the_version_of_their_producer(client: Client, topic: str, batched: bool) -> None:
    """10.20, 1.7.5: single ones and batches; None without a schema."""
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    for schema in (None, A, B):
        with client.create_producer(topic, schema=schema, batching_enabled=batched) as producer:
            for number in range(3):
                producer.send_async(b"\2" * (number + 1))
    assert versions(take(consumer, 9)) == [None] * 3 + [0] * 3 + [1] * 3


def test_chunked_messages_name_their_version(client: Client, topic: str) -> None:
    """10.20, 5.1.2: each chunk has it, so that the message does."""
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    config = {"batching_enabled": False, "chunking_enabled": True, "chunk_max_message_size": 1000}
    with client.create_producer(topic, schema=A, **config) as producer:  # type: ignore[arg-type]
        producer.send(b"x" * 5000)
    assert versions([consumer.receive(WAIT_S)]) == [0]


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_written_rows_name_their_version(client: Client, topic: str, compression: str) -> None:
    """10.20: batches, single rows and compressed ones; and rows without a schema."""
    rows = pa.record_batch({"value": pa.array([b"a", b"bb", b"c" * 100], pa.binary())})
    for schema in (A, B, None):
        for most in (1, 100):
            with client.write_rows(
                topic, schema=schema, batching_max_messages=most, compression=compression  # type: ignore[arg-type]
            ) as writer:  # fmt: skip
                writer.write(rows)
    reader = client.create_reader(topic)
    assert versions(take(reader, 18)) == [0] * 6 + [1] * 6 + [None] * 6


def test_schema_of_a_consumer_is_checked(client: Client, topic: str) -> None:
    """10.15: that of the first one is added; one that cannot read what is there is refused; readers likewise."""
    client.subscribe(topic, "first", schema=A).close()
    assert latest(client, topic) == (A, 0)
    with pytest.raises(IncompatibleSchemaError):
        client.subscribe(topic, "second", schema=BAD)
    with pytest.raises(IncompatibleSchemaError):
        client.create_reader(topic, schema=STRING)
    client.subscribe(topic, "third", schema=SchemaInfo(SchemaType.AUTO_CONSUME)).close()
    client.create_reader(topic, schema=A).close()


def test_versions_are_asked_for_once(service: Service, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """10.16: an entry never changes (10.10), so a hundred questions at once, and one later, are one request."""
    asked: list[int | None] = []
    ask = TopicSchemas._ask

    def counted(self: TopicSchemas, *question: object) -> object:
        asked.append(question[1])  # type: ignore[arg-type]
        return ask(self, *question)  # type: ignore[arg-type]

    monkeypatch.setattr(TopicSchemas, "_ask", counted)

    async def play() -> None:
        async with AsyncClient(ClientConfig(service_url=service.service_url)) as client:
            await client.create_producer(topic, schema=INT32)
            found = await asyncio.gather(*(client.get_schema(topic, 0) for _ in range(100)))
            assert found == [(INT32, 0)] * 100
            assert await client.get_schema(topic, 0) == (INT32, 0)
            assert await client.get_schema(topic, 1) is await client.get_schema(topic, 1) is None

    asyncio.run(play())
    assert asked == [0, 1, 1]


def test_versions_that_are_asked_for_anew_push_none_out(
    service: Service, new_topic: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each consumer asks anew once it is attached again, and the size of what is known stays."""
    monkeypatch.setattr(topic_schemas, "KNOWN_BYTES_MAX", 5 * 1024)
    topics = new_topic(), new_topic()

    async def play() -> None:
        async with AsyncClient(ClientConfig(service_url=service.service_url)) as client:
            for topic in topics:
                await client.create_producer(topic, schema=INT32)
                await client.get_schema(topic, 0)
            for _ in range(20):
                await client.get_schema(topics[1], 0, anew=True)
            known = client._network.schemas.known
            assert [known(TopicName.parse(each), 0) for each in topics] == [(INT32, 0)] * 2

    asyncio.run(play())


def dead_topic(topic: str) -> str:
    return f"{topic}-s-DLQ"


def refuse_all(consumer: Consumer, until: Callable[[], bool]) -> None:
    """Nack each message until there is nothing left to be received."""

    def is_over() -> bool:
        for message in consumer.batch_receive(timeout_s=0.05):
            consumer.negative_acknowledge(message)
        return until()

    eventually(is_over, "all are dead letters")


def test_dead_letters_keep_their_schema(client: Client, topic: str) -> None:
    """4.6.8: versions are numbers of the letter topic, where A comes second; one without a schema stays without."""
    client.create_producer(dead_topic(topic), schema=avro("a", "b=0", "c=1")).close()
    consumer = client.subscribe(
        topic, "s", type="shared", initial_position="earliest", negative_ack_redelivery_delay_s=0.1,
        dead_letter_policy=DeadLetterPolicy(max_redeliver_count=1),
    )  # fmt: skip
    for schema in (A, None, B, A):
        with client.create_producer(topic, schema=schema) as producer:
            producer.send(b"\2", properties={"schema": "" if schema is None else schema.data.decode()})
    refuse_all(consumer, lambda: is_all_acknowledged(consumer))
    letters = take(client.create_reader(dead_topic(topic)), 4)
    for letter in letters:
        named = letter.properties["schema"]
        version = letter.schema_version
        if version is None:
            assert not named
        else:
            found = client.get_schema(dead_topic(topic), version)
            assert found is not None
            assert found.info.data.decode() == named
    assert sorted(each for each in versions(letters) if each is not None) in ([1, 1, 2], [1, 2, 2])


def test_retry_letters_keep_their_schema(client: Client, topic: str) -> None:
    """4.6.8, 4.6.3: in the retry topic, and from there in the dead letter topic."""
    consumer = client.subscribe(
        topic, "s", type="shared", initial_position="earliest", retry_enabled=True,
        dead_letter_policy=DeadLetterPolicy(max_redeliver_count=1),
    )  # fmt: skip
    with client.create_producer(topic, schema=A) as producer:
        producer.send(b"\2")
    for _ in range(2):
        message = consumer.receive(WAIT_S)
        assert message.schema_version == 0
        consumer.reconsume_later(message, 0)
    assert client.get_schema(f"{topic}-s-RETRY") == client.get_schema(dead_topic(topic)) == (A, 0)
    assert versions(take(client.create_reader(dead_topic(topic)), 1)) == [0]


def test_letter_of_a_schema_that_its_topic_refuses_stays(client: Client, topic: str) -> None:
    """4.6.8, 4.7.5: the original is not acknowledged, and comes again."""
    client.create_producer(dead_topic(topic), schema=INT32).close()
    consumer = client.subscribe(
        topic, "s", type="shared", initial_position="earliest", negative_ack_redelivery_delay_s=0.1,
        dead_letter_policy=DeadLetterPolicy(max_redeliver_count=1),
    )  # fmt: skip
    with client.create_producer(topic, schema=A) as producer:
        producer.send(b"\2")
    for _ in range(2):
        consumer.negative_acknowledge(consumer.receive(WAIT_S))
    assert_nothing_comes(consumer)
    assert not is_all_acknowledged(consumer)
