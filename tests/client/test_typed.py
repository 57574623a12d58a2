# SPDX-License-Identifier: Apache-2.0
"""Typed producers, consumers, readers and table views, on both servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import pyarrow as pa
import pytest

from broker_core.base.errors import ConfigError, IncompatibleSchemaError, UnreadableValueError, UsageError
from broker_core.client import AsyncClient, Client, ClientConfig, Consumer, DeadLetterPolicy, Message, Reader
from broker_core.client.schemas import (
    AutoConsumeSchema,
    AutoProduceSchema,
    AvroSchema,
    BytesSchema,
    InstantSchema,
    Int32Schema,
    Int64Schema,
    JsonSchema,
    KeyValue,
    KeyValueSchema,
    Schema,
    StringSchema,
)
from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.wire.schema_versions import version_bytes
from tests.client.conftest import Service, admin_path
from tests.client.helpers import WAIT_S, eventually, take
from tests.client.schema_records import FULL_ORDER, Address, Order


@dataclass
class Person:
    name: str
    age: int = 0


@dataclass(kw_only=True)
class OlderPerson:
    """The version before, with its field behind one that is gone."""

    gone: str = ""
    name: str
    _avro_name = "Person"


@dataclass
class NewerPerson:
    """A field in the midst."""

    name: str
    town: str = "Ghent"
    age: int = 0
    _avro_name = "Person"


PEOPLE, OLDER, NEWER = AvroSchema(Person), AvroSchema(OlderPerson), AvroSchema(NewerPerson)


def send_all(client: Client, topic: str, schema: Any, *values: Any, **options: Any) -> None:
    with client.create_producer(topic, schema=schema, **options) as producer:
        for value in values:
            producer.send_async(value)


def decoded(source: Consumer | Reader, count: int) -> list[Any]:
    return [message.decoded for message in take(source, count)]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (AvroSchema(Order), FULL_ORDER),
        (JsonSchema(Order), FULL_ORDER),
        (StringSchema(), "é"),
        (BytesSchema(), b"\xff"),
        (Int32Schema(), -5),
        (InstantSchema(), datetime(2024, 5, 6, 7, 8, 9, 10, UTC)),
        (KeyValueSchema(StringSchema(), AvroSchema(Address)), KeyValue("k", Address("s"))),
        (KeyValueSchema(AvroSchema(Address), Int64Schema(), "separated"), KeyValue(Address("s"), 7)),
    ],
    ids=str,
)
def test_values_come_as_they_were_sent(client: Client, topic: str, schema: Schema[Any], value: Any) -> None:
    """By consumers and readers, those that take whatever the topic has among them; null values are None."""
    consumer = client.subscribe(topic, "s", schema=schema)
    auto = client.subscribe(topic, "auto", schema=AutoConsumeSchema())
    nothing = KeyValue(value.key, None) if isinstance(value, KeyValue) else None
    is_inline = isinstance(schema, KeyValueSchema) and not schema.is_separated
    send_all(client, topic, schema, value, None if is_inline else nothing)
    expected = [value, None if is_inline else nothing]
    messages = take(consumer, 2)
    assert [schema.value_of(each) for each in messages] == expected
    assert decoded(client.create_reader(topic, schema=schema), 2) == expected
    assert len(decoded(auto, 2)) == 2
    assert messages[0].schema_version == (None if schema.info.is_none else 0)


def test_each_message_is_read_by_its_own_version(client: Client, topic: str) -> None:
    """10.16: a field in the midst, and one that is gone, by any reader; asked for once a version."""
    for schema, person in (
        (OLDER, OlderPerson(gone="x", name="Ann")),
        (PEOPLE, Person("Bob", 3)),
        (NEWER, NewerPerson("Cy", "Y", 4)),
    ):
        send_all(client, topic, schema, person)
    assert decoded(client.create_reader(topic, schema=PEOPLE), 3) == [Person("Ann"), Person("Bob", 3), Person("Cy", 4)]
    auto = decoded(client.create_reader(topic, schema=AutoConsumeSchema()), 3)
    assert auto[0] == {"gone": "x", "name": "Ann"}
    assert auto[2] == {"name": "Cy", "town": "Y", "age": 4}


def test_versions_of_pairs_are_read_too(client: Client, topic: str) -> None:
    """10.16: AUTO_CONSUME of KEY_VALUE with several versions."""
    for schema, person in ((PEOPLE, Person("Bob", 3)), (NEWER, NewerPerson("Cy", "Y", 4))):
        pairs: KeyValueSchema[str, Any] = KeyValueSchema(StringSchema(), cast("Schema[Any]", schema), "separated")
        send_all(client, topic, pairs, KeyValue("k", person))
    wanted = KeyValueSchema(StringSchema(), PEOPLE, "separated")
    assert decoded(client.create_reader(topic, schema=wanted), 2) == [
        KeyValue("k", Person("Bob", 3)), KeyValue("k", Person("Cy", 4))]  # fmt: skip
    auto = decoded(client.create_reader(topic, schema=AutoConsumeSchema()), 2)
    assert auto == [KeyValue("k", {"name": "Bob", "age": 3}), KeyValue("k", {"name": "Cy", "town": "Y", "age": 4})]


def test_messages_without_a_version_are_read_as_their_reader_says(client: Client, topic: str) -> None:
    """10.20: between others; AutoConsumeSchema has their bytes."""
    send_all(client, topic, StringSchema(), "typed")
    send_all(client, topic, None, "plain", None)
    assert decoded(client.create_reader(topic, schema=StringSchema()), 3) == ["typed", "plain", None]
    assert decoded(client.create_reader(topic, schema=AutoConsumeSchema()), 3) == ["typed", b"plain", None]


def test_auto_consumer_leaves_the_topic_to_others(client: Client, topic: str) -> None:
    """10.15: one that is there first keeps nobody from bringing a schema."""
    auto = client.subscribe(topic, "auto", schema=AutoConsumeSchema())
    client.subscribe(topic, "s", schema=PEOPLE).close()
    send_all(client, topic, PEOPLE, Person("Ann"))
    assert decoded(auto, 1) == [{"name": "Ann", "age": 0}]


def test_payload_that_is_no_value_is_told(client: Client, topic: str) -> None:
    """Topic, id, version and field; the message itself is received, and its bytes are there."""
    send_all(client, topic, PEOPLE.info, b"\x06Ann", b"\x06Ann\x02")
    consumer = client.subscribe(topic, "s", schema=PEOPLE, initial_position="earliest")
    bad, good = take(consumer, 2)
    with pytest.raises(UnreadableValueError) as told:
        _ = bad.decoded
    assert f"message {bad.message_id} of {topic}, written with version 0 of a schema, cannot be read: age: " in str(
        told.value
    )
    assert bad.value == b"\x06Ann"
    assert good.decoded == Person("Ann", 1)


def test_message_without_a_schema_has_no_decoded_value(client: Client, topic: str) -> None:
    send_all(client, topic, None, b"x")
    message = client.create_reader(topic).read_next(WAIT_S)
    with pytest.raises(UsageError, match="received without a schema"):
        _ = message.decoded


def test_value_of_another_type_is_not_sent(client: Client, topic: str) -> None:
    with client.create_producer(topic, schema=PEOPLE) as producer:
        with pytest.raises(UsageError, match="name: 5 is not a text"):
            producer.send(Person(cast("str", 5)))
        with pytest.raises(UsageError, match="is not an instance of Person"):
            producer.send(b"bytes")
    with (
        client.create_producer(
            f"{topic}-pairs", schema=KeyValueSchema(StringSchema(), StringSchema(), "separated")
        ) as producer,
        pytest.raises(UsageError, match="leave out key"),
    ):
        producer.send(KeyValue("a", "b"), key="c")
    with pytest.raises(ConfigError, match="schema Person is no schema; make one"):
        client.create_producer(topic, schema=Person)  # type: ignore[arg-type]


def test_incompatible_schema_is_refused(client: Client, topic: str) -> None:
    """10.13, 10.15: of producers and of consumers."""
    client.create_producer(topic, schema=PEOPLE).close()
    with pytest.raises(IncompatibleSchemaError):
        client.create_producer(topic, schema=JsonSchema(Person))
    with pytest.raises(IncompatibleSchemaError):
        client.subscribe(topic, "s", schema=AvroSchema(Address))


def test_payloads_that_are_made_already_are_looked_at(client: Client, topic: str) -> None:
    """10.16: by the schema of the topic, whose version they name; bytes where it has none."""
    with client.create_producer(topic, schema=AutoProduceSchema()) as producer:
        producer.send(b"anything")
    client.create_producer(topic, schema=PEOPLE).close()
    with client.create_producer(topic, schema=AutoProduceSchema()) as producer:
        producer.send(PEOPLE.encode(Person("Ann", 3)))
        producer.send(None)
        with pytest.raises(UsageError, match="age: the payload ends"):
            producer.send(b"\x06Ann")
    plain, typed, null = take(client.create_reader(topic, schema=AutoConsumeSchema()), 3)
    assert (plain.decoded, typed.decoded, null.decoded) == (b"anything", {"name": "Ann", "age": 3}, None)
    assert [plain.schema_version, typed.schema_version, null.schema_version] == [None, 0, 0]


def test_rows_name_the_version_of_the_topic(client: Client, topic: str) -> None:
    """10.20: rows are payloads, which nobody looks at."""
    client.create_producer(topic, schema=PEOPLE).close()
    rows = pa.record_batch({"value": pa.array([PEOPLE.encode(Person("Ann")), None], pa.binary())})
    for schema in (AutoProduceSchema(), PEOPLE, PEOPLE.info):
        with client.write_rows(topic, schema=schema) as writer:
            writer.write(rows)
    messages = take(client.create_reader(topic, schema=PEOPLE), 6)
    assert [each.decoded for each in messages] == [Person("Ann"), None] * 3
    assert {each.schema_version for each in messages} == {0}


def test_key_of_a_separated_pair_is_the_messages(client: Client, service: Service, topic: str) -> None:
    """10.6: by it the message is routed, whatever its value is; a null key is none."""
    service.create_partitioned(topic, 3)
    schema = KeyValueSchema(Int32Schema(), StringSchema(), "separated")
    consumer = client.subscribe(topic, "s", schema=schema, initial_position="earliest")
    send_all(client, topic, schema, *(KeyValue(number % 4, str(number)) for number in range(12)), KeyValue(None, "n"))
    messages = take(consumer, 13)
    places: dict[Any, set[str]] = {}
    for each in messages:
        if each.decoded.key is not None:
            places.setdefault(each.decoded.key, set()).add(each.topic)
            assert each.key == each.decoded.key.to_bytes(4, "big")
    assert sorted(places) == [0, 1, 2, 3]
    assert all(len(each) == 1 for each in places.values())
    assert [each.decoded for each in messages if each.key is None] == [KeyValue(None, "n")]


def test_table_view_has_values(client: Client, topic: str) -> None:
    """Also those of other versions, and the changes that come."""
    with client.create_producer(topic, schema=OLDER) as producer:
        producer.send(OlderPerson(name="Ann"), key="a")
        producer.send(OlderPerson(name="Bob"), key="b")
    with client.create_table_view(topic, PEOPLE) as view:
        assert view.snapshot() == {"a": Person("Ann"), "b": Person("Bob")}
        with client.create_producer(topic, schema=PEOPLE) as producer:
            producer.send(Person("Ann", 5), key="a")
            producer.send(None, key="b")
        view.refresh()
        assert view.snapshot() == {"a": Person("Ann", 5)}


@dataclass
class Adult(Person):
    _avro_name = "Person"

    def __post_init__(self) -> None:
        if self.age < 18:
            raise RuntimeError("too young")


def test_table_view_ends_with_a_value_that_its_class_refuses(client: Client, topic: str) -> None:
    """By whatever error, which is told though the value is that of the last message, and the one before is fine."""
    with client.create_producer(topic, schema=PEOPLE) as producer:
        producer.send_async(Person("Bob", 20), key="b")
        producer.send_async(Person("Ann"), key="a")
    with pytest.raises(UnreadableValueError, match="Adult does not take it: too young"):
        client.create_table_view(topic, AvroSchema(Adult))


def test_default_without_bytes_does_not_take_messages(client: Client, topic: str) -> None:
    """Brokers take a number that is too large for its type as a default, and readers meet it."""
    fields = [{"name": "a", "type": "int"}, {"name": "b", "type": "float", "default": 1e300}]
    text = json.dumps({"type": "record", "name": "R", "fields": fields}).encode()
    send_all(client, topic, SchemaInfo(SchemaType.AVRO, text), b"\2\0\0\0\0", b"\4\0\0\0\0")
    reader = client.create_reader(topic, schema=AutoConsumeSchema())
    assert decoded(reader, 2) == [{"a": 1, "b": 0}, {"a": 2, "b": 0}]


def test_table_view_has_keys_of_separated_pairs(client: Client, topic: str) -> None:
    schema = KeyValueSchema(Int32Schema(), StringSchema(), "separated")
    send_all(client, topic, schema, KeyValue(1, "a"), KeyValue(2, "b"), KeyValue(1, None), KeyValue(3, "c"))
    with client.create_table_view(topic, schema) as view:
        assert view.snapshot() == {2: "b", 3: "c"}


def test_batches_of_messages_can_be_read(client: Client, topic: str) -> None:
    """Batch receives ask for versions too, on several topics with their own."""
    topics = [f"{topic}-{number}" for number in range(2)]
    send_all(client, topics[0], OLDER, OlderPerson(name="Ann"))
    for each in topics:
        send_all(client, each, PEOPLE, Person("Bob"))
    consumer = client.subscribe(topics, "s", schema=PEOPLE, initial_position="earliest")
    found: list[Message] = []
    while len(found) < 3:
        found += consumer.batch_receive(timeout_s=WAIT_S, max_messages=3 - len(found))
    assert sorted(each.decoded.name for each in found) == ["Ann", "Bob", "Bob"]


def test_asyncio_is_typed_too(service: Service, topic: str) -> None:
    async def play() -> None:
        async with AsyncClient(ClientConfig(service_url=service.service_url)) as client:
            consumer = await client.subscribe(topic, "s", schema=PEOPLE)
            reader = await client.create_reader(topic, schema=PEOPLE)
            producer = await client.create_producer(topic, schema=PEOPLE)
            await producer.send(Person("Ann"))
            assert PEOPLE.value_of(await consumer.receive(WAIT_S)) == Person("Ann")
            assert (await reader.read_next(WAIT_S)).decoded == Person("Ann")
            view = await client.create_table_view(topic, PEOPLE)
            assert view.values == {}

    asyncio.run(play())


def test_typed_dead_letters_are_read_by_the_same_schema(client: Client, topic: str) -> None:
    """4.6.8: also those of an older version."""
    send_all(client, topic, OLDER, OlderPerson(name="Ann"))
    client.create_producer(topic, schema=PEOPLE).close()
    policy = DeadLetterPolicy(max_redeliver_count=1)
    consumer = client.subscribe(
        topic, "s", type="shared", schema=PEOPLE, initial_position="earliest",
        dead_letter_policy=policy, negative_ack_redelivery_delay_s=0.1,
    )  # fmt: skip
    for _ in range(2):
        message = consumer.receive(WAIT_S)
        assert message.decoded == Person("Ann")
        consumer.negative_acknowledge(message)
    assert decoded(client.create_reader(f"{topic}-s-DLQ", schema=PEOPLE), 1) == [Person("Ann")]


def test_letters_of_separated_pairs_keep_null_keys(client: Client, topic: str) -> None:
    """4.6.4, 4.6.8: readers of Java take a message without a key for none of a pair."""
    schema = KeyValueSchema(StringSchema(), StringSchema(), "separated")
    consumer = client.subscribe(
        topic, "s", type="shared", schema=schema, retry_enabled=True,
        dead_letter_policy=DeadLetterPolicy(max_redeliver_count=2),
    )  # fmt: skip
    send_all(client, topic, schema, KeyValue(None, "v"), KeyValue("k", None))
    for pair in (KeyValue(None, "v"), KeyValue("k", None)) * 2:
        message = consumer.receive(WAIT_S)
        assert (message.decoded, message.has_null_key) == (pair, pair.key is None)
        consumer.reconsume_later(message, 0)


def test_topic_that_is_made_anew_has_other_versions(service: Service, client: Client, topic: str) -> None:
    """10.11: version 0 is another schema then, for a consumer that stays and for a client that knows the old one."""
    consumer = client.subscribe(topic, "s", schema=AutoConsumeSchema(), initial_position="earliest")
    send_all(client, topic, StringSchema(), "text")
    assert decoded(consumer, 1) == ["text"]
    service.admin("DELETE", f"{admin_path(topic)}?force=true")
    send_all(client, topic, Int32Schema(), 7)
    assert decoded(consumer, 1) == [7]
    assert decoded(client.create_reader(topic, schema=AutoConsumeSchema()), 1) == [7]


def test_chunks_name_the_version_of_a_topic_that_is_made_anew(service: Service, client: Client, topic: str) -> None:
    """10.11, 10.20, 5.1.2: the one that their producer was told last."""
    client.create_producer(topic, schema=OLDER).close()
    producer = client.create_producer(
        topic, schema=PEOPLE, batching_enabled=False, chunking_enabled=True, chunk_max_message_size=1000
    )
    lane = producer._inner._parts[0].lane
    assert lane.schema_version == version_bytes(1)
    service.admin("DELETE", f"{admin_path(topic)}?force=true")
    eventually(lambda: lane.schema_version == version_bytes(0), "the producer is back")
    large = Person("x" * 5000)
    producer.send(large)
    assert decoded(client.create_reader(topic, schema=PEOPLE), 1) == [large]


def test_schema_that_was_deleted_by_force_is_told(
    service: Service, client: Client, new_topic: Callable[[], str]
) -> None:
    """10.12: messages that name a version which nobody has any more; their bytes are there."""
    topic = new_topic()
    send_all(client, topic, PEOPLE, Person("Ann"))
    path = topic.removeprefix("persistent://")
    service.admin("DELETE", f"schemas/{path}/schema?force=true")
    reader = client.create_reader(topic, schema=AutoConsumeSchema())
    message = reader.read_next(WAIT_S)
    with pytest.raises(UnreadableValueError, match="has no version 0 of its schema: was it deleted by force"):
        _ = message.decoded
    assert message.value == PEOPLE.encode(Person("Ann"))


def test_schema_info_alone_leaves_values_as_bytes(client: Client, topic: str) -> None:
    send_all(client, topic, SchemaInfo(SchemaType.STRING), "x", b"y")
    assert [each.value for each in take(client.create_reader(topic), 2)] == [b"x", b"y"]
