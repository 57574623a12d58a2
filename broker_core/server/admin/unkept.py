# SPDX-License-Identifier: Apache-2.0
"""Policies of Pulsar that this broker does not keep: answered as where nobody has set them.

Admin tools ask for them, and remove them, without asking first whether there is such a thing. Setting one is refused
(405) with the reason, unless what is asked for holds anyway: a policy that was taken and did nothing would be a lie.
Owns the table of them, from which docs/admin.md is made. Source: Pulsar docs, "Admin API - namespaces", "Topic
policies"; the answers are those of a standalone Apache Pulsar.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from broker_core.base.positions import POSITION_EARLIEST
from broker_core.server.admin.answers import RefusedError, json_answer
from broker_core.server.admin.kept import NO_OFFLOADING, ONE_CLUSTER, keep, kept_at
from broker_core.server.admin.policies import Level, whole_topic
from broker_core.server.admin.requests import AdminRequest, Handler, Route, message_id
from broker_core.server.security import needs


@dataclass(frozen=True, slots=True)
class Unkept:
    """One such policy. ``namespace`` and ``topic``: its paths at each level, "" where Pulsar has none; ``why`` it is
    not kept; ``method`` that sets it. ``unset``: what is answered to a GET, None for nothing. ``removable``: whether
    there is a DELETE.
    """

    namespace: str
    topic: str
    why: str
    method: str = "POST"
    unset: Any = None
    removable: bool = True


UNKEPT: Final = (
    Unkept("offloadPolicies", "offloadPolicies", NO_OFFLOADING),
    Unkept("encryptionRequired", "", "producers are not asked whether they encrypt", unset=False),
    Unkept("entryFilters", "entryFilters", "there are no filters of entries"),
)


def _handlers(policy: Unkept, name: str) -> dict[str, Handler]:
    async def get(request: AdminRequest) -> object:
        _check_place(request)
        return Response(media_type="application/json") if policy.unset is None else json_answer(policy.unset)

    async def set_(request: AdminRequest) -> None:
        _check_place(request)
        wanted = await request.body_as(Any)
        if wanted not in (None, policy.unset) and wanted != _written(policy.unset):
            raise RefusedError(405, f"{name} of {str(wanted)[:80]!r} cannot be set: {policy.why}")

    async def remove(request: AdminRequest) -> None:
        _check_place(request)

    removing: dict[str, Handler] = {"DELETE": remove} if policy.removable else {}
    return {"GET": get, policy.method: set_, **removing}


def _written(value: object) -> object:
    """A truth as Go's admin library sends it: as text."""
    return str(value).lower() if isinstance(value, bool) else value


def _check_place(request: AdminRequest) -> None:
    """An error if the namespace or the topic in the path does not exist."""
    if "topic" in request.path_params:
        whole_topic(request)
    else:
        request.existing_namespace()


# -- requests of their own kind

_CLUSTERS: Final = "replication_clusters"


async def get_clusters(request: AdminRequest) -> object:
    """The clusters that a namespace is replicated to, which is the one that there is; of a topic nothing until set."""
    _check_place(request)
    if "topic" not in request.path_params or request.flag("applied"):
        return [request.cluster]
    kept = kept_at(Level(request), _CLUSTERS)
    return Response(media_type="application/json") if kept is None else kept


async def set_clusters(request: AdminRequest) -> object:
    """Refused (403, of a topic 412), unless the body names the one cluster."""
    _check_place(request)
    wanted = await request.body_as(list[str] | None)
    of_topic = "topic" in request.path_params
    if wanted and set(wanted) != {request.cluster}:
        raise RefusedError(412 if of_topic else 403, f"{str(wanted)[:80]} is not [{request.cluster!r}]: {ONE_CLUSTER}")
    if of_topic and wanted:
        await keep(Level(request), _CLUSTERS, [request.cluster])
    return Response(status_code=204 if of_topic else 200)


async def remove_clusters(request: AdminRequest) -> None:
    """A topic has none of its own again; of a namespace nothing is to be done: there is one cluster."""
    _check_place(request)
    if "topic" in request.path_params:
        await keep(Level(request), _CLUSTERS, None)


async def not_run(request: AdminRequest) -> object:
    """How far offloading has come: it was never begun."""
    first = message_id(request.single_topic(), POSITION_EARLIEST)
    return {"status": "NOT_RUN", "lastError": "", "firstUnoffloadedMessage": first}


async def refuse_run(request: AdminRequest) -> None:
    """Refused (405): nothing is offloaded to another store."""
    request.single_topic()
    raise RefusedError(405, f"this broker cannot begin it: {NO_OFFLOADING}")


_N: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_T: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"

_OFFLOADING: Final = needs.of_topic("OFFLOAD")


def _routes() -> list[Route]:
    routes = []
    for policy in UNKEPT:
        for level, name in ((_N, policy.namespace), (_T, policy.topic)):
            for method, handler in _handlers(policy, name).items() if name else ():
                need = needs.of_policy(name, method, of_topic=level == _T)
                routes.append(Route(f"{level}/{name}", handler, need, methods=[method], loads=False))
    return routes


ROUTES: Final = _routes()

OWN_ROUTES: Final = [
    *(
        Route(
            f"{level}/replication",
            handler,
            needs.of_policy("replication", method, of_topic=level == _T),
            methods=[method],
            loads=False,
        )
        for level in (_N, _T)
        for method, handler in (("GET", get_clusters), ("POST", set_clusters), ("DELETE", remove_clusters))
    ),
    Route(f"{_T}/offload", not_run, _OFFLOADING),
    Route(f"{_T}/offload", refuse_run, _OFFLOADING, methods=["PUT"]),
]
