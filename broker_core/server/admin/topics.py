# SPDX-License-Identifier: Apache-2.0
"""Topics: list, create, grow, delete, unload, statistics. Source: Pulsar docs, "Admin API - topics"."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import msgspec
from starlette.responses import Response

from broker_core.base.errors import NotAllowedError, TopicNotFoundError
from broker_core.base.names import PARTITION_MARK, check_properties
from broker_core.broker.directory.topic_registry import NamespaceFullError, TopicsMode
from broker_core.broker.stats import (
    TopicStats,
    TopicTraffic,
    non_persistent_topic_stats,
    topic_stats_in_steps,
    unused_topic_stats,
    with_earliest_times,
)
from broker_core.broker.topic import Topic
from broker_core.broker.upkeep import trim
from broker_core.server.admin.answers import (
    BadRequestError,
    ConflictError,
    LongJsonAnswer,
    RefusedError,
    begun,
    json_field,
    results_of,
)
from broker_core.server.admin.requests import AdminRequest, Route, message_id
from broker_core.server.admin.statistics import OF_TOPICS, internal_info_object, internal_stats_object, merged_stats
from broker_core.server.admin.subscriptions import passing_over
from broker_core.server.security import needs
from broker_core.server.security.rights import About, Right


async def list_topics(request: AdminRequest) -> object:
    """The topics of a namespace, of partitioned ones every partition."""
    mode = TopicsMode.PERSISTENT if request.is_persistent else TopicsMode.NON_PERSISTENT
    return await request.in_turns(request.broker.registry.topics_in_steps(request.namespace_name, mode))


async def list_partitioned_topics(request: AdminRequest) -> object:
    """The partitioned topics of a namespace."""
    names = request.broker.registry.partitioned_topics_of(request.namespace_name)
    return [name for name in names if name.startswith("persistent://") == request.is_persistent]


async def create_topic(request: AdminRequest) -> None:
    """Create a topic without partitions; the body may be an object of properties."""
    broker, name = request.broker, request.topic_name
    properties = await request.body_as(dict[str, str] | None)
    if broker.registry.exists(name):
        raise ConflictError(f"{name} exists already")
    check_properties(properties or {})
    broker.create_topic(name)
    if properties:
        broker.registry.set_properties(name, properties)


async def delete_topic(request: AdminRequest) -> None:
    """Delete a topic that has no clients; `?force=true` also one that has."""
    broker, name = request.broker, request.existing_topic()
    if broker.partitions_of(name):
        raise ConflictError(f"{name} is a partitioned topic; delete {name.local}/partitions")
    broker.deletion.delete_topic(name, force=request.flag("force"))


async def get_partitions(request: AdminRequest) -> object:
    """How many partitions a topic has; 0 if it is not partitioned."""
    broker, name = request.broker, request.topic_name
    partitions = broker.partitions_of(name, create=request.flag("checkAllowAutoCreation"))
    properties = broker.registry.properties(name) if partitions else {}
    return {"partitions": partitions, **({"properties": properties} if properties else {}), "deleted": False}


async def create_partitions(request: AdminRequest) -> None:
    """Create a partitioned topic; the body is the number, or an object with partitions and properties."""
    broker, name = request.broker, request.topic_name
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


async def grow_partitions(request: AdminRequest) -> None:
    """Add partitions. Clients find them at their next look."""
    broker, name = request.broker, request.topic_name
    broker.namespaces.require(name.namespace_name)
    wanted = (await _partitions_body(request)).partitions
    if not broker.registry.partitions(name):
        raise ConflictError(f"{name} is not a partitioned topic")
    await request.in_turns(broker.growth.grow(name, wanted))


async def delete_partitions(request: AdminRequest) -> None:
    """Delete a partitioned topic with all its partitions."""
    broker, name = request.broker, request.topic_name
    broker.deletion.begin(name)
    try:
        if not request.flag("force"):
            await request.in_turns(broker.deletion.check_deletable(name))
        if name.persistent:
            async for partition in request.used_in_turns(broker.registry.names_of(name)):
                broker.deletion.delete_topic(partition.name, force=True)
        broker.deletion.finish(name)
    finally:
        broker.deletion.give_up(name)


class _Partitions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number of partitions as admin libraries send it; ``deleted`` they send only because they also read it."""

    partitions: int = 0
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    deleted: bool = False


async def _partitions_body(request: AdminRequest) -> _Partitions:
    """A bare number, or the admin library's object around it."""
    content: Any = await request.body_as(int | _Partitions | None)
    if content is None:
        raise BadRequestError("the request does not say how many partitions")
    return content if isinstance(content, _Partitions) else _Partitions(content)


