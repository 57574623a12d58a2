# SPDX-License-Identifier: Apache-2.0
"""Clusters, tenants and namespaces. Source: Pulsar docs, "Admin API - tenants", "- namespaces"."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from broker_core.base.errors import NotAllowedError
from broker_core.broker.broker import TopicsMode
from broker_core.server.admin.answers import ConflictError, MissingError, RefusedError, done, json_answer
from broker_core.server.admin.requests import body, broker_of, namespace_name, node_of, part

_NO_CONFIG: dict[str, Any] = {}


async def list_clusters(request: Request) -> Response:
    return json_answer([node_of(request).settings.cluster_name])


async def list_tenants(request: Request) -> Response:
    return json_answer(broker_of(request).namespaces.tenants())


async def get_tenant(request: Request) -> Response:
    tenant = part(request, "tenant")
    if tenant not in broker_of(request).namespaces.tenants():
        raise MissingError(f"tenant {tenant!r} does not exist")
    return json_answer({"adminRoles": [], "allowedClusters": [node_of(request).settings.cluster_name]})


async def put_tenant(request: Request) -> Response:
    tenant = part(request, "tenant")
    namespaces = broker_of(request).namespaces
    config = await body(request, dict[str, Any], _NO_CONFIG)
    if tenant in namespaces.tenants():
        raise ConflictError(f"tenant {tenant!r} exists already")
    try:
        namespaces.create_tenant(tenant, config)
    except NotAllowedError as error:
        raise RefusedError(412, str(error)) from error
    return done()


async def list_namespaces(request: Request) -> Response:
    return json_answer([str(name) for name in broker_of(request).namespaces.namespaces(part(request, "tenant"))])


async def get_namespace(request: Request) -> Response:
    broker_of(request).namespaces.require(namespace_name(request))
    return json_answer({})


async def put_namespace(request: Request) -> Response:
    name = namespace_name(request)
    namespaces = broker_of(request).namespaces
    policies = await body(request, dict[str, Any] | None, None)  # type: ignore[arg-type] # a union is a type to msgspec
    if namespaces.exists(name):
        raise ConflictError(f"namespace {str(name)!r} exists already")
    namespaces.create(name, policies)
    return done()


async def list_namespace_topics(request: Request) -> Response:
    mode = request.query_params.get("mode", "PERSISTENT").upper()
    known = TopicsMode.__members__.get(mode, TopicsMode.PERSISTENT)
    return json_answer(broker_of(request).topics_of(namespace_name(request), known))


ROUTES = [
    Route("/admin/v2/clusters", list_clusters),
    Route("/admin/v2/tenants", list_tenants),
    Route("/admin/v2/tenants/{tenant}", get_tenant),
    Route("/admin/v2/tenants/{tenant}", put_tenant, methods=["PUT"]),
    Route("/admin/v2/namespaces/{tenant}", list_namespaces),
    Route("/admin/v2/namespaces/{tenant}/{namespace}", get_namespace),
    Route("/admin/v2/namespaces/{tenant}/{namespace}", put_namespace, methods=["PUT"]),
    Route("/admin/v2/namespaces/{tenant}/{namespace}/topics", list_namespace_topics),
]
