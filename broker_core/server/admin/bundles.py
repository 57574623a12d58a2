# SPDX-License-Identifier: Apache-2.0
"""Bundles of a namespace: the ranges of hashes by which a cluster shares topics out among its brokers.

One broker serves all of them here, so a namespace has one bundle, and what is asked of that is asked of the namespace.
Source: Pulsar docs, "Admin API - namespaces".
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from broker_core.server.admin.answers import RefusedError, json_answer
from broker_core.server.admin.namespace_object import BUNDLE, BUNDLES
from broker_core.server.admin.requests import broker_id, broker_of, namespace_name, part
from broker_core.server.admin.routes import Route
from broker_core.server.admin.subscriptions import clear_namespace, unsubscribe_namespace
from broker_core.server.admin.tenants import unload_namespace


def _check_bundle(request: Request) -> None:
    """A refusal if the namespace in the path does not exist or has no such bundle."""
    broker_of(request).namespaces.require(namespace_name(request))
    if (bundle := part(request, "bundle")) != BUNDLE:
        raise RefusedError(412, f"there is no bundle {bundle[:80]!r}, only {BUNDLE!r}: one broker serves all topics")


async def get_bundles(request: Request) -> Response:
    """The bundles of a namespace: one."""
    broker_of(request).namespaces.require(namespace_name(request))
    return json_answer(BUNDLES)


async def unload_bundle(request: Request) -> Response:
    """Unload every topic of the bundle, which is every topic of the namespace."""
    _check_bundle(request)
    wanted = request.query_params.get("destinationBroker")
    if wanted is not None and wanted != broker_id(request):
        raise RefusedError(409, f"there is no broker {wanted[:80]!r}, only this one, {broker_id(request)!r}")
    return await unload_namespace(request)


async def clear_bundle(request: Request) -> Response:
    """Pass over the whole backlog of every subscription, or of the one in the path, of all topics of the bundle."""
    _check_bundle(request)
    return await clear_namespace(request)


async def unsubscribe_bundle(request: Request) -> Response:
    """Delete the subscription from all topics of the bundle; refused while one of them has consumers."""
    _check_bundle(request)
    return await unsubscribe_namespace(request)


_N = "/admin/v2/namespaces/{tenant}/{namespace}"
_B = f"{_N}/{{bundle}}"

ROUTES = [
    Route(f"{_N}/bundles", get_bundles),
    Route(f"{_B}/unload", unload_bundle, methods=["PUT"]),
    Route(f"{_B}/clearBacklog", clear_bundle, methods=["POST"]),
    Route(f"{_B}/clearBacklog/{{subscription}}", clear_bundle, methods=["POST"]),
    Route(f"{_B}/unsubscribe/{{subscription}}", unsubscribe_bundle, methods=["POST"]),
]
