# SPDX-License-Identifier: Apache-2.0
"""Records that are dataclasses: their type hints make the definition, and their instances are the values.

    @dataclass
    class Order:
        number: int
        city: str = "Ghent"
        note: str | None = None

A default of the class is one of the definition, so that a field with one may be added at any time; an optional field
without a default has null. An int is a long, unless it is ``Int32``; a float is a double, unless it is ``Float32``.
Others: bool, str, bytes, lists, dicts with texts as keys, enums, dataclasses, and as logical types datetime (an
instant; ``LocalDateTime`` has no zone), date, time, UUID, and Decimal (``Annotated[Decimal, Digits(10, 2)]``, else 38
digits, 18 of them behind the point, as Spark has them).
"""

from __future__ import annotations

import dataclasses
import enum
import types
import uuid
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

from broker_core.base.errors import UsageError
from broker_core.client.schemas.logical_types import json_number, logical_of
from broker_core.client.schemas.misfit import Misfit, shown, wanted
from broker_core.schemas.avro.parsing import parse_definition

Convert = Callable[[Any], Any]


class Digits(NamedTuple):
    """Digits of a decimal, and those of them that are behind the point."""

    precision: int
    scale: int = 0


class AvroDefinition(NamedTuple):
    """The type in Avro's definition, for ``Annotated``."""

    definition: Any


Int32 = Annotated[int, AvroDefinition("int")]
Float32 = Annotated[float, AvroDefinition("float")]
LocalDateTime = Annotated[datetime, AvroDefinition({"type": "long", "logicalType": "local-timestamp-micros"})]

_UNIONS: Final = (Union, types.UnionType)
_DIGITS_DEFAULT: Final = Digits(38, 18)
_LEAVES: Final[Mapping[object, Any]] = {
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "bytes",
    datetime: {"type": "long", "logicalType": "timestamp-micros"},
    date: {"type": "int", "logicalType": "date"},
    time: {"type": "long", "logicalType": "time-micros"},
    uuid.UUID: {"type": "string", "logicalType": "uuid"},
}


class Shape(NamedTuple):
    """A type hint: its type in Avro, its values to those of Avro and back, and to a default of a definition."""

    definition: Any
    plain: Convert
    made: Convert
    default: Convert


def _same(value: Any) -> Any:
    return value


@cache
def shape_of(cls: type) -> tuple[Shape, Mapping[str, type[enum.Enum]]]:
    """The shape of a dataclass, and its enums by their names; UsageError for a field whose type no schema has."""
    making = _Making()
    return making.shape(cls, cls.__qualname__), making.enums


class _Making:
    """The shapes of one definition. A type that comes again stands there by its name, within itself too."""

    def __init__(self) -> None:
        self.enums: dict[str, type[enum.Enum]] = {}
        self._types: dict[str, type] = {}
        self._records: dict[type, list[Shape]] = {}

    def shape(self, hint: Any, path: str) -> Shape:
        origin = get_origin(hint)
        if origin is Annotated:
            return self._annotated(hint, path)
        if origin in _UNIONS:
            return self._optional(get_args(hint), path)
        if origin is list:
            return self._list(self.shape(get_args(hint)[0], f"{path}[]"))
        if origin is dict:
            key, value = get_args(hint)
            if key is not str:
                raise _unknown(path, hint)
            return self._dict(self.shape(value, f"{path}{{}}"))
        return self._plain(hint, path)

    def _plain(self, hint: Any, path: str) -> Shape:
        if hint is Decimal:
            return _decimal(_DIGITS_DEFAULT)
        if hint in _LEAVES:
            return _leaf(_LEAVES[hint])
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return self._enum(hint, path)
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            return self._record(hint, path)
        raise _unknown(path, hint)

    def _annotated(self, hint: Any, path: str) -> Shape:
        plain, *notes = get_args(hint)
        if get_origin(plain) in _UNIONS:  # The notes are about what is not null.
            members = get_args(plain)
            return self._optional(
                tuple(each if each is type(None) else Annotated[each, *notes] for each in members), path
            )
        for note in notes:
            if isinstance(note, Digits):
                return _decimal(note)
            if isinstance(note, AvroDefinition):
                return _leaf(note.definition)
        return self.shape(plain, path)

    def _optional(self, members: tuple[Any, ...], path: str) -> Shape:
        others = [each for each in members if each is not type(None)]
        if len(others) != 1 or len(others) == len(members):
            raise _unknown(path, " | ".join(getattr(each, "__name__", str(each)) for each in members))
        inner = self.shape(others[0], path)
        return Shape(["null", inner.definition], *map(_unless_none, inner[1:]))

    def _list(self, item: Shape) -> Shape:
        plain, made, default = item.plain, item.made, item.default

        def plain_list(values: Any) -> list[Any]:
            if not isinstance(values, list | tuple):
                raise wanted("a list", values)
            return [plain(each) for each in values]

        return Shape(
            {"type": "array", "items": item.definition},
            plain_list,
            _unless_none(lambda values: [made(each) for each in values]),
            lambda values: [default(each) for each in values],
        )

    def _dict(self, item: Shape) -> Shape:
        plain, made, default = item.plain, item.made, item.default

        def plain_dict(values: Any) -> dict[str, Any]:
            if not isinstance(values, dict):
                raise wanted("a dict", values)
            return {key: plain(each) for key, each in values.items()}

        return Shape(
            {"type": "map", "values": item.definition},
            plain_dict,
            _unless_none(lambda values: {key: made(each) for key, each in values.items()}),
            lambda values: {key: default(each) for key, each in values.items()},
        )

    def _enum(self, kind: type[enum.Enum], path: str) -> Shape:
        name = kind.__name__
        is_known = self._is_known(name, kind, path)
        self.enums[name] = kind
        by_name = dict(kind.__members__)

        def plain(value: Any) -> str:
            if not isinstance(value, kind):
                raise wanted(f"a member of {name}", value)
            return value.name

        definition = {"type": "enum", "name": name, "symbols": [each.name for each in kind]}
        return Shape(name if is_known else definition, plain, _unless_none(by_name.__getitem__), plain)

    def _record(self, cls: Any, path: str) -> Shape:
        space = getattr(cls, "_avro_namespace", None)
        name = getattr(cls, "_avro_name", None) or cls.__name__
        full = f"{space}.{name}" if space else name
        if self._is_known(full, cls, path):
            known = self._records[cls]
            return Shape(full, *(_later(known, part) for part in range(1, 4)))
        cell = self._records[cls] = []
        hints = _hints_of(cls)
        fields = [each for each in dataclasses.fields(cls) if each.init]
        shapes = {each.name: self.shape(hints[each.name], f"{path}.{each.name}") for each in fields}
        definition = {
            "type": "record",
            "name": name,
            **({"namespace": space} if space else {}),
            "fields": [_field(each, shapes[each.name], f"{path}.{each.name}") for each in fields],
        }
        cell.append(Shape(definition, _plain_record(cls, shapes), _made_record(cls, shapes), _default_record(shapes)))
        return cell[0]

    def _is_known(self, name: str, kind: type, path: str) -> bool:
        """Whether the type was defined before; UsageError if another one has its name."""
        known = self._types.setdefault(name, kind)
        if known is not kind:
            raise UsageError(f"{path}: two types of the schema are called {name}", hint="give one of them another name")
        return kind in self._records or name in self.enums


