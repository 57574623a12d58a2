# SPDX-License-Identifier: Apache-2.0
"""The options that say where reading begins and ends.

Of options that speak of the same end, a time for everything beats times of partitions, and these beat offsets, as in
Spark's Kafka source.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker_core.base.errors import ConfigError
from broker_core.base.moments import Moment, parse_moment, time_text
from pulsarish_spark.options.option import Option, Side, one_of
from pulsarish_spark.places.start_spec import AtSubscription, Bound, OffsetSpec, parse_offset_spec, parse_time_spec

STARTS: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDS: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
"""Options in order of precedence: each wins over those behind it."""

BOUNDS: Final = (
    Option(
        "startingOffsets",
        parse_offset_spec,
        '{"flights":{"0":"5:12","1":1000,"2":"-1h"}}',
        "Where a new query starts: earliest, latest, a publish time (2026-01-01T00:00:00Z, or -90s, -15m, -1h, -2d "
        "before now by the driver's clock), or subscription:NAME, where that subscription stands; or a map from topics "
        "to these or to a map of partitions, each with one of these, an id ledger:entry[:partition[:batch]] or a "
        "message index (-1 latest, -2 earliest). Default latest in a stream, earliest in a batch, also for what a map "
        "does not name. The word subscription alone means that of subscriptionName, which must be there then.",
    ),
    Option(
        "endingOffsets",
        parse_offset_spec,
        '{"flights":{"0":"5:12"}}',
        "Where reading ends (exclusive), same forms. Batch: default latest, also for what a map does not name; found "
        "when the data is read. Stream: ids, indexes and times, which may be yet to come; there are no rows after "
        "them. AvailableNow ends there, other triggers go on without rows until the query is stopped; what comes "
        "after stays in the backlog of the subscription. What is not named has no end.",
    ),
    Option(
        "startingTimestamp",
        parse_moment,
        "1767225600000",
        "Start at the first message published at or after this time (ms, ISO 8601, or -1h). Beats startingOffsets and "
        "startingOffsetsByTimestamp. The broker finds the place by the clocks of producers; where these differ, a "
        "window has rows of other times and lacks some of its own ([losses.md](losses.md#windows-of-publish-times)).",
        ("startingTime",),
    ),
    Option(
        "startingOffsetsByTimestamp",
        parse_time_spec,
        '{"flights":{"0":1767225600000,"1":"-1h"}}',
        'The same for each partition, or {"flights":"-1h"} for each topic. Beats startingOffsets, which says of '
        "the others.",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        one_of(("error", "latest")),
        "latest",
        "What to do in a partition without a message as young as the time where it starts: error (default), or latest.",
        fills="no_match",
    ),
    Option(
        "endingTimestamp",
        parse_moment,
        "1767225600000",
        "End before the first message published at or after this time; where there is none when the data is read, a "
        "batch read ends at the end, and a stream goes on until there is one. Counted back from now, it is another "
        "time after each start of a stream. Beats endingOffsets and endingOffsetsByTimestamp.",
        ("endingTime",),
    ),
    Option(
        "endingOffsetsByTimestamp",
        parse_time_spec,
        '{"flights":{"0":1767225600000,"1":"-1h"}}',
        "The same for each partition. Beats endingOffsets, which says of the others.",
    ),
)


def start_of(given: Mapping[str, Any], side: Side) -> Bound:
    """The start of the read; ConfigError if that cannot be meant."""
    bound = _bound(given, STARTS)
    _check_subscription(bound, given)
    if side is Side.BATCH_READ and (option := next(bound.says("latest"), "")):
        raise ConfigError(
            f"{option} says latest, where a batch read finds nothing", hint="use earliest, an id or an index"
        )
    return bound


def end_of(given: Mapping[str, Any], side: Side) -> Bound:
    """The end of the read; ConfigError if that cannot be meant."""
    bound = _bound(given, _ENDS)
    _check_subscription(bound, given)
    if side is Side.STREAM_READ:
        _check_end_of_stream(bound)
    if option := next(bound.says("earliest"), ""):
        raise ConfigError(f"{option} says earliest, so nothing would be read", hint="use latest, an id or an index")
    return bound


def check_times(given: Mapping[str, Any], now_ms: int) -> None:
    starting, ending = given.get("startingTimestamp"), given.get("endingTimestamp")
    if starting is not None and ending is not None and starting.at(now_ms) > ending.at(now_ms):
        times = time_text(starting.at(now_ms)), time_text(ending.at(now_ms))
        raise ConfigError(f"startingTimestamp, {times[0]}, is after endingTimestamp, {times[1]}", hint="swap them")


def _bound(given: Mapping[str, Any], options: tuple[str, ...]) -> Bound:
    said = [(option, given[option]) for option in options if option in given]
    return Bound(tuple((option, OffsetSpec(at) if isinstance(at, Moment) else at) for option, at in said))


def _check_subscription(bound: Bound, given: Mapping[str, Any]) -> None:
    if (option := next(bound.says(AtSubscription()), "")) and "subscriptionName" not in given:
        raise ConfigError(
            f"{option} says subscription, and no subscriptionName says which",
            hint='write which one: "subscription:my-application"',
        )


def _check_end_of_stream(bound: Bound) -> None:
    """ConfigError for an end that moves: it would be another one whenever the query is started."""
    if option := next(bound.says("latest"), ""):
        raise ConfigError(
            f"{option} says latest, which is no end of a stream",
            hint="give an id, an index or a time, or read what is there with .trigger(availableNow=True)",
        )
    for option, spec in bound.specs:
        if any(isinstance(point, AtSubscription) for point in spec.points):
            raise ConfigError(
                f"{option} names a subscription, which moves and is no end of a stream",
                hint="give an id, an index or a time",
            )
