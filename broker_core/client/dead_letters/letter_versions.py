# SPDX-License-Identifier: Apache-2.0
"""Schemas of the copies in retry topics and dead letter topics: each keeps the schema of its message.

A version is a number of one topic, so the copy has another one: the letter topic gets the schema, and the copy names
the version that it has there. A copy of a message without a version has none either. Source: semantics 4.6.8.
"""

from __future__ import annotations

from broker_core.base.names import TopicName
from broker_core.client.connecting.network import Network
from broker_core.client.messages.message import Message
from broker_core.schemas.info import SchemaInfo


class LetterVersions:
    """The versions on letter topics of the schemas of one consumer's messages."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._versions: dict[tuple[TopicName, TopicName, int], int] = {}

    async def schema_of(self, message: Message) -> SchemaInfo | None:
        """The schema with which ``message`` was written; None if it names none, or one that was deleted by force."""
        if message.schema_version is None:
            return None
        found = await self._network.schemas.get(message.source.topic, message.schema_version)
        return None if found is None else found.info

    async def on(self, topic: TopicName, message: Message, schema: SchemaInfo | None) -> int | None:
        """The version that ``schema``, that of ``message``, has on the letter topic ``topic``, which is there.

        IncompatibleSchemaError if it cannot have it there.
        """
        if schema is None or message.schema_version is None:
            return None
        asked = (topic, message.source.topic.base, message.schema_version)
        if asked not in self._versions:
            self._versions[asked] = await self._network.schemas.get_or_create(topic, schema)
        return self._versions[asked]
