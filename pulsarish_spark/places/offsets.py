# SPDX-License-Identifier: Apache-2.0
"""Offsets as Spark keeps them: for each topic partition the next entry to read.

Spark compares offsets as text, so one set of positions has exactly one text: topics and partitions are sorted, and a
position is ``ledger:entry@index`` (``@index`` is the message index of its first message, left out where the broker does
not tell). A position inside an entry, which only a user can ask for, is ``ledger:entry:partition:batch@index``.

An offset may say more of a partition than the next entry. Each such point has a map of its own beside the topics, under
a word that is no full topic name, so that a reader who knows fewer words still finds the positions:

- ``"start"``, in the first end offset of a query, is the start that was resolved. Spark asks a restarted query whose
  first batch is not committed for its initial offset again; ``latest`` would then lie behind the end that Spark has
  noted, and rows would be lost. So the plan of a batch takes the start carried in its end.
- ``"added"``, in a later end, is the start of partitions that its batch is the first to read. A replay would not find
  it again where somebody has moved the subscription, or where messages are gone.
- ``"seen"`` is the end of a partition whose batch stops before it: there are messages that must come.
- ``"published"`` is the publish time, in milliseconds, of the entry before the next one, by which a restarted query
  knows it again: a broker that was restored from an older copy gives its id to another entry.
- ``"view"`` is the end of the compacted view that the query reads first (``viewing.view_then_log``), of partitions that
  the batch begins before it.
- ``"behind"``, in progress reports only, is how many entries were left, where the two offsets do not tell.

``"subscription"`` is the name of the query's subscription, by which a restarted query finds it. ``"pattern"`` is the
pattern of topics that the query reads, if it reads one: topics that match and are not in the offset are new then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeVar

from broker_core.base.errors import UsageError
from broker_core.base.names import TopicName
from broker_core.base.positions import Position
from pulsarish_spark.places.topics import TopicPartition

_START: Final = "start"
_ADDED: Final = "added"
_SEEN: Final = "seen"
_SUBSCRIPTION: Final = "subscription"
_PATTERN: Final = "pattern"
_BEHIND: Final = "behind"
_PUBLISHED: Final = "published"
_VIEW: Final = "view"
SCHEMA_CHANGES: Final = "schemas"
"""The key of what a progress report tells beside the newest offset: changes of the topics' schemas."""
NO_TOPICS: Final = frozenset(
    {_START, _ADDED, _SEEN, _SUBSCRIPTION, _PATTERN, _BEHIND, _PUBLISHED, _VIEW, SCHEMA_CHANGES}
)
"""Keys of an offset that are no topics. Full names of topics look different."""

_TEXT: Final = re.compile(r"(-?\d+):(-?\d+)(?::-?\d+:(\d+))?(?:@(\d+))?")

OffsetJson = dict[str, Any]

T = TypeVar("T")


