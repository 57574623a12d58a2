# SPDX-License-Identifier: Apache-2.0
"""Avro's binary form to Python values: functions that are made once for a pair of schemas, the writer's and ours.

Rules are those of ``avro.resolving``, as Java's clients read. Records become dicts, enums their symbols, unions the
value of their branch, and logical types objects of ``logical_types``: where both have one by the writer's, as that is
what it has meant. A payload may be anything: reads stay within it, lists of items without bytes are bounded, and so is
depth.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from typing import Any, Final

from broker_core.client.schemas.logical_types import Logical, logical_of
from broker_core.client.schemas.misfit import Misfit
from broker_core.schemas.avro.aliases import AliasClashError, renamed
from broker_core.schemas.avro.encoding import UnusableDefaultError, encoded_default
from broker_core.schemas.avro.resolving import IncomparableError, Resolver
from broker_core.schemas.avro.types import Array, AvroType, Enum, Fixed, Map, NoDefault, Record, Union

Read = Callable[[bytes, int], tuple[Any, int]]
"""Reads a value that begins at a place of the payload; returns it, and where the next one begins."""

EMPTY_ITEMS_MAX: Final = 100_000
"""Items that take no bytes, such as nulls, in one payload: any number of them may stand in a few bytes."""

_NUMBER_BITS_MAX: Final = 63
_INT_MAX: Final = 1 << 31
_float: Final = struct.Struct("<f")
_float_at = _float.unpack_from
_double_at = struct.Struct("<d").unpack_from


def avro_reader(writer: AvroType, reader: AvroType) -> Callable[[bytes], Any]:
    """A function that reads payloads of ``writer`` as ``reader`` has them; it raises ``Misfit``."""
    try:
        read = _Compiler().read(renamed(writer, reader), reader)
    except (AliasClashError, IncomparableError) as conflict:
        read = _unreadable(str(conflict))

    def decode(payload: bytes) -> Any:
        _spare.items = EMPTY_ITEMS_MAX
        try:
            value, end = read(payload, 0)
        except (IndexError, struct.error):
            raise _cut_off() from None
        except RecursionError:
            raise Misfit("it is nested too deep") from None
        if end != len(payload):  # Probably it was written with another schema.
            raise Misfit(f"{len(payload) - end} bytes are left over behind it")
        return value

    return decode


class _Spare(threading.local):
    """Items without bytes that the payload which this thread reads may still have."""

    items = EMPTY_ITEMS_MAX


_spare: Final = _Spare()


def _cut_off() -> Misfit:
    return Misfit("the payload ends in the midst of it")


# -- primitives


def _number(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    number, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > _NUMBER_BITS_MAX:
            raise Misfit("a number has more than 64 bits")
    if number >> 64:
        raise Misfit("a number has more than 64 bits")
    return (number >> 1) ^ -(number & 1), at


def _int(data: bytes, at: int) -> tuple[int, int]:
    number, at = _number(data, at)
    if not -_INT_MAX <= number < _INT_MAX:
        raise Misfit(f"{number} is no int of 32 bits")
    return number, at


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _number(data, at)
    end = at + size
    if size < 0 or end > len(data):
        raise Misfit(f"{size} bytes are announced, and {len(data) - at} are left")
    return data[at:end], end


def _string(data: bytes, at: int) -> tuple[str, int]:
    text, at = _bytes(data, at)
    try:
        return text.decode(), at
    except UnicodeDecodeError as error:
        raise Misfit(f"it is not UTF-8: {error.reason}") from error


def _boolean(data: bytes, at: int) -> tuple[bool, int]:
    return data[at] != 0, at + 1


def _single(data: bytes, at: int) -> tuple[float, int]:
    return _float_at(data, at)[0], at + 4


def _double(data: bytes, at: int) -> tuple[float, int]:
    return _double_at(data, at)[0], at + 8


def _null(data: bytes, at: int) -> tuple[None, int]:
    return None, at


def _as_float(data: bytes, at: int) -> tuple[float, int]:
    """A whole number as a float, which has 24 bits of it."""
    number, at = _number(data, at)
    return _float_at(_float.pack(number))[0], at


def _as_double(data: bytes, at: int) -> tuple[float, int]:
    number, at = _number(data, at)
    return float(number), at


_PRIMITIVES: Final[dict[str, Read]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": _number,
    "float": _single,
    "double": _double,
    "bytes": _bytes,
    "string": _string,
}


def _fixed(size: int) -> Read:
    def fixed(data: bytes, at: int) -> tuple[bytes, int]:
        end = at + size
        if end > len(data):
            raise _cut_off()
        return data[at:end], end

    return fixed


def _converted(read: Read, logical: Logical) -> Read:
    convert = logical.shown

    def value(data: bytes, at: int) -> tuple[Any, int]:
        plain, at = read(data, at)
        return convert(plain), at

    return value


def _unreadable(reason: str) -> Read:
    def refuse(data: bytes, at: int) -> tuple[Any, int]:
        raise Misfit(reason)

    return refuse


# -- what holds other values


def _enum(symbols: list[str | None], written: tuple[str, ...]) -> Read:
    def symbol(data: bytes, at: int) -> tuple[str, int]:
        number, at = _number(data, at)
        if not 0 <= number < len(symbols):
            raise Misfit(f"there is no symbol of number {number}")
        found = symbols[number]
        if found is None:
            raise Misfit(f"symbol {written[number]} is none that the reader has")
        return found, at

    return symbol


def _union(branches: list[Read]) -> Read:
    def branch(data: bytes, at: int) -> tuple[Any, int]:
        number, at = _number(data, at)
        if not 0 <= number < len(branches):
            raise Misfit(f"the union has no branch of number {number}")
        return branches[number](data, at)

    return branch


def _blocks(item: Callable[[bytes, int, Any], int], new: Callable[[], Any], is_empty: bool) -> Read:
    """A list or map in blocks: each begins with the number of its items; a negative one is followed by its bytes."""

    def blocks(data: bytes, at: int) -> tuple[Any, int]:
        found = new()
        while True:
            count, at = _number(data, at)
            if not count:
                return found, at
            if count < 0:
                count = -count
                _, at = _number(data, at)
            if is_empty:
                _spare.items -= count
                if _spare.items < 0:
                    raise Misfit(f"more than {EMPTY_ITEMS_MAX} items of no size")
            elif count > len(data) - at:
                raise Misfit(f"{count} items are announced, and {len(data) - at} bytes are left")
            for _ in range(count):
                at = item(data, at, found)

    return blocks


def _array(read: Read, is_empty: bool) -> Read:
    def item(data: bytes, at: int, found: list[Any]) -> int:
        try:
            value, at = read(data, at)
        except Misfit as misfit:
            raise misfit.within("[]") from None
        found.append(value)
        return at

    return _blocks(item, list, is_empty)


def _map(read: Read) -> Read:
    def item(data: bytes, at: int, found: dict[str, Any]) -> int:
        try:
            key, at = _string(data, at)
            found[key], at = read(data, at)
        except Misfit as misfit:
            raise misfit.within("{}") from None
        return at

    return _blocks(item, dict, False)


def _record(steps: list[tuple[str | None, str, Read]], defaults: list[tuple[str, Read, bytes]]) -> Read:
    """``steps``: the fields as written, with the name that the reader has for each, None for one that it has not.
    ``defaults``: the reader's own fields, each with its default as it would have been written."""

    def record(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        field = ""
        try:
            for wanted, name, read in steps:
                field = name
                value, at = read(data, at)
                if wanted is not None:
                    found[wanted] = value
        except Misfit as misfit:
            raise misfit.within(field) from None
        except (IndexError, struct.error):
            raise _cut_off().within(field) from None
        for name, read, default in defaults:
            found[name] = read(default, 0)[0]
        return found, at

    return record


class _Compiler:
    """The functions of one pair of schemas."""

    def __init__(self) -> None:
        self._resolver = Resolver()
        self._records: dict[tuple[int, int], list[Read]] = {}
        self._skipped: dict[int, list[Read]] = {}
        self._empty: dict[int, bool] = {}

    def read(self, writer: AvroType, reader: AvroType) -> Read:
        """A function that reads ``writer`` as ``reader``."""
        if isinstance(writer, Union):
            return _union(self._branches(writer, reader))
        if isinstance(reader, Union):
            branch = self._resolver.branch(writer, reader)
            return (
                _unreadable(f"{_named(writer)} is none of its types") if branch is None else self.read(writer, branch)
            )
        match writer, reader:
            case Record(), Record():
                return self._record(writer, reader)
            case Array(), Array():
                return _array(self.read(writer.items, reader.items), self._is_empty(writer.items))
            case Map(), Map():
                return _map(self.read(writer.values, reader.values))
        if reason := self._conflict(writer, reader):
            return _unreadable(reason)
        if isinstance(writer, Enum) and isinstance(reader, Enum):
            return _enum(_symbols(writer, reader), writer.symbols)
        return _leaf(writer, reader)

    def _branches(self, writer: Union, reader: AvroType) -> list[Read]:
        if isinstance(reader, Union) and self._resolver.is_alike(writer, reader):
            return [self.read(*pair) for pair in zip(writer.branches, reader.branches, strict=True)]
        return [self.read(each, reader) for each in writer.branches]

    def _conflict(self, writer: AvroType, reader: AvroType) -> str:
        try:
            found = self._resolver.resolved(writer, reader, None).conflicts
        except IncomparableError as error:
            return str(error)
        return found[0][1] if found else ""

    def _record(self, writer: Record, reader: Record) -> Read:
        """A record may be within itself: its function is looked up when it is called, then."""
        pair = (id(writer), id(reader))
        if (known := self._records.get(pair)) is not None:
            return lambda data, at: known[0](data, at)
        cell = self._records[pair] = []
        missing = [each for each in reader.fields if each.name not in writer.by_name]
        if reason := self._conflict(writer, reader) if missing else "":
            cell.append(_unreadable(reason))
            return cell[0]
        steps: list[tuple[str | None, str, Read]] = []
        for each in writer.fields:
            ours = reader.by_name.get(each.name)
            if ours is None:
                steps.append((None, each.name, self._skip(each.type)))
            else:
                steps.append((ours.name, each.name, self.read(each.type, ours.type)))
        try:
            defaults = [
                (each.name, self.read(each.type, each.type), encoded_default(each.type, each.default))
                for each in missing
                if not isinstance(each.default, NoDefault)
            ]
        except UnusableDefaultError as flaw:
            cell.append(_unreadable(flaw.message))
        else:
            cell.append(_record(steps, defaults))
        return cell[0]

    def _skip(self, writer: AvroType) -> Read:
        """A function that reads over a value; what it returns means nothing."""
        match writer:
            case Record():
                if (known := self._skipped.get(id(writer))) is not None:
                    return lambda data, at: known[0](data, at)
                cell = self._skipped[id(writer)] = []
                cell.append(_record([(None, each.name, self._skip(each.type)) for each in writer.fields], []))
                return cell[0]
            case Union():
                return _union([self._skip(each) for each in writer.branches])
            case Array():
                return _skipped_array(self._skip(writer.items), self._is_empty(writer.items))
            case Map():
                return _map(self._skip(writer.values))
            case Enum():
                return _number
            case Fixed():
                return _fixed(writer.size)
        return _bytes if writer.kind == "string" else _PRIMITIVES[writer.kind]

    def _is_empty(self, schema: AvroType) -> bool:
        """Whether values of ``schema`` take no bytes."""
        match schema:
            case Record():
                if id(schema) not in self._empty:
                    self._empty[id(schema)] = False  # of one within itself, until it is known
                    self._empty[id(schema)] = all(self._is_empty(each.type) for each in schema.fields)
                return self._empty[id(schema)]
            case Fixed():
                return schema.size == 0
            case _:
                return schema.kind == "null"


def _skipped_array(skip: Read, is_empty: bool) -> Read:
    def item(data: bytes, at: int, found: object) -> int:
        return skip(data, at)[1]

    return _blocks(item, object, is_empty)


def _leaf(writer: AvroType, reader: AvroType) -> Read:
    if isinstance(writer, Fixed):
        read = _fixed(writer.size)
    elif writer.kind in ("string", "bytes"):
        read = _PRIMITIVES[reader.kind]
    else:
        read = _PRIMITIVES[writer.kind]
        if writer.kind in ("int", "long"):
            read = {"float": _as_float, "double": _as_double}.get(reader.kind, read)
    ours = logical_of(reader)
    if ours is None:
        return read
    is_other = writer.kind in ("string", "bytes") and writer.kind != reader.kind
    return _converted(read, ours if is_other else logical_of(writer) or ours)


def _symbols(writer: Enum, reader: Enum) -> list[str | None]:
    """The reader's symbols for those of the writer."""
    return [each if each in reader.symbols else reader.default for each in writer.symbols]


def _named(schema: AvroType) -> str:
    return f"{schema.kind} {schema.name.full}" if isinstance(schema, Record | Enum | Fixed) else schema.kind
