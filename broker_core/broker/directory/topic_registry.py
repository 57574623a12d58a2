# SPDX-License-Identifier: Apache-2.0
"""``TopicRegistry``: which topics, partitioned topics and partitions exist, and which topics are loaded.

A partitioned topic is catalogue; each of its partitions is a topic of its own, made when it is first used. Knows names,
rows of the catalogue and loaded topics; whether a topic may be made or deleted is decided elsewhere. Every change of
names is told to the watches of topic lists. Source: Pulsar docs, "Topics", "Partitioned topics"; semantics 1.1, 1.2.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain, islice
from typing import Any, Final

from broker_core.base.clock import Clock
from broker_core.base.errors import InvalidTopicNameError, NotAllowedError, TopicNotFoundError
from broker_core.base.names import (
    DEFAULT_NAMESPACE,
    DEFAULT_TENANT,
    PARTITION_MARK,
    NamespaceName,
    TopicName,
    check_properties,
    check_tenant_name,
    shown_name,
)
from broker_core.base.steps import drained
from broker_core.broker.directory.topic_watches import TopicWatch, TopicWatches
from broker_core.broker.non_persistent.topic import NonPersistentTopics
from broker_core.broker.topic import Topic
from broker_core.storage.catalogue import Catalogue, TopicRow


class NamespaceFullError(NotAllowedError):
    """A namespace has as many topics as it may have."""


class Namespaces:
    """Tenants and their namespaces, kept in memory and in the catalogue; ``public/default`` is made at the first start.
    ``policy_book`` keeps the policies of a namespace. Source: Pulsar docs, "Multi tenancy"; semantics 1.1.5."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._tenants = catalogue.tenants.all()
        self._namespaces = set(catalogue.namespaces.all())
        if not self._tenants:
            with catalogue.transaction():
                self.create_tenant(DEFAULT_TENANT)
                self.create(NamespaceName(DEFAULT_TENANT, DEFAULT_NAMESPACE))

    def tenants(self) -> list[str]:
        return sorted(self._tenants)

    def create_tenant(self, tenant: str, config: Mapping[str, Any] | None = None) -> None:
        """Make a tenant; NotAllowedError if it exists."""
        try:
            check_tenant_name(tenant)
        except InvalidTopicNameError as error:
            raise NotAllowedError(error.message, hint=error.hint) from error
        if tenant in self._tenants:
            raise NotAllowedError(f"tenant {tenant!r} exists already")
        self._catalogue.tenants.put(tenant, config or {})
        self._tenants[tenant] = dict(config or {})

    def tenant(self, name: str) -> Mapping[str, Any]:
        """The configuration of an existing tenant."""
        return self._tenants[name]

    def admins(self, tenant: str) -> Sequence[str]:
        """Roles that administer a tenant; none of a tenant that does not exist."""
        roles: Sequence[str] = self._tenants.get(tenant, {}).get("adminRoles") or ()
        return roles

    def change_tenant(self, name: str, config: Mapping[str, Any]) -> None:
        """Replace the configuration of a tenant; TopicNotFoundError if there is no such tenant."""
        self._require_tenant(name)
        self._catalogue.tenants.put(name, config)
        self._tenants[name] = dict(config)

    def namespaces(self, tenant: str) -> list[NamespaceName]:
        """The namespaces of one tenant; TopicNotFoundError if there is no such tenant."""
        self._require_tenant(tenant)
        found = (NamespaceName.parse(name) for name in self._namespaces)
        return sorted(name for name in found if name.tenant == tenant)

    def all(self) -> list[str]:
        """The names of all namespaces."""
        return sorted(self._namespaces)

    def delete_tenant(self, tenant: str) -> None:
        """Forget a tenant; NotAllowedError while it has namespaces, TopicNotFoundError if there is no such tenant."""
        left = self.namespaces(tenant)
        if left:
            raise NotAllowedError(f"tenant {tenant!r} has {len(left)} namespaces", hint="delete them first")
        self._catalogue.tenants.delete(tenant)
        del self._tenants[tenant]

    def create(self, name: NamespaceName) -> None:
        """Make a namespace of an existing tenant; NotAllowedError if it exists."""
        self._require_tenant(name.tenant)
        if str(name) in self._namespaces:
            raise NotAllowedError(f"namespace {str(name)!r} exists already")
        self._catalogue.namespaces.put(str(name), {})
        self._namespaces.add(str(name))

    def delete(self, name: NamespaceName) -> None:
        """Forget a namespace that holds no topics any more; TopicNotFoundError if there is no such namespace."""
        self.require(name)
        self._catalogue.namespaces.delete(str(name))
        self._namespaces.discard(str(name))

    def exists(self, name: NamespaceName) -> bool:
        return str(name) in self._namespaces

    def require(self, name: NamespaceName) -> None:
        """TopicNotFoundError unless the namespace exists."""
        if not self.exists(name):
            raise TopicNotFoundError(
                f"namespace {str(name)!r} does not exist",
                hint=f"create it first, or use {DEFAULT_TENANT}/{DEFAULT_NAMESPACE}",
            )

    def _require_tenant(self, tenant: str) -> None:
        if tenant not in self._tenants:
            raise TopicNotFoundError(f"tenant {shown_name(tenant)} does not exist", hint="create it first")


