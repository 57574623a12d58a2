# SPDX-License-Identifier: Apache-2.0
"""Avro schemas: what is one, which are the same, and which reads data of which."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given, settings

from broker_core.schemas.avro.canonical import canonical
from broker_core.schemas.avro.equality import same
from broker_core.schemas.avro.parsing import DEPTH_MAX, SIZE_MAX, SchemaParseError, parse
from broker_core.schemas.avro.resolving import STEPS_MAX, Conflict, conflicts
from tests.schemas.definitions import definitions, pairs
from tests.schemas.notation import definition
from tests.schemas.vectors import TEXTS, VECTORS, Vector


def verdict(old: str, new: str) -> tuple[bool, bool]:
    """Whether new reads old, and old reads new. Neither, where one is no schema."""
    try:
        before, after = parse(definition(old)), parse(definition(new))
    except SchemaParseError:
        return False, False
    return not conflicts(before, after), not conflicts(after, before)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda each: f"V{each.number}")
def test_pair_has_its_verdict(vector: Vector) -> None:
    """The verdicts are those of Java's library: ``test_against_java`` asks it."""
    assert verdict(vector.old, vector.new) == (vector.backward, vector.forward)


@pytest.mark.parametrize(
    ("text", "flaw"),
    [
        ("", "the definition is not JSON: Expecting value: line 1 column 1 (char 0)"),
        (b"\xff", "the definition is not UTF-8"),
        ("7", "/: 7 is no schema"),
        ('"Missing"', "/: type 'Missing' is not defined"),
        ('{"type": "object"}', "/: type 'object' is not known"),
        ('{"type": {"type": "int"}}', "/: a type has no type that is a text"),
        ('["int", ["null"]]', "/: a union has a union as a branch"),
        ('["int", "int"]', "/: a union has int twice"),
        ('{"type": "array"}', "/: array has no items"),
        ('{"type": "record", "name": "R"}', "/: record R has no list of fields"),
        ('{"type": "record", "fields": []}', "/: there is no name"),
        ('{"type": "record", "name": "string", "fields": []}', "/: a record is named like the type string"),
        ('{"type": "record", "name": "R", "fields": [7]}', "/fields/0: 7 is no field"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a"}]}', "/fields/0: field 'a' has no type"),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "X"]}]}',
            "/fields/0/type/1: type 'X' is not defined",
        ),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "order": "up"}]}',
            "/fields/0: field 'a' has the order 'up', which is none of ascending, descending, ignore",
        ),
        ('{"type": "enum", "name": "E", "symbols": ["A", "A"]}', "/: enum E has a symbol twice"),
        (
            '{"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}',
            "/: the default 'B' of enum E is none of its symbols",
        ),
        ('{"type": "fixed", "name": "F", "size": -1}', "/: fixed F has the size -1"),
        ('{"type": "fixed", "name": "F", "size": true}', "/: fixed F has the size True"),
        ('{"type": "fixed", "name": "1F", "size": 1}', "/: '1F' is no name: it takes letters, digits, _ and $, and no"),
        (
            '[{"type":"fixed","name":"F","size":1},{"type":"map","values":{"type":"fixed","name":"F","size":2}}]',
            "/1/values: F is defined twice",
        ),
    ],
)
def test_definition_that_is_none_is_refused_where_it_is_wrong(text: str | bytes, flaw: str) -> None:
    with pytest.raises(SchemaParseError) as refused:
        parse(text)
    assert flaw in str(refused.value)


@pytest.mark.parametrize(("text", "is_valid"), TEXTS)
def test_definition_is_taken_as_by_java(text: str, is_valid: bool) -> None:
    """10.3: a client in Java could not read what a broker took that it refuses, and no error can name a lone
    surrogate."""
    with nullcontext() if is_valid else pytest.raises(SchemaParseError):
        parse(text)


def test_hostile_definition_is_refused_before_it_is_read() -> None:
    """10.3: by its depth, wherever that is, its size, or the length of its names, in an error of a line."""
    deep = "[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1)
    for text in (f'{{"type": "int", "any": {deep}}}', "[" * 900_000 + "]" * 900_000, f'{{"type": {deep}'):
        with pytest.raises(SchemaParseError, match=r"nested deeper than|at most|not JSON"):
            parse(text)
    with pytest.raises(SchemaParseError, match="longer than 512"):
        parse(json.dumps(record("x" * 600)))
    with pytest.raises(SchemaParseError) as refusal:
        parse(json.dumps([{"type": "record", "name": "R", "fields": ["x" * 100_000]}]))
    assert len(refusal.value.message) < 1000
    with pytest.raises(SchemaParseError, match="at most 1048576 are taken"):
        parse("[" * (SIZE_MAX + 1))


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": each} for key, each in fields.items()]}


