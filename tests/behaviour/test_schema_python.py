# SPDX-License-Identifier: Apache-2.0
"""Features of schemas that the official Python client alone has, on both brokers (semantics 10)."""

from __future__ import annotations

import asyncio
import enum
import itertools
import json
import queue
import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pulsar
import pulsar.asyncio
import pytest
from pulsar.schema import (
    Array,
    AvroSchema,
    Boolean,
    Bytes,
    CustomEnum,
    Double,
    Float,
    Integer,
    JsonSchema,
    Long,
    Map,
    Null,
    Record,
    String,
    StringSchema,
)

from tests.behaviour.interface import PATIENCE_MS
from tests.client.conftest import Service

_MARK = uuid.uuid4().hex[:8]
_numbers = itertools.count()


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


class Place(Record):  # type: ignore[misc] # the client has no types here
    _avro_namespace = "shop"
    town = String()
    code = Integer()


class Full(Record):  # type: ignore[misc] # the client has no types here
    _avro_namespace = "shop"
    nothing = Null(required=True)
    flag = Boolean(default=True, required_default=True)
    small = Integer(required=True)
    large = Long()
    single = Float()
    double = Double(default=0.5, required_default=True)
    blob = Bytes()
    name = String(default="n", required=True, required_default=True)
    colour = CustomEnum(Colour)
    place = Place(required=True)
    other = Place()
    marks = Array(String())
    places = Array(Place())
    counts = Map(Long())


class Sorted(Record):  # type: ignore[misc] # the client has no types here
    _sorted_fields = True
    b = Integer()
    a = Integer()


class Listed(Record):  # type: ignore[misc] # the client has no types here
    colours = Array(CustomEnum(Colour))


class Order(Record):  # type: ignore[misc] # the client has no types here
    id = Integer(required=True)


FULL = {
    "small": 3,
    "large": 1 << 40,
    "single": 0.5,
    "name": "Zoë",
    "colour": Colour.GREEN,
    "place": Place(town="Ghent", code=9000),
    "marks": ["a", "b"],
    "places": [Place(town="Oslo")],
    "counts": {"x": 1},
}


@pytest.fixture
def client(service: Service) -> Iterator[pulsar.Client]:
    with closing(pulsar.Client(service.service_url, operation_timeout_seconds=15)) as connected:
        yield connected


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/python-{_MARK}-{next(_numbers)}"


def definition_of(service: Service, topic: str) -> Any:
    name = topic.removeprefix("persistent://")
    return json.loads(json.loads(service.admin("GET", f"schemas/{name}/schema"))["data"])


@pytest.mark.parametrize("schema", [AvroSchema, JsonSchema])
def test_a_record_may_have_every_kind_of_field(client: pulsar.Client, topic: str, schema: Any) -> None:
    """10.3, 10.20: with a namespace, a class that is used twice, defaults and fields that are left out."""
    consumer = client.subscribe(topic, "s", schema=schema(Full))
    client.create_producer(topic, schema=schema(Full)).send(Full(**FULL))
    found = consumer.receive(PATIENCE_MS).value()
    assert found == Full(**FULL)
    assert (found.flag, found.double, found.other, found.blob) == (True, 0.5, Place(), None)


def test_fields_may_be_sorted(client: pulsar.Client, service: Service, topic: str) -> None:
    """10.5: the order in the definition is that of names, which is another schema than that of the class."""
    client.create_producer(topic, schema=AvroSchema(Sorted))
    assert [each["name"] for each in definition_of(service, topic)["fields"]] == ["a", "b"]


def test_an_array_of_enums_has_no_definition(client: pulsar.Client, topic: str) -> None:
    """10.3: the client writes the bare word enum."""
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=JsonSchema(Listed))


def test_a_definition_may_be_given_for_dictionaries(client: pulsar.Client, topic: str) -> None:
    """10.3, 10.16: with logical types, and an alias by which older records are read."""
    fields: list[dict[str, Any]] = [
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ]
    older = AvroSchema(None, {"type": "record", "name": "Sale", "fields": fields})
    renamed = [{**fields[0], "name": "cost", "aliases": ["price"]}, *fields[1:]]
    newer = AvroSchema(None, {"type": "record", "name": "Sale", "fields": renamed})
    values = {"price": Decimal("12.50"), "day": date(2026, 1, 2), "at": datetime(2026, 1, 2, tzinfo=UTC)}
    client.create_producer(topic, schema=older).send(values)
    consumer = client.subscribe(topic, "s", schema=newer, initial_position=pulsar.InitialPosition.Earliest)
    found = consumer.receive(PATIENCE_MS).value()
    assert found == {"cost": values["price"], "day": values["day"], "at": values["at"]}


def test_listeners_are_given_values(client: pulsar.Client, topic: str) -> None:
    """10.15: of consumers and of readers."""
    seen: queue.Queue[int] = queue.Queue()
    schema = AvroSchema(Order)
    options = {"schema": schema, "initial_position": pulsar.InitialPosition.Earliest}
    client.subscribe(topic, "s", message_listener=lambda _, message: seen.put(message.value().id), **options)
    client.create_reader(
        topic, pulsar.MessageId.earliest, reader_listener=lambda _, message: seen.put(message.value().id), schema=schema
    )
    client.create_producer(topic, schema=schema).send(Order(id=7))
    assert [seen.get(timeout=PATIENCE_MS / 1000) for _ in range(2)] == [7, 7]


def test_a_table_tells_values_as_they_come(client: pulsar.Client, topic: str) -> None:
    """10.15: each that is there, each that comes, and one by its key."""
    producer = client.create_producer(topic, schema=AvroSchema(Order))
    producer.send(Order(id=1), partition_key="a")
    view = client.create_table_view(topic, schema=AvroSchema(Order))
    told: queue.Queue[tuple[str, int]] = queue.Queue()
    view.for_each_and_listen(lambda key, order: told.put((key, order.id)))
    producer.send(Order(id=2), partition_key="b")
    assert [told.get(timeout=PATIENCE_MS / 1000) for _ in range(2)] == [("a", 1), ("b", 2)]
    assert (view.get("b"), view.get("c")) == (Order(id=2), None)
    view.close()


def test_clients_of_asyncio_have_schemas_too(service: Service, topic: str) -> None:
    """10.13, 10.15: and the same error for one that is refused."""

    async def work() -> int:
        client = pulsar.asyncio.Client(service.service_url)
        consumer = await client.subscribe(topic, "s", schema=AvroSchema(Order))
        producer = await client.create_producer(topic, schema=AvroSchema(Order))
        await producer.send(Order(id=3))
        found = (await consumer.receive()).value()
        with pytest.raises(pulsar.asyncio.PulsarException) as refused:
            await client.create_producer(topic, schema=StringSchema())
        assert refused.value.error() == pulsar.Result.IncompatibleSchema
        await client.close()
        return int(found.id)

    assert asyncio.run(work()) == 3


def test_values_are_checked_before_they_are_sent(client: pulsar.Client, topic: str) -> None:
    """10.13: by the client, as the broker looks into no message."""
    producer = client.create_producer(topic, schema=AvroSchema(Order))
    with pytest.raises(TypeError):
        producer.send("text")
    with pytest.raises(TypeError):
        producer.send(Order(id="text"))
