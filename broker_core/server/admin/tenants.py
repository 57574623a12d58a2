# SPDX-License-Identifier: Apache-2.0
"""Tenants and namespaces. Source: Pulsar docs, "Admin API - tenants", "- namespaces"."""

from __future__ import annotations

from typing import Any

import msgspec

from broker_core.base.errors import NotAllowedError
from broker_core.base.names import shown_name
from broker_core.base.policies import NO_GRANTS, NO_POLICIES
from broker_core.broker.directory.topic_registry import TopicsMode
from broker_core.server.admin.answers import (
    BadRequestError,
    ConflictError,
    MissingError,
    RefusedError,
    text_answer,
)
from broker_core.server.admin.namespace_object import namespace_object, policies_asked_for
from broker_core.server.admin.permissions import check_wildcards
from broker_core.server.admin.requests import AdminRequest, Route
from broker_core.server.security import needs
from broker_core.server.security.rights import About, Right


class TenantObject(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Pulsar's object of a tenant. Its roles administer it where rights are checked (``authorizationEnabled``)."""

    admin_roles: list[str] | None = None
    allowed_clusters: list[str] | None = None


async def list_tenants(request: AdminRequest) -> object:
    """The names of all tenants."""
    return request.broker.namespaces.tenants()


async def get_tenant(request: AdminRequest) -> object:
    """The roles that may administer a tenant, as they were given, and the clusters that it may use: this one."""
    config = request.broker.namespaces.tenant(_existing_tenant(request))
    return {"adminRoles": [], "allowedClusters": [request.cluster], **config}


async def put_tenant(request: AdminRequest) -> None:
    """Create a tenant."""
    tenant = request.part("tenant")
    config = await _tenant_body(request)
    if tenant in request.broker.namespaces.tenants():
        raise ConflictError(f"tenant {tenant!r} exists already")
    request.broker.namespaces.create_tenant(tenant, config)


async def update_tenant(request: AdminRequest) -> None:
    """Replace the roles of a tenant."""
    config = await _tenant_body(request)
    tenant = _existing_tenant(request)
    request.broker.namespaces.change_tenant(tenant, config)
    request.node.rights_changed(tenant)


async def _tenant_body(request: AdminRequest) -> dict[str, Any]:
    """The part of a tenant that is kept. As in Pulsar the clusters must be given."""
    asked: Any = await request.body_as(TenantObject | None)
    ours = request.cluster
    if asked is None or not asked.allowed_clusters:
        raise RefusedError(412, f"the request names no clusters; send allowedClusters, which is [{ours!r}] here")
    if strange := [each for each in asked.allowed_clusters if each != ours]:
        raise RefusedError(412, f"cluster {strange[0][:80]!r} does not exist; this broker is the cluster {ours!r}")
    found: dict[str, Any] = msgspec.to_builtins(asked)
    return found


async def delete_tenant(request: AdminRequest) -> None:
    """Delete a tenant that has no namespaces."""
    request.broker.namespaces.delete_tenant(_existing_tenant(request))


def _existing_tenant(request: AdminRequest) -> str:
    tenant = request.part("tenant")
    if tenant not in request.broker.namespaces.tenants():
        raise MissingError(f"tenant {shown_name(tenant)} does not exist")
    return tenant


async def list_namespaces(request: AdminRequest) -> object:
    """The namespaces of a tenant."""
    return [str(name) for name in request.broker.namespaces.namespaces(request.part("tenant"))]


async def get_namespace(request: AdminRequest) -> object:
    """Everything that is set for the namespace, the cluster and the bundle, in one object."""
    return namespace_object(request.broker, request.existing_namespace())


async def put_namespace(request: AdminRequest) -> None:
    """Create a namespace, with policies if the body has any. What would not be kept is refused."""
    broker, name = request.broker, request.namespace_name
    content: Any = await request.body_as(dict[str, Any] | None)
    policies = policies_asked_for(content or {}, request.cluster)
    check_wildcards(request, (policies.auth_policies or NO_GRANTS).roles)
    if broker.namespaces.exists(name):
        raise ConflictError(f"namespace {str(name)!r} exists already")
    try:
        policies.check()
    except NotAllowedError as error:
        raise BadRequestError(str(error)) from error
    broker.namespaces.create(name)
    if policies != NO_POLICIES:
        await request.in_turns(broker.set_namespace_policies(name, policies))


async def delete_namespace(request: AdminRequest) -> None:
    """Delete a namespace that has no topics; `?force=true` deletes them too, where that is allowed."""
    force = request.flag("force")
    if force and not request.broker.policies.settings.force_delete_namespace_allowed:
        raise RefusedError(405, "deleting a namespace by force is not allowed; set forceDeleteNamespaceAllowed=true")
    broker = request.broker
    if force:
        async for topic in request.used_topics_of_namespace():
            broker.deletion.delete_topic(topic.name, force=True)
    broker.deletion.delete_namespace(request.namespace_name, force=force)


async def get_properties(request: AdminRequest) -> object:
    """The properties of a namespace."""
    return _properties(request)


async def set_properties(request: AdminRequest) -> None:
    """Add these properties to those that the namespace has."""
    more = await request.body_as(dict[str, str], {})
    await _replace_properties(request, {**_properties(request), **more})


async def clear_properties(request: AdminRequest) -> None:
    """Remove all properties of a namespace."""
    await _replace_properties(request, {})


async def get_property(request: AdminRequest) -> object:
    """One property of a namespace; nothing if it has none of that name."""
    return text_answer(_properties(request).get(request.part("key"), ""))


async def set_property(request: AdminRequest) -> None:
    """Set one property of a namespace."""
    await _replace_properties(request, {**_properties(request), request.part("key"): request.part("value")})


async def remove_property(request: AdminRequest) -> object:
    """Remove one property of a namespace; what it was."""
    properties = _properties(request)
    value = properties.pop(request.part("key"), "")
    await _replace_properties(request, properties)
    return text_answer(value)


def _properties(request: AdminRequest) -> dict[str, str]:
    return dict(request.broker.policies.of_namespace(request.existing_namespace()).properties or {})


async def _replace_properties(request: AdminRequest, properties: dict[str, str]) -> None:
    broker, name = request.broker, request.existing_namespace()
    policies = msgspec.structs.replace(broker.policies.of_namespace(name), properties=properties or None)
    await request.in_turns(broker.set_namespace_policies(name, policies))


async def list_namespace_topics(request: AdminRequest) -> object:
    """The topics of a namespace, of partitioned ones every partition; `?mode=` PERSISTENT, NON_PERSISTENT or ALL."""
    mode = request.query_params.get("mode", "PERSISTENT").upper()
    known = TopicsMode.__members__.get(mode, TopicsMode.PERSISTENT)
    return await request.in_turns(request.broker.registry.topics_in_steps(request.namespace_name, known))


async def unload_namespace(request: AdminRequest) -> None:
    """Unload every topic of it that is loaded, stored or not."""
    await request.in_turns(request.broker.unload_namespace(request.namespace_name))


_TENANT = "/admin/v2/tenants/{tenant}"
_N = "/admin/v2/namespaces/{tenant}/{namespace}"
_PROPERTIES = needs.administer(About.NAMESPACE)

ROUTES = [
    Route("/admin/v2/tenants", list_tenants, needs.of_tenants("LIST_TENANTS")),
    Route(_TENANT, get_tenant, needs.of_tenants("GET_TENANT")),
    Route(_TENANT, put_tenant, needs.of_tenants("CREATE_TENANT"), methods=["PUT"], statuses={NotAllowedError: 412}),
    Route(_TENANT, update_tenant, needs.of_tenants("UPDATE_TENANT"), methods=["POST"]),
    Route(
        _TENANT, delete_tenant, needs.of_tenants("DELETE_TENANT"), methods=["DELETE"], statuses={NotAllowedError: 409}
    ),
    Route("/admin/v2/namespaces/{tenant}", list_namespaces, needs.in_tenant("LIST_NAMESPACES")),
    Route(_N, get_namespace, needs.of_policy("", "GET", of_topic=False)),
    Route(_N, put_namespace, needs.in_tenant("CREATE_NAMESPACE"), methods=["PUT"]),
    Route(
        _N,
        delete_namespace,
        needs.in_tenant("DELETE_NAMESPACE"),
        methods=["DELETE"],
        statuses={NotAllowedError: 409},
    ),
    Route(f"{_N}/topics", list_namespace_topics, needs.of_namespace("GET_TOPICS", Right.USE_NAMESPACE)),
    Route(f"{_N}/properties", get_properties, _PROPERTIES),
    Route(f"{_N}/properties", set_properties, _PROPERTIES, methods=["PUT"]),
    Route(f"{_N}/properties", clear_properties, _PROPERTIES, methods=["DELETE"]),
    Route(f"{_N}/property/{{key}}", get_property, _PROPERTIES),
    Route(f"{_N}/property/{{key}}", remove_property, _PROPERTIES, methods=["DELETE"]),
    Route(f"{_N}/property/{{key}}/{{value}}", set_property, _PROPERTIES, methods=["PUT"]),
    Route(f"{_N}/unload", unload_namespace, needs.SUPERUSER, methods=["PUT"]),
]
