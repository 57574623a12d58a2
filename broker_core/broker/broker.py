# SPDX-License-Identifier: Apache-2.0
"""``Broker``: all topics of one store; which exist, which are loaded, who may make new ones.

A topic is loaded when somebody first uses it and stays loaded until it is unloaded or deleted. A partitioned topic is
metadata; each partition is a topic of its own, made when first used. Pure: files belong to ``storage``, connections to
``server``. Source: Pulsar docs, "Topics", "Partitioned topics", "Topic auto-creation"; semantics 1.1, 1.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from broker_core.base.clock import Clock, TimerHandle, Timers
from broker_core.base.errors import NotAllowedError, ServerError, TopicNotFoundError
from broker_core.base.limits import PARTITIONS_MAX
from broker_core.base.names import NamespaceName, TopicName
from broker_core.base.settings import Settings
from broker_core.base.suggest import did_you_mean
from broker_core.broker.namespaces import Namespaces
from broker_core.broker.requests import InitialPosition
from broker_core.broker.retention import trim
from broker_core.broker.topic import Surroundings, Topic
from broker_core.storage.metadata import TopicRow
from broker_core.storage.store import Store

_STARTS = "broker starts"
"""Counter in the catalogue: how often a broker was started on this data."""


class TopicsMode(Enum):
    """Which topics of a namespace are asked for."""

    PERSISTENT = 0
    NON_PERSISTENT = 1
    ALL = 2


class Broker:
    """The registry. Methods raise a ServerError that says what was refused, why, and what to do."""

    def __init__(self, store: Store, clock: Clock, timers: Timers, settings: Settings) -> None:
        self.settings = settings
        self.namespaces = Namespaces(store.metadata)
        self._store = store
        self._metadata = store.metadata
        self._clock = clock
        self._timers = timers
        self._topics: dict[TopicName, Topic] = {}
        self._partitions = {TopicName.parse(name): n for name, n in self._metadata.partitioned_topics().items()}
        self._start_number = self._metadata.reserve_numbers(_STARTS, 1)[0]
        self._producers_named = 0
        self._surroundings = Surroundings(store, clock, timers, settings, self._producer_name)
        self._retention: TimerHandle | None = None
        self._arm_retention()

    # -- what exists

    def partitions_of(self, name: TopicName, *, create: bool = False) -> int:
        """Number of partitions; 0 if ``name`` is not partitioned.

        TopicNotFoundError if there is no such topic and none may be made. With ``create`` a partitioned topic is made
        where auto-creation is set to; a plain one only comes with its first producer or consumer.
        """
        self._check_supported(name)
        partitions = self._partitions.get(name)
        if partitions is not None:
            return partitions
        if self.exists(name):
            return 0
        self.namespaces.require(name.namespace_name)
        if not create or not self.settings.allow_auto_topic_creation or name.partition_index >= 0:
            raise self._not_found(name)
        if self.settings.allow_auto_topic_creation_type == "partitioned" and not name.is_system:
            self.create_partitioned(name, self.settings.default_num_partitions)
            return self.settings.default_num_partitions
        return 0

    def exists(self, name: TopicName) -> bool:
        """Whether ``name`` is a topic, a partition or a partitioned topic."""
        return (
            name in self._topics or name in self._partitions or self._is_partition(name) or self._row(name) is not None
        )

    def topics_of(self, namespace: NamespaceName, mode: TopicsMode = TopicsMode.PERSISTENT) -> list[str]:
        """Full names of the topics of a namespace, of partitioned ones every partition; no system topics."""
        self.namespaces.require(namespace)
        if mode is TopicsMode.NON_PERSISTENT:
            return []
        return sorted(
            str(name) for name in self._topic_names() if name.namespace_name == namespace and not name.is_system
        )

    def partitioned_topics_of(self, namespace: NamespaceName) -> list[str]:
        """Names of the partitioned topics of a namespace, without partitions."""
        self.namespaces.require(namespace)
        return sorted(str(name) for name in self._partitions if name.namespace_name == namespace)

    def loaded_topics(self) -> list[Topic]:
        return list(self._topics.values())

    # -- using a topic

    def topic(self, name: TopicName, *, create: bool = False) -> Topic:
        """The topic, loaded. With ``create`` it is made if auto-creation allows; else TopicNotFoundError."""
        loaded = self._topics.get(name)
        if loaded is not None:
            return loaded
        self._check_supported(name)
        if name in self._partitions:
            raise NotAllowedError(
                f"{name} has {self._partitions[name]} partitions and holds no messages itself",
                hint=f"use its partitions, such as {name.partition(0)}",
            )
        row = self._row(name)
        if row is None:
            row = self._auto_create(name, create=create)
        topic = Topic(name, row.id, self._store.open_log(row.id), self._surroundings)
        self._topics[name] = topic
        return topic

    def _auto_create(self, name: TopicName, *, create: bool) -> TopicRow:
        self.namespaces.require(name.namespace_name)
        if self._is_partition(name):
            return self._create(name)
        if not create or not self.settings.allow_auto_topic_creation or name.partition_index >= 0:
            raise self._not_found(name)
        return self._create(name)

    # -- making and deleting

    def create_topic(self, name: TopicName) -> None:
        """Make a topic without partitions; NotAllowedError if it exists."""
        self._check_new(name)
        self._create(name)

    def create_partitioned(self, name: TopicName, partitions: int) -> None:
        """Make a partitioned topic; NotAllowedError if it exists."""
        self._check_new(name)
        _check_partitions(partitions)
        self._metadata.put_partitioned_topic(str(name), partitions)
        self._partitions[name] = partitions

    def grow_partitions(self, name: TopicName, partitions: int) -> None:
        """Add partitions; every durable subscription of the topic gets a cursor on them, so that nothing is missed."""
        before = self._partitions.get(name)
        if before is None:
            raise TopicNotFoundError(f"{name} is not a partitioned topic")
        _check_partitions(partitions)
        if partitions < before:
            raise NotAllowedError(
                f"{name} has {before} partitions and cannot shrink to {partitions}", hint="partitions can only be added"
            )
        self._metadata.put_partitioned_topic(
            str(name), partitions, self._metadata.partitioned_topic_properties(str(name))
        )
        self._partitions[name] = partitions
        subscriptions = {
            subscription.name: dict(subscription.properties)
            for subscription in self.topic(name.partition(0)).subscriptions.values()
            if subscription.durable
        }
        for index in range(before, partitions):
            topic = self.topic(name.partition(index)) if subscriptions else None
            for subscription, properties in subscriptions.items():
                if topic is not None and subscription not in topic.subscriptions:
                    topic.create_subscription(subscription, InitialPosition.EARLIEST, properties)

    def delete_topic(self, name: TopicName, *, force: bool = False) -> None:
        """Delete a topic or partition with all its data. Refused while it is in use, unless ``force``."""
        topic = self.topic(name)
        if not force and (len(topic.producers) or topic.subscriptions):
            raise NotAllowedError(
                f"{name} has {len(topic.producers)} producers and {len(topic.subscriptions)} subscriptions",
                hint="close and delete them first, or delete the topic with force",
            )
        del self._topics[name]
        topic.delete()

    def delete_partitioned(self, name: TopicName, *, force: bool = False) -> None:
        """Delete a partitioned topic and all its partitions."""
        partitions = self._partitions.get(name)
        if partitions is None:
            raise TopicNotFoundError(f"{name} is not a partitioned topic")
        made = [name.partition(i) for i in range(partitions) if self._row(name.partition(i)) is not None]
        if not force:
            for partition in made:
                topic = self.topic(partition)
                if len(topic.producers) or topic.subscriptions:
                    raise NotAllowedError(f"{partition} is in use", hint="close its clients, or delete with force")
        for partition in made:
            self.delete_topic(partition, force=True)
        self._metadata.delete_partitioned_topic(str(name))
        del self._partitions[name]

    def unload(self, name: TopicName) -> None:
        """Disconnect all clients of a topic and let it go from memory; it is loaded again when it is next used."""
        topic = self._topics.pop(name, None)
        if topic is not None:
            topic.close()

    def close(self) -> None:
        """Disconnect everybody and write what is left. The store is closed by whoever opened it."""
        if self._retention is not None:
            self._retention.cancel()
            self._retention = None
        for name in list(self._topics):
            self.unload(name)

    # -- parts

    def _create(self, name: TopicName) -> TopicRow:
        return self._metadata.create_topic(str(name), self._clock.now_ms())

    def _row(self, name: TopicName) -> TopicRow | None:
        return self._metadata.topic(str(name))

    def _is_partition(self, name: TopicName) -> bool:
        index = name.partition_index
        return index >= 0 and index < self._partitions.get(name.base, 0)

    def _topic_names(self) -> Iterator[TopicName]:
        for name, partitions in self._partitions.items():
            yield from (name.partition(index) for index in range(partitions))
        for row in self._metadata.topics():
            name = TopicName.parse(row.name)
            if not self._is_partition(name):
                yield name

    def _check_new(self, name: TopicName) -> None:
        self._check_supported(name)
        self.namespaces.require(name.namespace_name)
        if name.partition_index >= 0:
            raise NotAllowedError(
                f"{name} is named like a partition",
                hint=f"make the partitioned topic {name.base}, or choose another name",
            )
        if self.exists(name):
            raise NotAllowedError(f"{name} exists already")

    def _check_supported(self, name: TopicName) -> None:
        if not name.persistent:
            raise NotAllowedError(f"{name} is not persistent, which is not supported", hint="use a persistent:// topic")

    def _not_found(self, name: TopicName) -> ServerError:
        if name.partition_index >= 0:
            count = self._partitions.get(name.base)
            why = f"{name.base} has {count} partitions" if count else f"{name.base} is not a partitioned topic"
            return TopicNotFoundError(f"{name} does not exist: {why}", hint="look up the number of partitions first")
        siblings = (known for known in self._topic_names() if known.namespace_name == name.namespace_name)
        why = "" if self.settings.allow_auto_topic_creation else " and auto-creation is off"
        hint = did_you_mean(name.local, {known.base.local for known in siblings}, otherwise="create it first")
        return TopicNotFoundError(f"{name} does not exist{why}", hint=hint)

    def _producer_name(self) -> str:
        """Unique for ever: the number of this start is taken from the catalogue (semantics 1.7.1)."""
        number = self._producers_named
        self._producers_named += 1
        return f"{self.settings.cluster_name}-{self._start_number}-{number}"

    def _arm_retention(self) -> None:
        self._retention = self._timers.call_later(
            self.settings.retention_check_interval_in_seconds, self._check_retention
        )

    def _check_retention(self) -> None:
        self._arm_retention()
        for topic in self.loaded_topics():
            trim(topic)


def _check_partitions(partitions: int) -> None:
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise NotAllowedError(f"{partitions} partitions were asked for", hint=f"use 1 to {PARTITIONS_MAX}")