async def get_stats(request: AdminRequest) -> object:
    """Statistics of a topic or partition. `?excludePublishers=true` and `?excludeConsumers=true` leave these out,
    `?getEarliestTimeInBacklog=true` says when the first message of each backlog was published."""
    name = request.existing_topic()
    if name.persistent:
        stats: TopicTraffic = await request.in_turns(_stats_asked_for(request, request.single_topic()))
    elif (found := request.broker.non_persistent.get(name)) is not None:
        stats = non_persistent_topic_stats(found)
    else:
        raise TopicNotFoundError(f"{name} is partitioned, or nobody uses it", hint="ask for one of its partitions")
    return {**OF_TOPICS, "ownerBroker": request.broker_id, **msgspec.to_builtins(stats)}


def _stats_asked_for(request: AdminRequest, topic: Topic) -> Generator[None, None, TopicStats]:
    stats = yield from topic_stats_in_steps(topic)
    if request.flag("getEarliestTimeInBacklog"):
        stats = with_earliest_times(topic, stats)
    if request.flag("excludePublishers"):
        stats = msgspec.structs.replace(stats, publishers=[])
    if request.flag("excludeConsumers"):
        parts = {name: msgspec.structs.replace(each, consumers=[]) for name, each in stats.subscriptions.items()}
        stats = msgspec.structs.replace(stats, subscriptions=parts)
    return stats


async def get_internal_stats(request: AdminRequest) -> object:
    """Ledgers and cursors of a topic or partition."""
    return internal_stats_object(request.single_topic())


async def get_internal_info(request: AdminRequest) -> object:
    """The ledgers and cursors that are kept; of a partitioned topic those of each partition that was ever used."""
    if not request.broker.registry.partitions(request.existing_topic()):
        return internal_info_object(request.single_topic())
    parts = [json_field(str(topic.name), internal_info_object(topic)) async for topic in request.used_topics()]
    return LongJsonAnswer({"version": 0}, parts, under="partitions")


async def get_partitioned_internal_stats(request: AdminRequest) -> object:
    """Ledgers and cursors of every partition that was ever used."""
    count = request.partitions_count()
    parts = [json_field(str(topic.name), internal_stats_object(topic)) async for topic in request.used_topics()]
    return LongJsonAnswer({"metadata": {"partitions": count, "deleted": False}}, parts, under="partitions")


async def get_partitioned_stats(request: AdminRequest) -> object:
    """Statistics of all partitions added up; `?perPartition=false` leaves out those of each. The
    parameters are those of stats."""
    broker, name = request.broker, request.existing_topic()
    policies = broker.policies
    unused = unused_topic_stats(request.node.clock, policies.settings_of(name), policies.quotas_of(name))
    parts = {f"{name}{PARTITION_MARK}{index}": unused for index in range(request.partitions_count())}
    async for topic in request.used_in_turns(broker.registry.names_of(name)):
        parts[str(topic.name)] = await request.in_turns(_stats_asked_for(request, topic))
    keep_parts = request.query_params.get("perPartition", "true").lower() != "false"
    merged = merged_stats(parts, owner=request.broker_id, keep_parts=keep_parts)
    return LongJsonAnswer(*await request.in_turns(merged), under="partitions")


async def terminate(request: AdminRequest) -> object:
    """End the topic for good; the id of its last message."""
    topic = request.plain_topic("termination")
    return message_id(topic, await begun(topic.terminate))


async def terminate_partitions(request: AdminRequest) -> object:
    """End all partitions; the id of each one's last message, by its number."""
    # Unused partitions are made for it, or the first client of one would not find it ended. Pulsar has made them
    # with the topic, unless that was made by its first use: then it answers 500.
    if not request.broker.partitions_of(request.existing_topic()):
        raise RefusedError(405, f"{request.topic_name} is not partitioned; ask for terminate")
    ending = [(topic, begun(topic.terminate)) async for topic in request.all_topics()]
    ends = await results_of([end for _, end in ending])

    def told() -> Generator[None, None, dict[int, dict[str, int]]]:
        ids = {}
        for (topic, _), end in zip(ending, ends, strict=True):
            ids[topic.name.partition_index] = message_id(topic, end)
            yield
        return ids

    return await request.in_turns(told())


async def truncate(request: AdminRequest) -> None:
    """Pass over everything for all subscriptions and delete it, whatever the retention; the open ledger stays."""
    outcomes = [
        passing_over(subscription, topic.messages.last)
        async for topic in request.used_topics()
        for subscription in list(topic.subscriptions.values())
    ]
    async for topic in request.used_topics():
        topic.compaction.truncate()
    await results_of(outcomes)
    await results_of([_trimming(topic, retained=False) async for topic in request.used_topics()])


async def trim_topic(request: AdminRequest) -> object:
    """Delete what every subscription has acknowledged and the retention lets go, without waiting for the next check."""
    await results_of([_trimming(topic, retained=True) async for topic in request.used_topics()])
    return Response(status_code=200)


