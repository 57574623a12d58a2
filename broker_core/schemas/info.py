# SPDX-License-Identifier: Apache-2.0
"""Schema info, as clients bring it and are given it, and the types of schemas."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

UTF_8: Final = "UTF-8"


class SchemaType(enum.Enum):
    """A type by its number, which is not always that of the wire (``wire_number``)."""

    BYTES = -1
    NONE = 0
    STRING = 1
    JSON = 2
    PROTOBUF = 3
    AVRO = 4
    BOOLEAN = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FLOAT = 10
    DOUBLE = 11
    DATE = 12
    TIME = 13
    TIMESTAMP = 14
    KEY_VALUE = 15
    INSTANT = 16
    LOCAL_DATE = 17
    LOCAL_TIME = 18
    LOCAL_DATE_TIME = 19
    PROTOBUF_NATIVE = 20
    EXTERNAL = 21
    AUTO = -2
    AUTO_CONSUME = -3
    AUTO_PUBLISH = -4

    @property
    def is_avro(self) -> bool:
        """Whether the definition is an Avro schema, whatever the payload is."""
        return self in (SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF)

    @property
    def is_primitive(self) -> bool:
        """Whether the definition is empty, as the type says everything."""
        return not self.is_avro and self not in _DEFINED and not self.is_of_clients

    @property
    def is_bytes(self) -> bool:
        """Whether payloads may be any bytes; a definition may be anything too, and means nothing."""
        return self in (SchemaType.NONE, SchemaType.BYTES)

    @property
    def is_of_clients(self) -> bool:
        """Whether the type means something to clients alone, so that no topic can have it."""
        return self in (SchemaType.AUTO, SchemaType.AUTO_CONSUME, SchemaType.AUTO_PUBLISH)

    @property
    def wire_number(self) -> int:
        """The number in commands."""
        return _WIRE_NUMBERS.get(self, max(self.value, 0))


_DEFINED = (SchemaType.KEY_VALUE, SchemaType.PROTOBUF_NATIVE, SchemaType.EXTERNAL)
_WIRE_NUMBERS = {SchemaType.AUTO_CONSUME: 21, SchemaType.EXTERNAL: 22}
_BY_WIRE_NUMBER = {each.wire_number: each for each in SchemaType if each.value >= 0 or each in _WIRE_NUMBERS}


def type_of_wire(number: int) -> SchemaType | None:
    """The type that a number in a command means, or None for one of a newer protocol."""
    return SchemaType.NONE if number < 0 else _BY_WIRE_NUMBER.get(number)


@dataclass(frozen=True, slots=True)
class SchemaInfo:
    """A schema as clients bring it. ``data``: the definition, which is empty for most types."""

    type: SchemaType
    data: bytes = b""
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_none(self) -> bool:
        """Whether it says no more than that messages are bytes, which is as good as no schema."""
        return self.type.is_bytes and not self.data

    @property
    def charset(self) -> str:
        """The charset of texts of a STRING schema: Java's producers may write another one than UTF-8, and say so."""
        return self.properties.get("__charset", UTF_8)


class VersionedSchema(NamedTuple):
    """A version of a topic's schema. The two never change, but by force: versions of a history that was deleted."""

    info: SchemaInfo
    version: int
