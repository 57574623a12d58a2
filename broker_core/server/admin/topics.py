# SPDX-License-Identifier: Apache-2.0
"""Topics: list, create, grow, delete, unload, statistics. Source: Pulsar docs, "Admin API - topics"."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from broker_core.base.errors import NotAllowedError, ServerError, TopicNotFoundError
from broker_core.base.names import PARTITION_MARK, check_properties
from broker_core.base.positions import Position
from broker_core.broker.directory.namespaces import NamespaceFullError
from broker_core.broker.directory.topic_registry import TopicsMode
from broker_core.broker.non_persistent.stats import non_persistent_topic_stats
from broker_core.broker.stats import TopicStats, topic_stats_in_steps, unused_topic_stats, with_earliest_times
from broker_core.broker.topic import Topic
from broker_core.broker.upkeep.retention import trim
from broker_core.server.admin.absent_features import OF_TOPICS
from broker_core.server.admin.answers import (
    BadRequestError,
    ConflictError,
    LongJsonAnswer,
    Outcome,
    RefusedError,
    all_done,
    done,
    json_answer,
    json_field,
    results_of,
)
from broker_core.server.admin.internal_stats import internal_stats_object
from broker_core.server.admin.partitioned_stats import merged_stats
from broker_core.server.admin.requests import (
    all_topics,
    body,
    broker_id,
    broker_of,
    existing_topic,
    flag,
    in_turns,
    message_id,
    namespace_name,
    node_of,
    partitions_count,
    plain_topic,
    registry_of,
    single_topic,
    topic_name,
    used_in_turns,
    used_topics,
)
from broker_core.server.admin.routes import Route
from broker_core.server.admin.subscriptions import passing_over


async def list_topics(request: Request) -> Response:
    """The topics of a namespace, of partitioned ones every partition."""
    mode = TopicsMode.NON_PERSISTENT if _non_persistent(request) else TopicsMode.PERSISTENT
    return json_answer(await in_turns(request, registry_of(request).topics_in_steps(namespace_name(request), mode)))


async def list_partitioned_topics(request: Request) -> Response:
    """The partitioned topics of a namespace."""
    domain = "non-persistent://" if _non_persistent(request) else "persistent://"
    names = registry_of(request).partitioned_topics_of(namespace_name(request))
    return json_answer([name for name in names if name.startswith(domain)])


def _non_persistent(request: Request) -> bool:
    return str(request.scope["path"]).startswith(_NON_PERSISTENT)


async def create_topic(request: Request) -> Response:
    """Create a topic without partitions; the body may be an object of properties."""
    broker, name = broker_of(request), topic_name(request)
    properties = await body(request, dict[str, str] | None, None)  # type: ignore[arg-type] # a union is a type to msgspec
    if broker.registry.exists(name):
        raise ConflictError(f"{name} exists already")
    check_properties(properties or {})
    broker.create_topic(name)
    if properties:
        broker.registry.set_properties(name, properties)
    return done()


async def delete_topic(request: Request) -> Response:
    """Delete a topic that has no clients; `?force=true` also one that has."""
    broker, name = broker_of(request), existing_topic(request)
    if broker.partitions_of(name):
        raise ConflictError(f"{name} is a partitioned topic; delete {name.local}/partitions")
    broker.deletion.delete_topic(name, force=flag(request, "force"))
    return done()


async def get_partitions(request: Request) -> Response:
    """How many partitions a topic has; 0 if it is not partitioned."""
    broker, name = broker_of(request), topic_name(request)
    partitions = broker.partitions_of(name, create=flag(request, "checkAllowAutoCreation"))
    properties = broker.registry.properties(name) if partitions else {}
    return json_answer(
        {"partitions": partitions, **({"properties": properties} if properties else {}), "deleted": False}
    )


async def create_partitions(request: Request) -> Response:
    """Create a partitioned topic; the body is the number, or an object with partitions and properties."""
    broker, name = broker_of(request), topic_name(request)
    asked = await _partitions_body(request)
    if broker.registry.exists(name):
        raise ConflictError(f"{name} exists already")
    try:
        check_properties(asked.properties)
        broker.create_partitioned(name, asked.partitions)
    except NotAllowedError as error:
        raise RefusedError(412 if isinstance(error, NamespaceFullError) else 406, str(error)) from error
    if asked.properties:
        broker.registry.set_properties(name, asked.properties)
    return done()


async def grow_partitions(request: Request) -> Response:
    """Add partitions. Clients find them at their next look."""
    broker, name = broker_of(request), topic_name(request)
    broker.namespaces.require(name.namespace_name)
    wanted = (await _partitions_body(request)).partitions
    if not broker.registry.partitions(name):
        raise ConflictError(f"{name} is not a partitioned topic")
    await in_turns(request, broker.growth.grow(name, wanted))
    return done()


async def delete_partitions(request: Request) -> Response:
    """Delete a partitioned topic with all its partitions."""
    broker, name = broker_of(request), topic_name(request)
    broker.deletion.begin(name)
    try:
        if not flag(request, "force"):
            await in_turns(request, broker.deletion.check_deletable(name))
        if name.persistent:
            async for partition in used_in_turns(request, broker.registry.names_of(name)):
                broker.deletion.delete_topic(partition.name, force=True)
        broker.deletion.finish(name)
    finally:
        broker.deletion.give_up(name)
    return done()


class _Partitions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number of partitions as admin libraries send it; ``deleted`` they send only because they also read it."""

    partitions: int = 0
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    deleted: bool = False


