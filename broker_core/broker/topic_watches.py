# SPDX-License-Identifier: Apache-2.0
"""Who wants to know which topics match a pattern, and is told whenever one comes or goes.

Knows names only; the registry of topics says what appeared and disappeared. Partitions count singly; topics of the
system and topics that are not persistent are not watched. Source: PIP-145; semantics 7.12.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from sys import intern
from typing import Final

import google_crc32c

from broker_core.base.names import NamespaceName, TopicName
from broker_core.broker.name_pattern import NamePattern

_DOMAIN_MARK: Final = "://"

_NAMES_A_STEP: Final = 16
"""Matched in one go: with the longest pattern a name of usual length takes a tenth of a millisecond."""

OnChange = Callable[[Sequence[str], Sequence[str]], None]
"""Gets the names of topics that are new, and of those that are gone."""


class TopicWatch:
    """One watch. ``topics``: the full names that match now, sorted, as the hash of a long list is asked for often."""

    def __init__(self, namespace: NamespaceName, pattern: str, on_change: OnChange) -> None:
        """NotAllowedError if ``pattern`` (of full names; the domain, if there is one, says nothing) cannot be used."""
        self.namespace = namespace
        self.topics: list[str] = []
        self._pattern = NamePattern(_without_domain(pattern))
        self._on_change = on_change
        self._missed: list[tuple[Sequence[TopicName], Sequence[TopicName]]] | None = None

    @property
    def topics_hash(self) -> str:
        """Of ``topics``, as Pulsar reckons it: CRC-32C of the sorted names with commas between, low byte first."""
        joined = ",".join(self.topics).encode()
        return int(google_crc32c.value(joined)).to_bytes(4, "little").hex()

    def begin(self, existing: Iterable[str]) -> Iterator[None]:
        """Find those of ``existing`` that match, in steps; what changes meanwhile counts, and is not told."""
        self._missed = []
        found: list[str] = []
        for number, text in enumerate(existing):
            name = TopicName.parse(text)
            if self._matches(name):
                found.append(intern(text))  # many watches know the same names
            if not number % _NAMES_A_STEP:
                yield
        self.topics = sorted(found)
        missed, self._missed = self._missed, None
        for appeared, disappeared in missed:
            self._update(appeared, disappeared)

    def changed(self, appeared: Sequence[TopicName], disappeared: Sequence[TopicName]) -> None:
        """Tell of what matches and was not known, or was."""
        if self._missed is not None:
            self._missed.append((appeared, disappeared))
            return
        new, gone = self._update(appeared, disappeared)
        if new or gone:
            self._on_change(new, gone)

    def _update(
        self, appeared: Sequence[TopicName], disappeared: Sequence[TopicName]
    ) -> tuple[Sequence[str], Sequence[str]]:
        new = [str(name) for name in appeared if self._matches(name) and not self._knows(str(name))]
        gone = [str(name) for name in disappeared if self._matches(name) and self._knows(str(name))]
        for name in new:
            insort(self.topics, name)
        for name in gone:
            del self.topics[bisect_left(self.topics, name)]
        return new, gone

    def _matches(self, name: TopicName) -> bool:
        """Whether ``name`` is watched; a partition matches as its topic does."""
        return (
            name.persistent
            and not name.is_system
            and name.namespace_name == self.namespace
            and self._pattern.matches(_without_domain(str(name.base)))
        )

    def _knows(self, name: str) -> bool:
        at = bisect_left(self.topics, name)
        return at < len(self.topics) and self.topics[at] == name


class TopicWatches:
    """All watches of a broker."""

    def __init__(self) -> None:
        self._by_namespace: defaultdict[NamespaceName, list[TopicWatch]] = defaultdict(list)

    def add(self, watch: TopicWatch, existing: Iterable[str]) -> Iterator[None]:
        """Begin, in steps; ``existing``: the full names of the topics there are, at least those of its namespace."""
        self._by_namespace[watch.namespace].append(watch)
        yield from watch.begin(existing)

    def remove(self, watch: TopicWatch) -> None:
        """End; harmless if it has ended."""
        watches = self._by_namespace.get(watch.namespace, [])
        if watch in watches:
            watches.remove(watch)
        if not watches:
            self._by_namespace.pop(watch.namespace, None)

    def appeared(self, *names: TopicName) -> None:
        """Topics of one namespace were made."""
        for watch in self._of(names):
            watch.changed(names, ())

    def disappeared(self, *names: TopicName) -> None:
        """Topics of one namespace were deleted."""
        for watch in self._of(names):
            watch.changed((), names)

    def _of(self, names: Sequence[TopicName]) -> list[TopicWatch]:
        return list(self._by_namespace.get(names[0].namespace_name, ())) if names else []


def _without_domain(text: str) -> str:
    """A name, or a pattern of names, of which the first ``domain://`` is left out."""
    domain, mark, rest = text.partition(_DOMAIN_MARK)
    if not mark:
        return text
    return domain.removesuffix("persistent").removesuffix("non-") + rest
