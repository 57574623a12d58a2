# SPDX-License-Identifier: Apache-2.0
"""Columns of JSON values: by the wider rules of clients, and the same whether they are read together or one by one."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.schemas.avro.parsing import parse
from broker_core.values import json_values
from broker_core.values.decoding import Decoded
from broker_core.values.json_values import decode_json
from broker_core.values.targets import targets_of
from tests.schemas.notation import definition


def decoded(schema: str, rows: list[str | bytes | None]) -> Decoded:
    target = targets_of(parse(definition(schema)))
    texts = [each.encode() if isinstance(each, str) else each for each in rows]
    found = decode_json(target, pa.array(texts, pa.binary()))
    found.rows.validate(full=True)
    assert len(found.rows) == len(rows)
    return found


@pytest.mark.parametrize(
    ("schema", "text", "shown"),
    [
        ("{a:int}", '{"a": 1, "more": [{}]}', {"a": 1}),
        ("{a:int}", "{}", {"a": None}),
        ("{a:int=7}", "{}", {"a": 7}),
        ('{a:int="x"}', "{}", {"a": None}),
        ("{a:?int=null}", '{"a": null}', {"a": None}),
        ("{a:long}", '{"a": "9007199254740993"}', {"a": 9007199254740993}),
        ("{a:double}", '{"a": 1}', {"a": 1.0}),
        ("{a:double}", '{"a": "1.5"}', {"a": 1.5}),
        ("{a:bytes}", '{"a": "AAE="}', {"a": b"\0\1"}),
        ("{a:bytes}", '{"a": "plain text"}', {"a": b"plain text"}),
        ("{a:enum<A,B>}", '{"a": "B"}', {"a": "B"}),
        ("{a:enum<A,B ; default A>}", '{"a": "C"}', {"a": "A"}),
        ("{a:array<X{x:?string}>}", '{"a": [{"x": "y"}, {}]}', {"a": [{"x": "y"}, {"x": None}]}),
        ("{a:map<int>}", '{"a": {"x": 1}}', {"a": [("x", 1)]}),
        ("{a:bytes decimal(6,2)}", '{"a": 12.5}', {"a": Decimal("12.50")}),
        ("{a:bytes decimal(20,2)}", '{"a": 123456789012345678.91}', {"a": Decimal("123456789012345678.91")}),
        ("{a:bytes decimal(20,2), b:double}", '{"a": 1E+2, "b": 0.1}', {"a": Decimal("100.00"), "b": 0.1}),
        ("{a:int date}", '{"a": 1}', {"a": dt.date(1970, 1, 2)}),
        ("{a:long timestamp-millis}", '{"a": 5}', {"a": dt.datetime(1970, 1, 1, 0, 0, 0, 5000, dt.UTC)}),
        ("{a:[int | string]}", '{"a": "x"}', {"a": {"member0": None, "member1": "x"}}),
        ("{a:[int | string]}", '{"a": "5"}', {"a": {"member0": None, "member1": "5"}}),
        ("{a:[int | array<int>]}", '{"a": "5"}', {"a": {"member0": 5, "member1": None}}),
        ("{a:[enum<A,B ; default A> | boolean]}", '{"a": false}', {"a": {"member0": None, "member1": False}}),
        ("{a:[enum<A,B ; default A> | boolean]}", '{"a": "C"}', {"a": {"member0": "A", "member1": None}}),
        ("{a:[X{} | map<int>]}", '{"a": {"x": 1}}', {"a": {"member0": None, "member1": [("x", 1)]}}),
        ("{a:[X{b:int} | boolean]}", '{"a": {"b": 1, "c": 2}}', {"a": {"member0": {"b": 1}, "member1": None}}),
    ],
)
def test_value_is_taken_as_clients_write_it(schema: str, text: str, shown: dict[str, Any]) -> None:
    found = decoded(schema, [text])
    assert (found.flaws, found.rows.to_pylist()) == ([], [shown])


@pytest.mark.parametrize(
    ("schema", "text", "reason"),
    [
        ("{a:int}", "", "it is not JSON: Expecting value: line 1 column 1 (char 0)"),
        ("{a:int}", b"\xff", "it is not JSON: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        (
            "{a:int}",
            "[" * 100_000,
            "it is not JSON: maximum recursion depth exceeded while decoding a JSON array from a",
        ),
        ("{a:int}", "7", "it: 7 is not record R"),
        ("{a:int}", '{"a": 2147483648}', "a: 2147483648 is not a number of type int"),
        ("{a:int}", '{"a": true}', "a: true is not a number of type int"),
        ("{a:string}", '{"a": 1}', "a: 1 is not a text"),
        ("{a:enum<A,B>}", '{"a": "C"}', 'a: "C" is not a symbol of enum E'),
        ("{a:array<X{x:int}>}", '{"a": [{"x": 1}, {"x": []}]}', "a[1].x: [] is not a number of type int"),
        ("{a:map<int>}", '{"a": {"\\ud800": "x"}}', 'a.?: "x" is not a number of type int'),
        ("{a:bytes decimal(4,2)}", '{"a": "123.45"}', 'a: "123.45" is not a decimal of 4 digits'),
    ],
)
def test_bad_row_is_null_and_told(schema: str, text: str | bytes, reason: str) -> None:
    found = decoded(schema, ["{}", text, None])
    assert [each.row for each in found.flaws] == [1]
    assert found.flaws[0].reason.startswith(reason)
    assert found.flaws[0].reason.encode()
    assert found.rows[1].as_py() is None


def test_rows_are_not_taken_for_each_other() -> None:
    """Two values in one row, and none in the next: as many as rows."""
    found = decoded("{a:int}", ['{"a": 1}{"a": 2}', " ", '{"a": 3}'])
    assert [each.row for each in found.flaws] == [0, 1]
    assert found.rows.to_pylist() == [None, None, {"a": 3}]


@pytest.mark.parametrize(
    "rows",
    [
        ["null", '{"s": "a"}'],
        ['{"s": "a"}{"r":', '{"z": 3}}'],
        ['{"s": "a"}{"r": {}', '{"s": "b"}'],
        ['{"s": "a', '"}'],
        ['{"s": "a"} ', '{"s":\n"b"}', '{"s": "c"}{}'],
        [b'{"s": "\xff"}', '{"s": "b"}'],
        ['{"s": "\\ud800"}', '{"s": "b"}'],
    ],
)
def test_rows_together_are_what_each_is_alone(rows: list[str | bytes]) -> None:
    """Halves of values that would fit, a lone null, of which Arrow's reader dies, and text that is none."""
    schema = "{s:?string, r:?Y{z:?int}}"
    alone = [decoded(schema, [each]) for each in rows]
    together = decoded(schema, [*rows])
    assert together.rows.to_pylist() == [each.rows[0].as_py() for each in alone]
    assert [each.row for each in together.flaws] == [row for row, each in enumerate(alone) if each.flaws]


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ('{a:bytes="\\u00ff\\u0000"}', b"\xff\0"),
        ('{a:bytes decimal(4,2)="\\u0001\\u0000"}', Decimal("2.56")),
        ('{a:fixed(3)="abc"}', b"abc"),
        ('{a:X{y:bytes="AAE="}={}}', {"y": b"AAE="}),
        ('{a:array<bytes>=["AAE="]}', [b"AAE="]),
    ],
)
def test_default_is_what_avro_says(schema: str, shown: Any) -> None:
    """A character for each byte, where a payload has base64."""
    assert decoded(schema, ["{}"]).rows.to_pylist() == [{"a": shown}]


