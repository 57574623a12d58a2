# SPDX-License-Identifier: Apache-2.0
"""``CreationRules``: which topics may be made, by an administrator or by being used; ``PartitionGrowth``: more
partitions.

Source: Pulsar docs, "Topic auto-creation"; semantics 1.1, 1.2.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Final

from broker_core.base.errors import InvalidTopicNameError, NotAllowedError, TopicNotFoundError
from broker_core.base.limits import PARTITIONS_MAX, TOPIC_NAME_BYTES_MAX
from broker_core.base.names import TopicName, shown_name
from broker_core.base.settings import Settings
from broker_core.base.suggest import did_you_mean
from broker_core.broker.directory.namespaces import NamespaceFullError, Namespaces
from broker_core.broker.directory.topic_registry import TopicRegistry
from broker_core.broker.policy_book import PolicyBook
from broker_core.broker.requests import InitialPosition
from broker_core.broker.topic import Topic
from broker_core.storage.catalogue import Catalogue


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class CreationRules:
    """Each check raises the ServerError that says what may not be made, why, and what to do."""

    registry: TopicRegistry
    namespaces: Namespaces
    policies: PolicyBook

    def check_new(self, name: TopicName) -> None:
        """NotAllowedError if a topic of that name exists, or may not be made by an administrator."""
        self.namespaces.require(name.namespace_name)
        if name.partition_index >= 0:
            raise NotAllowedError(
                f"{name} is named like a partition",
                hint=f"make the partitioned topic {name.base}, or choose another name",
            )
        if self.registry.exists(name):
            raise NotAllowedError(f"{name} exists already")

    def check_room(self, name: TopicName, more: int) -> None:
        """NamespaceFullError if the namespace may not have so many more topics; each partition counts as one.

        As in Pulsar only topics that are stored count, and partitions may be added whatever the limit.
        """
        most = self.policies.settings_of_namespace(name.namespace_name).max_topics_per_namespace
        if not most or name.is_system or not name.persistent:
            return
        have = len(self.registry.topics_of(name.namespace_name))
        if have + more > most:
            raise NamespaceFullError(
                f"namespace {name.namespace_name} has {have} topics and may have {most}, so {name} was not created",
                hint="delete a topic, or raise maxTopicsPerNamespace",
            )

    def check_made_by_use(self, name: TopicName, *, create: bool) -> None:
        """TopicNotFoundError unless the topic, which does not exist or is an unused partition, may be made by being
        used; ``create``: the client asks for that."""
        self.namespaces.require(name.namespace_name)
        if self.registry.is_partition(name):
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
        settings = self.policies.settings_of_namespace(name.namespace_name)
        if not create or not settings.allow_auto_topic_creation or self.registry.partitions(name.base):
            auto_creation = self.policies.settings.allow_auto_topic_creation
            raise topic_not_found(self.registry, name, auto_creation=auto_creation)
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


_NEAR: Final = 50
"""Names before and after a missing one in the alphabet that are compared with it; each takes some 0.1 ms."""


def topic_not_found(registry: TopicRegistry, name: TopicName, *, auto_creation: bool) -> TopicNotFoundError:
    """The error names the nearest topic that exists. ``auto_creation``: whether the broker makes topics that are used.
    A client with a misspelt name may ask again and again, so only near names are compared."""
    if name.partition_index >= 0:
        count = registry.partitions(name.base)
        why = f"{name.base} has {count} partitions" if count else f"{name.base} is not a partitioned topic"
        return TopicNotFoundError(f"{name} does not exist: {why}", hint="look up the number of partitions first")
    why = "" if auto_creation else " and auto-creation is off"
    hint = did_you_mean(name.local, registry.near(name, _NEAR), otherwise="create it first")
    return TopicNotFoundError(f"{name} does not exist{why}", hint=hint)


_LOOKED_AT_A_STEP: Final = 64
"""Partitions whose subscriptions are listed in one step; each takes some microseconds."""

_ADDED_A_STEP: Final = 16
"""Partitions that are made in one step, with their cursors; each takes some hundred microseconds."""


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class PartitionGrowth:
    """Adds partitions to a topic, with a cursor on them for every durable subscription of the topic. The cursors begin
    at the first message, so no subscription misses what is sent to a new partition (semantics 1.2). ``topic`` loads a
    partition and makes it if it was never used."""

    registry: TopicRegistry
    catalogue: Catalogue
    policies: PolicyBook
    topic: Callable[[TopicName], Topic]

    def grow(self, name: TopicName, partitions: int) -> Generator[None, None, None]:
        """Add partitions until there are so many, in steps. Each step adds some partitions with all their cursors, so
        a crash between two steps leaves no partition without them."""
        before = self.registry.partitions_of_existing(name)
        check_partitions(partitions)
        if partitions < before:
            raise NotAllowedError(
                f"{name} has {before} partitions and cannot shrink to {partitions}", hint="partitions can only be added"
            )
        subscriptions = yield from self._subscriptions(name, before)
        most = self.policies.settings_of(name).max_subscriptions_per_topic
        if most and len(subscriptions) > most:
            raise NotAllowedError(
                f"{name} has {len(subscriptions)} subscriptions, and a new partition may have {most}",
                hint="delete some, or raise maxSubscriptionsPerTopic",
            )
        a_step = _ADDED_A_STEP if subscriptions else partitions
        while (before := self.registry.partitions_of_existing(name)) < partitions:
            self._add(name, range(before, min(before + a_step, partitions)), subscriptions)
            yield

    def _subscriptions(self, name: TopicName, count: int) -> Generator[None, None, dict[str, Mapping[str, str]]]:
        """The durable subscriptions that any of the first ``count`` partitions has, with their properties; in steps."""
        found: dict[str, Mapping[str, str]] = {}
        for index in range(count):
            row = self.registry.row(name.partition(index))
            if row is not None:
                found |= {each.name: each.properties for each in self.catalogue.subscriptions.of_topic(row.id)}
            if not index % _LOOKED_AT_A_STEP:
                yield
        return found

    def _add(self, name: TopicName, added: range, subscriptions: Mapping[str, Mapping[str, str]]) -> None:
        self.registry.add_partitions(name, added)
        if not subscriptions:
            return  # a partition is made when it is first used
        for topic in map(self.topic, map(name.partition, added)):
            for subscription in subscriptions.keys() - topic.subscriptions.keys():
                topic.create_subscription(subscription, InitialPosition.EARLIEST, subscriptions[subscription])
