# SPDX-License-Identifier: Apache-2.0
"""From what the options say to the offset where one partition starts or ends: defaults, and what has no match.

Partitions that the options do not name have the default of the query's kind.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker_core.base.errors import ConfigError
from broker_core.base.moments import Moment, time_text
from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.options import ReadOptions
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.places.start_spec import AtSubscription, LogPoint, Said, Word
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.viewing.broker_view import BrokerView


def starts_at_edges(
    view: BrokerView, names: Mapping[TopicPartition, str], options: ReadOptions, default: Word
) -> dict[TopicPartition, Offset]:
    """Where those of the partitions start that start at their beginning or end, which are asked for all at once."""
    points = {key: (options.starting.said_of(key) or Said("startingOffsets", default)).point for key in names}
    edges = view.edges_of([names[key] for key, point in points.items() if point == "earliest"])
    ends = view.ends_of([names[key] for key, point in points.items() if point == "latest"])
    starts = {name: both.first for name, both in edges.items()} | ends
    return {key: starts[name] for key, name in names.items() if name in starts}


def resolve_start(
    view: BrokerView, name: str, key: TopicPartition, options: ReadOptions, default: Word, policy: LossPolicy
) -> Offset:
    """The offset where one partition starts."""
    option, point = options.starting.said_of(key) or Said("startingOffsets", default)
    if not isinstance(point, Moment):
        return view.find(name, _named(point, options), f"the starting offset of {key}", policy)
    time_ms = point.published_at(options.now_ms)
    found = view.at_time(name, time_ms)
    if found is None and options.no_match == "error":
        raise ConfigError(
            f"{option} is {time_text(time_ms)} and {key} has no message so young",
            hint='start such partitions at their end: .option("startingOffsetsByTimestampStrategy", "latest")',
        )
    return view.latest(name) if found is None else found


def resolve_end(
    view: BrokerView, name: str, key: TopicPartition, options: ReadOptions, policy: LossPolicy
) -> Offset | None:
    """The offset where a batch read of one partition ends; None: at its end when it is read, or at ``ending_ms``."""
    said = options.ending.said_of(key)
    if said is None or said.point == "latest":
        return None
    if isinstance(said.point, Moment):
        return view.at_time(name, said.point.published_at(options.now_ms))
    return view.find(name, _named(said.point, options), f"the ending offset of {key}", policy)


def ending_ms(key: TopicPartition, options: ReadOptions) -> int | None:
    """The publish time at which a batch read of one partition ends; None: it does not end at a time."""
    said = options.ending.said_of(key)
    return said.point.published_at(options.now_ms) if said and isinstance(said.point, Moment) else None


def _named(point: LogPoint, options: ReadOptions) -> LogPoint:
    """``point``, with the name of the query's own subscription if it is that."""
    return AtSubscription(point.name or options.subscription) if isinstance(point, AtSubscription) else point
