# SPDX-License-Identifier: Apache-2.0
"""The parser of Avro schemas: JSON text to types, by the rules of Java's parser as brokers use it.

Names may begin with a letter of any alphabet, ``_`` or ``$``; defaults are not checked. A hostile text is refused by
its size or depth before anything recurses into it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from broker_core.base.errors import PulsarishError
from broker_core.schemas.avro.equality import same
from broker_core.schemas.avro.types import (
    NO_DEFAULT,
    PRIMITIVES,
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Name,
    Named,
    Primitive,
    Record,
    Union,
)

DEPTH_MAX: Final = 192
"""Brackets of a definition that may be open at once: 64 records, one in another."""

NAME_MAX: Final = 512
"""Characters of a name, and of a namespace: errors repeat them."""

SIZE_MAX: Final = 1 << 20
"""Bytes of a definition."""

_TOLD_MAX: Final = 300
"""Characters of a place, and of a flaw, in an error."""

_RESERVED: Final = frozenset(
    ("aliases", "doc", "fields", "items", "name", "namespace", "size", "symbols", "type", "values")
)
_RESERVED_OF_ENUM: Final = _RESERVED | {"default"}
_RESERVED_OF_FIELD: Final = frozenset(("aliases", "default", "doc", "name", "order", "type"))
_ORDERS: Final = ("ascending", "descending", "ignore")
_NUMBER_TEXT: Final = re.compile(
    r"[\0- ]*(?:([+-]?(?:NaN|Infinity))|([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)[fFdD]?)[\0- ]*", re.ASCII
)
"""A text that Java takes for a decimal number; Python takes others."""


_N = TypeVar("_N", bound=Named)


class SchemaParseError(PulsarishError):
    """A definition is no Avro schema. The message says where: the path of names and attributes."""


def parse(text: str | bytes) -> AvroType:
    """The schema of a JSON text; SchemaParseError."""
    raw = text.encode() if isinstance(text, str) else bytes(text)
    if len(raw) > SIZE_MAX:
        raise SchemaParseError(f"the definition has {len(raw)} bytes, and at most {SIZE_MAX} are taken")
    try:
        definition = json.loads(raw.decode(), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise SchemaParseError("the definition is not UTF-8") from error
    except ValueError as error:
        raise SchemaParseError(f"the definition is not JSON: {error}") from error
    except RecursionError as error:
        raise _too_deep() from error
    return parse_definition(definition)


def _no_constant(name: str) -> None:
    raise ValueError(f"it has no number {name}; a default may be the text {name!r}")


def parse_definition(definition: Any) -> AvroType:
    """The schema of a definition as JSON has it: a name, a list, or an object; SchemaParseError."""
    _check_depth(definition)
    return _Parser().type_of(definition, "", "")


def _check_depth(definition: Any) -> None:
    """Everything counts, defaults and unknown attributes too: whatever compares them recurses into them."""
    level = [definition]
    for _ in range(DEPTH_MAX + 1):
        lists = [each for each in level if isinstance(each, list)]
        objects = [each for each in level if isinstance(each, dict)]
        level = [part for each in lists for part in each] + [part for each in objects for part in each.values()]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> SchemaParseError:
    return SchemaParseError(f"the definition is nested deeper than {DEPTH_MAX} brackets")


class _Parser:
    """A parse under way. ``place`` is the path of what is parsed, for errors; ``space`` the namespace around it."""

    def __init__(self) -> None:
        self._names: dict[str, Named] = {}
        self._under_way: set[int] = set()

    def type_of(self, definition: Any, space: str, place: str) -> AvroType:
        if isinstance(definition, str):
            return self._referred(definition, space, place)
        if isinstance(definition, list):
            return self._union(definition, space, place)
        if not isinstance(definition, dict):
            raise _error(place, f"{definition!r} is no schema")
        return self._defined(definition, space, place)

    def _referred(self, name: str, space: str, place: str) -> AvroType:
        if name in PRIMITIVES:
            return Primitive(name)
        found = self._found(name, space)
        if found is None:
            raise _error(place, f"type {name!r} is not defined")
        return found

    def _found(self, name: str, space: str) -> Named | None:
        """A type that was defined before: in the namespace around, else without one."""
        if "." not in name and space and (inside := self._names.get(f"{space}.{name}")) is not None:
            return inside
        return self._names.get(name)

    def _union(self, definitions: list[Any], space: str, place: str) -> Union:
        branches: dict[str, AvroType] = {}
        for number, each in enumerate(definitions):
            branch = self.type_of(each, space, f"{place}/{number}")
            if isinstance(branch, Union):
                raise _error(place, "a union has a union as a branch")
            mark = branch.name.full if isinstance(branch, Record | Enum | Fixed) else branch.kind
            if mark in branches:
                raise _error(place, f"a union has {mark} twice")
            branches[mark] = branch
        return Union(tuple(branches.values()))

    def _defined(self, definition: dict[str, Any], space: str, place: str) -> AvroType:
        kind = definition.get("type")
        if not isinstance(kind, str):
            raise _error(place, "a type has no type that is a text")
        properties = _others(definition, _RESERVED_OF_ENUM if kind == "enum" else _RESERVED)
        if kind in PRIMITIVES:
            return Primitive(kind, properties)
        match kind:
            case "record" | "error":
                return self._record(definition, space, place, properties)
            case "enum":
                return self._enum(definition, space, place, properties)
            case "fixed":
                return self._fixed(definition, space, place, properties)
            case "array":
                return Array(self._part(definition, "items", space, place), properties)
            case "map":
                return Map(self._part(definition, "values", space, place), properties)
        found = self._found(kind, space)
        if found is None:
            raise _error(place, f"type {kind!r} is not known")
        return found

    def _part(self, definition: dict[str, Any], attribute: str, space: str, place: str) -> AvroType:
        if attribute not in definition:
            raise _error(place, f"{definition['type']} has no {attribute}")
        return self.type_of(definition[attribute], space, f"{place}/{attribute}")

    def _record(self, definition: dict[str, Any], space: str, place: str, properties: Mapping[str, Any]) -> Record:
        name = _name(definition, space, place)
        record = Record(name, _aliases(definition, name, place), properties)
        self._define(record, place)
        self._under_way.add(id(record))
        fields = definition.get("fields")
        if not isinstance(fields, list):
            raise _error(place, f"record {name.full} has no list of fields")
        by_name: dict[str, Field] = {}
        for number, each in enumerate(fields):
            one = self._field(each, name.space, f"{place}/fields/{number}")
            if one.name in by_name:
                raise _error(place, f"record {name.full} has field {one.name!r} twice")
            by_name[one.name] = one
        record.fields = tuple(by_name.values())
        record.by_name = by_name
        self._under_way.discard(id(record))
        return record

    def _field(self, definition: Any, space: str, place: str) -> Field:
        if not isinstance(definition, dict):
            raise _error(place, f"{definition!r} is no field")
        name = _checked(_text(definition, "name", place), place)
        if "type" not in definition:
            raise _error(place, f"field {name!r} has no type")
        kind = self.type_of(definition["type"], space, f"{place}/type")
        order = definition.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in _ORDERS:
            raise _error(place, f"field {name!r} has the order {order!r}, which is none of {', '.join(_ORDERS)}")
        default = _number_of_text(kind, definition.get("default", NO_DEFAULT), place)
        aliases = tuple(_texts(definition, "aliases", place))
        return Field(name, kind, default, order.lower(), aliases, _others(definition, _RESERVED_OF_FIELD))

    def _enum(self, definition: dict[str, Any], space: str, place: str, properties: Mapping[str, Any]) -> Enum:
        name = _name(definition, space, place)
        if not isinstance(definition.get("symbols"), list):
            raise _error(place, f"enum {name.full} has no list of symbols")
        symbols = tuple(_checked(each, place) for each in _texts(definition, "symbols", place))
        if len(set(symbols)) != len(symbols):
            raise _error(place, f"enum {name.full} has a symbol twice")
        default = definition.get("default")
        if default is not None and default not in symbols:
            raise _error(place, f"the default {default!r} of enum {name.full} is none of its symbols")
        return self._define(Enum(name, symbols, default, _aliases(definition, name, place), properties), place)

    def _fixed(self, definition: dict[str, Any], space: str, place: str, properties: Mapping[str, Any]) -> Fixed:
        name = _name(definition, space, place)
        size = definition.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 1 << 31:
            raise _error(place, f"fixed {name.full} has the size {size!r}")
        return self._define(Fixed(name, size, _aliases(definition, name, place), properties), place)

    def _define(self, one: _N, place: str) -> _N:
        """Give ``one`` its name. Where Java's parser takes a second definition the name still means the first."""
        first = self._names.setdefault(one.name.full, one)
        if first is not one and not self._is_repeated(first, one):
            raise _error(place, f"{one.name.full} is defined twice")
        return one

    def _is_repeated(self, first: Named, second: Named) -> bool:
        if isinstance(second, Record):
            return id(first) in self._under_way
        return same(first, replace(second, properties={}))