def test_fixed_types_are_shown() -> None:
    types = [("uuid", 16), ("duration", 12)]
    fields = [
        {"name": name, "type": {"type": "fixed", "name": name, "size": size, "logicalType": name}}
        for name, size in types
    ]
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    found = decoded(schema, [json.dumps({"uuid": "u", "duration": "AQAAAAIAAAADAAAA"})])
    assert found.rows.to_pylist() == [{"uuid": "u", "duration": {"months": 1, "days": 2, "millis": 3}}]


def test_time_beyond_microseconds_is_a_flaw() -> None:
    found = decoded("{a:long timestamp-millis}", ['{"a": 9223372036854775807}'])
    assert [tuple(each) for each in found.flaws] == [
        (0, "a: 9223372036854775807 is not a time that microseconds can say since 1970")
    ]


_VALUES = st.fixed_dictionaries(
    {},
    optional={
        "i": st.integers(-(2**63), 2**63 - 1) | st.none(),
        "d": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-1000, 1000),
        "s": st.text(max_size=5),
        "b": st.booleans(),
        "l": st.lists(st.fixed_dictionaries({"x": st.text(max_size=2)}), max_size=2),
        "e": st.sampled_from("ABC") | st.none(),
        "t": st.integers(-(10**15), 10**15) | st.sampled_from((2**63 // 1000 - 1, -(2**63) // 1000, 2**63 - 1, None)),
        "k": st.integers(-(2**31), 2**31 - 1),
        "n": st.integers(-(2**31), 2**31 - 1) | st.none(),
    },
)
_SCHEMA = (
    "{i:?long, d:?double, s:?string, b:?boolean, l:array<X{x:string}>, e:?enum<A,B>, t:?long timestamp-millis, "
    "k:?int date, n:?int=5, z:array<?enum E2<A>>=[]}"
)


@given(st.lists(_VALUES, min_size=1, max_size=5))
def test_rows_read_together_are_those_read_one_by_one(rows: list[dict[str, Any]]) -> None:
    texts = [json.dumps(each) for each in rows]
    together, one_by_one = decoded(_SCHEMA, [*texts]), decoded(_SCHEMA, [*texts, None])
    assert together.rows.equals(one_by_one.rows[:-1])
    assert together.flaws == one_by_one.flaws


def test_symbols_and_times_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that is read by itself costs ten times as much."""
    monkeypatch.setattr(json_values, "_loaded", None)
    row = '{"e": "B", "t": -1, "k": 3, "n": 4, "l": [{"x": "y"}], "z": ["A", null]}'
    found = decoded(_SCHEMA, [row, row])
    shown = {**dict.fromkeys("idsb"), "e": "B", "t": dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, dt.UTC)}
    more = {"k": dt.date(1970, 1, 4), "n": 4, "l": [{"x": "y"}], "z": ["A", None]}
    assert found.rows.to_pylist() == [{**shown, **more}] * 2


def test_bad_rows_leave_others_together() -> None:
    """A few in many are told by their own numbers."""
    rows: list[str | bytes | None] = [f'{{"a": {number}}}' for number in range(1_000)]
    rows[5], rows[300], rows[999] = "x", None, '{"a": "y"}'
    found = decoded("{a:int}", rows)
    assert [each.row for each in found.flaws] == [5, 999]
    shown = [None if number in (5, 300, 999) else {"a": number} for number in range(1_000)]
    assert found.rows.to_pylist() == shown
