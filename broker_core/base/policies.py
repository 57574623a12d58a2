# SPDX-License-Identifier: Apache-2.0
"""``Policies``: the settings of a namespace or a topic, as values, the one table of them, and how the levels add up.

Owns the names, the bounds and the layering: a topic's own value goes before that of its namespace, that before the
broker's setting (semantics 1.1.5). The result is an ordinary ``Settings`` for the topic, so that code that reads
``topic.settings`` need not know of levels, and the ``Quotas``, which no single setting can hold. A policy is one
field of ``Policies``, with a ``Policy`` beside its type: the broker, the admin API, the command line and the documents
read everything from there. Knows neither where policies are kept (``policy_book``) nor where they are enforced.

JSON has Pulsar's names. A field that is absent is not set at that level. Source: Pulsar docs, "Admin API - namespaces",
"Topic policies".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Final, Literal, Self, get_args, get_origin, get_type_hints

import msgspec

from broker_core.base.errors import NotAllowedError
from broker_core.base.limits import PARTITIONS_MAX
from broker_core.base.settings import SchemaStrategyName, Settings, SubscriptionTypeName

FOREVER: Final = -1
"""Limit of a retention or a quota that is no limit."""

_MIB: Final = 1024 * 1024

COUNT_MAX: Final = 2**31 - 1
"""The largest number that Pulsar's clients can write in any policy."""

BYTES_MAX: Final = 2**63 - 1

_Count = Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]
_Bytes = Annotated[int, msgspec.Meta(ge=0, le=BYTES_MAX)]
_Limit = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]
_Rate = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

QuotaPolicy = Literal["producer_request_hold", "producer_exception", "consumer_backlog_eviction"]
QuotaType = Literal["destination_storage", "message_age"]


class _Compound(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A policy of several values. ``SETTINGS``: the setting that each field stands in for, in the order of fields."""

    SETTINGS: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The value that ``settings`` state."""
        return cls(*(getattr(settings, name) for name in cls.SETTINGS))

    def changes(self) -> dict[str, Any]:
        """The settings that this policy stands in for."""
        return dict(zip(self.SETTINGS, msgspec.structs.astuple(self), strict=True))


class Retention(_Compound, frozen=True):
    """How long and how much of the acknowledged data is kept: minutes and MiB; -1: without limit, 0: not at all."""

    SETTINGS = ("default_retention_time_in_minutes", "default_retention_size_in_mb")

    minutes: Annotated[int, msgspec.Meta(le=2**31 - 1)] = msgspec.field(default=0, name="retentionTimeInMinutes")
    size_mib: Annotated[int, msgspec.Meta(le=2**31 - 1)] = msgspec.field(default=0, name="retentionSizeInMB")

    def check(self) -> None:
        """NotAllowedError if the two limits contradict each other (semantics 7.1)."""
        for limit, what in ((self.minutes, "time"), (self.size_mib, "size")):
            if limit < FOREVER:
                raise NotAllowedError(f"a {what} limit of {limit} is no retention", hint="use -1 for no limit")
        if (self.minutes == 0) != (self.size_mib == 0) and FOREVER not in (self.minutes, self.size_mib):
            raise NotAllowedError(
                f"retention of {self.minutes} minutes and {self.size_mib} MiB keeps nothing, as one of them is 0",
                hint="use -1 for a limit that does not matter, or 0 for both to keep nothing",
            )

    @property
    def nothing(self) -> bool:
        """Whether acknowledged data may go at once."""
        return self.minutes == 0 or self.size_mib == 0

    def allows_deletion(self, age_ms: int, size_bytes_left: int) -> bool:
        """Whether a ledger whose newest entry is ``age_ms`` old may go; the topic has ``size_bytes_left`` after it."""
        if self.nothing:
            return True
        too_old = self.minutes > 0 and age_ms > self.minutes * 60_000
        return too_old or (self.size_mib > 0 and size_bytes_left >= self.size_mib * _MIB)


class BacklogQuota(msgspec.Struct, frozen=True):
    """How large (bytes) or old (seconds) a backlog may become, and what happens then; -1 without limit."""

    limit_bytes: _Limit = msgspec.field(default=FOREVER, name="limitSize")
    limit_s: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)] = msgspec.field(default=FOREVER, name="limitTime")
    policy: QuotaPolicy = "producer_request_hold"


_TOPIC_TYPES: Final = "set topicType to partitioned or non-partitioned"