def _name(definition: dict[str, Any], space: str, place: str) -> Name:
    text = _text(definition, "name", place)
    given = definition.get("namespace")
    if given is not None and not isinstance(given, str):
        raise _error(place, f"namespace {given!r} is no text")
    name = _in_space(text, space if given is None else given)
    if len(name.space) > NAME_MAX:
        raise _error(place, f"namespace {name.space[:80]!r} is longer than {NAME_MAX} characters")
    for part in name.space.split(".") if name.space else ():
        _checked(part, place)
    if not name.space and name.short in PRIMITIVES:
        raise _error(place, f"a {definition['type']} is named like the type {name.short}")
    _checked(name.short, place)
    return name


def _in_space(text: str, space: str) -> Name:
    """A name: what stands before its last point, or else ``space``, is its namespace."""
    before, point, short = text.rpartition(".")
    return Name(before if point else space, short)


def _aliases(definition: dict[str, Any], name: Name, place: str) -> tuple[Name, ...]:
    """Other names of a type. Java checks no namespace of theirs."""
    aliases = tuple(_in_space(each, name.space) for each in _texts(definition, "aliases", place))
    for each in aliases:
        _checked(each.short, place)
    return aliases


def _checked(name: str, place: str) -> str:
    """``name``, if types, fields and symbols may have it."""
    if len(name) > NAME_MAX:
        raise _error(place, f"name {name[:80]!r} is longer than {NAME_MAX} characters")
    if name and not name[0].isdecimal() and all(map(_may_be_in_a_name, name)):
        return name
    raise _error(place, f"{name!r} is no name: it takes letters, digits, _ and $, and no digit first")