def chain(prefix: str, links: int) -> str:
    """A flat text of records of which each has the one before it as a field, and at last the whole chain."""
    before = ["int", *(f"L{number}" for number in range(links))]
    fields = {f"{prefix}{number}": record(f"L{number}", a=before[number]) for number in range(links)}
    return json.dumps(record("R", **fields, whole=f"L{links - 1}"))


def test_schemas_that_lead_each_other_too_deep_are_refused() -> None:
    """A chain of names is as deep as it is long, however flat its text is."""
    found = conflicts(parse(chain("w", 3000)), parse(chain("r", 3000)))
    assert [each.reason for each in found] == ["the two schemas lead each other too deep to be compared"]


def test_schemas_with_too_many_pairs_are_refused() -> None:
    """Records of two unions that have nothing in common are each compared with each."""
    written = [record(f"X{number}") for number in range(1000)]
    reading = [record(f"Y{number}", b="int") for number in range(1000)]
    old, new = (parse(json.dumps(record("R", a=each))) for each in (written, reading))
    assert [each.reason for each in conflicts(old, new)] == [
        f"the two schemas have more than {STEPS_MAX} pairs of types to be compared"
    ]


# S-EQ-1 to S-EQ-8: what makes a schema another one, and what does not.
@pytest.mark.parametrize(
    ("one", "other", "are_same"),
    [
        ("{a:int}", "X{a:int}", False),
        ("{a:int}", "q.R{a:int}", False),
        ("{a:int, b:int}", "{b:int, a:int}", False),
        ("{a:int}", "{a:int=1}", False),
        ("{a:int=1}", "{a:int=2}", False),
        ("{a:double=1}", "{a:double=1.0}", False),
        ("{a:int=1}", "{a:int=true}", False),
        ("{a:?int}", "{a:?int=null}", False),
        ("{a:int}", "{a:int (order descending)}", False),
        ("{a:enum<A,B>}", "{a:enum<B,A>}", False),
        ("{a:enum<A,B>}", "{a:enum p.E<A,B>}", False),
        ("{a:fixed(4)}", "{a:fixed(8)}", False),
        ("{a:?int}", "{a:[int | null]}", False),
        ("{a:long}", "{a:long timestamp-millis}", False),
        ("{a:string}", "{a:string+prop}", False),
        ("{a:int}", "(doc){a:int}", True),
        ("{a:int}", "{a:int (alias b)}", True),
        ("{a:int}", "R(alias Q){a:int}", True),
        ("{a:enum<A,B>}", "{a:enum<A,B ; default A>}", True),
        ("{v:int, next:?R}", "{v:int, next:?R}", True),
        ("{v:int, next:?R}", "{v:int, next:?R=null}", False),
    ],
)
def test_schemas_are_the_same_or_not(one: str, other: str, are_same: bool) -> None:
    assert same(parse(definition(one)), parse(definition(other))) is are_same


def test_form_of_the_text_makes_no_difference() -> None:
    """Clients in Python write many lines, those in Java one; a primitive may be a name or an object."""
    lines = json.dumps(json.loads(definition("{a:int, b:?string=null}")), indent=1)
    assert same(parse(lines), parse(definition("{a:int, b:?string=null}")))
    assert same(
        parse('{"fields": [], "name": "p.R", "type": "record"}'),
        parse('{"type": "record", "namespace": "p", "name": "R", "fields": []}'),
    )
    assert same(parse('{"type": "int"}'), parse('"int"'))


def test_conflicts_name_each_field() -> None:
    old = parse(definition("{id:int, at:{x:string}, tags:array<string>}".replace("{x", "P{x")))
    new = parse(definition("{id:string, at:P{x:string, y:int}, tags:array<int>, more:int}"))
    assert conflicts(old, new) == [
        Conflict("more", "it is not in R, which was written, and has no default: add a default"),
        Conflict("id", "int cannot be read as string"),
        Conflict("at.y", "it is not in P, which was written, and has no default: add a default"),
        Conflict("tags[]", "string cannot be read as int"),
    ]


@given(definitions())
@settings(max_examples=300)
def test_schema_reads_its_own_data(made: object) -> None:
    """Invariant: whatever is a schema is compatible with itself, and the same as itself."""
    try:
        one, other = parse(json.dumps(made)), parse(json.dumps(made, indent=2))
    except SchemaParseError:
        return
    assert same(one, other)
    assert not [each for each in conflicts(one, other) if "by their aliases" not in each.reason]


@given(pairs())
@settings(max_examples=300)
def test_canonical_texts_are_those_of_equal_schemas(pair: tuple[object, object]) -> None:
    """10.5: versions are found by them."""
    try:
        old, new = (parse(json.dumps(each)) for each in pair)
    except SchemaParseError:
        return
    assert same(old, new) is (canonical(old) == canonical(new))


@given(pairs())
@settings(max_examples=300)
def test_equality_has_no_direction(pair: tuple[object, object]) -> None:
    try:
        old, new = (parse(json.dumps(each)) for each in pair)
    except SchemaParseError:
        return
    assert same(old, new) is same(new, old)
