# SPDX-License-Identifier: Apache-2.0
"""Random commands of a client: well-formed, about things that exist, and senseless beyond that.

Owns the choice of fields and values; knows nothing of who sends a command, and of what the broker answers.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from broker_core.wire.core.hot_commands import send_frame_head
from broker_core.wire.entry import seal_entry
from broker_core.wire.frames import encode_command
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, MessageMetadata
from tests.fuzz.schema_texts import PROPERTY_NAMES, PROPERTY_VALUES, SCHEMA_DATA

KINDS: Final = tuple(
    field.number for field in BaseCommand.DESCRIPTOR.fields if field.number in BaseCommand.Type.values()
)
"""Every kind of command, those that only a broker sends and those that this broker does not have included."""

_FIELD_OF: Final = {field.number: field for field in BaseCommand.DESCRIPTOR.fields}

_DEPTH_MAX: Final = 5
_SET_PART: Final = 0.6
"""Of the optional fields this part is set."""

_FRESH_PART: Final = 0.02
"""Of the names this part is of nothing that exists."""

_SCHEMA_PART: Final = 0.5
"""Of the properties this part is such as schemas have."""

_VERSIONS: Final = (b"", b"\0", bytes(8), bytes(7) + b"\1", b"\xff" * 8, b"\x7f" + b"\xff" * 7, bytes(64))
_NUMBERS: Final = (0, 0, 0, 1, 1, 2, 3, 7, 64, 255, 65_536, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)
_IDS: Final = (0, 0, 0, 1, 1, 2, 2**31, 2**64 - 1)
_ID_FIELDS: Final = frozenset({"producer_id", "consumer_id", "watcher_id"})
_BITS: Final = {
    FieldDescriptor.TYPE_INT32: 31,
    FieldDescriptor.TYPE_UINT32: 32,
    FieldDescriptor.TYPE_INT64: 63,
    FieldDescriptor.TYPE_UINT64: 64,
}


class Words(NamedTuple):
    """Names that commands use, and credentials."""

    topics: tuple[str, ...]
    namespaces: tuple[str, ...]
    subscriptions: tuple[str, ...]
    methods: tuple[str, ...]
    proofs: tuple[bytes, ...]
    """Values of ``auth_data``."""


def random_frame(chance: random.Random, words: Words, kind: int) -> bytes:
    """A frame with a command of ``kind``; behind a SEND there is an entry."""
    if kind == BaseCommand.SEND:
        return _send(chance)
    return encode_command(random_command(chance, words, kind))


def random_command(chance: random.Random, words: Words, kind: int) -> BaseCommand:
    """A command of ``kind`` with every required field, and some others."""
    command = BaseCommand(type=kind)  # type: ignore[arg-type]
    part = getattr(command, _FIELD_OF[kind].name)
    part.SetInParent()
    _fill(part, chance, words, 0)
    return command


def _send(chance: random.Random) -> bytes:
    producer, sequence, messages = chance.choice(_IDS), chance.choice(_NUMBERS), chance.choice((1, 1, 1, 0, 2, 1000))
    metadata = MessageMetadata(producer_name="p", sequence_id=sequence % 2**63, publish_time=1)
    if chance.random() < 0.3:
        _fill(metadata, chance, Words((), (), (), (), ()), _DEPTH_MAX - 1)
    body = seal_entry(metadata.SerializeToString(), chance.randbytes(chance.choice((0, 1, 10, 200))))
    return send_frame_head(producer, sequence % 2**63, messages, len(body)) + body


def _fill(message: Message, chance: random.Random, words: Words, depth: int) -> None:
    for field in message.DESCRIPTOR.fields:
        if not field.is_required and chance.random() > _SET_PART:
            continue
        if field.is_repeated:
            for _ in range(chance.choice((0, 1, 1, 2, 5))):
                _append(getattr(message, field.name), field, chance, words, depth)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            if field.is_required or depth < _DEPTH_MAX:
                part = getattr(message, field.name)
                part.SetInParent()
                _fill(part, chance, words, depth + 1)
        else:
            setattr(message, field.name, _value(field, chance, words))


def _append(values: Any, field: Any, chance: random.Random, words: Words, depth: int) -> None:
    if field.type != FieldDescriptor.TYPE_MESSAGE:
        values.append(_value(field, chance, words))
    elif depth < _DEPTH_MAX:
        _fill(values.add(), chance, words, depth + 1)


def _value(field: Any, chance: random.Random, words: Words) -> object:
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            if field.containing_type.name == "KeyValue" and chance.random() < _SCHEMA_PART:
                return chance.choice(PROPERTY_NAMES if field.name == "key" else PROPERTY_VALUES)
            return _name(field.name, chance, words)
        case FieldDescriptor.TYPE_BYTES:
            return _bytes(field.name, chance, words)
        case FieldDescriptor.TYPE_BOOL:
            return chance.random() < 0.5
        case FieldDescriptor.TYPE_ENUM:
            return chance.choice(list(field.enum_type.values_by_number))
        case FieldDescriptor.TYPE_DOUBLE | FieldDescriptor.TYPE_FLOAT:
            return chance.choice((0.0, 1.5, -1.0, float("inf"), float("nan")))
    number = chance.choice(_IDS if field.name in _ID_FIELDS else _NUMBERS)
    return number % 2 ** _BITS.get(field.type, 31)


def _bytes(field: str, chance: random.Random, words: Words) -> bytes:
    if words.proofs and "auth" in field:
        return chance.choice(words.proofs)
    if field == "schema_data":
        return chance.choice(SCHEMA_DATA)
    if field == "schema_version":
        return chance.choice(_VERSIONS)
    return chance.randbytes(9)


_KNOWN: Final[tuple[tuple[str, Callable[[Words], tuple[str, ...]]], ...]] = (
    ("topics_pattern", lambda _words: (".*", "persistent://.*", "a+", "(x|y)*", "[")),
    ("topic", lambda words: words.topics),
    ("namespace", lambda words: words.namespaces),
    ("subscription", lambda words: words.subscriptions),
    ("auth_method_name", lambda words: words.methods),
)
"""Words for the fields whose name holds the text; the first one counts."""


def _name(field: str, chance: random.Random, words: Words) -> str:
    for known, values_of in _KNOWN:
        if known in field and (values := values_of(words)):
            if chance.random() >= _FRESH_PART:
                return chance.choice(values)
            return chance.choice(values) + chance.choice(string.ascii_lowercase) * chance.choice((1, 1, 2))
    return "".join(chance.choices(string.printable, k=chance.choice((0, 1, 5, 5, 40))))
