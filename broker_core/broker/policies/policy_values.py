# SPDX-License-Identifier: Apache-2.0
"""``Policies``: what an administrator may set for a namespace or a topic, as values, and how the levels add up.

Owns the names, the bounds and the layering: a topic's own value goes before that of its namespace, that before the
broker's setting (semantics 1.1.5). The result is an ordinary ``Settings`` for the topic, so that code that reads
``topic.settings`` need not know of levels, and the two ``Quotas``, which no single setting can hold. Knows neither
where policies are kept (``policy_book``) nor where they are enforced.

JSON has Pulsar's names. A field that is absent is not set at that level. Source: Pulsar docs, "Admin API - namespaces",
"Topic policies".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from broker_core.base.errors import NotAllowedError
from broker_core.base.limits import PARTITIONS_MAX
from broker_core.base.settings import Settings, SubscriptionTypeName

FOREVER: Final = -1
"""Limit of a retention or a quota that is no limit."""

_MIB: Final = 1024 * 1024

COUNT_MAX: Final = 2**31 - 1
"""The largest number that Pulsar's clients can write in any policy."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]
_Limit = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]

QuotaPolicy = Literal["producer_request_hold", "producer_exception", "consumer_backlog_eviction"]
QuotaType = Literal["destination_storage", "message_age"]


class Retention(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long and how much of the acknowledged data is kept: minutes and MiB; -1: without limit, 0: not at all."""

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
        """What is acknowledged may go at once."""
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


class AutoTopicCreation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """What the first use of a topic creates."""

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


class AutoSubscriptionCreation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Whether the first consumer of a subscription creates it."""

    allow_auto_subscription_creation: bool


class DelayedDelivery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether messages may be delayed, how exact that is, and how far; milliseconds, 0: without limit."""

    active: bool = False
    tick_ms: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = msgspec.field(default=0, name="tickTime")
    delay_max_ms: Annotated[int, msgspec.Meta(ge=0)] = msgspec.field(default=0, name="maxDeliveryDelayInMillis")


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
    },
):
    """Everything that is set at one level; None where nothing is. Names in JSON are those of Pulsar's namespaces."""

    backlog_quota_map: dict[QuotaType, BacklogQuota] | None = None
    retention_policies: Retention | None = None
    message_ttl_in_seconds: _Count | None = None
    subscription_expiration_time_minutes: _Count | None = None
    deduplication_enabled: bool | None = None
    deduplication_snapshot_interval_seconds: _Count | None = None
    max_producers_per_topic: _Count | None = None
    max_consumers_per_topic: _Count | None = None
    max_consumers_per_subscription: _Count | None = None
    max_subscriptions_per_topic: _Count | None = None
    max_topics_per_namespace: _Count | None = None
    max_unacked_messages_per_consumer: _Count | None = None
    max_unacked_messages_per_subscription: _Count | None = None
    max_message_size: _Count | None = None
    auto_topic_creation: AutoTopicCreation | None = None
    auto_subscription_creation: AutoSubscriptionCreation | None = None
    delayed_delivery_policies: DelayedDelivery | None = None
    subscription_types_enabled: tuple[SubscriptionTypeName, ...] | None = None
    properties: dict[str, str] | None = None

    def check(self) -> None:
        """NotAllowedError if a value contradicts itself or another one of this level."""
        for value in (self.retention_policies, self.auto_topic_creation):
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

_SETTING_OF_POLICY: Final[Mapping[str, str]] = {
    "message_ttl_in_seconds": "ttl_duration_default_in_seconds",
    "subscription_expiration_time_minutes": "subscription_expiration_time_minutes",
    "deduplication_enabled": "broker_deduplication_enabled",
    "deduplication_snapshot_interval_seconds": "broker_deduplication_snapshot_interval_seconds",
    "max_producers_per_topic": "max_producers_per_topic",
    "max_consumers_per_topic": "max_consumers_per_topic",
    "max_consumers_per_subscription": "max_consumers_per_subscription",
    "max_subscriptions_per_topic": "max_subscriptions_per_topic",
    "max_topics_per_namespace": "max_topics_per_namespace",
    "max_unacked_messages_per_consumer": "max_unacked_messages_per_consumer",
    "max_unacked_messages_per_subscription": "max_unacked_messages_per_subscription",
}
"""The setting that a plain policy stands in for."""


class Quotas(msgspec.Struct, frozen=True):
    """The two backlog quotas in force for a topic."""

    size: BacklogQuota
    age: BacklogQuota


def settings_under(settings: Settings, *levels: Policies) -> Settings:
    """The broker's ``settings`` as they hold under ``levels``, the strongest of which comes last."""
    changes: dict[str, Any] = {}
    for level in levels:
        if level.max_message_size:  # 0 is no limit of its own; a frame cannot be larger than the broker reads
            changes["max_message_size"] = min(level.max_message_size, settings.max_message_size)
        for policy, setting in _SETTING_OF_POLICY.items():
            value = getattr(level, policy)
            if value is not None:
                changes[setting] = value
        changes |= _compound_changes(level)
    return msgspec.structs.replace(settings, **changes) if changes else settings


def _compound_changes(level: Policies) -> dict[str, Any]:
    """The settings that the policies with several parts stand in for."""
    changes: dict[str, Any] = {}
    if (retention := level.retention_policies) is not None:
        changes["default_retention_time_in_minutes"] = retention.minutes
        changes["default_retention_size_in_mb"] = retention.size_mib
    if (subscriptions := level.auto_subscription_creation) is not None:
        changes["allow_auto_subscription_creation"] = subscriptions.allow_auto_subscription_creation
    if (topics := level.auto_topic_creation) is not None:
        changes["allow_auto_topic_creation"] = topics.allow_auto_topic_creation
        if topics.allow_auto_topic_creation and topics.topic_type is not None:
            changes["allow_auto_topic_creation_type"] = topics.topic_type
        if topics.allow_auto_topic_creation and topics.default_num_partitions is not None:
            changes["default_num_partitions"] = topics.default_num_partitions
    if (
        level.subscription_types_enabled
    ):  # an empty list would allow no consumer: as in Pulsar it means that nothing is set
        changes["subscription_types_enabled"] = level.subscription_types_enabled
    if (delayed := level.delayed_delivery_policies) is not None:
        changes["delayed_delivery_enabled"] = delayed.active
        changes["delayed_delivery_tick_time_millis"] = delayed.tick_ms
        changes["delayed_delivery_max_delay_in_millis"] = delayed.delay_max_ms
    return changes


def quotas_under(settings: Settings, *levels: Policies) -> Quotas:
    """The backlog quotas in force under ``levels``, the strongest of which comes last."""
    policy = settings.backlog_quota_default_retention_policy
    size = BacklogQuota(limit_bytes=settings.backlog_quota_default_limit_bytes, policy=policy)
    age = BacklogQuota(limit_s=settings.backlog_quota_default_limit_second, policy=policy)
    for level in levels:
        quotas = level.backlog_quota_map or {}
        size, age = quotas.get("destination_storage", size), quotas.get("message_age", age)
    return Quotas(size, age)


def retention_of(settings: Settings) -> Retention:
    """The retention that ``settings`` state."""
    return Retention(settings.default_retention_time_in_minutes, settings.default_retention_size_in_mb)
