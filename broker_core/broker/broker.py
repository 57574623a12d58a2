# SPDX-License-Identifier: Apache-2.0
"""``Broker``: the door to all topics of one store. The broker puts the parts together and has methods that need several
of them.

The ``registry`` knows which topics exist, ``CreationRules`` decide which may be made; loading, growing and
deleting have parts of their own, all in ``directory``. Pure: files belong to ``storage``, connections to ``server``.
Source: Pulsar docs, "Topics", "Partitioned topics", "Topic auto-creation"; semantics 1.1, 1.2.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Final, TypeAlias

from broker_core.base.clock import Clock, Timers
from broker_core.base.errors import NotAllowedError
from broker_core.base.names import NamespaceName, TopicName, check_properties
from broker_core.base.policies import Policies
from broker_core.base.settings import Settings
from broker_core.base.turns import Turns
from broker_core.broker.compaction.compactor import Compactor
from broker_core.broker.coordinator.coordinator import TransactionCoordinator
from broker_core.broker.coordinator.held_topics import HeldTopics
from broker_core.broker.directory.topic_changes import (
    CreationRules,
    Deletion,
    PartitionGrowth,
    check_partition_names,
    check_partitions,
)
from broker_core.broker.directory.topic_loader import Recover, TopicLoader, recover_when_opened
from broker_core.broker.directory.topic_registry import Namespaces, TopicRegistry
from broker_core.broker.directory.topic_watches import TopicWatches
from broker_core.broker.dispatch.unacked_limits import BrokerUnacked
from broker_core.broker.inactive_topics import InactiveTopics
from broker_core.broker.limits.age_clock import AgeClock
from broker_core.broker.limits.disk_reserve import DiskReserve
from broker_core.broker.non_persistent.topic import NonPersistentTopic, NonPersistentTopics
from broker_core.broker.policy_book import PolicyBook
from broker_core.broker.schema_registry import SchemaRegistry
from broker_core.broker.topic import Surroundings, Topic
from broker_core.broker.transactions.open_transactions import OpenTransactions
from broker_core.broker.upkeep import Upkeep
from broker_core.storage.report import Damage
from broker_core.storage.store import Store

_STARTS: Final = "broker starts"
"""Counter in the catalogue: how often a broker was started on this data."""

AnyTopic: TypeAlias = Topic | NonPersistentTopic
"""A topic that producers and consumers connect to."""


def is_idle(topic: AnyTopic) -> bool:
    """Whether a consumer may still say which schema a topic has: nothing is stored, and nobody is connected but
    consumers that take any schema (semantics 10.15)."""
    if len(topic.producers) or (isinstance(topic, Topic) and topic.log.entries_count):
        return False
    consumers = (consumer for each in topic.subscriptions.values() for consumer in each.consumers)
    return all(each.request.any_schema for each in consumers)


class Broker:
    """The methods of all parts raise a ServerError that says what was refused, why, and what to do."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        timers: Timers,
        settings: Settings,
        *,
        recover: Recover = recover_when_opened,
        turns: Turns | None = None,
    ) -> None:
        """``recover`` has a topic recovered after a crash, on another thread for example, and calls back. ``turns``: of
        the loop, where dispatch shares them with other work."""
        catalogue = store.catalogue
        self._store = store
        self._start_number = catalogue.numbers.next(_STARTS)
        self._producers_named = 0
        turns = turns or Turns(partial(timers.call_later, 0), clock)
        reserve = DiskReserve(store, settings)
        age_clock = AgeClock(clock, settings.clock_jump_tolerance_seconds)
        self.open_transactions = OpenTransactions(catalogue)
        self.transactions = TransactionCoordinator(store, self.open_transactions, age_clock, timers, turns, settings)
        self.held_topics = HeldTopics(self.open_transactions, catalogue.topics.name_of, age_clock.now_ms, timers)
        self.namespaces = Namespaces(catalogue)
        self.policies = PolicyBook(catalogue, settings)
        self.schemas = SchemaRegistry(catalogue, self.policies, clock)
        self.non_persistent = NonPersistentTopics(clock, timers, self._producer_name)
        self.registry = TopicRegistry(
            catalogue=catalogue,
            clock=clock,
            namespaces=self.namespaces,
            non_persistent=self.non_persistent,
            watches=TopicWatches(turns),
        )
        self.loader = TopicLoader(
            registry=self.registry,
            policies=self.policies,
            surroundings=Surroundings(
                store=store,
                clock=clock,
                age_clock=age_clock,
                timers=timers,
                turns=turns,
                reserve=reserve,
                unacked=BrokerUnacked(settings),
                transactions=self.open_transactions,
                compactor=Compactor(turns),
                producer_name=self._producer_name,
            ),
            recover=recover,
        )
        self._rules = CreationRules(registry=self.registry, policies=self.policies)
        self.growth = PartitionGrowth(registry=self.registry, policies=self.policies, topic=self.topic)
        self.deletion = Deletion(registry=self.registry, policies=self.policies, schemas=self.schemas, topic=self.topic)
        self.non_persistent.when_forgotten = self.deletion.forget_schemas
        self.upkeep = Upkeep(
            registry=self.registry,
            loader=self.loader,
            timers=timers,
            settings=settings,
            reserve=reserve,
            inactive=InactiveTopics(clock, timers, self.deletion.delete_topic),
        )

    @property
    def damages(self) -> Sequence[Damage]:
        """Damages and losses found in the data directory since the broker was started."""
        return self._store.recovery.all

    # -- using a topic

    def topic(self, name: TopicName, *, create: bool = False) -> Topic:
        """The topic, loaded. With ``create`` it is made if auto-creation allows; else TopicNotFoundError."""
        loaded = self.registry.loaded(name)
        if loaded is not None:
            return loaded
        if not name.persistent:
            raise NotAllowedError(f"{name} is not persistent, so nothing is stored of it", hint="use persistent://")
        self._check_holds_messages(name)
        if self.registry.row(name) is None:
            self._rules.check_made_by_use(name, create=create)
            self.registry.add(name)
        return self.loader.load(name)

    def any_topic(self, name: TopicName, *, create: bool = False) -> AnyTopic:
        """As ``topic`` for clients, also for names of topics that are not stored."""
        self.deletion.check_usable(name)
        if name.persistent:
            return self.topic(name, create=create)
        loaded = self.non_persistent.get(name)
        if loaded is not None:
            return loaded
        self._check_holds_messages(name)
        self._rules.check_made_by_use(name, create=create)
        made = self.non_persistent.make(name, self.policies.settings_of(name))
        self.non_persistent.forget_when_idle(name)  # the client for which it is made may be refused
        return made

    def _check_holds_messages(self, name: TopicName) -> None:
        partitions = self.registry.partitions(name)
        if partitions:
            raise NotAllowedError(
                f"{name} has {partitions} partitions and holds no messages itself",
                hint=f"use its partitions, such as {name.partition(0)}",
            )

    def partitions_of(self, name: TopicName, *, create: bool = False) -> int:
        """Number of partitions; 0 if ``name`` is not partitioned.

        TopicNotFoundError if there is no such topic and none may be made. With ``create`` a partitioned topic is made
        where auto-creation is set to; a plain one is made by its first producer or consumer. The coordinators of
        transactions are found as the partitions of a topic that there is not.
        """
        if name.is_coordinator:
            return self.transactions.count if name.partition_index < 0 else 0
        partitions = self.registry.partitions(name)
        if partitions or self.registry.exists(name):
            return partitions
        self.namespaces.require(name.namespace_name)
        settings = self._rules.settings_to_make_by_use(name, create=create)
        if name.partition_index >= 0:
            return 0  # as Pulsar says; a client that then uses it is refused
        if settings.allow_auto_topic_creation_type == "partitioned" and not name.is_system:
            self.create_partitioned(name, settings.default_num_partitions)
            return settings.default_num_partitions
        return 0

    # -- making topics, letting them go

    def create_topic(self, name: TopicName) -> None:
        """Make a topic without partitions; NotAllowedError if it exists."""
        self._rules.check_new(name)
        self._rules.check_room(name, 1)
        if name.persistent:
            self.registry.add(name)
        else:
            self.non_persistent.make(name, self.policies.settings_of(name))

    def create_partitioned(self, name: TopicName, partitions: int) -> None:
        """Make a partitioned topic; NotAllowedError if it exists."""
        self._rules.check_new(name)
        check_partition_names(name)
        check_partitions(partitions)
        self._rules.check_room(name, partitions)
        self.registry.add_partitions(name, range(partitions))

    def unload(self, name: TopicName) -> None:
        """Disconnect all clients of a topic and let it go from memory; it is loaded again when it is next used."""
        self.loader.unload(name)
        self.non_persistent.remove(name)

    def unload_namespace(self, name: NamespaceName) -> Generator[None, None, None]:
        """Unload all topics of a namespace that are loaded now, stored or not, one in each step."""
        self.namespaces.require(name)
        for each in [*(topic.name for topic in self.registry.loaded_topics()), *self.non_persistent.names()]:
            if each.namespace_name == name:
                self.unload(each)
            yield

    def close(self) -> None:
        """Disconnect all clients and write what is left. The store is closed by the code that opened it."""
        self.upkeep.close()
        self.transactions.close()
        self.held_topics.close()
        for topic in self.registry.loaded_topics():
            self.unload(topic.name)
        self.non_persistent.close()

    # -- policies: a change is kept at once, and holds for each loaded topic when the steps that are returned are done

    def set_namespace_policies(self, name: NamespaceName, policies: Policies) -> Generator[None, None, None]:
        """Replace what is set for a namespace."""
        self.namespaces.require(name)
        check_properties(policies.properties or {})
        self.policies.set_namespace(name, policies)
        return self._apply_policies(lambda topic: topic.namespace_name == name)

    def set_topic_policies(self, name: TopicName, policies: Policies) -> Generator[None, None, None]:
        """Replace what is set for a topic, of a partitioned one for all partitions."""
        self.policies.set_topic(name, policies)
        return self._apply_policies(lambda topic: topic.base == name.base)

    def set_dynamic(self, name: str, value: str | None) -> Generator[None, None, None]:
        """Change a setting while the broker runs, or take the change back; it holds over restarts too."""
        self.policies.set_dynamic(name, value)
        return self._apply_policies(lambda _topic: True)

    def _apply_policies(self, concerned: Callable[[TopicName], bool]) -> Generator[None, None, None]:
        """Tell loaded topics of the change, one topic in each step. Each gets the settings of that moment, as a later
        change may have been made meanwhile. A topic that is loaded afterwards begins with the new settings."""
        for topic in self.registry.loaded_topics():
            if self.registry.loaded(topic.name) is topic and concerned(topic.name):
                topic.apply(self.policies.settings_of(topic.name), self.policies.quotas_of(topic.name))
            yield
        for passing in self.non_persistent.all():
            if self.non_persistent.get(passing.name) is passing and concerned(passing.name):
                passing.apply(self.policies.settings_of(passing.name))
            yield

    def _producer_name(self) -> str:
        """Unique for ever: the number of this start is taken from the catalogue (semantics 1.7.1)."""
        number = self._producers_named
        self._producers_named += 1
        return f"{self.policies.settings.cluster_name}-{self._start_number}-{number}"
