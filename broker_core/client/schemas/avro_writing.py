# SPDX-License-Identifier: Apache-2.0
"""Python values to Avro's binary form: functions that are made once for a schema.

Records are dicts, enums their symbols, a union takes the first of its types that the value is one of. A field that is
absent has its default, or is null. Logical types take the objects of ``logical_types``, or what stands for them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from broker_core.client.schemas.logical_types import logical_of
from broker_core.client.schemas.misfit import Misfit, wanted
from broker_core.schemas.avro.defaults import fits
from broker_core.schemas.avro.encoding import UnusableDefaultError, encoded_default, zigzag
from broker_core.schemas.avro.resolving import STEPS_MAX
from broker_core.schemas.avro.types import Array, AvroType, Enum, Field, Fixed, Map, NoDefault, Primitive, Record, Union

Write = Callable[[Any, bytearray], None]
"""Appends a value to the payload."""

_INTS: Final = {"int": 1 << 31, "long": 1 << 63}
_SMALL: Final = [zigzag(number) for number in range(64)]


def avro_writer(schema: AvroType) -> Callable[[Any], bytes]:
    """A function that makes payloads; it raises ``Misfit``."""
    write = _Compiler().write(schema)

    def encode(value: Any) -> bytes:
        payload = bytearray()
        try:
            write(value, payload)
        except RecursionError:
            raise Misfit("it is nested too deep, or is within itself") from None
        return bytes(payload)

    return encode


def _number(number: int, payload: bytearray) -> None:
    payload += _SMALL[number] if 0 <= number < 64 else zigzag(number)


def _integer(kind: str) -> Write:
    bound = _INTS[kind]

    def write(value: Any, payload: bytearray) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not -bound <= value < bound:
            raise wanted(f"a number of type {kind}", value)
        _number(value, payload)

    return write


def _floating(kind: str) -> Write:
    pack = struct.Struct("<f" if kind == "float" else "<d").pack

    def write(value: Any, payload: bytearray) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wanted("a number", value)
        try:
            payload += pack(value)
        except (OverflowError, struct.error) as error:
            raise wanted(f"a number of type {kind}", value) from error

    return write


def _sized(data: bytes, payload: bytearray) -> None:
    _number(len(data), payload)
    payload += data


def _bytes(value: Any, payload: bytearray) -> None:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise wanted("bytes", value)
    _sized(bytes(value), payload)


def _string(value: Any, payload: bytearray) -> None:
    if not isinstance(value, str):
        raise wanted("a text", value)
    try:
        _sized(value.encode(), payload)
    except UnicodeEncodeError as error:
        raise wanted("a text that UTF-8 can express", value) from error


def _boolean(value: Any, payload: bytearray) -> None:
    if not isinstance(value, bool):
        raise wanted("a boolean", value)
    payload.append(value)


def _null(value: Any, payload: bytearray) -> None:
    if value is not None:
        raise wanted("null", value)


_PRIMITIVES: Final[Mapping[str, Write]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _integer("int"),
    "long": _integer("long"),
    "float": _floating("float"),
    "double": _floating("double"),
    "bytes": _bytes,
    "string": _string,
}


def _fixed(size: int) -> Write:
    def write(value: Any, payload: bytearray) -> None:
        if not isinstance(value, bytes | bytearray) or len(value) != size:
            raise wanted(f"{size} bytes", value)
        payload += value

    return write


def _enum(schema: Enum) -> Write:
    numbers = {symbol: zigzag(number) for number, symbol in enumerate(schema.symbols)}

    def write(value: Any, payload: bytearray) -> None:
        number = numbers.get(value) if isinstance(value, str) else None
        if number is None:
            raise wanted(f"a symbol of enum {schema.name.full}", value)
        payload += number

    return write


def _array(item: Write) -> Write:
    def write(value: Any, payload: bytearray) -> None:
        if not isinstance(value, list | tuple):
            raise wanted("a list", value)
        if value:
            _number(len(value), payload)
        try:
            for each in value:
                item(each, payload)
        except Misfit as misfit:
            raise misfit.within("[]") from None
        payload.append(0)

    return write


def _map(item: Write) -> Write:
    def write(value: Any, payload: bytearray) -> None:
        if not isinstance(value, dict):
            raise wanted("a dict", value)
        if value:
            _number(len(value), payload)
        try:
            for key, each in value.items():
                _string(key, payload)
                item(each, payload)
        except Misfit as misfit:
            raise misfit.within("{}") from None
        payload.append(0)

    return write


class _Compiler:
    def __init__(self) -> None:
        self._records: dict[int, list[Write]] = {}

    def write(self, schema: AvroType) -> Write:
        match schema:
            case Record():
                return self._record(schema)
            case Union():
                return self._union(schema)
            case Array():
                return _array(self.write(schema.items))
            case Map():
                return _map(self.write(schema.values))
            case Enum():
                return _enum(schema)
            case Fixed():
                return _logical(schema, _fixed(schema.size))
        return _logical(schema, _PRIMITIVES[schema.kind])

    def _record(self, schema: Record) -> Write:
        if (known := self._records.get(id(schema))) is not None:
            return lambda value, payload: known[0](value, payload)
        cell = self._records[id(schema)] = []
        fields = [(each.name, self.write(each.type), _absent(each)) for each in schema.fields]
        cell.append(_record(schema, fields))
        return cell[0]

    def _union(self, schema: Union) -> Write:
        writers = [(zigzag(number), self.write(each)) for number, each in enumerate(schema.branches)]
        kinds = [each.kind for each in schema.branches]
        if len(kinds) == 2 and "null" in kinds:
            return _optional(writers, kinds.index("null"))
        tests = [is_of(each) for each in schema.branches]

        def write(value: Any, payload: bytearray) -> None:
            start = len(payload)
            last: Misfit | None = None
            for (number, branch), test in zip(writers, tests, strict=True):
                if test(value):
                    payload += number
                    try:
                        branch(value, payload)
                        return
                    except Misfit as misfit:
                        last = misfit
                        del payload[start:]
            raise last or wanted(f"one of {', '.join(kinds)}", value)

        return write


def _optional(writers: list[tuple[bytes, Write]], null: int) -> Write:
    nothing, (number, branch) = writers[null][0], writers[1 - null]

    def write(value: Any, payload: bytearray) -> None:
        if value is None:
            payload += nothing
        else:
            payload += number
            branch(value, payload)

    return write


def _logical(schema: Primitive | Fixed, write: Write) -> Write:
    logical = logical_of(schema)
    if logical is None:
        return write
    plain = logical.plain
    return lambda value, payload: write(plain(value), payload)


def _absent(field: Field) -> bytes | None:
    """The value that is written for a field that is not given; None where it has to be."""
    if not isinstance(field.default, NoDefault) and fits(field.type, field.default, STEPS_MAX):
        with suppress(UnusableDefaultError):  # One of no use is none.
            return encoded_default(field.type, field.default)
    if isinstance(field.type, Union):
        for number, branch in enumerate(field.type.branches):
            if branch.kind == "null":
                return zigzag(number)
    return b"" if field.type.kind == "null" else None


def _record(schema: Record, fields: list[tuple[str, Write, bytes | None]]) -> Write:
    names = {name for name, _, _ in fields}
    missing = object()

    def write(value: Any, payload: bytearray) -> None:
        if not isinstance(value, dict):
            raise wanted(f"record {schema.name.full}", value)
        if not value.keys() <= names:
            raise Misfit(f"record {schema.name.full} has no field {min(map(str, value.keys() - names))!r}")
        name = ""
        try:
            for name, item, absent in fields:
                each = value.get(name, missing)
                if each is not missing:
                    item(each, payload)
                elif absent is None:
                    raise Misfit("it is missing, and has no default")
                else:
                    payload += absent
        except Misfit as misfit:
            raise misfit.within(name) from None

    return write


_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "float": (float, int),
    "double": (float, int),
    "bytes": (bytes, bytearray, memoryview),
    "string": (str,),
    "enum": (str,),
    "fixed": (bytes, bytearray),
    "array": (list, tuple),
    "map": (dict,),
    "record": (dict,),
}


def is_of(schema: AvroType) -> Callable[[Any], bool]:
    """Whether a value may be meant for a branch of a union, at the first look."""
    if logical_of(schema) is not None:
        return lambda value: value is not None and not isinstance(value, bool | dict | list | float)
    if schema.kind in _INTS:
        bound = _INTS[schema.kind]
        return lambda value: isinstance(value, int) and not isinstance(value, bool) and -bound <= value < bound
    kinds = _TYPES[schema.kind]
    return lambda value: isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
