# SPDX-License-Identifier: Apache-2.0
"""Policies of namespaces and topics: read, set, remove, one path for each, under Pulsar's names and status codes.

One table says under which name a policy is found at each level, what its body is, and what a topic answers with
``?applied=true``: the value in force whatever level it comes from. A policy that is not set is an empty answer, as in
Pulsar. A partition has no policies of its own: they are set for the topic that it is part of. Stricter than Pulsar: a
body with a field that the policy does not have is refused (400), and removing is possible for every policy. Policies
that this broker would not act on have no path; what means nothing to a topic that is not stored cannot be set for one
(405). Source: Pulsar docs, "Admin API - namespaces", "Topic policies"; semantics 1.1.5.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from broker_core.base.errors import NotAllowedError
from broker_core.base.names import TopicName
from broker_core.base.settings import Settings, SubscriptionTypeName
from broker_core.broker.policies.policy_values import (
    COUNT_MAX,
    NO_POLICIES,
    AutoSubscriptionCreation,
    AutoTopicCreation,
    BacklogQuota,
    DelayedDelivery,
    Policies,
    Retention,
    retention_of,
)
from broker_core.server.admin.answers import BadRequestError, MissingError, RefusedError, done, json_answer
from broker_core.server.admin.bodies import decoded
from broker_core.server.admin.requests import broker_of, existing_topic, flag, in_turns, namespace_name, topic_name
from broker_core.server.admin.routes import Handler, Route

_UNSET: Final = object()

_DIGITS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class PolicyPath:
    """One policy. ``namespace`` and ``topic`` are the last part of its path at each level, "" where it has none.

    ``bad_value``: the status of a value that is out of bounds; ``unset``: what a GET answers when nothing is set;
    ``no_content``: that this is 204 for a topic. ``unstored``: it also holds for topics that are not stored.
    ``null_removes``: the levels, "N" and "T", where a POST without a value removes the policy; Pulsar's admin client
    knows no other way to remove some.
    """

    field: str
    kind: Any
    namespace: str
    topic: str
    applied: Callable[[Settings], object] | None = None
    bad_value: int = 412
    unset: object = _UNSET
    no_content: bool = False
    unstored: bool = False
    null_removes: str = ""


def _delayed(settings: Settings) -> object:
    return DelayedDelivery(
        settings.delayed_delivery_enabled,
        settings.delayed_delivery_tick_time_millis,
        settings.delayed_delivery_max_delay_in_millis,
    )


POLICIES: Final = (
    PolicyPath(
        "retention_policies", Retention, "retention", "retention", retention_of, bad_value=400, null_removes="NT"
    ),
    PolicyPath("message_ttl_in_seconds", int, "messageTTL", "", None),
    PolicyPath(
        "subscription_expiration_time_minutes",
        int,
        "subscriptionExpirationTime",
        "subscriptionExpirationTime",
        lambda s: s.subscription_expiration_time_minutes,
        null_removes="T",
    ),
    PolicyPath(
        "deduplication_enabled",
        bool,
        "deduplication",
        "deduplicationEnabled",
        lambda s: s.broker_deduplication_enabled,
        null_removes="T",
    ),
    PolicyPath(
        "deduplication_snapshot_interval_seconds",
        int,
        "deduplicationSnapshotInterval",
        "deduplicationSnapshotInterval",
        null_removes="NT",
    ),
    PolicyPath(
        "max_producers_per_topic",
        int,
        "maxProducersPerTopic",
        "maxProducers",
        lambda s: s.max_producers_per_topic,
        unstored=True,
    ),
    PolicyPath(
        "max_consumers_per_topic",
        int,
        "maxConsumersPerTopic",
        "maxConsumers",
        lambda s: s.max_consumers_per_topic,
        unstored=True,
    ),
    PolicyPath(
        "max_consumers_per_subscription",
        int,
        "maxConsumersPerSubscription",
        "maxConsumersPerSubscription",
        no_content=True,
        unstored=True,
    ),
    PolicyPath(
        "max_subscriptions_per_topic", int, "maxSubscriptionsPerTopic", "maxSubscriptionsPerTopic", no_content=True
    ),
    PolicyPath("max_topics_per_namespace", int, "maxTopicsPerNamespace", "", unset=0),
    PolicyPath(
        "max_unacked_messages_per_consumer",
        int,
        "maxUnackedMessagesPerConsumer",
        "maxUnackedMessagesOnConsumer",
        lambda s: s.max_unacked_messages_per_consumer,
        null_removes="T",
    ),
    PolicyPath(
        "max_unacked_messages_per_subscription",
        int,
        "maxUnackedMessagesPerSubscription",
        "maxUnackedMessagesOnSubscription",
        lambda s: s.max_unacked_messages_per_subscription,
        null_removes="T",
    ),
    PolicyPath("max_message_size", int, "", "maxMessageSize", no_content=True, unstored=True),
    PolicyPath("auto_topic_creation", AutoTopicCreation, "autoTopicCreation", "", null_removes="N"),
    PolicyPath(
        "auto_subscription_creation",
        AutoSubscriptionCreation,
        "autoSubscriptionCreation",
        "autoSubscriptionCreation",
        lambda s: AutoSubscriptionCreation(s.allow_auto_subscription_creation),
        null_removes="NT",
    ),
    PolicyPath(
        "delayed_delivery_policies", DelayedDelivery, "delayedDelivery", "delayedDelivery", _delayed, null_removes="NT"
    ),
    PolicyPath(
        "subscription_types_enabled",
        list[SubscriptionTypeName],
        "subscriptionTypesEnabled",
        "subscriptionTypesEnabled",
        lambda s: s.subscription_types_enabled,
        unset=(),
    ),
)
"""Every policy whose body is its value. Message TTL of topics and backlog quotas are below: their requests differ."""


# -- the levels


@dataclass(frozen=True, slots=True)
class _Level:
    """Where policies are read and written: the namespace or the topic in the path of one request."""

    request: Request

    @property
    def of_topic(self) -> bool:
        return "topic" in self.request.path_params

    @property
    def letter(self) -> str:
        return "T" if self.of_topic else "N"

    def read(self) -> Policies:
        """The policies; 404 if there is no such namespace or topic, 412 for a partition."""
        broker = broker_of(self.request)
        if self.of_topic:
            return broker.policies.of_topic(_whole_topic(self.request))
        broker.namespaces.require(namespace_name(self.request))
        return broker.policies.of_namespace(namespace_name(self.request))

    async def change(self, **fields: object) -> Response:
        """Set these fields; NotAllowedError if they contradict something."""
        broker = broker_of(self.request)
        policies = msgspec.structs.replace(self.read(), **fields)
        if self.of_topic:
            applying = broker.set_topic_policies(existing_topic(self.request), policies)
        else:
            applying = broker.set_namespace_policies(namespace_name(self.request), policies)
        await in_turns(self.request, applying)
        return done()

    def settings(self) -> Settings:
        """The settings in force for the topic in the path."""
        return broker_of(self.request).policies.settings_of(existing_topic(self.request))


def _whole_topic(request: Request) -> TopicName:
    """The topic in the path, which must not be a partition: as in Pulsar these have no policies of their own."""
    name = topic_name(request)
    if name.partition_index >= 0:
        raise RefusedError(412, f"{name} is a partition; policies are set for {name.base}")
    return existing_topic(request)


def _check_stored(request: Request, unstored: bool = False) -> None:
    """405 for a topic that is not stored, unless the policy holds for those too."""
    if "topic" in request.path_params and not topic_name(request).persistent and not unstored:
        raise RefusedError(405, f"{topic_name(request)} is not persistent: the policy would not mean anything")


def _value(content: bytes, policy: PolicyPath, name: str) -> object:
    """The body as a value of the policy; 400 if it is of another kind, ``bad_value`` if it is out of bounds."""
    try:
        value = decoded(content, policy.kind)
    except msgspec.DecodeError as error:
        raise BadRequestError(f"the request body cannot be read: {error}") from error
    if isinstance(value, list):
        return _as_field(policy.field, list(dict.fromkeys(value)))  # in Pulsar it is a set
    if policy.kind is int:
        _check_count(value, name)
    if isinstance(value, Retention | AutoTopicCreation):
        try:
            value.check()
        except NotAllowedError as error:
            raise RefusedError(policy.bad_value, str(error)) from error
    return _as_field(policy.field, value)


def _check_count(value: int, name: str) -> None:
    if value < 0:
        raise RefusedError(412, f"{name} cannot be {value}: it must be 0 or more")
    if value > COUNT_MAX:
        raise RefusedError(412, f"{name} cannot be {value}: it must be {COUNT_MAX} or less")


def _as_field(field: str, value: object) -> object:
    """``value`` as the field has it."""
    return getattr(msgspec.convert({_ENCODED[field]: msgspec.to_builtins(value)}, Policies), field)


_ENCODED: Final = {field.name: field.encode_name for field in msgspec.structs.fields(Policies)}


def _answer(value: object) -> Response:
    """A value as JSON; nothing for None."""
    return Response(status_code=200, media_type="application/json") if value is None else json_answer(value)


def _handlers(policy: PolicyPath) -> dict[str, Callable[[Request], Awaitable[Response]]]:
    async def get(request: Request) -> Response:
        level = _Level(request)
        value = getattr(level.read(), policy.field)
        if value is None and policy.applied is not None and level.of_topic and flag(request, "applied"):
            value = policy.applied(level.settings())
        if value is None and policy.no_content and level.of_topic:
            return done()
        return _answer(policy.unset if value is None and policy.unset is not _UNSET else value)

    async def post(request: Request) -> Response:
        level = _Level(request)
        level.read()
        content = (await request.body()).strip()
        if content in (b"", b"null"):
            if level.letter in policy.null_removes:
                return await delete(request)
            raise BadRequestError("the request has no body; remove a policy with DELETE")
        _check_stored(request, policy.unstored)
        name = policy.topic if level.of_topic else policy.namespace
        return await level.change(**{policy.field: _value(content, policy, name)})

    async def delete(request: Request) -> Response:
        return await _Level(request).change(**{policy.field: None})

    return {"GET": get, "POST": post, "DELETE": delete}


# -- requests of their own kind


async def get_topic_ttl(request: Request) -> Response:
    level = _Level(request)
    value = level.read().message_ttl_in_seconds
    if value is None and flag(request, "applied"):
        value = level.settings().ttl_duration_default_in_seconds
    return _answer(value)


async def set_topic_ttl(request: Request) -> Response:
    """The seconds are in the query; without them the policy is removed, as in Pulsar."""
    text = request.query_params.get("messageTTL")
    if text is None:
        return await remove_topic_ttl(request)
    _Level(request).read()
    _check_stored(request)
    if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) <= _DIGITS_MAX):
        raise BadRequestError(f"{text[:80]!r} is not a number of seconds")
    _check_count(int(text), "messageTTL")
    return await _Level(request).change(message_ttl_in_seconds=int(text))


async def remove_topic_ttl(request: Request) -> Response:
    return await _Level(request).change(message_ttl_in_seconds=None)


class _QuotaBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A quota as clients send it: the older ones call the size ``limit``."""

    policy: str = ""
    limit: int | None = None
    limit_size: int | None = None
    limit_time: int | None = None


