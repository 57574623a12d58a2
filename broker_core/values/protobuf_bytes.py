# SPDX-License-Identifier: Apache-2.0
"""Columns as messages of PROTOBUF_NATIVE schemas, by the descriptor of the message: ``protobuf_values`` reads them.

Protobuf's own library writes each message. A null is a field that is absent; a field without presence cannot be absent,
so that a null there is refused, as it would be read as a zero or an empty text. Columns that are bytes already are
messages as they are.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from broker_core.base.errors import RowError
from broker_core.schemas.protobuf_native import root_descriptor
from broker_core.values.writing import MismatchError, check_names, subject

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32())
_TAKEN: Final[Mapping[int, tuple[pa.DataType, ...]]] = {
    FieldDescriptor.CPPTYPE_BOOL: (pa.bool_(),),
    FieldDescriptor.CPPTYPE_INT32: _INTEGERS,
    FieldDescriptor.CPPTYPE_UINT32: (*_INTEGERS, pa.int64()),
    FieldDescriptor.CPPTYPE_INT64: (*_INTEGERS, pa.int64()),
    FieldDescriptor.CPPTYPE_UINT64: (*_INTEGERS, pa.int64(), pa.decimal128(20, 0)),
    FieldDescriptor.CPPTYPE_FLOAT: (pa.float32(), *_INTEGERS[:2]),
    FieldDescriptor.CPPTYPE_DOUBLE: (pa.float64(), pa.float32(), *_INTEGERS),
    FieldDescriptor.CPPTYPE_STRING: (pa.string(),),
    FieldDescriptor.CPPTYPE_ENUM: (pa.string(),),
}
"""Columns of each type of field; those of bytes are of their own."""

_TIMES: Final = {"google.protobuf.Timestamp": pa.types.is_timestamp, "google.protobuf.Duration": pa.types.is_duration}
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)

_Put: TypeAlias = Callable[[Any, Any], None]
"""Puts a value, which is not null, into a message."""


class _MisfitError(Exception):
    """A row has a value that its message cannot have. The text begins with the path of the field."""


class ProtobufEncoder:
    """Messages of one schema."""

    def __init__(self, data: bytes, column: str) -> None:
        """``data``: of the schema; DescriptorError. ``column``: the name with which paths begin."""
        self._descriptor = root_descriptor(data)
        self._message = GetMessageClass(self._descriptor)
        self._column = column
        self._puts: dict[pa.DataType, _Put] = {}

    def check(self, arrow: pa.DataType) -> None:
        """MismatchError if no row of this type can be written."""
        if not pa.types.is_binary(arrow):
            self._put(arrow)

    def encode(self, rows: pa.Array) -> pa.Array:
        """The messages of ``rows``, binary; a null row is null."""
        if pa.types.is_binary(rows.type):
            return rows
        put = self._put(rows.type)
        found: list[bytes | None] = []
        for number, cell in enumerate(rows):
            try:
                row = cell.as_py()
                found.append(None if row is None else self._written(put, row))
            except _MisfitError as misfit:
                raise RowError(number, f"cannot be written: {misfit}") from misfit
            except (OverflowError, UnicodeDecodeError) as error:
                flaw = (
                    f"cannot be written: it has a time that Protobuf does not have, or text that is not UTF-8: {error}"
                )
                raise RowError(number, flaw) from error
        return pa.array(found, pa.binary())

    def _put(self, arrow: pa.DataType) -> _Put:
        if arrow not in self._puts:
            self._puts[arrow] = _message(self._descriptor, arrow, self._column)
        return self._puts[arrow]

    def _written(self, put: _Put, row: Any) -> bytes:
        message: Any = self._message()
        put(message, row)
        if not message.IsInitialized():
            raise _MisfitError(f"{message.FindInitializationErrors()[0]} is required, and absent")
        data: bytes = message.SerializeToString()
        return data


# -- messages


def _message(descriptor: Descriptor, arrow: pa.DataType, path: str) -> _Put:
    """Fills a message; MismatchError if columns of this type cannot."""
    if descriptor.full_name in _TIMES:
        return _time(descriptor, arrow, path)
    if descriptor.full_name in _WRAPPERS:
        return _wrapped(descriptor, arrow, path)
    if not pa.types.is_struct(arrow):
        raise _mismatch(path, arrow, f"message {descriptor.full_name}")
    names = [each.name for each in arrow]
    check_names(f"message {descriptor.full_name}", list(descriptor.fields_by_name), names, path)
    for field in descriptor.fields:
        if field.is_required and field.name not in names:
            raise MismatchError(f"there is no column {_below(path, field.name)}, which is required", hint="add it")
    fields = descriptor.fields_by_name
    puts = [(name, _field(fields[name], arrow.field(name).type, _below(path, name))) for name in names]
    one_of = _check_one_of(descriptor, set(names), path)

    def put(message: Any, value: Any) -> None:
        one_of(value)
        for name, each in puts:
            each(message, value[name])

    return put


def _check_one_of(descriptor: Descriptor, names: set[str], path: str) -> Callable[[Any], None]:
    """Looks that a row has one field of each oneof at most: of several the last would be left."""
    groups = [[each.name for each in one_of.fields if each.name in names] for one_of in descriptor.oneofs]

    def check(value: Any) -> None:
        for group in groups:
            given = [name for name in group if value[name] is not None]
            if len(given) > 1:
                first = _below(path, given[0])
                raise _MisfitError(f"{first} and {given[1]} are not null, and a message has one of them")

    return check


def _time(descriptor: Descriptor, arrow: pa.DataType, path: str) -> _Put:
    if not _TIMES[descriptor.full_name](arrow) or getattr(arrow, "tz", "UTC") is None:
        raise _mismatch(path, arrow, f"message {descriptor.full_name}")

    def put(message: Any, value: Any) -> None:
        micros = (value if isinstance(value, dt.timedelta) else value - _EPOCH) // _MICROSECOND
        # Of a duration both have the same sign, of a time the nanoseconds are positive.
        seconds = -(-micros // 1_000_000) if isinstance(value, dt.timedelta) and micros < 0 else micros // 1_000_000
        message.seconds, message.nanos = seconds, (micros - seconds * 1_000_000) * 1000
        message.SetInParent()

    return put


def _wrapped(descriptor: Descriptor, arrow: pa.DataType, path: str) -> _Put:
    put = _field(descriptor.fields_by_name["value"], arrow, path)

    def put_wrapped(message: Any, value: Any) -> None:
        message.SetInParent()
        put(message, value)

    return put_wrapped


# -- fields


def _field(field: FieldDescriptor, arrow: pa.DataType, path: str) -> _Put:
    """Puts a column into its field. A null leaves it out, if it may be."""
    if field.is_repeated:
        below = field.message_type
        if below is not None and below.GetOptions().map_entry:
            return _refusing_nulls(_map(field.name, below, arrow, path), path)
        return _refusing_nulls(_list(field, arrow, path), path)
    name = field.name
    if field.message_type is not None:
        put_message = _message(field.message_type, arrow, path)

        def put_below(message: Any, value: Any) -> None:
            if value is not None:
                below = getattr(message, name)
                below.SetInParent()
                put_message(below, value)

        return put_below
    made = _leaf(field, arrow, path)

    def put(message: Any, value: Any) -> None:
        if value is not None:
            try:
                setattr(message, name, made(value))
            except (ValueError, TypeError) as error:
                raise _MisfitError(f"{path or 'the value'} is out of the range of its type") from error

    return put if field.has_presence else _refusing_nulls(put, path)


def _refusing_nulls(put: _Put, path: str) -> _Put:
    def refusing(message: Any, value: Any) -> None:
        if value is None:
            raise _MisfitError(f"{path or 'the value'} is null, which its schema does not have")
        put(message, value)

    return refusing


def _list(field: FieldDescriptor, arrow: pa.DataType, path: str) -> _Put:
    if not pa.types.is_list(arrow):
        raise _mismatch(path, arrow, "a repeated field")
    name, item = field.name, _item(field, arrow.value_type, f"{path}[]")

    def put(message: Any, value: Any) -> None:
        items = getattr(message, name)
        for each in value:
            item(items, None, each)

    return put


def _map(name: str, pair: Descriptor, arrow: pa.DataType, path: str) -> _Put:
    if not pa.types.is_map(arrow):
        raise _mismatch(path, arrow, "a map")
    key = _leaf(pair.fields_by_name["key"], arrow.key_type, path)
    item = _item(pair.fields_by_name["value"], arrow.item_type, f"{path}{{}}")

    def put(message: Any, value: Any) -> None:
        items = getattr(message, name)
        for each, below in value:
            item(items, key(each), below)

    return put


def _item(field: FieldDescriptor, arrow: pa.DataType, path: str) -> Callable[[Any, Any, Any], None]:
    """Adds a value to a list, whose key is None, or to a map."""
    if field.message_type is not None:
        put_message = _message(field.message_type, arrow, path)

        def add_message(items: Any, key: Any, value: Any) -> None:
            if value is None:
                raise _MisfitError(f"{path} is null, which its schema does not have")
            put_message(items.add() if key is None else items[key], value)

        return add_message
    made = _leaf(field, arrow, path)

    def add(items: Any, key: Any, value: Any) -> None:
        if value is None:
            raise _MisfitError(f"{path} is null, which its schema does not have")
        try:
            if key is None:
                items.append(made(value))
            else:
                items[key] = made(value)
        except (ValueError, TypeError) as error:
            raise _MisfitError(f"{path} is out of the range of its type") from error

    return add


def _leaf(field: FieldDescriptor, arrow: pa.DataType, path: str) -> Callable[[Any], Any]:
    """Makes the value of a field of a column's."""
    taken = (pa.binary(),) if field.type == FieldDescriptor.TYPE_BYTES else _TAKEN[field.cpp_type]
    if arrow not in taken:
        raise _mismatch(path, arrow, f"a field of {taken[-1]}")
    if field.enum_type is not None:
        return _symbol(field.enum_type, path)
    return int if pa.types.is_decimal(arrow) else _same


def _same(value: Any) -> Any:
    return value


def _symbol(enum: EnumDescriptor, path: str) -> Callable[[Any], Any]:
    """The number of a symbol; a text of a number is one that has no symbol, as it is read."""
    numbers = {name: value.number for name, value in enum.values_by_name.items()}

    def made(value: Any) -> int:
        if value in numbers:
            return numbers[value]
        if value.lstrip("-").isdecimal() and not enum.is_closed:
            return int(value)
        raise _MisfitError(f"{path} is no symbol of enum {enum.full_name}")

    return made


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _mismatch(path: str, arrow: pa.DataType, wanted: str) -> MismatchError:
    return MismatchError(f"{subject(path)} is {arrow}, which does not fit its schema, {wanted}", hint="cast it")
