# SPDX-License-Identifier: Apache-2.0
"""Policies of namespaces and topics: read, set, remove, one path for each, under Pulsar's names and status codes.

The table of policies says under which name a policy is found at each level, and which body and answers it has; with
``?applied=true`` a topic answers with the value in force whatever level it comes from. A policy that is not set is an
empty answer, as in Pulsar. A partition has no policies of its own: they are set for the topic that it is part of.
Stricter than Pulsar: a body with a field that the policy does not have is refused (400), and removing is possible for
every policy. Policies that this broker would not act on have no path; what means nothing to a topic that is not stored
cannot be set for one (405). Source: Pulsar docs, "Admin API - namespaces", "Topic policies"; semantics 1.1.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.responses import Response

from broker_core.base.errors import NotAllowedError
from broker_core.base.names import TopicName
from broker_core.base.policies import (
    COUNT_MAX,
    NO_POLICIES,
    POLICIES,
    AutoTopicCreation,
    BacklogQuota,
    DelayedDelivery,
    DispatchRate,
    Policies,
    Policy,
    Retention,
)
from broker_core.server.admin.answers import BadRequestError, MissingError, RefusedError, json_answer
from broker_core.server.admin.bodies import decoded
from broker_core.server.admin.requests import AdminRequest, Handler, Route
from broker_core.server.security import needs

_DIGITS_MAX: Final = 20


# -- the levels


@dataclass(frozen=True, slots=True)
class Level:
    """Level at which policies are read and written: the namespace or the topic in the path of one request."""

    request: AdminRequest

    @property
    def of_topic(self) -> bool:
        return "topic" in self.request.path_params

    @property
    def letter(self) -> str:
        return "T" if self.of_topic else "N"

    def read(self) -> Policies:
        """The policies; 404 if there is no such namespace or topic, 412 for a partition."""
        policies = self.request.broker.policies
        if self.of_topic:
            return policies.of_topic(whole_topic(self.request))
        return policies.of_namespace(self.request.existing_namespace())

    async def change(self, **fields: object) -> None:
        """Set these fields; NotAllowedError if they contradict something."""
        broker = self.request.broker
        policies = msgspec.structs.replace(self.read(), **fields)
        if self.of_topic:
            applying = broker.set_topic_policies(self.request.existing_topic(), policies)
        else:
            applying = broker.set_namespace_policies(self.request.namespace_name, policies)
        await self.request.in_turns(applying)

    def in_force(self, policy: Policy) -> object:
        """The value that holds for the topic in the path, whatever says so."""
        policies, name = self.request.broker.policies, self.request.existing_topic()
        return policy.in_force(policies.settings_of(name), policies.quotas_of(name))


def whole_topic(request: AdminRequest) -> TopicName:
    """The topic in the path, which must not be a partition: as in Pulsar these have no policies of their own."""
    name = request.topic_name
    if name.partition_index >= 0:
        raise RefusedError(412, f"{name} is a partition; policies are set for {name.base}")
    return request.existing_topic()


def _check_stored(request: AdminRequest, unstored: bool = False) -> None:
    """405 for a topic that is not stored, unless the policy holds for those too."""
    if "topic" in request.path_params and not request.topic_name.persistent and not unstored:
        raise RefusedError(405, f"{request.topic_name} is not persistent: the policy would not mean anything")


def _value(content: bytes, policy: Policy, name: str) -> object:
    """The body as a value of the policy; 400 if it is of another kind, ``bad_value`` if it is out of bounds."""
    try:
        value: Any = _delayed_delivery(content) if policy.kind is DelayedDelivery else decoded(content, policy.kind)
    except msgspec.DecodeError as error:
        raise BadRequestError(f"the request body cannot be read: {error}") from error
    if isinstance(value, tuple):
        return _as_field(policy.field, list(dict.fromkeys(value)))  # in Pulsar it is a set
    if policy.kind is int:
        _check_count(value, name, policy.largest)
    if isinstance(value, Retention | AutoTopicCreation | DispatchRate):
        try:
            value.check()
        except NotAllowedError as error:
            raise RefusedError(policy.bad_value, str(error)) from error
    return _as_field(policy.field, value)


class _DelayedDeliveryBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Delayed delivery as clients send it: Go's admin library has a name of its own for the longest delay."""

    active: bool = False
    tick_time: int = 0
    max_delivery_delay_in_millis: int = 0
    max_delay_in_millis: int = 0


