# SPDX-License-Identifier: Apache-2.0
"""The options that say how much a batch reads (``AMOUNTS``), and how it is divided into tasks (``DIVIDING``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from broker_core.base.errors import ConfigError
from broker_core.base.moments import parse_span_s
from pulsarish_spark.options.option import Option, Side, count, filled
from pulsarish_spark.places.topics import Selection, exact_topic, is_number, once, parse_json

_NO_TRIGGER: Final = "a batch read has no triggers; remove it"

TRIGGER_DELAY_S_DEFAULT: Final = 900.0
"""The default of Spark's Kafka source."""

WEIGHT_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Amounts:
    """The limits of one micro-batch of a stream; None: no such limit. ``topic_weights``: 1 for topics left out."""

    messages_max: int | None = None
    messages_min: int | None = None
    bytes_max: int | None = None
    delay_s_max: float = TRIGGER_DELAY_S_DEFAULT
    topic_weights: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_limited(self) -> bool:
        """Whether a batch may be other than all that there is."""
        return any(limit is not None for limit in (self.messages_max, self.messages_min, self.bytes_max))


def _weights(text: str) -> dict[str, int]:
    found = parse_json(text)
    if not isinstance(found, dict) or not found:
        raise ValueError("it takes a JSON object of topics, each with a weight")
    for topic, weight in found.items():
        if not is_number(weight) or not 1 <= weight <= WEIGHT_MAX:
            raise ValueError(f"topic {topic} takes a whole number from 1 to {WEIGHT_MAX}")
    return once([(exact_topic(topic), weight) for topic, weight in found.items()])


def _option(name: str, parse: Callable[[str], Any], example: str, meaning: str, fills: str) -> Option:
    return Option(name, parse, example, meaning, wrong_side=_NO_TRIGGER, fills=fills, sides=Side.STREAM_READ)


AMOUNTS: Final = (
    _option(
        "maxOffsetsPerTrigger",
        count,
        "500000",
        "Messages of one micro-batch at most, to within one entry, shared out by backlog; never less than one entry of "
        "each partition. A broker without message indexes is read twice for that, up to 64 MiB or 20,000 entries a "
        "trigger; beyond these only larger entries than all of those seen can make a batch larger.",
        "messages_max",
    ),
    _option(
        "maxBytesPerTrigger",
        count,
        "104857600",
        "Bytes of one micro-batch at most, of entries as they are stored, to within one entry, shared out by backlog; "
        "never less than one entry of each partition. With maxOffsetsPerTrigger both hold. No broker tells sizes, so "
        "what a batch takes is read twice, up to 64 MiB or 20,000 entries a trigger; what lies beyond these is taken "
        "as far as it may be if all of its entries are as large as the largest that was seen.",
        "bytes_max",
    ),
    _option(
        "minOffsetsPerTrigger",
        count,
        "10000",
        "No micro-batch before there are so many new messages, or maxTriggerDelay is over. The first one of each start "
        "runs at once, and AvailableNow and Once take what there is. Without message indexes the number is judged by "
        "the number of entries.",
        "messages_min",
    ),
    _option(
        "maxTriggerDelay",
        parse_span_s,
        "5m",
        "How long minOffsetsPerTrigger may keep new messages waiting. Default 15m.",
        "delay_s_max",
    ),
    _option(
        "topicWeights",
        _weights,
        '{"flights":3,"airlines":1}',
        "How limits of a trigger are shared out over topics: a partition counts as if it had so many times its "
        f"backlog. Whole numbers up to {WEIGHT_MAX}; 1 for topics that are not named.",
        "topic_weights",
    ),
)

DIVIDING: Final = (
    Option(
        "minPartitions",
        count,
        "8",
        "At least about so many tasks: long ranges are split.",
        fills="min_partitions",
    ),
    Option(
        "inputPartitions",
        count,
        "4",
        "Exactly so many tasks, if there are as many topic partitions: partition p is read by task p mod n.",
        fills="input_partitions",
    ),
    Option(
        "maxRecordsPerPartition",
        count,
        "100000",
        "Messages of one task at most, to within one entry. Without message indexes: within the first 64 MiB or 20,000 "
        "entries that are read; beyond them to within a factor of two where batches of all sizes are mixed evenly.",
        fills="max_records",
    ),
)


def amounts_of(given: Mapping[str, Any], selection: Selection) -> Amounts:
    """The limits of a micro-batch; ConfigError for options that contradict each other, or the topics that are read."""
    most, least = given.get("maxOffsetsPerTrigger"), given.get("minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise ConfigError(f"minOffsetsPerTrigger, {least}, is more than maxOffsetsPerTrigger, {most}", hint="swap them")
    if least is None and "maxTriggerDelay" in given:
        raise ConfigError(
            "maxTriggerDelay bounds the waiting for minOffsetsPerTrigger, which was not given",
            hint='give .option("minOffsetsPerTrigger", "10000") too, or use a trigger with an interval',
        )
    for topic in given.get("topicWeights", {}):
        if not selection.wants_some_of(topic):
            raise ConfigError(
                f"option topicWeights names topic {topic}, which this query does not read",
                hint=f"it reads {selection.pattern or ', '.join(selection.names)}",
            )
    return Amounts(**filled(AMOUNTS, given))
