# SPDX-License-Identifier: Apache-2.0
"""How much a subscription still has before it, and how many bytes lie behind a message.

Counted from what the log and the cursor know: no entry is read, and nothing is estimated where Pulsar would look into
so many entries and stop. Source: Pulsar docs, "Admin API - topics - analyze backlog", "get backlog size".
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from broker_core.base.errors import SubscriptionNotFoundError
from broker_core.base.positions import Position
from broker_core.broker.cursors.backlog_count import unacked_entries, unacked_messages
from broker_core.broker.subscription import Subscription
from broker_core.broker.topic import Topic
from broker_core.server.admin.answers import BadRequestError, json_answer
from broker_core.server.admin.requests import MessageIdBody, body, plain_topic, subscription_name


async def analyze_backlog(request: Request) -> Response:
    """Count the unacknowledged entries and messages; with a message id in the body, from there on."""
    wish = await body(request, MessageIdBody | None, None)  # type: ignore[arg-type] # a union is a type to msgspec
    topic = plain_topic(request, "analyzing a backlog")
    subscription = topic.subscriptions.get(subscription_name(request))
    if subscription is None:
        raise SubscriptionNotFoundError(f"subscription {subscription_name(request)!r} of {topic.name} does not exist")
    before = subscription.cursor.mark_delete
    if wish is not None:
        before = max(before, wish.position if wish.excluded else topic.log.previous(wish.position))
    return json_answer(_analysis(topic, subscription, before))


def _analysis(topic: Topic, subscription: Subscription, before: Position) -> dict[str, Any]:
    """Under Pulsar's names. There are no entry filters here, so every entry is accepted."""
    cursor = subscription.cursor
    entries, messages = (count(topic.log, cursor, before) for count in (unacked_entries, unacked_messages))
    last = topic.log.last_confirmed
    first = cursor.skip_acked(topic.log.next_valid(before))
    ids = {"firstMessageId": str(first), "lastMessageId": str(last)} if entries else {}
    return {
        "entries": entries,
        "messages": messages,
        "markerMessages": 0,
        "filterRejectedEntries": 0,
        "filterAcceptedEntries": entries,
        "filterRescheduledEntries": 0,
        "filterRejectedMessages": 0,
        "filterAcceptedMessages": messages,
        "filterRescheduledMessages": 0,
        "aborted": False,
        **ids,
    }


async def backlog_size(request: Request) -> Response:
    """About how many bytes on disk lie behind the message id in the body; ledger -1 means those of the whole topic."""
    wish = await body(request, MessageIdBody | None, None)  # type: ignore[arg-type] # a union is a type to msgspec
    topic = plain_topic(request, "asking for the size of a backlog")
    if wish is None:
        raise BadRequestError("the request has no message id")
    if wish.ledger_id == -1:
        return json_answer(topic.log.size_bytes)
    return json_answer(topic.log.bytes_between(wish.position, topic.log.last_confirmed))


_T = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"

ROUTES = [
    Route(f"{_T}/subscription/{{subscription}}/analyzeBacklog", analyze_backlog, methods=["POST"]),
    Route(f"{_T}/backlogSize", backlog_size, methods=["PUT"]),
]
