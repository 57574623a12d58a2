# SPDX-License-Identifier: Apache-2.0
"""Programs that write columns as values of an Avro schema, in Avro's binary form or as JSON text.

A program is made once for a schema and the type of the columns, and refuses there what no row could be written with:
columns that the schema does not have, fields without a default that have no column, types that do not widen. Nulls that
the schema does not have, unknown symbols and the like are found in their row.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa

from broker_core.base.errors import UsageError
from broker_core.base.suggest import did_you_mean
from broker_core.schemas.avro.defaults import fits
from broker_core.schemas.avro.encoding import encoded_default, zigzag
from broker_core.schemas.avro.resolving import STEPS_MAX
from broker_core.schemas.avro.types import Array, AvroType, Enum, Field, Fixed, Map, NoDefault, Primitive, Record, Union
from broker_core.values.cells import Maker, ends, presence_alone, spans, text_spans
from broker_core.values.leaves import NO_TEXT, Leaf, avro_leaf, json_leaf
from broker_core.values.write_program import Column, Program, field_of, list_items_of, map_items_of, map_keys_of


class MismatchError(UsageError):
    """Columns of this type cannot be written with this schema, whatever rows have. The message begins with a path."""


def avro_program(schema: AvroType, arrow: pa.DataType, column: str) -> Program:
    """The program that writes columns of type ``arrow`` in Avro's binary form; MismatchError. ``column``: the name of
    the one that they are in, with which paths begin."""
    return _Avro().made(schema, arrow, column)


def json_program(schema: AvroType, arrow: pa.DataType, column: str) -> Program:
    """The program that writes columns of type ``arrow`` as JSON; MismatchError."""
    return _Json().made(schema, arrow, column)


class _Compiler:
    """One program under way. What forms have in common is here. ``nothing``: a value of the type null."""

    nothing: ClassVar[bytes]

    def __init__(self) -> None:
        self._to = Program()

    def made(self, schema: AvroType, arrow: pa.DataType, column: str) -> Program:
        self._to.root = self._value(schema, arrow, column)
        return self._to

    def _value(self, schema: AvroType, arrow: pa.DataType, path: str) -> tuple[int, Column]:
        """The node for a value of ``schema``, and its column."""
        match schema:
            case Union():
                return self._union(schema, arrow, path)
            case Record() if pa.types.is_struct(arrow):
                return self._record(schema, arrow, path)
            case Array() if pa.types.is_list(arrow):
                return self._array(schema, arrow, path)
            case Map() if pa.types.is_map(arrow):
                return self._map(schema, arrow, path)
        leaf = self._leaf(schema, arrow)
        if leaf is None:
            raise _mismatch(path, arrow, schema)
        column = self._column(leaf.make)
        node = self._to.node(path, leaf.kind, column.number, leaf.number, misfit=leaf.misfit)
        if leaf.kind == "null":
            node = self._to.node(path, "optional", column.number, self._to.literal(self.nothing), node)
        return node, column

    def _column(self, make: Maker) -> Column:
        self._to.columns += 1
        return Column(self._to.columns - 1, make)

    def _record(self, schema: Record, arrow: pa.StructType, path: str) -> tuple[int, Column]:
        given = {each.name: number for number, each in enumerate(arrow)}
        check_names(f"record {schema.name.full}", list(schema.by_name), given, path)
        number = self._column(presence_alone).number
        nodes, parts = [], []
        for each in schema.fields:
            below = f"{path}.{each.name}" if path else each.name
            if each.name in given:
                node, part = self._value(each.type, arrow[given[each.name]].type, below)
                parts.append((field_of(given[each.name]), part))
                nodes.append(node)
            else:
                nodes.append(self._to.literal(self._left_out(each, below)))
        node = self._to.listed(path, self._fields(schema, nodes), column=number)
        return node, Column(number, presence_alone, parts)

    def _array(self, schema: Array, arrow: pa.ListType, path: str) -> tuple[int, Column]:
        number = self._column(ends).number
        item, part = self._value(schema.items, arrow.value_type, f"{path}[]")
        return self._items(path, number, item, "[]"), Column(number, ends, [(list_items_of, part)])

    def _map(self, schema: Map, arrow: pa.MapType, path: str) -> tuple[int, Column]:
        if not pa.types.is_string(arrow.key_type):
            raise _mismatch(path, arrow, schema)
        number = self._column(ends).number
        key = self._column(self._key_cells())
        value, part = self._value(schema.values, arrow.item_type, f"{path}{{}}")
        node = self._items(path, number, self._pair(path, key.number, value), "{}")
        return node, Column(number, ends, [(map_keys_of, key), (map_items_of, part)])

    def _union(self, schema: Union, arrow: pa.DataType, path: str) -> tuple[int, Column]:
        """The one branch that takes the column, or members by their numbers; null if the union has it."""
        others = [each for each in schema.branches if each.kind != "null"]
        if not others:
            node, column = self._value(Primitive("null"), arrow, path)
        elif len(others) > 1 and _is_of_members(arrow, len(others)):
            node, column = self._members(schema, others, arrow, path)
        else:
            node, column = self._branch(schema, others, arrow, path)
        null = next((number for number, each in enumerate(schema.branches) if each.kind == "null"), None)
        if null is None:
            return node, column
        absent = self._to.literal(self._null(null))
        return self._to.node(path, "optional", column.number, absent, node), column

    def _branch(self, schema: Union, others: Sequence[AvroType], arrow: pa.DataType, path: str) -> tuple[int, Column]:
        flaws = []
        for branch in sorted(others, key=lambda each: not self._is_exact(each, arrow)):
            try:
                node, column = self._value(branch, arrow, path)
            except MismatchError as flaw:
                flaws.append(flaw)
                continue
            return self._chosen(path, schema, branch, node), column
        if len(flaws) == 1:
            raise flaws[0]
        raise _mismatch(path, arrow, schema)

    def _is_exact(self, branch: AvroType, arrow: pa.DataType) -> bool:
        leaf = self._leaf(branch, arrow)
        return leaf is None or leaf.is_exact

    def _members(
        self, schema: Union, others: Sequence[AvroType], arrow: pa.StructType, path: str
    ) -> tuple[int, Column]:
        number = self._column(presence_alone).number
        pairs, parts = [], []
        for at, branch in enumerate(others):
            node, part = self._value(branch, arrow[at].type, f"{path}.{arrow[at].name}")
            pairs += [part.number, self._chosen(path, schema, branch, node)]
            parts.append((field_of(at), part))
        return self._to.listed(path, pairs, "choice", number), Column(number, presence_alone, parts)

    # -- differences between the forms

    def _leaf(self, schema: AvroType, arrow: pa.DataType) -> Leaf | None:
        raise NotImplementedError

    def _left_out(self, absent: Field, path: str) -> bytes:
        raise NotImplementedError

    def _fields(self, schema: Record, nodes: list[int]) -> list[int]:
        raise NotImplementedError

    def _items(self, path: str, column: int, item: int, ends: str) -> int:
        raise NotImplementedError

    def _pair(self, path: str, key: int, value: int) -> int:
        raise NotImplementedError

    def _key_cells(self) -> Maker:
        return spans

    def _null(self, branch: int) -> bytes:
        raise NotImplementedError

    def _chosen(self, path: str, schema: Union, branch: AvroType, node: int) -> int:
        raise NotImplementedError


class _Avro(_Compiler):
    """Avro's binary form."""

    nothing = b""

    def _leaf(self, schema: AvroType, arrow: pa.DataType) -> Leaf | None:
        return avro_leaf(schema, arrow)

    def _left_out(self, absent: Field, path: str) -> bytes:
        return encoded_default(absent.type, _default(absent, path))

    def _fields(self, schema: Record, nodes: list[int]) -> list[int]:
        return nodes

    def _items(self, path: str, column: int, item: int, ends: str) -> int:
        return self._to.node(path, "block", column, item)

    def _pair(self, path: str, key: int, value: int) -> int:
        return self._to.listed(path, [self._to.node(path, "text", key), value])

    def _null(self, branch: int) -> bytes:
        return zigzag(branch)

    def _chosen(self, path: str, schema: Union, branch: AvroType, node: int) -> int:
        return self._to.listed(path, [self._to.literal(zigzag(schema.branches.index(branch))), node])


