# SPDX-License-Identifier: Apache-2.0
"""Random data of a schema: Avro's bytes, and what its columns should show as Python's values."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from typing import Any, NamedTuple

from hypothesis import strategies as st

from broker_core.schemas.avro.encoding import zigzag
from broker_core.schemas.avro.types import Array, AvroType, Enum, Fixed, Map, Primitive, Record, Union

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MS = st.integers(-10_000_000_000_000, 10_000_000_000_000)


class Datum(NamedTuple):
    """One value."""

    data: bytes
    shown: Any


def data_of(schema: AvroType) -> st.SearchStrategy[Datum]:
    """Values of ``schema``, which contains itself nowhere."""
    match schema:
        case Record():
            parts = st.tuples(*(data_of(each.type) for each in schema.fields))
            names = [each.name for each in schema.fields]
            return parts.map(
                lambda found: _joined(found, dict(zip(names, (each.shown for each in found), strict=True)))
            )
        case Array():
            return st.lists(data_of(schema.items), max_size=3).map(_array)
        case Map():
            pairs = st.dictionaries(st.text(max_size=3), data_of(schema.values), max_size=3)
            return pairs.map(_map)
        case Union():
            return st.integers(0, len(schema.branches) - 1).flatmap(lambda number: _branch(schema, number))
        case Enum():
            return st.sampled_from(schema.symbols).map(lambda each: Datum(zigzag(schema.symbols.index(each)), each))
        case Fixed():
            return st.binary(min_size=schema.size, max_size=schema.size).map(lambda each: Datum(each, each))
        case Primitive():
            return _primitive(schema)


def _joined(found: tuple[Datum, ...], shown: Any) -> Datum:
    return Datum(b"".join(each.data for each in found), shown)


def _array(items: list[Datum]) -> Datum:
    data = b"".join(each.data for each in items)
    return Datum((zigzag(len(items)) + data if items else b"") + b"\0", [each.shown for each in items])


def _map(pairs: dict[str, Datum]) -> Datum:
    data = b"".join(_sized(key.encode()) + each.data for key, each in pairs.items())
    # With its size in front, as some writers do it.
    block = zigzag(-len(pairs)) + zigzag(len(data)) + data if pairs else b""
    return Datum(block + b"\0", [(key, each.shown) for key, each in pairs.items()])


def _branch(schema: Union, number: int) -> st.SearchStrategy[Datum]:
    others = [each for each in schema.branches if each.kind != "null"]
    branch = schema.branches[number]

    def shown(value: Any) -> Any:
        kinds = {each.kind for each in others}
        if branch.kind == "null" or len(others) == 1:
            return value
        plain = all(isinstance(each, Primitive) and "logicalType" not in each.properties for each in others)
        if plain and (kinds == {"int", "long"} or (kinds <= {"int", "float", "double"})):
            return value if kinds == {"int", "long"} else float(value)
        return {f"member{n}": value if each is branch else None for n, each in enumerate(others)}

    return data_of(branch).map(lambda each: Datum(zigzag(number) + each.data, shown(each.shown)))


def _primitive(schema: Primitive) -> st.SearchStrategy[Datum]:
    match schema.kind, schema.properties.get("logicalType"):
        case "null", _:
            return st.just(Datum(b"", None))
        case "boolean", _:
            return st.booleans().map(lambda each: Datum(bytes([each]), each))
        case "int", "date":
            days = st.integers(-100_000, 100_000)
            return days.map(lambda each: Datum(zigzag(each), (EPOCH + dt.timedelta(each)).date()))
        case "int", _:
            return st.integers(-(2**31), 2**31 - 1).map(lambda each: Datum(zigzag(each), each))
        case "long", "timestamp-millis":
            return _MS.map(lambda ms: Datum(zigzag(ms), EPOCH + dt.timedelta(milliseconds=ms)))
        case "long", _:
            return st.integers(-(2**63), 2**63 - 1).map(lambda each: Datum(zigzag(each), each))
        case "float", _:
            return st.floats(width=32, allow_nan=False).map(lambda each: Datum(struct.pack("<f", each), each))
        case "double", _:
            return st.floats(allow_nan=False).map(lambda each: Datum(struct.pack("<d", each), each))
        case "bytes", "decimal":
            return st.integers(-999_999, 999_999).map(_decimal)
        case "bytes", _:
            return st.binary(max_size=9).map(lambda each: Datum(_sized(each), each))
        case _:
            return st.text(max_size=9).map(lambda each: Datum(_sized(each.encode()), each))


def _decimal(unscaled: int) -> Datum:
    size = unscaled.bit_length() // 8 + 1
    return Datum(_sized(unscaled.to_bytes(size, "big", signed=True)), Decimal(unscaled).scaleb(-2))


def _sized(data: bytes) -> bytes:
    return zigzag(len(data)) + data
