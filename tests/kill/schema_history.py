# SPDX-License-Identifier: Apache-2.0
"""Rules of the schema registry over what clients saw of it, whatever was killed meanwhile.

Times are those of one clock. An operation whose outcome nobody knows ends when its broker was dead: it has happened by
then, or never. Where all versions of a topic were deleted at once its numbers begin anew, and what overlaps such a
deletion belongs to either side: so rules hold within a *stretch*, between two of them.

    G1  a version is one schema, for everybody and for ever        G4  equal schemas are one version, unless a deletion
    G2  a version that was told, or read, is there                     is between the two
    G3  its bytes are those that a client brought, always the same G5  numbers leave out none but deletions
                                                                   G6  the latest is none that was deleted or passed
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import accumulate, pairwise
from math import inf
from typing import Final

TEXTS_MAX: Final = 5
"""Violations of a rule that are told in words; all are counted."""


class Kind(Enum):
    """One call of a client."""

    ADD = "add"
    """A schema was brought; ``version`` None: the outcome is unknown, or nobody is told it."""
    READ = "read"
    """A version was asked for; ``schema`` None: there was none."""
    LATEST = "latest"
    """The newest version was asked for; ``version`` None: there was none."""
    DELETE = "delete"
    """The schema was deleted; ``version`` None: the outcome is unknown. A deletion of nothing is no event."""
    FORGET = "forget"
    """All versions were deleted; ``version`` None: or perhaps not, as the outcome is unknown."""


@dataclass(slots=True, eq=False)
class Event:
    """One operation on a topic. ``schema``: the number of the schema that was brought or read. ``data``: its bytes, or
    a hash of them."""

    kind: Kind
    topic: str
    began: float
    ended: float
    version: int | None = None
    schema: int | None = None
    data: bytes = b""


@dataclass(slots=True)
class Verdict:
    """Findings of the rules. ``broken``: violations by rule; ``texts``: some in words."""

    events: dict[str, int] = field(default_factory=dict)
    versions: int = 0
    stretches: int = 0
    broken: dict[str, int] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)

    def breaks(self, rule: str, text: str) -> None:
        """A rule is broken."""
        self.broken[rule] = self.broken.get(rule, 0) + 1
        if self.broken[rule] <= TEXTS_MAX:
            self.texts.append(f"{rule}: {text}")


def check(events: Iterable[Event]) -> Verdict:
    """Hold the rules against all events of all topics."""
    verdict, by_topic = Verdict(), defaultdict(list)
    for each in events:
        by_topic[each.topic].append(each)
    verdict.events = dict(Counter(each.kind.value for theirs in by_topic.values() for each in theirs))
    for topic, theirs in sorted(by_topic.items()):
        brought = {each.data: each.began for each in sorted(theirs, key=_began, reverse=True) if each.kind is Kind.ADD}
        for each in theirs:
            is_read = each.kind is not Kind.ADD and each.data
            if is_read and brought.get(each.data, inf) > each.ended:
                verdict.breaks("G3", f"{topic}: version {each.version} has bytes that nobody brought")
        for stretch in stretches(theirs):
            verdict.stretches += 1
            _Check(topic, stretch, verdict).run()
    return verdict


def _began(event: Event) -> float:
    return event.began


@dataclass(slots=True)
class Stretch:
    """Events between two deletions of all versions, without those that overlap one. ``around``: deletions of others,
    which have a number here perhaps."""

    events: list[Event]
    around: int


@dataclass(slots=True)
class _Edge:
    """A time in which versions were all deleted, perhaps by several clients. ``is_certain``: one was told so."""

    began: float
    ended: float
    is_certain: bool


def stretches(events: Sequence[Event]) -> list[Stretch]:
    """The stretches of one topic, in their order."""
    edges = [_Edge(-inf, -inf, is_certain=True)]
    for each in sorted((each for each in events if each.kind is Kind.FORGET), key=_began):
        if each.began <= edges[-1].ended:
            edges[-1].ended = max(edges[-1].ended, each.ended)
            edges[-1].is_certain |= each.version is not None
        else:
            edges.append(_Edge(each.began, each.ended, each.version is not None))
    edges.append(_Edge(inf, inf, is_certain=True))
    found: list[Stretch] = []
    for before, after in pairwise(edges):
        stretch = _between(events, before, after)
        if not before.is_certain:  # what was there before is there still, perhaps
            stretch.around += found[-1].around + sum(each.kind is Kind.DELETE for each in found[-1].events)
        found.append(stretch)
    return found


def _between(events: Sequence[Event], before: _Edge, after: _Edge) -> Stretch:
    inside, around = [], 0
    for each in events:
        if before.ended < each.began and each.ended < after.began:
            inside.append(each)
        elif each.kind is Kind.DELETE and each.began < after.ended and each.ended > before.began:
            around += 1
    return Stretch(sorted(inside, key=_began), around)


class _Check:
    """The rules for one stretch."""

    def __init__(self, topic: str, stretch: Stretch, verdict: Verdict) -> None:
        self._topic = topic
        self._events = stretch.events
        self._around = stretch.around
        self._verdict = verdict
        self._deletions = [each for each in self._events if each.kind is Kind.DELETE]
        self._uncertain = stretch.around + sum(each.version is None for each in self._deletions)
        self._tombstones = {each.version for each in self._deletions if each.version is not None}
        self._seen: dict[int, list[Event]] = defaultdict(list)
        for each in self._events:
            if each.version is not None and each.schema is not None:
                self._seen[each.version].append(each)

    def run(self) -> None:
        self._verdict.versions += len(self._seen)
        self._one_schema_a_version()
        self._nothing_lost()
        self._equal_schemas()
        self._no_holes()
        self._latest()

    def _breaks(self, rule: str, text: str) -> None:
        self._verdict.breaks(rule, f"{self._topic}: {text}")

    def _one_schema_a_version(self) -> None:
        for version, seen in self._seen.items():
            schemas = sorted({each.schema or 0 for each in seen})
            if len(schemas) > 1:
                self._breaks("G1", f"version {version} is each of the schemas {schemas}")
            if version in self._tombstones:
                self._breaks("G1", f"version {version} is a schema and a deletion")
            if len({each.data for each in seen if each.kind is not Kind.ADD}) > 1:
                self._breaks("G3", f"version {version} has had other bytes before")

    def _nothing_lost(self) -> None:
        known = {version: min(each.ended for each in seen) for version, seen in self._seen.items()}
        missed = [each for each in self._events if each.kind is Kind.READ and each.schema is None]
        for version in sorted({each.version or 0 for each in missed if known.get(each.version or 0, inf) < each.began}):
            self._breaks("G2", f"version {version} was told, and is not there")

    def _equal_schemas(self) -> None:
        versions: dict[int, set[int]] = defaultdict(set)
        for version, seen in self._seen.items():
            for each in seen:
                versions[each.schema or 0].add(version)
        for schema, theirs in versions.items():
            for older, newer in pairwise(sorted(theirs)):
                between = {each for each in range(older + 1, newer) if each not in self._seen}
                if not between or not (between & self._tombstones or self._uncertain):
                    self._breaks("G4", f"schema {schema} has the versions {older} and {newer}")

    def _no_holes(self) -> None:
        """Versions that were not there when a later one was."""
        newest, known = self._newest(), self._seen.keys() | self._tombstones
        missed = {
            each.version or 0 for each in self._events
            if each.kind is Kind.READ and each.schema is None and newest.before(each.began) > (each.version or 0)
        }  # fmt: skip
        holes = sorted(missed - known)
        if len(holes) > self._uncertain:
            self._breaks("G5", f"versions {holes[:5]} are neither schemas nor deletions")

    def _newest(self) -> _Newest:
        return _Newest(each for seen in self._seen.values() for each in seen)

    def _latest(self) -> None:
        newest = self._newest()
        deleted = _Newest(each for each in self._deletions if each.version is not None)
        for asked in self._events:
            if asked.kind is not Kind.LATEST:
                continue
            told, gone = newest.before(asked.began), deleted.before(asked.began)
            if asked.version is not None:
                if asked.version < max(told, gone):
                    self._breaks("G6", f"version {asked.version} is the latest after {max(told, gone)}")
            elif told > gone and not self._is_deleted_perhaps(asked):
                self._breaks("G2", f"version {told} was told, and then there was no schema")

    def _is_deleted_perhaps(self, asked: Event) -> bool:
        """Whether a deletion without a known number, or one at the same time, may have come before."""
        return self._around > 0 or any(
            each.began < asked.ended and (each.version is None or each.ended >= asked.began)
            for each in self._deletions
        )  # fmt: skip


class _Newest:
    """The highest version that some events had told by a time."""

    def __init__(self, events: Iterable[Event]) -> None:
        ordered = sorted(events, key=lambda each: each.ended)
        self._times = [each.ended for each in ordered]
        self._versions = list(accumulate((each.version or 0 for each in ordered), max))

    def before(self, time: float) -> int:
        """-1: none was told."""
        place = bisect_left(self._times, time)
        return self._versions[place - 1] if place else -1
