# SPDX-License-Identifier: Apache-2.0
"""The options that say which topics, and which of their partitions; or which exported batch instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker_core.base.errors import ConfigError
from broker_core.base.names import TopicName
from broker_core.base.topics_pattern import TopicsPattern
from pulsarish_spark.options.option import Option, Side, flag, milliseconds, mounted_path
from pulsarish_spark.places.topics import Selection, exact_topic, is_number, once, parse_json, parse_topic

REPLAY_FILE: Final = "replayFile"
SELECTORS: Final = ("topic", "topics", "assign", "topicsPattern")
"""The options of which one says what to read."""

DISCOVERY_S: Final = 5.0
"""The interval at which a stream looks for new partitions and topics, unless an option says otherwise."""


def _topic(text: str) -> str:
    if "," in text:
        raise ValueError(
            'it takes one topic; read several with .option("topics", "a,b"), and a topic whose name has a comma with '
            '.option("assign", ...); write to several by the column topic'
        )
    return parse_topic(text)


def _topics(text: str) -> Selection:
    """A comma separated list of topics. White space around a name is layout."""
    names = [parse_topic(part.strip()) for part in text.split(",") if part.strip()]
    if not names:
        raise ValueError("it names no topic")
    return Selection.of_topics(sorted(set(names)))


def _pattern(text: str) -> Selection:
    """A regular expression over the topics of one namespace, or of several that it names."""
    pattern = text.strip()
    if pattern.startswith("non-persistent://"):
        raise ValueError("such topics store nothing that Spark could read")
    return Selection((), TopicsPattern.spanning(pattern))


def _assign(text: str) -> Selection:
    """Kafka's form, ``{"topic":[0,1]}``."""
    found = parse_json(text)
    if not isinstance(found, dict) or not found:
        raise ValueError("it takes a JSON object of topics, each with a list of partitions")
    topics = once([(exact_topic(name), _partitions(name, listed)) for name, listed in found.items()])
    return Selection(tuple(sorted(topics.items())))


def _partitions(topic: str, listed: object) -> tuple[int, ...]:
    if not isinstance(listed, list) or not listed or not all(is_number(number) and number >= 0 for number in listed):
        raise ValueError(f"topic {topic} takes a list of partition numbers")
    return tuple(sorted(set(listed)))


READ_COMPACTED: Final = "readCompacted"

SELECTING: Final = (
    Option(
        "topic",
        _topic,
        "flights",
        "The topic to read or write. load(...) and save(...) take it too.",
        ("path",),
        sides=Side.ANY,
    ),
    Option("topics", _topics, "flights,airlines", "Topics to read, comma separated.", ("subscribe",)),
    Option("assign", _assign, '{"flights":[0,2]}', "Topics with the partitions to read."),
    Option(
        READ_COMPACTED,
        flag,
        "true",
        "Of compacted topics only the last message of each key, as far as they are compacted, and all that has come "
        "since. What compaction has left out is not lost; that startingOffsets names such a message is no error. A "
        "stream reads what is compacted when it begins, and from there on every message, deletions of keys too "
        "([losses.md](losses.md#compacted-topics)).",
        ("pulsar.reader.readCompacted", "pulsar.consumer.readCompacted"),
        fills="compacted",
    ),
    Option(
        "topicsPattern",
        _pattern,
        "persistent://public/(eu|us)/flights-.*",
        "All topics whose whole names match a regular expression, those that brokers keep for themselves left out. "
        "Tenant and namespace are public/default if not given; alternatives in them are spelled out, as the protocol "
        "cannot list namespaces. A stream reads topics that come later from their first message on, and waits where "
        "nothing matches; a batch read is empty then.",
        ("subscribePattern",),
    ),
    Option(
        "partitionDiscoveryIntervalMs",
        milliseconds,
        "1000",
        f"How often a stream looks for new partitions, and for topics that match. Default {DISCOVERY_S * 1000:.0f}.",
        wrong_side="a batch read looks once; remove it",
        fills="discovery_s",
        sides=Side.STREAM_READ,
    ),
)

REPLAYING: Final = (
    Option(
        REPLAY_FILE,
        mounted_path,
        "/data/batch-41.parquet",
        "Read the batch of a stream that was exported to this file, without any broker; no other option goes with it "
        "([losses.md](losses.md#exporting-a-batch)).",
        wrong_side="a file has one batch; read it with spark.read",
        sides=Side.BATCH_READ,
    ),
)


def selection_of(given: Mapping[str, Any]) -> Selection:
    chosen = [name for name in SELECTORS if name in given]
    if len(chosen) == 1:
        selected = given[chosen[0]]
        selection = selected if isinstance(selected, Selection) else Selection.of_topics([selected])
        _check_stored(chosen[0], selection)
        return selection
    found = "none" if not chosen else " and ".join(chosen)
    raise ConfigError(
        f"exactly one of the options {', '.join(SELECTORS)} says what to read, and {found} were given",
        hint='example: .option("topic", "flights")',
    )


def given_names(texts: Mapping[str, str]) -> dict[str, str]:
    """The user's names of topics, by their full names; ``texts`` are valid options by proper name."""
    parts = [text.strip() for name in ("topic", "topics") for text in texts.get(name, "").split(",")]
    names = [*parts, *parse_json(texts.get("assign", "{}"))]
    return {exact_topic(name): name for name in names if name}


def _check_stored(option: str, selection: Selection) -> None:
    for topic, _ in selection.topics:
        if not TopicName.parse(topic).persistent:
            raise ConfigError(
                f"option {option} names {topic}, which stores nothing that Spark could read",
                hint="read a persistent:// topic, or receive from this one with a client as messages come",
            )
