# SPDX-License-Identifier: Apache-2.0
"""Schemas compared field by field, for people."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings

from broker_core.schemas.avro.described import DEPTH_MAX, FIELDS_TOLD, columns, described, differences, pitfalls
from broker_core.schemas.avro.parsing import parse
from broker_core.schemas.comparison import Comparison, compared, told_columns, type_in_words
from broker_core.schemas.compatibility import objections
from broker_core.schemas.definition import InvalidSchemaError, definition_of
from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.schemas.strategies import Strategy
from tests.schemas.definitions import pairs
from tests.schemas.infos import INT32, STRING, avro, key_value, proto_file, protobuf_native
from tests.schemas.notation import definition


def of(old: str, new: str) -> list[tuple[str, str | None, str | None]]:
    return [tuple(each) for each in differences(parse(definition(old)), parse(definition(new)))]  # type: ignore[misc] # a NamedTuple


def careful(writer: str, reader: str) -> list[str]:
    return [str(each) for each in pitfalls(parse(definition(writer)), parse(definition(reader)))]


def beside(old: SchemaInfo, new: SchemaInfo) -> Comparison:
    return compared(definition_of(old), definition_of(new))


def test_fields_that_differ_are_told_by_their_paths() -> None:
    """10.18: also those of records in records, arrays, maps and unions."""
    assert of("{a:int, b:string}", "{a:long, c:?int=null}") == [
        ("a", "int", "long"),
        ("c", None, "null | int = null"),
        ("b", "string", None),
    ]
    old, new = "{a:array<?X{x:int}>, b:map<Y{y:int}>}", "{a:array<?X{x:long}>, b:map<Y{y:int, z:int}>}"
    assert of(old, new) == [("a[].x", "int", "long"), ("b{}.z", None, "int")]
    assert of("{a:[X{x:int} | Y{y:int}]}", "{a:[X{x:int} | Y{y:long}]}") == [("a.y", "int", "long")]
    assert of("{v:int, next:?R}", "{v:long, next:?R}") == [("v", "int", "long")]
    assert of("int", "long") == [("", "int", "long")]


def test_what_changes_nothing_for_readers_is_no_difference() -> None:
    """10.5: documentation, aliases and the order of fields."""
    assert of("{a:int, b:int}", "(doc){b:int, a:int (alias c)}") == []
    assert of("{a:int=1}", "{a:int=2}") == [("a", "int = 1", "int = 2")]
    assert of("{a:enum<A,B>}", "{a:enum<A,C>}") == [("a", "enum E (A, B)", "enum E (A, C)")]


def test_types_are_told_in_words() -> None:
    """10.18: with what says how to read a value."""
    text = definition(
        "{a:bytes decimal(10,2), b:?long timestamp-millis, c:fixed(4), d:array<map<string>>, e:enum<A ; default A>}"
    )
    assert [(each.path, each.type) for each in columns(parse(text))] == [
        ("a", "bytes decimal(10, 2)"),
        ("b", "null | long timestamp-millis"),
        ("c", "fixed F (4 bytes)"),
        ("d", "array of map of string"),
        ("e", "enum E (A, else A)"),
    ]
    assert described(parse(definition("{a:int}"))) == "record R"


def test_compatible_changes_may_still_fail_or_mislead() -> None:
    """10.9: symbols that a reader does not know, and logical types."""
    assert careful("{a:enum<A,B>}", "{a:enum<A>}") == [
        "a: data with the symbol B cannot be read: add a default to the enum"
    ]
    assert careful("{a:enum<A,B>}", "{a:enum<A ; default A>}") == []
    assert careful("{a:long timestamp-millis}", "{a:?long timestamp-micros}") == [
        "a: long timestamp-millis may be read as long timestamp-micros, which is another value"
    ]
    assert careful("{a:int, b:int}", "{a:long, c:int}") == []


def test_deep_and_wide_schemas_end() -> None:
    """10.21: whoever compares a hostile schema is done soon."""
    chain = [{"type": "record", "name": "R0", "fields": [{"name": "a", "type": "int"}]}]
    chain += [
        {
            "type": "record",
            "name": f"R{n}",
            "fields": [{"name": "a", "type": f"R{n - 1}"}, {"name": "b", "type": f"R{n - 1}"}],
        }
        for n in range(1, 500)
    ]
    text = json.dumps([*chain, {"type": "record", "name": "Top", "fields": [{"name": "a", "type": "R499"}]}])
    top = parse(text).branches[-1]  # type: ignore[union-attr] # a union
    told = columns(top)
    assert len(told) == FIELDS_TOLD
    assert max(each.path.count(".") for each in told) == DEPTH_MAX - 1
    assert differences(top, top) == []


@settings(max_examples=200, deadline=None)
@given(pairs())
def test_comparisons_agree_with_verdicts(pair: tuple[Any, Any]) -> None:
    """10.8, 10.18: a schema reads another one's data exactly where the strategies say so."""
    try:
        old, new = (definition_of(SchemaInfo(SchemaType.JSON, json.dumps(each).encode())) for each in pair)
    except InvalidSchemaError:
        return  # an evolution may make a union in a union
    found = compared(old, new)
    assert found.new_reads_old is not bool(objections(old, new, Strategy.BACKWARD))
    assert found.old_reads_new is not bool(objections(old, new, Strategy.FORWARD))
    assert all(each.reasons for each in found.fields if not (each.new_reads_old and each.old_reads_new))


