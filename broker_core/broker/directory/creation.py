# SPDX-License-Identifier: Apache-2.0
"""``CreationRules``: which topics may be made, by an administrator or by being used. Changes nothing.

Source: Pulsar docs, "Topic auto-creation"; semantics 1.1, 1.2.
"""

from __future__ import annotations

from broker_core.base.errors import InvalidTopicNameError, NotAllowedError
from broker_core.base.limits import PARTITIONS_MAX, TOPIC_NAME_BYTES_MAX
from broker_core.base.names import TopicName, shown_name
from broker_core.base.settings import Settings
from broker_core.broker.directory.namespaces import NamespaceFullError, Namespaces
from broker_core.broker.directory.spelling import topic_not_found
from broker_core.broker.directory.topic_registry import TopicRegistry
from broker_core.broker.policies.policy_book import PolicyBook


class CreationRules:
    """Each check raises the ServerError that says what may not be made, why, and what to do."""

    def __init__(self, *, registry: TopicRegistry, namespaces: Namespaces, policies: PolicyBook) -> None:
        self._registry = registry
        self._namespaces = namespaces
        self._policies = policies

    def check_new(self, name: TopicName) -> None:
        """NotAllowedError if a topic of that name exists, or may not be made by an administrator."""
        self._namespaces.require(name.namespace_name)
        if name.partition_index >= 0:
            raise NotAllowedError(
                f"{name} is named like a partition",
                hint=f"make the partitioned topic {name.base}, or choose another name",
            )
        if self._registry.exists(name):
            raise NotAllowedError(f"{name} exists already")

    def check_room(self, name: TopicName, more: int) -> None:
        """NamespaceFullError if the namespace may not have so many more topics; each partition counts as one.

        As in Pulsar only topics that are stored count, and partitions may be added whatever the limit.
        """
        most = self._policies.settings_of_namespace(name.namespace_name).max_topics_per_namespace
        if not most or name.is_system or not name.persistent:
            return
        have = len(self._registry.topics_of(name.namespace_name))
        if have + more > most:
            raise NamespaceFullError(
                f"namespace {name.namespace_name} has {have} topics and may have {most}, so {name} was not created",
                hint="delete a topic, or raise maxTopicsPerNamespace",
            )

    def check_made_by_use(self, name: TopicName, *, create: bool) -> None:
        """TopicNotFoundError unless the topic, which does not exist or is an unused partition, may be made by being
        used; ``create``: the client asks for that."""
        self._namespaces.require(name.namespace_name)
        if self._registry.is_partition(name):
            return
        self.settings_to_make_by_use(name, create=create)
        if name.partition_index >= 0:
            raise NotAllowedError(
                f"{name} is named like a partition, and {name.base} is not a partitioned topic",
                hint=f"make the partitioned topic {name.base}, or choose another name",
            )
        self.check_room(name, 1)

    def settings_to_make_by_use(self, name: TopicName, *, create: bool) -> Settings:
        """The settings of the namespace; TopicNotFoundError unless the topic, which does not exist, may be made by
        being used."""
        settings = self._policies.settings_of_namespace(name.namespace_name)
        if not create or not settings.allow_auto_topic_creation or self._registry.partitions(name.base):
            auto_creation = self._policies.settings.allow_auto_topic_creation
            raise topic_not_found(self._registry, name, auto_creation=auto_creation)
        return settings


def check_partitions(partitions: int) -> None:
    """NotAllowedError unless a topic may have so many partitions."""
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise NotAllowedError(f"{partitions} partitions were asked for", hint=f"use 1 to {PARTITIONS_MAX}")


def check_partition_names(name: TopicName) -> None:
    """InvalidTopicNameError unless each partition that the topic may ever have has a valid name."""
    last = str(name.partition(PARTITIONS_MAX - 1))
    try:
        TopicName.parse(last)
    except InvalidTopicNameError as error:
        raise InvalidTopicNameError(
            f"topic name {shown_name(str(name))} leaves no room for the names of partitions",
            hint=f"shorten it by {len(last.encode()) - TOPIC_NAME_BYTES_MAX} bytes",
        ) from error
