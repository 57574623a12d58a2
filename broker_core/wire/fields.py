# SPDX-License-Identifier: Apache-2.0
"""Stepping over the fields of a serialised protobuf message without reading it.

For commands that are too large to be read in one go. Knows no message. Source: Protocol Buffers docs, "Encoding".
"""

from __future__ import annotations

from typing import Final

from broker_core.base.errors import RemoteProtocolError

LENGTH_DELIMITED: Final = 2
"""The wire type of texts, bytes and messages."""

_VARINT: Final = 0
_FIXED_BYTES: Final = {1: 8, 5: 4}
"""What fields of these wire types take."""


def field_end(data: bytes, wire_type: int, at: int) -> int:
    """Where the field whose value begins at ``at`` ends; RemoteProtocolError if that is behind ``data``."""
    if wire_type == _VARINT:
        end = read_varint(data, at)[1]
    elif wire_type == LENGTH_DELIMITED:
        size, at = read_varint(data, at)
        end = at + size
    else:
        end = at + _FIXED_BYTES.get(wire_type, len(data) + 1)
    if end > len(data):
        raise RemoteProtocolError(f"a command of {len(data)} bytes cannot be read: a field has no end")
    return end


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A varint and where it ends; RemoteProtocolError if it has no end."""
    value = shift = 0
    for place in range(at, min(at + 10, len(data))):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place + 1
        shift += 7
    raise RemoteProtocolError(f"a command of {len(data)} bytes cannot be read: a number has no end")
