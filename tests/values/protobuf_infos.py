# SPDX-License-Identifier: Apache-2.0
"""PROTOBUF_NATIVE schemas with all that Protobuf has, and payloads of them."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import any_pb2, descriptor_pb2, duration_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass

from broker_core.schemas.info import SchemaInfo
from broker_core.schemas.protobuf_native import root_descriptor
from tests.schemas.infos import protobuf_native

F = FieldDescriptorProto
SCALARS: Final = (
    *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string"),
    *("bytes", "uint32", "sfixed32", "sfixed64", "sint32", "sint64"),
)
_KNOWN: Final = (any_pb2, duration_pb2, timestamp_pb2, wrappers_pb2)


def imported(module: Any) -> FileDescriptorProto:
    """The file of a well-known type."""
    file = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    return file


def proto(*, syntax: str = "proto3") -> FileDescriptorProto:
    """A file that may use all well-known types."""
    return FileDescriptorProto(
        name="root.proto", package="p", syntax=syntax, dependency=[each.DESCRIPTOR.name for each in _KNOWN]
    )


def info_of(file: FileDescriptorProto, root: str = "p.M") -> SchemaInfo:
    return protobuf_native(root, file, *map(imported, _KNOWN))


def message_of(info: SchemaInfo, **fields: Any) -> bytes:
    """A payload."""
    return bytes(GetMessageClass(root_descriptor(info.data))(**fields).SerializeToString())


def everything() -> SchemaInfo:
    """A message with a field of each type, alone and repeated, of well-known types, a map, an enum, and a choice."""
    file = proto()
    file.enum_type.add(name="Colour").value.add(name="RED", number=0)
    file.enum_type[0].value.add(name="BLUE", number=2)
    file.message_type.add(name="Inner").field.add(name="x", number=1, type=F.TYPE_INT32, label=1)
    message = file.message_type.add(name="M")
    for number, name in enumerate(SCALARS, 1):
        kind = getattr(F, f"TYPE_{name.upper()}")
        message.field.add(name=f"one_{name}", number=number, type=kind, label=1)
        message.field.add(name=f"many_{name}", number=number + 20, type=kind, label=3)
    for number, (name, kind) in enumerate(
        (
            *(("colour", ".p.Colour"), ("inner", ".p.Inner"), ("time", ".google.protobuf.Timestamp")),
            *(("took", ".google.protobuf.Duration"), ("any", ".google.protobuf.Any")),
            *(("wrapped", ".google.protobuf.Int64Value"), ("text", ".google.protobuf.StringValue")),
        ),
        50,
    ):
        message.field.add(
            name=name, number=number, label=1, type_name=kind, type=F.TYPE_ENUM if name == "colour" else F.TYPE_MESSAGE
        )
    message.field.add(name="inners", number=60, label=3, type=F.TYPE_MESSAGE, type_name=".p.Inner")
    message.oneof_decl.add(name="choice")
    message.field.add(name="number", number=61, label=1, type=F.TYPE_INT32, oneof_index=0)
    message.field.add(name="word", number=62, label=1, type=F.TYPE_STRING, oneof_index=0)
    message.oneof_decl.add(name="_maybe")
    message.field.add(name="maybe", number=63, label=1, type=F.TYPE_INT32, oneof_index=1, proto3_optional=True)
    entry = message.nested_type.add(name="ByNameEntry", options=descriptor_pb2.MessageOptions(map_entry=True))
    entry.field.add(name="key", number=1, label=1, type=F.TYPE_STRING)
    entry.field.add(name="value", number=2, label=1, type=F.TYPE_MESSAGE, type_name=".p.Inner")
    message.field.add(name="by_name", number=64, label=3, type=F.TYPE_MESSAGE, type_name=".p.M.ByNameEntry")
    return info_of(file)
