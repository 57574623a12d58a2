# SPDX-License-Identifier: Apache-2.0
"""The few fields of an entry's metadata that decide its way through a broker, read by a table.

What cannot be read here, or has an unusual form, is left to protobuf (``wire.entry_peek``): a function may give up but
never guess. Bodies are those of stored entries: magic, checksum, metadata size (4 bytes at 6), metadata, payload.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

try:
    import cython
except ImportError:
    from broker_core.wire.core import uncompiled as cython

if cython.compiled:
    from cython.cimports.broker_core.wire.core import fields as pb
else:
    from broker_core.wire.core import fields as pb

from broker_core.wire.core.fields import table

_METADATA_AT = cython.declare(cython.int, 10)
_PROPERTY = 1
_KEY = cython.declare(cython.int, 3)
_ORDERING_KEY = cython.declare(cython.int, 5)
_ENCRYPTION = cython.declare(cython.int, 7)
_PRODUCER = cython.declare(cython.int, 9)
_SEQUENCE_ID = cython.declare(cython.int, 11)
_PUBLISH_TIME = cython.declare(cython.int, 12)
_MESSAGES = cython.declare(cython.int, 13)
_KEY_IS_BASE64 = cython.declare(cython.int, 14)
_SLOTS = 16
_INT32_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)

_METADATA = cython.declare(
    bytes,
    table(
        {2: _SEQUENCE_ID, 3: _PUBLISH_TIME, 11: _MESSAGES, 17: _KEY_IS_BASE64},
        {1: _PRODUCER, 4: _PROPERTY, 6: _KEY, 13: _ENCRYPTION, 18: _ORDERING_KEY},
    ),
)
"""MessageMetadata."""
_REQUIRED = cython.declare(cython.longlong, 1 << _PRODUCER | 1 << _SEQUENCE_ID | 1 << _PUBLISH_TIME)


@cython.cfunc
@cython.exceptval(check=False)
def _walk(data: cython.p_const_uchar, size: cython.Py_ssize_t, fields: cython.p_longlong) -> cython.longlong:
    """The slots found in the metadata of a body of ``size`` bytes; 0 if they cannot be read, or are encrypted."""
    if size < _METADATA_AT:
        return 0
    length = pb.u32(data, 6)
    if length > size - _METADATA_AT:
        return 0
    flaw, seen, _ = pb.walk_fields(
        data, _METADATA_AT, _METADATA_AT + length, _METADATA, fields, cython.NULL, cython.NULL, 0, 0
    )
    return seen if flaw == pb.SOUND and not seen >> _ENCRYPTION & 1 else 0


def has_usual_metadata(body: bytes) -> bool:
    """Whether ``body`` certainly holds metadata that are whole, without a count of messages and without encryption."""
    if cython.compiled:
        fields: cython.longlong[16]
    else:
        fields = [0] * _SLOTS
    seen = _walk(body, len(body), fields)
    return seen & _REQUIRED == _REQUIRED and not seen >> _MESSAGES & 1


def count_of_messages(body: bytes) -> int:
    """How many messages an entry says that it holds; 0 if that is left to protobuf."""
    if cython.compiled:
        fields: cython.longlong[16]
    else:
        fields = [0] * _SLOTS
    seen = _walk(body, len(body), fields)
    if not seen >> _MESSAGES & 1:
        return 1 if seen else 0
    return fields[_MESSAGES] if 0 < fields[_MESSAGES] <= _INT32_MAX else 0


def usual_keys(bodies: Iterable[bytes], keyless: bytes | None) -> list[bytes | None]:
    """The sticky key of each entry: its ordering key, else its key if that is ASCII and no base64, else ``keyless``;
    None for what is left to protobuf."""
    keys: list[Any] = []
    if cython.compiled:
        fields: cython.longlong[16]
    else:
        fields = [0] * _SLOTS
    for body in bodies:
        seen = _walk(body, len(body), fields)
        key: Any = None
        if seen >> _ORDERING_KEY & 1:
            key = body[fields[_ORDERING_KEY] : fields[_ORDERING_KEY + 1]]
        elif seen >> _KEY & 1:
            if not (seen >> _KEY_IS_BASE64 & 1 and fields[_KEY_IS_BASE64]):
                key = body[fields[_KEY] : fields[_KEY + 1]]
                if not key.isascii():
                    key = None
        elif seen:
            key = keyless
        keys.append(key)
    return keys
