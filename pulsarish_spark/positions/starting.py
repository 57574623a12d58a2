# SPDX-License-Identifier: Apache-2.0
"""From what the options say to the offset where one partition starts or ends: precedence, defaults, strategies.

A timestamp beats offsets, as in Spark's Kafka source. Partitions that the options do not name have the default of the
query's kind.
"""

from __future__ import annotations

from broker_core.base.errors import ConfigError
from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.options import ReadOptions
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.places.start_spec import OffsetSpec, Point, Word
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.viewing.broker_view import BrokerView


def start_point(key: TopicPartition, options: ReadOptions, default: Word) -> Point:
    """What the options say of the start of one partition, timestamps aside."""
    return (options.starting or OffsetSpec()).point(key, default)


def resolve_start(
    view: BrokerView, name: str, key: TopicPartition, options: ReadOptions, default: Word, policy: LossPolicy
) -> Offset:
    """The offset where one partition starts."""
    if options.starting_ms is None:
        what = f"the starting offset of {key}"
        return view.find(name, start_point(key, options, default), what, policy)
    found = view.at_time(name, options.starting_ms)
    if found is None and options.no_match == "error":
        raise ConfigError(
            f"startingTimestamp is {options.starting_ms} and {key} has no message so young",
            hint='start such partitions at their end: .option("startingOffsetsByTimestampStrategy", "latest")',
        )
    return view.latest(name) if found is None else found


def resolve_end(
    view: BrokerView, name: str, key: TopicPartition, options: ReadOptions, policy: LossPolicy
) -> Offset | None:
    """The offset where a batch read of one partition ends; None: at its end when it is read."""
    if options.ending_ms is not None:
        return view.at_time(name, options.ending_ms)
    point = (options.ending or OffsetSpec()).point(key, "latest")
    return None if point == "latest" else view.find(name, point, f"the ending offset of {key}", policy)
