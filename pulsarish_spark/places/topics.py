# SPDX-License-Identifier: Apache-2.0
"""The topics and partitions to read: those that the options name, or a pattern of topics.

A topic without partitions is read as partition 0. Which partitions exist, ``layout`` asks the broker.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard, TypeVar

from broker_core.base.errors import PulsarishError
from broker_core.base.names import TopicName, check_subscription_name
from broker_core.base.topics_pattern import TopicsPattern

K = TypeVar("K")


class TopicPartition(NamedTuple):
    """One partition of one topic, by the topic's full name. Sorts by topic, then by number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


@dataclass(frozen=True, slots=True)
class Selection:
    """Topics by full name, each with the partitions wanted (None: all, also those that come later); or, instead of
    them, all topics that match one of ``patterns``, also those that come later."""

    topics: tuple[tuple[str, tuple[int, ...] | None], ...]
    patterns: tuple[TopicsPattern, ...] = ()

    @classmethod
    def of_topics(cls, names: Iterable[str]) -> Selection:
        """Whole topics, by full name."""
        return cls(tuple((name, None) for name in names))

    @property
    def names(self) -> tuple[str, ...]:
        """The topics that are named."""
        return tuple(name for name, _ in self.topics)

    @property
    def pattern(self) -> str:
        """The pattern as the user wrote it; empty: topics are named."""
        return self.patterns[0].text if self.patterns else ""

    @property
    def namespace(self) -> str:
        """The namespace of the first topic, or of the pattern."""
        if self.patterns:
            return str(self.patterns[0].namespace)
        return str(TopicName.parse(self.names[0]).namespace_name) if self.topics else ""

    def wants(self, key: TopicPartition) -> bool:
        """Whether a partition is to be read, if it exists."""
        if self.patterns:
            return self.wants_some_of(key.topic)
        return any(name == key.topic and (only is None or key.partition in only) for name, only in self.topics)

    def wants_some_of(self, topic: str) -> bool:
        """Whether partitions of a topic are to be read, if it exists."""
        return topic in self.names or any(each.matches(TopicName.parse(topic)) for each in self.patterns)

    def reads_all_of(self, topic: str) -> bool:
        """Whether all partitions of a topic are to be read, also those that come later."""
        return bool(self.patterns) or (topic, None) in self.topics


# -- reading of options


def kept_name(text: str) -> str:
    """``text``, the name of a topic or subscription. Names are never changed, so ValueError if white space is at an end
    of it: there it is a slip as a rule, and would name something else."""
    if not text.strip():
        raise ValueError("it is empty")
    if text != text.strip():
        raise ValueError("the white space at its beginning or end would be a part of the name; remove it")
    return text


def parse_topic(text: str) -> str:
    """The full name of one topic; InvalidTopicNameError or ValueError if it is not valid."""
    return str(TopicName.parse(kept_name(text)))


def parse_subscription(text: str) -> str:
    """The name of a subscription; ValueError if it is not valid."""
    try:
        return kept_name(check_subscription_name(text))
    except PulsarishError as error:
        raise ValueError(str(error)) from error


def exact_topic(text: str) -> str:
    """The full name of one topic that is quoted, as in JSON: white space at its ends is meant."""
    return str(TopicName.parse(text))


def parse_json(text: str) -> Any:
    """The value of a JSON text; ValueError if it is none, or says two things of one name."""
    try:
        return json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({error.msg} at character {error.pos + 1})") from error
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def once(pairs: list[tuple[K, Any]]) -> dict[K, Any]:
    """A JSON object; ValueError if it names something twice, of which JSON takes the last."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f'it says two things of "{next(name for name in names if names.count(name) > 1)}"')
    return found


def is_number(value: object) -> TypeGuard[int]:
    """Whether a value of JSON is a whole number, which ``True`` is not."""
    return isinstance(value, int) and not isinstance(value, bool)
