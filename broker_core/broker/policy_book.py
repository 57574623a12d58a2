# SPDX-License-Identifier: Apache-2.0
"""``PolicyBook``: which policies are set for which namespace and topic, in memory and in the catalogue.

The policies of a partitioned topic hold for all its partitions and are kept under its own name; those of a topic end
with it. Dynamic changes of the broker's own settings are kept in the same table, under an empty name, and go before
the settings that the broker was started with; their values are text, as an administrator types them. ``Broker`` applies
a change to loaded topics. Source: Pulsar docs, "Topic policies", "Admin API - brokers - dynamic configuration";
semantics 1.1.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from broker_core.base.errors import DataFormatError, NotAllowedError
from broker_core.base.names import NamespaceName, TopicName
from broker_core.base.policies import NO_POLICIES, Policies, Quotas, quotas_under, settings_under
from broker_core.base.settings import Settings
from broker_core.broker.cluster_settings import OF_CLUSTERS, VALUE_MAX
from broker_core.storage.catalogue import Catalogue

RATES: Final = (
    "dispatchThrottlingRatePerSubscriptionInByte",
    "dispatchThrottlingRatePerSubscriptionInMsg",
    "dispatchThrottlingRatePerTopicInByte",
    "dispatchThrottlingRatePerTopicInMsg",
    "maxPublishRatePerTopicInBytes",
    "maxPublishRatePerTopicInMessages",
    "subscribeRatePeriodPerConsumerInSecond",
    "subscribeThrottlingRatePerConsumer",
)

DYNAMIC: Final = (
    *RATES,
    "brokerDeleteInactiveTopicsEnabled",
    "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds",
    "brokerDeleteInactiveTopicsMode",
    "allowAutoSubscriptionCreation",
    "allowAutoTopicCreation",
    "allowAutoTopicCreationType",
    "defaultNumPartitions",
    "dispatcherMaxReadBatchSize",
    "dispatcherMaxReadSizeBytes",
    "dispatcherMaxRoundRobinBatchSize",
    "forceDeleteNamespaceAllowed",
    "keySharedLookAheadMsgInReplayThresholdPerConsumer",
    "keySharedLookAheadMsgInReplayThresholdPerSubscription",
    "maxTopicsPerNamespace",
    "subscriptionKeySharedEnable",
    "subscriptionTypesEnabled",
)
"""The names of the settings that may be changed while the broker runs, as files and requests have them: those that
Apache Pulsar changes at run time, and that this broker has and reads each time it needs one."""

_FIELDS: Final = {field.encode_name: field.name for field in msgspec.structs.fields(Settings)}


def changed(settings: Settings, values: Mapping[str, str]) -> Settings:
    """``settings`` with ``values``; NotAllowedError for a name that is not dynamic or a value that it cannot have."""
    for name, text in values.items():
        if name in OF_CLUSTERS and len(text) <= VALUE_MAX:
            continue
        if name not in DYNAMIC:
            raise NotAllowedError(
                f"{name[:80]!r} cannot be changed while the broker runs", hint="set it where the broker is started"
            )
        field = _FIELDS[name]
        several = isinstance(getattr(settings, field), tuple)
        value = [each.strip() for each in text.split(",")] if several else text
        try:
            read = msgspec.convert({name: value}, Settings, strict=False)
        except msgspec.ValidationError as error:
            raise NotAllowedError(f"{text[:80]!r} is no value for {name}: {error}") from error
        settings = msgspec.structs.replace(settings, **{field: getattr(read, field)})
    return settings


_OF_ALL: Final = ""
"""The name under which dynamic settings of the broker are kept; no topic has it."""


_OF_CLUSTER: Final = "cluster"
"""The name under which objects of the cluster are kept; no topic has it either."""

_OF_CLUSTER_MAX: Final = 1000
"""Objects of one kind, which are written as a whole."""


class PolicyBook:
    """The policies of both levels, and what follows from them for one topic. ``settings``: the broker's own, as they
    are now."""

    def __init__(self, catalogue: Catalogue, settings: Settings) -> None:
        self._catalogue = catalogue
        self._started_with = settings
        self._namespaces = {name: _read(name, stored) for name, stored in catalogue.namespaces.all().items() if stored}
        of_topics = catalogue.topic_policies.all()
        self.dynamic: dict[str, str] = of_topics.pop(_OF_ALL, {})
        self._of_cluster: dict[str, dict[str, Any]] = of_topics.pop(_OF_CLUSTER, {})
        self.settings = changed(settings, self.dynamic)
        self._topics = {name: _read(name, stored) for name, stored in of_topics.items()}

    # -- what is set

    def of_namespace(self, name: NamespaceName) -> Policies:
        """The policies of a namespace."""
        return self._namespaces.get(str(name), NO_POLICIES)

    def of_topic(self, name: TopicName) -> Policies:
        """The policies of a topic, or of the topic that ``name`` is a partition of."""
        return self._topics.get(str(name.base), NO_POLICIES)

    def set_namespace(self, name: NamespaceName, policies: Policies) -> None:
        """Replace the policies of an existing namespace; NotAllowedError if it contradicts itself."""
        policies.check()
        self._catalogue.namespaces.put(str(name), msgspec.to_builtins(policies))
        self._namespaces[str(name)] = policies

    def set_topic(self, name: TopicName, policies: Policies) -> None:
        """Replace the policies of a topic; NotAllowedError if it contradicts itself or the broker."""
        policies.check()
        if (policies.max_message_size or 0) > self.settings.max_message_size:
            raise NotAllowedError(
                f"messages of {policies.max_message_size} bytes are larger than what the broker reads",
                hint=f"use at most its maxMessageSize, {self.settings.max_message_size}",
            )
        if policies == NO_POLICIES:
            self.forget_topic(name)
            return
        self._catalogue.topic_policies.put(str(name.base), msgspec.to_builtins(policies))
        self._topics[str(name.base)] = policies

    def forget_topic(self, name: TopicName) -> None:
        """Delete the policies of a topic."""
        if self._topics.pop(str(name.base), None) is not None:
            self._catalogue.topic_policies.delete(str(name.base))

    def forget_namespace(self, name: NamespaceName) -> None:
        """Forget the policies of a namespace that was deleted."""
        self._namespaces.pop(str(name), None)

    def set_dynamic(self, name: str, value: str | None) -> None:
        """Change a setting of the broker, or take the change back; NotAllowedError if that cannot be."""
        values = {each: text for each, text in self.dynamic.items() if each != name}
        if value is not None:
            values[name] = value
        self.settings = changed(self._started_with, values)
        self._catalogue.topic_policies.put(_OF_ALL, values)
        self.dynamic = values

    # -- what is kept about the cluster, which nothing acts on

    def of_cluster(self, kind: str) -> Mapping[str, Any]:
        """Objects of one kind, by name."""
        return self._of_cluster.get(kind, {})

    def keep_of_cluster(self, kind: str, name: str, value: object) -> None:
        """Keep an object, None: forget it; NotAllowedError if there are too many."""
        objects = {each: kept for each, kept in self.of_cluster(kind).items() if each != name}
        if value is not None:
            objects[name] = value
        if len(objects) > _OF_CLUSTER_MAX:
            raise NotAllowedError(f"{_OF_CLUSTER_MAX} {kind} are kept at most", hint="delete one first")
        everything = {**self._of_cluster, kind: objects}
        self._catalogue.topic_policies.put(_OF_CLUSTER, everything)
        self._of_cluster = everything

    # -- what follows

    def settings_of(self, name: TopicName) -> Settings:
        """The settings in force for a topic (semantics 1.1.5). System topics have a schema strategy of their own."""
        settings = self.settings
        if name.is_system:
            strategy = settings.system_topic_schema_compatibility_strategy
            settings = msgspec.structs.replace(settings, schema_compatibility_strategy=strategy)
        return settings_under(settings, self.of_namespace(name.namespace_name), self.of_topic(name))

    def settings_of_namespace(self, name: NamespaceName) -> Settings:
        """The settings in force for topics of a namespace that have no policies of their own."""
        return settings_under(self.settings, self.of_namespace(name))

    def quotas_of(self, name: TopicName) -> Quotas:
        """The backlog quotas in force for a topic."""
        return quotas_under(self.settings, self.of_namespace(name.namespace_name), self.of_topic(name))


def _read(name: str, stored: dict[str, Any]) -> Policies:
    try:
        return msgspec.convert(stored, Policies)
    except msgspec.ValidationError as error:
        raise DataFormatError(
            f"the policies of {name} in the catalogue cannot be read: {error}",
            hint="use the broker version that wrote them, or a newer one",
        ) from error