class _Json(_Compiler):
    """JSON text. A null stands there, as a field that is left out would be read as its default."""

    nothing = b"null"

    def _leaf(self, schema: AvroType, arrow: pa.DataType) -> Leaf | None:
        return json_leaf(schema, arrow)

    def _left_out(self, absent: Field, path: str) -> bytes:
        return json.dumps(_json_default(absent.type, _default(absent, path)), ensure_ascii=False).encode()

    def _fields(self, schema: Record, nodes: list[int]) -> list[int]:
        if not nodes:
            return [self._to.literal(b"{}")]
        parts = []
        for number, (each, node) in enumerate(zip(schema.fields, nodes, strict=True)):
            name = json.dumps(each.name, ensure_ascii=False).encode()
            parts += [self._to.literal((b"," if number else b"{") + name + b":"), node]
        return [*parts, self._to.literal(b"}")]

    def _items(self, path: str, column: int, item: int, ends: str) -> int:
        return self._to.node(path, "joined", column, item, ord(ends[0]), ord(ends[1]))

    def _pair(self, path: str, key: int, value: int) -> int:
        name = self._to.node(path, "quoted", key, misfit=f"has a key that {NO_TEXT}")
        return self._to.listed(path, [name, self._to.literal(b":"), value])

    def _key_cells(self) -> Maker:
        return text_spans

    def _null(self, branch: int) -> bytes:
        return self.nothing

    def _chosen(self, path: str, schema: Union, branch: AvroType, node: int) -> int:
        return node

    def _members(
        self, schema: Union, others: Sequence[AvroType], arrow: pa.StructType, path: str
    ) -> tuple[int, Column]:
        raise MismatchError(
            f"{subject(path)} is a union of several types, and JSON does not say which of them a value is",
            hint="leave it out, or write with an Avro schema",
        )


