# SPDX-License-Identifier: Apache-2.0
"""Targets: the columns that values of a schema become, as a tree, and their Arrow types.

Each target has a number; those below it follow, so that a null in it is a null in all of them up to ``last``. Items of
a list are below it too, but have cells of their own number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from broker_core.base.errors import PulsarishError
from broker_core.schemas.avro.types import Array, AvroType, Enum, Fixed, Map, Primitive, Record, Union

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_LOCAL: Final = pa.timestamp("us")
_DECIMAL_DIGITS_MAX: Final = 38

_PRIMITIVES: Final[Mapping[str, pa.DataType]] = {
    "null": pa.string(),  # Spark has no column without a type.
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final[Mapping[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.int64(),
    ("long", "time-micros"): pa.int64(),
    **{("long", f"timestamp-{unit}"): _TIMESTAMP for unit in ("millis", "micros", "nanos")},
    **{("long", f"local-timestamp-{unit}"): _LOCAL for unit in ("millis", "micros", "nanos")},
}
DURATION: Final = pa.struct([(name, pa.int64()) for name in ("months", "days", "millis")])

_WIDEST: Final[Mapping[frozenset[str], str]] = {
    frozenset(("int", "long")): "long",
    frozenset(("float", "double")): "double",
    frozenset(("int", "float")): "double",
    frozenset(("int", "double")): "double",
    frozenset(("int", "float", "double")): "double",
}
"""Unions of numbers of which one holds all without a loss."""


COLUMNS_MAX: Final = 10_000
"""Columns that a schema may become: records that are used twice within records that are used twice could be endless."""


class TooManyColumnsError(PulsarishError):
    """A schema would become too many columns, or columns within columns too deep."""


class RecursiveSchemaError(PulsarishError):
    """A record contains itself, which columns cannot."""


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A column and those below it. ``avro``: what is read into it, of a union with null the other branch."""

    column: int
    last: int
    avro: AvroType
    arrow: pa.DataType
    names: tuple[str, ...] = ()
    parts: tuple[Target, ...] = ()

    @property
    def is_list(self) -> bool:
        """Whether parts are items."""
        return isinstance(self.avro, Array | Map)


def targets_of(schema: AvroType, *, recursive_depth: int = 0) -> Target:
    """The columns of ``schema``. A record may be within itself ``recursive_depth`` times, and is null below.

    RecursiveSchemaError if that is 0 and one is within itself, TooManyColumnsError.
    """
    try:
        return _Making(recursive_depth).target(schema, "", ())
    except RecursionError as error:
        raise TooManyColumnsError("the types of the schema are nested too deep for columns") from error


def columns_of(target: Target) -> list[Target]:
    """``target`` and all below it, by their numbers."""
    return [target, *(each for part in target.parts for each in columns_of(part))]


def _as_void(column: int, avro: AvroType) -> Target:
    return Target(column, column, avro, pa.string())


class _Making:
    def __init__(self, recursive_depth: int) -> None:
        self._recursive_depth = recursive_depth
        self._made = 0

    def target(self, schema: AvroType, path: str, within: tuple[Record, ...]) -> Target:
        if isinstance(schema, Union):
            return self._union(schema, path, within)
        column = self._next_column()
        match schema:
            case Record():
                if within.count(schema) > self._recursive_depth:
                    return self._cut(schema, column, path)
                parts = [self.target(each.type, f"{path}.{each.name}", (*within, schema)) for each in schema.fields]
                return self._struct(column, schema, [each.name for each in schema.fields], parts)
            case Array():
                item = self.target(schema.items, f"{path}[]", within)
                return self._list(column, schema, pa.list_(item.arrow), (item,))
            case Map():
                key = self.target(Primitive("string"), path, within)
                value = self.target(schema.values, f"{path}{{}}", within)
                return self._list(column, schema, pa.map_(pa.string(), value.arrow), (key, value))
            case _:
                return Target(column, column, schema, _leaf(schema))

    def _next_column(self) -> int:
        if self._made == COLUMNS_MAX:
            raise TooManyColumnsError(
                f"the schema would become more than {COLUMNS_MAX} columns", hint="use a smaller recursiveDepth"
            )
        self._made += 1
        return self._made - 1

    def _cut(self, record: Record, column: int, path: str) -> Target:
        if not self._recursive_depth:
            raise RecursiveSchemaError(
                f"{path.lstrip('.')}: record {record.name.full} is within itself",
                hint="say how often it may be with recursiveDepth; what is deeper is null",
            )
        return _as_void(column, Primitive("null"))

    def _union(self, schema: Union, path: str, within: tuple[Record, ...]) -> Target:
        others = [each for each in schema.branches if each.kind != "null"]
        if len(others) == 1:
            return self.target(others[0], path, within)
        kinds = frozenset(each.kind for each in others)
        plain = all(isinstance(each, Primitive) and "logicalType" not in each.properties for each in others)
        if plain and kinds in _WIDEST:
            return self.target(Primitive(_WIDEST[kinds]), path, within)
        column = self._next_column()
        if not others:
            return _as_void(column, Primitive("null"))
        parts = [self.target(each, path, within) for each in others]
        return self._struct(column, schema, [f"member{number}" for number in range(len(others))], parts)

    def _struct(self, column: int, schema: AvroType, names: Sequence[str], parts: Sequence[Target]) -> Target:
        arrow = pa.struct([(name, each.arrow) for name, each in zip(names, parts, strict=True)])
        return Target(column, self._made - 1, schema, arrow, tuple(names), tuple(parts))

    def _list(self, column: int, schema: AvroType, arrow: pa.DataType, parts: tuple[Target, ...]) -> Target:
        return Target(column, self._made - 1, schema, arrow, (), parts)


def _leaf(schema: AvroType) -> pa.DataType:
    match schema:
        case Primitive():
            logical = _logical(schema)
            if schema.kind == "bytes" and logical == "decimal":
                return _decimal(schema.properties) or pa.binary()
            return _LOGICAL.get((schema.kind, logical), _PRIMITIVES[schema.kind])
        case Enum():
            return pa.string()
        case Fixed():
            if _logical(schema) == "decimal":
                return _decimal(schema.properties) or pa.binary()
            if _logical(schema) == "uuid" and schema.size == 16:
                return pa.string()
            return DURATION if _logical(schema) == "duration" and schema.size == 12 else pa.binary()
        case _:
            raise TypeError(schema)


def _logical(schema: Primitive | Fixed) -> str:
    return str(schema.properties.get("logicalType", ""))


def _decimal(properties: Mapping[str, Any]) -> pa.DataType | None:
    """The type of a decimal that Arrow and Spark have; None for one that is too long, or says nothing of use."""
    precision, scale = properties.get("precision"), properties.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        return None
    return (
        pa.decimal128(precision, scale) if 0 <= scale <= precision and 1 <= precision <= _DECIMAL_DIGITS_MAX else None
    )
