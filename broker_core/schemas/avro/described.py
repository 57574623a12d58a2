# SPDX-License-Identifier: Apache-2.0
"""Avro types in words for people, and the differences of two schemas, field by field.

Documentation, aliases and the order of fields are no differences: they change nothing for readers with the same names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from broker_core.schemas.avro.resolving import Conflict
from broker_core.schemas.avro.types import (
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    NoDefault,
    Primitive,
    Record,
    Union,
    named_types,
)

FIELDS_TOLD: Final = 1000
"""Fields of one comparison that are looked at: those of a few large records in one another would not end."""

DEPTH_MAX: Final = 64
"""Records in one another that are looked into."""


class Column(NamedTuple):
    """A field in words. ``default``: as JSON text, or None."""

    path: str
    type: str
    default: str | None


class Difference(NamedTuple):
    """A field that differs, with its type and default in either schema. None: the field is not there."""

    path: str
    old: str | None
    new: str | None


def described(schema: AvroType) -> str:
    """A type in words; records by their names."""
    match schema:
        case Record():
            return f"record {schema.name.full}"
        case Enum():
            default = "" if schema.default is None else f", else {schema.default}"
            return f"enum {schema.name.full} ({', '.join(schema.symbols)}{default})"
        case Fixed():
            return f"fixed {schema.name.full} ({schema.size} bytes){_logical(schema)}"
        case Array():
            return f"array of {described(schema.items)}"
        case Map():
            return f"map of {described(schema.values)}"
        case Union():
            return " | ".join(map(described, schema.branches))
        case _:
            return f"{schema.kind}{_logical(schema)}"


def columns(schema: AvroType) -> list[Column]:
    """The fields of a record, and of the records in it; of another type the type alone, under an empty path."""
    if not isinstance(schema, Record):
        return [Column("", described(schema), None)]
    return list(islice(_columns(schema, "", frozenset((id(schema),))), FIELDS_TOLD))


def _columns(record: Record, path: str, above: frozenset[int]) -> Iterator[Column]:
    for each in record.fields:
        below = _below(path, each)
        yield Column(below, described(each.type), None if isinstance(each.default, NoDefault) else _json(each.default))
        place, inner = _content(each.type)
        if isinstance(inner, Record) and id(inner) not in above and len(above) < DEPTH_MAX:
            yield from _columns(inner, below + place, above | {id(inner)})


def differences(old: AvroType, new: AvroType) -> list[Difference]:
    """Differences of two schemas, in the order of the new one; fields that are gone come last in their record."""
    pairs = islice(_pairs(old, new), FIELDS_TOLD)
    told = (Difference(each.path, _words(each.old), _words(each.new)) for each in pairs)
    return [each for each in told if each.old != each.new]


def pitfalls(writer: AvroType, reader: AvroType) -> list[Conflict]:
    """Changes that count as compatible, and by which readers may fail or get other values: symbols that a reader does
    not know, and logical types that it takes for others."""
    found = []
    for path, written, read in islice(_pairs(writer, reader), FIELDS_TOLD):
        if written is not None and read is not None:
            reason = _pitfall(_content(written.type)[1], _content(read.type)[1])
            found += [Conflict(path, reason)] if reason else []
    return found


def _pitfall(writer: AvroType, reader: AvroType) -> str:
    if isinstance(writer, Enum) and isinstance(reader, Enum):
        unknown = [each for each in writer.symbols if each not in reader.symbols]
        if unknown and reader.default is None:
            return f"data with the symbol {' or '.join(unknown)} cannot be read: add a default to the enum"
    elif isinstance(writer, Primitive | Fixed) and isinstance(reader, Primitive | Fixed):
        was, read = described(writer), described(reader)
        if writer.kind == reader.kind and _logical(writer) != _logical(reader):
            return f"{was} may be read as {read}, which is another value"
    return ""


def alias_names(schema: AvroType) -> frozenset[tuple[str, str]]:
    """Each alias of a schema: of a type by its full name, of a field by its record's name and its own."""
    found = set[tuple[str, str]]()
    for each in named_types(schema):
        found.update((each.name.full, alias.full) for alias in each.aliases)
        for field in each.fields if isinstance(each, Record) else ():
            found.update((f"{each.name.full}.{field.name}", alias) for alias in field.aliases)
    return frozenset(found)


class _Pair(NamedTuple):
    """A field of two schemas. None: the field is not there."""

    path: str
    old: Field | None
    new: Field | None


def _pairs(old: AvroType, new: AvroType) -> Iterator[_Pair]:
    """The two schemas as fields without a name, and the fields of all records in them that are at the same place.
    Pairs of records come once, so that recursion ends."""
    return _below_pair(_Pair("", Field("", old), Field("", new)), set(), DEPTH_MAX)


def _below_pair(pair: _Pair, seen: set[tuple[int, int]], levels: int) -> Iterator[_Pair]:
    yield pair
    if pair.old is None or pair.new is None or not levels:
        return
    for place, old, new in _records(pair.old.type, pair.new.type):
        if (id(old), id(new)) in seen:
            continue
        seen.add((id(old), id(new)))
        for each in new.fields:
            below = _Pair(_below(pair.path + place, each), old.by_name.get(each.name), each)
            yield from _below_pair(below, seen, levels - 1)
        for each in old.fields:
            if each.name not in new.by_name:
                yield _Pair(_below(pair.path + place, each), each, None)


def _records(old: AvroType, new: AvroType) -> Iterator[tuple[str, Record, Record]]:
    """Records at one place of two types; branches of unions by their names."""
    (old_place, old_inner), (place, new_inner) = _content(old), _content(new)
    if place != old_place:
        return
    if isinstance(old_inner, Record) and isinstance(new_inner, Record):
        yield place, old_inner, new_inner
    elif isinstance(old_inner, Union) and isinstance(new_inner, Union):
        named = {each.name: each for each in old_inner.branches if isinstance(each, Record)}
        for each in new_inner.branches:
            if isinstance(each, Record) and each.name in named:
                yield place, named[each.name], each


def _content(schema: AvroType) -> tuple[str, AvroType]:
    """The type within arrays, maps and unions with null, and where it is: ``[]`` for items, ``{}`` for values."""
    place = ""
    while True:
        match schema:
            case Array():
                place, schema = f"{place}[]", schema.items
            case Map():
                place, schema = f"{place}{{}}", schema.values
            case Union() if len(rest := [each for each in schema.branches if each.kind != "null"]) == 1:
                schema = rest[0]
            case _:
                return place, schema


def _below(path: str, field: Field) -> str:
    return f"{path}.{field.name}" if path else field.name


def _words(field: Field | None) -> str | None:
    if field is None:
        return None
    words = described(field.type)
    return words if isinstance(field.default, NoDefault) else f"{words} = {_json(field.default)}"


def _logical(schema: Primitive | Fixed) -> str:
    logical = schema.properties.get("logicalType")
    if logical == "decimal":
        return f" decimal({schema.properties.get('precision')}, {schema.properties.get('scale', 0)})"
    return f" {logical}" if isinstance(logical, str) else ""


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