class AutoTopicCreation(_Compound, frozen=True, rename="camel", omit_defaults=True):
    """Whether the first use of a topic creates it, of which type, and with how many partitions."""

    allow_auto_topic_creation: bool
    topic_type: str | None = None
    default_num_partitions: int | None = None

    def check(self) -> None:
        """NotAllowedError unless the type is one, and the partitions are named exactly where they mean something.

        Where nothing is created, neither is checked.
        """
        if not self.allow_auto_topic_creation:
            return
        if self.topic_type is None:
            raise NotAllowedError("topics are to be created of no type", hint=_TOPIC_TYPES)
        if self.topic_type not in ("partitioned", "non-partitioned"):
            raise NotAllowedError(f"there is no topic type {self.topic_type[:80]!r}", hint=_TOPIC_TYPES)
        if self.default_num_partitions is not None and not 1 <= self.default_num_partitions <= PARTITIONS_MAX:
            raise NotAllowedError(
                f"topics cannot have {self.default_num_partitions} partitions",
                hint=f"set defaultNumPartitions to 1 to {PARTITIONS_MAX}",
            )
        if self.topic_type == "partitioned" and self.default_num_partitions is None:
            raise NotAllowedError("partitioned topics were asked for without a number", hint="set defaultNumPartitions")
        if self.topic_type == "non-partitioned" and self.default_num_partitions is not None:
            raise NotAllowedError(
                f"topics without partitions were asked for with {self.default_num_partitions} of them",
                hint="leave out defaultNumPartitions, or set topicType to partitioned",
            )

    def changes(self) -> dict[str, Any]:
        """The settings that this policy stands in for."""
        changes: dict[str, Any] = {"allow_auto_topic_creation": self.allow_auto_topic_creation}
        if self.allow_auto_topic_creation and self.topic_type is not None:
            changes["allow_auto_topic_creation_type"] = self.topic_type
        if self.allow_auto_topic_creation and self.default_num_partitions is not None:
            changes["default_num_partitions"] = self.default_num_partitions
        return changes


class AutoSubscriptionCreation(_Compound, frozen=True, rename="camel"):
    """Whether the first consumer of a subscription creates it."""

    SETTINGS = ("allow_auto_subscription_creation",)

    allow_auto_subscription_creation: bool


class DelayedDelivery(_Compound, frozen=True):
    """Whether messages may be delayed, how exact that is, and how far; milliseconds, 0: without limit."""

    SETTINGS = (
        "delayed_delivery_enabled",
        "delayed_delivery_tick_time_millis",
        "delayed_delivery_max_delay_in_millis",
    )

    active: bool = False
    tick_ms: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = msgspec.field(default=0, name="tickTime")
    delay_max_ms: Annotated[int, msgspec.Meta(ge=0)] = msgspec.field(default=0, name="maxDeliveryDelayInMillis")


class PublishRate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What all producers of a topic may send together in a second; 0 or less is no limit (semantics 7.16)."""

    publish_throttling_rate_in_msg: _Rate = -1
    publish_throttling_rate_in_byte: _Rate = -1

    @property
    def per_s(self) -> tuple[float, float]:
        """Messages and bytes in a second."""
        return self.publish_throttling_rate_in_msg, self.publish_throttling_rate_in_byte


class DispatchRate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What all consumers of a topic, or of a subscription, may be sent together in a period of seconds; 0 or less is no
    limit (semantics 7.16)."""

    dispatch_throttling_rate_in_msg: _Rate = 0
    dispatch_throttling_rate_in_byte: _Rate = 0
    relative_to_publish_rate: bool = False
    rate_period_in_second: Annotated[int, msgspec.Meta(ge=1, le=COUNT_MAX)] = 1

    @property
    def per_s(self) -> tuple[float, float]:
        """Messages and bytes in a second."""
        period_s = self.rate_period_in_second
        return self.dispatch_throttling_rate_in_msg / period_s, self.dispatch_throttling_rate_in_byte / period_s

    def check(self) -> None:
        """NotAllowedError if it is to follow the rate of publishing, which nothing here does."""
        if self.relative_to_publish_rate:
            raise NotAllowedError(
                "a dispatch rate relative to the publish rate is not kept", hint="set relativeToPublishRate to false"
            )


