# SPDX-License-Identifier: Apache-2.0
"""Clusters, tenants and namespaces. Source: Pulsar docs, "Admin API - tenants", "- namespaces"."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from broker_core.base.errors import NotAllowedError
from broker_core.base.names import shown_name
from broker_core.broker.directory.topic_registry import TopicsMode
from broker_core.broker.policies.policy_values import NO_POLICIES
from broker_core.server.admin.answers import (
    BadRequestError,
    ConflictError,
    MissingError,
    RefusedError,
    done,
    json_answer,
    text_answer,
)
from broker_core.server.admin.namespace_object import namespace_object, policies_asked_for
from broker_core.server.admin.requests import (
    body,
    broker_of,
    existing_cluster,
    flag,
    in_turns,
    namespace_name,
    node_of,
    part,
    registry_of,
    used_topics_of_namespace,
)
from broker_core.server.admin.routes import Route


class TenantObject(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Pulsar's object of a tenant. The roles are kept and shown, but this broker checks no roles."""

    admin_roles: list[str] | None = None
    allowed_clusters: list[str] | None = None


async def list_clusters(request: Request) -> Response:
    """The name of the one cluster: clusterName of the settings."""
    return json_answer([node_of(request).settings.cluster_name])


async def get_cluster(request: Request) -> Response:
    """Where the one cluster is reached."""
    node = node_of(request)
    existing_cluster(request)
    return json_answer({"serviceUrl": node.http_url, "brokerServiceUrl": node.service_url})


async def put_cluster(request: Request) -> Response:
    """Refused: the one that there is exists (409), and there can be no other (405)."""
    cluster = part(request, "cluster")
    if cluster == node_of(request).settings.cluster_name:
        raise ConflictError(f"cluster {cluster!r} exists already")
    raise RefusedError(405, f"cluster {shown_name(cluster)} cannot be made: this broker is a cluster by itself")


async def list_tenants(request: Request) -> Response:
    """The names of all tenants."""
    return json_answer(broker_of(request).namespaces.tenants())


async def get_tenant(request: Request) -> Response:
    """The roles that may administer a tenant, as they were given, and the clusters that it may use: this one."""
    config = broker_of(request).namespaces.tenant(_existing_tenant(request))
    clusters = [node_of(request).settings.cluster_name]
    return json_answer({"adminRoles": [], "allowedClusters": clusters, **config})


async def put_tenant(request: Request) -> Response:
    """Create a tenant."""
    tenant = part(request, "tenant")
    namespaces = broker_of(request).namespaces
    config = await _tenant_body(request)
    if tenant in namespaces.tenants():
        raise ConflictError(f"tenant {tenant!r} exists already")
    namespaces.create_tenant(tenant, config)
    return done()


async def update_tenant(request: Request) -> Response:
    """Replace the roles of a tenant."""
    config = await _tenant_body(request)
    broker_of(request).namespaces.change_tenant(_existing_tenant(request), config)
    return done()


async def _tenant_body(request: Request) -> dict[str, Any]:
    """The part of a tenant that is kept. As in Pulsar the clusters must be given."""
    asked: Any = await body(request, TenantObject | None, None)  # type: ignore[arg-type] # a union is a type to msgspec
    ours = node_of(request).settings.cluster_name
    if asked is None or not asked.allowed_clusters:
        raise RefusedError(412, f"the request names no clusters; send allowedClusters, which is [{ours!r}] here")
    if strange := [each for each in asked.allowed_clusters if each != ours]:
        raise RefusedError(412, f"cluster {strange[0][:80]!r} does not exist; this broker is the cluster {ours!r}")
    found: dict[str, Any] = msgspec.to_builtins(asked)
    return found


async def delete_tenant(request: Request) -> Response:
    """Delete a tenant that has no namespaces."""
    broker_of(request).namespaces.delete_tenant(_existing_tenant(request))
    return done()


def _existing_tenant(request: Request) -> str:
    tenant = part(request, "tenant")
    if tenant not in broker_of(request).namespaces.tenants():
        raise MissingError(f"tenant {shown_name(tenant)} does not exist")
    return tenant


async def list_namespaces(request: Request) -> Response:
    """The namespaces of a tenant."""
    return json_answer([str(name) for name in broker_of(request).namespaces.namespaces(part(request, "tenant"))])


async def get_namespace(request: Request) -> Response:
    """Everything that is set for the namespace, the cluster and the bundle, in one object."""
    broker, name = broker_of(request), namespace_name(request)
    broker.namespaces.require(name)
    return json_answer(namespace_object(broker, name))


