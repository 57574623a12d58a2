# SPDX-License-Identifier: Apache-2.0
"""Versions of schemas as commands and messages carry them: eight bytes, or none. Source: semantics 10.13, 10.20."""

from __future__ import annotations

import struct
from typing import Final

_VERSION: Final = struct.Struct(">q")


def version_bytes(version: int | None) -> bytes:
    """A version as it travels; nothing without a schema."""
    return b"" if version is None else _VERSION.pack(version)


def version_of(data: bytes) -> int | None:
    """The version in an answer or a message; None where it names none. Old clients send 64 bytes, of which the first
    eight count."""
    return None if len(data) < _VERSION.size else int(_VERSION.unpack_from(data)[0])
