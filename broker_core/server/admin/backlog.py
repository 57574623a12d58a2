# SPDX-License-Identifier: Apache-2.0
"""How large the backlog of a subscription is, and how many bytes lie behind a message.

Counted from what the log and the cursor know: no entry is read, and nothing is estimated where Pulsar would look into
so many entries and stop. Source: Pulsar docs, "Admin API - topics - analyze backlog", "get backlog size".
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from broker_core.broker.cursors.backlog import BacklogPart
from broker_core.server.admin.answers import BadRequestError, json_answer
from broker_core.server.admin.requests import MessageIdBody, body, plain_subscription, plain_topic
from broker_core.server.admin.routes import Route


async def analyze_backlog(request: Request) -> Response:
    """Count the unacknowledged entries and messages; with a message id in the body, from there on."""
    start = await body(request, MessageIdBody | None, None)  # type: ignore[arg-type] # a union is a type to msgspec
    _, subscription = plain_subscription(request, "analyzing a backlog")
    if start is None:
        return json_answer(_analysis(subscription.backlog.part(None)))
    return json_answer(_analysis(subscription.backlog.part(start.position, excluded=start.excluded)))


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


async def backlog_size(request: Request) -> Response:
    """About how many bytes on disk lie after the message id in the body; ledger -1 means those of the whole topic."""
    start = await body(request, MessageIdBody | None, None)  # type: ignore[arg-type] # a union is a type to msgspec
    topic = plain_topic(request, "asking for the size of a backlog")
    if start is None:
        raise BadRequestError("the request has no message id")
    if start.ledger_id == -1:
        return json_answer(topic.messages.size_bytes)
    return json_answer(topic.messages.bytes_behind(start.position))


_T = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"

ROUTES = [
    Route(f"{_T}/subscription/{{subscription}}/analyzeBacklog", analyze_backlog, methods=["POST"]),
    Route(f"{_T}/backlogSize", backlog_size, methods=["PUT"]),
]
