# SPDX-License-Identifier: Apache-2.0
"""The options that say how a query is followed on the broker, and what happens when messages are gone."""

from __future__ import annotations

from typing import Final

from broker_core.base.errors import PulsarishError
from broker_core.base.names import check_subscription_name
from pulsarish_spark.options.option import Option, Side
from pulsarish_spark.options.parsing import flag


def _subscription(text: str) -> str:
    try:
        return check_subscription_name(text.strip())
    except PulsarishError as error:
        raise ValueError(str(error)) from error


FOLLOWING: Final = (
    Option(
        "failOnDataLoss",
        Side.READ,
        flag,
        "false",
        "Fail (default), or warn and go on, when messages that should be read are gone, or may be: the checkpoint, the "
        "subscription and the broker disagree.",
    ),
    Option(
        "subscriptionName",
        Side.STREAM_READ,
        _subscription,
        "my-query",
        "Durable subscription that follows the checkpoint; one for each query. On one that is there a new query begins "
        "where it stands. Default: a new one of its own, called pulsarish-spark-..., which the checkpoint remembers.",
        ("predefinedSubscription", "kafka.group.id"),
        wrong_side="a batch read leaves no trace on the broker; remove it",
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
