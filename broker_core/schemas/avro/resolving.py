# SPDX-License-Identifier: Apache-2.0
"""Resolution: whether data of a writer's schema can be read with a reader's, by the rules of Java's validator.

They are laxer than Avro's text at some places, and brokers and clients rely on that: records that meet need not have
the same name, and symbols of an enum that the reader lacks are no conflict before one of them comes. The steps:

    the reader's aliases rename the writer
    a union that was written    each branch has to resolve, unless the reader has one of the same shape: then in pairs
    the same type               fixed and enum by short name, array and map by their items, record by its fields
    a union that reads          the branch of the same name or type, a record that fits, or a promotion
    else                        a promotion: int to long, float and double, and so on; bytes and string
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from broker_core.schemas.avro.aliases import AliasClashError, renamed
from broker_core.schemas.avro.defaults import fits
from broker_core.schemas.avro.types import (
    Array,
    AvroType,
    Enum,
    Fixed,
    Map,
    NoDefault,
    Record,
    Union,
)

STEPS_MAX: Final = 50_000
"""Pairs of types that are compared at most: a schema of a topic has some hundreds."""

CONFLICTS_TOLD: Final = 100
"""Conflicts of one comparison that are told."""

_BRANCHES_SHOWN: Final = 8

_PROMOTIONS: Final[Mapping[str, frozenset[str]]] = {
    "int": frozenset(("long", "float", "double")),
    "long": frozenset(("float", "double")),
    "float": frozenset(("double",)),
    "string": frozenset(("bytes",)),
    "bytes": frozenset(("string",)),
}
"""Readers of each type, other than its own."""


class Conflict(NamedTuple):
    """A reason why data cannot be read. ``path``: fields from the top, with ``[]`` for items and ``{}`` for values."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason


_Path: TypeAlias = "tuple[_Path, str] | None"
"""The way to a type, of which text is made where it is told: the way to what it is a part of, and its field."""


def conflicts(writer: AvroType, reader: AvroType) -> list[Conflict]:
    """Reasons why data of ``writer`` cannot be read with ``reader``; none if it can."""
    try:
        outcome = Resolver().resolved(renamed(writer, reader), reader, None)
        return [Conflict(_text(path), reason) for path, reason in islice(_found(outcome), CONFLICTS_TOLD)]
    except (AliasClashError, IncomparableError) as flaw:
        return [Conflict("", str(flaw))]
    except RecursionError:
        return [Conflict("", "the two schemas lead each other too deep to be compared")]


class IncomparableError(Exception):
    """Two schemas cannot be compared: they are too large, or a default that is needed is no value of its type."""


@dataclass(slots=True, eq=False)
class _Outcome:
    """A pair of types: conflicts of its own, and the pairs that it is made of. Recursion makes a cycle of them."""

    conflicts: tuple[tuple[_Path, str], ...] = ()
    parts: list[_Outcome] = field(default_factory=list)


_FINE: Final = _Outcome()


def _found(outcome: _Outcome) -> Iterator[tuple[_Path, str]]:
    """Each conflict below ``outcome`` once."""
    seen = {id(outcome)}
    pending = [outcome]
    while pending:
        each = pending.pop()
        yield from each.conflicts
        for part in reversed(each.parts):
            if id(part) not in seen:
                seen.add(id(part))
                pending.append(part)