class InactiveTopics(_Compound, frozen=True, rename="camel"):
    """Whether a topic that nobody uses is deleted, which and when (semantics 7.6)."""

    SETTINGS = (
        "broker_delete_inactive_topics_mode",
        "broker_delete_inactive_topics_max_inactive_duration_seconds",
        "broker_delete_inactive_topics_enabled",
    )

    inactive_topic_delete_mode: Literal["delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"] = (
        "delete_when_no_subscriptions"
    )
    max_inactive_duration_seconds: Annotated[int, msgspec.Meta(ge=1, le=COUNT_MAX)] = 60
    delete_while_inactive: bool = False


class SubscribeRate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How often each consumer of a topic may subscribe in a period of seconds; 0 or less is no limit (semantics 7.16).

    A consumer is known by its name and the host that it comes from.
    """

    subscribe_throttling_rate_per_consumer: Annotated[int, msgspec.Meta(ge=-(2**31), le=COUNT_MAX)] = -1
    rate_period_in_second: Annotated[int, msgspec.Meta(ge=1, le=COUNT_MAX)] = 30


OldSchemaStrategy = Literal[
    "AutoUpdateDisabled",
    "Backward",
    "Forward",
    "Full",
    "AlwaysCompatible",
    "BackwardTransitive",
    "ForwardTransitive",
    "FullTransitive",
]
"""Strategies of schemas under the names that older admin tools have for them."""

_OLD_SCHEMA_STRATEGIES: Final[dict[OldSchemaStrategy, SchemaStrategyName]] = {
    "AutoUpdateDisabled": "ALWAYS_INCOMPATIBLE",
    "Backward": "BACKWARD",
    "Forward": "FORWARD",
    "Full": "FULL",
    "AlwaysCompatible": "ALWAYS_COMPATIBLE",
    "BackwardTransitive": "BACKWARD_TRANSITIVE",
    "ForwardTransitive": "FORWARD_TRANSITIVE",
    "FullTransitive": "FULL_TRANSITIVE",
}

Action = Literal["produce", "consume", "functions", "sources", "sinks", "packages"]
"""What a role may be allowed; this broker has nothing that the last four would allow."""

SubscriptionAuthMode = Literal["None", "Prefix"]

_GRANTS_MAX: Final = 10_000
"""Grants of one namespace, which are read and written as a whole."""

_ROLE_BYTES_MAX: Final = 1024


class AuthPolicies(msgspec.Struct, frozen=True, dict=True):
    """Grants of a namespace: the actions of each role on all topics, and on single topics by their full names; and the
    roles that alone may use a subscription."""

    namespace_auth: dict[str, tuple[Action, ...]] = {}
    destination_auth: dict[str, dict[str, tuple[Action, ...]]] = {}
    subscription_auth_roles: dict[str, tuple[str, ...]] = {}

    @cached_property
    def wildcards(self) -> AuthPolicies:
        """The grants to names with a star, which are few: each decision may go through them all."""
        of_topics = {topic: _starred(roles) for topic, roles in self.destination_auth.items()}
        return AuthPolicies(
            _starred(self.namespace_auth), {topic: roles for topic, roles in of_topics.items() if roles}
        )

    @property
    def roles(self) -> list[str]:
        """The role of each grant."""
        several = (*self.destination_auth.values(), *self.subscription_auth_roles.values())
        return [*self.namespace_auth, *(role for roles in several for role in roles)]

    def check(self) -> None:
        """NotAllowedError if a role has no usable name, or there are too many grants."""
        roles = self.roles
        if len(roles) > _GRANTS_MAX:
            raise NotAllowedError(
                f"a namespace has at most {_GRANTS_MAX} grants, and these are {len(roles)}",
                hint="grant to fewer roles, on the namespace rather than on each topic, or by wildcards",
            )
        for role in roles:
            check_role(role)


def _starred(granted: dict[str, tuple[Action, ...]]) -> dict[str, tuple[Action, ...]]:
    return {name: actions for name, actions in granted.items() if "*" in name}


NO_GRANTS: Final = AuthPolicies()


def check_role(role: str) -> str:
    """``role`` if it may be the name of a role, else NotAllowedError."""
    if not role.strip() or len(role.encode()) > _ROLE_BYTES_MAX or not role.isprintable():
        raise NotAllowedError(
            f"{role[:80]!r} is no name of a role", hint=f"use 1 to {_ROLE_BYTES_MAX} bytes without control characters"
        )
    return role


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy. ``namespace`` and ``topic`` are its names at each level, "" where it cannot be set; ``setting`` is
    the broker's setting that a plain value stands in for, if that has another name.

    The others say how Pulsar's admin API treats it. ``applied``: a topic answers with the value in force, if it is
    asked for that. ``bad_value``: the status of a value that is out of bounds. ``unset``: the answer when nothing is
    set, and ``unset_of_namespace`` that of a namespace alone; ``method`` sets it; ``no_content``: that an answer of
    nothing is 204 for a topic, or where no topic has it. ``unstored``: it also holds for topics that are not stored.
    ``null_removes``: the levels, "N" and "T", where a POST without a value removes the policy; Pulsar's admin client
    knows no other way to remove some. ``own_requests``: the levels where its requests are unlike those of the others.
    ``largest``: the greatest number that it may be.
    """

    namespace: str
    topic: str
    setting: str = ""
    _: KW_ONLY
    applied: bool = False
    bad_value: int = 412
    unset: object = None
    unset_of_namespace: object = None
    method: str = "POST"
    no_content: bool = False
    unstored: bool = False
    null_removes: str = ""
    own_requests: str = ""
    largest: int = COUNT_MAX
    field: str = ""
    """The field of ``Policies``, and ``kind`` its type; both are filled in from there."""
    kind: Any = None

    def path(self, level: str) -> str:
        """The last part of its path at level "N" or "T"; "" where it has none, or requests of its own."""
        return "" if level in self.own_requests else self.namespace if level == "N" else self.topic

    def in_force(self, settings: Settings, quotas: Quotas) -> object:
        """The value that holds for a topic with these ``settings`` and ``quotas``."""
        if self.field in _RATES:
            return getattr(quotas, self.field)
        return getattr(settings, self.setting) if self.setting else self.kind.of(settings)


