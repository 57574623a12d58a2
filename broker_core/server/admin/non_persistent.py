# SPDX-License-Identifier: Apache-2.0
"""Paths of topics that are not stored, beside those that ``topics`` has for topics of any kind.

Subscriptions exist while they have consumers, so they are listed and ended here but not made. What needs stored
messages is refused under Pulsar's status codes. Source: Pulsar docs, "Non-persistent topics"; semantics 1.1.8.
"""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from broker_core.base.errors import NotAllowedError, SubscriptionNotFoundError
from broker_core.base.names import PARTITION_MARK
from broker_core.broker.non_persistent import NonPersistentTopic
from broker_core.broker.non_persistent.stats import non_persistent_topic_stats, unused_non_persistent_stats
from broker_core.server.admin.answers import BadRequestError, LongJsonAnswer, RefusedError, done, json_answer
from broker_core.server.admin.partitioned_stats import merged_stats
from broker_core.server.admin.requests import (
    broker_id,
    broker_of,
    existing_topic,
    in_turns,
    node_of,
    partitions_count,
    subscription_name,
    topic_name,
)
from broker_core.server.admin.routes import Route


def _used(request: Request) -> list[NonPersistentTopic]:
    """The topic in the path, or its partitions that have clients."""
    broker = broker_of(request)
    found = map(broker.non_persistent.get, broker.registry.names_of(existing_topic(request)))
    return [topic for topic in found if topic is not None]


async def list_subscriptions(request: Request) -> Response:
    """The names of the subscriptions that have consumers now."""
    return json_answer(sorted({name for topic in _used(request) for name in topic.subscriptions}))


async def create_subscription(request: Request) -> Response:
    """Refused: a subscription without consumers would miss everything."""
    raise BadRequestError(f"{topic_name(request)} is not persistent: a subscription comes with its first consumer")


async def delete_subscription(request: Request) -> Response:
    """End a subscription: its consumers are disconnected, and it is there again when they come back."""
    name = subscription_name(request)
    found = [topic.subscriptions[name] for topic in _used(request) if name in topic.subscriptions]
    if not found:
        raise SubscriptionNotFoundError(f"subscription {name!r} of {topic_name(request)} does not exist")
    for subscription in found:
        subscription.disconnect_all()
    return done()


async def get_internal_stats(request: Request) -> Response:
    """Internal statistics under the names of stored topics: entries are counted, and no ledger holds them."""
    found = broker_of(request).non_persistent.get(existing_topic(request))
    if found is None:
        raise RefusedError(404, f"{topic_name(request)} is partitioned; ask for one of its partitions")
    return json_answer(_internal_stats(found))


async def get_partitioned_internal_stats(request: Request) -> Response:
    """The internal statistics of every partition that has clients."""
    count = partitions_count(request)
    parts = {str(topic.name): _internal_stats(topic) for topic in _used(request)}
    return json_answer({"metadata": {"partitions": count, "deleted": False}, "partitions": parts})


def _internal_stats(topic: NonPersistentTopic) -> dict[str, Any]:
    nothing = ("numberOfEntries", "totalSize", "currentLedgerEntries", "currentLedgerSize", "pendingAddEntriesCount")
    cursors = {name: {"active": bool(each.consumers)} for name, each in topic.subscriptions.items()}
    return {"entriesAddedCounter": topic.entries_added, **dict.fromkeys(nothing, 0), "cursors": cursors}


async def get_partitioned_stats(request: Request) -> Response:
    """Statistics of all partitions added up; `?perPartition=false` leaves out those of each."""
    name = existing_topic(request)
    unused = unused_non_persistent_stats(node_of(request).clock)
    parts = {f"{name}{PARTITION_MARK}{index}": unused for index in range(partitions_count(request))}
    parts |= {str(topic.name): non_persistent_topic_stats(topic) for topic in _used(request)}
    keep_parts = request.query_params.get("perPartition", "true").lower() != "false"
    merged = merged_stats(parts, owner=broker_id(request), keep_parts=keep_parts)
    return LongJsonAnswer(*await in_turns(request, merged), under="partitions")


async def truncate(request: Request) -> Response:
    """Refused: nothing is stored."""
    raise RefusedError(412, f"{topic_name(request)} is not persistent: there is nothing to truncate")


async def refuse(request: Request) -> Response:
    """Refused: nothing is stored."""
    raise NotAllowedError(
        f"{existing_topic(request)} is not persistent: this needs messages that are stored; use persistent://"
    )


_T = "/admin/v2/non-persistent/{tenant}/{namespace}/{topic}"
_S = f"{_T}/subscription/{{subscription}}"

_NEED_MESSAGES: Final = (
    *(("GET", f"{_T}/{what}") for what in ("lastMessageId", "examinemessage", "messageid/{timestamp}")),
    *(("POST", f"{_T}/{what}") for what in ("terminate/partitions", "trim")),
    ("POST", f"{_T}/all_subscription/expireMessages/{{seconds}}"),
    ("GET", f"{_S}/position/{{place}}"),
    ("POST", f"{_S}/expireMessages/{{seconds}}"),
)

ROUTES = [
    Route(f"{_T}/subscriptions", list_subscriptions),
    Route(_S, create_subscription, methods=["PUT"]),
    Route(_S, delete_subscription, methods=["DELETE"]),
    Route(f"{_T}/internalStats", get_internal_stats),
    Route(f"{_T}/partitioned-stats", get_partitioned_stats),
    Route(f"{_T}/partitioned-internalStats", get_partitioned_internal_stats),
    Route(f"{_T}/truncate", truncate, methods=["DELETE"]),
    Route(f"{_T}/properties", refuse, statuses={NotAllowedError: 406}),
    Route(f"{_T}/terminate", refuse, methods=["POST"], statuses={NotAllowedError: 406}),
    *(Route(path, refuse, methods=[method]) for method, path in _NEED_MESSAGES),
]
