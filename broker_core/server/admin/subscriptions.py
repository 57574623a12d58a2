# SPDX-License-Identifier: Apache-2.0
"""Subscriptions: list, create at a position, delete, skip, clear, expire, reset, properties.

Of a partitioned topic: on every partition, where that means something; what needs one log is refused (405), as in
Pulsar. Changes are durable when they are answered. Source: Pulsar docs, "Admin API - topics - manage subscriptions";
where a reset stands: semantics 1.4.6.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import msgspec

from broker_core.base.errors import NotAllowedError, TopicNotFoundError
from broker_core.base.positions import POSITION_LATEST, Position
from broker_core.broker.compaction.topic_compaction import CURSOR_NAME
from broker_core.broker.cursors.seeking import BacklogPart
from broker_core.broker.requests import InitialPosition
from broker_core.broker.stats import shown_subscriptions
from broker_core.broker.subscription import Subscription
from broker_core.broker.topic import Topic
from broker_core.server.admin.answers import (
    BadRequestError,
    ConflictError,
    RefusedError,
    begun,
    results_of,
)
from broker_core.server.admin.requests import WORDS, AdminRequest, MessageIdBody, Route
from broker_core.server.security import needs
from broker_core.server.security.rights import About, Need, Right


class _NewSubscription(MessageIdBody, frozen=True, rename="camel"):
    """A position, and properties that the subscription gets."""

    properties: dict[str, str] = msgspec.field(default_factory=dict)


async def _subscriptions(request: AdminRequest) -> AsyncIterator[tuple[Topic, Subscription]]:
    """The subscriptions with the name in the path, one for each partition that has it, as ``used_in_turns``.

    SubscriptionNotFoundError behind the last partition if none has it.
    """
    name, found = request.subscription_name, False
    async for topic in request.used_topics():
        if name in topic.subscriptions:
            found = True
            yield topic, topic.subscriptions[name]
    if not found:
        raise request.missing_subscription()


# -- list, create, delete


async def list_subscriptions(request: AdminRequest) -> object:
    """The names of the subscriptions."""
    return sorted({name async for topic in request.used_topics() for name in shown_subscriptions(topic)})


async def create_subscription(request: AdminRequest) -> None:
    """Create a subscription; the body is earliest, latest or a message id, which may bring properties. Partitions that
    have it already keep theirs."""
    name = request.subscription_name
    asked: Any = await request.body_as(_NewSubscription | str | None)
    position = _position(asked)
    properties = asked.properties if isinstance(asked, _NewSubscription) else {}
    start = InitialPosition.LATEST if position == POSITION_LATEST else position
    _make_topic_to_subscribe(request)
    is_new = False
    async for topic in request.all_topics():
        if name in topic.subscriptions:
            continue
        is_new = True
        try:
            topic.create_subscription(name, start, properties)
        except NotAllowedError as error:
            raise RefusedError(412, str(error)) from error
    if not is_new:
        raise ConflictError(f"subscription {name!r} of {request.existing_topic()} exists already")


def _make_topic_to_subscribe(request: AdminRequest) -> None:
    """Make the topic in the path if it is missing, where using a topic may make it."""
    broker, name = request.broker, request.topic_name
    broker.namespaces.require(name.namespace_name)
    try:
        if not broker.partitions_of(name, create=True):
            broker.topic(name, create=True)
    except TopicNotFoundError as error:
        raise RefusedError(412, f"{name} does not exist and is not made by being used") from error


def _position(asked: MessageIdBody | str | None) -> Position:
    if asked is None:
        return POSITION_LATEST
    if isinstance(asked, MessageIdBody):
        return asked.position
    if asked not in WORDS:
        raise BadRequestError(f"{asked[:80]!r} is not a position; write earliest, latest or a message id object")
    return WORDS[asked]


async def delete_subscription(request: AdminRequest) -> None:
    """Delete a subscription that has no consumers; `?force=true` also one that has."""
    name, force = request.subscription_name, request.flag("force")
    if name == CURSOR_NAME:
        await _delete_compaction(request)
        return
    called, way_out = f"subscription {name!r}", "close them or use force=true"
    if not force:
        async for _, subscription in _subscriptions(request):
            _refuse_with_consumers(subscription, called, way_out)
    async for topic, subscription in _subscriptions(request):
        if not force:
            _refuse_with_consumers(subscription, called, way_out)  # one may have come meanwhile
        topic.delete_subscription(name)


async def _delete_compaction(request: AdminRequest) -> None:
    """Delete the cursor of compaction, and with it the view."""
    found = False
    async for topic in request.used_topics():
        if topic.compaction.has_cursor:
            found = True
            topic.compaction.remove()
    if not found:
        raise request.missing_subscription()


def _refuse_with_consumers(subscription: Subscription, called: str, way_out: str) -> None:
    if subscription.consumers:
        raise RefusedError(412, f"{called} has connected consumers; {way_out}")


async def get_properties(request: AdminRequest) -> object:
    """The properties of a subscription."""
    _topic, first = await anext(_subscriptions(request))
    return dict(first.properties)


async def set_properties(request: AdminRequest) -> None:
    """Replace all properties."""
    properties = await request.body_as(dict[str, str], {})
    async for topic, subscription in _subscriptions(request):
        topic.set_subscription_properties(subscription.name, properties)


# -- forward: skip, expire


async def skip(request: AdminRequest) -> None:
    """Pass over the next unacknowledged entries, as many as the path says; more than there are means all."""
    topic, subscription = request.plain_subscription("skipping messages")
    count = request.number("count")
    if count:
        await passing_over(subscription, subscription.backlog.nth(count) or topic.messages.last)


async def skip_all(request: AdminRequest) -> None:
    """Pass over the whole backlog."""
    found = _subscriptions(request)
    await results_of([passing_over(subscription, topic.messages.last) async for topic, subscription in found])


async def expire(request: AdminRequest) -> None:
    """Pass over the messages at the head of the backlog that are older than so many seconds."""
    seconds = request.number("seconds")
    found = _subscriptions(request)
    await results_of([_expiring(topic, subscription, seconds) async for topic, subscription in found])


async def expire_everywhere(request: AdminRequest) -> None:
    """Pass every subscription of the topic over its messages that are older than so many seconds."""
    seconds = request.number("seconds")
    expiring = [
        _expiring(topic, subscription, seconds)
        async for topic in request.used_topics()
        for subscription in list(topic.subscriptions.values())
    ]
    await results_of(expiring)


def _expiring(topic: Topic, subscription: Subscription, seconds: int) -> asyncio.Future[None]:
    """Begin to pass a subscription over the messages that are older than so many seconds."""

    def begin(on_done: Callable[[Any], None]) -> None:
        if not topic.expire(subscription, seconds, at_once=True, on_done=on_done):
            raise ConflictError(f"messages of subscription {subscription.name!r} are being expired already")

    return begun(begin)


async def expire_to_position(request: AdminRequest) -> None:
    """Pass over everything before the message id in the body, and over that itself unless it is excluded."""
    asked = await _message_id_body(request)
    topic, subscription = request.plain_subscription("expiring messages up to a position")
    if asked.position > topic.messages.last:
        raise ConflictError(f"{asked.position} is beyond the last message, {topic.messages.last}")
    await passing_over(subscription, topic.messages.through(asked.position, excluded=asked.excluded))


async def clear_namespace(request: AdminRequest) -> None:
    """Pass over the whole backlog of every subscription, or of the one in the path, of all topics of a namespace."""
    name = request.subscription_of_namespace if "subscription" in request.path_params else None
    changes: list[asyncio.Future[None]] = []
    async for topic in request.used_topics_of_namespace():
        wanted = [each for each in topic.subscriptions.values() if name in (None, each.name)]
        changes += [passing_over(subscription, topic.messages.last) for subscription in wanted]
    await results_of(changes)


async def unsubscribe_namespace(request: AdminRequest) -> None:
    """Delete the subscription from all topics of a namespace that have it; refused while one of them has consumers."""
    name = request.subscription_of_namespace
    async for topic in request.used_topics_of_namespace():
        _refuse_with_consumers_of(topic, name)
    async for topic in request.used_topics_of_namespace():
        _refuse_with_consumers_of(topic, name)  # one may have come meanwhile
        if name in topic.subscriptions:
            topic.delete_subscription(name)


def _refuse_with_consumers_of(topic: Topic, name: str) -> None:
    if name in topic.subscriptions:
        called = f"subscription {name!r} of {topic.name}"
        _refuse_with_consumers(topic.subscriptions[name], called, "close them first")


# -- reset


async def reset_to_time(request: AdminRequest) -> None:
    """Stand right before the first message published at or after the time in the path, milliseconds."""
    time_ms = request.number("timestamp")
    found = _subscriptions(request)
    await results_of([begun(partial(each.seek_to_time, time_ms)) async for _, each in found])


async def reset_to_position(request: AdminRequest) -> None:
    """Stand right before the message id in the body, or right after it if it is excluded; also earliest or latest."""
    asked = await _message_id_body(request)
    topic, subscription = request.plain_subscription("resetting to a position")
    start = topic.messages.first_wanted(asked.position, asked.batch_index, excluded=asked.excluded)
    await begun(partial(subscription.seek, *start))


async def _message_id_body(request: AdminRequest) -> MessageIdBody:
    """The message id in the body, which may also be the word earliest or latest."""
    asked: Any = await request.body_as(MessageIdBody | str | None)
    if asked is None:
        raise BadRequestError("the request has no message id")
    return asked if isinstance(asked, MessageIdBody) else MessageIdBody(*_position(asked))


def passing_over(subscription: Subscription, position: Position) -> asyncio.Future[None]:
    """Begin to pass a subscription over everything up to ``position``."""
    return begun(partial(subscription.pass_over, position))


# -- how large a backlog is, counted from what log and cursor know: no entry is read, nothing is estimated


async def analyze_backlog(request: AdminRequest) -> object:
    """Count the unacknowledged entries and messages; with a message id in the body, from there on."""
    start = await request.body_as(MessageIdBody | None)
    _, subscription = request.plain_subscription("analyzing a backlog")
    if start is None:
        return _analysis(subscription.backlog.part(None))
    return _analysis(subscription.backlog.part(start.position, excluded=start.excluded))


def _analysis(found: BacklogPart) -> dict[str, Any]:
    """Under Pulsar's names. There are no entry filters here, so every entry is accepted."""
    ids = {"firstMessageId": str(found.first), "lastMessageId": str(found.last)} if found.entries else {}
    return {
        "entries": found.entries,
        "messages": found.messages,
        "markerMessages": 0,
        "filterRejectedEntries": 0,
        "filterAcceptedEntries": found.entries,
        "filterRescheduledEntries": 0,
        "filterRejectedMessages": 0,
        "filterAcceptedMessages": found.messages,
        "filterRescheduledMessages": 0,
        "aborted": False,
        **ids,
    }


