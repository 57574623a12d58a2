# SPDX-License-Identifier: Apache-2.0
"""Clusters, tenants and namespaces. Source: Pulsar docs, "Admin API - tenants", "- namespaces"."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from broker_core.base.errors import NotAllowedError
from broker_core.broker.broker import TopicsMode
from broker_core.broker.policies import NO_POLICIES, Policies
from broker_core.server.admin.answers import (
    BadRequestError,
    ConflictError,
    MissingError,
    RefusedError,
    done,
    json_answer,
    text_answer,
)
from broker_core.server.admin.policies import quota_answers
from broker_core.server.admin.requests import (
    body,
    broker_of,
    flag,
    namespace_name,
    node_of,
    part,
    used_topics_of_namespace,
)

_NO_CONFIG: dict[str, Any] = {}

_OF_CLUSTERS: Final = frozenset(
    {
        *("auth_policies", "replication_clusters", "allowed_clusters", "bundles", "clusterDispatchRate"),
        *("topicDispatchRate", "subscriptionDispatchRate", "replicatorDispatchRate", "clusterSubscribeRate"),
        *("publishMaxMessageRate", "latency_stats_sample_rate", "deleted", "encryption_required", "migrated"),
        *("subscription_auth_mode", "offload_threshold", "offload_threshold_in_seconds"),
        *("schema_compatibility_strategy", "is_allow_auto_update_schema", "schema_validation_enforced"),
    }
)
"""Fields of Pulsar's object that admin tools send along and that mean nothing on a single node."""


async def list_clusters(request: Request) -> Response:
    """The one cluster that there is: clusterName of the settings."""
    return json_answer([node_of(request).settings.cluster_name])


async def get_cluster(request: Request) -> Response:
    """Where the one cluster is reached."""
    node = node_of(request)
    if part(request, "cluster") != node.settings.cluster_name:
        raise MissingError(f"cluster {part(request, 'cluster')!r} does not exist")
    return json_answer({"serviceUrl": node.http_url, "brokerServiceUrl": node.service_url})


async def put_cluster(request: Request) -> Response:
    """Refused: the one that there is exists (409), and there can be no other (405)."""
    cluster = part(request, "cluster")
    if cluster == node_of(request).settings.cluster_name:
        raise ConflictError(f"cluster {cluster!r} exists already")
    raise RefusedError(405, f"cluster {cluster!r} cannot be made: this broker is a cluster by itself")


async def list_tenants(request: Request) -> Response:
    """The names of all tenants."""
    return json_answer(broker_of(request).namespaces.tenants())


async def get_tenant(request: Request) -> Response:
    """One tenant."""
    _existing_tenant(request)
    return json_answer({"adminRoles": [], "allowedClusters": [node_of(request).settings.cluster_name]})


async def put_tenant(request: Request) -> Response:
    """Create a tenant."""
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


async def delete_tenant(request: Request) -> Response:
    """Delete a tenant that has no namespaces."""
    tenant = _existing_tenant(request)
    try:
        broker_of(request).namespaces.delete_tenant(tenant)
    except NotAllowedError as error:
        raise ConflictError(str(error)) from error
    return done()


def _existing_tenant(request: Request) -> str:
    tenant = part(request, "tenant")
    if tenant not in broker_of(request).namespaces.tenants():
        raise MissingError(f"tenant {tenant!r} does not exist")
    return tenant


async def list_namespaces(request: Request) -> Response:
    """The namespaces of a tenant."""
    return json_answer([str(name) for name in broker_of(request).namespaces.namespaces(part(request, "tenant"))])


async def get_namespace(request: Request) -> Response:
    """Everything that is set for the namespace, and the cluster, in one object."""
    broker, name = broker_of(request), namespace_name(request)
    broker.namespaces.require(name)
    policies = msgspec.to_builtins(broker.policies.of_namespace(name))
    empty: dict[str, Any] = {"properties": {}, "subscription_types_enabled": []}
    quotas = {"backlog_quota_map": quota_answers(broker.policies.quotas_of_namespace(name))}
    clusters = {"replication_clusters": [node_of(request).settings.cluster_name]}
    return json_answer({**clusters, **empty, **policies, **quotas})


async def put_namespace(request: Request) -> Response:
    """Create a namespace, with policies if the body has any."""
    broker, name = broker_of(request), namespace_name(request)
    policies = await _policies_body(request)
    if broker.namespaces.exists(name):
        raise ConflictError(f"namespace {str(name)!r} exists already")
    try:
        policies.check()
    except NotAllowedError as error:
        raise BadRequestError(str(error)) from error
    broker.namespaces.create(name)
    if policies != NO_POLICIES:
        broker.set_namespace_policies(name, policies)
    return done()


