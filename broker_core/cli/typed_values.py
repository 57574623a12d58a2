# SPDX-License-Identifier: Apache-2.0
"""Values of a schema for the command line: payloads to what is printed of them, and lines of input to payloads.

Each message is read by the version that it was written with, as nobody here has a schema of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message_factory import GetMessageClass

from broker_core.base.errors import UsageError
from broker_core.cli.plain_values import from_plain, primitive_from_plain, to_plain
from broker_core.client.schemas.auto import AutoConsumeSchema, schema_of
from broker_core.client.schemas.misfit import Misfit, wanted
from broker_core.client.schemas.schema import Reading
from broker_core.schemas.avro.json_numbers import loaded
from broker_core.schemas.definition import definition_of
from broker_core.schemas.info import UTF_8, SchemaInfo, SchemaType
from broker_core.schemas.key_value import SEPARATED, divided, joined
from broker_core.schemas.protobuf_native import root_descriptor

if TYPE_CHECKING:
    from broker_core.client import Client, Message


_TOO_DEEP: Final = "it is nested too deep"


class Shown(NamedTuple):
    """A decoded value as JSON has it; or the reason why it is none, and the bytes have to do."""

    value: Any
    reason: str = ""


class DecodedValues:
    """The values of messages by the schemas of their topics, each of which is asked for once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._readings: dict[tuple[str, int], Reading | str] = {}

    def shown(self, message: Message) -> Shown | None:
        """The value of a message; None where it names no schema, or one that says nothing about it."""
        version = message.schema_version
        if version is None or (message.value is None and message.key is None):
            return None
        reading = self._readings.get((message.topic, version))
        if reading is None:
            reading = self._readings[message.topic, version] = self._reading(message.topic, version)
        if isinstance(reading, str):
            return Shown(None, reading)
        key = message.key.encode() if isinstance(message.key, str) else message.key
        try:
            value = reading(message.value, key)
            return None if isinstance(value, bytes) else Shown(to_plain(value))
        except Misfit as misfit:
            return Shown(None, str(misfit))
        except RecursionError:
            return Shown(None, _TOO_DEEP)

    def _reading(self, topic: str, version: int) -> Reading | str:
        """The reading of a version, or why there is none."""
        found = self._client.get_schema(topic, version)
        if found is None:
            return f"the topic has no version {version} of a schema"
        try:
            return AutoConsumeSchema().reading_of(found.info)
        except Misfit as misfit:
            return str(misfit)


class Payload(NamedTuple):
    """Parts of a message. ``key``: that of a pair whose keys are those of messages (``has_key``)."""

    value: bytes | None
    key: bytes | None = None
    has_key: bool = False


Encode = Callable[[Any], Payload]
"""Makes a payload of JSON; raises ``Misfit``."""


def encoder_of(info: SchemaInfo) -> Encode:
    """The encoder of a schema; InvalidSchemaError, UsageError for a type whose values are not known here."""
    definition_of(info)
    if info.type is SchemaType.KEY_VALUE:
        return _pairs(info)
    encode = _encoder_of(info)
    return lambda value: Payload(None if value is None else _bounded(encode, value))


def parsed_line(info: SchemaInfo, line: bytes) -> Any:
    """The value that a line of input is: JSON, and for STRING the text itself; Misfit."""
    try:
        return line.decode() if info.type is SchemaType.STRING else loaded(line)
    except UnicodeDecodeError as error:
        raise Misfit(f"it is not UTF-8: {error.reason}") from error
    except (ValueError, RecursionError) as error:
        raise Misfit(f"it is not JSON ({error})") from error


def _encoder_of(info: SchemaInfo) -> Callable[[Any], bytes]:
    if info.type is SchemaType.PROTOBUF_NATIVE:
        return _of_message(info)
    if info.type in (SchemaType.PROTOBUF, SchemaType.EXTERNAL):
        what = f"values of {info.type.name} schemas cannot be made here"
        raise UsageError(what, hint="encode them elsewhere, and send the bytes without --schema")
    if info.type is SchemaType.STRING and info.charset.upper() != UTF_8:
        hint = "encode them elsewhere, and send the bytes without --schema"
        raise UsageError(f"texts in {info.charset!r} cannot be made here", hint=hint)
    schema, avro = schema_of(info), definition_of(info).avro
    if avro is not None:
        return lambda value: schema.encoded(from_plain(avro, value))
    return lambda value: schema.encoded(primitive_from_plain(info.type, value))


def _of_message(info: SchemaInfo) -> Callable[[Any], bytes]:
    kind = GetMessageClass(root_descriptor(info.data))

    def encode(value: Any) -> bytes:
        if not isinstance(value, dict):
            raise wanted(f"message {kind.DESCRIPTOR.full_name}", value)
        try:
            return ParseDict(value, kind()).SerializeToString()
        except ParseError as error:
            raise Misfit(str(error)) from error

    return encode


def _pairs(info: SchemaInfo) -> Encode:
    key, value, encoding = divided(info)
    encoders = {"key": _encoder_of(key), "value": _encoder_of(value)}

    def encode(pair: Any) -> Payload:
        if pair is None:
            return Payload(None)
        if not isinstance(pair, dict) or pair.keys() != encoders.keys():
            raise wanted('an object with "key" and "value"', pair)
        key, value = (None if pair[name] is None else _within(name, encoders[name], pair[name]) for name in encoders)
        return Payload(value, key, has_key=True) if encoding == SEPARATED else Payload(joined(key, value))

    return encode


def _within(name: str, encode: Callable[[Any], bytes], value: Any) -> bytes:
    try:
        return _bounded(encode, value)
    except Misfit as misfit:
        raise misfit.within(name) from None


def _bounded(encode: Callable[[Any], bytes], value: Any) -> bytes:
    try:
        return encode(value)
    except RecursionError:
        raise Misfit(_TOO_DEEP) from None
