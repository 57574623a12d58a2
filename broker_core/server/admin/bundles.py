# SPDX-License-Identifier: Apache-2.0
"""Bundles: the ranges of hashes by which a cluster shares topics out, of which there is one for each namespace here.

Resource quotas are kept and shown, as admin tools expect it, and have no effect: a cluster shares bundles out by them.
Source: Pulsar docs, "Admin API - namespaces", "- resource quotas".
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from starlette.convertors import StringConvertor, register_url_convertor

from broker_core.server.admin.answers import BadRequestError, ConflictError, RefusedError
from broker_core.server.admin.kept import keep, kept_at
from broker_core.server.admin.namespace_object import BUNDLE, BUNDLES
from broker_core.server.admin.policies import Level
from broker_core.server.admin.requests import AdminRequest, Route
from broker_core.server.admin.subscriptions import (
    CLEARING,
    CLEARING_OF_ALL,
    UNSUBSCRIBING,
    clear_namespace,
    unsubscribe_namespace,
)
from broker_core.server.admin.tenants import unload_namespace
from broker_core.server.security import needs
from broker_core.server.security.rights import Right


def _check_bundle(request: AdminRequest) -> None:
    """A refusal if the namespace in the path does not exist or has no such bundle."""
    request.existing_namespace()
    if (bundle := request.part("bundle")) != BUNDLE:
        raise RefusedError(412, f"there is no bundle {bundle[:80]!r}, only {BUNDLE!r}: one broker serves all topics")


async def get_bundles(request: AdminRequest) -> object:
    """The bundles of a namespace: one."""
    request.existing_namespace()
    return BUNDLES


async def unload_bundle(request: AdminRequest) -> None:
    """Unload every topic of the bundle, which is every topic of the namespace."""
    _check_bundle(request)
    wanted = request.query_params.get("destinationBroker")
    if wanted is not None and wanted != request.broker_id:
        raise RefusedError(409, f"there is no broker {wanted[:80]!r}, only this one, {request.broker_id!r}")
    await unload_namespace(request)


async def clear_bundle(request: AdminRequest) -> None:
    """Pass over the whole backlog of every subscription, or of the one in the path, of all topics of the bundle."""
    _check_bundle(request)
    await clear_namespace(request)


async def unsubscribe_bundle(request: AdminRequest) -> None:
    """Delete the subscription from all topics of the bundle; refused while one of them has consumers."""
    _check_bundle(request)
    await unsubscribe_namespace(request)


async def split_bundle(request: AdminRequest) -> None:
    """Refused (405): one broker serves all topics, so there is nothing to share out."""
    _check_bundle(request)
    raise RefusedError(405, f"bundle {BUNDLE!r} cannot be split: one broker serves all topics")


async def delete_bundle(request: AdminRequest) -> None:
    """Refused (409) while there are topics in it; otherwise nothing is to be done: the range stays."""
    _check_bundle(request)
    if await request.in_turns(request.broker.registry.topics_in_steps(request.namespace_name)):
        raise ConflictError(f"bundle {BUNDLE!r} of {str(request.namespace_name)!r} has topics; delete them first")


# -- resource quotas

_QUOTAS: Final = "resourceQuotas"
_DEFAULT: Final = "default"
_OF_BUNDLE: Final = "resourceQuota"

_Amount = Annotated[float, msgspec.Meta(ge=0)]


class ResourceQuota(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The load that a bundle would be expected to bring: per second, but for memory, MB."""

    msg_rate_in: _Amount = 40.0
    msg_rate_out: _Amount = 120.0
    bandwidth_in: _Amount = 100_000.0
    bandwidth_out: _Amount = 300_000.0
    memory: _Amount = 80.0
    dynamic: bool = True


async def _quota(request: AdminRequest) -> dict[str, object]:
    quota = await request.body_as(ResourceQuota | None)
    if quota is None:
        raise BadRequestError("the request has no body")
    found: dict[str, object] = msgspec.to_builtins(quota)
    return found


async def get_default_quota(request: AdminRequest) -> object:
    """The resource quota of bundles that have none of their own; it has no effect, for there is one broker."""
    return request.broker.policies.of_cluster(_QUOTAS).get(_DEFAULT) or ResourceQuota()


async def set_default_quota(request: AdminRequest) -> None:
    """Keep a resource quota for bundles that have none of their own, without effect."""
    request.broker.policies.keep_of_cluster(_QUOTAS, _DEFAULT, await _quota(request))


async def get_quota(request: AdminRequest) -> object:
    """The resource quota of a bundle; it has no effect, for there is one broker."""
    _check_bundle(request)
    return kept_at(Level(request), _OF_BUNDLE) or await get_default_quota(request)


async def set_quota(request: AdminRequest) -> None:
    """Keep a resource quota for a bundle, without effect."""
    _check_bundle(request)
    await keep(Level(request), _OF_BUNDLE, await _quota(request))


async def remove_quota(request: AdminRequest) -> None:
    """Leave a bundle to the default resource quota again."""
    _check_bundle(request)
    await keep(Level(request), _OF_BUNDLE, None)


class _Hashes(StringConvertor):
    """A range of hashes: anything else at the end of a namespace's path is the name of a policy."""

    regex = "0x[0-9a-fA-F]{8}_0x[0-9a-fA-F]{8}"


register_url_convertor("hashes", _Hashes())

_N: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_B: Final = f"{_N}/{{bundle}}"
_Q: Final = "/admin/v2/resource-quotas"
_Q_OF_BUNDLE: Final = f"{_Q}/{{tenant}}/{{namespace}}/{{bundle}}"

ROUTES: Final = [
    Route(f"{_N}/bundles", get_bundles, needs.of_namespace("GET_BUNDLE", Right.USE_NAMESPACE)),
    Route(f"{_B}/unload", unload_bundle, needs.SUPERUSER, methods=["PUT"]),
    Route(f"{_B}/clearBacklog", clear_bundle, CLEARING_OF_ALL, methods=["POST"]),
    Route(f"{_B}/clearBacklog/{{subscription}}", clear_bundle, CLEARING, methods=["POST"]),
    Route(f"{_B}/unsubscribe/{{subscription}}", unsubscribe_bundle, UNSUBSCRIBING, methods=["POST"]),
    Route(f"{_B}/split", split_bundle, needs.SUPERUSER, methods=["PUT"]),
    Route(_Q, get_default_quota, needs.SUPERUSER),
    Route(_Q, set_default_quota, needs.SUPERUSER, methods=["POST"]),
    Route(_Q_OF_BUNDLE, get_quota, needs.SUPERUSER),
    Route(_Q_OF_BUNDLE, set_quota, needs.SUPERUSER, methods=["POST"]),
    Route(_Q_OF_BUNDLE, remove_quota, needs.SUPERUSER, methods=["DELETE"]),
    Route(f"{_N}/{{bundle:hashes}}", delete_bundle, needs.of_namespace("DELETE_BUNDLE"), methods=["DELETE"]),
]
