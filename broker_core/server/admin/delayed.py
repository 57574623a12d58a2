# SPDX-License-Identifier: Apache-2.0
"""Delayed messages over HTTP: how many are due when, and cancelling one. Pulsar has neither; the paths are ours."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from broker_core.base.positions import Position
from broker_core.server.admin.answers import BadRequestError, MissingError, Outcome, done, json_answer
from broker_core.server.admin.requests import number, plain_subscription, plain_topic
from broker_core.server.admin.routes import Route

_STEP_MS_DEFAULT: Final = 60_000
_STEPS_MAX: Final = 100_000


async def due_times(request: Request) -> Response:
    """How many delayed messages fall due when, of those that Shared and Key_Shared consumers made the broker read.

    The start of each step of `?stepMillis=` to their number.
    """
    topic = plain_topic(request, "asking for delayed messages")
    text = request.query_params.get("stepMillis", str(_STEP_MS_DEFAULT))
    if not (text.isascii() and text.isdigit() and 0 < len(text) <= 12 and int(text) > 0):
        raise BadRequestError(f"{text[:80]!r} is not a number of milliseconds above 0")
    due = topic.delays.histogram(int(text))
    if len(due) > _STEPS_MAX:
        raise BadRequestError(f"{len(due)} steps are too many for one answer; choose a larger stepMillis")
    return json_answer({"stepMillis": int(text), "due": due})


async def cancel(request: Request) -> Response:
    """Take a delayed message back for one subscription, before it is delivered there."""
    topic, subscription = plain_subscription(request, "taking a message back")
    position = Position(number(request, "ledger"), number(request, "entry"))
    outcome = Outcome()
    if not subscription.cancel(position, outcome.on_done):
        raise MissingError(f"{topic.name} has no message {position} that {subscription.name!r} still waits for")
    await outcome.done
    return done()


_T = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"

ROUTES = [
    Route(f"{_T}/delayedMessages", due_times),
    Route(f"{_T}/subscription/{{subscription}}/delayedMessages/{{ledger}}/{{entry}}", cancel, methods=["DELETE"]),
]