async def put_namespace(request: Request) -> Response:
    """Create a namespace, with policies if the body has any. What would not be kept is refused."""
    broker, name = broker_of(request), namespace_name(request)
    content: Any = await body(request, dict[str, Any] | None, None)  # type: ignore[arg-type] # a union is a type to msgspec
    policies = policies_asked_for(content or {}, node_of(request).settings.cluster_name)
    if broker.namespaces.exists(name):
        raise ConflictError(f"namespace {str(name)!r} exists already")
    try:
        policies.check()
    except NotAllowedError as error:
        raise BadRequestError(str(error)) from error
    broker.namespaces.create(name)
    if policies != NO_POLICIES:
        await in_turns(request, broker.set_namespace_policies(name, policies))
    return done()


async def delete_namespace(request: Request) -> Response:
    """Delete a namespace that has no topics; `?force=true` deletes them too, where that is allowed."""
    force = flag(request, "force")
    if force and not broker_of(request).policies.settings.force_delete_namespace_allowed:
        raise RefusedError(405, "deleting a namespace by force is not allowed; set forceDeleteNamespaceAllowed=true")
    broker = broker_of(request)
    if force:
        async for topic in used_topics_of_namespace(request):
            broker.deletion.delete_topic(topic.name, force=True)
    broker.deletion.delete_namespace(namespace_name(request), force=force)
    return done()


async def get_properties(request: Request) -> Response:
    """The properties of a namespace."""
    return json_answer(_properties(request))


async def set_properties(request: Request) -> Response:
    """Add these properties to those that the namespace has."""
    nothing: dict[str, str] = {}
    more = await body(request, dict[str, str], nothing)
    return await _replace_properties(request, {**_properties(request), **more})


async def clear_properties(request: Request) -> Response:
    """Remove all properties of a namespace."""
    return await _replace_properties(request, {})


async def get_property(request: Request) -> Response:
    """One property of a namespace; nothing if it has none of that name."""
    return text_answer(_properties(request).get(part(request, "key"), ""))


async def set_property(request: Request) -> Response:
    """Set one property of a namespace."""
    return await _replace_properties(request, {**_properties(request), part(request, "key"): part(request, "value")})


async def remove_property(request: Request) -> Response:
    """Remove one property of a namespace; what it was."""
    properties = _properties(request)
    value = properties.pop(part(request, "key"), "")
    await _replace_properties(request, properties)
    return text_answer(value)


def _properties(request: Request) -> dict[str, str]:
    broker, name = broker_of(request), namespace_name(request)
    broker.namespaces.require(name)
    return dict(broker.policies.of_namespace(name).properties or {})


async def _replace_properties(request: Request, properties: dict[str, str]) -> Response:
    broker, name = broker_of(request), namespace_name(request)
    broker.namespaces.require(name)
    policies = msgspec.structs.replace(broker.policies.of_namespace(name), properties=properties or None)
    await in_turns(request, broker.set_namespace_policies(name, policies))
    return done()


async def list_namespace_topics(request: Request) -> Response:
    """The topics of a namespace, of partitioned ones every partition; `?mode=` PERSISTENT, NON_PERSISTENT or ALL."""
    mode = request.query_params.get("mode", "PERSISTENT").upper()
    known = TopicsMode.__members__.get(mode, TopicsMode.PERSISTENT)
    return json_answer(await in_turns(request, registry_of(request).topics_in_steps(namespace_name(request), known)))


async def unload_namespace(request: Request) -> Response:
    """Unload every topic of it that is loaded, stored or not."""
    await in_turns(request, broker_of(request).unload_namespace(namespace_name(request)))
    return done()


_N = "/admin/v2/namespaces/{tenant}/{namespace}"

ROUTES = [
    Route("/admin/v2/clusters", list_clusters),
    Route("/admin/v2/clusters/{cluster}", get_cluster),
    Route("/admin/v2/clusters/{cluster}", put_cluster, methods=["PUT"]),
    Route("/admin/v2/tenants", list_tenants),
    Route("/admin/v2/tenants/{tenant}", get_tenant),
    Route("/admin/v2/tenants/{tenant}", put_tenant, methods=["PUT"], statuses={NotAllowedError: 412}),
    Route("/admin/v2/tenants/{tenant}", update_tenant, methods=["POST"]),
    Route("/admin/v2/tenants/{tenant}", delete_tenant, methods=["DELETE"], statuses={NotAllowedError: 409}),
    Route("/admin/v2/namespaces/{tenant}", list_namespaces),
    Route(_N, get_namespace),
    Route(_N, put_namespace, methods=["PUT"]),
    Route(_N, delete_namespace, methods=["DELETE"], statuses={NotAllowedError: 409}),
    Route(f"{_N}/topics", list_namespace_topics),
    Route(f"{_N}/properties", get_properties),
    Route(f"{_N}/properties", set_properties, methods=["PUT"]),
    Route(f"{_N}/properties", clear_properties, methods=["DELETE"]),
    Route(f"{_N}/property/{{key}}", get_property),
    Route(f"{_N}/property/{{key}}", remove_property, methods=["DELETE"]),
    Route(f"{_N}/property/{{key}}/{{value}}", set_property, methods=["PUT"]),
    Route(f"{_N}/unload", unload_namespace, methods=["PUT"]),
]
