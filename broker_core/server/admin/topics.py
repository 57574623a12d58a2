# SPDX-License-Identifier: Apache-2.0
"""Topics: list, create, grow, delete, unload, statistics. Source: Pulsar docs, "Admin API - topics"."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from broker_core.base.errors import NotAllowedError, TopicNotFoundError
from broker_core.broker.broker import TopicsMode
from broker_core.broker.stats import topic_stats
from broker_core.server.admin.answers import ConflictError, RefusedError, done, json_answer
from broker_core.server.admin.internal_stats import internal_stats
from broker_core.server.admin.partitioned_stats import merged_stats
from broker_core.server.admin.requests import body, broker_of, flag, namespace_name, topic_name, topics_behind


async def list_topics(request: Request) -> Response:
    return json_answer(broker_of(request).topics_of(namespace_name(request), TopicsMode.PERSISTENT))


async def list_partitioned_topics(request: Request) -> Response:
    return json_answer(broker_of(request).partitioned_topics_of(namespace_name(request)))


async def create_topic(request: Request) -> Response:
    broker, name = broker_of(request), topic_name(request)
    await body(request, dict[str, str] | None, None)  # type: ignore[arg-type] # properties; a union is a type to msgspec
    if broker.exists(name):
        raise ConflictError(f"{name} exists already")
    try:
        broker.create_topic(name)
    except NotAllowedError as error:
        raise RefusedError(412, str(error)) from error
    return done()


async def delete_topic(request: Request) -> Response:
    broker, name = broker_of(request), topic_name(request)
    try:
        broker.delete_topic(name, force=flag(request, "force"))
    except NotAllowedError as error:
        raise RefusedError(412, str(error)) from error
    return done()


async def get_partitions(request: Request) -> Response:
    name = topic_name(request)
    partitions = broker_of(request).partitions_of(name, create=flag(request, "checkAllowAutoCreation"))
    return json_answer({"partitions": partitions})


async def create_partitions(request: Request) -> Response:
    broker, name = broker_of(request), topic_name(request)
    partitions = await _partitions_body(request)
    if broker.exists(name):
        raise ConflictError(f"{name} exists already")
    try:
        broker.create_partitioned(name, partitions)
    except NotAllowedError as error:
        raise RefusedError(406, str(error)) from error
    return done()


async def grow_partitions(request: Request) -> Response:
    broker, name = broker_of(request), topic_name(request)
    try:
        broker.grow_partitions(name, await _partitions_body(request))
    except NotAllowedError as error:
        raise RefusedError(406, str(error)) from error
    return done()


async def delete_partitions(request: Request) -> Response:
    broker, name = broker_of(request), topic_name(request)
    try:
        broker.delete_partitioned(name, force=flag(request, "force"))
    except NotAllowedError as error:
        raise RefusedError(412, str(error)) from error
    return done()


async def _partitions_body(request: Request) -> int:
    """A bare number, or the admin library's object around it."""
    content: Any = await body(request, int | dict[str, Any], 0)  # type: ignore[arg-type] # a union is a type to msgspec
    value = content.get("partitions", 0) if isinstance(content, dict) else content
    return value if isinstance(value, int) else 0


async def get_stats(request: Request) -> Response:
    return json_answer(topic_stats(broker_of(request).topic(topic_name(request))))


async def get_internal_stats(request: Request) -> Response:
    return json_answer(internal_stats(broker_of(request).topic(topic_name(request))))


async def get_partitioned_stats(request: Request) -> Response:
    broker, name = broker_of(request), topic_name(request)
    if not broker.partitions_of(name):
        raise TopicNotFoundError(f"{name} is not a partitioned topic")
    parts = {str(topic.name): topic_stats(topic) for topic in topics_behind(broker, name)}
    keep_parts = request.query_params.get("perPartition", "true").lower() != "false"
    return json_answer(merged_stats(parts, keep_parts=keep_parts))


async def unload(request: Request) -> Response:
    broker, name = broker_of(request), topic_name(request)
    for index in range(broker.partitions_of(name)):
        broker.unload(name.partition(index))
    broker.unload(name)
    return done()


_T = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"

ROUTES = [
    Route("/admin/v2/persistent/{tenant}/{namespace}", list_topics),
    Route("/admin/v2/persistent/{tenant}/{namespace}/partitioned", list_partitioned_topics),
    Route(_T, create_topic, methods=["PUT"]),
    Route(_T, delete_topic, methods=["DELETE"]),
    Route(f"{_T}/partitions", get_partitions),
    Route(f"{_T}/partitions", create_partitions, methods=["PUT"]),
    Route(f"{_T}/partitions", grow_partitions, methods=["POST"]),
    Route(f"{_T}/partitions", delete_partitions, methods=["DELETE"]),
    Route(f"{_T}/stats", get_stats),
    Route(f"{_T}/internalStats", get_internal_stats),
    Route(f"{_T}/partitioned-stats", get_partitioned_stats),
    Route(f"{_T}/unload", unload, methods=["PUT"]),
]
