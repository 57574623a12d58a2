# SPDX-License-Identifier: Apache-2.0
"""Clusters, of which there is one, and the objects that operators keep about one.

Failure domains and isolation policies are kept and shown, as admin tools expect it, and have no effect: they share
brokers out, and here there is one, which serves every namespace. Source: Pulsar docs, "Admin API - clusters", "Isolate
brokers".
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from starlette.responses import Response

from broker_core.base.names import shown_name
from broker_core.broker.directory.topic_registry import Namespaces
from broker_core.server.admin.answers import BadRequestError, ConflictError, MissingError, RefusedError
from broker_core.server.admin.namespace_object import BUNDLE
from broker_core.server.admin.requests import AdminRequest, Route
from broker_core.server.security import needs

_DOMAINS: Final = "failureDomains"
_ISOLATION: Final = "isolationPolicies"

_NAMES_MAX: Final = 1000
_NAME_MAX: Final = 1024

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=_NAME_MAX)]
_Names = Annotated[list[_Name], msgspec.Meta(max_length=_NAMES_MAX)]


class FailureDomain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Brokers that may fail together."""

    brokers: _Names = []


class Failover(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When secondary brokers would take over."""

    policy_type: Literal["min_available"]
    parameters: dict[_Name, _Name]


class IsolationPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Namespaces, as regular expressions, and the brokers that would serve them."""

    namespaces: Annotated[_Names, msgspec.Meta(min_length=1)]
    primary: Annotated[_Names, msgspec.Meta(min_length=1)]
    auto_failover_policy: Failover
    secondary: _Names = []
    unload_scope: Literal["all_matching", "none", "changed"] | None = None


async def list_clusters(request: AdminRequest) -> object:
    """The name of the one cluster: clusterName of the settings."""
    return [request.cluster]


async def get_cluster(request: AdminRequest) -> object:
    """Addresses of the one cluster; those of ports that there are not are left out."""
    node = request.node
    request.existing_cluster()
    urls = {
        "serviceUrl": node.http_url,
        "serviceUrlTls": node.http_url_tls,
        "brokerServiceUrl": node.service_url,
        "brokerServiceUrlTls": node.service_url_tls,
    }
    return {name: url for name, url in urls.items() if url}


async def put_cluster(request: AdminRequest) -> None:
    """Refused: the one that there is exists (409), and there can be no other (405)."""
    cluster = request.part("cluster")
    if cluster == request.cluster:
        raise ConflictError(f"cluster {cluster!r} exists already")
    raise RefusedError(405, f"cluster {shown_name(cluster)} cannot be made: this broker is a cluster by itself")


async def update_cluster(request: AdminRequest) -> None:
    """Refused (405): its addresses are those at which this broker listens."""
    cluster = request.existing_cluster()
    raise RefusedError(405, f"cluster {cluster!r} cannot be changed: its addresses are those of this broker")


async def delete_cluster(request: AdminRequest) -> None:
    """Refused (405): there is one cluster, which is this broker."""
    cluster = request.existing_cluster()
    raise RefusedError(405, f"cluster {cluster!r} cannot be deleted: it is this broker")


async def get_peers(request: AdminRequest) -> object:
    """Clusters that stand in for this one: none."""
    request.existing_cluster()
    return Response(media_type="application/json")


async def set_peers(request: AdminRequest) -> None:
    """Refused (412), unless the body names none: there is no other cluster."""
    request.existing_cluster()
    if wanted := await request.body_as(list[str] | None):
        raise RefusedError(412, f"cluster {wanted[0][:80]!r} is no other cluster that could be a peer")


# -- what is kept about the cluster, without effect


def _kept(request: AdminRequest, kind: str) -> Mapping[str, Any]:
    request.existing_cluster()
    return request.broker.policies.of_cluster(kind)


def _named(request: AdminRequest, kind: str, name: str) -> Any:
    found = _kept(request, kind).get(name)
    if found is None:
        raise MissingError(f"{shown_name(name)} is none of the {kind} of cluster {request.cluster!r}")
    return found


async def _keep(request: AdminRequest, kind: str, name: str, of: type[Any]) -> None:
    request.existing_cluster()
    if not name or len(name) > _NAME_MAX:
        raise BadRequestError(f"{name[:80]!r} is no name; use 1 to {_NAME_MAX} characters")
    value = await request.body_as(of)
    if value is None:
        raise BadRequestError("the request has no body")
    request.broker.policies.keep_of_cluster(kind, name, _plain(value))


def _plain(value: Any) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(value)
    return {field: each for field, each in plain.items() if each is not None}


async def list_domains(request: AdminRequest) -> object:
    """The failure domains, by name; they have no effect, for there is one broker."""
    return _kept(request, _DOMAINS)


async def get_domain(request: AdminRequest) -> object:
    """The brokers of a failure domain."""
    return _named(request, _DOMAINS, request.part("domain"))


async def set_domain(request: AdminRequest) -> None:
    """Keep a failure domain; it has no effect, for there is one broker."""
    await _keep(request, _DOMAINS, request.part("domain"), FailureDomain)


async def delete_domain(request: AdminRequest) -> object:
    """Forget a failure domain."""
    name = request.part("domain")
    _named(request, _DOMAINS, name)
    request.broker.policies.keep_of_cluster(_DOMAINS, name, None)
    return Response(status_code=200)


async def list_isolation(request: AdminRequest) -> object:
    """The isolation policies, by name; 404 if there are none. They have no effect: one broker serves all."""
    found = _kept(request, _ISOLATION)
    if not found:
        raise MissingError(f"cluster {request.cluster!r} has no isolation policies")
    return found


async def get_isolation(request: AdminRequest) -> object:
    """An isolation policy."""
    return _named(request, _ISOLATION, request.part("policy"))


async def set_isolation(request: AdminRequest) -> None:
    """Keep an isolation policy; it has no effect, for one broker serves all namespaces."""
    await _keep(request, _ISOLATION, request.part("policy"), IsolationPolicy)


async def delete_isolation(request: AdminRequest) -> None:
    """Forget an isolation policy."""
    name = request.part("policy")
    _kept(request, _ISOLATION)
    request.broker.policies.keep_of_cluster(_ISOLATION, name, None)


def _isolated(request: AdminRequest) -> dict[str, object]:
    """This broker, to which no policy assigns anything."""
    return {"brokerName": request.broker_id, "policyName": "", "isPrimary": False, "namespaceRegex": []}


async def list_isolated_brokers(request: AdminRequest) -> object:
    """The one broker, which no isolation policy has any effect on."""
    await list_isolation(request)
    return [_isolated(request)]


async def get_isolated_broker(request: AdminRequest) -> object:
    """The same for the broker in the path, which must be this one."""
    await list_isolation(request)
    _check_broker(request)
    return _isolated(request)


async def list_owned(request: AdminRequest) -> object:
    """The bundles that the broker in the path serves: the one bundle of each namespace."""
    request.existing_cluster()
    _check_broker(request)
    return await request.in_turns(_owned(request.broker.namespaces))


def _owned(namespaces: Namespaces) -> Generator[None, None, dict[str, object]]:
    found: dict[str, object] = {}
    for number, name in enumerate(namespaces.all()):
        found[f"{name}/{BUNDLE}"] = _OWNED
        if not number % _NAMES_A_STEP:
            yield
    return found


_NAMES_A_STEP: Final = 1000

_OWNED: Final = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}


