# SPDX-License-Identifier: Apache-2.0
"""The schemas of topics, as brokers tell them: GET_SCHEMA and GET_OR_CREATE_SCHEMA.

A version never changes, so that each is asked for once, however many want it at the same time; the latest one is asked
for each time. Partitions share the schemas of their topic. Source: semantics 10.1, 10.16, 10.17.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from broker_core.base.errors import RemoteProtocolError, TopicNotFoundError
from broker_core.base.names import TopicName
from broker_core.client.connecting.lookup import Lookup, not_found
from broker_core.client.connecting.schema_commands import read_schema, schema_message
from broker_core.client.connecting.waiting import looked_at, outcome_of
from broker_core.schemas.info import SchemaInfo, VersionedSchema
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from broker_core.wire.schema_versions import version_bytes, version_of

T = TypeVar("T")

KNOWN_BYTES_MAX: Final = 32 * 1024 * 1024
"""Definitions that are kept: as much as all versions of one topic may have."""

_ENTRY_BYTES: Final = 1024
"""Size of what is kept beside a definition, which may be empty."""

_Question = tuple[TopicName, int]


class Retried(Protocol):
    """``Network.retried``: the result of an attempt, which is repeated while that is worth it."""

    def __call__(self, attempt: Callable[[], Awaitable[T]], task: str) -> Awaitable[T]: ...


class TopicSchemas:
    """The schemas that one client has asked for. Everything but ``known`` is for the event loop."""

    def __init__(self, lookup: Lookup, retried: Retried) -> None:
        self._lookup = lookup
        self._retried = retried
        self._known: OrderedDict[_Question, VersionedSchema] = OrderedDict()
        self._known_bytes = 0
        self._asking: dict[_Question, asyncio.Task[VersionedSchema | None]] = {}

    async def get(self, topic: TopicName, version: int | None = None, *, anew: bool = False) -> VersionedSchema | None:
        """The latest schema of ``topic``, or the one that ``version`` names; None if there is none. ``anew``: a version
        is asked for though it is known."""
        base = topic.base
        if version is None:
            return await self._ask(base, None)
        question = (base, version)
        if not anew and (known := self._known.get(question)) is not None:
            return known
        task = self._asking.get(question)
        if task is None:
            task = self._asking[question] = asyncio.get_running_loop().create_task(self._ask(base, version))
            task.add_done_callback(looked_at)
            task.add_done_callback(lambda _: self._asking.pop(question, None))
        return await outcome_of(task)  # Others may wait for it, too.

    def known(self, topic: TopicName, version: int) -> VersionedSchema | None:
        """The schema of a version that was asked for before. May be called on any thread."""
        return self._known.get((topic.base, version))

    async def get_or_create(self, topic: TopicName, schema: SchemaInfo) -> int:
        """The version that ``schema`` has on ``topic``, which gets it if it has it not.

        IncompatibleSchemaError if it may not, TopicNotFoundError if there is no such topic.
        """
        lookup = self._lookup
        task = f"ask for the version of a schema of {topic}"
        partitions = await self._retried(lambda: lookup.partitions(topic, create=False), task)
        used = topic.partition(0) if partitions else topic

        async def attempt() -> int:
            connection = await lookup.connect(await lookup.broker_of(used))
            request_id = connection.next_request_id()
            asked = pb.CommandGetOrCreateSchema(request_id=request_id, topic=str(used), schema=schema_message(schema))
            command = BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA, getOrCreateSchema=asked)
            answer = (await connection.request(command, request_id)).getOrCreateSchemaResponse
            version = version_of(answer.schema_version)
            if version is None:
                raise RemoteProtocolError(f"{connection.address} names no version of the schema of {topic}")
            return version

        try:
            return await self._retried(attempt, task)
        except TopicNotFoundError as error:
            raise not_found(topic) from error

    async def _ask(self, topic: TopicName, version: int | None) -> VersionedSchema | None:
        async def attempt() -> VersionedSchema:
            connection = await self._lookup.service_connection()
            request_id = connection.next_request_id()
            asked = pb.CommandGetSchema(request_id=request_id, topic=str(topic))
            if version is not None:
                asked.schema_version = version_bytes(version)
            command = BaseCommand(type=BaseCommand.GET_SCHEMA, getSchema=asked)
            answer = (await connection.request(command, request_id)).getSchemaResponse
            told = version_of(answer.schema_version) if version is None else version
            if told is None:
                raise RemoteProtocolError(f"{connection.address} names no version of the schema of {topic}")
            return VersionedSchema(read_schema(answer.schema), told)

        try:
            found = await self._retried(attempt, f"ask for a schema of {topic}")
        except TopicNotFoundError:
            return None
        self._keep((topic, found.version), found)
        return found

    def _keep(self, question: _Question, found: VersionedSchema) -> None:
        before = self._known.pop(question, None)  # Another one, where the topic was deleted and made anew.
        self._known_bytes += _size_bytes(found) - (0 if before is None else _size_bytes(before))
        self._known[question] = found
        while self._known_bytes > KNOWN_BYTES_MAX and len(self._known) > 1:
            _, oldest = self._known.popitem(last=False)
            self._known_bytes -= _size_bytes(oldest)


def _size_bytes(known: VersionedSchema) -> int:
    return _ENTRY_BYTES + len(known.info.data)
