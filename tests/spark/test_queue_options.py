# SPDX-License-Identifier: Apache-2.0
"""The options of queue mode: what goes together, and what is refused by name."""

from __future__ import annotations

import pytest

from broker_core.base.errors import ConfigError
from pulsarish_spark.options import QueueOptions, ReadOptions, Side, read_options

QUEUE = {"topic": "t", "subscriptionType": "Shared", "subscriptionName": "work"}


def stream(**options: str) -> ReadOptions:
    """The options of a stream, as Spark hands them over."""
    given = {"service.url": "pulsar://nowhere:1"} | options
    return read_options({name.lower(): text for name, text in given.items()}, Side.STREAM_READ, {})


def test_without_a_type_a_query_goes_by_positions() -> None:
    """As it always did."""
    assert stream(topic="t", subscriptionName="work").queue is None


def test_options_of_a_shared_subscription_are_read() -> None:
    """Upper and lower case do not matter."""
    assert stream(**QUEUE).queue == QueueOptions("shared")
    chosen = {"subscriptionType": "KEY_SHARED", "queueGuarantee": "Claim", "queueConsumers": "4", "consumerName": "c"}
    chosen |= {"priorityLevel": "1", "availableNowQuietMs": "250", "retryEnabled": "true", "deadLetterTopic": "d"}
    assert stream(**QUEUE | chosen).queue == QueueOptions(
        "key_shared", "claim", 4, "c", 1, 0.25, retry=True, dead_letter_topic="persistent://public/default/d"
    )


def test_a_lock_has_a_time_limit() -> None:
    """An hour unless it is said."""
    locked = {**QUEUE, "queueGuarantee": "lock"}
    assert stream(**locked).queue == QueueOptions("shared", "lock", lock_timeout_s=3600)
    assert stream(**locked, transactionTimeoutMs="60000").queue == QueueOptions("shared", "lock", lock_timeout_s=60)


@pytest.mark.parametrize(
    ("topics", "name", "control"),
    [
        ({"topic": "t"}, "a", "persistent://public/default/__spark_sink_a"),
        ({"topics": "x/y/t,x/y/u"}, "a", "persistent://x/y/__spark_sink_a"),
        ({"topicsPattern": "x/y/t.*"}, "a", "persistent://x/y/__spark_sink_a"),
        ({"topic": "t"}, "x/y/a", "persistent://x/y/__spark_sink_a"),
    ],
)
def test_a_lock_may_be_ended_by_a_sink(topics: dict[str, str], name: str, control: str) -> None:
    """Whose control topic is in the namespace of the source's topics, unless it is said."""
    given = {"subscriptionType": "Shared", "subscriptionName": "work", "queueGuarantee": "lock", **topics}
    queue = stream(**given, transactionalId=name).queue
    assert queue is not None
    assert queue.control == control


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscriptionType": "Failover"}, "a query that reads alone needs no type"),
        ({"subscriptionType": "any"}, "it takes Shared or Key_Shared"),
        ({"queueGuarantee": "once"}, "it takes commit, claim or lock"),
        ({"queueGuarantee": "claim", "transactionalId": "a"}, "transactionalId means nothing without transactions"),
        ({"queueGuarantee": "claim", "transactionTimeoutMs": "9"}, "transactionTimeoutMs means nothing without trans"),
        ({"minPartitions": "3"}, "option minPartitions does not work with subscriptionType"),
        ({"inputPartitions": "3"}, "option inputPartitions does not work with subscriptionType"),
        ({"maxRecordsPerPartition": "3"}, "option maxRecordsPerPartition does not work with subscriptionType"),
        ({"skipUnread": "true"}, "option skipUnread does not work with subscriptionType"),
        ({"startingTimestamp": "0"}, "option startingTimestamp does not work with subscriptionType"),
        ({"startingOffsets": '{"t":{"0":"1:2"}}'}, "startingOffsets with places does not work with subscriptionType"),
        ({"subscriptionName": ""}, "subscriptionName"),
        ({"priorityLevel": "-1"}, "it takes a whole number from 0 up"),
    ],
)
def test_what_means_nothing_in_queue_mode_is_refused(options: dict[str, str], text: str) -> None:
    """By the option's name, with what to do."""
    with pytest.raises(ConfigError, match=text):
        stream(**QUEUE | options)


def test_a_new_shared_subscription_begins_where_either_option_says() -> None:
    """Only startingOffsets asks for that of one that is there."""
    assert stream(**QUEUE).queue == QueueOptions("shared", start=None, new_start="latest")
    assert stream(**QUEUE, startingOffsets="earliest").queue == QueueOptions(
        "shared", start="earliest", new_start="earliest"
    )
    position = stream(**QUEUE, subscriptionInitialPosition="Earliest").queue
    assert position == QueueOptions("shared", start=None, new_start="earliest")


def test_a_shared_subscription_needs_its_name() -> None:
    """One that nobody knows is shared with nobody."""
    with pytest.raises(ConfigError, match="subscriptionType needs the name of the subscription"):
        stream(topic="t", subscriptionType="Shared")
    with pytest.raises(ConfigError, match="option subscriptionPrefix does not work with subscriptionType"):
        stream(topic="t", subscriptionType="Shared", subscriptionPrefix="nightly")


def test_options_of_queue_mode_need_it() -> None:
    """Alone they would say nothing."""
    with pytest.raises(ConfigError, match="option queueGuarantee is for a query that shares its subscription"):
        stream(topic="t", queueGuarantee="claim")


def test_a_batch_read_shares_nothing() -> None:
    """It leaves no trace on the broker."""
    with pytest.raises(ConfigError, match='"subscriptionType" does not work in a batch read'):
        read_options({name.lower(): text for name, text in QUEUE.items()}, Side.BATCH_READ, {})