async def _policies_body(request: Request) -> Policies:
    content = await body(request, dict[str, Any] | None, None)  # type: ignore[arg-type] # a union is a type to msgspec
    given = {field: value for field, value in (content or {}).items() if field not in _OF_CLUSTERS}
    unknown = set(given) - {field.encode_name for field in msgspec.structs.fields(Policies)}
    if unknown:
        raise BadRequestError(f"a namespace has no policy {min(unknown)!r}")
    try:
        return msgspec.convert(given, Policies)
    except msgspec.ValidationError as error:
        raise BadRequestError(f"the policies cannot be read: {error}") from error


async def delete_namespace(request: Request) -> Response:
    """Delete a namespace that has no topics; `?force=true` deletes them too, where that is allowed."""
    force = flag(request, "force")
    if force and not node_of(request).settings.force_delete_namespace_allowed:
        raise RefusedError(405, "deleting a namespace by force is not allowed; set forceDeleteNamespaceAllowed=true")
    broker = broker_of(request)
    if force:
        async for topic in used_topics_of_namespace(request):
            broker.delete_topic(topic.name, force=True)
    try:
        broker.delete_namespace(namespace_name(request), force=force)
    except NotAllowedError as error:
        raise ConflictError(str(error)) from error
    return done()


async def get_properties(request: Request) -> Response:
    """The properties of a namespace."""
    return json_answer(_properties(request))


async def set_properties(request: Request) -> Response:
    """Add these properties to those that the namespace has."""
    nothing: dict[str, str] = {}
    more = await body(request, dict[str, str], nothing)
    return _replace_properties(request, {**_properties(request), **more})


async def clear_properties(request: Request) -> Response:
    """Remove all properties of a namespace."""
    return _replace_properties(request, {})


async def get_property(request: Request) -> Response:
    """One property of a namespace; nothing if it has none of that name."""
    return text_answer(_properties(request).get(part(request, "key"), ""))


async def set_property(request: Request) -> Response:
    """Set one property of a namespace."""
    return _replace_properties(request, {**_properties(request), part(request, "key"): part(request, "value")})


async def remove_property(request: Request) -> Response:
    """Remove one property of a namespace; what it was."""
    properties = _properties(request)
    value = properties.pop(part(request, "key"), "")
    _replace_properties(request, properties)
    return text_answer(value)


def _properties(request: Request) -> dict[str, str]:
    broker, name = broker_of(request), namespace_name(request)
    broker.namespaces.require(name)
    return dict(broker.policies.of_namespace(name).properties or {})


def _replace_properties(request: Request, properties: dict[str, str]) -> Response:
    broker, name = broker_of(request), namespace_name(request)
    broker.namespaces.require(name)
    policies = msgspec.structs.replace(broker.policies.of_namespace(name), properties=properties or None)
    broker.set_namespace_policies(name, policies)
    return done()


async def list_namespace_topics(request: Request) -> Response:
    """The topics of a namespace, of partitioned ones every partition; `?mode=` PERSISTENT, NON_PERSISTENT or ALL."""
    mode = request.query_params.get("mode", "PERSISTENT").upper()
    known = TopicsMode.__members__.get(mode, TopicsMode.PERSISTENT)
    return json_answer(broker_of(request).topics_of(namespace_name(request), known))


async def unload_namespace(request: Request) -> Response:
    """Unload every topic of it that is loaded, stored or not."""
    broker, name = broker_of(request), namespace_name(request)
    broker.namespaces.require(name)
    for topic in [*(each.name for each in broker.loaded_topics()), *broker.non_persistent.names()]:
        if topic.namespace_name == name:
            broker.unload(topic)
    return done()


_N = "/admin/v2/namespaces/{tenant}/{namespace}"

ROUTES = [
    Route("/admin/v2/clusters", list_clusters),
    Route("/admin/v2/clusters/{cluster}", get_cluster),
    Route("/admin/v2/clusters/{cluster}", put_cluster, methods=["PUT"]),
    Route("/admin/v2/tenants", list_tenants),
    Route("/admin/v2/tenants/{tenant}", get_tenant),
    Route("/admin/v2/tenants/{tenant}", put_tenant, methods=["PUT"]),
    Route("/admin/v2/tenants/{tenant}", delete_tenant, methods=["DELETE"]),
    Route("/admin/v2/namespaces/{tenant}", list_namespaces),
    Route(_N, get_namespace),
    Route(_N, put_namespace, methods=["PUT"]),
    Route(_N, delete_namespace, methods=["DELETE"]),
    Route(f"{_N}/topics", list_namespace_topics),
    Route(f"{_N}/properties", get_properties),
    Route(f"{_N}/properties", set_properties, methods=["PUT"]),
    Route(f"{_N}/properties", clear_properties, methods=["DELETE"]),
    Route(f"{_N}/property/{{key}}", get_property),
    Route(f"{_N}/property/{{key}}", remove_property, methods=["DELETE"]),
    Route(f"{_N}/property/{{key}}/{{value}}", set_property, methods=["PUT"]),
    Route(f"{_N}/unload", unload_namespace, methods=["PUT"]),
]