class Offset(NamedTuple):
    """The next message to read: the first of entry ``position``, or its member ``batch`` if that is above 0.

    ``message_index`` is that message's index in the topic, -1 where unknown.
    """

    position: Position
    message_index: int = -1
    batch: int = 0

    def text(self, partition: int) -> str:
        """The one text of this offset."""
        inside = f":{partition}:{self.batch}" if self.batch else ""
        return f"{self.position}{inside}" + (f"@{self.message_index}" if self.message_index >= 0 else "")

    @classmethod
    def parse(cls, text: str) -> Offset:
        """Read ``text()`` back; ValueError if it is anything else."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError(f'"{text}" is not a position ledger:entry@index')
        ledger, entry, batch, index = found.groups()
        return cls(Position(int(ledger), int(entry)), -1 if index is None else int(index), int(batch or 0))

    @property
    def key(self) -> tuple[Position, int]:
        """Sort key of an offset within its partition."""
        return self.position, self.batch

    @property
    def behind_entry(self) -> Position:
        """Behind the entry that it lies in, if it lies in one: entries are read as a whole, up to there."""
        return Position(self.position.ledger, self.position.entry + 1) if self.batch else self.position

    def is_possible_before(self, later: Offset) -> bool:
        """Whether ``later`` can be an end of the same topic: neither position nor index goes back."""
        if later.key < self.key:
            return False
        if min(self.message_index, later.message_index) < 0:
            return True
        if later.key == self.key:
            return later.message_index == self.message_index
        return later.message_index >= self.message_index


Offsets = Mapping[TopicPartition, Offset]


class Points(NamedTuple):
    """The points of one partition in an offset: the next message to read, and points beside it.

    ``start``: where the first batch begins that has the partition; only in its end. ``seen``: the end of the partition
    when the offset was made, if it had more. ``behind``: entries between the end of the last batch and ``at``.
    ``published_ms``: publish time of the entry before ``at``; None in offsets of older versions, too. ``view_end``:
    where the log is read and no compacted view; None: the batch has begun behind that.
    """

    at: Offset
    start: Offset | None = None
    seen: Offset | None = None
    behind: int | None = None
    published_ms: int | None = None
    view_end: Offset | None = None


@dataclass(frozen=True)
class SourceOffset:
    """One offset of Spark. ``ends_first``: the offset is the end of a query's first batch, and carries its starts.

    ``subscription``: empty in offsets that were made before queries had one of their own. ``pattern``: empty where
    topics are named.
    """

    points: Mapping[TopicPartition, Points]
    subscription: str = ""
    pattern: str = ""
    ends_first: bool = False

    @classmethod
    def of(cls, offsets: Offsets, subscription: str = "") -> SourceOffset:
        """One with nothing but the next message of each partition."""
        return cls({key: Points(at) for key, at in offsets.items()}, subscription)

    @cached_property
    def offsets(self) -> dict[TopicPartition, Offset]:
        """The next message of each partition."""
        return {key: points.at for key, points in self.points.items()}

    @cached_property
    def topics(self) -> frozenset[str]:
        """The topics of which it says anything."""
        return frozenset(key.topic for key in self.points)

    @property
    def starts(self) -> dict[TopicPartition, Offset]:
        """The starts of the batch that ends here, of the partitions that it is the first to have."""
        return {key: points.start for key, points in self.points.items() if points.start is not None}

    def starts_from(self, start: SourceOffset | None) -> dict[TopicPartition, Offset]:
        """The starts of the batch between ``start`` and this end; not of partitions of which neither says it."""
        return self.starts if self.ends_first or start is None else start.offsets | self.starts

    def to_json(self) -> OffsetJson:
        """Plain JSON types, in the one order."""
        document = _to_map(self.offsets)
        if self.ends_first:
            document[_START] = _to_map(self.starts)
        elif added := self.starts:
            document[_ADDED] = _to_map(added)
        if seen := {key: points.seen for key, points in self.points.items() if points.seen is not None}:
            document[_SEEN] = _to_map(seen)
        if view := {key: points.view_end for key, points in self.points.items() if points.view_end is not None}:
            document[_VIEW] = _to_map(view)
        if self.subscription:
            document[_SUBSCRIPTION] = self.subscription
        if self.pattern:
            document[_PATTERN] = self.pattern
        behind = {key: points.behind for key, points in self.points.items()}
        published = {key: points.published_ms for key, points in self.points.items()}
        for word, numbers in ((_BEHIND, behind), (_PUBLISHED, published)):
            if known := {key: number for key, number in numbers.items() if number is not None}:
                document[word] = by_topic(known)
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> SourceOffset:
        """Read ``to_json()`` back; UsageError for an offset that this version cannot read."""
        if "queue" in document:
            raise UsageError(
                "the checkpoint was made by a query with a subscriptionType, and this one has none",
                hint="give the same subscriptionType, or use a new checkpoint folder",
            )
        try:
            topics = {topic: found for topic, found in document.items() if topic not in NO_TOPICS}
            points = {key: Points(Offset.parse(text)) for key, text in by_partition(topics).items()}
            starts = _from_map(document.get(_START) or document.get(_ADDED, {}))
            seen, view = (_from_map(document.get(word, {})) for word in (_SEEN, _VIEW))
            counted = (by_partition(document.get(word, {})) for word in (_BEHIND, _PUBLISHED))
            behind, published = ({key: int(number) for key, number in found.items()} for found in counted)
            subscription, pattern = document.get(_SUBSCRIPTION, ""), document.get(_PATTERN, "")
            if not isinstance(subscription, str) or not isinstance(pattern, str):
                raise ValueError(f"{subscription!r} or {pattern!r} is no text")
        except (ValueError, AttributeError, TypeError) as error:
            raise UsageError(
                f"the checkpoint holds an offset that cannot be read: {error}",
                hint="it was made by another source or a newer version; use a new checkpoint folder",
            ) from error
        # Few partitions have more than their next message, and what is said of one that is not read means nothing.
        said = starts.keys() | seen.keys() | behind.keys() | published.keys() | view.keys()
        for key in points.keys() & said:
            numbers = behind.get(key), published.get(key)
            points[key] = Points(points[key].at, starts.get(key), seen.get(key), *numbers, view.get(key))
        return cls(points, subscription, pattern, ends_first=document.get(_START) is not None)


def _to_map(offsets: Offsets) -> OffsetJson:
    return by_topic({key: offset.text(key.partition) for key, offset in offsets.items()})


def _from_map(document: Mapping[str, Mapping[str, str]]) -> dict[TopicPartition, Offset]:
    return {key: Offset.parse(text) for key, text in by_partition(document).items()}


def by_topic(values: Mapping[TopicPartition, T]) -> dict[str, dict[str, T]]:
    """A map from topics to maps from partitions, sorted, as JSON has it."""
    document: dict[str, dict[str, T]] = {}
    for key in sorted(values):
        document.setdefault(key.topic, {})[str(key.partition)] = values[key]
    return document


def by_partition(document: Mapping[str, Mapping[str, T]]) -> dict[TopicPartition, T]:
    """The inverse of ``by_topic``."""
    found: dict[TopicPartition, T] = {}
    for topic, partitions in document.items():
        name = str(TopicName.parse(topic))
        found |= {TopicPartition(name, int(partition)): value for partition, value in partitions.items()}
    return found
