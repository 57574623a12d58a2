# SPDX-License-Identifier: Apache-2.0
"""The options that name the subscription of a stream and say where a new one begins: read, and refused together."""

from __future__ import annotations

import pytest

from broker_core.base.errors import ConfigError
from pulsarish_spark.options import ReadOptions, Side, read_options


def stream(**options: str) -> ReadOptions:
    """The options of a stream of topic ``t``, as Spark hands them over."""
    given = {"service.url": "pulsar://nowhere:1", "topic": "t"} | options
    return read_options({name.lower(): text for name, text in given.items()}, Side.STREAM_READ, {})


@pytest.mark.parametrize("name", ["subscriptionPrefix", "groupIdPrefix"])
def test_a_prefix_is_known_under_the_name_of_each_source(name: str) -> None:
    """Jobs of Kafka and of pulsar-spark keep their word for it."""
    assert stream(**{name: "nightly"}).subscription_prefix == "nightly"
    assert stream().subscription_prefix == ""


@pytest.mark.parametrize("name", ["subscriptionName", "predefinedSubscription", "kafka.group.id"])
def test_a_prefix_beside_a_whole_name_is_refused(name: str) -> None:
    """Kafka ignores it with a warning, and the user looks for a subscription that is not there."""
    with pytest.raises(ConfigError) as caught:
        stream(subscriptionPrefix="nightly", **{name: "mine"})
    assert str(caught.value) == (
        'options subscriptionPrefix, "nightly", and subscriptionName, "mine", both name the subscription; '
        "give the prefix for a name that is generated, or the whole name"
    )


def test_where_a_new_subscription_begins_is_said_in_the_words_of_java() -> None:
    """Upper and lower case do not matter."""
    assert stream(subscriptionInitialPosition="Earliest").initial_position == "earliest"
    assert stream(**{"pulsar.consumer.subscriptionInitialPosition": "LATEST"}).initial_position == "latest"
    assert stream().initial_position is None


def test_two_options_may_say_the_same_of_the_beginning() -> None:
    """A job that was moved keeps both."""
    assert stream(subscriptionInitialPosition="Earliest", startingOffsets="earliest").initial_position == "earliest"


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ("startingOffsets", "latest"),
        ("startingOffsets", '{"t":"earliest"}'),
        ("startingOffsets", "subscription:other"),
        ("startingTimestamp", "0"),
        ("startingOffsetsByTimestamp", '{"t":"-1h"}'),
    ],
)
def test_two_options_that_say_different_beginnings_are_refused(other: str, text: str) -> None:
    """Whichever won, somebody would read what he did not ask for, or miss what he did."""
    with pytest.raises(ConfigError) as caught:
        stream(subscriptionInitialPosition="Earliest", **{other: text})
    assert str(caught.value) == (
        f"options subscriptionInitialPosition, earliest, and {other} both say where a new query begins, and differ; "
        "give one of them; subscriptionInitialPosition leaves a subscription that is there where it stands"
    )


@pytest.mark.parametrize("name", ["subscriptionPrefix", "subscriptionInitialPosition"])
def test_a_batch_read_has_no_subscription_to_speak_of(name: str) -> None:
    """It leaves no trace on the broker."""
    with pytest.raises(ConfigError, match=f'option "{name}" does not work in a batch read: a batch read '):
        read_options({"topic": "t", name.lower(): "earliest"}, Side.BATCH_READ, {})
