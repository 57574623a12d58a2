# SPDX-License-Identifier: Apache-2.0
"""Programs: how data of a writer's schema is read into the columns of a reader's, for ``wire.core.avro_values``.

A program follows the rules of ``avro.resolving``; what the reader does not have is read over, and a field that the
writer does not have gets its default. Numbers of time are taken by the writer's logical type where it has one: that is
what they mean.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from broker_core.schemas.avro.aliases import AliasClashError, renamed
from broker_core.schemas.avro.encoding import encoded_default
from broker_core.schemas.avro.resolving import IncomparableError, Resolver
from broker_core.schemas.avro.types import Array, AvroType, Enum, Fixed, Map, NoDefault, Primitive, Record, Union
from broker_core.values.targets import Target
from broker_core.wire.core.avro_values import KINDS, SCALES, WORDS

_SKIP: Final = -1


@dataclass(slots=True)
class Programs:
    """Programs into the same columns. ``constants``: defaults, which the source begins with."""

    target: Target
    schema: AvroType
    constants: bytearray = field(default_factory=bytearray)
    _nodes: list[list[int]] = field(default_factory=list)
    _lists: list[int] = field(default_factory=list)

    def add(self, writer: AvroType) -> int:
        """Add a program for data of ``writer``: its first node. Values that cannot be read give rows with a flaw."""
        try:
            return _Compiler(self).read(renamed(writer, self.schema), self.schema, self.target)
        except AliasClashError:
            return self.node("unreadable", _SKIP)

    @property
    def nodes(self) -> NDArray[np.int64]:
        """The nodes of all programs."""
        return np.array(self._nodes, np.int64).reshape(-1, WORDS)

    @property
    def lists(self) -> NDArray[np.int64]:
        """What nodes refer to: symbols, and lists of nodes."""
        return np.array(self._lists or [0], np.int64)

    def node(self, kind: str, column: int, *numbers: int) -> int:
        """Add a node; its number."""
        self._nodes.append([KINDS[kind], column, *numbers, *[0] * (WORDS - 2 - len(numbers))])
        return len(self._nodes) - 1

    def fill(self, node: int, *numbers: int) -> None:
        """Fill in the numbers of a node that was added without."""
        self._nodes[node][2 : 2 + len(numbers)] = numbers

    def listed(self, numbers: list[int]) -> tuple[int, int]:
        """Add a list of numbers: where it begins, and how many."""
        self._lists += numbers
        return len(self._lists) - len(numbers), len(numbers)


class _Compiler:
    """One program under way."""

    def __init__(self, programs: Programs) -> None:
        self._to = programs
        self._resolver = Resolver()
        self._skipped: dict[int, int] = {}

    def read(self, writer: AvroType, reader: AvroType, target: Target) -> int:
        """A node that reads ``writer`` as ``reader`` into ``target``."""
        if isinstance(writer, Union):
            return self._to.node("union", _SKIP, *self._to.listed(self._branches(writer, reader, target)))
        if isinstance(reader, Union):
            branch = self._resolver.branch(writer, reader)
            return self._unreadable() if branch is None else self._member(writer, branch, reader, target)
        if not self._is_readable(writer, reader):
            return self._unreadable()
        if target.avro.kind == "null":
            return self._null(writer, target)
        match writer, reader:
            case Record(), Record():
                return self._record(writer, reader, target)
            case Array(), Array():
                return self._to.node("array", target.column, self.read(writer.items, reader.items, target.parts[0]))
            case Map(), Map():
                key = self._to.node("text", target.parts[0].column)
                value = self.read(writer.values, reader.values, target.parts[1])
                return self._to.node("map", target.column, value, key)
            case Enum(), Enum():
                return self._to.node("enum", target.column, *self._to.listed(_symbols(writer, reader)))
        return self._leaf(writer, target)

    def _is_readable(self, writer: AvroType, reader: AvroType) -> bool:
        """Whether values of ``writer`` can be read, as far as that is not a matter of the values within them."""
        if writer.kind == reader.kind and isinstance(writer, Array | Map):
            return True
        try:
            return not self._resolver.resolved(writer, reader, None).conflicts
        except IncomparableError:
            return False

    def _unreadable(self) -> int:
        return self._to.node("unreadable", _SKIP)

    def _branches(self, writer: Union, reader: AvroType, target: Target) -> list[int]:
        if isinstance(reader, Union) and self._resolver.is_alike(writer, reader):
            pairs = zip(writer.branches, reader.branches, strict=True)
            return [self._member(one, other, reader, target) for one, other in pairs]
        return [self.read(each, reader, target) for each in writer.branches]

    def _member(self, writer: AvroType, branch: AvroType, reader: Union, target: Target) -> int:
        """A value for a branch of a union: for the union's column, or for the member that is the branch's."""
        if branch.kind == "null":
            return self._null(writer, target)
        if not isinstance(target.avro, Union):
            return self.read(writer, branch, target)
        chosen = [each for each in reader.branches if each.kind != "null"].index(branch)
        nodes = [self._to.node("null", each.column) for each in target.parts]
        nodes[chosen] = self.read(writer, branch, target.parts[chosen])
        return self._to.node("record", target.column, *self._to.listed(nodes))

    def _record(self, writer: Record, reader: Record, target: Target) -> int:
        parts = dict(zip(target.names, target.parts, strict=True))
        nodes = []
        for each in writer.fields:
            wanted = reader.by_name.get(each.name)
            nodes.append(
                self._skip(each.type) if wanted is None else self.read(each.type, wanted.type, parts[each.name])
            )
        for each in reader.fields:
            if each.name not in writer.by_name and not isinstance(each.default, NoDefault):
                start = len(self._to.constants)
                self._to.constants += encoded_default(each.type, each.default)
                node = _Compiler(self._to).read(each.type, each.type, parts[each.name])
                nodes.append(self._to.node("default", _SKIP, start, len(self._to.constants), node))
        return self._to.node("record", target.column, *self._to.listed(nodes))

    def _null(self, writer: AvroType, target: Target) -> int:
        """A null, and what was written is read over."""
        null = self._to.node("null", target.column)
        return (
            null
            if writer.kind == "null"
            else self._to.node("record", _SKIP, *self._to.listed([null, self._skip(writer)]))
        )

    def _leaf(self, writer: AvroType, target: Target) -> int:
        match writer:
            case Fixed():
                return self._to.node("fixed", target.column, writer.size)
            case Primitive():
                kind = "text" if writer.kind in ("bytes", "string") else writer.kind
                return self._to.node(kind, target.column, SCALES[_scale(writer, target)])
            case _:
                raise TypeError(writer)

    def _skip(self, writer: AvroType) -> int:
        """A node that reads over a value. A record may be within itself, and so is its node."""
        if id(writer) in self._skipped:
            return self._skipped[id(writer)]
        match writer:
            case Record():
                node = self._skipped[id(writer)] = self._to.node("record", _SKIP)
                self._to.fill(node, *self._to.listed([self._skip(each.type) for each in writer.fields]))
                return node
            case Union():
                return self._to.node("union", _SKIP, *self._to.listed([self._skip(each) for each in writer.branches]))
            case Array():
                return self._to.node("array", _SKIP, self._skip(writer.items))
            case Map():
                return self._to.node("map", _SKIP, self._skip(writer.values), self._to.node("text", _SKIP))
            case Enum():
                return self._to.node("enum", _SKIP, *self._to.listed([0] * len(writer.symbols)))
            case Fixed():
                return self._to.node("fixed", _SKIP, writer.size)
        kind = {"bytes": "text", "string": "text", "null": "nothing"}.get(writer.kind, writer.kind)
        return self._to.node(kind, _SKIP)


def _symbols(writer: Enum, reader: Enum) -> list[int]:
    """The numbers of the reader's symbols for those of the writer; its default for one that it does not have, or -1."""
    known = {symbol: number for number, symbol in enumerate(reader.symbols)}
    unknown = -1 if reader.default is None else known[reader.default]
    return [known.get(symbol, unknown) for symbol in writer.symbols]


def _scale(writer: Primitive, target: Target) -> str:
    """How a number becomes a cell of its column: floats as doubles, times in microseconds."""
    if target.avro.kind in ("float", "double") and writer.kind != "double":
        return "to double"
    logical = writer.properties.get("logicalType", getattr(target.avro, "properties", {}).get("logicalType", ""))
    if target.avro.kind in ("int", "long") and "logicalType" in getattr(target.avro, "properties", {}):
        if str(logical).endswith("-millis"):
            return "times 1000"
        if str(logical).endswith("-nanos"):
            return "by 1000"
    return "plain"
