# SPDX-License-Identifier: Apache-2.0
"""Fields of PROTOBUF_NATIVE schemas, for people: brokers compare the name of the message alone."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet

FIELDS_TOLD: Final = 1000
"""Fields of one message and those in it that are looked at."""

DEPTH_MAX: Final = 64
"""Messages in one another that are looked into."""

_MESSAGE: Final = FieldDescriptorProto.TYPE_MESSAGE
_REPEATED: Final = FieldDescriptorProto.LABEL_REPEATED


class ProtoField(NamedTuple):
    """A field. ``path``: names from the top; ``number``: those on the way, which data has; ``type``: in words."""

    path: str
    number: tuple[int, ...]
    type: str


def message_fields(data: bytes, root: str) -> list[ProtoField]:
    """The fields of the message ``root`` of a schema that is valid, and of messages in it."""
    files = FileDescriptorSet.FromString(base64.b64decode(json.loads(data)["fileDescriptorSet"]))
    messages: dict[str, DescriptorProto] = {}
    for file in files.file:
        for each in file.message_type:
            messages.update(_named(each, file.package))
    return list(islice(_fields(messages, root, ("", ()), (root,)), FIELDS_TOLD))


def _named(message: DescriptorProto, above: str) -> Iterator[tuple[str, DescriptorProto]]:
    name = f"{above}.{message.name}" if above else message.name
    yield name, message
    for each in message.nested_type:
        yield from _named(each, name)


def _fields(
    messages: Mapping[str, DescriptorProto], name: str, way: tuple[str, tuple[int, ...]], above: tuple[str, ...]
) -> Iterator[ProtoField]:
    for each in messages[name].field:
        path = f"{way[0]}.{each.name}" if way[0] else each.name
        number = (*way[1], each.number)
        inner = each.type_name.removeprefix(".")
        repeated = "repeated " if each.label == _REPEATED else ""
        words = inner or FieldDescriptorProto.Type.Name(each.type).removeprefix("TYPE_").lower()
        yield ProtoField(path, number, f"{repeated}{words}")
        if each.type == _MESSAGE and inner in messages and inner not in above and len(above) < DEPTH_MAX:
            yield from _fields(messages, inner, (path, number), (*above, inner))
