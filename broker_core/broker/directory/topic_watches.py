# SPDX-License-Identifier: Apache-2.0
"""Watches of topics: each has a pattern, and is told of every matching topic that is made or deleted.

Knows names only; the registry of topics says what appeared and disappeared. Partitions count singly; topics of the
system and topics that are not persistent are not watched. Source: PIP-145; semantics 7.12.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from sys import intern
from typing import Final, NamedTuple

import google_crc32c
from sortedcontainers import SortedList

from broker_core.base.names import PARTITION_MARK, NamespaceName, TopicName
from broker_core.base.turns import Turns
from broker_core.broker.directory.name_pattern import NamePattern
from broker_core.broker.dispatch.passes import Passes

_DOMAIN_MARK: Final = "://"

_TOLD: Final = object()

_NAMES_A_STEP: Final = 16
"""Names that are matched in one step: with the longest pattern a usual name takes a tenth of a millisecond."""

_PARTITIONS_A_STEP: Final = 128
_WATCHES_A_STEP: Final = 16
"""Watches that are told of a change in one step; each may match a name."""

OnChange = Callable[[Sequence[str], Sequence[str]], None]
"""Gets the names of topics that are new, and of those that are gone."""


class TopicChange(NamedTuple):
    """A topic, or ``partitions`` of it, were made or deleted; there may be very many partitions."""

    name: TopicName
    partitions: range | None
    appeared: bool

    def names(self) -> Iterator[str]:
        """The full names of what was made or deleted."""
        if self.partitions is None:
            return iter((str(self.name),))
        return (f"{self.name}{PARTITION_MARK}{index}" for index in self.partitions)


class TopicWatch:
    """One watch. ``topics``: the full names that match now, sorted, for clients often ask for the hash of a long list.

    In a list, each new partition of one topic would move the names of all topics that sort after it.
    """

    def __init__(self, namespace: NamespaceName, pattern: str, on_change: OnChange) -> None:
        """NotAllowedError if ``pattern`` (of full names; the domain, if there is one, says nothing) cannot be used."""
        self.namespace = namespace
        self.topics: SortedList = SortedList()
        self._pattern = NamePattern(_without_domain(pattern))
        self._on_change = on_change
        self._missed: deque[TopicChange] | None = None

    @property
    def topics_hash(self) -> str:
        """The hash of ``topics`` as Pulsar computes it: CRC-32C of the sorted names with commas between, low byte
        first."""
        joined = ",".join(self.topics).encode()
        return int(google_crc32c.value(joined)).to_bytes(4, "little").hex()

    def begin(self, existing: Iterable[str]) -> Iterator[None]:
        """Find those of ``existing`` that match, in steps; what changes meanwhile counts, and is not told."""
        self._missed = deque()
        found: list[str] = []
        for number, text in enumerate(existing):
            name = TopicName.parse(text)
            if self._matches(name):
                found.append(intern(text))  # many watches know the same names
            if not number % _NAMES_A_STEP:
                yield
        self.topics = SortedList(found)
        while self._missed:
            yield from self._update(self._missed.popleft(), [])
        self._missed = None

    def changed(self, change: TopicChange) -> Iterator[None]:
        """Tell of names that match and were not known, or were; in steps, of which a single topic needs none."""
        if self._missed is not None:
            self._missed.append(change)
            return
        names: list[str] = []
        yield from self._update(change, names)
        if names:
            self._on_change(*((names, ()) if change.appeared else ((), names)))

    def end(self) -> None:
        """Tell of nothing any more. Who is told may have the watch: such a circle would stay in memory until Python
        looks for circles."""
        self._on_change = lambda _new, _gone: None

    def _update(self, change: TopicChange, updated: list[str]) -> Iterator[None]:
        """Put into ``topics``, or take out of it, what matches; ``updated`` gets the names."""
        if not self._matches(change.name):  # a partition matches as its topic does
            return
        for number, name in enumerate(change.names(), 1):
            if (name in self.topics) is not change.appeared:
                updated.append(name)
                if change.appeared:
                    self.topics.add(name)
                else:
                    self.topics.remove(name)
            if not number % _PARTITIONS_A_STEP:
                yield

    def _matches(self, name: TopicName) -> bool:
        """Whether ``name`` is watched; a partition matches as its topic does."""
        return (
            name.persistent
            and not name.is_system
            and name.namespace_name == self.namespace
            and self._pattern.matches(_without_domain(str(name.base)))
        )


class TopicWatches:
    """All watches of a broker. Each hears of changes in their order; very many watches, or partitions, take several
    turns of the loop."""

    def __init__(self, turns: Turns) -> None:
        self._by_namespace: defaultdict[NamespaceName, dict[TopicWatch, None]] = defaultdict(dict)
        self._told: deque[Iterator[None]] = deque()
        self._passes = Passes(turns, self._pass)

    def add(self, watch: TopicWatch, existing: Iterable[str]) -> Iterator[None]:
        """Begin to watch, in steps; ``existing``: the full names of all topics, at least of its namespace."""
        self._by_namespace[watch.namespace][watch] = None
        yield from watch.begin(existing)

    def remove(self, watch: TopicWatch) -> None:
        """End a watch; nothing happens if it has ended."""
        watch.end()
        watches = self._by_namespace.get(watch.namespace, {})
        watches.pop(watch, None)
        if not watches:
            self._by_namespace.pop(watch.namespace, None)

    def appeared(self, name: TopicName, partitions: range | None = None) -> None:
        """A topic was made, or ``partitions`` of it were."""
        self._changed(TopicChange(name, partitions, appeared=True))

    def disappeared(self, name: TopicName, partitions: range | None = None) -> None:
        """A topic was deleted, or ``partitions`` of it were."""
        self._changed(TopicChange(name, partitions, appeared=False))

    def _changed(self, change: TopicChange) -> None:
        watches = list(self._by_namespace.get(change.name.namespace_name, ()))
        if watches:
            self._told.append(self._tell(change, watches))
            self._passes.kick()

    def _tell(self, change: TopicChange, watches: Sequence[TopicWatch]) -> Iterator[None]:
        for number, watch in enumerate(watches, 1):
            if watch in self._by_namespace.get(watch.namespace, ()):
                yield from watch.changed(change)
            if not number % _WATCHES_A_STEP:
                yield

    def _pass(self) -> bool:
        if self._told and next(self._told[0], _TOLD) is _TOLD:
            self._told.popleft()
        return bool(self._told)


def _without_domain(text: str) -> str:
    """A name, or a pattern of names, of which the first ``domain://`` is left out."""
    domain, mark, rest = text.partition(_DOMAIN_MARK)
    if not mark:
        return text
    return domain.removesuffix("persistent").removesuffix("non-") + rest
