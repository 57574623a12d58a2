# SPDX-License-Identifier: Apache-2.0
"""Definition: a schema that was found valid, parsed. Every schema becomes one before it is compared with another."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from broker_core.base.errors import IncompatibleSchemaError, PulsarishError
from broker_core.schemas.avro.canonical import canonical
from broker_core.schemas.avro.parsing import SchemaParseError, parse
from broker_core.schemas.avro.types import AvroType, Union
from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.schemas.key_value import KeyValueError, divided
from broker_core.schemas.protobuf_native import DescriptorError, root_message

_NO_DATA = (b"", b"null")
"""Definitions of STRING: clients in Python write the second."""


class InvalidSchemaError(IncompatibleSchemaError):
    """The data of a schema does not fit its type: 422 in REST, and an incompatible schema in the protocol."""


class _InvalidPartError(PulsarishError):
    """The schema of keys or that of values is invalid."""


@dataclass(frozen=True, slots=True, eq=False)
class KeyValueDefinition:
    """The definitions of keys and values. ``encoding``: INLINE or SEPARATED."""

    key: Definition
    value: Definition
    encoding: str


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """One of ``avro``, ``message`` (the full name of a PROTOBUF_NATIVE message) and ``parts`` is set, or none of them
    where the type says everything."""

    type: SchemaType
    data: bytes
    avro: AvroType | None = None
    message: str = ""
    parts: KeyValueDefinition | None = None

    @property
    def fingerprint(self) -> bytes:
        """A hash that equal schemas of a topic share: then they are one version. Of properties only those count that
        say what a KEY_VALUE schema is made of."""
        return hashlib.sha256(self._mark).digest()

    @property
    def _mark(self) -> bytes:
        name = self.type.name.encode()
        if self.avro is not None:
            return name + b":" + canonical(self.avro).encode()
        if self.parts is not None:
            key, value = self.parts.key.fingerprint, self.parts.value.fingerprint
            return b":".join((name, self.parts.encoding.encode(), key, value))
        return name if self.type is SchemaType.STRING else name + b":" + self.data


def definition_of(info: SchemaInfo) -> Definition:
    """The definition of a schema; InvalidSchemaError if its data does not fit its type."""
    if info.type.is_of_clients:
        raise _invalid(info, "clients use this type among themselves")
    try:
        return _parsed(info)
    except (SchemaParseError, KeyValueError, DescriptorError, _InvalidPartError) as flaw:
        raise _invalid(info, flaw.message) from flaw


def _parsed(info: SchemaInfo) -> Definition:
    kind, data = info.type, info.data
    if kind.is_avro:
        parsed = parse(data)
        if kind is SchemaType.AVRO and isinstance(parsed, Union):
            raise _invalid(info, "a union cannot stand at the top")
        return Definition(kind, data, avro=parsed)
    if kind is SchemaType.PROTOBUF_NATIVE:
        return Definition(kind, data, message=root_message(data))
    if kind is SchemaType.KEY_VALUE:
        return Definition(kind, data, parts=_parts(info))
    allowed = _NO_DATA if kind is SchemaType.STRING else (b"",)
    if kind.is_primitive and not kind.is_bytes and data not in allowed:
        raise _invalid(info, f"length of schema data should be zero, but {len(data)} bytes is found")
    return Definition(kind, data)


def _parts(info: SchemaInfo) -> KeyValueDefinition:
    parts = divided(info)
    if SchemaType.KEY_VALUE in (parts.key.type, parts.value.type):
        raise _invalid(info, "a key or value cannot be a KEY_VALUE itself")
    try:
        return KeyValueDefinition(definition_of(parts.key), definition_of(parts.value), parts.encoding)
    except InvalidSchemaError as flaw:
        raise _InvalidPartError(flaw.message) from flaw


def _invalid(info: SchemaInfo, flaw: str) -> InvalidSchemaError:
    return InvalidSchemaError(f"Invalid schema definition data for {info.type.name} schema: {flaw}")
