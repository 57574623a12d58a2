# SPDX-License-Identifier: Apache-2.0
"""Schemas of our client and of the official one: the same definitions, and what one sends the other reads."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator
from typing import Any

import pulsar
import pulsar.schema as theirs
import pytest
from google.protobuf.wrappers_pb2 import Int64Value

from broker_core.base.errors import UsageError
from broker_core.client import Client
from broker_core.client import schemas as ours
from broker_core.client.schemas import AutoConsumeSchema, AvroSchema, JsonSchema, ProtobufNativeSchema, StringSchema
from broker_core.schemas.avro.equality import same
from broker_core.schemas.avro.parsing import parse
from broker_core.schemas.info import SchemaType
from tests.client.conftest import Service
from tests.client.helpers import take

WAIT_MS = 15_000


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


def declared(words: Any) -> tuple[Any, Any]:
    """A record of all fields, and one of Avro's pitfalls, in the vocabulary that both clients have."""

    class Part(words.Record):  # type: ignore[misc]
        name = words.String(required=True)
        size = words.Integer()

    class Whole(words.Record):  # type: ignore[misc]
        _avro_namespace = "shop"
        nothing = words.Null(required=True)
        flag = words.Boolean()
        flagged = words.Boolean(required_default=True)
        small = words.Integer(required=True)
        large = words.Long(default=3, required_default=True)
        single = words.Float(required=True)
        double = words.Double(default=1.5)
        data = words.Bytes()
        text = words.String(default="x", required=True, required_default=True)
        numbers = words.Array(words.Integer())
        names = words.Map(words.String(), required=True)
        colour = words.CustomEnum(Colour, default=Colour.GREEN, required=True, required_default=True)
        plain_colour = Colour
        part = Part()
        needed = Part(required=True)
        parts = words.Array(Part(), default=[], required_default=True)
        by_name = words.Map(Part())
        nested = words.Array(words.Array(words.Long()))

    class Sorted(words.Record):  # type: ignore[misc]
        _sorted_fields = True
        b = words.String(required_default=True)
        a = words.Integer()

    return Whole, Sorted


(OurWhole, OurSorted), (TheirWhole, TheirSorted) = declared(ours), declared(theirs)

VALUES: dict[str, Any] = {
    "flag": True, "small": -5, "large": 1 << 40, "single": 0.5, "double": 2.5, "data": b"ab c", "text": "é",
    "numbers": [1, 2], "names": {"k": "v"}, "colour": Colour.RED, "plain_colour": Colour.GREEN, "nested": [[1], []],
}  # fmt: skip


