# SPDX-License-Identifier: Apache-2.0
"""Values as JSON for people: what is printed of a payload makes that payload's value again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.base.printable import printable_json
from broker_core.cli.plain_values import from_plain, to_plain
from broker_core.cli.typed_values import encoder_of, parsed_line
from broker_core.client.schemas.auto import AutoConsumeSchema
from broker_core.client.schemas.misfit import Misfit
from broker_core.schemas.avro.parsing import SchemaParseError, parse
from broker_core.schemas.avro.types import AvroType, Union, named_types, parts
from broker_core.schemas.definition import InvalidSchemaError
from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.values.decoder import ValueDecoder
from broker_core.values.targets import RecursiveSchemaError
from tests.schemas.definitions import definitions
from tests.schemas.notation import definition
from tests.values.data import data_of


def unions(schema: AvroType) -> list[Union]:
    """All unions of a schema."""
    pending = [schema, *(part for each in named_types(schema) for part in parts(each))]
    found, seen = [], set[int]()
    while pending:
        each = pending.pop()
        if id(each) not in seen:
            seen.add(id(each))
            found += [each] if isinstance(each, Union) else []
            pending.extend(parts(each))
    return found


@settings(max_examples=300, deadline=None)
@given(definitions(), st.data())
def test_printed_values_are_read_back(made: Any, data: st.DataObject) -> None:
    """10.20: the same value, but for unions of several types, whose branches JSON does not name."""
    info = SchemaInfo(SchemaType.AVRO, json.dumps(made).encode())
    try:
        schema = parse(info.data)
        ValueDecoder(info)  # random data ends where columns do
    except (SchemaParseError, InvalidSchemaError, RecursiveSchemaError):
        return
    read = AutoConsumeSchema().reading_of(info)
    try:
        value = read(data.draw(data_of(schema)).data, None)
    except Misfit:
        return  # a date that Python does not have
    line = printable_json(to_plain(value)).encode()
    if any(len({each.kind for each in union.branches} - {"null"}) > 1 for union in unions(schema)):
        return
    payload = encoder_of(info)(parsed_line(info, line)).value
    again = None if value is None and payload is None else read(payload, None)
    assert to_plain(again) == to_plain(value)


@pytest.mark.parametrize(
    ("schema", "plain", "value"),
    [
        ("[bytes | string]", "YWI=", "YWI="),
        ("[bytes | int]", "YWI=", b"ab"),
        ("[bytes | enum<A,B>]", "A", "A"),
        ("[enum<A,B> | int]", "C", "C"),
        ("[null | int | array<bytes>]", ["YWI="], [b"ab"]),
        ("[map<bytes> | int]", {"a": "YWI="}, {"a": b"ab"}),
        ("[string | {a:bytes}]", {"a": "YWI="}, {"a": b"ab"}),
        ("[null | double | string]", None, None),
        ("bytes", "\u00e9", "\u00e9".encode()),
        ("double", "NaN?", "NaN?"),
    ],
)
def test_branches_are_found_by_what_json_has(schema: str, plain: Any, value: Any) -> None:
    """10.20: text is text where it may be; and what fits nothing is left to the encoder, which refuses it."""
    assert from_plain(parse(definition(schema)), plain) == value


@pytest.mark.parametrize(
    ("schema", "plain", "told"),
    [
        ("{a:long timestamp-millis}", {"a": "yesterday"}, "a: 'yesterday' is not a date or time"),
        ("{a:bytes decimal(4,2)}", {"a": "x"}, "a: 'x' is not a decimal"),
        ("{a:array<{b:int date}>}", {"a": [{"b": "1"}]}, r"a\[\].b: '1' is not a date"),
        ("{a:map<X{b:int}>}", {"a": {"k": {"c": 1}}}, "a{}.c: record X has no such field"),
        ("{a:[int | X{b:int}]}", {"a": {"c": 1}}, "a.c: record X has no such field"),
    ],
)
def test_misfits_name_their_field(schema: str, plain: Any, told: str) -> None:
    """10.18: by its path, as everywhere."""
    with pytest.raises(Misfit, match=told):
        from_plain(parse(definition(schema)), plain)
