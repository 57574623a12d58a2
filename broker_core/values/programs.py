# SPDX-License-Identifier: Apache-2.0
"""Programs: how data of a writer's schema is read into the columns of a reader's, for ``wire.core.avro_values``.

A program follows the rules of ``avro.resolving``; what the reader does not have is read over, and a field that the
writer does not have gets its default. Numbers of time are taken by the writer's logical type where it has one: that is
what they mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.schemas.avro.aliases import AliasClashError, renamed
from broker_core.schemas.avro.encoding import UnusableDefaultError, encoded_default
from broker_core.schemas.avro.resolving import IncomparableError, Resolver, shown_type
from broker_core.schemas.avro.types import Array, AvroType, Enum, Fixed, Map, NoDefault, Primitive, Record, Union
from broker_core.values.targets import Target
from broker_core.wire.core.avro_values import FLAWS, KINDS, SCALES, WORDS

_SKIP: Final = -1

_REASON_MAX: Final = 200
PAIRS_MAX: Final = 50_000
"""Pairs of a type and a column that a program is made of at most: unions within unions could make it endless."""


class ProgramTooLongError(Exception):
    """A writer's schema leads to too many pairs of its types and columns."""


@dataclass(slots=True)
class Programs:
    """Programs into the same columns. ``constants``: defaults, which the source begins with. ``paths``: of each node
    the field that it reads. ``reasons``: why a node can read nothing, where there is more to say than the core says."""

    target: Target
    schema: AvroType
    constants: bytearray = field(default_factory=bytearray)
    paths: list[str] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)
    _nodes: list[list[int]] = field(default_factory=list)
    _lists: list[int] = field(default_factory=list)
    _sealed: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def add(self, writer: AvroType) -> int:
        """Add a program for data of ``writer``: its first node. Values that cannot be read give rows with a flaw."""
        self._sealed = None
        try:
            return _Compiler(self).read(renamed(writer, self.schema), self.schema, self.target)
        except (AliasClashError, IncomparableError, ProgramTooLongError, RecursionError):
            return self.node("unreadable", "", _SKIP)

    @property
    def nodes(self) -> NDArray[np.int64]:
        """The nodes of all programs."""
        return self._arrays[0]

    @property
    def lists(self) -> NDArray[np.int64]:
        """Numbers that nodes refer to: symbols, and lists of nodes."""
        return self._arrays[1]

    @property
    def _arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if self._sealed is None:
            nodes = np.array(self._nodes, np.int64).reshape(-1, WORDS)
            self._sealed = nodes, np.array(self._lists or [0], np.int64)
        return self._sealed

    def node(self, kind: str, path: str, column: int, *numbers: int) -> int:
        """Add a node; its number."""
        self._nodes.append([KINDS[kind], column, *numbers, *[0] * (WORDS - 2 - len(numbers))])
        self.paths.append(path)
        return len(self._nodes) - 1

    def told(self, node: int, flaw: int) -> str:
        """A flaw that a row has at a node."""
        return told(self.paths[node], self.reasons.get(node, FLAWS[flaw]))

    def fill(self, node: int, *numbers: int) -> None:
        """Fill in the numbers of a node that was added without."""
        self._nodes[node][2 : 2 + len(numbers)] = numbers

    def listed(self, numbers: list[int]) -> tuple[int, int]:
        """Add a list of numbers: where it begins, and how many."""
        self._lists += numbers
        return len(self._lists) - len(numbers), len(numbers)


def unreadable_parts(writer: AvroType, reader: AvroType, target: Target) -> list[str]:
    """The reasons why parts of what ``writer`` has cannot be read into ``target``, each behind its path."""
    programs = Programs(target, reader)
    programs.add(writer)
    return [told(programs.paths[node], reason) for node, reason in programs.reasons.items()]


def told(path: str, reason: str) -> str:
    """The reason of a flaw in the field at ``path``, or in the value itself."""
    return f"{path}: {reason}" if path else reason


