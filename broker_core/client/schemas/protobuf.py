# SPDX-License-Identifier: Apache-2.0
"""Schemas of Protobuf messages, with the descriptors of their files in the definition (PROTOBUF_NATIVE)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, TypeVar

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import DecodeError, EncodeError, Message

from broker_core.base.errors import UsageError
from broker_core.client.schemas.misfit import Misfit, wanted
from broker_core.client.schemas.schema import Schema, check_type
from broker_core.schemas.info import SchemaInfo, SchemaType

M = TypeVar("M", bound=Message)


class ProtobufNativeSchema(Schema[M]):
    """Messages of a class that protoc has made. Older and newer messages are read by Protobuf's own rules."""

    def __init__(self, record_cls: type[M]) -> None:
        given: Any = record_cls
        if not (isinstance(given, type) and issubclass(given, Message)):
            raise UsageError(f"{record_cls!r} is no class of Protobuf messages", hint="give one that protoc has made")
        self._message = record_cls
        self.info = SchemaInfo(SchemaType.PROTOBUF_NATIVE, _definition(record_cls.DESCRIPTOR))

    def encoded(self, value: M) -> bytes:
        if not isinstance(value, self._message):
            raise wanted(f"an instance of {self._message.__name__}", value)
        try:
            return value.SerializeToString()
        except EncodeError as error:
            raise Misfit(str(error)) from error

    def decoder_of(self, writer: SchemaInfo) -> Callable[[bytes], M]:
        check_type(writer, self.info.type)
        return message_decoder(self._message)

    def __repr__(self) -> str:
        return f"ProtobufNativeSchema({self._message.__name__})"


def message_decoder(kind: type[M]) -> Callable[[bytes], M]:
    """A function that reads messages of a class; it raises ``Misfit``."""

    def decode(payload: bytes) -> M:
        try:
            return kind.FromString(payload)
        except DecodeError as error:
            raise Misfit(f"it is no {kind.DESCRIPTOR.full_name}: {error}") from error

    return decode


def _definition(descriptor: Any) -> bytes:
    """The definition in the form that clients in Python and Java give it: brokers compare its bytes."""
    files = FileDescriptorSet()
    _add_file(descriptor.file, files, set())
    return json.dumps(
        {
            "fileDescriptorSet": base64.b64encode(files.SerializeToString()).decode(),
            "rootMessageTypeName": descriptor.full_name,
            "rootFileDescriptorName": descriptor.file.name,
        },
        indent=1,
    ).encode()


def _add_file(file: FileDescriptor, files: FileDescriptorSet, added: set[str]) -> None:
    """Add a file behind those that it imports."""
    if file.name in added:
        return
    added.add(file.name)
    for each in file.dependencies:
        _add_file(each, files, added)
    file.CopyToProto(files.file.add())