def _delayed_delivery(content: bytes) -> DelayedDelivery:
    body: _DelayedDeliveryBody = decoded(content, _DelayedDeliveryBody)
    longest_ms = body.max_delivery_delay_in_millis or body.max_delay_in_millis
    asked = {"active": body.active, "tickTime": body.tick_time, "maxDeliveryDelayInMillis": longest_ms}
    return msgspec.convert(asked, DelayedDelivery)


def _check_count(value: int, name: str, largest: int = COUNT_MAX) -> None:
    if value < 0:
        raise RefusedError(412, f"{name} cannot be {value}: it must be 0 or more")
    if value > largest:
        raise RefusedError(412, f"{name} cannot be {value}: it must be {largest} or less")


def _as_field(field: str, value: object) -> object:
    """``value`` as the field has it."""
    return getattr(msgspec.convert({_ENCODED[field]: msgspec.to_builtins(value)}, Policies), field)


_ENCODED: Final = {field.name: field.encode_name for field in msgspec.structs.fields(Policies)}


def _answer(value: object) -> Response:
    """A value as JSON; nothing for None."""
    return Response(status_code=200, media_type="application/json") if value is None else json_answer(value)


def _handlers(policy: Policy) -> dict[str, Handler]:
    async def get(request: AdminRequest) -> object:
        level = Level(request)
        value = getattr(level.read(), policy.field)
        if value is None and policy.applied and level.of_topic and request.flag("applied"):
            value = level.in_force(policy)
        if value is not None:
            return _answer(value)
        if policy.no_content and (level.of_topic or not policy.topic):
            return None
        return _answer(policy.unset if level.of_topic else policy.unset_of_namespace or policy.unset)

    async def post(request: AdminRequest) -> None:
        level = Level(request)
        level.read()
        content = (await request.body()).strip()
        if content in (b"", b"null"):
            if level.letter not in policy.null_removes:
                raise BadRequestError("the request has no body; remove a policy with DELETE")
            await delete(request)
            return
        _check_stored(request, policy.unstored)
        await level.change(**{policy.field: _value(content, policy, policy.path(level.letter))})

    async def delete(request: AdminRequest) -> None:
        await Level(request).change(**{policy.field: None})

    return {"GET": get, policy.method: post, "DELETE": delete}


# -- requests of their own kind


async def set_topic_ttl(request: AdminRequest) -> None:
    """The seconds are in the query; without them the policy is removed, as in Pulsar."""
    level, text = Level(request), request.query_params.get("messageTTL")
    if text is None:
        await level.change(message_ttl_in_seconds=None)
        return
    level.read()
    _check_stored(request)
    if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) <= _DIGITS_MAX):
        raise BadRequestError(f"{text[:80]!r} is not a number of seconds")
    _check_count(int(text), "messageTTL")
    await level.change(message_ttl_in_seconds=int(text))


