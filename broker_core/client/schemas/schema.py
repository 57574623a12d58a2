# SPDX-License-Identifier: Apache-2.0
"""``Schema``: Python values of one kind, as payloads of messages and back.

A producer with a schema sends values of it, a consumer with one reads them: each message by the version of the topic's
schema with which it was written (``reading_of``). Thread-safe: a schema is made once and used everywhere. A value that
cannot be sent is a UsageError, a payload that cannot be read an UnreadableValueError; both name the field.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeAlias, TypeVar, cast

from broker_core.base.errors import ConfigError, UnreadableValueError, UsageError
from broker_core.client.messages.message import Message
from broker_core.client.schemas.misfit import Misfit, wanted
from broker_core.schemas.info import UTF_8, SchemaInfo, SchemaType

T = TypeVar("T")
V = TypeVar("V")

Reading: TypeAlias = Callable[[bytes | None, bytes | None], Any]
"""The value of a message, from its payload and its key; raises ``Misfit``."""


DECODERS_MAX: Final = 100
"""Decoders that a schema keeps: a topic has a handful of versions."""


class Outgoing(NamedTuple):
    """A value as a message carries it. ``key``: only where ``has_key``; None: a null key."""

    payload: bytes | None
    key: bytes | None = None
    has_key: bool = False


class Schema(ABC, Generic[T]):
    """The base of all schemas."""

    info: SchemaInfo
    """The schema as brokers know it."""

    @abstractmethod
    def encoded(self, value: T) -> bytes:
        """The payload of ``value``; raises ``Misfit``."""

    @abstractmethod
    def decoder_of(self, writer: SchemaInfo) -> Callable[[bytes], T]:
        """A function that reads payloads that were written with ``writer``; it raises ``Misfit``."""

    def encode(self, value: T) -> bytes:
        """The payload of ``value``; UsageError if it is none of this schema."""
        try:
            return self.encoded(value)
        except Misfit as misfit:
            raise self.refusal(misfit) from misfit

    def decode(self, payload: bytes, writer: SchemaInfo | None = None) -> T:
        """The value of a payload that was written with ``writer``, None: this schema; UnreadableValueError."""
        try:
            return self.known_decoder(writer or self.info)(payload)
        except Misfit as misfit:
            raise UnreadableValueError(f"the payload is no value of the schema: {misfit}") from misfit

    def value_of(self, message: Message) -> T | None:
        """``message.decoded``, with its type: None for a null value. For messages of a consumer with this schema."""
        return cast("T | None", message.decoded)

    def outgoing(self, value: T | None) -> Outgoing:
        """``value`` as a message carries it; None: a null value, which removes its key from a compacted topic."""
        return Outgoing(None if value is None else self.encode(value))

    def reading_of(self, writer: SchemaInfo | None) -> Reading:
        """The reading of messages that were written with ``writer``; None: they name no version."""
        decode = self.known_decoder(writer or self.info)
        return lambda payload, key: None if payload is None else decode(payload)

    def known_decoder(self, writer: SchemaInfo) -> Callable[[bytes], T]:
        """``decoder_of``, made once for all consumers of this schema."""
        known: dict[object, Callable[[bytes], T]] = self.__dict__.setdefault("_decoders", {})
        mark = (writer.type, writer.data, frozenset(writer.properties.items()))
        decode = known.get(mark)
        if decode is None:
            decode = self.decoder_of(writer)
            if len(known) >= DECODERS_MAX:
                known.clear()
            known[mark] = decode
        return decode

    def refusal(self, misfit: Misfit) -> UsageError:
        """The error for a value that is none of this schema."""
        return UsageError(f"the value is none of the schema ({self.info.type.name}): {misfit}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class PlainSchema(Schema[V]):
    """The base of schemas whose type says everything: another type is a misfit."""

    kind: ClassVar[SchemaType]

    def __init__(self) -> None:
        self.info = SchemaInfo(self.kind)

    @abstractmethod
    def decoded(self, payload: bytes) -> V:
        """The value of a payload; raises ``Misfit``."""

    def decoder_of(self, writer: SchemaInfo) -> Callable[[bytes], V]:
        check_type(writer, self.kind)
        return self.decoded


def check_type(writer: SchemaInfo, kind: SchemaType) -> None:
    """A misfit if ``writer`` is of another type than ``kind``."""
    if writer.type is not kind:
        raise Misfit(f"it was written as {writer.type.name}, and not as {kind.name}")


class BytesSchema(PlainSchema[bytes]):
    """Bytes as they are, whatever they were written as. A topic gets no schema from it."""

    kind = SchemaType.BYTES

    def encoded(self, value: bytes) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise wanted("bytes", value)
        return bytes(value)

    def decoded(self, payload: bytes) -> bytes:
        return payload

    def decoder_of(self, writer: SchemaInfo) -> Callable[[bytes], bytes]:
        return self.decoded


class StringSchema(PlainSchema[str]):
    """Texts in UTF-8."""

    kind = SchemaType.STRING

    def encoded(self, value: str) -> bytes:
        if not isinstance(value, str):
            raise wanted("a text", value)
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise wanted("a text that UTF-8 can express", value) from error

    def decoded(self, payload: bytes) -> str:
        try:
            return payload.decode()
        except UnicodeDecodeError as error:
            raise Misfit(f"it is not UTF-8: {error.reason}") from error

    def decoder_of(self, writer: SchemaInfo) -> Callable[[bytes], str]:
        """Java's clients may write another character set, which they say."""
        check_type(writer, self.kind)
        charset = writer.charset
        if charset.upper() == UTF_8:
            return self.decoded

        def decode(payload: bytes) -> str:
            try:
                return payload.decode(charset)
            except (LookupError, ValueError) as error:
                raise Misfit(f"it is not {charset}: {error}") from error

        return decode


AnySchema: TypeAlias = Schema[Any] | SchemaInfo
"""A schema with its values, or without, as brokers know it: values are payloads then."""


def check_schema(schema: object) -> None:
    """ConfigError for a setting that is neither, nor None."""
    if schema is not None and not isinstance(schema, Schema | SchemaInfo):
        name = schema.__name__ if isinstance(schema, type) else repr(schema)
        raise ConfigError(f"schema {name} is no schema", hint="make one, as in schema=AvroSchema(Order)")


def info_of(schema: AnySchema | None) -> SchemaInfo | None:
    """The schema as brokers are told of it; None if it says no more than that values are bytes."""
    info = schema.info if isinstance(schema, Schema) else schema
    return None if info is None or info.is_none else info
