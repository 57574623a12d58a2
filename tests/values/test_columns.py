# SPDX-License-Identifier: Apache-2.0
"""Columns of Avro values: what is written is read, by any schema that may read it; a bad row hurts no other."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from broker_core.schemas.avro.encoding import zigzag
from broker_core.schemas.avro.parsing import SchemaParseError, parse
from broker_core.values.decoding import Decoded, Flaw, decode
from broker_core.values.programs import Programs
from broker_core.values.targets import RecursiveSchemaError, targets_of
from tests.schemas.definitions import definitions
from tests.schemas.notation import definition
from tests.values.data import data_of


def decoded(writer: str, reader: str, rows: list[bytes | None], *, recursive_depth: int = 0) -> Decoded:
    """``rows`` of ``writer`` by the columns of ``reader``."""
    schema = parse(definition(reader))
    programs = Programs(targets_of(schema, recursive_depth=recursive_depth), schema)
    start = programs.add(parse(definition(writer)))
    found = decode(programs, pa.array(rows, pa.binary()), np.full(len(rows), start, np.int64))
    found.rows.validate(full=True)
    return found


@given(definitions(), st.data())
@settings(max_examples=500)
def test_columns_show_what_was_written(made: Any, data: st.DataObject) -> None:
    try:
        schema = parse(json.dumps(made))
        programs = Programs(targets_of(schema), schema)
    except (SchemaParseError, RecursiveSchemaError):
        assume(False)
    rows = data.draw(st.lists(data_of(schema), min_size=1, max_size=4))
    start = programs.add(schema)
    found = decode(programs, pa.array([each.data for each in rows], pa.binary()), np.full(len(rows), start, np.int64))
    found.rows.validate(full=True)
    assert not found.flaws
    assert found.rows.to_pylist() == [each.shown for each in rows]


@pytest.mark.parametrize(
    ("writer", "reader", "data", "shown"),
    [
        ("{a:int}", "{a:long}", b"\x03", {"a": -2}),
        ("{a:int}", "{a:double}", b"\x03", {"a": -2.0}),
        ("{a:float}", "{a:double}", b"\0\0\xc0\x3f", {"a": 1.5}),
        ("{a:string}", "{a:bytes}", b"\x02x", {"a": b"x"}),
        ("{a:int, b:string, c:int}", "{c:int, a:int}", b"\x02\x04xy\x06", {"c": 3, "a": 1}),
        ("{a:int}", '{a:int, b:?string=null, c:string="xyz", d:array<int>=[1, 2]}', b"\x02",
         {"a": 1, "b": None, "c": "xyz", "d": [1, 2]}),
        ("{a:int}", '{a:int, b:X{x:int=7, y:?int=null}={}}', b"\x02", {"a": 1, "b": {"x": 7, "y": None}}),
        ("{a:int}", "{a:?int}", b"\x02", {"a": 1}),
        ("{a:?int}", "{a:int}", b"\x02\x02", {"a": 1}),
        ("{a:[int | string]}", "{a:[string | int]}", b"\x00\x02", {"a": {"member0": None, "member1": 1}}),
        ("{a:?X{x:int}}", "{a:?Y{x:int, y:int=5}}", b"\x02\x02", {"a": {"x": 1, "y": 5}}),
        ("{a:enum<A,B,C>}", "{a:enum<A,B ; default A>}", b"\x04", {"a": "A"}),
        ("{a:int}", "{b:long (alias a)}", b"\x02", {"b": 1}),
        ("{v:int, next:?R, z:int}", "{z:int}", b"\x02\x02\x04\x00\x02\x06", {"z": 3}),
    ],
)  # fmt: skip
def test_reader_gets_what_it_knows(writer: str, reader: str, data: bytes, shown: dict[str, Any]) -> None:
    """Promotions, defaults, aliases, order, what is read over: with one value, so that the bytes can be followed."""
    found = decoded(writer, reader, [data])
    assert (found.flaws, found.rows.to_pylist()) == ([], [shown])


def test_record_within_itself_is_cut_where_the_reader_says() -> None:
    with pytest.raises(RecursiveSchemaError, match="next: record R is within itself"):
        decoded("{v:int, next:?R}", "{v:int, next:?R}", [])
    found = decoded("{v:int, next:?R}", "{v:int, next:?R}", [b"\x02\x02\x04\x02\x06\x00"], recursive_depth=1)
    assert found.rows.to_pylist() == [{"v": 1, "next": {"v": 2, "next": None}}]


@pytest.mark.parametrize(
    ("schema", "data", "reason"),
    [
        ("{a:int}", b"", "a: it ends too early"),
        ("{a:int}", b"\x80", "a: it ends too early"),
        ("{a:int}", b"\x80\x80\x80\x80\x10", "a: a number is too large"),
        ("{a:long}", b"\xff" * 11, "a: a number has too many bytes"),
        ("{a:int}", b"\x02\x02", "bytes are left over behind it"),
        ("{a:string}", b"\x03", "a: a length is negative"),
        ("{a:string}", b"\x06xy", "a: it ends too early"),
        ("{a:double}", b"\0" * 7, "a: it ends too early"),
        ("{a:?int}", b"\x04", "a: a union has no such branch"),
        ("{a:?int}", b"\x01", "a: a union has no such branch"),
        ("{a:enum<A,B>}", b"\x04", "a: an enum has no such symbol"),
        ("{a:array<int>}", b"\xfe\xff\xff\xff\x0f\x02", "a[]: it ends too early"),
        ("{a:array<null>}", b"\xfe\xff\xff\xff\x0f\x00", "a: it claims too many items for its size"),
        ("{a:array<{}>}", b"\xfe\xff\xff\xff\x0f\x00", "a: it claims too many items for its size"),
        ("{a:int, rest:array<R>}", (b"\x02\x02" * 300) + b"\0" * 300, "rest: it is nested too deep"),
    ],
)
def test_bad_row_is_null_and_told(schema: str, data: bytes, reason: str) -> None:
    """The rows around it are whole, though some of its cells had been there."""
    reader = "{a:int}" if "rest" in schema else schema
    good = {"{a:int}": b"\x02", "{a:int, rest:array<R>}": b"\x02\x00"}.get(schema)
    found = decoded(schema, reader, [good, data, None, good])
    assert [tuple(each) for each in found.flaws] == [(1, reason)]
    shown = None if good is None else {"a": 1}
    assert found.rows.to_pylist() == [shown, None, None, shown]


@given(definitions(), st.data())
@settings(max_examples=300)
def test_damaged_rows_never_harm(made: Any, data: st.DataObject) -> None:
    """Each row of any bytes is a value, or null and told; the others are what they were."""
    try:
        schema = parse(json.dumps(made))
        programs = Programs(targets_of(schema), schema)
    except (SchemaParseError, RecursiveSchemaError):
        assume(False)
    whole = data.draw(data_of(schema))
    damaged = data.draw(st.binary(max_size=12) | st.just(whole.data[:-1]) | st.just(whole.data + b"\x01"))
    rows = pa.array([whole.data, damaged, whole.data], pa.binary())
    found = decode(programs, rows, np.full(3, programs.add(schema), np.int64))
    found.rows.validate(full=True)
    assert [found.rows[0].as_py(), found.rows[2].as_py()] == [whole.shown, whole.shown]
    assert [each.row for each in found.flaws] in ([], [1])
    assert not found.flaws or found.rows[1].as_py() is None


def test_decimals_beyond_their_digits_are_flaws() -> None:
    """In any list, of any size: leading bytes that repeat the sign say nothing."""
    schema = "{a:array<array<bytes decimal(4,1)>>, b:int}"

    def row(*lists: tuple[int | bytes, ...]) -> bytes:
        def one(number: int | bytes) -> bytes:
            data = number if isinstance(number, bytes) else number.to_bytes(3, "big", signed=True)
            return zigzag(len(data)) + data

        def block(items: list[bytes]) -> bytes:
            return (zigzag(len(items)) if items else b"") + b"".join(items) + b"\0"[: bool(items)] or b"\0"

        return block([block([one(each) for each in numbers]) for numbers in lists]) + b"\x02"

    rows = [
        row((), (9999, -9999), ()),
        row((), (1,), (2, 10_000)),
        row((-10_000,)),
        row((b"\xff" * 30, b"\0" * 30, b"")),
        row((b"\x01" + b"\0" * 16,), (3,)),
        row(),
    ]
    found = decoded(schema, schema, [*rows])
    assert found.flaws == [Flaw(each, "a[][]: a decimal has more than 4 digits") for each in (1, 2, 4)]
    shown = [[[], [Decimal("999.9"), Decimal("-999.9")], []], [[Decimal("-0.1"), Decimal("0.0"), Decimal("0.0")]], []]
    assert [each["a"] for each in found.rows.to_pylist() if each] == shown


@pytest.mark.parametrize("precision", [1, 18, 19, 20, 38])
def test_decimals_of_each_precision_are_bounded(precision: int) -> None:
    schema = f"{{a:bytes decimal({precision},0)}}"
    numbers = [sign * (10**precision - 1 + more) for sign in (1, -1) for more in (0, 1)]
    data = [each.to_bytes(17, "big", signed=True) for each in numbers]
    found = decoded(schema, schema, [zigzag(17) + each for each in data])
    assert [each.row for each in found.flaws] == [1, 3]
    assert [found.rows[each].as_py()["a"] for each in (0, 2)] == [Decimal(numbers[0]), Decimal(numbers[2])]


def test_values_of_nothing_are_read_in_bounded_steps() -> None:
    """Records within records that take no bytes: two to the power of forty steps, if each were read over."""
    below: Any = "null"
    for level in range(40):
        again = below if isinstance(below, str) else below["name"]
        fields = [{"name": "x", "type": below}, {"name": "y", "type": again}]
        below = {"type": "record", "name": f"A{level}", "fields": fields}
    schema = parse(definition("{b:?int=null}"))
    programs = Programs(targets_of(schema), schema)
    start = programs.add(parse(json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": below}]})))
    found = decode(programs, pa.array([b""], pa.binary()), np.array([start]))
    assert [each.reason.endswith("it claims too many items for its size") for each in found.flaws] == [True]


def test_schema_of_many_columns_takes_rows_a_few_at_a_time() -> None:
    schema = "{" + ", ".join(f"f{number}:int" for number in range(3_000)) + "}"
    good = b"\x02" * 3_000
    rows = [good] * 1_500 + [good[1:], good]
    found = decoded(schema, schema, [*rows])
    assert [tuple(each) for each in found.flaws] == [(1_500, "f2999: it ends too early")]
    assert (found.rows.null_count, len(found.rows)) == (1, 1_502)


@pytest.mark.parametrize(
    "field",
    [
        "c:int=1e999",
        "c:float=1e300",
        "c:array<?float>=[1.0, 1e300]",
        f"c:long={2**70}",
        f"c:int={2**40}",
    ],
)
def test_default_that_has_no_bytes_makes_rows_without_the_field_flaws(field: str) -> None:
    """Rows that have the field are read."""
    schema = f"{{a:int, {field}}}"
    found = decoded("{a:int}", schema, [b"\x02", None])
    assert [each.row for each in found.flaws] == [0]
    assert found.flaws[0].reason.startswith("c")


def test_default_of_bytes_beyond_latin_1_is_what_java_makes_of_it() -> None:
    assert decoded("{a:int}", '{a:int, c:bytes="é€"}', [b"\x02"]).rows.to_pylist() == [{"a": 1, "c": b"\xe9?"}]


def test_default_that_is_endless_is_a_flaw() -> None:
    """Records, each of which has the one before twice: some hundred thousand values in a few hundred bytes."""
    below: Any = {"type": "array", "items": "int"}
    for level in range(9):
        again = below["name"] if level else "int"
        fields = [
            {"name": "x", "type": below, "default": {}},
            {"name": "y", "type": again, "default": {} if level else 0},
        ]
        below = {"type": "record", "name": f"A{level}", "fields": fields}
    items = {"type": "array", "items": below}
    reader = {"type": "record", "name": "R", "fields": [{"name": "c", "type": items, "default": [{}] * 200}]}
    found = decoded("{a:int}", json.dumps(reader), [b"\x02"])
    assert [tuple(each) for each in found.flaws] == [(0, "c: a default has too many values")]


def test_lists_of_large_rows_are_read_a_few_rows_at_a_time() -> None:
    schema = "{a:array<?X{x:int, y:?string}>}"
    row = zigzag(200_000) + b"\0" * 199_999 + b"\x02\x02\0" + b"\0"
    found = decoded(schema, schema, [row, row[:-1], None, row, b"\0", row, row, row, row])
    assert [tuple(each) for each in found.flaws] == [(1, "a: it ends too early")]
    sizes = [None if each is None else len(each["a"]) for each in (found.rows[at].as_py() for at in (0, 1, 2, 4, 8))]
    assert sizes == [200_000, None, None, 0, 200_000]
    assert found.rows[8].as_py()["a"][-1] == {"x": 1, "y": None}
