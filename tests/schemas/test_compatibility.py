# SPDX-License-Identifier: Apache-2.0
"""Compatibility of two schemas of any type by each strategy."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from broker_core.base.errors import IncompatibleSchemaError
from broker_core.schemas.compatibility import Candidate, Entry, objections
from broker_core.schemas.definition import InvalidSchemaError, definition_of
from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.schemas.strategies import Strategy
from tests.schemas.definitions import pairs
from tests.schemas.infos import INT32, STRING, avro, key_value, proto_file, protobuf_native

BACKWARD, FORWARD, FULL = Strategy.BACKWARD, Strategy.FORWARD, Strategy.FULL
ALWAYS, NEVER = Strategy.ALWAYS_COMPATIBLE, Strategy.ALWAYS_INCOMPATIBLE
COMPARING = [each for each in Strategy if each not in (ALWAYS, NEVER, Strategy.UNDEFINED)]


def fits(old: SchemaInfo, new: SchemaInfo, strategy: Strategy) -> bool:
    return not objections(definition_of(old), definition_of(new), strategy)


@pytest.mark.parametrize("kind", [SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF])
def test_strategies_say_who_reads_whom(kind: SchemaType) -> None:
    """10.8, 10.9: a field more without default is read by older readers alone, one less by newer ones."""
    less, more = avro("a", kind=kind), avro("a", "b", kind=kind)
    expected = {BACKWARD: False, FORWARD: True, FULL: False, ALWAYS: True, NEVER: False, Strategy.UNDEFINED: False}
    assert {each: fits(less, more, each) for each in expected} == expected
    assert fits(more, less, BACKWARD)
    assert not fits(more, less, FORWARD)
    for each in COMPARING:
        assert fits(less, avro("a", "b=0", kind=kind), each)
        assert each.is_transitive is each.value.endswith("TRANSITIVE")


@pytest.mark.parametrize("strategy", list(Strategy))
def test_another_type_is_compatible_with_nothing(strategy: Strategy) -> None:
    """10.8: but where everything is."""
    assert fits(STRING, INT32, strategy) is (strategy is ALWAYS)
    assert fits(avro("a"), avro("a", kind=SchemaType.JSON), strategy) is (strategy is ALWAYS)


@pytest.mark.parametrize("strategy", COMPARING)
def test_types_without_rules_fit_themselves(strategy: Strategy) -> None:
    """10.9: whatever their data is."""
    assert fits(INT32, INT32, strategy)
    assert fits(SchemaInfo(SchemaType.EXTERNAL, b"a"), SchemaInfo(SchemaType.EXTERNAL, b"b"), strategy)


@pytest.mark.parametrize("strategy", COMPARING)
def test_message_of_descriptors_keeps_its_name(strategy: Strategy) -> None:
    """10.9: fields are not compared, as in Pulsar."""
    old = protobuf_native("p.M", proto_file("root.proto", ["M", "N"]))
    assert fits(old, protobuf_native("p.M", proto_file("root.proto", ["M"])), strategy)
    assert not fits(old, protobuf_native("p.N", proto_file("root.proto", ["M", "N"])), strategy)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (key_value(STRING, STRING), key_value(STRING, INT32), "STRING and STRING before and STRING and INT32 now"),
        (key_value(STRING, STRING), key_value(STRING, STRING, "SEPARATED"), "keys were INLINE, and are SEPARATED"),
        (key_value(avro("a"), STRING), key_value(avro("a", "b"), STRING), "key: the new schema cannot read"),
        (key_value(STRING, avro("a")), key_value(STRING, avro("a", "b")), "value: the new schema cannot read"),
    ],
)
def test_parts_of_key_value_schemas_are_compared(old: SchemaInfo, new: SchemaInfo, reason: str) -> None:
    """10.6: S-KV-2 and S-KV-3, by the same strategy; without one that compares everything goes."""
    (told,) = objections(definition_of(old), definition_of(new), BACKWARD)
    assert reason in told
    assert fits(old, new, ALWAYS)
    assert fits(key_value(STRING, avro("a")), key_value(STRING, avro("a", "b=1")), FULL)


def test_refusal_is_one_line_with_version_strategy_and_path() -> None:
    """10.18: S-PY-3, the usual mistake is told with its remedy; of very many reasons a few are told."""
    with pytest.raises(IncompatibleSchemaError) as refusal:
        Candidate(avro("a", "b")).check_beside([Entry(0, avro("a", "b=1")), Entry(3, avro("a"))], FULL)
    assert str(refusal.value) == (
        "Incompatible schema: not compatible with version 3 by FULL: the new schema cannot read older data: "
        "b: it is not in R, which was written, and has no default: add a default"
    )
    with pytest.raises(IncompatibleSchemaError) as refusal:
        Candidate(avro(*(f"b{number}" for number in range(1000)))).check_beside([Entry(0, avro("a"))], FULL)
    assert refusal.value.message.endswith("; and 98 more")
    assert len(refusal.value.message) < 1000


def test_tombstones_stand_beside_everything() -> None:
    """10.11: there is nothing to compare with."""
    Candidate(STRING).check_beside([Entry(0, None)], FULL)
    with pytest.raises(InvalidSchemaError):
        Candidate(SchemaInfo(SchemaType.AVRO, b"x")).check_beside([Entry(0, STRING)], FULL)


@given(pairs())
@settings(max_examples=200)
def test_full_is_both_directions(pair: tuple[Any, Any]) -> None:
    """10.8: FULL is BACKWARD and FORWARD, and one is the other the other way round, for any two schemas."""
    old, new = (SchemaInfo(SchemaType.JSON, json.dumps(each).encode()) for each in pair)
    try:
        backward = fits(old, new, BACKWARD)
    except InvalidSchemaError:
        return
    assert fits(old, new, FULL) is (backward and fits(old, new, FORWARD))
    assert backward is fits(new, old, FORWARD)