def test_other_types_differ_as_a_whole() -> None:
    """10.6, 10.8, 10.9: by type, and PROTOBUF_NATIVE by its message."""
    (field,) = beside(STRING, INT32).fields
    assert (field.path, field.old, field.new, field.new_reads_old) == ("", "STRING", "INT32", False)
    assert field.reasons == ("exists schema type STRING, new schema type INT32",)
    assert not beside(STRING, SchemaInfo(SchemaType.STRING, b"null")).fields
    file = proto_file("root.proto", ["M", "N"])
    (field,) = beside(protobuf_native("p.M", file), protobuf_native("p.N", file)).fields
    assert (field.old, field.new) == ("PROTOBUF_NATIVE p.M", "PROTOBUF_NATIVE p.N")


def test_fields_of_messages_are_told_by_their_numbers() -> None:
    """10.9: whatever the broker says, which compares the names of messages alone."""
    old, new = proto_file("root.proto", ["M", "N"]), proto_file("root.proto", ["M", "N"])
    for file, kind in ((old, 9), (new, 3)):
        file.message_type[0].field.add(name="n", number=2, type=11, label=1, type_name=".p.N")
        file.message_type[1].field.add(name="b", number=2, type=kind, label=3)
        file.message_type[1].field.add(name="again", number=3, type=11, label=1, type_name=".p.N")
    new.message_type[0].field[0].name = "c"
    new.message_type[0].field.add(name="d", number=4, type=5, label=1)
    before, after = protobuf_native("p.M", old), protobuf_native("p.M", new)
    told = [(each.path, each.old, each.new, bool(each.reasons)) for each in beside(before, after).fields]
    assert told == [
        ("c", "int32 a = 1", "int32 c = 1", False),
        ("n.b", "repeated string b = 2", "repeated int64 b = 2", True),
        ("d", None, "int32 d = 4", False),
    ]
    assert [tuple(each)[:2] for each in told_columns(definition_of(before))] == [
        ("a", "int32 = 1"),
        ("n", "p.N = 2"),
        ("n.a", "int32 = 1"),
        ("n.b", "repeated string = 2"),
        ("n.again", "p.N = 3"),
    ]


def test_keys_and_values_are_compared_apart() -> None:
    """10.6: paths begin with the part."""
    old, new = key_value(STRING, avro("a"), "SEPARATED"), key_value(STRING, avro("a", "b"), "SEPARATED")
    (field,) = beside(old, new).fields
    assert (field.path, field.new, field.new_reads_old, field.old_reads_new) == ("value.b", "int", False, True)
    (field,) = beside(old, key_value(STRING, avro("a"), "INLINE")).fields
    assert (field.path, field.new) == ("", "KEY_VALUE (STRING and AVRO, INLINE)")
    told = told_columns(definition_of(new))
    assert [(each.path, each.type) for each in told] == [("key", "STRING"), ("value.a", "int"), ("value.b", "int")]
    assert type_in_words(definition_of(STRING)) == "STRING"