async def backlog_size(request: AdminRequest) -> object:
    """About how many bytes on disk lie after the message id in the body; ledger -1 means those of the whole topic."""
    start = await request.body_as(MessageIdBody | None)
    topic = request.plain_topic("asking for the size of a backlog")
    if start is None:
        raise BadRequestError("the request has no message id")
    if start.ledger_id == -1:
        return topic.messages.size_bytes
    return topic.messages.bytes_behind(start.position)


def consuming(operation: str, about: About = About.SUBSCRIPTION) -> Need:
    """An operation on subscriptions of a topic."""
    return needs.of_topic(operation, Right.CONSUME, about)


LISTING = needs.of_topic("GET_SUBSCRIPTIONS", Right.CONSUME)
CREATION = consuming("SUBSCRIBE")
DELETION = consuming("UNSUBSCRIBE")
EXPIRY = consuming("EXPIRE_MESSAGES")
EXPIRY_OF_ALL = consuming("EXPIRE_MESSAGES", About.SUBSCRIPTIONS)
CLEARING = needs.of_namespace("CLEAR_BACKLOG", Right.CONSUME_NAMESPACE, About.NAMESPACE_SUBSCRIPTION)
CLEARING_OF_ALL = needs.of_namespace("CLEAR_BACKLOG", Right.CONSUME_NAMESPACE, About.NAMESPACE_SUBSCRIPTIONS)
UNSUBSCRIBING = needs.of_namespace("UNSUBSCRIBE", Right.CONSUME_NAMESPACE, About.NAMESPACE_SUBSCRIPTION)

