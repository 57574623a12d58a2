# SPDX-License-Identifier: Apache-2.0
"""Aliases of a reader: the names that it knows for what a writer calls otherwise.

They rename the writer's schema before the two are compared. Aliases of fields work where the writer's record has the
full name of the reader's, or is renamed to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from broker_core.schemas.avro.equality import same
from broker_core.schemas.avro.types import Array, AvroType, Enum, Fixed, Map, Name, Record, Union, named_types


class AliasClashError(Exception):
    """Two fields of a record have one name, once the writer is renamed."""


@dataclass(slots=True)
class _Renames:
    """New names of types by their old ones, and for each record by its new name those of its fields."""

    types: dict[Name, Name] = field(default_factory=dict)
    fields: dict[Name, dict[str, str]] = field(default_factory=dict)


def renamed(writer: AvroType, reader: AvroType) -> AvroType:
    """``writer`` under the names that ``reader`` has for it; AliasClashError."""
    renames = _renames_of(reader)
    if not (renames.types or renames.fields) or same(writer, reader):
        return writer
    return _renamed(writer, renames, {})


def _renames_of(reader: AvroType) -> _Renames:
    renames = _Renames()
    for each in named_types(reader):
        for alias in each.aliases:
            renames.types[alias] = each.name
        if not isinstance(each, Record):
            continue
        if fields := {alias: one.name for one in each.fields for alias in one.aliases}:
            for name in (each.name, *each.aliases):
                renames.fields.setdefault(name, {}).update(fields)
    return renames


def _renamed(writer: AvroType, renames: _Renames, done: dict[int, Record]) -> AvroType:
    match writer:
        case Record():
            return done[id(writer)] if id(writer) in done else _renamed_record(writer, renames, done)
        case Enum() | Fixed():
            return replace(writer, name=renames.types.get(writer.name, writer.name))
        case Array():
            return replace(writer, items=_renamed(writer.items, renames, done))
        case Map():
            return replace(writer, values=_renamed(writer.values, renames, done))
        case Union():
            return Union(tuple(_renamed(each, renames, done) for each in writer.branches))
        case _:
            return writer


def _renamed_record(writer: Record, renames: _Renames, done: dict[int, Record]) -> Record:
    name = renames.types.get(writer.name, writer.name)
    names = renames.fields.get(name, {})
    record = done[id(writer)] = Record(name, writer.aliases, writer.properties)
    record.fields = tuple(
        replace(each, name=names.get(each.name, each.name), type=_renamed(each.type, renames, done))
        for each in writer.fields
    )
    record.by_name = {each.name: each for each in record.fields}
    if len(record.by_name) != len(record.fields):
        raise AliasClashError(f"two fields of record {name.full} have one name by their aliases")
    return record
