# SPDX-License-Identifier: Apache-2.0
"""KEY_VALUE schemas: two schemas in one, and whether the key stands in the payload or is the message's key."""

from __future__ import annotations

import json
import struct
from typing import Final, NamedTuple

from broker_core.base.errors import PulsarishError
from broker_core.schemas.info import SchemaInfo, SchemaType

INLINE: Final = "INLINE"
SEPARATED: Final = "SEPARATED"
_ENCODING: Final = "kv.encoding.type"
_LENGTH: Final = struct.Struct(">i")


class KeyValueError(PulsarishError):
    """A KEY_VALUE schema is not well formed."""


class KeyValue(NamedTuple):
    """The schemas of keys and values, and INLINE or SEPARATED."""

    key: SchemaInfo
    value: SchemaInfo
    encoding: str


def divided(info: SchemaInfo) -> KeyValue:
    """The two schemas of a KEY_VALUE schema; KeyValueError."""
    key, rest = _part(info.data)
    value, rest = _part(rest)
    if rest:
        raise KeyValueError(f"{len(rest)} bytes follow the two definitions")
    encoding = info.properties.get(_ENCODING) or INLINE
    if encoding not in (INLINE, SEPARATED):
        raise KeyValueError(f"{_ENCODING} is {encoding!r}, and not {INLINE} or {SEPARATED}")
    return KeyValue(_info("key", key, info), _info("value", value, info), encoding)


def joined(key: bytes | None, value: bytes | None) -> bytes:
    """Two definitions, or two payloads, as one; None: there is none."""
    return b"".join(_LENGTH.pack(-1) if each is None else _LENGTH.pack(len(each)) + each for each in (key, value))


def divided_payload(payload: bytes) -> tuple[bytes | None, bytes | None]:
    """The two payloads in one, None for a null; KeyValueError."""
    key, rest = _nullable_part(payload)
    value, rest = _nullable_part(rest)
    if rest:
        raise KeyValueError(f"{len(rest)} bytes follow the key and the value")
    return key, value


def pair_of(key: SchemaInfo, value: SchemaInfo, encoding: str) -> SchemaInfo:
    """The KEY_VALUE schema of two others; ``encoding``: INLINE or SEPARATED."""
    properties = {_ENCODING: encoding}
    for part, info in (("key", key), ("value", value)):
        properties[f"{part}.schema.name"] = ""
        properties[f"{part}.schema.type"] = info.type.name
        properties[f"{part}.schema.properties"] = json.dumps(dict(info.properties))
    return SchemaInfo(SchemaType.KEY_VALUE, joined(key.data, value.data), properties)


def from_json(text: bytes) -> bytes:
    """Two definitions as the admin REST has them, an object in which an empty text stands for no definition."""
    try:
        parts = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise KeyValueError("it is not JSON") from error
    if not isinstance(parts, dict) or parts.keys() != {"key", "value"}:
        raise KeyValueError('it is no object with "key" and "value"')
    key, value = (b"" if part == "" else json.dumps(part).encode() for part in (parts["key"], parts["value"]))
    return joined(key, value)


def to_json(data: bytes) -> bytes:
    """The same the other way round. A definition that is not JSON stands there as text."""
    key, rest = _part(data)
    value, _ = _part(rest)
    return json.dumps({"key": _loaded(key), "value": _loaded(value)}).encode()


def _loaded(definition: bytes) -> object:
    text = definition.decode(errors="replace")
    try:
        return json.loads(text) if text else ""
    except (ValueError, RecursionError):
        return text


def _part(data: bytes) -> tuple[bytes, bytes]:
    """A part behind its length, and what follows."""
    part, rest = _nullable_part(data)
    return part or b"", rest


def _nullable_part(data: bytes) -> tuple[bytes | None, bytes]:
    """The same, None for a part that is null."""
    if len(data) < _LENGTH.size:
        raise KeyValueError("a part has no length")
    (length,) = _LENGTH.unpack_from(data)
    end = _LENGTH.size + max(length, 0)
    if length < -1 or end > len(data):
        raise KeyValueError(f"a part says that it has {length} bytes, and {len(data) - _LENGTH.size} are there")
    return None if length < 0 else data[_LENGTH.size : end], data[end:]


def _info(part: str, data: bytes, info: SchemaInfo) -> SchemaInfo:
    name = info.properties.get(f"{part}.schema.type") or SchemaType.BYTES.name
    if name not in SchemaType.__members__:
        raise KeyValueError(f"{part}.schema.type is {name!r}, which is no type")
    try:
        properties = json.loads(info.properties.get(f"{part}.schema.properties") or "{}")
    except (ValueError, RecursionError) as error:
        raise KeyValueError(f"{part}.schema.properties is not JSON") from error
    if not isinstance(properties, dict) or not all(isinstance(each, str) for each in properties.values()):
        raise KeyValueError(f"{part}.schema.properties is no object of texts")
    return SchemaInfo(SchemaType[name], data, properties)