def _unless_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _later(known: list[Shape], part: int) -> Convert:
    """A function of a shape that is still being made."""
    return lambda value: known[0][part](value)


def _hints_of(cls: type) -> dict[str, Any]:
    try:
        return get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise UsageError(
            f"{cls.__qualname__} has a field whose type is not found: {error}",
            hint="define the types of fields where the module's other names are",
        ) from error


def _leaf(definition: Any) -> Shape:
    logical = logical_of(parse_definition(definition))
    default = _same if logical is None else logical.plain
    if isinstance(definition, str):
        default = _DEFAULTS.get(definition, default)
    return Shape(definition, _same, _same, default)


def _default_bytes(value: bytes) -> str:
    return value.decode("latin-1")


_DEFAULTS: Final[Mapping[str, Convert]] = {"bytes": _default_bytes, "float": json_number, "double": json_number}


def _decimal(digits: Digits) -> Shape:
    if not 0 <= digits.scale <= digits.precision or digits.precision < 1:
        raise UsageError(f"{digits} is not possible", hint="of the digits some may be behind the point, or all")
    definition = {"type": "bytes", "logicalType": "decimal", "precision": digits.precision, "scale": digits.scale}
    leaf = _leaf(definition)
    return leaf._replace(default=lambda value: _default_bytes(leaf.default(value)))


def _plain_record(cls: type, shapes: Mapping[str, Shape]) -> Convert:
    converters = [(name, shape.plain) for name, shape in shapes.items()]

    def plain(value: Any) -> dict[str, Any]:
        if not isinstance(value, cls):
            raise wanted(f"an instance of {cls.__name__}", value)
        found, name = {}, ""
        try:
            for name, convert in converters:
                found[name] = convert(getattr(value, name))
        except Misfit as misfit:
            raise misfit.within(name) from None
        return found

    return plain


def _made_record(cls: Callable[..., Any], shapes: Mapping[str, Shape]) -> Convert:
    converters = [(name, shape.made) for name, shape in shapes.items()]

    def made(value: Any) -> Any:
        return None if value is None else cls(**{name: convert(value[name]) for name, convert in converters})

    return made


def _default_record(shapes: Mapping[str, Shape]) -> Convert:
    return lambda value: {name: shape.default(getattr(value, name)) for name, shape in shapes.items()}


def _field(field: dataclasses.Field[Any], shape: Shape, path: str) -> dict[str, Any]:
    """A field in the definition; UsageError for a default that is none. It has to be of the first type of a union."""
    definition = shape.definition
    default = field.default
    if field.default_factory is not dataclasses.MISSING:
        made = field.default_factory()
        default = made if isinstance(made, list | dict) else default  # Others, such as now(), differ each time.
    if default is dataclasses.MISSING:
        if not isinstance(definition, list):
            return {"name": field.name, "type": definition}
        default = None
    if isinstance(definition, list) and default is not None:
        definition = definition[::-1]
    try:
        return {"name": field.name, "type": definition, "default": shape.default(default)}
    except (ValueError, TypeError, AttributeError) as flaw:
        reason = f": {flaw}" if isinstance(flaw, Misfit) else ""
        raise UsageError(
            f"{path}: the default {shown(default)} is no value of its type{reason}",
            hint="give it another one, or none; a field whose default is None has a type with None",
        ) from flaw


def _unknown(path: str, hint: Any) -> UsageError:
    return UsageError(
        f"{path}: a schema has no type for {getattr(hint, '__name__', hint)}",
        hint="use bool, int, float, str, bytes, list, dict with texts as keys, an enum, a dataclass, datetime, date, "
        "time, Decimal or UUID, each perhaps with None",
    )