_T = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
_S = f"{_T}/subscription/{{subscription}}"
_N = "/admin/v2/namespaces/{tenant}/{namespace}"

ROUTES = [
    Route(f"{_T}/subscriptions", list_subscriptions, LISTING),
    Route(_S, create_subscription, CREATION, methods=["PUT"]),
    Route(_S, delete_subscription, DELETION, methods=["DELETE"]),
    Route(f"{_S}/properties", get_properties, consuming("CONSUME")),
    Route(f"{_S}/properties", set_properties, consuming("SUBSCRIBE"), methods=["PUT"]),
    Route(f"{_S}/skip/{{count}}", skip, consuming("SKIP"), methods=["POST"]),
    Route(f"{_S}/skip_all", skip_all, consuming("SKIP"), methods=["POST"]),
    Route(f"{_S}/expireMessages/{{seconds}}", expire, EXPIRY, methods=["POST"]),
    Route(f"{_S}/expireMessages", expire_to_position, EXPIRY, methods=["POST"]),
    Route(f"{_T}/all_subscription/expireMessages/{{seconds}}", expire_everywhere, EXPIRY_OF_ALL, methods=["POST"]),
    Route(f"{_S}/resetcursor", reset_to_position, consuming("RESET_CURSOR"), methods=["POST"]),
    Route(f"{_S}/resetcursor/{{timestamp}}", reset_to_time, consuming("RESET_CURSOR"), methods=["POST"]),
    Route(f"{_N}/clearBacklog", clear_namespace, CLEARING_OF_ALL, methods=["POST"]),
    Route(f"{_N}/unsubscribe/{{subscription}}", unsubscribe_namespace, UNSUBSCRIBING, methods=["POST"]),
    Route(f"{_N}/clearBacklog/{{subscription}}", clear_namespace, CLEARING, methods=["POST"]),
    Route(f"{_S}/analyzeBacklog", analyze_backlog, consuming("CONSUME"), methods=["POST"]),
    Route(f"{_T}/backlogSize", backlog_size, needs.of_topic("GET_BACKLOG_SIZE", Right.CONSUME), methods=["PUT"]),
]
