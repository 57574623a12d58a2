# SPDX-License-Identifier: Apache-2.0
"""Schemas that a topic decides: reading whatever it has, and sending payloads that are made already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from broker_core.base.errors import UsageError
from broker_core.client.schemas.key_values import pairs_of
from broker_core.client.schemas.misfit import Misfit, wanted
from broker_core.client.schemas.primitives import primitive_schemas
from broker_core.client.schemas.protobuf import message_decoder
from broker_core.client.schemas.record_schemas import AvroSchema, JsonSchema
from broker_core.client.schemas.schema import BytesSchema, Reading, Schema, StringSchema
from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.schemas.protobuf_native import DescriptorError, root_descriptor

_SCHEMAS: Final[Mapping[SchemaType, Callable[[], Schema[Any]]]] = {
    **primitive_schemas(),
    SchemaType.STRING: StringSchema,
}


class AutoConsumeSchema(Schema[Any]):
    """The schema that a topic has: each message is read by the version with which it was written.

    Records are dicts, pairs ``KeyValue``, Protobuf messages those of their descriptors, and what names no version, or
    one of a type without meaning to readers, is bytes. A topic gets no schema from it, and refuses it never.
    """

    info: SchemaInfo = SchemaInfo(SchemaType.AUTO_CONSUME)

    def encoded(self, value: Any) -> bytes:
        raise Misfit("AutoConsumeSchema is for reading")

    def decoder_of(self, writer: SchemaInfo) -> Callable[[bytes], Any]:
        """Of payloads that hold the whole value, which those of separated pairs do not."""
        read = self.reading_of(writer)
        return lambda payload: read(payload, None)

    def reading_of(self, writer: SchemaInfo | None) -> Reading:
        if writer is not None and writer.type is SchemaType.KEY_VALUE:
            return pairs_of(writer, _ANY_PART, _ANY_PART)
        decode = (lambda payload: payload) if writer is None else _decoder_of(writer)
        return lambda payload, key: None if payload is None else decode(payload)


class _AnyPart(Schema[Any]):
    """A key or value of a pair, of any type."""

    def encoded(self, value: Any) -> bytes:
        raise Misfit("AutoConsumeSchema is for reading")

    def decoder_of(self, writer: SchemaInfo) -> Callable[[bytes], Any]:
        return _decoder_of(writer)


_ANY_PART: Final = _AnyPart()


def _decoder_of(writer: SchemaInfo) -> Callable[[bytes], Any]:
    if writer.type is SchemaType.PROTOBUF_NATIVE:
        return message_decoder(_message_class(writer))
    return schema_of(writer).decoder_of(writer)


def schema_of(info: SchemaInfo) -> Schema[Any]:
    """A schema for plain values of ``info``: records as dicts; bytes for what has no other form here."""
    try:
        if info.type is SchemaType.AVRO:
            return AvroSchema(None, info.data)
        if info.type is SchemaType.JSON:
            return JsonSchema(None, info.data)
    except UsageError as error:
        raise Misfit(f"the schema of its version cannot be read: {error.message}") from error
    return _SCHEMAS.get(info.type, BytesSchema)()


def _message_class(info: SchemaInfo) -> type[Message]:
    try:
        return GetMessageClass(root_descriptor(info.data))
    except DescriptorError as error:
        raise Misfit(f"the schema of its version cannot be read: {error.message}") from error


class AutoProduceSchema(Schema[bytes]):
    """Payloads that are made already, of the schema that the topic has when the producer is made; each is looked at
    before it is sent. A topic without a schema takes any bytes."""

    def __init__(self, topic_schema: SchemaInfo | None = None) -> None:
        """``topic_schema``: that of the topic, which a producer fills in."""
        self.info = topic_schema or SchemaInfo(SchemaType.BYTES)
        self._decode = None if topic_schema is None else AutoConsumeSchema().decoder_of(topic_schema)

    def encoded(self, value: bytes) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise wanted("bytes", value)
        payload = bytes(value)
        if self._decode is not None:
            self._decode(payload)
        return payload

    def decoder_of(self, writer: SchemaInfo) -> Callable[[bytes], bytes]:
        return BytesSchema().decoder_of(writer)
