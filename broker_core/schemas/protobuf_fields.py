# SPDX-License-Identifier: Apache-2.0
"""Fields of PROTOBUF_NATIVE schemas, for people: brokers compare the name of the message alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

FIELDS_TOLD: Final = 1000
"""Fields of one message and those in it that are looked at."""

DEPTH_MAX: Final = 64
"""Messages in one another that are looked into."""


class ProtoField(NamedTuple):
    """A field. ``path``: names from the top; ``number``: those on the way, which data has; ``type``: in words."""

    path: str
    number: tuple[int, ...]
    type: str


def message_fields(message: Descriptor) -> list[ProtoField]:
    """The fields of a message, and of the messages in it."""
    return list(islice(_fields(message, "", (), (message.full_name,)), FIELDS_TOLD))


def _fields(message: Descriptor, path: str, number: tuple[int, ...], above: tuple[str, ...]) -> Iterator[ProtoField]:
    for each in message.fields:
        below = f"{path}.{each.name}" if path else each.name
        yield ProtoField(below, (*number, each.number), _words(each))
        inner = each.message_type
        if inner is not None and inner.full_name not in above and len(above) < DEPTH_MAX:
            yield from _fields(inner, below, (*number, each.number), (*above, inner.full_name))


def _words(field: FieldDescriptor) -> str:
    named = field.message_type or field.enum_type
    kind = FieldDescriptorProto.Type.DESCRIPTOR.values_by_number[field.type].name.removeprefix("TYPE_").lower()
    return f"{'repeated ' if field.is_repeated else ''}{named.full_name if named else kind}"
