# SPDX-License-Identifier: Apache-2.0
"""Commands too large for protobuf to read in one go: those that name very many messages, and those with a schema.

An ACK or a redelivery of 5 MiB holds a million message ids: to read it alone takes protobuf longer than anybody else
should wait. ``LongList`` finds in steps where the ids lie, and then makes commands of the same kind that name a few
hundred each.

A schema may be as large as a frame, and nothing else in a command may: so its data is taken out before protobuf reads
the command, and what is left is held to the bound of all commands.

Knows nothing of what the commands mean.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

from broker_core.base.errors import RemoteProtocolError
from broker_core.base.limits import BATCH_MESSAGES_MAX
from broker_core.wire.core.frames import field_end, read_varint, skip_alike
from broker_core.wire.core.hot_commands import varint
from broker_core.wire.proto.pulsar_api_pb2 import (
    BaseCommand,
    CommandGetOrCreateSchema,
    CommandProducer,
    CommandSubscribe,
    Schema,
)

LONG_FROM_BYTES: Final = 64 * 1024
"""Shorter commands are read as a whole. A client that groups its acknowledgements for 100 ms stays below this at some
40,000 messages a second; to cut its commands up would cost a third of all that a message costs."""

IDS_A_PIECE: Final = 512
BYTES_A_PIECE: Final = 16 * 1024
_FIELDS_A_STEP: Final = 4096
"""Fields that are stepped over in one go, about a millisecond."""

_ID_BYTES_MAX: Final = 192 * 1024
"""Bytes of one message id. The ack set of the largest possible batch takes 156 KiB; what is beyond it means nothing."""

_WORDS_MAX: Final = BATCH_MESSAGES_MAX // 64 + 1
_WORD_TAG: Final = 0x28

_REST_BYTES_MAX: Final = 4096
"""Bytes of everything in the command that is no message id."""

_ACK: Final = b"\x08\x0a\x52"
_FORMS: Final = ((_ACK, 0x1A), (b"\x08\x14\xa2\x01", 0x12))
"""ACK and REDELIVER_UNACKNOWLEDGED_MESSAGES, type first as every encoder writes it: their start, the tag of an id."""


class LongList:
    """One such command. ``find`` must have ended before anything else is asked for."""

    def __init__(self, command: bytes, start: bytes, id_tag: int) -> None:
        self._command = command
        self._start = start
        self._id_tag = id_tag
        self._parts: list[bytes | tuple[int, int]] = []
        self._rest = b""
        self.ids = 0

    @classmethod
    def of(cls, command: bytes) -> LongList | None:
        """None if ``command`` is short, or of another kind."""
        if len(command) < LONG_FROM_BYTES:
            return None
        return next((cls(command, start, tag) for start, tag in _FORMS if command.startswith(start)), None)

    @property
    def is_ack(self) -> bool:
        return self._start == _ACK

    def find(self) -> Iterator[None]:
        """Look where the ids are. RemoteProtocolError if it cannot be read."""
        data = self._command
        size, at = read_varint(data, len(self._start))
        if at + size != len(data):
            raise RemoteProtocolError(f"a command of {len(data)} bytes cannot be read: it has no end")
        while at < len(data):
            begin = at
            at, ids = skip_alike(data, at, len(data), self._id_tag, IDS_A_PIECE, BYTES_A_PIECE)
            if ids:
                self._parts.append((begin, at))
                self.ids += ids
            else:
                at = yield from self._other(at)
            yield

    def _other(self, at: int) -> Generator[None, None, int]:
        """Take a field that is no id, or an id that is too long for a piece; where it ends."""
        data = self._command
        tag, after = read_varint(data, at)
        end = field_end(data, tag, after)
        if tag != self._id_tag:
            self._rest += data[at:end]
            if len(self._rest) > _REST_BYTES_MAX:
                raise RemoteProtocolError(f"a command has more than {_REST_BYTES_MAX} bytes beside its message ids")
        else:
            self._parts.append((at, end) if end - at <= _ID_BYTES_MAX else (yield from self._shortened(at, end)))
            self.ids += 1
        return end

    def commands(self) -> Iterator[tuple[bytes, bool]]:
        """The short commands, serialised, and whether each is the last; all have whatever else the long one has."""
        last = len(self._parts) - 1
        for number, part in enumerate(self._parts or [b""]):
            inner = self._rest + (part if isinstance(part, bytes) else self._command[part[0] : part[1]])
            yield self._start + varint(len(inner)) + inner, number >= last

    def _shortened(self, at: int, end: int) -> Generator[None, None, bytes]:
        """The message id at ``at`` without the words of its ack set that no batch reaches."""
        data, kept, words, steps = self._command, bytearray(), 0, 0
        _size, at = read_varint(data, read_varint(data, at)[1])
        begin = at
        while at < end:
            if words >= _WORDS_MAX:
                behind, _ = skip_alike(data, at, end, _WORD_TAG, _FIELDS_A_STEP, end - at)
                if behind > at:
                    kept += data[begin:at]
                    begin = at = behind
                    yield
                    continue
            tag, after = read_varint(data, at)
            next_at = field_end(data, tag, after)
            words += tag == _WORD_TAG
            if len(kept) + at - begin > _ID_BYTES_MAX:
                raise RemoteProtocolError("a message id holds more than the words of its ack set")
            at = next_at
            steps += 1
            if not steps % _FIELDS_A_STEP:
                yield
        kept += data[begin:at]
        return bytes((self._id_tag,)) + varint(len(kept)) + kept


# -- schemas

FIELDS_MAX: Final = 1024
"""Fields that are stepped over in one command, which takes some milliseconds: many more than a client sends."""

_BRINGING: Final = {
    int(BaseCommand.PRODUCER): CommandProducer.DESCRIPTOR.fields_by_name["schema"].number,
    int(BaseCommand.SUBSCRIBE): CommandSubscribe.DESCRIPTOR.fields_by_name["schema"].number,
    int(BaseCommand.GET_OR_CREATE_SCHEMA): CommandGetOrCreateSchema.DESCRIPTOR.fields_by_name["schema"].number,
}
"""The number of such a command in ``BaseCommand``, which is also its type -> that of the schema in it."""

_SCHEMA_HOLDERS: Final = {
    int(BaseCommand.PRODUCER): "producer",
    int(BaseCommand.SUBSCRIBE): "subscribe",
    int(BaseCommand.GET_OR_CREATE_SCHEMA): "getOrCreateSchema",
}
"""The fields of these commands in ``BaseCommand``."""

_LENGTH_DELIMITED: Final = 2
"""The wire type of texts, bytes and messages."""

_DATA: Final = Schema.DESCRIPTOR.fields_by_name["schema_data"].number


def without_schema_data(command: bytes) -> tuple[bytes, bytes]:
    """``command`` with empty data if it brings a schema, and that data; RemoteProtocolError if it cannot be read."""
    taken: list[memoryview] = []
    rest = b"".join(_without(command, 0, len(command), (), iter(range(FIELDS_MAX)), taken))
    return rest, bytes(taken[-1]) if taken else b""


def _without(
    data: bytes, begin: int, end: int, path: tuple[int, ...], steps: Iterator[int], taken: list[memoryview]
) -> list[bytes | memoryview]:
    """The message between ``begin`` and ``end`` in pieces; the field that ``path`` leads to becomes empty, and is
    ``taken``. Of a field that is there twice the last one counts.

    An empty path begins at ``BaseCommand``. Each field of the command takes one of ``steps``.
    """
    view = memoryview(data)  # a slice of which is no copy
    parts: list[bytes | memoryview] = []
    kept = at = begin
    while at < end:
        if next(steps, None) is None:
            raise RemoteProtocolError(f"a command of {len(data)} bytes has more than {FIELDS_MAX} fields")
        tag, value = read_varint(data, at)
        behind = field_end(data, tag, value)
        if behind > end:
            raise RemoteProtocolError(f"a command of {len(data)} bytes cannot be read: a field has no end")
        further = _further(tag, path)
        if further is not None:
            inner = read_varint(data, value)[1]
            if not further:
                taken.append(view[inner:behind])
            content = _without(data, inner, behind, further, steps, taken) if further else []
            parts += [view[kept:value], varint(sum(map(len, content))), *content]
            kept = behind
        at = behind
    return [*parts, view[kept:at]]


def give_schema_data(command: BaseCommand, data: bytes) -> None:
    """Put the data of its schema back into a command, now that it is read."""
    field = _SCHEMA_HOLDERS.get(command.type)
    if field is not None and data:
        getattr(command, field).schema.schema_data = data


def _further(tag: int, path: tuple[int, ...]) -> tuple[int, ...] | None:
    """The path inside of the field of ``tag``; None if it is another one."""
    number = tag >> 3
    if tag & 7 != _LENGTH_DELIMITED:
        return None
    if not path:
        return (_BRINGING[number], _DATA) if number in _BRINGING else None
    return path[1:] if number == path[0] else None
