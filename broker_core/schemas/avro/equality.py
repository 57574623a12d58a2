# SPDX-License-Identifier: Apache-2.0
"""Whether two Avro schemas are the same one: no new version of a topic's schema is made then.

Documentation, aliases and the default of an enum make no difference, as in Java's library; each attribute that Avro
does not know does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker_core.schemas.avro.types import Array, AvroType, Enum, Field, Fixed, Map, NoDefault, Record, Union


def same(one: AvroType, other: AvroType) -> bool:
    """Whether ``one`` and ``other`` are equal."""
    return _same(one, other, set())


def _same(one: AvroType, other: AvroType, under_way: set[tuple[int, int]]) -> bool:
    if one is other:
        return True
    if one.kind != other.kind:
        return False
    if isinstance(one, Union) and isinstance(other, Union):
        return _all_same(one.branches, other.branches, under_way)
    if isinstance(one, Union) or isinstance(other, Union) or not same_json(one.properties, other.properties):
        return False
    match one, other:
        case Record(), Record():
            return one.name == other.name and _same_fields(one, other, under_way)
        case Enum(), Enum():
            return one.name == other.name and one.symbols == other.symbols
        case Fixed(), Fixed():
            return one.name == other.name and one.size == other.size
        case Array(), Array():
            return _same(one.items, other.items, under_way)
        case Map(), Map():
            return _same(one.values, other.values, under_way)
    return True


def _all_same(ones: tuple[AvroType, ...], others: tuple[AvroType, ...], under_way: set[tuple[int, int]]) -> bool:
    if len(ones) != len(others):
        return False
    return all(_same(one, other, under_way) for one, other in zip(ones, others, strict=True))


def _same_fields(one: Record, other: Record, under_way: set[tuple[int, int]]) -> bool:
    pair = (id(one), id(other))
    if pair in under_way:
        return True
    under_way.add(pair)
    if len(one.fields) != len(other.fields):
        return False
    return all(_same_field(a, b, under_way) for a, b in zip(one.fields, other.fields, strict=True))


def _same_field(one: Field, other: Field, under_way: set[tuple[int, int]]) -> bool:
    return (
        one.name == other.name
        and one.order == other.order
        and _same_default(one.default, other.default)
        and same_json(one.properties, other.properties)
        and _same(one.type, other.type, under_way)
    )


def _same_default(one: Any, other: Any) -> bool:
    if isinstance(one, NoDefault) or isinstance(other, NoDefault):
        return one is other
    return same_json(one, other)


def same_json(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same: 1 is neither 1.0 nor true, and NaN is NaN."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_json(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    if type(one) is not type(other):
        return False
    return bool(one == other or (one != one and other != other))