class _Compiler:
    """One program under way."""

    def __init__(self, programs: Programs) -> None:
        self._to = programs
        self._resolver = Resolver()
        self._skipped: dict[int, int] = {}
        self._made: dict[tuple[int, int, int], int] = {}
        self._path: list[str] = []

    def _node(self, kind: str, column: int, *numbers: int) -> int:
        if len(self._made) > PAIRS_MAX:
            raise ProgramTooLongError
        return self._to.node(kind, "".join(self._path).lstrip("."), column, *numbers)

    @contextmanager
    def _within(self, part: str) -> Iterator[None]:
        self._path.append(part)
        yield
        self._path.pop()

    def read(self, writer: AvroType, reader: AvroType, target: Target) -> int:
        """A node that reads ``writer`` as ``reader`` into ``target``."""
        pair = (id(writer), id(reader), target.column)
        if pair not in self._made:
            self._made[pair] = self._read(writer, reader, target)
        return self._made[pair]

    def _read(self, writer: AvroType, reader: AvroType, target: Target) -> int:
        if isinstance(writer, Union):
            return self._node("union", _SKIP, *self._to.listed(self._branches(writer, reader, target)))
        if isinstance(reader, Union):
            branch = self._resolver.branch(writer, reader)
            return self._unlike(writer, reader) if branch is None else self._member(writer, branch, reader, target)
        if not self._is_readable(writer, reader):
            return self._unlike(writer, reader)
        if target.avro.kind == "null":
            return self._null(writer, target)
        match writer, reader:
            case Record(), Record():
                return self._record(writer, reader, target)
            case Array(), Array():
                with self._within("[]"):
                    item = self.read(writer.items, reader.items, target.parts[0])
                return self._node("array", target.column, item)
            case Map(), Map():
                with self._within("{}"):
                    key = self._node("text", target.parts[0].column)
                    value = self.read(writer.values, reader.values, target.parts[1])
                return self._node("map", target.column, value, key)
            case Enum(), Enum():
                return self._node("enum", target.column, *self._to.listed(_symbols(writer, reader)))
        return self._leaf(writer, target)

    def _is_readable(self, writer: AvroType, reader: AvroType) -> bool:
        """Whether values of ``writer`` can be read, as far as that is not a matter of the values within them."""
        if writer.kind == reader.kind and isinstance(writer, Array | Map):
            return True
        try:
            return not self._resolver.resolved(writer, reader, None).conflicts
        except IncomparableError:
            return False

    def _unlike(self, writer: AvroType, reader: AvroType) -> int:
        return self._unreadable(f"it was written as {shown_type(writer)}, and is read as {shown_type(reader)}")

    def _unreadable(self, reason: str) -> int:
        node = self._node("unreadable", _SKIP)
        self._to.reasons[node] = reason[:_REASON_MAX]
        return node

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
        nodes = [self._node("null", each.column) for each in target.parts]
        nodes[chosen] = self.read(writer, branch, target.parts[chosen])
        return self._node("record", target.column, *self._to.listed(nodes))

    def _record(self, writer: Record, reader: Record, target: Target) -> int:
        parts = dict(zip(target.names, target.parts, strict=True))
        nodes = []
        for each in writer.fields:
            wanted = reader.by_name.get(each.name)
            with self._within(f".{each.name}"):
                nodes.append(
                    self._skip(each.type) if wanted is None else self.read(each.type, wanted.type, parts[each.name])
                )
        for each in reader.fields:
            if each.name not in writer.by_name and not isinstance(each.default, NoDefault):
                with self._within(f".{each.name}"):
                    nodes.append(self._default(each.type, each.default, parts[each.name]))
        return self._node("record", target.column, *self._to.listed(nodes))

    def _default(self, schema: AvroType, value: object, target: Target) -> int:
        start = len(self._to.constants)
        try:
            self._to.constants += encoded_default(schema, value)
        except UnusableDefaultError as flaw:
            return self._unreadable(flaw.message)
        node = self.read(schema, schema, target)
        return self._node("default", _SKIP, start, len(self._to.constants), node)

    def _null(self, writer: AvroType, target: Target) -> int:
        """A null, and what was written is read over."""
        null = self._node("null", target.column)
        return (
            null if writer.kind == "null" else self._node("record", _SKIP, *self._to.listed([null, self._skip(writer)]))
        )

    def _leaf(self, writer: AvroType, target: Target) -> int:
        if reason := _other_meaning(writer, target):
            return self._unreadable(reason)
        match writer:
            case Fixed():
                return self._node("fixed", target.column, writer.size)
            case Primitive():
                kind = "text" if writer.kind in ("bytes", "string") else writer.kind
                return self._node(kind, target.column, SCALES[_scale(writer, target)])
            case _:
                raise TypeError(writer)

    def _skip(self, writer: AvroType) -> int:
        """A node that reads over a value. A record may be within itself, and so is its node."""
        if id(writer) in self._skipped:
            return self._skipped[id(writer)]
        match writer:
            case Record():
                return self._skipped_record(writer)
            case Union():
                return self._node("union", _SKIP, *self._to.listed([self._skip(each) for each in writer.branches]))
            case Array():
                return self._node("array", _SKIP, self._skip(writer.items))
            case Map():
                return self._node("map", _SKIP, self._skip(writer.values), self._node("text", _SKIP))
            case Enum():
                return self._node("enum", _SKIP, *self._to.listed([0] * len(writer.symbols)))
            case Fixed():
                return self._node("fixed", _SKIP, writer.size)
        kind = {"bytes": "text", "string": "text", "null": "nothing"}.get(writer.kind, writer.kind)
        return self._node(kind, _SKIP)

    def _skipped_record(self, writer: Record) -> int:
        node = self._skipped[id(writer)] = self._node("record", _SKIP)
        skipped = []
        for each in writer.fields:
            with self._within(f".{each.name}"):
                skipped.append(self._skip(each.type))
        self._to.fill(node, *self._to.listed(skipped))
        return node


def _symbols(writer: Enum, reader: Enum) -> list[int]:
    """The numbers of the reader's symbols for those of the writer; its default for one that it does not have, or -1."""
    known = {symbol: number for number, symbol in enumerate(reader.symbols)}
    unknown = -1 if reader.default is None else known[reader.default]
    return [known.get(symbol, unknown) for symbol in writer.symbols]


def _other_meaning(writer: AvroType, target: Target) -> str:
    """Why the number that was written would be another value in its column, which Avro's own rules do not look at;
    empty if it would not."""
    properties = getattr(writer, "properties", {})
    logical, scale = properties.get("logicalType"), properties.get("scale", 0)
    if (
        logical == "decimal"
        and "precision" in properties
        and pa.types.is_decimal(target.arrow)
        and scale != target.arrow.scale
    ):
        return f"it was written as a decimal of scale {scale}, and is read as one of scale {target.arrow.scale}"
    if logical == "date" and pa.types.is_timestamp(target.arrow):
        return "it was written as a date, and is read as a time"
    return ""


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
