# SPDX-License-Identifier: Apache-2.0
"""Definitions: schemas of each type are valid or not, and equal or not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker_core.base.errors import IncompatibleSchemaError
from broker_core.schemas.definition import InvalidSchemaError, definition_of
from broker_core.schemas.info import SchemaInfo, SchemaType, type_of_wire
from broker_core.schemas.key_value import from_json, joined, to_json
from broker_core.schemas.protobuf_native import FILES_MAX, SIZE_MAX
from tests.schemas.infos import INT32, STRING, avro, key_value, proto_file, protobuf_native

AVRO, JSON = SchemaType.AVRO, SchemaType.JSON
EMPTY = [each for each in SchemaType if each.is_primitive and not each.is_bytes and each is not SchemaType.STRING]


def are_same(one: SchemaInfo, other: SchemaInfo) -> bool:
    return definition_of(one).fingerprint == definition_of(other).fingerprint


@pytest.mark.parametrize("kind", list(SchemaType))
def test_numbers_lead_back_to_types(kind: SchemaType) -> None:
    """10.2: each type that a command can name, by its number there; those below 0 are none."""
    number = kind.wire_number
    if kind.value >= 0 or kind is SchemaType.AUTO_CONSUME:
        assert type_of_wire(number) is kind
    else:
        assert number == 0
    assert (SchemaType.AUTO_CONSUME.wire_number, SchemaType.EXTERNAL.wire_number) == (21, 22)
    assert type_of_wire(-1) is SchemaType.NONE
    assert type_of_wire(23) is None


@pytest.mark.parametrize(
    "info",
    [
        *(SchemaInfo(kind) for kind in EMPTY),
        STRING,
        SchemaInfo(SchemaType.STRING, b"null"),
        *(SchemaInfo(kind, b"anything") for kind in (SchemaType.NONE, SchemaType.BYTES, SchemaType.EXTERNAL)),
        *(avro("a", kind=kind) for kind in (AVRO, JSON, SchemaType.PROTOBUF)),
        SchemaInfo(JSON, b'["null", "int"]'),
        SchemaInfo(AVRO, b'"int"'),
        protobuf_native("p.M", proto_file("root.proto", ["M"])),
        key_value(STRING, avro("a")),
        SchemaInfo(SchemaType.KEY_VALUE, joined(b"any", None)),
    ],
)
def test_schema_is_valid(info: SchemaInfo) -> None:
    """10.3: what clients send for each type."""
    assert definition_of(info).type is info.type
    assert are_same(info, info)


@pytest.mark.parametrize(
    ("info", "flaw"),
    [
        *((SchemaInfo(kind, b"null"), "should be zero, but 4 bytes is found") for kind in EMPTY),
        (SchemaInfo(SchemaType.STRING, b'"string"'), "should be zero, but 8 bytes is found"),
        (SchemaInfo(AVRO, b'["null", "int"]'), "a union cannot stand at the top"),
        (SchemaInfo(AVRO, b""), "not JSON"),
        (SchemaInfo(JSON, b'{"type": "object", "properties": {}}'), "type 'object' is not known"),
        (SchemaInfo(SchemaType.PROTOBUF, b"\xff"), "not UTF-8"),
        (SchemaInfo(SchemaType.AUTO_CONSUME), "among themselves"),
        (SchemaInfo(SchemaType.AUTO), "among themselves"),
        (SchemaInfo(SchemaType.AUTO_PUBLISH), "among themselves"),
        (SchemaInfo(SchemaType.PROTOBUF_NATIVE, b"{}"), "no JSON object with a set of descriptors"),
        (SchemaInfo(SchemaType.KEY_VALUE, b""), "has no length"),
        (SchemaInfo(SchemaType.KEY_VALUE, b"\x00\x00\x00\x09abc"), "says that it has 9 bytes"),
        (SchemaInfo(SchemaType.KEY_VALUE, joined(b"", b"") + b"x"), "1 bytes follow"),
        (key_value(STRING, key_value(STRING, STRING)), "cannot be a KEY_VALUE itself"),
        (key_value(STRING, SchemaInfo(AVRO, b"nonsense")), "Invalid schema definition data for AVRO schema"),
        (key_value(STRING, STRING, "SIDEWAYS"), "'SIDEWAYS', and not INLINE or SEPARATED"),
        (SchemaInfo(SchemaType.KEY_VALUE, joined(b"", b""), {"key.schema.type": "x"}), "'x', which is no type"),
        (SchemaInfo(SchemaType.KEY_VALUE, joined(b"", b""), {"key.schema.properties": "["}), "is not JSON"),
        (SchemaInfo(SchemaType.KEY_VALUE, joined(b"", b""), {"key.schema.properties": "[]"}), "no object of texts"),
    ],
)
def test_schema_is_refused_by_its_flaw(info: SchemaInfo, flaw: str) -> None:
    """10.3: an incompatible schema for clients, with the type and what is wrong in one line."""
    with pytest.raises(InvalidSchemaError, match=f"^Invalid schema definition data for {info.type.name} schema: ") as e:
        definition_of(info)
    assert flaw in e.value.message
    assert "\n" not in str(e.value)
    assert isinstance(e.value, IncompatibleSchemaError)


def field(**attributes: Any) -> SchemaInfo:
    return avro({"name": "a", "type": "int", **attributes})


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (avro("a"), avro("a", name="p.R"), False),
        (avro("a", "b"), avro("b", "a"), False),
        (field(), field(type="long"), False),
        (field(), field(default=1), False),
        (field(), field(order="descending"), False),
        (field(), field(more=1), False),
        (field(type={"type": "int"}), field(), True),
        (field(type={"type": "int", "logicalType": "date"}), field(), False),
        (field(doc="d", aliases=["b"]), field(), True),
        (avro("a", doc="d", aliases=["S"]), avro("a"), True),
        (avro("a", more=True), avro("a"), False),
        (avro("a", kind=JSON), avro("a"), False),
        (SchemaInfo(SchemaType.STRING, b"null"), STRING, True),
        (SchemaInfo(SchemaType.STRING, b"", {"__charset": "UTF-16"}), STRING, True),
        (STRING, INT32, False),
        (SchemaInfo(SchemaType.EXTERNAL, b"a"), SchemaInfo(SchemaType.EXTERNAL, b"b"), False),
        (SchemaInfo(SchemaType.BYTES, b"a"), SchemaInfo(SchemaType.NONE, b"a"), False),
    ],
)
def test_schemas_are_equal_or_not(one: SchemaInfo, other: SchemaInfo, same: bool) -> None:
    """10.5: S-EQ-1 to S-EQ-8, what counts and what does not."""
    assert are_same(one, other) is same


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"symbols": ["A", "B"]}, {"symbols": ["A", "B"], "default": "A"}, True),
        ({"symbols": ["A", "B"]}, {"symbols": ["B", "A"]}, False),
        ({"symbols": ["A"]}, {"symbols": ["A"], "namespace": "p"}, False),
    ],
)
def test_enums_are_equal_or_not(one: dict[str, Any], other: dict[str, Any], same: bool) -> None:
    """10.5: symbols in order, the full name, and not the default."""
    one, other = ({"type": "enum", "name": "E", **each} for each in (one, other))
    assert are_same(field(type=one), field(type=other)) is same


def test_form_of_the_text_makes_no_difference() -> None:
    """10.5: S-PY-2, a record as Java writes it and as Python does, with lines and another order of attributes."""
    java = b'{"type":"record","name":"R","fields":[{"name":"a","type":["null","int"],"default":null}]}'
    python = json.dumps({"name": "R", "fields": [{"default": None, "name": "a", "type": ["null", "int"]}]}, indent=1)
    python = python.replace("{", '{"type": "record",', 1)
    assert are_same(SchemaInfo(AVRO, java), SchemaInfo(AVRO, python.encode()))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (key_value(STRING, STRING), key_value(STRING, SchemaInfo(SchemaType.STRING, b"null")), True),
        (key_value(STRING, STRING), key_value(STRING, STRING, "INLINE"), True),
        (key_value(STRING, STRING), key_value(STRING, STRING, "SEPARATED"), False),
        (key_value(STRING, STRING), key_value(STRING, INT32), False),
        (key_value(STRING, avro("a")), key_value(STRING, avro("a", doc="d")), True),
        (key_value(avro("a"), STRING), key_value(STRING, avro("a")), False),
    ],
)
def test_key_value_schemas_are_equal_by_their_parts(one: SchemaInfo, other: SchemaInfo, same: bool) -> None:
    """10.6: S-KV-3, their types and the encoding count, which Pulsar forgets."""
    assert are_same(one, other) is same


def test_key_value_data_has_the_form_of_java() -> None:
    """10.6: S-KV-1, bytes as Java writes them, and as JSON for the admin REST."""
    assert key_value(STRING, INT32).data.hex() == "0000000000000000"
    assert key_value(SchemaInfo(AVRO, b'"int"'), STRING).data.hex() == "0000000522696e742200000000"
    data = joined(b'{"type": "int"}', b"")
    assert json.loads(to_json(data)) == {"key": {"type": "int"}, "value": ""}
    assert from_json(to_json(data)) == data
    assert to_json(joined(b"text", None)) == b'{"key": "text", "value": ""}'


def test_descriptors_are_found_by_name_and_in_any_order() -> None:
    """10.3: Java writes the imports first or the root first."""
    root, imported = proto_file("root.proto", ["M"], ["other.proto"]), proto_file("other.proto", ["N"])
    for files in ((root, imported), (imported, root)):
        assert definition_of(protobuf_native("p.M", *files)).message == "p.M"
        assert definition_of(protobuf_native("p.N", *files)).message == "p.N"


@pytest.mark.parametrize(
    ("info", "flaw"),
    [
        (protobuf_native("p.M", proto_file("other.proto", ["M"])), "'root.proto' is not among"),
        (protobuf_native("p.X", proto_file("root.proto", ["M"])), "message 'p.X' is not among"),
        (protobuf_native("p.M", proto_file("root.proto", ["M"], ["other.proto"])), "'other.proto' is imported"),
        (protobuf_native("p.M", proto_file("root.proto", ["M"], ["root.proto"])), "lead back to it"),
        (protobuf_native("p.M", proto_file("root.proto", ["M", "M"])), "cannot be read"),
        (
            protobuf_native("p.M", *(proto_file(f"{number}.proto", []) for number in range(FILES_MAX + 1))),
            f"at most {FILES_MAX}",
        ),
        (SchemaInfo(SchemaType.PROTOBUF_NATIVE, b"x" * (SIZE_MAX + 1)), f"at most {SIZE_MAX}"),
        (SchemaInfo(SchemaType.PROTOBUF_NATIVE, b"[" * 100_000), "no JSON object"),
        (SchemaInfo(SchemaType.PROTOBUF_NATIVE, b"[]"), "no JSON object"),
    ],
)
def test_descriptors_that_are_not_whole_are_refused(info: SchemaInfo, flaw: str) -> None:
    """10.3: a missing file or message, a circle, and too many."""
    with pytest.raises(InvalidSchemaError) as refusal:
        definition_of(info)
    assert flaw in refusal.value.message
