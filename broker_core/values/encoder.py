# SPDX-License-Identifier: Apache-2.0
"""Encoder of values: columns to payloads of one schema, whole columns at a time. ``decoder`` is its other half."""

from __future__ import annotations

from typing import Final, TypeAlias

import pyarrow as pa

from broker_core.schemas.avro.parsing import parse
from broker_core.schemas.info import UTF_8, SchemaInfo, SchemaType
from broker_core.schemas.key_value import SEPARATED, divided
from broker_core.values.charsets import PLAIN, encode_text, known_charset
from broker_core.values.primitive_bytes import encode_primitive, takes
from broker_core.values.protobuf_bytes import ProtobufEncoder
from broker_core.values.write_program import Program, joining_program
from broker_core.values.writing import MismatchError, avro_program, json_program, subject
from broker_core.wire.batch import columns as cols

_PARTS: Final = ("key", "value")


class ValueEncoder:
    """Payloads of the schema ``info`` for columns of any type that fits it."""

    def __init__(self, info: SchemaInfo, *, column: str = "") -> None:
        """``column``: the name of the column that values are in, with which paths in errors begin; those of pairs begin
        with key and value. SchemaParseError, KeyValueError or DescriptorError for a schema that is none."""
        self.info = info
        self._encoder = _encoder(info, column)

    @property
    def has_keys(self) -> bool:
        """Whether a part of the value is the key of its message: ``encode_keys`` has it."""
        return isinstance(self._encoder, _KeyValueEncoder) and self._encoder.is_separated

    def check(self, arrow: pa.DataType) -> None:
        """MismatchError if no row of this type can be written; its message begins with the path of the column."""
        self._encoder.check(_plain(arrow))

    def encode(self, rows: pa.Array) -> pa.Array:
        """The payloads of ``rows``, binary; a null row is null. RowError for the first row that is none of the schema,
        MismatchError if none can be."""
        return self._encoder.encode(_with_plain_types(rows))

    def encode_keys(self, rows: pa.Array) -> pa.Array:
        """The keys of messages, binary, of ``rows`` whose type has the columns key and value."""
        assert isinstance(self._encoder, _KeyValueEncoder)
        return self._encoder.part(_with_plain_types(rows), "key")


class _ProgramEncoder:
    """Avro or JSON."""

    def __init__(self, info: SchemaInfo, column: str) -> None:
        self._schema = parse(info.data)
        self._column = column
        self._made = avro_program if info.type is SchemaType.AVRO else json_program
        self._programs: dict[pa.DataType, Program] = {}

    def check(self, arrow: pa.DataType) -> None:
        self._program(arrow)

    def encode(self, rows: pa.Array) -> pa.Array:
        return self._program(rows.type).write(rows)

    def _program(self, arrow: pa.DataType) -> Program:
        if arrow not in self._programs:
            self._programs[arrow] = self._made(self._schema, arrow, self._column)
        return self._programs[arrow]


class _PrimitiveEncoder:
    """Types that say everything; bytes of a schema that nothing is known of pass as they are."""

    def __init__(self, info: SchemaInfo, column: str) -> None:
        self._kind = info.type
        self._column = column
        self._said = info.charset if self._kind is SchemaType.STRING else UTF_8
        self._charset = known_charset(self._said)

    def check(self, arrow: pa.DataType) -> None:
        if not takes(self._kind, arrow):
            hint = "cast it" if self._kind.is_primitive else "give the bytes of messages, which are written as they are"
            raise MismatchError(
                f"{subject(self._column)} is {arrow}, which is not written as {self._kind.name}", hint=hint
            )
        if self._charset is None:
            raise MismatchError(
                f"{subject(self._column)} is to be text in {self._said!r}, which is no charset that is known here",
                hint="write bytes, without valueFormat",
            )

    def encode(self, rows: pa.Array) -> pa.Array:
        self.check(rows.type)
        if self._charset is not None and self._charset != PLAIN:
            return encode_text(rows, self._charset)
        return encode_primitive(self._kind, rows)


class _KeyValueEncoder:
    """Two values in one payload, or one of them as the key of the message."""

    def __init__(self, info: SchemaInfo) -> None:
        key, value, encoding = divided(info)
        self._parts = {"key": _encoder(key, "key"), "value": _encoder(value, "value")}
        self._joining = joining_program()
        self.is_separated = encoding == SEPARATED

    def check(self, arrow: pa.DataType) -> None:
        names = [each.name for each in arrow] if pa.types.is_struct(arrow) else []
        if sorted(names) != sorted(_PARTS):
            raise MismatchError(f"the value is {arrow}, and its schema has a key and a value", hint="give it both")
        for name in _PARTS:
            self._parts[name].check(arrow.field(name).type)

    def encode(self, rows: pa.Array) -> pa.Array:
        self.check(rows.type)
        value = self.part(rows, "value")
        if self.is_separated:
            return value
        parts = pa.StructArray.from_arrays([self.part(rows, "key"), value], names=list(_PARTS))
        buffers = [cols.validity(cols.presence(rows))]
        with_nulls = pa.Array.from_buffers(parts.type, len(rows), buffers, children=[parts.field(0), parts.field(1)])
        return self._joining.write(with_nulls)

    def part(self, rows: pa.Array, name: str) -> pa.Array:
        """The payload of one of the two. Below a row that is null it is null too."""
        return self._parts[name].encode(rows.flatten()[rows.type.get_field_index(name)])


_Encoder: TypeAlias = _ProgramEncoder | _PrimitiveEncoder | _KeyValueEncoder | ProtobufEncoder


def _encoder(info: SchemaInfo, column: str) -> _Encoder:
    match info.type:
        case SchemaType.AVRO | SchemaType.JSON:
            return _ProgramEncoder(info, column)
        case SchemaType.KEY_VALUE:
            return _KeyValueEncoder(info)
        case SchemaType.PROTOBUF_NATIVE:
            return ProtobufEncoder(info.data, column)
    return _PrimitiveEncoder(info, column)


def _with_plain_types(rows: pa.Array) -> pa.Array:
    wanted = _plain(rows.type)
    return rows if rows.type == wanted else rows.cast(wanted)


def _plain(arrow: pa.DataType) -> pa.DataType:
    """``arrow`` with the one type of text, bytes and lists that is written: the others are cast to it."""
    if cols.is_text_type(arrow):
        return pa.string()
    if cols.is_bytes_type(arrow):
        return pa.binary()
    if pa.types.is_dictionary(arrow):
        return _plain(arrow.value_type)
    if pa.types.is_struct(arrow):
        return pa.struct([each.with_type(_plain(each.type)) for each in arrow])
    if pa.types.is_map(arrow):
        return pa.map_(_plain(arrow.key_type), arrow.item_field.with_type(_plain(arrow.item_type)))
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow):
        return pa.list_(arrow.value_field.with_type(_plain(arrow.value_type)))
    return arrow
