# SPDX-License-Identifier: Apache-2.0
"""Columns of Avro values: what is written is read, by any schema that may read it; a bad row hurts no other."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from broker_core.schemas.avro.parsing import SchemaParseError, parse
from broker_core.values.decoding import Decoded, decode
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
        ("{a:array<null>}", b"\xfe\xff\xff\xff\x0f\x00", "a: it claims too many items that take no bytes"),
        ("{a:array<{}>}", b"\xfe\xff\xff\xff\x0f\x00", "a: it claims too many items that take no bytes"),
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
    """Whatever the bytes are, each row is a value, or null and told; the others are what they were."""
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
