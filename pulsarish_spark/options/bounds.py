# SPDX-License-Identifier: Apache-2.0
"""The options that say where reading begins and ends."""

from __future__ import annotations

from typing import Final

from broker_core.base.errors import ConfigError
from pulsarish_spark.options.option import Option, Side
from pulsarish_spark.options.parsing import one_of
from pulsarish_spark.places.start_spec import OffsetSpec, parse_offset_spec, parse_timestamp_ms, timestamp_text

NO_MATCH_STRATEGIES: Final = ("error", "latest")

_NO_END: Final = "a stream has no end; remove it, or read once with spark.read"


BOUNDS: Final = (
    Option(
        "startingOffsets",
        Side.READ,
        parse_offset_spec,
        '{"flights":{"0":"5:12","1":1000,"2":"earliest"}}',
        "Where a new query starts: earliest, latest, or a map of words, ids ledger:entry[:partition[:batch]] and "
        "message indexes (-1 latest, -2 earliest). Default latest in a stream, earliest in a batch, also for what a "
        "map does not name.",
    ),
    Option(
        "endingOffsets",
        Side.BATCH_READ,
        parse_offset_spec,
        '{"flights":{"0":"5:12"}}',
        "Where a batch read ends (exclusive), same forms. Default latest, also for what a map does not name; found "
        "when the data is read.",
        wrong_side=_NO_END,
    ),
    Option(
        "startingTimestamp",
        Side.READ,
        parse_timestamp_ms,
        "1767225600000",
        "Start at the first message published at or after this time (ms or ISO 8601). Beats startingOffsets.",
        ("startingTime",),
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        Side.READ,
        one_of(*NO_MATCH_STRATEGIES),
        "latest",
        "What to do in a partition without a message so young: error (default), or latest.",
    ),
    Option(
        "endingTimestamp",
        Side.BATCH_READ,
        parse_timestamp_ms,
        "1767225600000",
        "End before the first message published at or after this time. Beats endingOffsets.",
        ("endingTime",),
        wrong_side=_NO_END,
    ),
)


def check_times(starting_ms: int | None, ending_ms: int | None) -> None:
    if starting_ms is not None and ending_ms is not None and starting_ms > ending_ms:
        raise ConfigError(
            f"startingTimestamp, {timestamp_text(starting_ms)}, is after endingTimestamp, {timestamp_text(ending_ms)}",
            hint="swap them",
        )


def check_batch_words(starting: OffsetSpec | None, ending: OffsetSpec | None) -> None:
    if starting is not None and starting.mentions("latest"):
        raise ConfigError(
            "startingOffsets says latest, where a batch read finds nothing", hint="use earliest, an id or an index"
        )
    if ending is not None and ending.mentions("earliest"):
        raise ConfigError("endingOffsets says earliest, so nothing would be read", hint="use latest, an id or an index")