async def get_quotas(request: Request) -> Response:
    level, policies = _Level(request), broker_of(request).policies
    quotas = level.read().backlog_quota_map or {}
    if not quotas and level.of_topic and flag(request, "applied"):
        applied = policies.quotas_of(existing_topic(request))
        quotas = {"destination_storage": applied.size, "message_age": applied.age}
    return json_answer({kind: quota_answer(quota) for kind, quota in quotas.items()})


def quota_answer(quota: BacklogQuota) -> dict[str, object]:
    """One backlog quota; the older clients call its size ``limit``."""
    size = quota.limit_bytes
    return {"limit": size, "limitSize": size, "limitTime": quota.limit_s, "policy": quota.policy}


async def set_quota(request: Request) -> Response:
    """Set one of the two quotas. A limit that is left out is none; a quota without any limit is refused."""
    level, kind = _Level(request), _quota_kind(request)
    level.read()
    _check_stored(request)
    quota = _quota(await request.body())
    quotas = dict(level.read().backlog_quota_map or {})  # read again, because they may have changed while the body came
    quotas[kind] = quota  # type: ignore[index] # _quota_kind knows the two
    return await level.change(backlog_quota_map=quotas)


async def remove_quota(request: Request) -> Response:
    level, kind = _Level(request), _quota_kind(request)
    quotas = {name: quota for name, quota in (level.read().backlog_quota_map or {}).items() if name != kind}
    return await level.change(backlog_quota_map=quotas or None)


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


