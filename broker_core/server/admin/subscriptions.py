# SPDX-License-Identifier: Apache-2.0
"""Subscriptions: list, create at a position, delete, reset. Of a partitioned topic: on every partition.

Source: Pulsar docs, "Admin API - topics - manage subscriptions"; where a reset stands: semantics 1.4.6.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from broker_core.base.errors import ServerError, SubscriptionNotFoundError
from broker_core.base.positions import POSITION_LATEST, Position
from broker_core.broker.requests import InitialPosition
from broker_core.broker.subscription import Subscription
from broker_core.broker.topic import Topic
from broker_core.server.admin.answers import BadRequestError, ConflictError, RefusedError, done, json_answer
from broker_core.server.admin.requests import (
    WORDS,
    MessageIdBody,
    body,
    broker_of,
    flag,
    part,
    subscription_name,
    topic_name,
    topics_behind,
)


def _topics(request: Request) -> list[Topic]:
    return topics_behind(broker_of(request), topic_name(request))


def _subscriptions(request: Request) -> list[tuple[Topic, Subscription]]:
    """Those of the name in the path, one for each partition that has it; SubscriptionNotFoundError if none has."""
    name = subscription_name(request)
    found = [(topic, topic.subscriptions[name]) for topic in _topics(request) if name in topic.subscriptions]
    if not found:
        raise SubscriptionNotFoundError(f"subscription {name!r} of {topic_name(request)} does not exist")
    return found


async def list_subscriptions(request: Request) -> Response:
    return json_answer(sorted({name for topic in _topics(request) for name in topic.subscriptions}))


async def create_subscription(request: Request) -> Response:
    name = subscription_name(request)
    wish: Any = await body(request, MessageIdBody | str | None, None)  # type: ignore[arg-type] # a type to msgspec
    position = _position(wish)
    topics = _topics(request)
    if any(name in topic.subscriptions for topic in topics):
        raise ConflictError(f"subscription {name!r} of {topic_name(request)} exists already")
    for topic in topics:
        topic.create_subscription(name, InitialPosition.LATEST if position == POSITION_LATEST else position)
    return done()


def _position(wish: MessageIdBody | str | None) -> Position:
    if wish is None:
        return POSITION_LATEST
    if isinstance(wish, MessageIdBody):
        return wish.position
    if wish not in WORDS:
        raise BadRequestError(f"{wish[:80]!r} is not a position; write earliest, latest or a message id object")
    return WORDS[wish]


async def delete_subscription(request: Request) -> Response:
    found = _subscriptions(request)
    name = subscription_name(request)
    if not flag(request, "force") and any(subscription.consumers for _, subscription in found):
        raise RefusedError(412, f"subscription {name!r} has connected consumers; close them or use force=true")
    for topic, _ in found:
        topic.delete_subscription(name)
    return done()


async def reset_to_time(request: Request) -> Response:
    """Stand right before the first message published at or after the time in the path, milliseconds."""
    text = part(request, "timestamp")
    if not text.isascii() or not text.isdigit() or len(text) > len(str(2**63)):
        raise BadRequestError(f"{text[:80]!r} is not a time in milliseconds")
    for _, subscription in _subscriptions(request):
        reset = _Reset()
        subscription.seek_to_time(int(text), reset.on_done)
        await reset.outcome
    return done()


async def reset_to_position(request: Request) -> Response:
    """Stand right before the message id in the body, or right after it if it is excluded."""
    wish = await body(request, MessageIdBody, MessageIdBody(*POSITION_LATEST))
    for topic, subscription in _subscriptions(request):
        reset = _Reset()
        first_wanted = topic.log.next_valid(wish.position) if wish.is_excluded else wish.position
        subscription.seek(first_wanted, None, reset.on_done)
        await reset.outcome
    return done()


class _Reset:
    """The answer of the core to a reset, as something to wait for."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_done(self, error: ServerError | None) -> None:
        if self.outcome.done():
            return
        if error is None:
            self.outcome.set_result(None)
        else:
            self.outcome.set_exception(error)


_T = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
_S = f"{_T}/subscription/{{subscription}}"

ROUTES = [
    Route(f"{_T}/subscriptions", list_subscriptions),
    Route(_S, create_subscription, methods=["PUT"]),
    Route(_S, delete_subscription, methods=["DELETE"]),
    Route(f"{_S}/resetcursor", reset_to_position, methods=["POST"]),
    Route(f"{_S}/resetcursor/{{timestamp}}", reset_to_time, methods=["POST"]),
]