_NAMES_A_STEP: Final = 512
"""Names of topics that are listed in one step; a microsecond each."""


class TopicsMode(Enum):
    """Which topics of a namespace are asked for. The numbers are those of the protocol."""

    PERSISTENT = 0
    NON_PERSISTENT = 1
    ALL = 2

    @property
    def domains(self) -> tuple[str, ...]:
        stored, passing = "persistent", "non-persistent"
        return {TopicsMode.PERSISTENT: (stored,), TopicsMode.NON_PERSISTENT: (passing,)}.get(self, (stored, passing))


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class TopicRegistry:
    """The names of one broker."""

    catalogue: Catalogue
    clock: Clock
    namespaces: Namespaces
    non_persistent: NonPersistentTopics
    watches: TopicWatches
    _loaded: dict[TopicName, Topic] = field(default_factory=dict, init=False)
    _partitioned: dict[TopicName, int] = field(init=False)

    def __post_init__(self) -> None:
        self._partitioned = {TopicName.parse(name): n for name, n in self.catalogue.partitioned_topics.all().items()}

    # -- what exists

    def exists(self, name: TopicName) -> bool:
        """Whether ``name`` is a topic, a partition or a partitioned topic."""
        return (
            name in self._loaded
            or name in self._partitioned
            or name in self.non_persistent
            or self.is_partition(name)
            or self.row(name) is not None
        )

    def partitions(self, name: TopicName) -> int:
        """Number of partitions; 0 if ``name`` is not a partitioned topic."""
        return self._partitioned.get(name, 0)

    def partitions_of_existing(self, name: TopicName) -> int:
        """Number of partitions; TopicNotFoundError if ``name`` is not a partitioned topic."""
        if name not in self._partitioned:
            raise TopicNotFoundError(f"{name} is not a partitioned topic")
        return self._partitioned[name]

    def is_partition(self, name: TopicName) -> bool:
        """Whether ``name`` is a partition of a partitioned topic, used or not."""
        index = name.partition_index
        return index >= 0 and index < self._partitioned.get(name.base, 0)

    def row(self, name: TopicName) -> TopicRow | None:
        """The row of a topic, or of a partition that was used; None if there is none."""
        return self.catalogue.topics.find(str(name))

    def names_of(self, name: TopicName) -> Iterator[TopicName]:
        """The names under which the messages of a topic are: its partitions, of which there may be very many, or the
        topic itself if it is not partitioned."""
        count = self.partitions(name)
        return (name.partition(index) for index in range(count)) if count else iter((name,))

    def partitions_used(self, name: TopicName) -> list[TopicName]:
        """The partitions of a topic that were ever used and are not deleted."""
        if name.persistent:
            used: Iterable[TopicName] = map(TopicName.parse, self.catalogue.topics.names(f"{name}{PARTITION_MARK}"))
        else:
            used = self.non_persistent.names()
        return [each for each in used if each.base == name and self.is_partition(each)]

    def near(self, name: TopicName, count: int) -> set[str]:
        """Local names in the namespace of ``name`` that are its neighbours in the alphabet, about ``count`` on each
        side."""
        stored = self.catalogue.topics.names_near(f"persistent://{name.namespace_name}/{name.local}", count)
        passing = islice(self.non_persistent.names(), 2 * count)
        neighbours = chain(map(TopicName.parse, stored), passing)
        return {each.base.local for each in neighbours if each.namespace_name == name.namespace_name}

    # -- listing

    def topics_of(self, namespace: NamespaceName, mode: TopicsMode = TopicsMode.PERSISTENT) -> list[str]:
        """Full names of the topics of a namespace, of partitioned ones every partition; no system topics."""
        return drained(self.topics_in_steps(namespace, mode))

    def topics_in_steps(
        self, namespace: NamespaceName, mode: TopicsMode = TopicsMode.PERSISTENT
    ) -> Generator[None, None, list[str]]:
        """As ``topics_of``, in steps; a topic that is made or deleted meanwhile may be in the list or not."""
        self.namespaces.require(namespace)
        found: list[str] = []
        for number, name in enumerate(self.names_in(namespace, mode)):
            if not name.startswith("__", name.rindex("/") + 1):  # ``TopicName.is_system`` of a full name
                found.append(name)
            if not number % _NAMES_A_STEP:
                yield
        return sorted(found)

    def names_in(self, namespace: NamespaceName, mode: TopicsMode) -> Iterator[str]:
        """Full names of all topics of a namespace, system topics too, of partitioned ones those of the partitions. As
        text, because there may be very many."""
        counts = {str(name): partitions for name, partitions in self._partitioned.items()}
        for place in [f"{domain}://{namespace}/" for domain in mode.domains]:
            for partitioned, partitions in counts.items():
                if partitioned.startswith(place):
                    yield from (f"{partitioned}{PARTITION_MARK}{index}" for index in range(partitions))
            for text in chain(self.catalogue.topics.names(place), map(str, self.non_persistent.names())):
                base, _mark, index = text.rpartition(PARTITION_MARK)
                if text.startswith(place) and not _is_number_below(index, counts.get(base, 0)):
                    yield text

    def partitioned_topics_of(self, namespace: NamespaceName) -> list[str]:
        """Names of the partitioned topics of a namespace, without partitions."""
        self.namespaces.require(namespace)
        return sorted(str(name) for name in self._partitioned if name.namespace_name == namespace)

    def watch_topics(self, watch: TopicWatch) -> Iterator[None]:
        """Fill in the topics that match, in steps, and then tell of every change until ``watches.remove``.

        The namespace need not exist yet.
        """
        yield from self.watches.add(watch, self.names_in(watch.namespace, TopicsMode.PERSISTENT))

    # -- properties

    def properties(self, name: TopicName) -> dict[str, str]:
        """The properties that users gave an existing topic."""
        if name in self._partitioned:
            return self.catalogue.partitioned_topics.properties(str(name))
        row = self.row(name)
        return row.of_users if row is not None else {}

    def set_properties(self, name: TopicName, properties: Mapping[str, str]) -> None:
        """Replace the properties that users gave an existing topic."""
        check_properties(properties)
        row = self.row(name)
        if row is None and properties and name.persistent and self.is_partition(name):
            row = self.add(name)  # a partition that was not used yet has no row
        if name in self._partitioned:
            self.catalogue.partitioned_topics.put(str(name), self._partitioned[name], properties)
        elif row is not None:
            self.catalogue.topics.set_properties(row.id, properties)

    # -- what comes and goes

    def add(self, name: TopicName) -> TopicRow:
        """Enter a stored topic, or a partition that is used for the first time."""
        row = self.catalogue.topics.create(str(name), self.clock.now_ms())
        if not self.is_partition(name):
            self.watches.appeared(name)
        return row

    def add_partitions(self, name: TopicName, added: range) -> None:
        """Enter partitions behind those that a topic has; the first ones make it a partitioned topic."""
        properties = self.catalogue.partitioned_topics.properties(str(name))
        self.catalogue.partitioned_topics.put(str(name), added.stop, properties)
        self._partitioned[name] = added.stop
        self.watches.appeared(name, added)

    def remove_partitioned(self, name: TopicName) -> None:
        """Forget a partitioned topic, whose partitions are deleted already."""
        self.catalogue.partitioned_topics.delete(str(name))
        count = self._partitioned.pop(name)
        self.watches.disappeared(name, range(count))

    # -- what is loaded

    def loaded(self, name: TopicName) -> Topic | None:
        """The topic, if it is loaded."""
        return self._loaded.get(name)

    def loaded_topics(self) -> list[Topic]:
        """All loaded topics."""
        return list(self._loaded.values())

    def add_loaded(self, topic: Topic) -> None:
        """A topic was loaded."""
        self._loaded[topic.name] = topic

    def remove_loaded(self, name: TopicName) -> Topic | None:
        """A topic is no longer loaded. Returns it; None if it was not loaded."""
        return self._loaded.pop(name, None)


def _is_number_below(text: str, end: int) -> bool:
    """Whether ``text`` is how the index of one of ``end`` partitions is written."""
    return end > 0 and text.isdecimal() and (text[0] != "0" or text == "0") and int(text) < end
