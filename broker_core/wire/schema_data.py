# SPDX-License-Identifier: Apache-2.0
"""Large commands without the text of their schema.

A schema may be as large as a frame, and nothing else in a command may: so the text is left out before protobuf reads
the command, which would copy it, and what is left is held to the bound of all commands. Knows the three commands that
bring a schema, and nothing of schemas.
"""

from __future__ import annotations

from typing import Final

from broker_core.base.errors import RemoteProtocolError
from broker_core.wire.core.frames import field_end, read_varint
from broker_core.wire.core.heads import varint
from broker_core.wire.proto.pulsar_api_pb2 import (
    BaseCommand,
    CommandGetOrCreateSchema,
    CommandProducer,
    CommandSubscribe,
    Schema,
)

FIELDS_MAX: Final = 1024
"""Fields that are stepped over in one command, which takes some milliseconds: many more than a client sends."""

_BRINGING: Final = {
    int(BaseCommand.PRODUCER): CommandProducer.DESCRIPTOR.fields_by_name["schema"].number,
    int(BaseCommand.SUBSCRIBE): CommandSubscribe.DESCRIPTOR.fields_by_name["schema"].number,
    int(BaseCommand.GET_OR_CREATE_SCHEMA): CommandGetOrCreateSchema.DESCRIPTOR.fields_by_name["schema"].number,
}
"""The number of such a command in ``BaseCommand``, which is also its type -> that of the schema in it."""

_LENGTH_DELIMITED: Final = 2
"""The wire type of texts, bytes and messages."""

_DATA: Final = Schema.DESCRIPTOR.fields_by_name["schema_data"].number


class _Stepper:
    """Steps through one command; ``left`` says over how many fields more it may step."""

    def __init__(self, command: bytes) -> None:
        self._data = command
        self._view = memoryview(command)  # a slice of which is no copy
        self._left = FIELDS_MAX

    def without(self, begin: int, end: int, path: tuple[int, ...]) -> list[bytes | memoryview]:
        """The message between ``begin`` and ``end`` in pieces; the field that ``path`` leads to becomes empty.

        An empty path begins at ``BaseCommand``.
        """
        data, view = self._data, self._view
        parts: list[bytes | memoryview] = []
        kept = at = begin
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise RemoteProtocolError(f"a command of {len(data)} bytes has more than {FIELDS_MAX} fields")
            tag, value = read_varint(data, at)
            behind = field_end(data, tag, value)
            if behind > end:
                raise RemoteProtocolError(f"a command of {len(data)} bytes cannot be read: a field has no end")
            further = self._further(tag, path)
            if further is not None:
                inner = read_varint(data, value)[1]
                content = self.without(inner, behind, further) if further else []
                parts += [view[kept:value], varint(sum(map(len, content))), *content]
                kept = behind
            at = behind
        return [*parts, view[kept:at]]

    @staticmethod
    def _further(tag: int, path: tuple[int, ...]) -> tuple[int, ...] | None:
        """The path inside of this field; None if it is another one."""
        number = tag >> 3
        if tag & 7 != _LENGTH_DELIMITED:
            return None
        if not path:
            return (_BRINGING[number], _DATA) if number in _BRINGING else None
        return path[1:] if number == path[0] else None


def without_schema_data(command: bytes) -> bytes:
    """``command``, with an empty text if it brings a schema; RemoteProtocolError if it cannot be read."""
    return b"".join(_Stepper(command).without(0, len(command), ()))
