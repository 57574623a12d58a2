# SPDX-License-Identifier: Apache-2.0
"""The partitions of a selection at one moment, and their names on the broker.

Everything is asked at once: a pattern may match thousands of topics. A pattern leaves out topics that are named like a
partition of a topic that has none: Apache Pulsar deletes a partitioned topic step by step, and for that moment its
partitions must not be taken for other topics, whose messages would be read again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from broker_core.base.clock import Clock
from broker_core.base.errors import ConfigError, TopicNotFoundError
from broker_core.base.names import TopicName
from broker_core.base.topics_pattern import TopicsPattern
from broker_core.client import Client
from pulsarish_spark.places.topics import Selection, TopicPartition

logger = logging.getLogger(__name__)

LEFT_OUT: Final = "it is named like a partition, and there is no partitioned topic that it belongs to"


class Layout(NamedTuple):
    """The partitions of a selection at one moment, sorted, and the name that each is reached by on the broker.

    ``missing``: topics that the selection names and that do not exist. ``left_out``: what a pattern matches and that
    looks like partitions without their topic.
    """

    names: dict[TopicPartition, str]
    missing: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def discover(selection: Selection, client: Client, *, missing_ok: bool = False) -> Layout:
    """Ask for the partitions of every topic of ``selection``; ConfigError if it names one that does not exist, or one
    twice.

    ``missing_ok``: a topic that does not exist has no partitions, for a stream waits for it; else it is a
    TopicNotFoundError. A pattern may match nothing.
    """
    if selection.patterns:
        return _matching(selection.patterns, client)
    names: dict[TopicPartition, str] = {}
    missing: list[str] = []
    topics = sorted(selection.topics)
    for (topic, wanted), known in zip(topics, client.existing_partitions_of([name for name, _ in topics]), strict=True):
        count = client.required_partitions(topic) if known is None and not missing_ok else known
        if count is None:
            missing.append(topic)
            continue
        existing = range(max(count, 1))
        if wanted is not None and (beyond := sorted(set(wanted) - set(existing))):
            raise ConfigError(
                f"option assign names partition {beyond[0]} of {topic}, which has {len(existing)}",
                hint="partitions are counted from 0",
            )
        names |= _names(TopicName.parse(topic), count, existing if wanted is None else wanted)
    _check_once(names)
    return Layout(names, tuple(missing))


def _check_once(names: Mapping[TopicPartition, str]) -> None:
    """ConfigError if a partition is read as one of its topic, and as a topic of its own."""
    keys: dict[str, TopicPartition] = {}
    for key, name in names.items():
        if (other := keys.setdefault(name, key)) != key:
            topic = min(key.topic, other.topic, key=len)
            raise ConfigError(
                f"{name} is named twice: it is a partition of {topic}, which is named too",
                hint="its rows would come twice; name the topic alone, or its partitions with the option assign",
            )


def advice_on_missing(topic: str, client: Client) -> str:
    """Advice about a topic that does not exist; empty: it does by now."""
    try:
        client.required_partitions(topic)
    except TopicNotFoundError as error:
        return error.hint
    return ""


def names_there(keys: Collection[TopicPartition], client: Client) -> dict[TopicPartition, str]:
    """The names of those of ``keys`` that are there; each topic is asked for once."""
    topics = sorted({key.topic for key in keys})
    counts = dict(zip(topics, client.existing_partitions_of(topics), strict=True))
    names: dict[TopicPartition, str] = {}
    for key in keys:
        count = counts[key.topic]
        if count is not None and key.partition < max(count, 1):
            names |= _names(TopicName.parse(key.topic), count, [key.partition])
    return names


def _matching(patterns: Sequence[TopicsPattern], client: Client) -> Layout:
    """All partitions of the topics that match."""
    listed = {name for each in patterns for name in each.select(client.topics_of(str(each.namespace)))}
    counts = {name: 0 for name in listed if name.partition_index < 0}
    bases = sorted({name.base for name in listed if name.partition_index >= 0})
    partitioned = client.existing_partitions_of([str(base) for base in bases])
    counts |= {base: count for base, count in zip(bases, partitioned, strict=True) if count}
    names: dict[TopicPartition, str] = {}
    for topic in sorted(counts):
        names |= _names(topic, counts[topic], range(max(counts[topic], 1)))
    left_out = (name for name in listed if name.partition_index >= 0 and not counts.get(name.base))
    return Layout(names, left_out=tuple(sorted(map(str, left_out))))


def _names(topic: TopicName, count: int, partitions: Sequence[int]) -> dict[TopicPartition, str]:
    """The names of ``partitions`` of a topic that has ``count`` of them."""
    return {
        TopicPartition(str(topic), number): str(topic.partition(number)) if count else str(topic)
        for number in partitions
    }


class FollowedLayout:
    """The partitions that a stream reads: looked for again and again, for topics and partitions come and go.

    A topic that is named and missing is found in the first call behind its creation, everything else within the
    interval. A line of the log tells, once each, of what the stream waits for and of what a pattern leaves out. Used by
    one thread.
    """

    def __init__(self, selection: Selection, client: Client, clock: Clock, interval_s: float) -> None:
        self._selection = selection
        self._client = client
        self._clock = clock
        self._interval_s = interval_s
        self._told_left_out: set[str] = set()
        self._found = Layout({})
        self.look()
        for topic in self._found.missing:
            advice = advice_on_missing(topic, client)
            logger.warning("the stream waits for a topic that does not exist topic=%s advice=%r", topic, advice)
        if selection.patterns and not self.names:
            logger.warning("the stream waits for topics that match pattern=%s", selection.pattern)

    @property
    def names(self) -> dict[TopicPartition, str]:
        """The name of each partition on the broker, sorted by partition."""
        return self._found.names

    def awaited(self, topics: Collection[str]) -> set[str]:
        """The ones of ``topics`` that do not exist and will be read once they do."""
        there = {key.topic for key in self.names}
        return {topic for topic in topics if topic not in there and self._selection.wants_some_of(topic)}

    def is_due(self) -> bool:
        """Whether it is time to look again."""
        if self._clock.monotonic() - self._looked_at >= self._interval_s:
            return True
        missing = self._found.missing
        return bool(missing) and any(count is not None for count in self._client.existing_partitions_of(missing))

    def look(self) -> None:
        """Ask what there is now."""
        self._found = discover(self._selection, self._client, missing_ok=True)
        self._looked_at = self._clock.monotonic()
        for topic in self._found.left_out:
            if topic not in self._told_left_out:
                self._told_left_out.add(topic)
                logger.warning("partition left out topic=%s reason=%s", topic, LEFT_OUT)
