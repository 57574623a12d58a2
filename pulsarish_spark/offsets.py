# SPDX-License-Identifier: Apache-2.0
"""Offsets as Spark keeps them: for each topic partition the next entry to read.

Spark compares offsets as text, so one set of positions has exactly one text: topics and partitions are sorted, and a
position is ``ledger:entry@index`` (``@index`` is the message index of its first message, left out where the broker does
not tell). A position inside an entry, which only a user can ask for, is ``ledger:entry:partition:batch@index``.

The first end offset of a query also carries the resolved start, under ``"start"``, which is no full topic name. Spark
asks a restarted query whose first batch is not committed for its initial offset again; ``latest`` would then lie behind
the end that Spark has noted, and rows would be lost. So whoever plans a range prefers the start carried in its end.

Where a batch stops before the end of a partition, ``"seen"`` carries that end: whoever goes on there knows of messages
that must come. ``"subscription"`` is the name of the query's subscription, by which a restarted query finds it.
``"behind"`` stands in progress reports only: how many entries were left, where the two offsets do not tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from broker_core.base.errors import UsageError
from broker_core.base.names import TopicName
from broker_core.base.positions import Position
from pulsarish_spark.topics import TopicPartition

_START: Final = "start"
_SEEN: Final = "seen"
_SUBSCRIPTION: Final = "subscription"
_BEHIND: Final = "behind"
NO_TOPICS: Final = frozenset({_START, _SEEN, _SUBSCRIPTION, _BEHIND})
"""What an offset holds beside its topics. Full names of topics look different."""

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
        """What orders offsets of one partition."""
        return self.position, self.batch

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


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """What one Spark offset says; ``start`` only in the end of a query's first batch.

    ``seen``: the ends of partitions that had more when the offset was made. ``subscription``: empty in offsets that
    were made before queries had one of their own. ``behind``: entries between the end of the last batch and this one.
    """

    offsets: Offsets
    start: Offsets | None = None
    seen: Offsets = field(default_factory=dict)
    subscription: str = ""
    behind: Mapping[TopicPartition, int] = field(default_factory=dict)

    def to_json(self) -> OffsetJson:
        """Plain JSON types, in the one order."""
        document = _to_map(self.offsets)
        if self.start is not None:
            document[_START] = _to_map(self.start)
        if self.seen:
            document[_SEEN] = _to_map(self.seen)
        if self.subscription:
            document[_SUBSCRIPTION] = self.subscription
        for key in sorted(self.behind):
            document.setdefault(_BEHIND, {}).setdefault(key.topic, {})[str(key.partition)] = self.behind[key]
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> SourceOffset:
        """Read ``to_json()`` back; UsageError for an offset that this version cannot read."""
        try:
            start = document.get(_START)
            topics = {topic: found for topic, found in document.items() if topic not in NO_TOPICS}
            seen = _from_map(document.get(_SEEN, {}))
            subscription = document.get(_SUBSCRIPTION, "")
            if not isinstance(subscription, str):
                raise ValueError(f"{subscription!r} is no name of a subscription")
            behind = {key: int(entries) for key, entries in _items(document.get(_BEHIND, {}))}
            return cls(_from_map(topics), None if start is None else _from_map(start), seen, subscription, behind)
        except (ValueError, AttributeError) as error:
            raise UsageError(
                f"the checkpoint holds an offset that cannot be read: {error}",
                hint="it was made by another source or a newer version; use a new checkpoint folder",
            ) from error


def _to_map(offsets: Offsets) -> OffsetJson:
    document: OffsetJson = {}
    for key in sorted(offsets):
        document.setdefault(key.topic, {})[str(key.partition)] = offsets[key].text(key.partition)
    return document


def _from_map(document: Mapping[str, Mapping[str, str]]) -> dict[TopicPartition, Offset]:
    return {key: Offset.parse(text) for key, text in _items(document)}


def _items(document: Mapping[str, Mapping[str, T]]) -> Iterator[tuple[TopicPartition, T]]:
    """What a map of topics and partitions says of each partition."""
    for topic, partitions in document.items():
        for partition, found in partitions.items():
            yield TopicPartition(str(TopicName.parse(topic)), int(partition)), found