class Policies(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename={
        "deduplication_enabled": "deduplicationEnabled",
        "deduplication_snapshot_interval_seconds": "deduplicationSnapshotIntervalSeconds",
        "auto_topic_creation": "autoTopicCreationOverride",
        "auto_subscription_creation": "autoSubscriptionCreationOverride",
        "publish_rate": "publishMaxMessageRate",
        "dispatch_rate": "topicDispatchRate",
        "subscription_dispatch_rate": "subscriptionDispatchRate",
        "subscribe_rate": "clusterSubscribeRate",
    },
):
    """Everything that is set at one level; None where nothing is. Names in JSON are those of Pulsar's namespaces."""

    retention_policies: Annotated[
        Retention | None, Policy("retention", "retention", applied=True, bad_value=400, null_removes="NT")
    ] = None
    message_ttl_in_seconds: Annotated[
        _Count | None,
        Policy("messageTTL", "messageTTL", "ttl_duration_default_in_seconds", applied=True, own_requests="T"),
    ] = None
    backlog_quota_map: Annotated[
        dict[QuotaType, BacklogQuota] | None, Policy("backlogQuota", "backlogQuota", own_requests="NT")
    ] = None
    deduplication_enabled: Annotated[
        bool | None,
        Policy("deduplication", "deduplicationEnabled", "broker_deduplication_enabled", applied=True, null_removes="T"),
    ] = None
    deduplication_snapshot_interval_seconds: Annotated[
        _Count | None,
        Policy(
            "deduplicationSnapshotInterval",
            "deduplicationSnapshotInterval",
            "broker_deduplication_snapshot_interval_seconds",
            null_removes="NT",
        ),
    ] = None
    max_producers_per_topic: Annotated[
        _Count | None, Policy("maxProducersPerTopic", "maxProducers", applied=True, unstored=True)
    ] = None
    max_consumers_per_topic: Annotated[
        _Count | None, Policy("maxConsumersPerTopic", "maxConsumers", applied=True, unstored=True)
    ] = None
    max_consumers_per_subscription: Annotated[
        _Count | None,
        Policy("maxConsumersPerSubscription", "maxConsumersPerSubscription", no_content=True, unstored=True),
    ] = None
    max_subscriptions_per_topic: Annotated[
        _Count | None, Policy("maxSubscriptionsPerTopic", "maxSubscriptionsPerTopic", no_content=True)
    ] = None
    max_topics_per_namespace: Annotated[_Count | None, Policy("maxTopicsPerNamespace", "", unset=0)] = None
    max_unacked_messages_per_consumer: Annotated[
        _Count | None,
        Policy("maxUnackedMessagesPerConsumer", "maxUnackedMessagesOnConsumer", applied=True, null_removes="T"),
    ] = None
    max_unacked_messages_per_subscription: Annotated[
        _Count | None,
        Policy("maxUnackedMessagesPerSubscription", "maxUnackedMessagesOnSubscription", applied=True, null_removes="T"),
    ] = None
    max_message_size: Annotated[_Count | None, Policy("", "maxMessageSize", no_content=True, unstored=True)] = None
    """0 is no limit of its own; a frame cannot be larger than the broker reads."""
    subscription_expiration_time_minutes: Annotated[
        _Count | None,
        Policy("subscriptionExpirationTime", "subscriptionExpirationTime", applied=True, null_removes="T"),
    ] = None
    auto_topic_creation: Annotated[AutoTopicCreation | None, Policy("autoTopicCreation", "", null_removes="N")] = None
    auto_subscription_creation: Annotated[
        AutoSubscriptionCreation | None,
        Policy("autoSubscriptionCreation", "autoSubscriptionCreation", applied=True, null_removes="NT"),
    ] = None
    delayed_delivery_policies: Annotated[
        DelayedDelivery | None, Policy("delayedDelivery", "delayedDelivery", applied=True, null_removes="NT")
    ] = None
    subscription_types_enabled: Annotated[
        tuple[SubscriptionTypeName, ...] | None,
        Policy("subscriptionTypesEnabled", "subscriptionTypesEnabled", applied=True, unset=()),
    ] = None
    """An empty list would allow no consumer: as in Pulsar it means that nothing is set."""
    publish_rate: Annotated[
        PublishRate | None, Policy("publishRate", "publishRate", no_content=True, null_removes="NT")
    ] = None
    dispatch_rate: Annotated[
        DispatchRate | None, Policy("dispatchRate", "dispatchRate", applied=True, null_removes="NT")
    ] = None
    subscription_dispatch_rate: Annotated[
        DispatchRate | None,
        Policy("subscriptionDispatchRate", "subscriptionDispatchRate", applied=True, null_removes="NT"),
    ] = None
    subscribe_rate: Annotated[
        SubscribeRate | None, Policy("subscribeRate", "subscribeRate", applied=True, null_removes="NT")
    ] = None
    inactive_topic_policies: Annotated[
        InactiveTopics | None,
        Policy("inactiveTopicPolicies", "inactiveTopicPolicies", applied=True, null_removes="NT"),
    ] = None
    compaction_threshold: Annotated[
        _Bytes | None,
        Policy(
            "compactionThreshold",
            "compactionThreshold",
            "broker_service_compaction_threshold_in_bytes",
            applied=True,
            largest=BYTES_MAX,
            own_requests="N",
        ),
    ] = None
    schema_auto_update_compatibility_strategy: Annotated[
        OldSchemaStrategy | None,
        Policy(
            "schemaAutoUpdateCompatibilityStrategy",
            "",
            "schema_compatibility_strategy",
            method="PUT",
            no_content=True,
            null_removes="N",
        ),
    ] = None
    """The next one under its older name: it is weaker, and so stands before it."""
    schema_compatibility_strategy: Annotated[
        SchemaStrategyName | None,
        Policy(
            "schemaCompatibilityStrategy",
            "schemaCompatibilityStrategy",
            unset_of_namespace="UNDEFINED",
            method="PUT",
            applied=True,
            unstored=True,
            null_removes="NT",
        ),
    ] = None
    """UNDEFINED is as if nothing were set."""
    is_allow_auto_update_schema: Annotated[
        bool | None,
        Policy("isAllowAutoUpdateSchema", "", "is_allow_auto_update_schema_enabled", unset=True, null_removes="N"),
    ] = None
    schema_validation_enforced: Annotated[
        bool | None,
        Policy(
            "schemaValidationEnforced",
            "schemaValidationEnforced",
            "is_schema_validation_enforced",
            applied=True,
            unset=False,
            unstored=True,
            null_removes="NT",
        ),
    ] = None
    """A policy that adds to what the broker enforces, and takes nothing away from it."""
    properties: dict[str, str] | None = None
    auth_policies: AuthPolicies | None = None
    subscription_auth_mode: SubscriptionAuthMode | None = None
    kept: dict[str, Any] | None = None
    """Policies that nothing acts on, by their fields in the object of a namespace: ``server.admin.kept`` has them."""

    def check(self) -> None:
        """NotAllowedError if a value contradicts itself or another one of this level."""
        if self.auth_policies is not None:
            self.auth_policies.check()
        rates = (self.dispatch_rate, self.subscription_dispatch_rate)
        for value in (self.retention_policies, self.auto_topic_creation, *rates):
            if value is not None:
                value.check()
        size = (self.backlog_quota_map or {}).get("destination_storage")
        retention = self.retention_policies
        if size is None or retention is None or size.limit_bytes <= 0 or retention.size_mib <= 0:
            return
        if size.limit_bytes >= retention.size_mib * _MIB:
            raise NotAllowedError(
                f"a backlog quota of {size.limit_bytes} bytes exceeds the retention of {retention.size_mib} MiB",
                hint="raise the retention size first, or lower the quota",
            )


