# SPDX-License-Identifier: Apache-2.0
"""The start and the end of a read as a user writes them: the forms of offsets and times in options, as values.

A specification is one point for everything, or a map from topics to a point or to a map of partitions. A ``Point`` is a
word, a publish time, where a subscription stands, and, of one partition only, a message id or a message index. Several
options may speak of one end of a read: a ``Bound`` has them in their order of precedence. What no option says of a
partition has the default of the query's kind. Knows no broker: ``resolve`` turns points into offsets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from broker_core.base.errors import ConfigError
from broker_core.base.moments import LONG_MAX, Moment, written_moment
from broker_core.base.names import TopicName
from broker_core.base.positions import MessageId
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.places.topics import (
    TopicPartition,
    exact_topic,
    is_number,
    once,
    parse_json,
    parse_subscription,
)

Word: TypeAlias = Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class AtIndex:
    """The message with this index in its topic partition."""

    message_index: int


@dataclass(frozen=True, slots=True)
class AtSubscription:
    """The first message that a subscription has not acknowledged; "": the query's own, which the user has named."""

    name: str = ""


Anywhere: TypeAlias = Word | Moment | AtSubscription
"""A point that every partition has."""

LogPoint: TypeAlias = Word | AtSubscription | Offset | AtIndex
"""A point that a broker can be asked for without knowing what time it is."""

Point: TypeAlias = LogPoint | Moment

BATCH_MAX: Final = 2**31 - 1
"""The place in a batch is a 32-bit number."""

_SHOWN_MAX: Final = 5
"""Topics that an error names."""

_SUBSCRIPTION: Final = "subscription"

_ANYWHERE: Final = "earliest, latest, a time (2026-01-01T00:00:00Z, or -1h), or subscription:NAME"
_FORMS: Final = (
    'earliest, latest, an id "ledger:entry[:partition[:batch]]", a message index (-1 is latest, -2 is earliest), '
    "a time (2026-01-01T00:00:00Z, or -1h), or subscription:NAME"
)


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """The points of one option. ``everywhere`` None: the option names topics or partitions, and no point for others."""

    everywhere: Anywhere | None = None
    topics: Mapping[str, Anywhere] = field(default_factory=dict)
    partitions: Mapping[TopicPartition, Point] = field(default_factory=dict)

    @property
    def points(self) -> tuple[Point, ...]:
        """Every point that the user named: for all topics, for one topic or for one partition."""
        everywhere = () if self.everywhere is None else (self.everywhere,)
        return (*everywhere, *self.topics.values(), *self.partitions.values())

    @property
    def named_topics(self) -> set[str]:
        """The topics of which anything is said."""
        return {*self.topics, *(key.topic for key in self.partitions)}

    def point(self, key: TopicPartition) -> Point | None:
        """The point of one partition; None: the option has none for it."""
        return self.partitions.get(key) or self.topics.get(key.topic) or self.everywhere

    def check_named(self, option: str, partitions: Collection[TopicPartition], missing: Collection[str] = ()) -> None:
        """ConfigError if a topic or partition is named that the query does not read.

        ``missing``: topics that it will read, and that do not exist yet; they have no ids.
        """
        topics = {key.topic for key in partitions} | set(missing)
        for topic in sorted(self.named_topics - topics):
            shown = ", ".join(sorted(topics)[:_SHOWN_MAX])
            more = f" and {len(topics) - _SHOWN_MAX} more" if len(topics) > _SHOWN_MAX else ""
            raise ConfigError(
                f"option {option} names topic {topic}, which this query does not read",
                hint=f"it reads {shown}{more}" if topics else "it reads none, as none matches",
            )
        for key, point in self.partitions.items():
            if key.topic in missing:
                if isinstance(point, Offset | AtIndex):
                    raise ConfigError(
                        f"option {option} names a message of {key.topic}, which does not exist",
                        hint="check the name, or create the topic first",
                    )
            elif key not in partitions:
                count = sum(1 for other in partitions if other.topic == key.topic)
                raise ConfigError(
                    f"option {option} names partition {key.partition} of {key.topic}, which is not read",
                    hint=f"its partitions are counted from 0, and {count} of them {'is' if count == 1 else 'are'} read",
                )


class Said(NamedTuple):
    """A point, and the option that says it."""

    option: str
    point: Point


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a read: what options say of it, that which beats the others first. Empty: none was given."""

    specs: tuple[tuple[str, OffsetSpec], ...] = ()

    def said_of(self, key: TopicPartition) -> Said | None:
        """The point of one partition, with its option; None: the default of the query's kind."""
        for option, spec in self.specs:
            if (point := spec.point(key)) is not None:
                return Said(option, point)
        return None

    def says(self, point: Point) -> Iterator[str]:
        """The options that say ``point`` of anything."""
        return (option for option, spec in self.specs if point in spec.points)

    def check_named(
        self, partitions: Collection[TopicPartition], awaited: Callable[[set[str]], Collection[str]] = lambda _: ()
    ) -> None:
        """As ``OffsetSpec.check_named``; ``awaited``: which topics of a set will be read, and do not exist yet."""
        for option, spec in self.specs:
            spec.check_named(option, partitions, awaited(spec.named_topics))


