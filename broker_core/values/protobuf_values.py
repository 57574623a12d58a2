# SPDX-License-Identifier: Apache-2.0
"""Values of PROTOBUF_NATIVE schemas as Arrow columns, by the descriptor of the reader's message.

Protobuf's own library parses each payload; then columns are made of all messages at once, field by field. A field with
presence that is absent is null, any other has the value that Protobuf gives it. Fields of other versions are found by
their numbers, as everywhere in Protobuf.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from broker_core.schemas.protobuf_native import root_descriptor
from broker_core.values.decoding import Decoded, Flaw
from broker_core.values.programs import told
from broker_core.values.targets import COLUMNS_MAX, RecursiveSchemaError, TooManyColumnsError
from broker_core.wire.batch import columns as cols

_LEAVES: Final = {
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_STRING: pa.string(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
}
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_TIMES: Final = {
    "google.protobuf.Timestamp": pa.timestamp("us", tz="UTC"),
    "google.protobuf.Duration": pa.duration("us"),
}
_TIME_S_MAX: Final = (1 << 63) // 1_000_000 - 1
_NANOS_MAX: Final = 999_999_999


class _MisfitError(ValueError):
    """A message has a value that its column cannot hold. The text begins with the path of the field."""


class _Column(Protocol):
    """A column that is made of values of messages."""

    @property
    def arrow(self) -> pa.DataType: ...

    def array(self, values: Sequence[Any]) -> pa.Array:
        """The column of ``values``, of which None is null; _MisfitError."""
        ...


class ProtobufValues:
    """The columns of a message, and how payloads become rows of them."""

    def __init__(self, data: bytes, recursive_depth: int) -> None:
        """``data``: of the schema. DescriptorError, RecursiveSchemaError, TooManyColumnsError."""
        descriptor = root_descriptor(data)
        self.name: Final = descriptor.full_name
        making = _Making(recursive_depth)
        self._column = making.message(descriptor, "", ())
        self._message = GetMessageClass(descriptor)
        self._has_required = making.has_required

    @property
    def arrow(self) -> pa.DataType:
        """The type of the column."""
        return self._column.arrow

    def decode(self, values: pa.Array) -> Decoded:
        """Read ``values``, binary; null is null, and so is a row with a flaw."""
        messages: list[Message | None] = []
        flaws: list[Flaw] = []
        for row, data in enumerate(values.to_pylist()):
            message, reason = (None, "") if data is None else self._parsed(data)
            messages.append(message)
            if reason:
                flaws.append(Flaw(row, reason))
        try:
            return Decoded(self._column.array(messages), flaws)
        except _MisfitError:
            flaws += self._take_out(messages)
            return Decoded(self._column.array(messages), sorted(flaws))

    def _parsed(self, data: bytes) -> tuple[Message | None, str]:
        """A message, or why it is none."""
        try:
            message: Any = self._message.FromString(data)
        except DecodeError:
            return None, f"it is no message {self.name}"
        if self._has_required and not message.IsInitialized():
            return None, f"{message.FindInitializationErrors()[0]}: it is required, and absent"
        return message, ""

    def _take_out(self, messages: list[Message | None]) -> list[Flaw]:
        """The flaws of messages whose values are misfits. Those are null from now on."""
        flaws = []
        for row, message in enumerate(messages):
            try:
                self._column.array([message])
            except _MisfitError as misfit:
                flaws.append(Flaw(row, str(misfit)))
                messages[row] = None
        return flaws


class _Making:
    """The columns of one message under way."""

    def __init__(self, recursive_depth: int) -> None:
        self._recursive_depth = recursive_depth
        self._made = 0
        self.has_required = False

    def message(self, descriptor: Descriptor, path: str, within: tuple[Descriptor, ...]) -> _Column:
        self._count()
        if descriptor.full_name in _TIMES:
            return _Times(path, _TIMES[descriptor.full_name])
        if descriptor.full_name in _WRAPPERS:
            return _Wrapped(self._leaf(descriptor.fields_by_name["value"], path))
        if within.count(descriptor) > self._recursive_depth:
            return self._cut(descriptor, path)
        parts = []
        for field in descriptor.fields:
            self.has_required |= field.is_required
            below = f"{path}.{field.name}" if path else field.name
            parts.append(_Part(field.name, field.has_presence, self._field(field, below, (*within, descriptor))))
        return _Struct(pa.struct([(each.name, each.column.arrow) for each in parts]), tuple(parts))

    def _count(self) -> None:
        self._made += 1
        if self._made > COLUMNS_MAX:
            raise TooManyColumnsError(
                f"the message would become more than {COLUMNS_MAX} columns", hint="use a smaller recursiveDepth"
            )

    def _cut(self, descriptor: Descriptor, path: str) -> _Column:
        if not self._recursive_depth:
            raise RecursiveSchemaError(
                f"{path}: message {descriptor.full_name} is within itself",
                hint="say how often it may be with recursiveDepth; what is deeper is null",
            )
        return _Cut()

    def _field(self, field: FieldDescriptor, path: str, within: tuple[Descriptor, ...]) -> _Column:
        if not field.is_repeated:
            return self._value(field, path, within)
        below = field.message_type
        if below is not None and below.GetOptions().map_entry:
            names = below.fields_by_name
            key, value = self._leaf(names["key"], path), self._value(names["value"], f"{path}{{}}", within)
            return _Map(pa.map_(key.arrow, value.arrow), key, value)
        item = self._value(field, f"{path}[]", within)
        return _List(pa.list_(item.arrow), item)

    def _value(self, field: FieldDescriptor, path: str, within: tuple[Descriptor, ...]) -> _Column:
        return self._leaf(field, path) if field.message_type is None else self.message(field.message_type, path, within)

    def _leaf(self, field: FieldDescriptor, path: str) -> _Column:
        self._count()
        if field.enum_type is not None:
            return _Enum(path, {number: value.name for number, value in field.enum_type.values_by_number.items()})
        arrow = pa.binary() if field.type == FieldDescriptor.TYPE_BYTES else _LEAVES[field.cpp_type]
        return _Leaf(path, arrow)


# -- columns


@dataclass(frozen=True, slots=True, eq=False)
class _Leaf:
    path: str
    arrow: pa.DataType

    def array(self, values: Sequence[Any]) -> pa.Array:
        try:
            return pa.array(values, self.arrow)
        except (pa.ArrowException, UnicodeEncodeError, OverflowError) as error:
            raise _MisfitError(told(self.path, f"it is no {self.arrow}")) from error


@dataclass(frozen=True, slots=True, eq=False)
class _Enum:
    """Symbols as text. A number that has no symbol is the text of the number, as in Protobuf's JSON."""

    path: str
    symbols: dict[int, str]

    @property
    def arrow(self) -> pa.DataType:
        return pa.string()

    def array(self, values: Sequence[Any]) -> pa.Array:
        known = self.symbols
        return pa.array([None if each is None else known.get(each) or str(each) for each in values], self.arrow)


