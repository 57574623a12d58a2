# SPDX-License-Identifier: Apache-2.0
"""``Deletion``: takes topics, partitioned topics and namespaces away, with all their data.

A partitioned topic may have thousands of partitions, so it is deleted in many steps, between ``begin`` and ``finish``
or ``give_up``: meanwhile no client may begin to use a partition.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Final

from broker_core.base.errors import NotAllowedError, ServiceNotReadyError
from broker_core.base.names import NamespaceName, TopicName
from broker_core.base.steps import drained
from broker_core.broker.directory.creation import topic_not_found
from broker_core.broker.directory.namespaces import Namespaces
from broker_core.broker.directory.topic_registry import TopicRegistry, TopicsMode
from broker_core.broker.non_persistent import NonPersistentTopics
from broker_core.broker.policy_book import PolicyBook
from broker_core.broker.topic import Topic

_PARTITIONS_A_STEP: Final = 64
"""Partitions that are looked at in one step; to find out whether one has clients takes some microseconds."""


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class Deletion:
    """Deletes what the registry has. ``topic`` loads a stored topic, or raises the error that it does not exist."""

    registry: TopicRegistry
    namespaces: Namespaces
    policies: PolicyBook
    non_persistent: NonPersistentTopics
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
            if name not in self.non_persistent and not self.registry.is_partition(name):
                auto_creation = self.policies.settings.allow_auto_topic_creation
                raise topic_not_found(self.registry, name, auto_creation=auto_creation)
            self.non_persistent.remove(name)
        if not self.registry.is_partition(name):
            self.policies.forget_topic(name)
            if name.persistent:
                self.registry.remove(name)

    def _check_without_clients(self, name: TopicName) -> None:
        """NotAllowedError if a client is connected. Subscriptions without consumers go with their topic, as in
        Pulsar."""
        passing = self.non_persistent.get(name)
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
        self.policies.forget_topic(name)
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
        self.namespaces.require(name)
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
        self.namespaces.delete(name)
        self.policies.forget_namespace(name)
