# SPDX-License-Identifier: Apache-2.0
"""Policies that this broker keeps and shows, though nothing here acts on them.

Admin tools set them for a cluster's sake: bookies, offloading, replication. They are checked as
Pulsar checks them, stay until they are removed, and are in the object of their namespace; docs/admin.md has the table
of them, with the reason for which each has no effect. Policies that would promise something to clients, such as
encryption, are not here but refused (``unkept``). Source: Pulsar docs, "Admin API - namespaces", "Topic policies".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
from starlette.responses import Response

from broker_core.base.errors import NotAllowedError
from broker_core.base.policies import DispatchRate
from broker_core.server.admin.answers import BadRequestError, RefusedError, json_answer
from broker_core.server.admin.bodies import converted, decoded
from broker_core.server.admin.policies import Level
from broker_core.server.admin.requests import AdminRequest, Handler, Route
from broker_core.server.security import needs

ONE_CLUSTER: Final = "this broker is a cluster by itself"
NO_BOOKIES: Final = "entries are in files of this broker, and not with bookies"
NO_OFFLOADING: Final = "nothing is offloaded to another store"

_NAME_MAX: Final = 1024
_LONG_MIN: Final = -(2**63)
_LONG_MAX: Final = 2**63 - 1
_INT_MAX: Final = 2**31 - 1

_Name = Annotated[str, msgspec.Meta(max_length=_NAME_MAX)]
_Number = Annotated[int, msgspec.Meta(ge=0, le=_INT_MAX)]


class Persistence(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """On how many bookies entries would be, and how often cursors would be stored."""

    bookkeeper_ensemble: _Number = 2
    bookkeeper_write_quorum: _Number = 2
    bookkeeper_ack_quorum: _Number = 2
    managed_ledger_max_mark_delete_rate: float = 0.0
    managed_ledger_storage_class_name: _Name | None = None

    def check(self) -> None:
        """NotAllowedError if these numbers contradict each other."""
        ensemble, write, ack = self.bookkeeper_ensemble, self.bookkeeper_write_quorum, self.bookkeeper_ack_quorum
        if not ensemble >= write >= ack > 0:
            raise NotAllowedError(
                f"an ensemble of {ensemble}, a write quorum of {write} and an ack quorum of {ack} do not fit",
                hint="none of them may be 0, or greater than the one before it",
            )
        if self.managed_ledger_max_mark_delete_rate < 0:
            raise NotAllowedError("managedLedgerMaxMarkDeleteRate is negative", hint="use 0 for no limit")


class BookieAffinity(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Groups of bookies that would have the entries."""

    bookkeeper_affinity_group_primary: _Name | None = None
    bookkeeper_affinity_group_secondary: _Name | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """One such policy. ``field``: its name in the object of a namespace, under which it is kept; ``namespace`` and
    ``topic``: its paths at each level, "" where there is none; ``why`` it has no effect; ``kind`` of value; ``method``
    that sets it. ``unset``: what is answered where nobody has set it, None for nothing. ``least``: the smallest number.
    ``hidden``: it is not in the object of a namespace.
    """

    field: str
    namespace: str
    topic: str
    why: str
    kind: Any
    method: str = "POST"
    unset: Any = None
    least: int = 0
    hidden: bool = False

    def value(self, content: Any) -> Any:
        """``content``, which JSON was decoded to, as plain values; a refusal if it is none of this policy."""
        try:
            return self._checked(converted(content, self.kind))
        except msgspec.ValidationError as error:
            raise BadRequestError(f"{self.field} cannot be read: {error}") from error

    def read(self, content: bytes) -> Any:
        """The same of the body of a request."""
        try:
            return self._checked(decoded(content, self.kind))
        except msgspec.DecodeError as error:
            if self.field == _GROUP and content.isascii() and len(content) <= _NAME_MAX:
                return content.decode()  # Pulsar's own client writes no JSON here
            raise BadRequestError(f"the request body cannot be read: {error}") from error

    def _checked(self, value: Any) -> Any:
        if isinstance(value, Persistence):
            try:
                value.check()
            except NotAllowedError as error:
                raise BadRequestError(str(error)) from error
        if self.kind is int and not self.least <= value <= _LONG_MAX:
            raise RefusedError(412, f"{self.field} cannot be {value}: it must be {self.least} or more")
        plain = msgspec.to_builtins(value)
        return {field: each for field, each in plain.items() if each is not None} if isinstance(plain, dict) else plain


