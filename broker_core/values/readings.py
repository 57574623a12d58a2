# SPDX-License-Identifier: Apache-2.0
"""Readings: the ways in which values of writers' schemas become the column of a reader's.

A form is a reader's schema; it gives a reading for each writer's. Writers whose values are read together have the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.base.errors import PulsarishError
from broker_core.schemas.avro.types import AvroType
from broker_core.schemas.definition import definition_of
from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.schemas.protobuf_native import root_message
from broker_core.values.charsets import PLAIN, known_charset
from broker_core.values.decoding import Decoded, Flaw, decode
from broker_core.values.json_values import decode_json
from broker_core.values.primitives import arrow_type, decode_primitive
from broker_core.values.programs import Programs
from broker_core.values.protobuf_values import ProtobufValues
from broker_core.values.targets import Target, targets_of
from broker_core.wire.batch import columns as cols

_AS_THEY_ARE: Final = frozenset((SchemaType.BYTES, SchemaType.NONE, SchemaType.EXTERNAL, SchemaType.PROTOBUF))
"""Types whose values are binary columns. PROTOBUF has no descriptor of its messages, only an Avro schema like it."""


class Reading(Protocol):
    """A way to read values."""

    def decode(self, values: pa.Array, numbers: NDArray[np.int64], keys: pa.Array | None) -> Decoded:
        """Read ``values``, each written with the schema that has its number, of messages with these ``keys``."""
        ...


class Form(Protocol):
    """A reader's schema as a column."""

    @property
    def arrow(self) -> pa.DataType:
        """The type of the column."""
        ...

    def reading(self, number: int, writer: SchemaInfo) -> Reading:
        """The way to read values of ``writer``, which has this number from now on."""
        ...


def form_of(reader: SchemaInfo, recursive_depth: int) -> Form:
    """The form of any schema but KEY_VALUE; InvalidSchemaError, RecursiveSchemaError, TooManyColumnsError."""
    definition = definition_of(reader)
    if reader.type in _AS_THEY_ARE:
        return _Bytes()
    if definition.avro is not None:
        return _Records(definition.avro, recursive_depth)
    if reader.type is SchemaType.PROTOBUF_NATIVE:
        return _Messages(ProtobufValues(reader.data, recursive_depth))
    return _Primitives(reader.type)


@dataclass(frozen=True, slots=True, eq=False)
class Unreadable:
    """The reading of values that the reader's schema has no place for."""

    arrow: pa.DataType
    reason: str

    def decode(self, values: pa.Array, _numbers: NDArray[np.int64], _keys: pa.Array | None) -> Decoded:
        """Nulls, each with a flaw."""
        rows = np.flatnonzero(cols.presence(values)).tolist()
        return Decoded(pa.nulls(len(values), self.arrow), [Flaw(row, self.reason) for row in rows])


class _Bytes:
    """Values as they are: a form that is its own reading."""

    arrow: Final = pa.binary()

    def reading(self, _number: int, _writer: SchemaInfo) -> Reading:
        return self

    def decode(self, values: pa.Array, _numbers: NDArray[np.int64], _keys: pa.Array | None) -> Decoded:
        return Decoded(values, [])


# -- primitives


@dataclass(frozen=True, slots=True)
class _Primitives:
    kind: SchemaType

    @property
    def arrow(self) -> pa.DataType:
        return arrow_type(self.kind)

    def reading(self, _number: int, writer: SchemaInfo) -> Reading:
        if writer.type is not self.kind:
            return Unreadable(self.arrow, f"it was written as {writer.type.name}, and is read as {self.kind.name}")
        name = known_charset(writer.charset)
        if name is None:
            return Unreadable(self.arrow, f"its charset {writer.charset!r} is not known")
        return _Primitive(self.kind) if name == PLAIN else _Text(name)


@dataclass(frozen=True, slots=True)
class _Primitive:
    kind: SchemaType

    def decode(self, values: pa.Array, _numbers: NDArray[np.int64], _keys: pa.Array | None) -> Decoded:
        return decode_primitive(self.kind, values)