@pytest.fixture(scope="session")
def official(service: Service) -> Iterator[pulsar.Client]:
    """The official client, with its log kept quiet."""
    client = pulsar.Client(service.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


def whole(record: Any, part: Any) -> Any:
    parts = {"part": part(name="p"), "needed": part(name="n", size=2)}
    return record(**VALUES, **parts, parts=[part(name="q")], by_name={"r": part(name="r")})


def our_whole() -> Any:
    return whole(OurWhole, type(OurWhole(needed={"name": "x"}).needed))


def their_whole() -> Any:
    return whole(TheirWhole, type(TheirWhole._fields["needed"]))


@pytest.mark.parametrize(("our", "their"), [(OurWhole, TheirWhole), (OurSorted, TheirSorted)])
def test_definitions_are_those_of_the_official_client(our: Any, their: Any) -> None:
    """10.5: as Avro sees them, so that a topic has one version for both."""
    assert our.schema() == their.schema()
    assert same(parse(json.dumps(our.schema())), parse(json.dumps(their.schema())))


def test_lists_of_enums_are_defined() -> None:
    """The official client names no type there, so that its definition is refused by brokers."""

    class Paints(ours.Record):
        colours: ours.Array[Colour] = ours.Array(Colour)
        nothing = ours.Null()
        by_name = ours.Map(ours.CustomEnum(Colour))

    schema = AvroSchema(Paints)
    paints = Paints(colours=[Colour.RED], by_name={"x": Colour.GREEN})
    assert schema.decode(schema.encode(paints)) == paints


def test_records_check_their_fields() -> None:
    record = our_whole()
    for name, wrong in (("small", "5"), ("flag", 1), ("numbers", [1, "2"]), ("needed", 5), ("colour", "BLUE")):
        with pytest.raises(TypeError, match=f"field '{name}' takes"):
            setattr(record, name, wrong)
    with pytest.raises(AttributeError, match="has no field 'other'"):
        record.other = 1
    with pytest.raises(AttributeError, match="has no field 'other'"):
        OurWhole(other=1)
    with pytest.raises(UsageError, match="is no type of items"):
        ours.Array(int)  # type: ignore[arg-type]
    assert OurWhole(needed={"name": "x"}).flagged is False


@pytest.mark.parametrize("kind", [AvroSchema, JsonSchema])
def test_fields_may_have_any_name(kind: Any) -> None:
    """Names of methods and of the arguments of fields, too."""

    class Odd(ours.Record):
        schema = ours.String()  # type: ignore[assignment]
        default = ours.Integer()
        required = ours.Boolean()
        plain = ours.Long()
        name = ours.String()

    odd = Odd(schema="s", default=5, required=True, plain=7, name="n")
    assert kind(Odd).decode(kind(Odd).encode(odd)) == odd


@pytest.mark.parametrize("kind", ["AvroSchema", "JsonSchema"])
def test_we_read_what_the_official_client_sends(official: pulsar.Client, client: Client, topic: str, kind: str) -> None:
    """10.5: both have the topic's only version."""
    producer = official.create_producer(topic, schema=getattr(theirs, kind)(TheirWhole))
    producer.send(their_whole())
    schema: Any = getattr(ours, kind)(OurWhole)
    (message,) = take(client.create_reader(topic, schema=schema), 1)
    assert message.decoded == our_whole()
    assert message.schema_version == 0
    with client.create_producer(topic, schema=schema) as ours_too:
        ours_too.send(our_whole())
    assert take(client.create_reader(topic, schema=schema), 2)[1].schema_version == 0


def test_the_official_client_reads_what_we_send(official: pulsar.Client, client: Client, topic: str) -> None:
    with client.create_producer(topic, schema=AvroSchema(OurWhole)) as producer:
        producer.send(our_whole())
    reader = official.create_reader(topic, pulsar.MessageId.earliest, schema=theirs.AvroSchema(TheirWhole))
    value = reader.read_next(timeout_millis=WAIT_MS).value()
    assert value.small == -5
    assert value.colour in ("RED", Colour.RED)
    assert value.needed.name == "n"
    assert value.nested == [[1], []]


def test_the_official_client_reads_our_json(official: pulsar.Client, client: Client, topic: str) -> None:
    """Bytes aside, which it has as text, and Java and we as base64."""
    with client.create_producer(topic, schema=JsonSchema(OurSorted)) as producer:
        producer.send(OurSorted(a=5, b="é"))
    reader = official.create_reader(topic, pulsar.MessageId.earliest, schema=theirs.JsonSchema(TheirSorted))
    assert reader.read_next(timeout_millis=WAIT_MS).value() == TheirSorted(a=5, b="é")


def test_the_official_client_reads_evolved_records(official: pulsar.Client, client: Client, topic: str) -> None:
    """10.16: each side's reader asks for the version of the other's writer."""

    class Larger(theirs.Record):  # type: ignore[misc]
        _avro_name = "Sorted"
        a = theirs.Integer()
        more = theirs.String(default="m", required_default=True, required=True)
        b = theirs.String(required_default=True)

    with client.create_producer(topic, schema=AvroSchema(OurSorted)) as producer:
        producer.send(OurSorted(a=1, b="x"))
    official.create_producer(topic, schema=theirs.AvroSchema(Larger)).send(Larger(a=2, b="y", more="z"))
    found = [each.decoded for each in take(client.create_reader(topic, schema=AvroSchema(OurSorted)), 2)]
    assert found == [OurSorted(a=1, b="x"), OurSorted(a=2, b="y")]
    reader = official.create_reader(topic, pulsar.MessageId.earliest, schema=theirs.AvroSchema(Larger))
    assert [reader.read_next(timeout_millis=WAIT_MS).value().more for _ in range(2)] == ["m", "z"]


def test_texts_and_protobuf_messages_go_both_ways(official: pulsar.Client, client: Client, topic: str) -> None:
    """10.5: with one version each, though the official client writes `null` as the definition of a text."""
    official.create_producer(topic, schema=theirs.StringSchema()).send("é")
    messages = f"{topic}-messages"
    official.create_producer(messages, schema=theirs.ProtobufNativeSchema(Int64Value)).send(Int64Value(value=5))
    schema = ProtobufNativeSchema(Int64Value)
    with client.create_producer(messages, schema=schema) as producer:
        producer.send(Int64Value(value=6))
    assert take(client.create_reader(topic, schema=StringSchema()), 1)[0].decoded == "é"
    for reading in (schema, AutoConsumeSchema()):
        found = take(client.create_reader(messages, schema=reading), 2)
        assert [(each.decoded.value, each.schema_version) for each in found] == [(5, 0), (6, 0)]
    reader = official.create_reader(messages, pulsar.MessageId.earliest, schema=theirs.ProtobufNativeSchema(Int64Value))
    assert [reader.read_next(timeout_millis=WAIT_MS).value().value for _ in range(2)] == [5, 6]
    latest = client.get_schema(messages)
    assert latest is not None
    assert latest.info.type is SchemaType.PROTOBUF_NATIVE
