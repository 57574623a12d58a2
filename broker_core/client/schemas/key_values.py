# SPDX-License-Identifier: Apache-2.0
"""Schemas of pairs: a key and a value with a schema each, together in the payload or the key as the message's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from broker_core.base.errors import UsageError
from broker_core.client.schemas.misfit import Misfit, wanted
from broker_core.client.schemas.schema import Outgoing, Reading, Schema
from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.schemas.key_value import SEPARATED, KeyValueError, divided, divided_payload, joined, pair_of

K = TypeVar("K")
V = TypeVar("V")

KeyValueEncoding = Literal["inline", "separated"]


class KeyValue(NamedTuple, Generic[K, V]):
    """A pair. Either may be null."""

    key: K | None
    value: V | None


class KeyValueSchema(Schema[KeyValue[K, V]]):
    """Pairs. ``encoding``: inline, both are the payload; separated, the key is that of the message, by which it is
    routed and compacted, and the value is the payload."""

    def __init__(self, key: Schema[K], value: Schema[V], encoding: KeyValueEncoding = "inline") -> None:
        if isinstance(key, KeyValueSchema) or isinstance(value, KeyValueSchema):
            raise UsageError("a pair cannot be a part of a pair", hint="give a record two fields")
        if encoding not in ("inline", "separated"):
            raise UsageError(f"the encoding is {encoding!r}", hint='write "inline" or "separated"')
        self.key = key
        self.value = value
        self.is_separated = encoding == "separated"
        self.info = pair_of(key.info, value.info, encoding.upper())

    def encoded(self, value: KeyValue[K, V]) -> bytes:
        """The payload of a pair whose key is in it."""
        return joined(*self._parts(value))

    def _parts(self, pair: Any) -> tuple[bytes | None, bytes | None]:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise wanted("a KeyValue", pair)
        key, value = pair
        return (
            None if key is None else _within("key", self.key.encoded, key),
            None if value is None else _within("value", self.value.encoded, value),
        )

    def outgoing(self, value: KeyValue[K, V] | None) -> Outgoing:
        if value is None:
            return Outgoing(None)
        try:
            if not self.is_separated:
                return Outgoing(self.encoded(value))
            key, payload = self._parts(value)
            return Outgoing(payload, key, has_key=True)
        except Misfit as misfit:
            raise self.refusal(misfit) from misfit

    def decoder_of(self, writer: SchemaInfo) -> Callable[[bytes], KeyValue[K, V]]:
        """Of the payload alone, where the key is in it."""
        read = self.reading_of(writer)
        return lambda payload: read(payload, None)

    def reading_of(self, writer: SchemaInfo | None) -> Reading:
        return pairs_of(writer or self.info, self.key, self.value)

    def __repr__(self) -> str:
        return f"KeyValueSchema({self.key!r}, {self.value!r})"


def pairs_of(writer: SchemaInfo, key: Schema[Any], value: Schema[Any]) -> Reading:
    """The reading of pairs that were written with ``writer``; raises ``Misfit``."""
    if writer.type is not SchemaType.KEY_VALUE:
        raise Misfit(f"it was written as {writer.type.name}, and not as KEY_VALUE")
    try:
        parts = divided(writer)
    except KeyValueError as error:
        raise Misfit(f"the schema of its version cannot be read: {error.message}") from error
    read_key, read_value = key.decoder_of(parts.key), value.decoder_of(parts.value)

    def pair(key: bytes | None, value: bytes | None) -> KeyValue[Any, Any]:
        return KeyValue(
            None if key is None else _within("key", read_key, key),
            None if value is None else _within("value", read_value, value),
        )

    if parts.encoding == SEPARATED:
        return lambda payload, key: pair(key, payload)
    return lambda payload, _: None if payload is None else pair(*_divided(payload))


def _divided(payload: bytes) -> tuple[bytes | None, bytes | None]:
    try:
        return divided_payload(payload)
    except KeyValueError as error:
        raise Misfit(error.message) from error


def _within(name: str, convert: Callable[[Any], Any], value: Any) -> Any:
    try:
        return convert(value)
    except Misfit as misfit:
        raise misfit.within(name) from None
