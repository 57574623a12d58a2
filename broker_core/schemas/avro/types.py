# SPDX-License-Identifier: Apache-2.0
"""The parts of an Avro schema, once it is parsed. Types are equal by identity; ``equality`` compares them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

PRIMITIVES: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))


class Name(NamedTuple):
    """The name of a record, enum or fixed: its namespace, "" for none, and its short name."""

    space: str
    short: str

    @property
    def full(self) -> str:
        """The name with its namespace."""
        return f"{self.space}.{self.short}" if self.space else self.short


class NoDefault:
    """The type of ``NO_DEFAULT``: null is a default like any other."""

    def __repr__(self) -> str:
        return "NO_DEFAULT"


NO_DEFAULT: Final = NoDefault()


@dataclass(frozen=True, slots=True, eq=False)
class Primitive:
    """One of ``PRIMITIVES``. ``properties``: attributes that Avro itself does not know, such as ``logicalType``."""

    kind: str
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A field of a record. ``default``: as in the JSON text, or NO_DEFAULT."""

    name: str
    type: AvroType
    default: Any = NO_DEFAULT
    order: str = "ascending"
    aliases: tuple[str, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Record:
    """A record. Its fields are known a moment after its name, as they may refer to it."""

    name: Name
    aliases: tuple[Name, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)
    fields: Sequence[Field] = ()
    by_name: Mapping[str, Field] = field(default_factory=dict)
    kind: Final = "record"


@dataclass(frozen=True, slots=True, eq=False)
class Enum:
    """An enum. ``default``: the symbol that stands for unknown ones, or None."""

    name: Name
    symbols: tuple[str, ...]
    default: str | None = None
    aliases: tuple[Name, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)
    kind: Final = "enum"


@dataclass(frozen=True, slots=True, eq=False)
class Fixed:
    """``size`` bytes."""

    name: Name
    size: int
    aliases: tuple[Name, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)
    kind: Final = "fixed"


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """A list of items of one type."""

    items: AvroType
    properties: Mapping[str, Any] = field(default_factory=dict)
    kind: Final = "array"


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    """Values of one type by keys that are text."""

    values: AvroType
    properties: Mapping[str, Any] = field(default_factory=dict)
    kind: Final = "map"


@dataclass(frozen=True, slots=True, eq=False)
class Union:
    """One of several types."""

    branches: tuple[AvroType, ...]
    kind: Final = "union"


Named: TypeAlias = Record | Enum | Fixed
AvroType: TypeAlias = Primitive | Record | Enum | Fixed | Array | Map | Union


def named_types(schema: AvroType) -> Iterator[Named]:
    """Each record, enum and fixed of a schema once, in the order of their definitions."""
    seen: set[int] = set()
    pending: list[AvroType] = [schema]
    while pending:
        each = pending.pop()
        if isinstance(each, Record | Enum | Fixed):
            if id(each) in seen:
                continue
            seen.add(id(each))
            yield each
        pending.extend(reversed(parts(each)))


def parts(schema: AvroType) -> tuple[AvroType, ...]:
    """The types that a type is made of."""
    match schema:
        case Record():
            return tuple(each.type for each in schema.fields)
        case Array():
            return (schema.items,)
        case Map():
            return (schema.values,)
        case Union():
            return schema.branches
        case _:
            return ()