def _is_of_members(arrow: pa.DataType, count: int) -> bool:
    """Whether a column is such as a union of several types is read into."""
    return pa.types.is_struct(arrow) and [each.name for each in arrow] == [f"member{at}" for at in range(count)]


# -- names and defaults


def check_names(record: str, fields: Sequence[str], given: Iterable[str], path: str) -> None:
    """MismatchError for a column that is no field of ``record``."""
    for name in given:
        if name not in fields:
            known = f"its fields are {', '.join(fields)}" if fields else "it has no fields"
            raise MismatchError(
                f"{subject(f'{path}.{name}' if path else name)} is none of {record}",
                hint=did_you_mean(name, fields, otherwise=f"{known}; drop or rename the column"),
            )


def _default(absent: Field, path: str) -> Any:
    """The value of a field that has no column: its default, or null."""
    if not isinstance(absent.default, NoDefault):
        if fits(absent.type, absent.default, STEPS_MAX):
            return absent.default
        raise MismatchError(f"there is no column {path}, and its default in the schema does not fit its own type")
    takes_null = absent.type.kind == "null" or (
        isinstance(absent.type, Union) and any(each.kind == "null" for each in absent.type.branches)
    )
    if takes_null:
        return None
    raise MismatchError(
        f"there is no column {path}, and the schema has no default for it", hint="add the column, or a default"
    )


def _json_default(schema: AvroType, value: Any) -> Any:
    """A default as a value of its type: bytes are base64 in values, and characters in defaults."""
    match schema:
        case Record():
            given = value if isinstance(value, dict) else {}
            return {each.name: _json_default(each.type, given.get(each.name, each.default)) for each in schema.fields}
        case Array():
            return [_json_default(schema.items, each) for each in value] if isinstance(value, list) else []
        case Map():
            pairs = value.items() if isinstance(value, dict) else ()
            return {key: _json_default(schema.values, each) for key, each in pairs}
        case Union():
            branch = next(each for each in schema.branches if fits(each, value, STEPS_MAX))
            return _json_default(branch, value)
    if schema.kind not in ("bytes", "fixed"):
        return value
    data = str(value).encode("latin-1")
    if schema.properties.get("logicalType") == "decimal":
        return str(Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-schema.properties.get("scale", 0)))
    return base64.b64encode(data).decode()


def _mismatch(path: str, arrow: pa.DataType, schema: AvroType) -> MismatchError:
    return MismatchError(
        f"{subject(path)} is {arrow}, which does not fit its schema, {shown(schema)}",
        hint="cast it, or leave it out if the schema has a default for it",
    )


def subject(path: str) -> str:
    """The words for a column in an error."""
    return f"column {path}" if path else "the value"


def shown(schema: AvroType) -> str:
    """A type in a few words."""
    match schema:
        case Union():
            return " or ".join(shown(each) for each in schema.branches)
        case Array():
            return f"array of {shown(schema.items)}"
        case Map():
            return f"map of {shown(schema.values)}"
        case Record() | Enum():
            return f"{schema.kind} {schema.name.full}"
    logical = schema.properties.get("logicalType")
    size = f"({schema.size})" if isinstance(schema, Fixed) else ""
    return f"{schema.kind}{size}" + (f" as {logical}" if logical else "")