NO_POLICIES: Final = Policies()


def _table() -> Iterator[Policy]:
    kinds = get_type_hints(Policies)
    for name, hint in get_type_hints(Policies, include_extras=True).items():
        if get_origin(hint) is Annotated:
            kind = next(each for each in get_args(kinds[name]) if each is not type(None))
            policy = next(each for each in get_args(hint) if isinstance(each, Policy))
            setting = policy.setting or (name if name in Settings.__struct_fields__ else "")
            yield replace(policy, setting=setting, field=name, kind=kind)


POLICIES: Final = tuple(_table())
"""Every policy but the properties of a namespace, and its rights, which ``server.admin.permissions`` has."""


_RATES: Final = ("publish_rate", "dispatch_rate", "subscription_dispatch_rate", "subscribe_rate")


class Quotas(msgspec.Struct, frozen=True):
    """The two backlog quotas and the rates in force for a topic: under the names of ``Policies``."""

    size: BacklogQuota
    age: BacklogQuota
    publish_rate: PublishRate = PublishRate()
    dispatch_rate: DispatchRate = DispatchRate()
    subscription_dispatch_rate: DispatchRate = DispatchRate()
    subscribe_rate: SubscribeRate = SubscribeRate()


def settings_under(settings: Settings, *levels: Policies) -> Settings:
    """The broker's ``settings`` as they hold under ``levels``, the strongest of which comes last."""
    changes: dict[str, Any] = {}
    for level in levels:
        for policy in POLICIES:
            value = getattr(level, policy.field)
            if isinstance(value, _Compound):
                changes |= value.changes()
            elif policy.setting and value is not None:
                value = _stands_for(policy.field, value, settings)
                if value is not None:
                    changes[policy.setting] = value
    return msgspec.structs.replace(settings, **changes) if changes else settings