@dataclass(frozen=True, slots=True)
class _Text:
    """Text in another charset than UTF-8."""

    charset: str

    def decode(self, values: pa.Array, _numbers: NDArray[np.int64], _keys: pa.Array | None) -> Decoded:
        texts = [None if each is None else each.decode(self.charset, "replace") for each in values.to_pylist()]
        return Decoded(pa.array(texts, pa.string()), [])


# -- Avro and JSON


class _Records:
    """A schema that is an Avro definition. Its values are Avro's bytes or JSON, as each writer's schema says."""

    def __init__(self, reader: AvroType, recursive_depth: int) -> None:
        target = targets_of(reader, recursive_depth=recursive_depth)
        self.arrow: Final = target.arrow
        self._avro = _Avro(Programs(target, reader))
        self._json = _Json(target)

    def reading(self, number: int, writer: SchemaInfo) -> Reading:
        if writer.type is SchemaType.JSON:
            return self._json
        if writer.type is not SchemaType.AVRO:
            return Unreadable(self.arrow, f"it was written as {writer.type.name}, and is read as a record")
        try:
            self._avro.add(number, writer)
        except PulsarishError as flaw:
            return Unreadable(self.arrow, f"its schema is not valid: {flaw.message}")
        return self._avro


class _Avro:
    """All writers of Avro together."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._starts = np.empty(0, np.int64)

    def add(self, number: int, writer: SchemaInfo) -> None:
        """InvalidSchemaError."""
        schema = definition_of(writer).avro
        assert schema is not None
        missing = np.full(max(number + 1 - len(self._starts), 0), -1, np.int64)
        self._starts = np.concatenate([self._starts, missing])
        self._starts[number] = self._programs.add(schema)

    def decode(self, values: pa.Array, numbers: NDArray[np.int64], _keys: pa.Array | None) -> Decoded:
        # Rows of other readings are null in ``values``, so that their numbers may be any.
        return decode(self._programs, values, self._starts[np.minimum(numbers, len(self._starts) - 1)])


@dataclass(frozen=True, slots=True, eq=False)
class _Json:
    target: Target

    def decode(self, values: pa.Array, _numbers: NDArray[np.int64], _keys: pa.Array | None) -> Decoded:
        return decode_json(self.target, values)


# -- Protobuf


@dataclass(frozen=True, slots=True, eq=False)
class _Messages:
    """A form that is its own reading of all messages of that name: fields are found by their numbers."""

    values: ProtobufValues

    @property
    def arrow(self) -> pa.DataType:
        return self.values.arrow

    def reading(self, _number: int, writer: SchemaInfo) -> Reading:
        if writer.type is not SchemaType.PROTOBUF_NATIVE:
            return Unreadable(self.arrow, f"it was written as {writer.type.name}, and is read as a message")
        try:
            name = root_message(writer.data)
        except PulsarishError as flaw:
            return Unreadable(self.arrow, f"its schema is not valid: {flaw.message}")
        if name != self.values.name:
            return Unreadable(self.arrow, f"it was written as message {name}, and is read as {self.values.name}")
        return self

    def decode(self, values: pa.Array, _numbers: NDArray[np.int64], _keys: pa.Array | None) -> Decoded:
        return self.values.decode(values)


# -- several readings of one batch


def only(values: pa.Array, rows: NDArray[np.bool_]) -> pa.Array:
    """``values``, binary, with null in all other rows."""
    column = cols.ByteColumn.of(values)
    return cols.ByteColumn(column.data, column.offsets, column.present & rows).to_arrow(pa.binary())


def merged(arrow: pa.DataType, count: int, parts: Sequence[tuple[Decoded, NDArray[np.bool_]]]) -> Decoded:
    """``count`` rows, each from the part that has it; null where none does."""
    if not parts:
        return Decoded(pa.nulls(count, arrow), [])
    indices, known = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    for number, (_, rows) in enumerate(parts):
        indices[rows] = np.flatnonzero(rows) + number * count
        known |= rows
    chosen = pa.concat_arrays([each.rows for each, _ in parts]).take(cols.numbers(indices, known))
    return Decoded(chosen, [flaw for each, rows in parts for flaw in each.flaws if rows[flaw.row]])
