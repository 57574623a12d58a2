# SPDX-License-Identifier: Apache-2.0
"""Values of every type of schema, as clients write and read them (semantics 10.2 to 10.6)."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from tests.behaviour.cell import Cell, take, take_values, typed, typed_values
from tests.behaviour.interface import Outgoing, RefusedError
from tests.behaviour.schemas import (
    DURATION,
    FIRST,
    INT32,
    STRING,
    TIMESTAMP,
    Encoding,
    SchemaChoice,
    key_value,
    optional,
    primitive,
    protobuf,
    record,
    text,
)

PRIMITIVES: Final[dict[str, tuple[Any, str]]] = {
    "BOOLEAN": (True, "01"),
    "INT8": (-2, "fe"),
    "INT16": (258, "0102"),
    "INT32": (66_051, "00010203"),
    "INT64": (1, "0000000000000001"),
    "FLOAT": (1.5, "3fc00000"),
    "DOUBLE": (-2.5, "c004000000000000"),
    "STRING": ("é", "c3a9"),
    "DATE": (86_400_000, "0000000005265c00"),
    "TIME": (1000, "00000000000003e8"),
    "TIMESTAMP": (1_700_000_000_123, "0000018bcfe5687b"),
    "INSTANT": ("1970-01-01T00:00:01.000000005Z", "000000000000000100000005"),
    "LOCAL_DATE": ("2000-01-01", "0000000000002acd"),
    "LOCAL_TIME": ("00:00:01", "000000003b9aca00"),
    "LOCAL_DATE_TIME": ("2000-01-01T00:00:01", "0000000000002acd000000003b9aca00"),
}
"""Type -> a value and its bytes."""

CITY: Final = {"type": "record", "name": "City", "fields": [text("name"), optional("zip", default=None)]}
WIDE: Final = (
    {"name": "flag", "type": "boolean"},
    "small",
    {"name": "large", "type": "long"},
    {"name": "single", "type": "float"},
    {"name": "double", "type": "double"},
    text("name"),
    optional("note", default=None),
    optional("size", "int", default=None),
    {"name": "city", "type": CITY},
    {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN"]}},
    {"name": "marks", "type": {"type": "array", "items": "string"}},
    {"name": "counts", "type": {"type": "map", "values": "long"}},
)
WIDE_VALUE: Final = {
    "flag": True,
    "small": -7,
    "large": 1 << 40,
    "single": 0.5,
    "double": -2.25,
    "name": "Zoë",
    "note": None,
    "size": 3,
    "city": {"name": "Oslo", "zip": "0150"},
    "colour": "GREEN",
    "marks": ["a", "b"],
    "counts": {"x": 1},
}


@pytest.mark.parametrize("kind", PRIMITIVES)
def test_a_primitive_arrives_as_its_type(cell: Cell, kind: str) -> None:
    """10.3, 10.13, 10.19, 10.20: as the bytes that all clients agree on; the topic has this type."""
    topic, (value, data) = cell.topic(), PRIMITIVES[kind]
    consumer = cell.consumer(topic, schema=primitive(kind))
    cell.producer(topic, schema=primitive(kind)).send(typed(value))
    (message,) = take(consumer, 1)
    assert json.loads(message.value) == value
    assert (message.data.hex(), message.schema_version) == (data, 0)
    assert cell.registry("GET", topic)["type"] == kind


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_a_record_arrives_with_all_its_fields(cell: Cell, kind: str) -> None:
    """10.3, 10.20: nested, nullable, of arrays, maps and enums."""
    topic, schema = cell.topic(), record(*WIDE, kind=kind)
    consumer = cell.consumer(topic, schema=schema)
    cell.producer(topic, schema=schema).send(typed(WIDE_VALUE))
    (message,) = take(consumer, 1)
    assert json.loads(message.value) == WIDE_VALUE
    found = cell.registry("GET", topic)
    assert (found["type"], message.schema_version) == (kind, found["version"])


def test_a_plain_record_is_avro_without_a_header(cell: Cell) -> None:
    """10.20: zigzag numbers, the branch of the union, the length of the text."""
    topic = cell.topic()
    consumer = cell.consumer(topic)
    cell.producer(topic, schema=FIRST).send(typed({"id": 3, "city": "Oslo"}))
    assert take(consumer, 1)[0].data == b"\x06\x02\x08Oslo"


@pytest.mark.parametrize("native", [False, True], ids=["PROTOBUF", "PROTOBUF_NATIVE"])
def test_a_message_of_protobuf_arrives(cell: Cell, native: bool) -> None:
    """10.3, 10.20: the payload is the message and nothing else."""
    topic, schema = cell.topic(), protobuf(TIMESTAMP, native=native)
    consumer = cell.consumer(topic, schema=schema)
    cell.producer(topic, schema=schema).send(typed({"seconds": 5, "nanos": 7}))
    (message,) = take(consumer, 1)
    assert json.loads(message.value) == {"seconds": 5, "nanos": 7}
    assert (message.data, message.schema_version) == (b"\x08\x05\x10\x07", 0)
    assert cell.registry("GET", topic)["type"] == schema.type


def test_another_message_of_protobuf_is_refused(cell: Cell) -> None:
    """10.9: PROTOBUF_NATIVE is compared by the name of its message."""
    topic = cell.topic()
    cell.producer(topic, schema=protobuf(TIMESTAMP, native=True))
    with pytest.raises(RefusedError) as refused:
        cell.producer(topic, schema=protobuf(DURATION, native=True))
    assert refused.value.kind == "IncompatibleSchema"
    cell.producer(topic, schema=protobuf(TIMESTAMP, native=True))
    assert cell.versions(topic) == [0]


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
@pytest.mark.parametrize("value", [STRING, FIRST], ids=["STRING", "AVRO"])
def test_a_pair_of_key_and_value_arrives(cell: Cell, encoding: Encoding, value: SchemaChoice) -> None:
    """10.6, 10.20: with lengths in the payload, or the key as the message's key."""
    topic, schema = cell.topic(), key_value(INT32, value, encoding)
    sent = {"key": 1, "value": "a" if value is STRING else {"id": 3, "city": None}}
    consumer = cell.consumer(topic, schema=schema)
    cell.producer(topic, schema=schema).send(typed(sent))
    (message,) = take(consumer, 1)
    assert json.loads(message.value) == sent
    data = b"a" if value is STRING else b"\x06\x00"
    if encoding == "INLINE":
        data = b"\0\0\0\x04\0\0\0\x01" + len(data).to_bytes(4, "big") + data
    assert (message.data, message.schema_version) == (data, 0)
    assert message.key == (None if encoding == "INLINE" else "AAAAAQ==")


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
def test_a_pair_may_lack_its_value(cell: Cell, encoding: Encoding) -> None:
    """10.6, 7.4.1: separated it deletes its key."""
    topic, schema = cell.topic(), key_value(STRING, STRING, encoding)
    consumer = cell.consumer(topic, schema=schema)
    cell.producer(topic, schema=schema).send(typed({"key": "k", "value": None}))
    (message,) = take(consumer, 1)
    assert json.loads(message.value) == {"key": "k", "value": None}