@dataclass(frozen=True, slots=True, eq=False)
class _Times:
    """Seconds and nanoseconds as microseconds, by floor."""

    path: str
    arrow: pa.DataType

    def array(self, values: Sequence[Any]) -> pa.Array:
        return pa.array([None if each is None else self._micros(each) for each in values], self.arrow)

    def _micros(self, message: Any) -> int:
        seconds, nanos = message.seconds, message.nanos
        if abs(seconds) > _TIME_S_MAX or abs(nanos) > _NANOS_MAX:
            raise _MisfitError(told(self.path, f"{seconds} s and {nanos} ns are no {message.DESCRIPTOR.name}"))
        return int(seconds * 1_000_000 + nanos // 1000)


@dataclass(frozen=True, slots=True, eq=False)
class _Wrapped:
    column: _Column

    @property
    def arrow(self) -> pa.DataType:
        return self.column.arrow

    def array(self, values: Sequence[Any]) -> pa.Array:
        return self.column.array([None if each is None else each.value for each in values])


class _Cut:
    """A message that is deeper within itself than was asked for."""

    arrow: Final = pa.string()

    def array(self, values: Sequence[Any]) -> pa.Array:
        return pa.nulls(len(values), self.arrow)


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A field. ``has_presence``: it may be absent."""

    name: str
    has_presence: bool
    column: _Column

    def array(self, messages: Sequence[Any]) -> pa.Array:
        name, of = self.name, attrgetter(self.name)
        if self.has_presence:
            return self.column.array(
                [None if each is None or not each.HasField(name) else of(each) for each in messages]
            )
        return self.column.array([None if each is None else of(each) for each in messages])


@dataclass(frozen=True, slots=True, eq=False)
class _Struct:
    arrow: pa.DataType
    parts: tuple[_Part, ...]

    def array(self, values: Sequence[Any]) -> pa.Array:
        children = [each.array(values) for each in self.parts]
        return pa.Array.from_buffers(self.arrow, len(values), [_validity(values)], children=children)


@dataclass(frozen=True, slots=True, eq=False)
class _List:
    arrow: pa.DataType
    item: _Column

    def array(self, values: Sequence[Any]) -> pa.Array:
        items = self.item.array([item for each in values if each is not None for item in each])
        return _listed(self.arrow, values, items)


@dataclass(frozen=True, slots=True, eq=False)
class _Map:
    arrow: pa.DataType
    key: _Column
    value: _Column

    def array(self, values: Sequence[Any]) -> pa.Array:
        pairs = [pair for each in values if each is not None for pair in each.items()]
        parts = [self.key.array([key for key, _ in pairs]), self.value.array([value for _, value in pairs])]
        return _listed(
            self.arrow,
            values,
            pa.StructArray.from_arrays(parts, fields=[self.arrow.key_field, self.arrow.item_field]),
        )


def _listed(arrow: pa.DataType, values: Sequence[Any], items: pa.Array) -> pa.Array:
    sizes = np.array([0 if each is None else len(each) for each in values], np.int32)
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return pa.Array.from_buffers(arrow, len(values), [_validity(values), pa.py_buffer(offsets)], children=[items])


def _validity(values: Sequence[Any]) -> pa.Buffer | None:
    return cols.validity(np.array([each is not None for each in values], np.bool_))
