# SPDX-License-Identifier: Apache-2.0
"""The options that say how a query is followed on the broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker_core.base.errors import ConfigError
from pulsarish_spark.options.bounds import STARTS
from pulsarish_spark.options.option import Option, Side, flag, one_of
from pulsarish_spark.places.start_spec import OffsetSpec
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
        fills="subscription",
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
        fills="subscription_prefix",
    ),
    Option(
        "subscriptionInitialPosition",
        Side.STREAM_READ,
        one_of(("earliest", "latest")),
        "Earliest",
        "Where a query without a checkpoint begins if its subscription is not there yet: Latest (default) or Earliest. "
        "On one that is there it begins where that stands. startingOffsets says it too, and more; then leave this out.",
        ("pulsar.consumer.subscriptionInitialPosition",),
        wrong_side='a batch read has no subscription; say where it begins: .option("startingOffsets", "earliest")',
        fills="initial_position",
    ),
    Option(
        "skipUnread",
        Side.STREAM_READ,
        flag,
        "true",
        "Whether startingOffsets or startingTimestamp may pass over what the subscription of a new query has not "
        "acknowledged, and acknowledge it unread. Default false: an error.",
        wrong_side="a batch read acknowledges nothing; remove it",
        fills="skip_unread",
    ),
)


def check_following(given: Mapping[str, Any]) -> None:
    """ConfigError where two options name the subscription, or say where it begins and differ."""
    if "subscriptionPrefix" in given and "subscriptionName" in given:
        raise ConfigError(
            f'options subscriptionPrefix, "{given["subscriptionPrefix"]}", and subscriptionName, '
            f'"{given["subscriptionName"]}", both name the subscription',
            hint="give the prefix for a name that is generated, or the whole name",
        )
    position = given.get("subscriptionInitialPosition")
    other = next((name for name in STARTS if name in given), None)
    if position is None or other is None or given[other] == OffsetSpec(position):
        return
    raise ConfigError(
        f"options subscriptionInitialPosition, {position}, and {other} both say where a new query begins, and differ",
        hint="give one of them; subscriptionInitialPosition leaves a subscription that is there where it stands",
    )
