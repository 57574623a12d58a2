# SPDX-License-Identifier: Apache-2.0
"""The options that say how a query is followed on the broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker_core.base.errors import ConfigError
from pulsarish_spark.options.option import Option, Side
from pulsarish_spark.options.parsing import flag, one_of
from pulsarish_spark.places.start_spec import OffsetSpec, Word
from pulsarish_spark.places.topics import parse_subscription

FOLLOWING: Final = (
    Option(
        "subscriptionName",
        Side.STREAM_READ,
        parse_subscription,
        "my-query",
        "Durable subscription that follows the checkpoint; one for each query. On one that is there a new query begins "
        "where it stands. Default: a new one of its own, called pulsarish-spark-..., which the checkpoint remembers.",
        ("predefinedSubscription", "kafka.group.id"),
        wrong_side="a batch read leaves no trace on the broker; remove it",
    ),
    Option(
        "subscriptionPrefix",
        Side.STREAM_READ,
        parse_subscription,
        "nightly",
        "What the name of the subscription begins with if subscriptionName is not given: nightly-..., a new one for "
        "each new query. A query with a checkpoint keeps the one that it has. Default pulsarish-spark.",
        ("groupIdPrefix",),
        wrong_side="a batch read leaves no trace on the broker; remove it",
    ),
    Option(
        "subscriptionInitialPosition",
        Side.STREAM_READ,
        one_of("earliest", "latest"),
        "Earliest",
        "Where a query without a checkpoint begins if its subscription is not there yet: Latest (default) or Earliest. "
        "On one that is there it begins where that stands. startingOffsets says it too, and more; then leave this out.",
        ("pulsar.consumer.subscriptionInitialPosition",),
        wrong_side='a batch read has no subscription; say where it begins: .option("startingOffsets", "earliest")',
    ),
    Option(
        "skipUnread",
        Side.STREAM_READ,
        flag,
        "true",
        "Whether startingOffsets or startingTimestamp may pass over what the subscription of a new query has not "
        "acknowledged, and acknowledge it unread. Default false: an error.",
        wrong_side="a batch read acknowledges nothing; remove it",
    ),
)

_STARTS: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")


def prefix_of(given: Mapping[str, Any]) -> str:
    """What a generated name begins with, "" if nothing is said; ConfigError if the name is given whole."""
    prefix: str = given.get("subscriptionPrefix", "")
    if prefix and "subscriptionName" in given:
        raise ConfigError(
            f'options subscriptionPrefix, "{prefix}", and subscriptionName, "{given["subscriptionName"]}", both name '
            "the subscription",
            hint="give the prefix for a name that is generated, or the whole name",
        )
    return prefix


def initial_position_of(given: Mapping[str, Any]) -> Word | None:
    """Where a subscription begins that is not there, None if nothing is said; ConfigError if two options differ."""
    position: Word | None = given.get("subscriptionInitialPosition")
    other = next((name for name in _STARTS if name in given), None)
    if position is None or other is None or given[other] == OffsetSpec(position):
        return position
    raise ConfigError(
        f"options subscriptionInitialPosition, {position}, and {other} both say where a new query begins, and differ",
        hint="give one of them; subscriptionInitialPosition leaves a subscription that is there where it stands",
    )
