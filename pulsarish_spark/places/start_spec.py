# SPDX-License-Identifier: Apache-2.0
"""Where a user wants to start or end: the forms of ``startingOffsets``, ``endingOffsets`` and timestamps, as values.

A specification is a word for everything, or a map from topics to a word or to a map of partitions. What is said of
one partition is a ``Point``: a word, a message id, or a message index. Partitions that are not named have the default
of the query's kind. Knows no broker: ``resolve`` turns points into offsets.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

from broker_core.base.errors import ConfigError
from broker_core.base.positions import MessageId
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.places.topics import TopicPartition, once, parse_json, parse_topic

Word: TypeAlias = Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class AtIndex:
    """The message with this index in its topic partition."""

    message_index: int


Point: TypeAlias = Word | Offset | AtIndex

LONG_MAX: Final = 2**63 - 1
"""No broker knows a larger id, index or time."""

BATCH_MAX: Final = 2**31 - 1
"""The place in a batch is a 32-bit number."""

_SHOWN_MAX: Final = 5
"""Topics that an error names."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_FORMS: Final = (
    'earliest, latest, an id "ledger:entry[:partition[:batch]]" or a message index (-1 is latest, -2 is earliest)'
)


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """What ``startingOffsets`` or ``endingOffsets`` says. ``everywhere`` None: only of what is named."""

    everywhere: Word | None = None
    topics: Mapping[str, Word] = field(default_factory=dict)
    partitions: Mapping[TopicPartition, Point] = field(default_factory=dict)

    def mentions(self, word: Word) -> bool:
        """Whether ``word`` is used anywhere."""
        return word in (self.everywhere, *self.topics.values(), *self.partitions.values())

    @property
    def named_topics(self) -> set[str]:
        """The topics of which anything is said."""
        return {*self.topics, *(key.topic for key in self.partitions)}

    def says(self, key: TopicPartition) -> bool:
        """Whether anything is said of one partition."""
        return bool(self.partitions.get(key) or self.topics.get(key.topic) or self.everywhere)

    def point(self, key: TopicPartition, default: Word) -> Point:
        """What is said of one partition."""
        return self.partitions.get(key) or self.topics.get(key.topic) or self.everywhere or default

    def check_named(self, option: str, partitions: list[TopicPartition], missing: Collection[str] = ()) -> None:
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
                if not isinstance(point, str):
                    raise ConfigError(
                        f"option {option} names a message of {key.topic}, which does not exist",
                        hint="check the name, or create the topic first",
                    )
            elif key not in partitions:
                count = sum(1 for other in partitions if other.topic == key.topic)
                raise ConfigError(
                    f"option {option} names partition {key.partition} of {key.topic}, which is not read",
                    hint=f"its partitions are counted from 0, and {count} of them are read",
                )


def parse_offset_spec(text: str) -> OffsetSpec:
    """Read the text of an option; ValueError says what is wrong with it."""
    if word := _word(text):
        return OffsetSpec(everywhere=word)
    if not text.lstrip().startswith("{"):
        raise ValueError("it takes earliest, latest or a JSON object")
    document = parse_json(text)
    topics: dict[str, Word] = {}
    partitions: dict[TopicPartition, Point] = {}
    for topic, found in once([(parse_topic(name), found) for name, found in document.items()]).items():
        if isinstance(found, str) and (word := _word(found)):
            topics[topic] = word
        elif isinstance(found, dict):
            keys = [_partition(topic, key) for key in found]
            partitions |= once([(key, _point(value, key)) for key, value in zip(keys, found.values(), strict=True)])
        else:
            raise ValueError(f"topic {topic} takes earliest, latest or an object of partitions")
    return OffsetSpec(None, topics, partitions)


def parse_timestamp_ms(text: str) -> int:
    """Milliseconds since the epoch, or a time with its offset like ``2026-01-01T00:00:00Z``."""
    if text.strip().isdecimal():
        if int(text) > LONG_MAX:
            raise ValueError("it is no time in milliseconds: too large")
        return int(text)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ValueError("it takes milliseconds since 1970, or a time like 2026-01-01T00:00:00Z") from error
    if moment.tzinfo is None:
        raise ValueError("it has no time zone; write 2026-01-01T00:00:00Z")
    return max((moment - _EPOCH) // timedelta(milliseconds=1), 0)  # nothing was ever published before


def timestamp_text(time_ms: int) -> str:
    """What ``parse_timestamp_ms`` read, for errors: as ISO 8601, or the number where that does not go so far."""
    try:
        return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds")
    except OverflowError:
        return str(time_ms)


def _word(text: str) -> Word | None:
    word = text.strip().lower()
    if word == "earliest":
        return "earliest"
    return "latest" if word == "latest" else None


def _partition(topic: str, key: str) -> TopicPartition:
    if not key.isdecimal():
        raise ValueError(f'"{key}" is not a partition number')
    return TopicPartition(topic, int(key))


def _point(value: Any, key: TopicPartition) -> Point:
    if isinstance(value, int) and not isinstance(value, bool) and -2 <= value <= LONG_MAX:
        return "latest" if value == -1 else "earliest" if value == -2 else AtIndex(value)
    if isinstance(value, str):
        if word := _word(value):
            return word
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
    if "@" in text:
        offset = Offset.parse(text)
    else:
        found = MessageId.parse(text)
        if found.partition not in (-1, key.partition):
            raise _ForeignIdError(f"{json.dumps(text)} is of partition {found.partition}, not of {key.partition}")
        offset = Offset(found.position, -1, max(found.batch_index, 0))
    if not all(0 <= number <= LONG_MAX for number in offset.position) or offset.batch > BATCH_MAX:
        raise ValueError("no broker has such an id")
    return offset
