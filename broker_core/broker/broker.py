# SPDX-License-Identifier: Apache-2.0
"""``Broker``: all topics of one store; which exist, which are loaded, who may make new ones.

A topic is loaded when somebody first uses it and stays loaded until it is unloaded or deleted. A partitioned topic is
metadata; each partition is a topic of its own, made when first used. Pure: files belong to ``storage``, connections to
``server``. Source: Pulsar docs, "Topics", "Partitioned topics", "Topic auto-creation"; semantics 1.1, 1.2.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from itertools import chain, islice
from typing import Final, TypeAlias

from broker_core.base.clock import Clock, Timers
from broker_core.base.errors import NotAllowedError, ServerError, ServiceNotReadyError, TopicNotFoundError
from broker_core.base.limits import PARTITIONS_MAX
from broker_core.base.names import PARTITION_MARK, NamespaceName, TopicName, check_properties
from broker_core.base.settings import Settings
from broker_core.base.steps import drained
from broker_core.base.suggest import did_you_mean
from broker_core.broker.directory.namespaces import NamespaceFullError, Namespaces
from broker_core.broker.directory.topic_watches import TopicWatch, TopicWatches
from broker_core.broker.dispatch.passes import Turn
from broker_core.broker.dispatch.unacked_limits import BrokerUnacked
from broker_core.broker.limits.age_clock import AgeClock
from broker_core.broker.limits.disk_reserve import DiskReserve
from broker_core.broker.non_persistent import NonPersistentTopic, NonPersistentTopics
from broker_core.broker.policies.policy_book import PolicyBook
from broker_core.broker.policies.policy_values import Policies, quotas_under
from broker_core.broker.requests import InitialPosition
from broker_core.broker.topic import Surroundings, Topic, deduplicates
from broker_core.broker.upkeep.rounds import Upkeep
from broker_core.storage.ledger_recovery import TopicRecovery
from broker_core.storage.metadata import TopicRow
from broker_core.storage.report import Damage
from broker_core.storage.store import Store

_STARTS = "broker starts"
"""Counter in the catalogue: how often a broker was started on this data."""

_NEAR: Final = 50
"""Names before and after a missing one in the alphabet that are compared with it; each takes some 0.1 ms."""

_NAMES_A_STEP: Final = 512
"""Of topics, listed in one go; a microsecond each."""

_PARTITIONS_A_STEP: Final = 64
"""Looked at in one go; to find out whether somebody uses a partition takes some microseconds."""

_ADDED_A_STEP: Final = 16
"""To make a partition and its cursors takes some hundred microseconds."""

AnyTopic: TypeAlias = Topic | NonPersistentTopic
"""Whatever producers and consumers connect to."""


class TopicsMode(Enum):
    """Which topics of a namespace are asked for."""

    PERSISTENT = 0
    NON_PERSISTENT = 1
    ALL = 2

    @property
    def domains(self) -> tuple[str, ...]:
        stored, passing = "persistent", "non-persistent"
        return {TopicsMode.PERSISTENT: (stored,), TopicsMode.NON_PERSISTENT: (passing,)}.get(self, (stored, passing))


class Broker:
    """The registry. Methods raise a ServerError that says what was refused, why, and what to do."""

    def __init__(self, store: Store, clock: Clock, timers: Timers, settings: Settings) -> None:
        self.namespaces = Namespaces(store.metadata)
        self.policies = PolicyBook(store.metadata, settings)
        self._store = store
        self._metadata = store.metadata
        self._clock = clock
        self._timers = timers
        turn = Turn(timers, clock)
        self._watches = TopicWatches(turn)
        self._topics: dict[TopicName, Topic] = {}
        self._partitions = {TopicName.parse(name): n for name, n in self._metadata.partitioned_topics().items()}
        self._being_deleted: set[TopicName] = set()
        self._start_number = self._metadata.reserve_numbers(_STARTS, 1)[0]
        self._producers_named = 0
        self.non_persistent = NonPersistentTopics(clock, timers, self._producer_name)
        reserve = DiskReserve(store, settings)
        self._surroundings = Surroundings(
            store,
            clock,
            AgeClock(clock, settings.clock_jump_tolerance_seconds),
            timers,
            settings,
            quotas_under(settings),
            turn,
            reserve,
            BrokerUnacked(settings),
            self._producer_name,
            self.unload,
        )
        self.upkeep = Upkeep(self, store.metadata, clock, timers, settings, reserve)

    @property
    def damages(self) -> Sequence[Damage]:
        """What was found to be damaged or lost in the data directory, since the broker was started."""
        return self._store.recovery.damages

    # -- what exists

    def partitions_of(self, name: TopicName, *, create: bool = False) -> int:
        """Number of partitions; 0 if ``name`` is not partitioned.

        TopicNotFoundError if there is no such topic and none may be made. With ``create`` a partitioned topic is made
        where auto-creation is set to; a plain one only comes with its first producer or consumer.
        """
        partitions = self._partitions.get(name)
        if partitions is not None:
            return partitions
        if self.exists(name):
            return 0
        self.namespaces.require(name.namespace_name)
        settings = self._settings_to_create(name, create=create)
        if name.partition_index >= 0:
            return 0  # as Pulsar says; who then uses it is told that it may not be
        if settings.allow_auto_topic_creation_type == "partitioned" and not name.is_system:
            self.create_partitioned(name, settings.default_num_partitions)
            return settings.default_num_partitions
        return 0

    def exists(self, name: TopicName) -> bool:
        """Whether ``name`` is a topic, a partition or a partitioned topic."""
        return (
            name in self._topics
            or name in self._partitions
            or name in self.non_persistent
            or self._is_partition(name)
            or self._row(name) is not None
        )

    def is_partitioned(self, name: TopicName) -> bool:
        """Whether ``name`` is a topic with partitions, which holds no messages itself."""
        return name in self._partitions

    def topic_properties(self, name: TopicName) -> dict[str, str]:
        """The properties that users gave an existing topic."""
        if name in self._partitions:
            return self._metadata.partitioned_topic_properties(str(name))
        row = self._row(name)
        return row.of_users if row is not None else {}

    def set_topic_properties(self, name: TopicName, properties: Mapping[str, str]) -> None:
        """Replace the properties that users gave an existing topic."""
        check_properties(properties)
        row = self._row(name)
        if row is None and properties and name.persistent and self._is_partition(name):
            row = self._create(name)  # which nobody has used yet
        if name in self._partitions:
            self._metadata.put_partitioned_topic(str(name), self._partitions[name], properties)
        elif row is not None:
            self._metadata.set_topic_properties(row.id, properties)

    def topics_of(self, namespace: NamespaceName, mode: TopicsMode = TopicsMode.PERSISTENT) -> list[str]:
        """Full names of the topics of a namespace, of partitioned ones every partition; no system topics."""
        return drained(self.topics_in_steps(namespace, mode))

    def topics_in_steps(
        self, namespace: NamespaceName, mode: TopicsMode = TopicsMode.PERSISTENT
    ) -> Generator[None, None, list[str]]:
        """As ``topics_of``; what comes or goes meanwhile may be among them or not."""
        self.namespaces.require(namespace)
        found: list[str] = []
        for number, name in enumerate(self._names_in(namespace, mode)):
            if not _is_system(name):
                found.append(name)
            if not number % _NAMES_A_STEP:
                yield
        return sorted(found)

    def watch_topics(self, watch: TopicWatch) -> Iterator[None]:
        """Fill in the topics that match, in steps, and then tell of every change until ``unwatch_topics``.

        The namespace may come later.
        """
        yield from self._watches.add(watch, self._names_in(watch.namespace, TopicsMode.PERSISTENT))

    def unwatch_topics(self, watch: TopicWatch) -> None:
        """Tell no more."""
        self._watches.remove(watch)

    def partitioned_topics_of(self, namespace: NamespaceName) -> list[str]:
        """Names of the partitioned topics of a namespace, without partitions."""
        self.namespaces.require(namespace)
        return sorted(str(name) for name in self._partitions if name.namespace_name == namespace)

    def loaded_topics(self) -> list[Topic]:
        return list(self._topics.values())

    def is_loaded(self, name: TopicName) -> bool:
        return name in self._topics

    # -- using a topic

    def topic(self, name: TopicName, *, create: bool = False) -> Topic:
        """The topic, loaded. With ``create`` it is made if auto-creation allows; else TopicNotFoundError."""
        loaded = self._topics.get(name)
        if loaded is not None:
            return loaded
        if not name.persistent:
            raise NotAllowedError(f"{name} is not persistent, so nothing is stored of it", hint="use persistent://")
        self._check_holds_messages(name)
        row = self._row(name)
        if row is None:
            self._check_auto_creation(name, create=create)
            row = self._create(name)
        settings = self.policies.settings_of(name)
        log = self._store.open_log(row.id, drained=deduplicates(name, settings))
        surroundings = replace(self._surroundings, settings=settings, quotas=self.policies.quotas_of(name))
        try:
            topic = Topic(name, row.id, log, surroundings)
        except ServerError:
            log.close()
            raise
        self._topics[name] = topic
        return topic

    def when_drained(self, name: TopicName, then: Callable[[], None]) -> None:
        """Call ``then`` when the topic can be had though it was unloaded: what it left may have to be written first."""
        row = None if name in self._topics else self._row(name)
        if row is None:
            then()
        else:
            self._store.when_drained(row.id, then)

    def begin_recovery(self, name: TopicName) -> TopicRecovery | None:
        """As ``Store.begin_recovery``; None also for a topic that is not there."""
        row = None if name in self._topics else self._row(name)
        return None if row is None else self._store.begin_recovery(row.id)

    def finish_recovery(self, recovery: TopicRecovery) -> None:
        """As ``Store.finish_recovery``."""
        self._store.finish_recovery(recovery)

    def used_topics(self, name: TopicName) -> list[Topic]:
        """The topic of that name, loaded; of a partitioned one those of its partitions that were ever used."""
        return [self.topic(each) for each in self.names_of(name) if self._row(each) is not None]

    def names_of(self, name: TopicName) -> Iterator[TopicName]:
        """Where the messages of a topic are: its partitions, of which there may be very many; of one without
        partitions, itself."""
        count = self._partitions.get(name, 0)
        return (name.partition(index) for index in range(count)) if count else iter((name,))

    def any_topic(self, name: TopicName, *, create: bool = False) -> AnyTopic:
        """As ``topic`` for clients, also for names of the other domain, of which nothing is stored."""
        if self._being_deleted and name.base in self._being_deleted:
            raise ServiceNotReadyError(f"{name.base} is being deleted", hint="try again in a moment")
        if name.persistent:
            return self.topic(name, create=create)
        loaded = self.non_persistent.get(name)
        if loaded is not None:
            return loaded
        self._check_holds_messages(name)
        self._check_auto_creation(name, create=create)
        made = self.non_persistent.make(name, self.policies.settings_of(name))
        self.non_persistent.forget_when_idle(name)  # the client for which it is made may be refused
        return made

    def _check_holds_messages(self, name: TopicName) -> None:
        if name in self._partitions:
            raise NotAllowedError(
                f"{name} has {self._partitions[name]} partitions and holds no messages itself",
                hint=f"use its partitions, such as {name.partition(0)}",
            )

    def _check_auto_creation(self, name: TopicName, *, create: bool) -> None:
        """TopicNotFoundError unless the topic, which is not there, may be made by being used."""
        self.namespaces.require(name.namespace_name)
        if self._is_partition(name):
            return
        self._settings_to_create(name, create=create)
        if name.partition_index >= 0:
            raise NotAllowedError(
                f"{name} is named like a partition, and {name.base} is not a partitioned topic",
                hint=f"make the partitioned topic {name.base}, or choose another name",
            )
        self._check_room(name, 1)

    def _settings_to_create(self, name: TopicName, *, create: bool) -> Settings:
        """Those of the namespace; TopicNotFoundError unless it may have the topic, which is not there, made by use."""
        settings = self.policies.settings_of_namespace(name.namespace_name)
        if not create or not settings.allow_auto_topic_creation or name.base in self._partitions:
            raise self._not_found(name)
        return settings

    # -- policies

    def set_namespace_policies(self, name: NamespaceName, policies: Policies) -> None:
        """Replace what is set for a namespace; it holds at once for its topics."""
        self.namespaces.require(name)
        check_properties(policies.properties or {})
        self.policies.set_namespace(name, policies)
        self._apply_policies(lambda topic: topic.namespace_name == name)

    def set_topic_policies(self, name: TopicName, policies: Policies) -> None:
        """Replace what is set for a topic, of a partitioned one for all partitions; it holds at once."""
        self.policies.set_topic(name, policies)
        self._apply_policies(lambda topic: topic.base == name.base)

    def set_dynamic(self, name: str, value: str | None) -> None:
        """Change a setting while the broker runs, or take the change back; it holds at once, and over restarts."""
        self.policies.set_dynamic(name, value)
        self._apply_policies(lambda _topic: True)

    def _apply_policies(self, concerned: Callable[[TopicName], bool]) -> None:
        for topic in [each for each in self._topics.values() if concerned(each.name)]:
            topic.apply(self.policies.settings_of(topic.name), self.policies.quotas_of(topic.name))
        for passing in [each for each in self.non_persistent.all() if concerned(each.name)]:
            passing.apply(self.policies.settings_of(passing.name))

    # -- making and deleting

    def create_topic(self, name: TopicName) -> None:
        """Make a topic without partitions; NotAllowedError if it exists."""
        self._check_new(name)
        self._check_room(name, 1)
        if name.persistent:
            self._create(name)
        else:
            self.non_persistent.make(name, self.policies.settings_of(name))

    def create_partitioned(self, name: TopicName, partitions: int) -> None:
        """Make a partitioned topic; NotAllowedError if it exists."""
        self._check_new(name)
        _check_partitions(partitions)
        self._check_room(name, partitions)
        self._metadata.put_partitioned_topic(str(name), partitions)
        self._partitions[name] = partitions
        self._watches.appeared(name, range(partitions))

    def grow_partitions(self, name: TopicName, partitions: int) -> Generator[None, None, None]:
        """Add partitions, in steps; every durable subscription of the topic gets a cursor on them, so that nothing is
        missed. Each step adds some partitions with all their cursors, so no crash between two steps leaves a gap."""
        before = self._partitions_of_existing(name)
        _check_partitions(partitions)
        if partitions < before:
            raise NotAllowedError(
                f"{name} has {before} partitions and cannot shrink to {partitions}", hint="partitions can only be added"
            )
        subscriptions = yield from self._subscriptions_of_partitions(name, before)
        most = self.policies.settings_of(name).max_subscriptions_per_topic
        if most and len(subscriptions) > most:
            raise NotAllowedError(
                f"{name} has {len(subscriptions)} subscriptions, and a new partition may have {most}",
                hint="delete some, or raise maxSubscriptionsPerTopic",
            )
        a_step = _ADDED_A_STEP if subscriptions else partitions
        while (before := self._partitions_of_existing(name)) < partitions:
            self._add_partitions(name, range(before, min(before + a_step, partitions)), subscriptions)
            yield

    def _partitions_of_existing(self, name: TopicName) -> int:
        """How many a partitioned topic has; TopicNotFoundError if it is none."""
        if name not in self._partitions:
            raise TopicNotFoundError(f"{name} is not a partitioned topic")
        return self._partitions[name]

    def _subscriptions_of_partitions(
        self, name: TopicName, count: int
    ) -> Generator[None, None, dict[str, Mapping[str, str]]]:
        """The durable subscriptions that any of the first ``count`` partitions has, with their properties; in steps."""
        found: dict[str, Mapping[str, str]] = {}
        for index in range(count):
            row = self._row(name.partition(index))
            if row is not None:
                found |= {each.name: each.properties for each in self._metadata.subscriptions(row.id)}
            if not index % _PARTITIONS_A_STEP:
                yield
        return found

    def _add_partitions(self, name: TopicName, added: range, subscriptions: Mapping[str, Mapping[str, str]]) -> None:
        self._metadata.put_partitioned_topic(
            str(name), added.stop, self._metadata.partitioned_topic_properties(str(name))
        )
        self._partitions[name] = added.stop
        self._watches.appeared(name, added)
        if subscriptions:
            for index in added:
                topic = self.topic(name.partition(index))
                for subscription in subscriptions.keys() - topic.subscriptions.keys():
                    topic.create_subscription(subscription, InitialPosition.EARLIEST, subscriptions[subscription])

    def delete_topic(self, name: TopicName, *, force: bool = False) -> None:
        """Delete a topic or partition with all its data. Refused while it has clients, unless ``force``."""
        if not force:
            self._check_without_clients(name)
        if not name.persistent:
            self._delete_non_persistent(name)
            if not self._is_partition(name):
                self.policies.forget_topic(name)
            return
        topic = self.topic(name)
        del self._topics[name]
        topic.delete()
        if not self._is_partition(name):
            self.policies.forget_topic(name)
            self._watches.disappeared(name)

    def _delete_non_persistent(self, name: TopicName) -> None:
        if name not in self.non_persistent and not self._is_partition(name):
            raise self._not_found(name)
        self.non_persistent.remove(name)

    def _check_without_clients(self, name: TopicName) -> None:
        """NotAllowedError if anybody is connected. Subscriptions that nobody uses go with their topic, as in Pulsar."""
        passing = self.non_persistent.get(name)
        if passing is not None and passing.in_use:
            raise NotAllowedError(f"{name} is in use", hint="close its clients, or delete the topic with force")
        topic = self._topics.get(name)  # one that is not loaded has no clients
        if topic is None:
            return
        consumers = sum(len(each.consumers) for each in topic.subscriptions.values())
        if len(topic.producers) or consumers:
            raise NotAllowedError(
                f"{name} has {len(topic.producers)} producers and {consumers} consumers",
                hint="close them first, or delete with force",
            )

    def delete_namespace(self, name: NamespaceName, *, force: bool = False) -> None:
        """Delete a namespace. Refused while it has topics, unless ``force``, which deletes them."""
        self.namespaces.require(name)
        left = sorted({TopicName.parse(topic).base for topic in self._names_in(name, TopicsMode.ALL)})
        of_users = [topic for topic in left if not topic.is_system]
        if of_users and not force:
            raise NotAllowedError(
                f"namespace {name} is not empty: it has {len(of_users)} topics, such as {of_users[0]}",
                hint="delete them first, or delete the namespace with force",
            )
        for topic in left:
            if topic in self._partitions:
                self.delete_partitioned(topic, force=True)
            else:
                self.delete_topic(topic, force=True)
        self.namespaces.delete(name)
        self.policies.forget_namespace(name)

    def begin_deletion(self, name: TopicName) -> None:
        """A partitioned topic is about to be deleted, partition by partition: until ``finish_deletion`` or
        ``give_up_deletion`` no client may begin to use one. Refused while that is going on already."""
        self._partitions_of_existing(name)
        if name in self._being_deleted:
            raise NotAllowedError(f"{name} is being deleted already", hint="wait until it is gone")
        self._being_deleted.add(name)

    def check_deletable(self, name: TopicName) -> Generator[None, None, None]:
        """NotAllowedError if a partition has clients; in steps."""
        for number, partition in enumerate(self.names_of(name)):
            self._check_without_clients(partition)
            if not number % _PARTITIONS_A_STEP:
                yield

    def partitions_left(self, name: TopicName) -> list[TopicName]:
        """The partitions of a topic that were ever used and are not deleted."""
        if name.persistent:
            stored = self._metadata.topic_names(f"{name}{PARTITION_MARK}")
            used = [TopicName.parse(text) for text in stored]
        else:
            used = self.non_persistent.names()
        return [each for each in used if each.base == name and self._is_partition(each)]

    def finish_deletion(self, name: TopicName) -> None:
        """Delete the partitioned topic itself, and what is left of its partitions."""
        for partition in self.partitions_left(name):
            self.delete_topic(partition, force=True)
        self._metadata.delete_partitioned_topic(str(name))
        count = self._partitions.pop(name)
        self.give_up_deletion(name)
        self.policies.forget_topic(name)
        self._watches.disappeared(name, range(count))

    def give_up_deletion(self, name: TopicName) -> None:
        """Whoever comes may use it again."""
        self._being_deleted.discard(name)

    def delete_partitioned(self, name: TopicName, *, force: bool = False) -> None:
        """Delete a partitioned topic and all its partitions at once."""
        self.begin_deletion(name)
        try:
            if not force:
                drained(self.check_deletable(name))
            self.finish_deletion(name)
        finally:
            self.give_up_deletion(name)

    def unload(self, name: TopicName) -> None:
        """Disconnect all clients of a topic and let it go from memory; it is loaded again when it is next used."""
        topic = self._topics.pop(name, None)
        if topic is not None:
            topic.close()
        self.non_persistent.remove(name)

    def close(self) -> None:
        """Disconnect everybody and write what is left. The store is closed by whoever opened it."""
        self.upkeep.close()
        for name in list(self._topics):
            self.unload(name)
        self.non_persistent.close()

    # -- parts

    def _create(self, name: TopicName) -> TopicRow:
        row = self._metadata.create_topic(str(name), self._clock.now_ms())
        if not self._is_partition(name):
            self._watches.appeared(name)
        return row

    def _row(self, name: TopicName) -> TopicRow | None:
        return self._metadata.topic(str(name))

    def _is_partition(self, name: TopicName) -> bool:
        index = name.partition_index
        return index >= 0 and index < self._partitions.get(name.base, 0)

    def _names_in(self, namespace: NamespaceName, mode: TopicsMode) -> Iterator[str]:
        """Full names of topics, of partitioned ones those of the partitions; as text, as there may be very many."""
        counts = {str(name): partitions for name, partitions in self._partitions.items()}
        for place in [f"{domain}://{namespace}/" for domain in mode.domains]:
            for partitioned, partitions in counts.items():
                if partitioned.startswith(place):
                    yield from (f"{partitioned}{PARTITION_MARK}{index}" for index in range(partitions))
            for text in chain(self._metadata.topic_names(place), map(str, self.non_persistent.names())):
                base, _mark, index = text.rpartition(PARTITION_MARK)
                if text.startswith(place) and not _is_number_below(index, counts.get(base, 0)):
                    yield text

    def _check_new(self, name: TopicName) -> None:
        self.namespaces.require(name.namespace_name)
        if name.partition_index >= 0:
            raise NotAllowedError(
                f"{name} is named like a partition",
                hint=f"make the partitioned topic {name.base}, or choose another name",
            )
        if self.exists(name):
            raise NotAllowedError(f"{name} exists already")

    def _not_found(self, name: TopicName) -> ServerError:
        if name.partition_index >= 0:
            count = self._partitions.get(name.base)
            why = f"{name.base} has {count} partitions" if count else f"{name.base} is not a partitioned topic"
            return TopicNotFoundError(f"{name} does not exist: {why}", hint="look up the number of partitions first")
        why = "" if self.policies.settings.allow_auto_topic_creation else " and auto-creation is off"
        hint = did_you_mean(name.local, self._siblings(name), otherwise="create it first")
        return TopicNotFoundError(f"{name} does not exist{why}", hint=hint)

    def _siblings(self, name: TopicName) -> set[str]:
        """Topics of the same namespace whose names are near: who misspells one may do so again and again."""
        near = map(
            TopicName.parse, self._metadata.names_near(f"persistent://{name.namespace_name}/{name.local}", _NEAR)
        )
        passing = islice(self.non_persistent.names(), 2 * _NEAR)
        return {each.base.local for each in chain(near, passing) if each.namespace_name == name.namespace_name}

    def _producer_name(self) -> str:
        """Unique for ever: the number of this start is taken from the catalogue (semantics 1.7.1)."""
        number = self._producers_named
        self._producers_named += 1
        return f"{self.policies.settings.cluster_name}-{self._start_number}-{number}"

    def _check_room(self, name: TopicName, more: int) -> None:
        """NamespaceFullError if the namespace may not have so many more topics; each partition counts as one.

        As in Pulsar only topics that are stored count, and partitions may be added whatever the limit.
        """
        most = self.policies.settings_of_namespace(name.namespace_name).max_topics_per_namespace
        if not most or name.is_system or not name.persistent:
            return
        have = len(self.topics_of(name.namespace_name))
        if have + more > most:
            raise NamespaceFullError(
                f"namespace {name.namespace_name} has {have} topics and may have {most}, so {name} was not created",
                hint="delete a topic, or raise maxTopicsPerNamespace",
            )


def _is_system(name: str) -> bool:
    """``TopicName.is_system`` of a full name."""
    return name.startswith("__", name.rindex("/") + 1)


def _is_number_below(text: str, end: int) -> bool:
    """Whether ``text`` is how the index of one of ``end`` partitions is written."""
    return end > 0 and text.isdecimal() and (text[0] != "0" or text == "0") and int(text) < end


def _check_partitions(partitions: int) -> None:
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise NotAllowedError(f"{partitions} partitions were asked for", hint=f"use 1 to {PARTITIONS_MAX}")