def _check_broker(request: AdminRequest) -> None:
    if (broker := request.part("broker")) != request.broker_id:
        raise MissingError(f"there is no broker {broker[:80]!r}, only this one, {request.broker_id!r}")


_C: Final = "/admin/v2/clusters"
_ONE: Final = f"{_C}/{{cluster}}"
_D: Final = f"{_ONE}/failureDomains"
_I: Final = f"{_ONE}/namespaceIsolationPolicies"

ROUTES: Final = [
    Route(_C, list_clusters, needs.KNOWN),
    Route(_ONE, get_cluster, needs.of_clusters("GET_CLUSTER")),
    Route(_ONE, put_cluster, needs.of_clusters("CREATE_CLUSTER"), methods=["PUT"]),
    Route(_ONE, update_cluster, needs.of_clusters("UPDATE_CLUSTER"), methods=["POST"]),
    Route(_ONE, delete_cluster, needs.of_clusters("DELETE_CLUSTER"), methods=["DELETE"]),
    Route(f"{_ONE}/peers", get_peers, needs.of_clusters("GET_PEER_CLUSTER")),
    Route(f"{_ONE}/peers", set_peers, needs.of_clusters("UPDATE_PEER_CLUSTER"), methods=["POST"]),
    Route(_D, list_domains, needs.of_clusters("GET_FAILURE_DOMAIN")),
    Route(f"{_D}/{{domain}}", get_domain, needs.of_clusters("GET_FAILURE_DOMAIN")),
    Route(f"{_D}/{{domain}}", set_domain, needs.of_clusters("UPDATE_FAILURE_DOMAIN"), methods=["POST"]),
    Route(f"{_D}/{{domain}}", delete_domain, needs.of_clusters("DELETE_FAILURE_DOMAIN"), methods=["DELETE"]),
    Route(_I, list_isolation, needs.of_cluster_policies("READ")),
    Route(f"{_I}/brokers", list_isolated_brokers, needs.of_cluster_policies("READ")),
    Route(f"{_I}/brokers/{{broker}}", get_isolated_broker, needs.of_cluster_policies("READ")),
    Route(f"{_I}/{{policy}}", get_isolation, needs.of_cluster_policies("READ")),
    Route(f"{_I}/{{policy}}", set_isolation, needs.of_cluster_policies("WRITE"), methods=["POST"]),
    Route(f"{_I}/{{policy}}", delete_isolation, needs.of_cluster_policies("WRITE"), methods=["DELETE"]),
    Route(
        "/admin/v2/brokers/{cluster}/{broker}/ownedNamespaces", list_owned, needs.of_brokers("LIST_OWNED_NAMESPACES")
    ),
]
