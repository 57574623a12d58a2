# SPDX-License-Identifier: Apache-2.0
"""Making, growing and deleting topics: ``CreationRules`` say which topics may be made, by an administrator or by being
used.

Source: Pulsar docs, "Topic auto-creation"; semantics 1.1, 1.2.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Final

from broker_core.base.errors import InvalidTopicNameError, NotAllowedError, ServiceNotReadyError, TopicNotFoundError
from broker_core.base.limits import PARTITIONS_MAX, TOPIC_NAME_BYTES_MAX
from broker_core.base.names import NamespaceName, TopicName, shown_name
from broker_core.base.settings import Settings
from broker_core.base.steps import drained
from broker_core.base.suggest import did_you_mean
from broker_core.broker.directory.topic_registry import NamespaceFullError, TopicRegistry, TopicsMode
from broker_core.broker.policy_book import PolicyBook
from broker_core.broker.requests import InitialPosition
from broker_core.broker.schema_registry import SchemaRegistry
from broker_core.broker.topic import Topic


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class CreationRules:
    """Each check raises the ServerError that says what may not be made, why, and what to do."""

    registry: TopicRegistry
    policies: PolicyBook

    def check_new(self, name: TopicName) -> None:
        """NotAllowedError if a topic of that name exists, or may not be made by an administrator."""
        self.registry.namespaces.require(name.namespace_name)
        _check_not_of_transactions(name)
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
        self.registry.namespaces.require(name.namespace_name)
        if self.registry.is_partition(name):
            return
        _check_not_of_transactions(name)
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


def _check_not_of_transactions(name: TopicName) -> None:
    if name.is_of_transactions:
        raise NotAllowedError(f"{name} is reserved for transactions", hint="choose another name")


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
                found |= {each.name: each.properties for each in self.registry.catalogue.subscriptions.of_topic(row.id)}
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


_PARTITIONS_A_STEP: Final = 64
"""Partitions that are looked at in one step; to find out whether one has clients takes some microseconds."""


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class Deletion:
    """Takes topics, partitioned topics and namespaces away, with all their data. ``topic`` loads a stored topic, or
    raises the error that it does not exist.

    A partitioned topic may have thousands of partitions, so it is deleted in many steps, between ``begin`` and
    ``finish`` or ``give_up``: meanwhile no client may begin to use a partition.
    """

    registry: TopicRegistry
    policies: PolicyBook
    schemas: SchemaRegistry
    topic: Callable[[TopicName], Topic]
    _under_way: set[TopicName] = field(default_factory=set, init=False)

    # -- one topic

    def delete_topic(self, name: TopicName, *, force: bool = False) -> None:
        """Delete a topic or partition. NotAllowedError while it has clients, unless ``force``."""
        if not force:
            self._check_without_clients(name)
        if name.persistent:
            topic = self.topic(name)
            self.registry.remove_loaded(name)
            topic.delete()
        else:
            if name not in self.registry.non_persistent and not self.registry.is_partition(name):
                auto_creation = self.policies.settings.allow_auto_topic_creation
                raise topic_not_found(self.registry, name, auto_creation=auto_creation)
            self.registry.non_persistent.remove(name)
        if not self.registry.is_partition(name):
            self._forget(name)
            if name.persistent:
                self.registry.watches.disappeared(name)  # its row goes with its log

    def _forget(self, name: TopicName) -> None:
        """Let go of everything that is kept for a whole topic."""
        self.policies.forget_topic(name)
        self.forget_schemas(name)

    def forget_schemas(self, name: TopicName) -> None:
        """Let go of the schemas of a topic that is gone. They are also those of its other partitions, and of its
        namesake in the other domain, which may be left (semantics 10.11)."""
        base = name.base
        if not (self.registry.exists(base) or self.registry.exists(base.in_other_domain)):
            self.schemas.forget(base)

    def _check_without_clients(self, name: TopicName) -> None:
        """NotAllowedError if a client is connected. Subscriptions without consumers go with their topic, as in
        Pulsar."""
        passing = self.registry.non_persistent.get(name)
        if passing is not None and passing.in_use:
            raise NotAllowedError(f"{name} is in use", hint="close its clients, or delete the topic with force")
        topic = self.registry.loaded(name)  # one that is not loaded has no clients
        if topic is None:
            return
        consumers = sum(len(each.consumers) for each in topic.subscriptions.values())
        if len(topic.producers) or consumers:
            raise NotAllowedError(
                f"{name} has {len(topic.producers)} producers and {consumers} consumers",
                hint="close them first, or delete with force",
            )

    # -- a partitioned topic

    def check_usable(self, name: TopicName) -> None:
        """ServiceNotReadyError while the partitioned topic that ``name`` belongs to is being deleted."""
        if self._under_way and name.base in self._under_way:
            raise ServiceNotReadyError(f"{name.base} is being deleted", hint="try again in a moment")

    def begin(self, name: TopicName) -> None:
        """A partitioned topic is about to be deleted, partition by partition: until ``finish`` or ``give_up`` no client
        may begin to use one. NotAllowedError while it is being deleted already."""
        self.registry.partitions_of_existing(name)
        if name in self._under_way:
            raise NotAllowedError(f"{name} is being deleted already", hint="wait until it is gone")
        self._under_way.add(name)

    def check_deletable(self, name: TopicName) -> Generator[None, None, None]:
        """NotAllowedError if a partition has clients; in steps."""
        for number, partition in enumerate(self.registry.names_of(name)):
            self._check_without_clients(partition)
            if not number % _PARTITIONS_A_STEP:
                yield

    def finish(self, name: TopicName) -> None:
        """Delete the partitioned topic itself, and those of its partitions that are not deleted yet."""
        for partition in self.registry.partitions_used(name):
            self.delete_topic(partition, force=True)
        self.registry.remove_partitioned(name)
        self._forget(name)
        self.give_up(name)

    def give_up(self, name: TopicName) -> None:
        """Let clients use the topic again, as far as it is not deleted."""
        self._under_way.discard(name)

    def delete_partitioned(self, name: TopicName, *, force: bool = False) -> None:
        """Delete a partitioned topic and all its partitions at once."""
        self.begin(name)
        try:
            if not force:
                drained(self.check_deletable(name))
            self.finish(name)
        finally:
            self.give_up(name)

    # -- a namespace

    def delete_namespace(self, name: NamespaceName, *, force: bool = False) -> None:
        """Delete a namespace. NotAllowedError while it has topics, unless ``force``, which deletes them."""
        self.registry.namespaces.require(name)
        left = sorted({TopicName.parse(topic).base for topic in self.registry.names_in(name, TopicsMode.ALL)})
        of_users = [topic for topic in left if not topic.is_system]
        if of_users and not force:
            raise NotAllowedError(
                f"namespace {name} is not empty: it has {len(of_users)} topics, such as {of_users[0]}",
                hint="delete them first, or delete the namespace with force",
            )
        for topic in left:
            if self.registry.partitions(topic):
                self.delete_partitioned(topic, force=True)
            else:
                self.delete_topic(topic, force=True)
        self.registry.namespaces.delete(name)
        self.policies.forget_namespace(name)
        self.schemas.forget_namespace(name)
