# SPDX-License-Identifier: Apache-2.0
"""Paths of topics that are not stored, beside those that ``topics`` has for topics of any kind.

Subscriptions exist while they have consumers, so they are listed and ended here but not made. What needs stored
messages is refused under Pulsar's status codes. Source: Pulsar docs, "Non-persistent topics"; semantics 1.1.8.
"""

from __future__ import annotations

from typing import Any, Final

from broker_core.base.errors import NotAllowedError, SubscriptionNotFoundError
from broker_core.base.names import PARTITION_MARK
from broker_core.broker.non_persistent.topic import NonPersistentTopic
from broker_core.broker.stats import non_persistent_topic_stats, unused_non_persistent_stats
from broker_core.server.admin import messages, subscriptions, topics
from broker_core.server.admin.answers import BadRequestError, LongJsonAnswer, RefusedError
from broker_core.server.admin.requests import AdminRequest, Route
from broker_core.server.admin.statistics import merged_stats


def _used(request: AdminRequest) -> list[NonPersistentTopic]:
    """The topic in the path, or its partitions that have clients."""
    broker = request.broker
    found = map(broker.non_persistent.get, broker.registry.names_of(request.existing_topic()))
    return [topic for topic in found if topic is not None]


async def list_subscriptions(request: AdminRequest) -> object:
    """The names of the subscriptions that have consumers now."""
    return sorted({name for topic in _used(request) for name in topic.subscriptions})


async def create_subscription(request: AdminRequest) -> None:
    """Refused: a subscription without consumers would miss everything."""
    raise BadRequestError(f"{request.topic_name} is not persistent: a subscription comes with its first consumer")


async def delete_subscription(request: AdminRequest) -> None:
    """End a subscription: its consumers are disconnected, and it is there again when they come back."""
    name = request.subscription_name
    found = [topic.subscriptions[name] for topic in _used(request) if name in topic.subscriptions]
    if not found:
        raise SubscriptionNotFoundError(f"subscription {name!r} of {request.topic_name} does not exist")
    for subscription in found:
        subscription.disconnect_all()


async def get_internal_stats(request: AdminRequest) -> object:
    """Internal statistics under the names of stored topics: entries are counted, and no ledger holds them."""
    found = request.broker.non_persistent.get(request.existing_topic())
    if found is None:
        raise RefusedError(404, f"{request.topic_name} is partitioned; ask for one of its partitions")
    return _internal_stats(found)


async def get_partitioned_internal_stats(request: AdminRequest) -> object:
    """The internal statistics of every partition that has clients."""
    count = request.partitions_count()
    parts = {str(topic.name): _internal_stats(topic) for topic in _used(request)}
    return {"metadata": {"partitions": count, "deleted": False}, "partitions": parts}


def _internal_stats(topic: NonPersistentTopic) -> dict[str, Any]:
    nothing = ("numberOfEntries", "totalSize", "currentLedgerEntries", "currentLedgerSize", "pendingAddEntriesCount")
    cursors = {name: {"active": bool(each.consumers)} for name, each in topic.subscriptions.items()}
    return {"entriesAddedCounter": topic.entries_added, **dict.fromkeys(nothing, 0), "cursors": cursors}


async def get_partitioned_stats(request: AdminRequest) -> object:
    """Statistics of all partitions added up; `?perPartition=false` leaves out those of each."""
    name = request.existing_topic()
    unused = unused_non_persistent_stats(request.node.clock)
    parts = {f"{name}{PARTITION_MARK}{index}": unused for index in range(request.partitions_count())}
    parts |= {str(topic.name): non_persistent_topic_stats(topic) for topic in _used(request)}
    keep_parts = request.query_params.get("perPartition", "true").lower() != "false"
    merged = merged_stats(parts, owner=request.broker_id, keep_parts=keep_parts)
    return LongJsonAnswer(*await request.in_turns(merged), under="partitions")


async def truncate(request: AdminRequest) -> None:
    """Refused: nothing is stored."""
    raise RefusedError(412, f"{request.topic_name} is not persistent: there is nothing to truncate")


async def refuse(request: AdminRequest) -> None:
    """Refused: nothing is stored."""
    raise NotAllowedError(
        f"{request.existing_topic()} is not persistent: this needs messages that are stored; use persistent://"
    )


_T = "/admin/v2/non-persistent/{tenant}/{namespace}/{topic}"
_S = f"{_T}/subscription/{{subscription}}"

_NEED_MESSAGES: Final = (
    *(
        ("GET", f"{_T}/{what}", messages.READING)
        for what in ("lastMessageId", "examinemessage", "messageid/{timestamp}")
    ),
    ("POST", f"{_T}/terminate/partitions", topics.TERMINATION),
    ("POST", f"{_T}/trim", topics.TRIMMING),
    ("POST", f"{_T}/all_subscription/expireMessages/{{seconds}}", subscriptions.EXPIRY_OF_ALL),
    ("GET", f"{_S}/position/{{place}}", subscriptions.consuming("PEEK_MESSAGES")),
    ("POST", f"{_S}/expireMessages/{{seconds}}", subscriptions.EXPIRY),
)

ROUTES = [
    Route(f"{_T}/subscriptions", list_subscriptions, subscriptions.LISTING),
    Route(_S, create_subscription, subscriptions.CREATION, methods=["PUT"]),
    Route(_S, delete_subscription, subscriptions.DELETION, methods=["DELETE"]),
    Route(f"{_T}/internalStats", get_internal_stats, topics.STATISTICS),
    Route(f"{_T}/partitioned-stats", get_partitioned_stats, topics.STATISTICS),
    Route(f"{_T}/partitioned-internalStats", get_partitioned_internal_stats, topics.STATISTICS),
    Route(f"{_T}/truncate", truncate, topics.TRUNCATION, methods=["DELETE"]),
    Route(f"{_T}/properties", refuse, topics.PROPERTIES, statuses={NotAllowedError: 406}),
    Route(f"{_T}/terminate", refuse, topics.TERMINATION, methods=["POST"], statuses={NotAllowedError: 406}),
    *(Route(path, refuse, need, methods=[method]) for method, path, need in _NEED_MESSAGES),
]
