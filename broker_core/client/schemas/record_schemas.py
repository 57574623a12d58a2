# SPDX-License-Identifier: Apache-2.0
"""Schemas of records: AVRO and JSON payloads of dataclasses, of ``Record`` classes, or of dicts by a definition."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeAlias, TypeVar, overload

from broker_core.base.errors import UsageError
from broker_core.client.schemas.avro_reading import avro_reader
from broker_core.client.schemas.avro_writing import avro_writer
from broker_core.client.schemas.json_values import json_reader, json_writer
from broker_core.client.schemas.misfit import Misfit
from broker_core.client.schemas.record_types import dicts_of, record_type_of
from broker_core.client.schemas.schema import Schema, check_type
from broker_core.schemas.avro.parsing import SchemaParseError, parse
from broker_core.schemas.avro.types import AvroType
from broker_core.schemas.info import SchemaInfo, SchemaType

R = TypeVar("R")

Definition: TypeAlias = Mapping[str, Any] | str | bytes


class RecordSchema(Schema[R]):
    """The base of both. ``record_cls``: the class of the values; None: they are dicts, or as the definition says.

    ``schema_definition``: an Avro schema, as JSON text or as what JSON has for it, in place of that of the class. The
    class then gets values by it. UsageError if it is none.
    """

    kind: ClassVar[SchemaType]

    def __init__(self, record_cls: type[R] | None, schema_definition: Definition | None = None) -> None:
        if record_cls is None and schema_definition is None:
            raise UsageError("there is neither a class of records nor a definition", hint="give one of them")
        self._record = dicts_of(schema_definition) if record_cls is None else record_type_of(record_cls)
        self._name = "a definition" if record_cls is None else record_cls.__name__
        definition = self._record.definition if schema_definition is None else schema_definition
        text = definition if isinstance(definition, str | bytes) else json.dumps(definition)
        self.info = SchemaInfo(self.kind, text.encode() if isinstance(text, str) else text)
        try:
            self._avro = parse(self.info.data)
        except SchemaParseError as error:
            raise UsageError(f"{self._name} is no Avro schema: {error.message}", hint=error.hint) from error
        self._write = self._writer(self._avro)

    def encoded(self, value: R) -> bytes:
        try:
            plain = self._record.plain(value)
        except RecursionError:
            raise Misfit("it is nested too deep, or is within itself") from None
        return self._write(plain)

    def decoder_of(self, writer: SchemaInfo) -> Callable[[bytes], R]:
        check_type(writer, self.kind)
        read, make = self._reader(writer), self._record.made

        def decode(payload: bytes) -> R:
            plain = read(payload)
            try:
                made: R = make(plain)
            except RecursionError:
                raise Misfit("it is nested too deep") from None
            except Exception as error:  # The class itself may check its fields.
                raise Misfit(f"{self._name} does not take it: {str(error) or type(error).__name__}") from error
            return made

        return decode

    @abstractmethod
    def _reader(self, writer: SchemaInfo) -> Callable[[bytes], Any]: ...

    @abstractmethod
    def _writer(self, avro: AvroType) -> Callable[[Any], bytes]: ...

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name})"


class AvroSchema(RecordSchema[R]):
    """Records in Avro's binary form. Each message is read by the version with which it was written."""

    kind = SchemaType.AVRO

    @overload
    def __init__(self, record_cls: type[R], schema_definition: Definition | None = None) -> None: ...
    @overload
    def __init__(self: AvroSchema[dict[str, Any]], record_cls: None, schema_definition: Definition) -> None: ...
    def __init__(self, record_cls: type[R] | None, schema_definition: Definition | None = None) -> None:
        super().__init__(record_cls, schema_definition)

    def _writer(self, avro: AvroType) -> Callable[[Any], bytes]:
        return avro_writer(avro)

    def _reader(self, writer: SchemaInfo) -> Callable[[bytes], Any]:
        if writer.data == self.info.data:
            return avro_reader(self._avro, self._avro)
        try:
            return avro_reader(parse(writer.data), self._avro)
        except SchemaParseError as error:
            raise Misfit(f"the schema of its version cannot be read: {error.message}") from error


class JsonSchema(RecordSchema[R]):
    """Records in JSON. A field that a message does not have has its default, and one that the schema does not have is
    left out: whatever the version says with which it was written."""

    kind = SchemaType.JSON

    @overload
    def __init__(self, record_cls: type[R], schema_definition: Definition | None = None) -> None: ...
    @overload
    def __init__(self: JsonSchema[dict[str, Any]], record_cls: None, schema_definition: Definition) -> None: ...
    def __init__(self, record_cls: type[R] | None, schema_definition: Definition | None = None) -> None:
        super().__init__(record_cls, schema_definition)

    def _writer(self, avro: AvroType) -> Callable[[Any], bytes]:
        return json_writer(avro)

    def _reader(self, writer: SchemaInfo) -> Callable[[bytes], Any]:
        return json_reader(self._avro, self._record.enums)