def _trimming(topic: Topic, *, retained: bool) -> asyncio.Future[None]:
    """Begin to delete what may go."""
    return begun(lambda on_done: trim(topic, retained=retained, on_done=on_done))


async def create_missed_partitions(request: AdminRequest) -> None:
    """Make the partitions that were not used yet."""
    request.partitions_count()
    async for _ in request.all_topics():
        pass  # all_topics has made it


async def get_properties(request: AdminRequest) -> object:
    """The properties of a topic."""
    return request.broker.registry.properties(request.existing_topic())


async def set_properties(request: AdminRequest) -> None:
    """Add these properties to those that the topic has."""
    broker, name = request.broker, request.existing_topic()
    properties = await request.body_as(dict[str, str], {})
    broker.registry.set_properties(name, {**broker.registry.properties(name), **properties})


async def remove_property(request: AdminRequest) -> None:
    """Remove the property `?key=`."""
    broker, name = request.broker, request.existing_topic()
    key = request.query_params.get("key", "")
    broker.registry.set_properties(name, {k: v for k, v in broker.registry.properties(name).items() if k != key})


async def unload(request: AdminRequest) -> None:
    """Disconnect all clients, which come back, and free the memory."""
    broker = request.broker
    names = broker.registry.names_of(request.existing_topic())

    def unloading() -> Generator[None, None, None]:
        for name in names:
            broker.unload(name)
            yield

    await request.in_turns(unloading())


_T = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"

LISTING = needs.of_namespace("GET_TOPICS", Right.USE_NAMESPACE)
STATISTICS = needs.of_topic("GET_STATS", Right.LOOKUP)
PROPERTIES = needs.of_topic("GET_METADATA", Right.LOOKUP)
TERMINATION = needs.of_topic("TERMINATE")
TRUNCATION = needs.administer(About.TOPIC)
TRIMMING = needs.of_topic("TRIM_TOPIC")
_CREATION = needs.of_namespace("CREATE_TOPIC", about=About.TOPIC)
_DELETION = needs.of_namespace("DELETE_TOPIC", about=About.TOPIC)
_GROWTH = needs.of_policy("partitions", "POST", of_topic=True)


def _of_any_domain(base: str) -> list[Route]:
    """The paths of all topics, stored or not."""
    namespace = f"{base}/{{tenant}}/{{namespace}}"
    topic = f"{namespace}/{{topic}}"
    return [
        Route(namespace, list_topics, LISTING),
        Route(f"{namespace}/partitioned", list_partitioned_topics, LISTING),
        Route(topic, create_topic, _CREATION, methods=["PUT"], statuses={NotAllowedError: 412}),
        Route(topic, delete_topic, _DELETION, methods=["DELETE"], statuses={NotAllowedError: 412}),
        Route(f"{topic}/partitions", get_partitions, needs.of_topic("LOOKUP", Right.LOOKUP)),
        Route(f"{topic}/partitions", create_partitions, _CREATION, methods=["PUT"]),
        Route(f"{topic}/partitions", grow_partitions, _GROWTH, methods=["POST"], statuses={NotAllowedError: 422}),
        Route(f"{topic}/partitions", delete_partitions, _DELETION, methods=["DELETE"], statuses={NotAllowedError: 412}),
        Route(f"{topic}/stats", get_stats, STATISTICS),
        Route(f"{topic}/unload", unload, needs.of_topic("UNLOAD"), methods=["PUT"]),
    ]


ROUTES = [
    *_of_any_domain("/admin/v2/persistent"),
    *_of_any_domain("/admin/v2/non-persistent"),
    Route(f"{_T}/internalStats", get_internal_stats, STATISTICS),
    Route(f"{_T}/internal-info", get_internal_info, STATISTICS),
    Route(f"{_T}/partitioned-stats", get_partitioned_stats, STATISTICS),
    Route(f"{_T}/partitioned-internalStats", get_partitioned_internal_stats, STATISTICS),
    Route(f"{_T}/terminate", terminate, TERMINATION, methods=["POST"]),
    Route(f"{_T}/terminate/partitions", terminate_partitions, TERMINATION, methods=["POST"]),
    Route(f"{_T}/truncate", truncate, TRUNCATION, methods=["DELETE"]),
    Route(f"{_T}/trim", trim_topic, TRIMMING, methods=["POST"]),
    Route(f"{_T}/createMissedPartitions", create_missed_partitions, _CREATION, methods=["POST"]),
    Route(f"{_T}/properties", get_properties, PROPERTIES),
    Route(
        f"{_T}/properties",
        set_properties,
        needs.of_topic("UPDATE_METADATA"),
        methods=["PUT"],
        statuses={NotAllowedError: 412},
    ),
    Route(f"{_T}/properties", remove_property, needs.of_topic("DELETE_METADATA"), methods=["DELETE"]),
]
