# SPDX-License-Identifier: Apache-2.0
"""Random types of columns that a schema can be made of, and random rows of them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_TIMES = st.integers(-60_000_000_000_000_000, 200_000_000_000_000_000)

LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.string(), st.text(max_size=9)),
    (pa.binary(), st.binary(max_size=9)),
    (pa.date32(), st.dates(dt.date(1600, 1, 1), dt.date(2600, 1, 1))),
    (pa.timestamp("us", tz="UTC"), _TIMES.map(lambda each: _EPOCH + dt.timedelta(microseconds=each))),
    (pa.timestamp("us"), _TIMES.map(lambda each: _EPOCH.replace(tzinfo=None) + dt.timedelta(microseconds=each))),
    (pa.decimal128(9, 2), st.integers(-(10**9) + 1, 10**9 - 1).map(lambda each: Decimal(each).scaleb(-2))),
    (pa.decimal128(38, 0), st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal)),
]


def types() -> st.SearchStrategy[pa.DataType]:
    """Types, of structs and lists too."""
    leaves = st.sampled_from([each for each, _ in LEAVES])
    return st.recursive(leaves, _made_of, max_leaves=6)


def structs() -> st.SearchStrategy[pa.DataType]:
    """Types of rows."""
    return _struct(types())


def rows_of(arrow: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type, none of them null at the top."""
    for leaf, values in LEAVES:
        if arrow == leaf:
            return values
    if pa.types.is_struct(arrow):
        return st.fixed_dictionaries({each.name: _part(each) for each in arrow})
    if pa.types.is_map(arrow):
        pairs = st.dictionaries(st.text(max_size=3), _part(arrow.item_field), max_size=3)
        return pairs.map(lambda each: list(each.items()))
    return st.lists(_part(arrow.value_field), max_size=3)


def _made_of(parts: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    nullable = st.booleans()
    lists = st.builds(lambda part, null: pa.list_(pa.field("item", part, null)), parts, nullable)
    maps = st.builds(lambda part, null: pa.map_(pa.string(), pa.field("value", part, null)), parts, nullable)
    return _struct(parts) | lists | maps


def _struct(parts: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    fields = st.dictionaries(st.sampled_from(["a", "b", "C", "a_b", "_d"]), st.tuples(parts, st.booleans()), max_size=4)
    return fields.map(lambda made: pa.struct([pa.field(name, part, null) for name, (part, null) in made.items()]))


def _part(part: pa.Field) -> st.SearchStrategy[Any]:
    values = rows_of(part.type)
    return st.none() | values if part.nullable else values
