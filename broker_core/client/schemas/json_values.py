# SPDX-License-Identifier: Apache-2.0
"""JSON payloads of a schema that is Avro's: Python values, as ``avro_reading`` has them, to JSON and back.

What clients in Java and Python write is read: nulls that are there or left out, numbers as texts, bytes in base64 or
as text. Written are nulls, names of symbols, base64 as Java has it, times as numbers in the unit of their type, and
decimals as texts, since numbers of JSON have no more digits than a double.
"""

from __future__ import annotations

import base64
import binascii
import enum
import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from broker_core.client.schemas.avro_reading import avro_reader
from broker_core.client.schemas.avro_writing import is_of
from broker_core.client.schemas.logical_types import decimal_of_json, json_number, logical_name, logical_of
from broker_core.client.schemas.misfit import Misfit, wanted
from broker_core.schemas.avro.defaults import fits
from broker_core.schemas.avro.encoding import UnusableDefaultError, encoded_default
from broker_core.schemas.avro.json_branches import shows_as_it_is
from broker_core.schemas.avro.json_numbers import loaded
from broker_core.schemas.avro.resolving import STEPS_MAX
from broker_core.schemas.avro.types import Array, AvroType, Enum, Field, Fixed, Map, NoDefault, Primitive, Record, Union

Convert = Callable[[Any], Any]

_FLOAT: Final = struct.Struct("<f")
_BOUNDS: Final = {"int": 1 << 31, "long": 1 << 63}


def json_reader(schema: AvroType, enums: Mapping[str, type[enum.Enum]] | None = None) -> Callable[[bytes], Any]:
    """A function that reads payloads; it raises ``Misfit``. ``enums``: those that Python has, by their names: clients
    in Python write the values of members in place of their names."""
    reading = _Reading(enums or {})
    read = reading.item(schema)
    load = loaded if reading.has_decimals else json.loads

    def decode(payload: bytes) -> Any:
        try:
            return read(_loaded(payload, load))
        except RecursionError:
            raise Misfit("it is nested too deep") from None

    return decode


def _loaded(payload: bytes, load: Callable[[bytes], Any]) -> Any:
    try:
        return load(payload)
    except ValueError as error:
        raise Misfit(f"it is not JSON: {error}") from error