@pytest.mark.parametrize(
    "other",
    [key_value(INT32, STRING), key_value(STRING, INT32), key_value(STRING, STRING, "SEPARATED")],
    ids=["key", "value", "encoding"],
)
def test_a_pair_of_other_types_is_another_schema(cell: Cell, other: SchemaChoice) -> None:
    """10.6: S-KV-3, and another encoding too: readers would decode garbage."""
    topic = cell.topic()
    cell.producer(topic, schema=key_value(STRING, STRING))
    with pytest.raises(RefusedError) as refused:
        cell.producer(topic, schema=other)
    assert refused.value.kind == "IncompatibleSchema"
    assert cell.versions(topic) == [0]


def test_no_value_is_told_from_an_empty_one(cell: Cell) -> None:
    """7.4.1: a text that is empty is a text."""
    topic = cell.topic()
    consumer = cell.consumer(topic, schema=STRING)
    producer = cell.producer(topic, schema=STRING)
    for message in (typed(""), Outgoing(value=None), typed("a")):
        producer.send(message)
    assert typed_values(take(consumer, 3)) == ["", None, "a"]


def test_bytes_go_where_a_schema_is(cell: Cell) -> None:
    """10.4, 10.14: whoever says nothing of a schema, or that it is bytes, may send and read any; versions tell."""
    topic = cell.topic()
    plain = cell.consumer(topic)
    cell.producer(topic, schema=STRING).send(typed("a"))
    cell.send(topic, ["b"])
    assert [(each.value, each.schema_version) for each in take(plain, 2)] == [("a", 0), ("b", None)]
    assert cell.versions(topic) == [0]


def test_bytes_are_no_schema_of_a_topic(cell: Cell) -> None:
    """10.4: one that had bytes gets a schema from the producer that has one."""
    topic = cell.topic()
    consumer = cell.consumer(topic, schema=primitive("BYTES"))
    cell.producer(topic, schema=primitive("BYTES")).send(Outgoing(value="a"))
    cell.producer(topic, schema=STRING).send(typed("b"))
    assert take_values(consumer, 2) == ["a", "b"]
    assert [each["type"] for each in cell.registry("GET", topic, "schemas")["getSchemaResponses"]] == ["STRING"]


def test_a_definition_before_avro_is_refused(cell: Cell) -> None:
    """10.3: S-JSON-2, the form of JSON schemas before Pulsar 2.1."""
    old = {"type": "object", "id": "urn:jsonschema:Order", "properties": {"id": {"type": "integer"}}}
    with pytest.raises(RefusedError) as refused:
        cell.producer(cell.topic(), schema=SchemaChoice(type="JSON", definition=json.dumps(old)))
    assert refused.value.kind == "IncompatibleSchema"
