# SPDX-License-Identifier: Apache-2.0
"""Properties and headers of rows, without a session: either, both, and what cannot be sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.errors import ConfigError
from broker_core.wire.batch import columns, decode_entries, encode_entries
from broker_core.wire.entry import EntryRef
from pulsarish_spark.sink.rows import message_rows

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
PROPERTIES = pa.map_(pa.string(), pa.string())
KEYS = pa.array([b"first", b"second", None, b"\xff"], pa.binary())

pairs = st.lists(st.tuples(st.sampled_from("abc"), st.text(max_size=3)), max_size=4)


def headers(*rows: Sequence[tuple[str | None, bytes | None]] | None) -> pa.Array:
    as_dicts = [None if row is None else [{"key": k, "value": v} for k, v in row] for row in rows]
    return pa.array(as_dicts, HEADERS)


def sent(**columns: pa.Array) -> list[list[tuple[str, bytes]]]:
    """The properties of each message, in their order."""
    rows = pa.record_batch({"key": KEYS.slice(0, len(next(iter(columns.values()))))} | columns)
    entries = encode_entries(message_rows(rows, "auto"), producer_name="p", first_sequence_id=0, publish_time_ms=1)
    found = decode_entries([EntryRef(1, n, e.body) for n, e in enumerate(entries)], ["property_pairs"])
    return [[(pair["key"], pair["value"]) for pair in row] for row in found["property_pairs"].to_pylist()]


def refusal(**columns: pa.Array) -> str:
    with pytest.raises(ConfigError) as caught:
        sent(**columns)
    return str(caught.value)


@pytest.mark.parametrize("large", [False, True])
def test_headers_become_properties_with_order_and_duplicates(large: bool) -> None:
    """Kafka's headers may repeat a name; so may properties on the wire. Spark may be set to give large Arrow types."""
    given = headers([("a", b"1"), ("a", b"2")], None, [])
    if large:
        given = given.cast(pa.list_(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])))
    assert sent(headers=given) == [[("a", b"1"), ("a", b"2")], [], []]
    assert sent(headers=given.slice(1)) == [[], []]


@given(rows=st.lists(pairs, min_size=1, max_size=4), start=st.integers(0, 3))
def test_headers_beside_the_properties_that_the_source_makes_of_them_are_no_conflict(
    rows: list[list[tuple[str, str]]], start: int
) -> None:
    """What is read with both columns is written with both, whatever is repeated, also from the middle of a batch."""
    given = headers(*([(k, v.encode()) for k, v in row] or None for row in rows))
    names, values = given.flatten().field(0), given.flatten().field(1)
    made = columns.properties(names.cast(pa.binary()), values, columns.values_of(given.offsets), repeated=True)
    expected = [[(k, v.encode()) for k, v in row] for row in rows]
    assert sent(headers=given, properties=made) == expected
    if start < len(rows):
        assert sent(headers=given.slice(start), properties=made.slice(start)) == expected[start:]


def test_a_row_may_have_either() -> None:
    """Rows of several sources in one frame: each has its properties where that source has them."""
    given = headers([("a", b"1"), ("b", b"2")], None, [], None)
    properties = pa.array([[("b", "2"), ("a", "1")], [("c", "3")], None, []], PROPERTIES)
    assert sent(headers=given, properties=properties) == [[("a", b"1"), ("b", b"2")], [("c", b"3")], [], []]
    nothing = pa.array([None, []], PROPERTIES)
    assert sent(headers=headers(None, []), properties=nothing) == [[], []]


def test_headers_and_properties_that_differ_are_refused_by_the_key_of_the_row() -> None:
    """Somebody has changed one of them, and neither may be lost."""
    properties = pa.array([[("a", "1")], [("a", "2")]], PROPERTIES)
    assert refusal(headers=headers([("a", b"1")], [("a", b"1")]), properties=properties) == (
        "the row with the key 'second' has the headers {'a': '1'} and the properties {'a': '2'}, which are to be the "
        "same; drop the column that is not meant"
    )


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            headers([("a", b"1")], [("t", b"\xff")]),
            "the header 't' of the row with the key 'second' has the value b'\\xff'",
        ),
        (
            headers(None, [], [("t", None)]),
            "the header 't' of a row without a key has no value; properties of messages",
        ),
        (headers([], None, [], [(None, b"x")]), "the header None of the row with the key b'\\xff' has no name; "),
        (pa.array([[], [None]], HEADERS), "the header None of the row with the key 'second' has no name; "),
        (headers(None, [], [("t", None)]).slice(2), "the header 't' of the row with the key 'first' has no value; "),
    ],
)
def test_a_header_that_cannot_be_a_property_is_refused_by_the_key_of_its_row(given: pa.Array, text: str) -> None:
    """Rows have no numbers in Spark; the error shows how such headers are encoded or left out."""
    found = refusal(headers=given)
    assert found.startswith(text)
    assert "transform(headers, h -> named_struct(" in found or "filter(headers, h -> " in found


def test_a_property_without_a_value_is_refused_by_the_key_of_its_row() -> None:
    """It was refused by a number that nobody knew."""
    properties: Any = pa.array([[("a", "1")], [("b", None)]], PROPERTIES)
    assert refusal(properties=properties) == (
        "the property 'b' of the row with the key 'second' has no value; "
        "map_filter(properties, (k, v) -> v IS NOT NULL) leaves such properties out"
    )


@pytest.mark.parametrize("kind", ["headers", "properties"])
def test_a_name_or_property_that_is_no_text_is_refused_by_the_key_of_its_row(kind: str) -> None:
    """CAST(X'FF' AS STRING) makes such a text of Spark; other clients could not read it as one."""
    good, bad = pa.array(["a", "b"]), pa.array([b"a", b"\xff"], pa.binary()).view(pa.string())
    offsets = pa.array([0, 1, 2], pa.int32())
    if kind == "properties":
        values: Any = pa.MapArray.from_arrays(offsets, good, bad)
        assert refusal(properties=values) == (
            "the property 'b' of the row with the key 'second' has the value b'\\xff', which is not UTF-8; "
            "properties of messages are text; encode all of them, for example: "
            "transform_values(properties, (k, v) -> base64(CAST(v AS BINARY)))"
        )
        names: Any = pa.MapArray.from_arrays(offsets, bad, good)
    else:
        pairs = pa.StructArray.from_arrays([bad, good.cast(pa.binary())], fields=list(HEADERS.value_type.fields))
        names = pa.ListArray.from_arrays(offsets, pairs, type=HEADERS)
    what = {"headers": "header", "properties": "property"}[kind]
    assert refusal(**{kind: names}).startswith(
        f"the {what} b'\\xff' of the row with the key 'second' has a name that is not UTF-8; "
    )