class Resolver:
    """Comparisons of one pair of schemas. Pairs of records are compared once, so that recursion ends."""

    def __init__(self) -> None:
        self._records: dict[tuple[int, int], _Outcome] = {}
        self._steps = 0

    def resolved(self, writer: AvroType, reader: AvroType, path: _Path) -> _Outcome:
        self._step()
        if isinstance(writer, Union):
            return self._written_union(writer, reader, path)
        if isinstance(reader, Union):
            return self._reading_union(writer, reader, path)
        match writer, reader:
            case Record(), Record():
                return self._record(writer, reader, path)
            case Enum(), Enum():
                return _named(writer, reader, path)
            case Fixed(), Fixed():
                return _named(writer, reader, path)
            case Array(), Array():
                return self.resolved(writer.items, reader.items, (path, "[]"))
            case Map(), Map():
                return self.resolved(writer.values, reader.values, (path, "{}"))
        if writer.kind == reader.kind or reader.kind in _PROMOTIONS.get(writer.kind, ()):
            return _FINE
        return _conflict(path, f"{shown_type(writer)} cannot be read as {shown_type(reader)}")

    def _step(self) -> None:
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise IncomparableError(f"the two schemas have more than {STEPS_MAX} pairs of types to be compared")

    def _written_union(self, writer: Union, reader: AvroType, path: _Path) -> _Outcome:
        if isinstance(reader, Union) and self.is_alike(writer, reader):
            pairs = zip(writer.branches, reader.branches, strict=True)
            return _Outcome(parts=[self.resolved(one, other, path) for one, other in pairs])
        return _Outcome(parts=[self.resolved(each, reader, path) for each in writer.branches])

    def _reading_union(self, writer: AvroType, reader: Union, path: _Path) -> _Outcome:
        branch = self.branch(writer, reader, path)
        if branch is None:
            return _conflict(path, f"{shown_type(writer)} is none of {shown_type(reader)}")
        return self.resolved(writer, branch, path)

    def is_alike(self, writer: Union, reader: Union) -> bool:
        """Whether two unions have the same shape: then their branches are compared in pairs."""
        return self._is_alike(writer, reader, {})

    def branch(self, writer: AvroType, reader: Union, path: _Path = None) -> AvroType | None:
        """The branch that reads what is written, or None."""
        fitting: AvroType | None = None
        for each in reader.branches:
            self._step()
            if each.kind != writer.kind:
                continue
            if not isinstance(writer, Record | Enum | Fixed) or not isinstance(each, Record | Enum | Fixed):
                return each
            if writer.name == each.name:
                return each
            if (fitting is None or writer.name.short == each.name.short) and self._fits(writer, each, path):
                fitting = each
        if fitting is not None:
            return fitting
        promotions = _PROMOTIONS.get(writer.kind, ())
        return next((each for each in reader.branches if each.kind in promotions), None)

    def _fits(self, writer: AvroType, reader: AvroType, path: _Path) -> bool:
        """Whether these are records whose fields fit, seen from outside of them."""
        if not isinstance(writer, Record) or not isinstance(reader, Record):
            return False
        outcome = self._record(writer, reader, path)
        return not outcome.conflicts and not any(each.conflicts for each in outcome.parts)

    def _record(self, writer: Record, reader: Record, path: _Path) -> _Outcome:
        self._step()
        pair = (id(writer), id(reader))
        if (known := self._records.get(pair)) is not None:
            return known
        outcome = self._records[pair] = _Outcome()
        for each in writer.fields:
            if (target := reader.by_name.get(each.name)) is not None:
                outcome.parts.append(self.resolved(each.type, target.type, (path, each.name)))
        if missing := tuple(_missing(writer, reader, path)):
            # Pairs that met this one while it was under way keep the outcome that they have got, as Java's do.
            outcome = self._records[pair] = _Outcome(missing, outcome.parts)
        return outcome

    def _is_alike(self, writer: AvroType, reader: AvroType, seen: dict[tuple[int, int], bool]) -> bool:
        """Whether two types have the same shape: then the branches of unions are compared in pairs."""
        self._step()
        if writer.kind != reader.kind:
            return False
        match writer, reader:
            case Record(), Record():
                return writer.name.short == reader.name.short and self._are_alike(writer, reader, seen)
            case Enum(), Enum():
                return writer.name.short == reader.name.short and writer.symbols == reader.symbols
            case Fixed(), Fixed():
                return writer.name.short == reader.name.short and writer.size == reader.size
            case Array(), Array():
                return self._is_alike(writer.items, reader.items, seen)
            case Map(), Map():
                return self._is_alike(writer.values, reader.values, seen)
            case Union(), Union():
                pairs = zip(writer.branches, reader.branches, strict=False)
                return len(writer.branches) == len(reader.branches) and all(
                    self._is_alike(a, b, seen) for a, b in pairs
                )
        return True

    def _are_alike(self, writer: Record, reader: Record, seen: dict[tuple[int, int], bool]) -> bool:
        pair = (id(writer), id(reader))
        if pair not in seen:
            seen[pair] = True  # Until a difference is found: a record may be a part of itself.
            pairs = list(zip(writer.fields, reader.fields, strict=False))
            seen[pair] = len(writer.fields) == len(reader.fields) and all(
                one.name == other.name and self._is_alike(one.type, other.type, seen) for one, other in pairs
            )
        return seen[pair]


def _missing(writer: Record, reader: Record, path: _Path) -> Iterator[tuple[_Path, str]]:
    """Conflicts of fields that were not written and have no default; IncomparableError where one is of no use."""
    for each in reader.fields:
        if each.name in writer.by_name:
            continue
        below = (path, each.name)
        if isinstance(each.default, NoDefault):
            yield below, f"it is not in {writer.name.full}, which was written, and has no default: add a default"
        elif not fits(each.type, each.default, STEPS_MAX):
            raise IncomparableError(f"{_text(below)}: its default is no value of its type")


def _named(writer: Enum | Fixed, reader: Enum | Fixed, path: _Path) -> _Outcome:
    if writer.name.short != reader.name.short:
        return _conflict(path, f"{writer.kind} {writer.name.full} is not {reader.kind} {reader.name.full}")
    if isinstance(writer, Fixed) and isinstance(reader, Fixed) and writer.size != reader.size:
        return _conflict(path, f"{writer.size} bytes cannot be read as {reader.size}")
    return _FINE


def _conflict(path: _Path, reason: str) -> _Outcome:
    return _Outcome(((path, reason),))


def _text(path: _Path) -> str:
    names = []
    while path is not None:
        path, name = path
        names.append(name if path is None or name in ("[]", "{}") else f".{name}")
    return "".join(reversed(names))


def shown_type(schema: AvroType) -> str:
    """A type as messages name it."""
    match schema:
        case Record() | Enum() | Fixed():
            return f"{schema.kind} {schema.name.full}"
        case Union():
            more = len(schema.branches) - _BRANCHES_SHOWN
            shown = " | ".join(shown_type(each) for each in schema.branches[:_BRANCHES_SHOWN])
            return f"{shown} | and {more} more" if more > 0 else shown
        case _:
            return schema.kind
