# SPDX-License-Identifier: Apache-2.0
"""Reading the values of one consumer's messages: each by the version of the schema with which it was written.

A version is asked for when the first message with it is received, and what reads it is kept with each such message, so
that ``Message.decoded`` waits for nobody. A version that cannot be had is told by the messages that need it, and asked
for again with the next one. A topic that is deleted and made anew counts its versions anew, and its consumers are
attached to it anew: so what reads a message is from after the attachment in which it came. ``attach`` may be called on
any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from broker_core.base.errors import PulsarishError, UnreadableValueError
from broker_core.base.names import TopicName
from broker_core.client.connecting.topic_schemas import TopicSchemas
from broker_core.client.messages.message import Message
from broker_core.client.schemas.misfit import Misfit
from broker_core.client.schemas.schema import Reading, Schema
from broker_core.schemas.info import SchemaInfo

VERSIONS_MAX: Final = 1000
"""Versions of all topics whose readings are kept; a topic has a handful."""

_Read: TypeAlias = Callable[[Message], Any]


class _Known(NamedTuple):
    """The reader of a version, and the time when that was asked for."""

    read: _Read
    asked_s: float


class Decoding:
    """The readings of one consumer."""

    def __init__(self, schemas: TopicSchemas, schema: Schema[Any], now_s: Callable[[], float]) -> None:
        """``now_s``: the event loop's clock."""
        self._now_s = now_s
        self._schemas = schemas
        self._schema = schema
        self._readings: dict[tuple[TopicName, int], _Known] = {}
        self._without_version = _read_by(schema, None)

    def attach(self, message: Message) -> bool:
        """Make ``message`` readable; False if the version with which it was written has to be asked for first."""
        version = message.schema_version
        if version is None:
            message.read_with(self._without_version)
            return True
        known = self._readings.get((message.source.topic.base, version))
        if known is None or known.asked_s < message.source.attached_s:
            return False
        message.read_with(known.read)
        return True

    async def learn(self, messages: Sequence[Message]) -> None:
        """Make all of ``messages`` readable, or able to tell why they are not."""
        for message in messages:
            if not self.attach(message) and message.schema_version is not None:
                await self._learn(message, message.source.topic.base, message.schema_version)

    async def _learn(self, message: Message, topic: TopicName, version: int) -> None:
        asked_s = self._now_s()
        try:
            found = await self._schemas.get(topic, version, anew=True)
        except PulsarishError as failure:
            message.read_with(_unknown(f"version {version} of the schema cannot be had: {failure}"))
            return
        if found is None:
            message.read_with(_unknown(f"the topic has no version {version} of its schema: was it deleted by force?"))
            return
        while len(self._readings) >= VERSIONS_MAX:
            del self._readings[next(iter(self._readings))]
        known = self._readings[topic, version] = _Known(_read_by(self._schema, found.info), asked_s)
        message.read_with(known.read)


def _read_by(schema: Schema[Any], writer: SchemaInfo | None) -> _Read:
    try:
        reading = schema.reading_of(writer)
    except Misfit as misfit:
        return _unknown(str(misfit))
    return _reading_messages(reading)


def _reading_messages(reading: Reading) -> _Read:
    def read(message: Message) -> Any:
        try:
            return reading(message.value, message.key_bytes)
        except Misfit as misfit:
            raise unreadable(message, str(misfit)) from misfit

    return read


def _unknown(reason: str) -> _Read:
    def refuse(message: Message) -> Any:
        if message.value is None:
            return None
        raise unreadable(message, reason)

    return refuse


def unreadable(message: Message, reason: str) -> UnreadableValueError:
    """The error for a message whose value cannot be read."""
    version = message.schema_version
    written = "without a version" if version is None else f"with version {version}"
    return UnreadableValueError(
        f"message {message.message_id} of {message.topic}, written {written} of a schema, cannot be read: {reason}"
    )
