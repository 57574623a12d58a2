# SPDX-License-Identifier: Apache-2.0
"""Schemas of topics, over the admin REST; over the binary protocol where no admin address is known.

The protocol cannot tell which strategy is in force, and has no command that deletes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from broker_core.base.errors import (
    AuthorizationError,
    ConfigError,
    ConnectionLostError,
    OperationTimeoutError,
    TopicNotFoundError,
    UsageError,
)
from broker_core.base.names import TopicName
from broker_core.cli.target import Admin, Target
from broker_core.schemas.strategies import Strategy

if TYPE_CHECKING:
    from broker_core.client import Client
    from broker_core.client.admin import AdminApi
    from broker_core.schemas.compatibility import Entry
    from broker_core.schemas.info import SchemaInfo


class SchemaAccess(Protocol):
    """The schemas of a broker's topics. A topic need not exist."""

    def schema(self, topic: TopicName, version: int | None = None) -> Entry:
        """A version of the topic's schema, or the last one; TopicNotFoundError."""

    def versions(self, topic: TopicName) -> list[Entry]:
        """All versions, oldest first."""

    def add(self, topic: TopicName, info: SchemaInfo) -> int:
        """The version that a schema has, or gets; IncompatibleSchemaError."""

    def delete(self, topic: TopicName, *, force: bool) -> int:
        """Delete the schema; the version that the deletion takes, -1 if none."""

    def strategy(self, topic: TopicName, last: SchemaInfo) -> Strategy | None:
        """The strategy in force for a topic whose last schema is ``last``; None: it is not told."""


@contextlib.contextmanager
def schema_access(target: Target, topic: TopicName) -> Iterator[SchemaAccess]:
    """The schemas of the broker that a command talks to, which will be asked about ``topic``."""
    with contextlib.ExitStack() as stack:
        yield _chosen(stack, target, topic)


def _chosen(stack: contextlib.ExitStack, target: Target, topic: TopicName) -> SchemaAccess:
    try:
        return _AdminSchemas(stack.enter_context(target.admin(topic.namespace_name)))
    except (ConfigError, ConnectionLostError, OperationTimeoutError):
        if target.admin_is is not Admin.GUESSED:
            raise
    return _WireSchemas(stack.enter_context(target.client()))


class _AdminSchemas:
    """Over the admin REST."""

    def __init__(self, admin: AdminApi) -> None:
        self._admin = admin

    def schema(self, topic: TopicName, version: int | None = None) -> Entry:
        try:
            return self._admin.schema(topic, version)
        except TopicNotFoundError as error:
            raise no_schema(topic, version) from error

    def versions(self, topic: TopicName) -> list[Entry]:
        return self._admin.schemas(topic)

    def add(self, topic: TopicName, info: SchemaInfo) -> int:
        return self._admin.add_schema(topic, info)

    def delete(self, topic: TopicName, *, force: bool) -> int:
        return self._admin.delete_schema(topic, force=force)

    def strategy(self, topic: TopicName, last: SchemaInfo) -> Strategy | None:
        from broker_core.client.admin import AdminRefusedError

        asked = (
            lambda: self._admin.policy(topic, "schemaCompatibilityStrategy", applied=True),
            lambda: self._admin.schema_strategy(topic, last),  # also where the topic does not exist, or has no policies
        )
        for ask in asked:
            with contextlib.suppress(TopicNotFoundError, AdminRefusedError, AuthorizationError):
                if (told := ask()) in Strategy.__members__ and told != Strategy.UNDEFINED.name:
                    return Strategy[told]
        return None


class _WireSchemas:
    """Over the binary protocol."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def schema(self, topic: TopicName, version: int | None = None) -> Entry:
        from broker_core.schemas.compatibility import Entry

        found = self._client.get_schema(str(topic), version)
        if found is None:
            raise no_schema(topic, version)
        return Entry(found.version, found.info)

    def versions(self, topic: TopicName) -> list[Entry]:
        from broker_core.schemas.compatibility import Entry

        last = self._client.get_schema(str(topic))
        earlier = [] if last is None else [self._client.get_schema(str(topic), each) for each in range(last.version)]
        return [Entry(each.version, each.info) for each in [*earlier, last] if each is not None]

    def add(self, topic: TopicName, info: SchemaInfo) -> int:
        return self._client.get_or_create_schema(str(topic), info)

    def delete(self, topic: TopicName, *, force: bool) -> int:
        raise UsageError(f"the schema of {topic} is deleted over the admin REST", hint="name its address: --http-url")

    def strategy(self, topic: TopicName, last: SchemaInfo) -> Strategy | None:
        return None


def no_schema(topic: TopicName, version: int | None = None) -> TopicNotFoundError:
    """The error for a topic without a schema, or without this version of it."""
    from broker_core.cli.topic import shortest

    name = shortest(topic)
    if version is not None:
        return TopicNotFoundError(
            f"{topic} has no version {version} of a schema: it never had, or the schema was deleted",
            hint=f"see: pulsarish schema list {name}",
        )
    return TopicNotFoundError(
        f"{topic} has no schema: nobody has brought one, or it was deleted",
        hint=f"add one with: pulsarish schema put {name} FILE",
    )
