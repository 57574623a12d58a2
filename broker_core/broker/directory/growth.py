# SPDX-License-Identifier: Apache-2.0
"""``PartitionGrowth``: adds partitions to a topic, with a cursor on them for every durable subscription of the topic.

The cursors begin at the first message, so no subscription misses what is sent to a new partition (semantics 1.2).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Final

from broker_core.base.errors import NotAllowedError
from broker_core.base.names import TopicName
from broker_core.broker.directory.creation import check_partitions
from broker_core.broker.directory.topic_registry import TopicRegistry
from broker_core.broker.policies.policy_book import PolicyBook
from broker_core.broker.requests import InitialPosition
from broker_core.broker.topic import Topic
from broker_core.storage.catalogue import Catalogue

_LOOKED_AT_A_STEP: Final = 64
"""Partitions whose subscriptions are listed in one step; each takes some microseconds."""

_ADDED_A_STEP: Final = 16
"""Partitions that are made in one step, with their cursors; each takes some hundred microseconds."""


class PartitionGrowth:
    """Grows the partitioned topics of one broker. ``topic`` loads a partition and makes it if it was never used."""

    def __init__(
        self,
        *,
        registry: TopicRegistry,
        catalogue: Catalogue,
        policies: PolicyBook,
        topic: Callable[[TopicName], Topic],
    ) -> None:
        self._registry = registry
        self._catalogue = catalogue
        self._policies = policies
        self._topic = topic

    def grow(self, name: TopicName, partitions: int) -> Generator[None, None, None]:
        """Add partitions until there are so many, in steps. Each step adds some partitions with all their cursors, so
        a crash between two steps leaves no partition without them."""
        before = self._registry.partitions_of_existing(name)
        check_partitions(partitions)
        if partitions < before:
            raise NotAllowedError(
                f"{name} has {before} partitions and cannot shrink to {partitions}", hint="partitions can only be added"
            )
        subscriptions = yield from self._subscriptions(name, before)
        most = self._policies.settings_of(name).max_subscriptions_per_topic
        if most and len(subscriptions) > most:
            raise NotAllowedError(
                f"{name} has {len(subscriptions)} subscriptions, and a new partition may have {most}",
                hint="delete some, or raise maxSubscriptionsPerTopic",
            )
        a_step = _ADDED_A_STEP if subscriptions else partitions
        while (before := self._registry.partitions_of_existing(name)) < partitions:
            self._add(name, range(before, min(before + a_step, partitions)), subscriptions)
            yield

    def _subscriptions(self, name: TopicName, count: int) -> Generator[None, None, dict[str, Mapping[str, str]]]:
        """The durable subscriptions that any of the first ``count`` partitions has, with their properties; in steps."""
        found: dict[str, Mapping[str, str]] = {}
        for index in range(count):
            row = self._registry.row(name.partition(index))
            if row is not None:
                found |= {each.name: each.properties for each in self._catalogue.subscriptions.of_topic(row.id)}
            if not index % _LOOKED_AT_A_STEP:
                yield
        return found

    def _add(self, name: TopicName, added: range, subscriptions: Mapping[str, Mapping[str, str]]) -> None:
        self._registry.add_partitions(name, added)
        if not subscriptions:
            return  # a partition is made when it is first used
        for topic in map(self._topic, map(name.partition, added)):
            for subscription in subscriptions.keys() - topic.subscriptions.keys():
                topic.create_subscription(subscription, InitialPosition.EARLIEST, subscriptions[subscription])
