# SPDX-License-Identifier: Apache-2.0
"""The admin REST as one ASGI application: all routes, and errors as JSON. Nothing a client sends may become a 500."""

from __future__ import annotations

import logging
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp

from broker_core.base.errors import PulsarishError
from broker_core.server.admin import backlog, brokers, delayed, messages, policies, subscriptions, tenants, topics
from broker_core.server.admin.answers import RefusedError, refusal, status_of
from broker_core.server.admin.durable_answers import DurableAnswers
from broker_core.server.admin.guard import Guard, TooLargeError
from broker_core.server.session import Node

_log: Final = logging.getLogger(__name__)


def build_app(node: Node) -> ASGIApp:
    """The application that answers for ``node``."""
    app = Starlette(
        routes=[
            *brokers.ROUTES,
            *tenants.ROUTES,
            *topics.ROUTES,
            *policies.ROUTES,
            *subscriptions.ROUTES,
            *messages.ROUTES,
            *backlog.ROUTES,
            *delayed.ROUTES,
        ],
        exception_handlers={
            HTTPException: _on_http_error,
            RefusedError: _on_refusal,
            PulsarishError: _on_core_error,
            TooLargeError: _on_too_large,
            ClientDisconnect: _on_too_large,
            Exception: _on_bug,
        },
    )
    app.state.node = node
    return Guard(DurableAnswers(app, node.commits))


async def _on_http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    reason = {404: "no such path", 405: "this method is not supported for this path"}.get(status, str(error))
    return refusal(status, reason)


async def _on_refusal(request: Request, error: Exception) -> Response:
    return refusal(error.status if isinstance(error, RefusedError) else 500, str(error))


async def _on_core_error(request: Request, error: Exception) -> Response:
    return refusal(status_of(error) if isinstance(error, PulsarishError) else 500, str(error))


async def _on_too_large(request: Request, error: Exception) -> Response:
    return refusal(413, "the request body is too large or was cut off")


async def _on_bug(request: Request, error: Exception) -> Response:
    _log.error("admin request failed path=%s", request.url.path, exc_info=error)
    return refusal(500, "the broker failed on this request; its log says more")