_GROUP: Final = "antiAffinityGroup"

KEPT: Final = (
    Kept("persistence", "persistence", "persistence", NO_BOOKIES, Persistence),
    Kept("bookieAffinity", "persistence/bookieAffinity", "", NO_BOOKIES, BookieAffinity, hidden=True),
    Kept("offload_threshold", "offloadThreshold", "", NO_OFFLOADING, int, "PUT", -1, _LONG_MIN),
    Kept("offload_threshold_in_seconds", "offloadThresholdInSeconds", "", NO_OFFLOADING, int, "PUT", -1, _LONG_MIN),
    Kept("offload_deletion_lag_ms", "offloadDeletionLagMs", "", NO_OFFLOADING, int, "PUT", least=_LONG_MIN),
    Kept("replicatorDispatchRate", "replicatorDispatchRate", "replicatorDispatchRate", ONE_CLUSTER, DispatchRate),
    Kept(_GROUP, "antiAffinity", "", ONE_CLUSTER, _Name, hidden=True),
)

OF_NAMESPACES: Final = {policy.field: policy for policy in KEPT if policy.namespace}
"""Kept policies of namespaces, by their fields."""


def _handlers(policy: Kept) -> dict[str, Handler]:
    async def get(request: AdminRequest) -> object:
        level = Level(request)
        value = kept_at(level, policy.field)
        if value is None and level.of_topic and request.flag("applied"):
            value = (request.broker.policies.of_namespace(request.namespace_name).kept or {}).get(policy.field)
        value = policy.unset if value is None else value
        if policy.field == _GROUP and value is not None:
            return Response(value, media_type="application/json")  # as Pulsar, which shows what it was given
        if value is None:
            return Response(media_type="application/json")
        return json_answer(value)

    async def set_(request: AdminRequest) -> None:
        level = Level(request)
        level.read()
        content = (await request.body()).strip()
        await keep(level, policy.field, None if content in (b"", b"null") else policy.read(content))

    async def remove(request: AdminRequest) -> None:
        await keep(Level(request), policy.field, None)

    return {"GET": get, policy.method: set_, "DELETE": remove}


def kept_at(level: Level, field: str) -> Any:
    """Value that is kept under ``field`` for the namespace or topic of a request; None if there is none."""
    return (level.read().kept or {}).get(field)


async def keep(level: Level, field: str, value: Any) -> None:
    """Keep ``value`` there; None: keep nothing."""
    others = {name: each for name, each in (level.read().kept or {}).items() if name != field}
    await level.change(kept=(others if value is None else {**others, field: value}) or None)


_N: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_T: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"


def _routes() -> list[Route]:
    routes = []
    for policy in KEPT:
        for level, name in ((_N, policy.namespace), (_T, policy.topic)):
            for method, handler in _handlers(policy).items() if name else ():
                need = needs.of_policy(name, method, of_topic=level == _T)
                routes.append(Route(f"{level}/{name}", handler, need, methods=[method], loads=False))
    return routes


ROUTES: Final = _routes()


async def list_anti_affine(request: AdminRequest) -> object:
    """The namespaces of the tenant `?tenant=` that are in an anti-affinity group, which has no effect."""
    request.existing_cluster()
    tenant, group = request.query_params.get("tenant"), request.part("group")
    if not tenant:
        raise BadRequestError("the request names no tenant; add ?tenant=")
    names = request.broker.namespaces.namespaces(tenant)
    return [str(name) for name in names if (request.broker.policies.of_namespace(name).kept or {}).get(_GROUP) == group]


OWN_ROUTES: Final = [
    Route("/admin/v2/namespaces/{cluster}/antiAffinity/{group}", list_anti_affine, needs.SUPERUSER),
]