def _stands_for(field: str, value: Any, settings: Settings) -> Any:
    """The value of the setting that a policy of one value stands in for; None if it leaves that as it is."""
    match field:
        case "max_message_size":
            return min(value, settings.max_message_size) or None
        case "schema_auto_update_compatibility_strategy":
            return _OLD_SCHEMA_STRATEGIES[value]
        case "schema_validation_enforced":
            return value or settings.is_schema_validation_enforced
    return None if value in ((), "UNDEFINED") else value


def quotas_under(settings: Settings, *levels: Policies) -> Quotas:
    """The quotas and rates in force under ``levels``, the strongest of which comes last."""
    policy = settings.backlog_quota_default_retention_policy
    size = BacklogQuota(limit_bytes=settings.backlog_quota_default_limit_bytes, policy=policy)
    age = BacklogQuota(limit_s=settings.backlog_quota_default_limit_second, policy=policy)
    for level in levels:
        quotas = level.backlog_quota_map or {}
        size, age = quotas.get("destination_storage", size), quotas.get("message_age", age)
    rates = _rates_of(settings)
    rates |= {rate: value for level in levels for rate in _RATES if (value := getattr(level, rate)) is not None}
    return Quotas(size, age, **rates)


def _rates_of(settings: Settings) -> dict[str, Any]:
    """The broker's own rates for each of its topics, under the names of ``Policies``."""
    return {
        "publish_rate": PublishRate(
            settings.max_publish_rate_per_topic_in_messages or -1, settings.max_publish_rate_per_topic_in_bytes or -1
        ),
        "dispatch_rate": DispatchRate(
            settings.dispatch_throttling_rate_per_topic_in_msg, settings.dispatch_throttling_rate_per_topic_in_byte
        ),
        "subscription_dispatch_rate": DispatchRate(
            settings.dispatch_throttling_rate_per_subscription_in_msg,
            settings.dispatch_throttling_rate_per_subscription_in_byte,
        ),
        "subscribe_rate": SubscribeRate(
            settings.subscribe_throttling_rate_per_consumer, settings.subscribe_rate_period_per_consumer_in_second
        ),
    }