def _quota_kind(request: Request) -> str:
    kind = request.query_params.get("backlogQuotaType", "destination_storage")
    if kind not in ("destination_storage", "message_age"):
        raise MissingError(f"there is no backlog quota of type {kind[:80]!r}; it is destination_storage or message_age")
    return kind


async def remove_all(request: Request) -> Response:
    """Remove everything that is set for a topic: what its namespace or the broker says holds again."""
    await in_turns(request, broker_of(request).set_topic_policies(existing_topic(request), NO_POLICIES))
    return done()


_N = "/admin/v2/namespaces/{tenant}/{namespace}"
_T = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
_NON_PERSISTENT = "/admin/v2/non-persistent/{tenant}/{namespace}/{topic}"


def _route(path: str, handler: Handler, method: str = "GET") -> Route:
    """A policy that contradicts another one, or the broker, is answered with 412."""
    return Route(path, handler, methods=[method], statuses={NotAllowedError: 412})


def _routes() -> list[Route]:
    routes = []
    for policy in POLICIES:
        for level in (_N, _T, _NON_PERSISTENT):
            name = policy.namespace if level == _N else policy.topic
            for method, handler in _handlers(policy).items() if name else ():
                routes.append(_route(f"{level}/{name}", handler, method))
    for level in (_N, _T, _NON_PERSISTENT):
        routes.append(_route(f"{level}/backlogQuotaMap", get_quotas))
        routes.append(_route(f"{level}/backlogQuota", set_quota, "POST"))
        routes.append(_route(f"{level}/backlogQuota", remove_quota, "DELETE"))
    for level in (_T, _NON_PERSISTENT):
        routes.append(_route(f"{level}/messageTTL", get_topic_ttl))
        routes.append(_route(f"{level}/messageTTL", set_topic_ttl, "POST"))
        routes.append(_route(f"{level}/messageTTL", remove_topic_ttl, "DELETE"))
        routes.append(_route(f"{level}/policies", remove_all, "DELETE"))
    return routes


ROUTES = _routes()