def json_writer(schema: AvroType) -> Callable[[Any], bytes]:
    """A function that makes payloads; it raises ``Misfit``."""
    write = _Writing().of(schema)

    def encode(value: Any) -> bytes:
        try:
            return json.dumps(write(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except RecursionError:
            raise Misfit("it is nested too deep, or is within itself") from None
        except UnicodeEncodeError as error:
            raise Misfit(f"UTF-8 cannot express it: {error.reason}") from error

    return encode


class _Walk:
    """Functions for the types of a schema. A record may be within itself."""

    def __init__(self) -> None:
        self._records: dict[int, list[Convert]] = {}

    def of(self, schema: AvroType) -> Convert:
        match schema:
            case Record():
                if (known := self._records.get(id(schema))) is not None:
                    return lambda value: known[0](value)
                cell = self._records[id(schema)] = []
                cell.append(self.record(schema))
                return cell[0]
            case Union():
                return self.union(schema)
            case Array():
                return _array(self.item(schema.items))
            case Map():
                return _map(self.item(schema.values))
        return self.leaf(schema)

    def item(self, schema: AvroType) -> Convert:
        """The function for items of a list, and for values of a map."""
        return self.of(schema)

    def record(self, schema: Record) -> Convert:
        raise NotImplementedError

    def union(self, schema: Union) -> Convert:
        raise NotImplementedError

    def leaf(self, schema: Primitive | Enum | Fixed) -> Convert:
        raise NotImplementedError


def _array(item: Convert) -> Convert:
    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise wanted("a list", value)
        try:
            return [item(each) for each in value]
        except Misfit as misfit:
            raise misfit.within("[]") from None

    return convert


def _map(item: Convert) -> Convert:
    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise wanted("a map whose keys are texts", value)
        try:
            return {key: item(each) for key, each in value.items()}
        except Misfit as misfit:
            raise misfit.within("{}") from None

    return convert


def _first(converts: list[Convert], tests: list[Callable[[Any], bool]], kinds: list[str]) -> Convert:
    """The first branch of a union that takes a value."""

    def convert(value: Any) -> Any:
        last: Misfit | None = None
        for each, test in zip(converts, tests, strict=True):
            if test(value):
                try:
                    return each(value)
                except Misfit as misfit:
                    last = misfit
        raise last or wanted(f"one of {', '.join(kinds)}", value)

    return convert


def _default(field: Field) -> Callable[[], Any]:
    """The value of a field that is not given: its default, which is a new one each time, or null."""
    if isinstance(field.default, NoDefault) or not fits(field.type, field.default, STEPS_MAX):
        return lambda: None
    try:
        written, read = encoded_default(field.type, field.default), avro_reader(field.type, field.type)
    except UnusableDefaultError:
        return lambda: None
    return lambda: read(written)


# -- reading


class _Reading(_Walk):
    def __init__(self, enums: Mapping[str, type[enum.Enum]]) -> None:
        super().__init__()
        self._enums = enums
        self.has_decimals = False

    def record(self, schema: Record) -> Convert:
        fields = [(each.name, self.of(each.type), _default(each)) for each in schema.fields]

        def read(value: Any) -> dict[str, Any]:
            if not isinstance(value, dict):
                raise wanted(f"record {schema.name.full}", value)
            found, name = {}, ""
            try:
                for name, convert, default in fields:
                    each = value.get(name)
                    found[name] = convert(each) if each is not None else None if name in value else default()
            except Misfit as misfit:
                raise misfit.within(name) from None
            return found

        return read

    def item(self, schema: AvroType) -> Convert:
        return _or_null(self.of(schema))

    def union(self, schema: Union) -> Convert:
        others = [each for each in schema.branches if each.kind != "null"]
        converts = [self.of(each) for each in others]
        one = converts[0] if len(converts) == 1 else None
        tests = [partial(shows_as_it_is, each) for each in others] + [lambda value: True] * len(others)
        return _or_null(one or _first(converts * 2, tests, [each.kind for each in others]))

    def leaf(self, schema: Primitive | Enum | Fixed) -> Convert:
        if isinstance(schema, Enum):
            return _symbol(schema, self._enums.get(schema.name.short, ()))
        logical = logical_of(schema)
        if logical is None:
            return _plain(schema)
        if logical_name(schema) == "decimal":
            self.has_decimals = True
            return decimal_of_json
        convert = logical.shown
        read = _text if logical_name(schema) == "uuid" and schema.kind == "string" else _plain(schema)
        return lambda value: convert(read(value))


def _or_null(read: Convert) -> Convert:
    """Null is taken where a definition has none, too: writers of JSON are not kept from it."""
    return lambda value: None if value is None else read(value)


def _symbol(schema: Enum, members: Iterable[enum.Enum]) -> Convert:
    by_value = {each.value: each.name for each in members if isinstance(each.value, str | int)}

    def read(value: Any) -> str:
        if isinstance(value, str) and value in schema.symbols:
            return value
        if isinstance(value, str | int) and value in by_value:
            return by_value[value]
        if schema.default is None:
            raise wanted(f"a symbol of enum {schema.name.full}", value)
        return schema.default

    return read


def _integer(kind: str) -> Convert:
    bound = _BOUNDS[kind]

    def read(value: Any) -> int:
        number: Any = value
        if isinstance(value, str) or (isinstance(value, float) and value.is_integer()):
            try:
                number = int(value)
            except ValueError:
                number = None
        if not isinstance(number, int) or isinstance(number, bool) or not -bound <= number < bound:
            raise wanted(f"a number of type {kind}", value)
        return number

    return read


def _double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise wanted("a number", value)
    try:
        return float(value)
    except (ValueError, OverflowError) as error:
        raise wanted("a number", value) from error


def _single(value: Any) -> float:
    """A number as one of 32 bits."""
    number = _double(value)
    try:
        return float(_FLOAT.unpack(_FLOAT.pack(number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def _bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise wanted("bytes", value)
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return _utf_8(value)


def _utf_8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise wanted("a text that UTF-8 can express", text) from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise wanted("a text", value)
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise wanted("a boolean", value)
    return value


def _null(value: Any) -> None:
    if value is not None:
        raise wanted("null", value)


_READS: Final[Mapping[str, Convert]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _integer("int"),
    "long": _integer("long"),
    "float": _single,
    "double": _double,
    "bytes": _bytes,
    "string": _text,
}


def _plain(schema: Primitive | Fixed) -> Convert:
    """The reader of what a logical type stands for."""
    if not isinstance(schema, Fixed):
        return _READS[schema.kind]
    size = schema.size

    def read(value: Any) -> bytes:
        data = _bytes(value)
        if len(data) != size:
            raise wanted(f"{size} bytes", value)
        return data

    return read


# -- writing


class _Writing(_Walk):
    def record(self, schema: Record) -> Convert:
        fields = [(each.name, self.of(each.type), _default(each)) for each in schema.fields]
        names = {each.name for each in schema.fields}

        def write(value: Any) -> dict[str, Any]:
            if not isinstance(value, dict):
                raise wanted(f"record {schema.name.full}", value)
            if not value.keys() <= names:
                raise Misfit(f"record {schema.name.full} has no field {min(map(str, value.keys() - names))!r}")
            found, name = {}, ""
            try:
                for name, convert, default in fields:
                    found[name] = convert(value[name] if name in value else default())
            except Misfit as misfit:
                raise misfit.within(name) from None
            return found

        return write

    def union(self, schema: Union) -> Convert:
        converts, kinds = [self.of(each) for each in schema.branches], [each.kind for each in schema.branches]
        if len(kinds) == 2 and "null" in kinds:
            one = converts[1 - kinds.index("null")]
            return lambda value: None if value is None else one(value)
        return _first(converts, [is_of(each) for each in schema.branches], kinds)

    def leaf(self, schema: Primitive | Enum | Fixed) -> Convert:
        if isinstance(schema, Enum):
            return _written_symbol(schema)
        logical = logical_of(schema)
        if logical is not None and logical_name(schema) == "decimal":
            return _written_decimal(logical.plain)
        write = _WRITES["bytes" if isinstance(schema, Fixed) else schema.kind]
        if isinstance(schema, Fixed):
            write = _written_fixed(schema.size)
        if logical is None:
            return write
        plain = logical.plain
        return lambda value: write(plain(value))


def _written_symbol(schema: Enum) -> Convert:
    def write(value: Any) -> str:
        if not isinstance(value, str) or value not in schema.symbols:
            raise wanted(f"a symbol of enum {schema.name.full}", value)
        return value

    return write


def _written_decimal(plain: Convert) -> Convert:
    def write(value: Any) -> str:
        plain(value)  # a misfit if it has more digits than its type
        if isinstance(value, bytes):
            raise wanted("a Decimal", value)
        return f"{value:f}" if not isinstance(value, int) else str(value)

    return write


def _written_fixed(size: int) -> Convert:
    def write(value: Any) -> str:
        if not isinstance(value, bytes | bytearray) or len(value) != size:
            raise wanted(f"{size} bytes", value)
        return base64.b64encode(value).decode()

    return write


def _written_double(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wanted("a number", value)
    try:
        return json_number(float(value))
    except OverflowError as error:
        raise wanted("a number of type double", value) from error


def _written_single(value: Any) -> Any:
    number = _written_double(value)
    if isinstance(number, float) and math.isinf(_single(number)):
        raise wanted("a number of type float", value)
    return number


def _written_bytes(value: Any) -> str:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise wanted("bytes", value)
    return base64.b64encode(value).decode()


def _written_integer(kind: str) -> Convert:
    bound = _BOUNDS[kind]

    def write(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not -bound <= value < bound:
            raise wanted(f"a number of type {kind}", value)
        return value

    return write


_WRITES: Final[Mapping[str, Convert]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _written_integer("int"),
    "long": _written_integer("long"),
    "float": _written_single,
    "double": _written_double,
    "bytes": _written_bytes,
    "string": _text,
}
