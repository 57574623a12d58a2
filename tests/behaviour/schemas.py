# SPDX-License-Identifier: Apache-2.0
"""Schemas as behaviours name them, whichever client is to say them, and the values that go with them.

A value of a schema travels as JSON text where messages have text: a number, a text, a record as an object, KEY_VALUE as
an object of ``key`` and ``value``. Values that JSON has no type for are numbers or texts in the form of ISO 8601.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Encoding = Literal["INLINE", "SEPARATED"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChoice:
    """A schema by the name of its type in the admin REST, or AUTO_CONSUME, or AUTO_PRODUCE_BYTES."""

    type: str
    definition: str = ""
    """An Avro schema as JSON text, for AVRO, JSON and PROTOBUF."""
    message: str = ""
    """The full name of a message, for PROTOBUF and PROTOBUF_NATIVE."""
    of_class: bool = False
    """The client derives the definition from a class, where it can: Order, of a city and an id."""
    properties: Mapping[str, str] = field(default_factory=dict)
    key: SchemaChoice | None = None
    value: SchemaChoice | None = None
    encoding: Encoding = "INLINE"


def version_of(told: bytes) -> int | None:
    """The number of a version as messages have it; None for none."""
    return int.from_bytes(told[:8], "big") if told else None


def primitive(name: str) -> SchemaChoice:
    return SchemaChoice(type=name)


def record(*fields: str | Mapping[str, Any], kind: str = "AVRO", name: str = "Order") -> SchemaChoice:
    """A record. A field is a whole definition, or ``name``, an int, or ``name=1``, one with a default."""
    definition = {"type": "record", "name": name, "fields": [_field(each) for each in fields]}
    return SchemaChoice(type=kind, definition=json.dumps(definition))


def _field(given: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(given, str):
        return given
    name, equals, default = given.partition("=")
    return {"name": name, "type": "int", **({"default": int(default)} if equals else {})}


def text(name: str, **more: Any) -> dict[str, Any]:
    """A field for a text; ``default``: its default."""
    return {"name": name, "type": "string", **more}


def optional(name: str, of: Any = "string", **more: Any) -> dict[str, Any]:
    """A field that may be null; ``default``: its default."""
    return {"name": name, "type": ["null", of], **more}


def key_value(key: SchemaChoice, value: SchemaChoice, encoding: Encoding = "INLINE") -> SchemaChoice:
    return SchemaChoice(type="KEY_VALUE", key=key, value=value, encoding=encoding)


STRING: Final = primitive("STRING")
INT32: Final = primitive("INT32")
AUTO_CONSUME: Final = primitive("AUTO_CONSUME")
AUTO_PRODUCE: Final = primitive("AUTO_PRODUCE_BYTES")

FIRST: Final = record("id", optional("city", default=None))
SECOND: Final = record("id", text("note", default="none"), optional("city", default=None))
"""FIRST with a field more in the middle; each reads the other's records."""

INCOMPATIBLE: Final = record("id", optional("city", default=None), text("more"))
"""FIRST with a field that older records do not have."""

TIMESTAMP: Final = "google.protobuf.Timestamp"
DURATION: Final = "google.protobuf.Duration"
"""Messages that every client has; both have ``seconds`` and ``nanos``."""


def protobuf(message: str, *, native: bool) -> SchemaChoice:
    """A message of ``seconds`` and ``nanos``. Java derives the Avro schema itself, as it is here."""
    if native:
        return SchemaChoice(type="PROTOBUF_NATIVE", message=message)
    package, _, name = message.rpartition(".")
    fields = [{"name": "seconds", "type": "long", "default": 0}, {"name": "nanos", "type": "int", "default": 0}]
    definition = {"type": "record", "name": name, "namespace": package, "fields": fields}
    return SchemaChoice(type="PROTOBUF", message=message, definition=json.dumps(definition))
