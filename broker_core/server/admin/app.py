# SPDX-License-Identifier: Apache-2.0
"""The admin REST as one ASGI application: all routes, and errors as JSON. Nothing a client sends may become a 500."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp

from broker_core.base.invariants import invariant
from broker_core.server.admin import (
    broker_stats,
    brokers,
    bundles,
    clusters,
    compaction,
    kept,
    messages,
    metrics,
    non_persistent,
    permissions,
    policies,
    schemas,
    subscriptions,
    tenants,
    topics,
    transactions,
    unkept,
)
from broker_core.server.admin.answers import refusal
from broker_core.server.admin.identification import Identification
from broker_core.server.admin.middleware import DurableAnswers, Guard, OneATurn, RefusalLog, RequestTurns, TooLargeError
from broker_core.server.admin.requests import Route
from broker_core.server.security.rights import About, Need
from broker_core.server.session import Node

SECTIONS: Final = (
    ("Brokers and lookup", brokers.ROUTES),
    ("Clusters", clusters.ROUTES),
    ("Tenants, namespaces", tenants.ROUTES),
    ("Topics", topics.ROUTES),
    ("Subscriptions", subscriptions.ROUTES),
    ("Messages", messages.ROUTES),
    ("Compaction", compaction.ROUTES),
    ("Schemas", schemas.ROUTES),
    ("Transactions", transactions.ROUTES),
    ("Permissions", permissions.ROUTES),
    ("Bundles", bundles.ROUTES),
    ("Delayed messages (paths of our own)", messages.DELAYED_ROUTES),
    ("Topics that are not stored", non_persistent.ROUTES),
    ("Metrics", metrics.ROUTES),
    ("Broker statistics", broker_stats.ROUTES),
    ("What this broker does not have", [*unkept.OWN_ROUTES, *kept.OWN_ROUTES]),
)
"""All routes but those of policies, kept or not, by the headings under which docs/admin.md lists them."""

_SHOWN_PATH_MAX: Final = 200
"""Characters of a path that an error repeats."""


def all_routes() -> list[Route]:
    """Every route, in the order in which they are tried."""
    return [*(route for _, routes in SECTIONS for route in routes), *policies.ROUTES, *kept.ROUTES, *unkept.ROUTES]


def in_the_table(routes: list[Route]) -> list[Route]:
    """``routes``, of which each is in the table of rights, with a resource that its path names; else no start."""
    for route in routes:
        invariant(isinstance(route.need, Need), "%s is not in the table of rights", route.path)
        for part in _PARTS[route.need.about]:
            invariant(f"{{{part}}}" in route.path, "the right to %s is about a %s", route.path, part)
    return routes


_NAMESPACE: Final = ("tenant", "namespace")
_PARTS: Final[Mapping[About, tuple[str, ...]]] = {
    **dict.fromkeys(About, ()),
    About.TENANT: ("tenant",),
    **dict.fromkeys((About.NAMESPACE, About.NAMESPACE_SUBSCRIPTIONS), _NAMESPACE),
    About.NAMESPACE_SUBSCRIPTION: (*_NAMESPACE, "subscription"),
    **dict.fromkeys((About.TOPIC, About.SUBSCRIPTIONS), (*_NAMESPACE, "topic")),
    About.SUBSCRIPTION: (*_NAMESPACE, "topic", "subscription"),
}
"""Parts of a path that name a resource of each kind."""


def build_app(node: Node) -> ASGIApp:
    """The application that answers for ``node``."""
    app = Starlette(
        routes=in_the_table(all_routes()),
        exception_handlers={
            HTTPException: _on_http_error,
            TooLargeError: _on_too_large,
            ClientDisconnect: _on_too_large,
            Exception: _on_bug,
        },
    )
    app.state.node = node
    app.state.turns = turns = RequestTurns(node.turns)
    known = Identification(DurableAnswers(app, node.commits), node)
    return RefusalLog(OneATurn(Guard(known, node.settings), turns))


async def _on_http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    path = str(request.scope["path"])[:_SHOWN_PATH_MAX]
    if status == 404:
        return refusal(status, f"there is nothing at {path}; docs/admin.md lists the paths")
    if status == 405:
        allowed = ", ".join(_methods(request))
        answer = refusal(status, f"{request.method} is not supported for {path}; it takes {allowed}")
        answer.headers["Allow"] = allowed
        return answer
    return refusal(status, str(error))


def _methods(request: Request) -> list[str]:
    """The HTTP methods that the path of ``request`` allows."""
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    found = [route.methods or () for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return sorted(set().union(*found))


async def _on_too_large(request: Request, error: Exception) -> Response:
    return refusal(413, "the request body is too large or was cut off")


async def _on_bug(request: Request, error: Exception) -> Response:
    """The connection gets the error too, and logs it."""
    return refusal(500, "the broker failed on this request; its log says more")
