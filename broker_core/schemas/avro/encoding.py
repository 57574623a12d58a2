# SPDX-License-Identifier: Apache-2.0
"""Defaults of fields as Avro's bytes."""

from __future__ import annotations

import struct
from typing import Any, Final

from broker_core.base.errors import PulsarishError
from broker_core.schemas.avro.defaults import fits
from broker_core.schemas.avro.resolving import STEPS_MAX
from broker_core.schemas.avro.types import Array, AvroType, Enum, Fixed, Map, NoDefault, Record, Union

DEFAULT_BYTES_MAX: Final = 1 << 20
"""Bytes of a default's values of fixed size, which may be as long as a short definition says."""


class UnusableDefaultError(PulsarishError):
    """A default has no bytes: it is too large, or records within records make it endless."""


def encoded_default(schema: AvroType, value: Any) -> bytes:
    """``value``, as JSON has it, as data of ``schema``. It ``fits``; UnusableDefaultError."""
    try:
        return _Encoding(STEPS_MAX).encoded(schema, value)
    except (OverflowError, ValueError) as error:
        raise UnusableDefaultError(f"a default is no {schema.kind}: {error}") from error
    except RecursionError as error:
        raise UnusableDefaultError("a default is within itself, or nested too deep") from error


class _Encoding:
    """The encoding of one default, of so many values at most."""

    def __init__(self, steps_max: int) -> None:
        self._steps_left = steps_max
        self._bytes_left = DEFAULT_BYTES_MAX

    def encoded(self, schema: AvroType, value: Any) -> bytes:
        self._steps_left -= 1
        if self._steps_left < 0:
            raise UnusableDefaultError("a default has too many values")
        match schema:
            case Record():
                given = value if isinstance(value, dict) else {}
                return b"".join(self._field(each.type, given.get(each.name, each.default)) for each in schema.fields)
            case Enum():
                return zigzag(schema.symbols.index(value))
            case Fixed():
                self._bytes_left -= schema.size
                if self._bytes_left < 0:
                    raise UnusableDefaultError(f"a default has more than {DEFAULT_BYTES_MAX} bytes")
                return str(value).encode("latin-1", "replace")[: schema.size].ljust(schema.size, b"\0")
            case Array():
                items = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
                return _block([self.encoded(schema.items, each) for each in items])
            case Map():
                pairs = value.items() if isinstance(value, dict) else ()
                return _block([_sized(key.encode()) + self.encoded(schema.values, each) for key, each in pairs])
            case Union():
                fitting = (n for n, each in enumerate(schema.branches) if fits(each, value, STEPS_MAX))
                number = next(fitting)
                return zigzag(number) + self.encoded(schema.branches[number], value)
            case _:
                return _primitive(schema.kind, value)

    def _field(self, schema: AvroType, value: Any) -> bytes:
        return b"" if isinstance(value, NoDefault) else self.encoded(schema, value)


def _primitive(kind: str, value: Any) -> bytes:
    match kind:
        case "null":
            return b""
        case "boolean":
            return bytes([bool(value)])
        case "int" | "long":
            return zigzag(int(value))
        case "float":
            return struct.pack("<f", value)
        case "double":
            return struct.pack("<d", value)
        case "bytes":
            return _sized(str(value).encode("latin-1", "replace"))
        case _:
            return _sized(str(value).encode())


def zigzag(number: int) -> bytes:
    """A number in zigzag, seven bits a byte."""
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _sized(data: bytes) -> bytes:
    return zigzag(len(data)) + data


def _block(items: list[bytes]) -> bytes:
    return (zigzag(len(items)) + b"".join(items) if items else b"") + b"\0"