async def _partitions_body(request: Request) -> _Partitions:
    """A bare number, or the admin library's object around it."""
    content: Any = await body(request, int | _Partitions | None, None)  # type: ignore[arg-type] # a type to msgspec
    if content is None:
        raise BadRequestError("the request does not say how many partitions")
    return content if isinstance(content, _Partitions) else _Partitions(content)


async def get_stats(request: Request) -> Response:
    """Statistics of a topic or partition. `?excludePublishers=true` and `?excludeConsumers=true` leave these out,
    `?getEarliestTimeInBacklog=true` says when the first message of each backlog was published."""
    name = existing_topic(request)
    if name.persistent:
        stats = msgspec.to_builtins(await in_turns(request, _stats_asked_for(request, single_topic(request))))
        return json_answer({**OF_TOPICS, "ownerBroker": broker_id(request), **stats})
    found = broker_of(request).non_persistent.get(name)
    if found is None:
        raise TopicNotFoundError(f"{name} is partitioned, or nobody uses it", hint="ask for one of its partitions")
    stats = msgspec.to_builtins(non_persistent_topic_stats(found))
    return json_answer({**OF_TOPICS, "ownerBroker": broker_id(request), **stats})


def _stats_asked_for(request: Request, topic: Topic) -> Generator[None, None, TopicStats]:
    stats = yield from topic_stats_in_steps(topic)
    if flag(request, "getEarliestTimeInBacklog"):
        stats = with_earliest_times(topic, stats)
    if flag(request, "excludePublishers"):
        stats = msgspec.structs.replace(stats, publishers=[])
    if flag(request, "excludeConsumers"):
        parts = {name: msgspec.structs.replace(each, consumers=[]) for name, each in stats.subscriptions.items()}
        stats = msgspec.structs.replace(stats, subscriptions=parts)
    return stats


async def get_internal_stats(request: Request) -> Response:
    """Ledgers and cursors of a topic or partition."""
    return json_answer(internal_stats_object(single_topic(request)))


async def get_partitioned_internal_stats(request: Request) -> Response:
    """Ledgers and cursors of every partition that was ever used."""
    count = partitions_count(request)
    parts = [json_field(str(topic.name), internal_stats_object(topic)) async for topic in used_topics(request)]
    return LongJsonAnswer({"metadata": {"partitions": count, "deleted": False}}, parts, under="partitions")


async def get_partitioned_stats(request: Request) -> Response:
    """Statistics of all partitions added up; `?perPartition=false` leaves out those of each. The
    parameters are those of stats."""
    broker, name = broker_of(request), existing_topic(request)
    policies = broker.policies
    unused = unused_topic_stats(node_of(request).clock, policies.settings_of(name), policies.quotas_of(name))
    parts = {f"{name}{PARTITION_MARK}{index}": unused for index in range(partitions_count(request))}
    async for topic in used_in_turns(request, broker.registry.names_of(name)):
        parts[str(topic.name)] = await in_turns(request, _stats_asked_for(request, topic))
    keep_parts = request.query_params.get("perPartition", "true").lower() != "false"
    merged = merged_stats(parts, owner=broker_id(request), keep_parts=keep_parts)
    return LongJsonAnswer(*await in_turns(request, merged), under="partitions")


async def terminate(request: Request) -> Response:
    """End the topic for good; the id of its last message."""
    topic = plain_topic(request, "termination")
    return json_answer(message_id(topic, await _terminating(topic)))


async def terminate_partitions(request: Request) -> Response:
    """End all partitions; the id of each one's last message, by its number."""
    # Unused partitions are made for it, or the first client of one would not find it ended. Pulsar has made them
    # with the topic, unless that was made by its first use: then it answers 500.
    if not broker_of(request).partitions_of(existing_topic(request)):
        raise RefusedError(405, f"{topic_name(request)} is not partitioned; ask for terminate")
    ending = [(topic, _terminating(topic)) async for topic in all_topics(request)]
    ends = await results_of([end for _, end in ending])

    def told() -> Generator[None, None, dict[int, dict[str, int]]]:
        ids = {}
        for (topic, _), end in zip(ending, ends, strict=True):
            ids[topic.name.partition_index] = message_id(topic, end)
            yield
        return ids

    return json_answer(await in_turns(request, told()))