# -- reading of options


def parse_offset_spec(text: str) -> OffsetSpec:
    """Read the text of an option; ValueError says what is wrong with it."""
    if not text.lstrip().startswith("{"):
        if (everywhere := _anywhere(text)) is None:
            raise ValueError(f"it takes {_ANYWHERE}, or a JSON object of topics")
        return OffsetSpec(everywhere)
    return _parse_map(text, _anywhere, _ANYWHERE, _point)


def parse_time_spec(text: str) -> OffsetSpec:
    """Kafka's map of topics and partitions to times; a topic may have one time for all of its partitions."""
    if not text.lstrip().startswith("{"):
        raise ValueError("it takes a JSON object of topics, each with a time or an object of partitions with times")
    return _parse_map(text, _moment, "a time in milliseconds or like 2026-01-01T00:00:00Z or -1h", _partition_moment)


def _parse_map(
    text: str,
    of_topic: Callable[[Any], Anywhere | None],
    forms: str,
    of_partition: Callable[[Any, TopicPartition], Point],
) -> OffsetSpec:
    topics: dict[str, Anywhere] = {}
    partitions: dict[TopicPartition, Point] = {}
    document = parse_json(text)
    for topic, found in once([(exact_topic(name), found) for name, found in document.items()]).items():
        if isinstance(found, dict):
            keys = [_partition(topic, key) for key in found]
            partitions |= once([(key, of_partition(said, key)) for key, said in zip(keys, found.values(), strict=True)])
        elif (point := of_topic(found)) is not None:
            topics[topic] = point
        else:
            raise ValueError(f"topic {topic} takes {forms}, or an object of partitions")
    return OffsetSpec(None, topics, partitions)


def _anywhere(text: Any) -> Anywhere | None:
    if not isinstance(text, str):
        return None
    written = text.strip()
    word = written.lower()
    if word == "earliest":
        return "earliest"
    if word == "latest":
        return "latest"
    if word == _SUBSCRIPTION:
        return AtSubscription()
    if word.startswith(f"{_SUBSCRIPTION}:"):
        return AtSubscription(parse_subscription(text.lstrip()[len(_SUBSCRIPTION) + 1 :]))
    return written_moment(written)


def _moment(value: Any) -> Moment | None:
    if isinstance(value, str):
        return written_moment(value.strip())
    return Moment(value) if is_number(value) and 0 <= value <= LONG_MAX else None


def _partition_moment(value: Any, key: TopicPartition) -> Moment:
    if (moment := _moment(value)) is None:
        raise ValueError(
            f"{json.dumps(value)} is no time of {key}; it takes milliseconds, or a time like "
            "2026-01-01T00:00:00Z or -1h"
        )
    return moment


def _partition(topic: str, key: str) -> TopicPartition:
    if not key.isdecimal():
        raise ValueError(f'"{key}" is not a partition number')
    return TopicPartition(topic, int(key))


def _point(value: Any, key: TopicPartition) -> Point:
    if is_number(value) and -2 <= value <= LONG_MAX:
        return "latest" if value == -1 else "earliest" if value == -2 else AtIndex(value)
    if isinstance(value, str):
        if (point := _anywhere(value)) is not None:
            return point
        try:
            return _id(value, key)
        except _ForeignIdError:
            raise
        except ValueError:
            pass
    raise ValueError(f"{json.dumps(value)} is no position; a partition takes {_FORMS}")


class _ForeignIdError(ValueError):
    """An id says that it is of another partition, where the same numbers mean another message."""


def _id(text: str, key: TopicPartition) -> Offset:
    """An id as people and other clients write it, or the text of an offset out of a checkpoint."""
    found = MessageId.parse(text.partition("@")[0])
    # Ids of a partition that is read as a topic have its number, and the partition of that topic is 0.
    if found.partition not in (-1, key.partition, TopicName.parse(key.topic).partition_index):
        raise _ForeignIdError(f"{json.dumps(text)} is of partition {found.partition}, not of {key.partition}")
    offset = Offset.parse(text) if "@" in text else Offset(found.position, -1, max(found.batch_index, 0))
    if not all(0 <= number <= LONG_MAX for number in offset.position) or offset.batch > BATCH_MAX:
        raise ValueError("no broker has such an id")
    return offset