def _may_be_in_a_name(character: str) -> bool:
    """Java looks at units of UTF-16, so that letters beyond 16 bits are none to it."""
    return character in "_$" or (character <= "\uffff" and (character.isalpha() or character.isdecimal()))


def _text(definition: dict[str, Any], attribute: str, place: str) -> str:
    text = definition.get(attribute)
    if not isinstance(text, str):
        raise _error(place, f"there is no {attribute}")
    return text


def _texts(definition: dict[str, Any], attribute: str, place: str) -> list[str]:
    texts = definition.get(attribute, [])
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        raise _error(place, f"{attribute} are no list of texts")
    return texts


def _number_of_text(kind: AvroType, default: Any, place: str) -> Any:
    """A default; that of a float or double may be written as a text."""
    if kind.kind not in ("float", "double") or not isinstance(default, str):
        return default
    found = _NUMBER_TEXT.fullmatch(default)
    if found is None:
        raise _error(place, f"the default {default!r} is no number")
    return float(found[1] or found[2])


def _others(definition: dict[str, Any], reserved: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in definition.items() if key not in reserved}


def _error(place: str, flaw: str) -> SchemaParseError:
    return SchemaParseError(f"{place[-_TOLD_MAX:] or '/'}: {flaw[:_TOLD_MAX]}")