def _terminating(topic: Topic) -> asyncio.Future[Position]:
    """Begin to terminate a topic; the position of its last message, once that is durable."""
    answer: asyncio.Future[Position] = asyncio.get_running_loop().create_future()

    def on_done(outcome: Position | ServerError) -> None:
        if answer.done():
            return
        if isinstance(outcome, ServerError):
            answer.set_exception(outcome)
            answer.exception()  # looked at: the request may have failed before it waits
        else:
            answer.set_result(outcome)

    topic.terminate(on_done)
    return answer


async def truncate(request: Request) -> Response:
    """Pass over everything for all subscriptions and delete it, whatever the retention; the open ledger stays."""
    outcomes = [
        passing_over(subscription, topic.messages.last)
        async for topic in used_topics(request)
        for subscription in list(topic.subscriptions.values())
    ]
    await all_done(outcomes)
    await all_done([_trimming(topic, retained=False) async for topic in used_topics(request)])
    return done()


async def trim_topic(request: Request) -> Response:
    """Delete what every subscription has acknowledged and the retention lets go, without waiting for the next check."""
    await all_done([_trimming(topic, retained=True) async for topic in used_topics(request)])
    return Response(status_code=200)


def _trimming(topic: Topic, *, retained: bool) -> Outcome:
    """Begin to delete what may go."""
    outcome = Outcome()
    trim(topic, retained=retained, on_done=outcome.on_done)
    return outcome


async def create_missed_partitions(request: Request) -> Response:
    """Make the partitions that were not used yet."""
    partitions_count(request)
    async for _ in all_topics(request):
        pass  # all_topics has made it
    return done()


async def get_properties(request: Request) -> Response:
    """The properties of a topic."""
    return json_answer(registry_of(request).properties(existing_topic(request)))


async def set_properties(request: Request) -> Response:
    """Add these properties to those that the topic has."""
    broker, name = broker_of(request), existing_topic(request)
    nothing: dict[str, str] = {}
    properties = await body(request, dict[str, str], nothing)
    broker.registry.set_properties(name, {**broker.registry.properties(name), **properties})
    return done()


async def remove_property(request: Request) -> Response:
    """Remove the property `?key=`."""
    broker, name = broker_of(request), existing_topic(request)
    key = request.query_params.get("key", "")
    broker.registry.set_properties(name, {k: v for k, v in broker.registry.properties(name).items() if k != key})
    return done()


async def unload(request: Request) -> Response:
    """Disconnect all clients, which come back, and free the memory."""
    broker = broker_of(request)
    names = broker.registry.names_of(existing_topic(request))

    def unloading() -> Generator[None, None, None]:
        for name in names:
            broker.unload(name)
            yield

    await in_turns(request, unloading())
    return done()


_NON_PERSISTENT = "/admin/v2/non-persistent"
_T = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"


def _of_any_domain(base: str) -> list[Route]:
    """The paths of all topics, stored or not."""
    namespace = f"{base}/{{tenant}}/{{namespace}}"
    topic = f"{namespace}/{{topic}}"
    return [
        Route(namespace, list_topics),
        Route(f"{namespace}/partitioned", list_partitioned_topics),
        Route(topic, create_topic, methods=["PUT"], statuses={NotAllowedError: 412}),
        Route(topic, delete_topic, methods=["DELETE"], statuses={NotAllowedError: 412}),
        Route(f"{topic}/partitions", get_partitions),
        Route(f"{topic}/partitions", create_partitions, methods=["PUT"]),
        Route(f"{topic}/partitions", grow_partitions, methods=["POST"], statuses={NotAllowedError: 422}),
        Route(f"{topic}/partitions", delete_partitions, methods=["DELETE"], statuses={NotAllowedError: 412}),
        Route(f"{topic}/stats", get_stats),
        Route(f"{topic}/unload", unload, methods=["PUT"]),
    ]


ROUTES = [
    *_of_any_domain("/admin/v2/persistent"),
    *_of_any_domain(_NON_PERSISTENT),
    Route(f"{_T}/internalStats", get_internal_stats),
    Route(f"{_T}/partitioned-stats", get_partitioned_stats),
    Route(f"{_T}/partitioned-internalStats", get_partitioned_internal_stats),
    Route(f"{_T}/terminate", terminate, methods=["POST"]),
    Route(f"{_T}/terminate/partitions", terminate_partitions, methods=["POST"]),
    Route(f"{_T}/truncate", truncate, methods=["DELETE"]),
    Route(f"{_T}/trim", trim_topic, methods=["POST"]),
    Route(f"{_T}/createMissedPartitions", create_missed_partitions, methods=["POST"]),
    Route(f"{_T}/properties", get_properties),
    Route(f"{_T}/properties", set_properties, methods=["PUT"], statuses={NotAllowedError: 412}),
    Route(f"{_T}/properties", remove_property, methods=["DELETE"]),
]