class _QuotaBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A quota as clients send it: the older ones call the size ``limit``."""

    policy: str = ""
    limit: int | None = None
    limit_size: int | None = None
    limit_time: int | None = None


async def get_quotas(request: AdminRequest) -> object:
    level, policies = Level(request), request.broker.policies
    quotas = level.read().backlog_quota_map or {}
    if not quotas and level.of_topic and request.flag("applied"):
        applied = policies.quotas_of(request.existing_topic())
        quotas = {"destination_storage": applied.size, "message_age": applied.age}
    return {kind: quota_answer(quota) for kind, quota in quotas.items()}


def quota_answer(quota: BacklogQuota) -> dict[str, object]:
    """One backlog quota; the older clients call its size ``limit``."""
    size = quota.limit_bytes
    return {"limit": size, "limitSize": size, "limitTime": quota.limit_s, "policy": quota.policy}


async def set_quota(request: AdminRequest) -> None:
    """Set one of the two quotas. A limit that is left out is none; a quota without any limit is refused."""
    level, kind = Level(request), _quota_kind(request)
    level.read()
    _check_stored(request)
    quota = _quota(await request.body())
    quotas = dict(level.read().backlog_quota_map or {})  # read again, because they may have changed while the body came
    quotas[kind] = quota  # type: ignore[index] # _quota_kind knows the two
    await level.change(backlog_quota_map=quotas)


async def remove_quota(request: AdminRequest) -> None:
    level, kind = Level(request), _quota_kind(request)
    quotas = {name: quota for name, quota in (level.read().backlog_quota_map or {}).items() if name != kind}
    await level.change(backlog_quota_map=quotas or None)


def _quota(content: bytes) -> BacklogQuota:
    try:
        asked: _QuotaBody = decoded(content, _QuotaBody)
        size = asked.limit if asked.limit_size is None else asked.limit_size
        if size is None and asked.limit_time is None:
            raise BadRequestError("a backlog quota needs limitSize or limitTime")
        limits = {"limitSize": size, "limitTime": asked.limit_time}
        given = {name: value for name, value in limits.items() if value is not None}
        return msgspec.convert({**given, "policy": asked.policy}, BacklogQuota)
    except msgspec.DecodeError as error:
        raise BadRequestError(f"the backlog quota cannot be read: {error}") from error


def _quota_kind(request: AdminRequest) -> str:
    kind = request.query_params.get("backlogQuotaType", "destination_storage")
    if kind not in ("destination_storage", "message_age"):
        raise MissingError(f"there is no backlog quota of type {kind[:80]!r}; it is destination_storage or message_age")
    return kind


async def remove_all(request: AdminRequest) -> None:
    """Remove everything that is set for a topic: what its namespace or the broker says holds again."""
    await request.in_turns(request.broker.set_topic_policies(request.existing_topic(), NO_POLICIES))


_N = "/admin/v2/namespaces/{tenant}/{namespace}"
_T = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
_NON_PERSISTENT = "/admin/v2/non-persistent/{tenant}/{namespace}/{topic}"


def _route(level: str, name: str, handler: Handler, method: str = "GET") -> Route:
    """A policy that contradicts another one, or the broker, is answered with 412."""
    need = needs.of_policy(name, method, of_topic=level != _N)
    return Route(f"{level}/{name}", handler, need, methods=[method], statuses={NotAllowedError: 412}, loads=False)


def _routes() -> list[Route]:
    routes = []
    for policy in POLICIES:
        for level in (_N, _T, _NON_PERSISTENT):
            name = policy.path("N" if level == _N else "T")
            for method, handler in _handlers(policy).items() if name else ():
                routes.append(_route(level, name, handler, method))
    for level in (_N, _T, _NON_PERSISTENT):
        routes.append(_route(level, "backlogQuotaMap", get_quotas))
        routes.append(_route(level, "backlogQuota", set_quota, "POST"))
        routes.append(_route(level, "backlogQuota", remove_quota, "DELETE"))
    ttl = next(_handlers(policy) for policy in POLICIES if policy.field == "message_ttl_in_seconds")
    threshold = next(_handlers(policy) for policy in POLICIES if policy.field == "compaction_threshold")
    for method, handler in (("GET", threshold["GET"]), ("PUT", threshold["POST"]), ("DELETE", threshold["DELETE"])):
        routes.append(_route(_N, "compactionThreshold", handler, method))
    for level in (_T, _NON_PERSISTENT):
        for method, handler in {**ttl, "POST": set_topic_ttl}.items():
            routes.append(_route(level, "messageTTL", handler, method))
        routes.append(_route(level, "policies", remove_all, "DELETE"))
    return routes


ROUTES = _routes()
