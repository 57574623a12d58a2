# SPDX-License-Identifier: Apache-2.0
"""Schemas of all types for tests."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.schemas.key_value import joined

STRING = SchemaInfo(SchemaType.STRING)
INT32 = SchemaInfo(SchemaType.INT32)


def avro(*fields: Any, name: str = "R", kind: SchemaType = SchemaType.AVRO, **more: Any) -> SchemaInfo:
    """A record. A field is a name, which is an int, a name with a default, or a whole definition."""
    definition = {"type": "record", "name": name, "fields": [_field(each) for each in fields], **more}
    return SchemaInfo(kind, json.dumps(definition).encode())


def _field(field: Any) -> Any:
    if isinstance(field, str):
        name, equals, default = field.partition("=")
        return {"name": name, "type": "int", **({"default": int(default)} if equals else {})}
    return field


def key_value(key: SchemaInfo, value: SchemaInfo, encoding: str = "") -> SchemaInfo:
    """A KEY_VALUE schema of two others."""
    properties = {"key.schema.type": key.type.name, "value.schema.type": value.type.name}
    if encoding:
        properties["kv.encoding.type"] = encoding
    return SchemaInfo(SchemaType.KEY_VALUE, joined(key.data, value.data), properties)


def protobuf_native(root: str, *files: FileDescriptorProto, file: str = "root.proto") -> SchemaInfo:
    """A PROTOBUF_NATIVE schema whose message is ``root`` of ``file``."""
    data = {
        "fileDescriptorSet": base64.b64encode(FileDescriptorSet(file=files).SerializeToString()).decode(),
        "rootMessageTypeName": root,
        "rootFileDescriptorName": file,
    }
    return SchemaInfo(SchemaType.PROTOBUF_NATIVE, json.dumps(data).encode())


def proto_file(
    name: str, messages: Sequence[str], imports: Sequence[str] = (), package: str = "p"
) -> FileDescriptorProto:
    """A file with messages of one field each."""
    file = FileDescriptorProto(name=name, package=package, dependency=imports, syntax="proto3")
    for message in messages:
        file.message_type.add(name=message).field.add(name="a", number=1, type=5, label=1)
    return file
