# SPDX-License-Identifier: Apache-2.0
"""Where reads begin and end, in every form, on three brokers. No session."""

from __future__ import annotations

import json

import pytest

from broker_core.base.errors import ConfigError
from broker_core.base.moments import time_text
from broker_core.client import Client
from tests.spark.batches import read_values
from tests.spark.brokers import Broker, eventually, numbers
from tests.spark.conftest import Start

AT_ITS_END = {"startingOffsetsByTimestampStrategy": "latest"}
NAME = "theirs"


def publish_times(cell: Broker, topic: str) -> list[int]:
    """When each message of a plain topic was published, in milliseconds."""
    with Client(cell.service_url) as client, client.create_reader(topic) as reader:
        found = []
        while reader.has_message_available():
            found.append(reader.read_next(60).publish_time_ms)
        return found


def sent_in_two_moments(cell: Broker, topic: str) -> int:
    """0 to 4, and 5 to 9 at a later millisecond, which is returned."""
    cell.create(topic, 0)
    cell.send_one_by_one(topic, numbers(0, 5))
    before = publish_times(cell, topic)[-1]

    def clock_went_on() -> bool:
        cell.send_one_by_one(f"{topic}-clock", ["0"])
        return publish_times(cell, f"{topic}-clock")[-1] > before

    eventually(clock_went_on, "a later message has a later publish time")
    cell.send_one_by_one(topic, numbers(5, 10))
    return publish_times(cell, topic)[5]


def test_times_of_partitions_say_where_a_read_begins_and_ends(cell: Broker, topic: str) -> None:
    """Kafka's two options, and a time in a map of offsets; what a map does not name is read whole."""
    cut = sent_in_two_moments(cell, topic)
    other = cell.create(f"{topic}-other", 0)
    cell.send(other, numbers(20, 23))
    both, by_time = f"{topic},{other}", json.dumps({topic: {"0": cut}})
    assert read_values(cell, both, startingOffsetsByTimestamp=by_time) == [5, 6, 7, 8, 9, 20, 21, 22]
    assert read_values(cell, both, endingOffsetsByTimestamp=by_time) == [0, 1, 2, 3, 4, 20, 21, 22]
    mixed = json.dumps({topic: {"0": time_text(cut)}, other: "earliest"})
    assert read_values(cell, both, startingOffsets=mixed, endingOffsetsByTimestamp=by_time) == [20, 21, 22]
    of_topics = json.dumps({topic: time_text(cut), other: 0})
    assert read_values(cell, both, startingOffsetsByTimestamp=of_topics) == [5, 6, 7, 8, 9, 20, 21, 22]
    assert read_values(cell, both, startingTimestamp=0, startingOffsetsByTimestamp=by_time) == [*range(10), 20, 21, 22]


def test_times_that_count_back_from_now(cell: Broker, topic: str) -> None:
    """What was sent a moment ago lies behind a day ago, and not behind a time to come, which has no match."""
    cell.create(topic, 2)
    cell.send(topic, numbers(0, 10))
    assert read_values(cell, topic, startingOffsets="-1d") == list(range(10))
    assert read_values(cell, topic, startingOffsets=json.dumps({topic: "-1d"})) == list(range(10))
    assert read_values(cell, topic, endingOffsets="-1d") == []
    to_come = "2100-01-01T00:00:00Z"
    with pytest.raises(ConfigError, match=r"startingOffsets is 2100-01-01T.* has no message so young; start such"):
        read_values(cell, topic, startingOffsets=to_come)
    assert read_values(cell, topic, startingOffsets=to_come, **AT_ITS_END) == []


def test_a_stream_begins_at_a_time(start: Start, cell: Broker, topic: str) -> None:
    """In each partition of its own; where nothing is so young, what comes later is read."""
    cut = sent_in_two_moments(cell, topic)
    query = start(topic=topic, startingOffsets=json.dumps({topic: {"0": time_text(cut)}}))
    assert query.drain() == [5, 6, 7, 8, 9]
    late = start(topic=topic, startingOffsetsByTimestamp=json.dumps({topic: {"0": cut + 3_600_000}}), **AT_ITS_END)
    assert late.drain() == []
    cell.send_one_by_one(topic, numbers(10, 13))
    assert late.drain() == [10, 11, 12]
    assert query.drain() == [10, 11, 12]


def test_a_read_begins_or_ends_where_a_subscription_stands(start: Start, cell: Broker, topic: str) -> None:
    """Of another application, by its name, or the one of the query itself; nothing of it is moved."""
    cell.create(topic, 0)
    cell.subscribe(topic, NAME)
    cell.send_one_by_one(topic, numbers(0, 10))
    with Client(cell.service_url) as client, client.subscribe(topic, NAME) as consumer:
        for _ in range(4):
            consumer.acknowledge(consumer.receive(60))
        with pytest.raises(ConfigError, match=f'subscription "{NAME}" stands, and a consumer is connected to it'):
            read_values(cell, topic, startingOffsets=f"subscription:{NAME}")
    assert read_values(cell, topic, startingOffsets=f"subscription:{NAME}") == [4, 5, 6, 7, 8, 9]
    assert read_values(cell, topic, endingOffsets=json.dumps({topic: f"subscription:{NAME}"})) == [0, 1, 2, 3]
    assert start(topic=topic, startingOffsets=f"subscription:{NAME}").drain() == [4, 5, 6, 7, 8, 9]
    assert cell.backlog(topic, NAME) == 6
    own = start(topic=topic, startingOffsets="subscription", subscriptionName=NAME)
    assert own.drain() == [4, 5, 6, 7, 8, 9]
    assert cell.backlog(topic, NAME) == 0


def test_a_subscription_that_is_not_there_is_named(start: Start, cell: Broker, topic: str) -> None:
    """It must not be made by asking for it."""
    cell.send(topic, numbers(0, 10))
    with pytest.raises(ConfigError, match=r'is where subscription "nobody" stands, and there is no such subscription'):
        read_values(cell, topic, startingOffsets="subscription:nobody")
    with pytest.raises(ConfigError, match=r'is where subscription "mine" stands, and there is no such subscription'):
        start(topic=topic, startingOffsets="subscription", subscriptionName="mine").trigger()
    assert cell.subscriptions(topic) == []


@pytest.mark.parametrize("starting", ["timestamp", "subscription"])
def test_a_first_batch_is_replayed_though_its_start_is_gone(
    start: Start, cell: Broker, topic: str, starting: str
) -> None:
    """Time went on over the last message, or the subscription was deleted: what was noted counts."""
    cell.create(topic, 0)
    cell.subscribe(topic, NAME)
    cell.send_one_by_one(topic, numbers(0, 5))
    if starting == "timestamp":
        query = start(topic=topic, startingTimestamp="-1h")
    else:
        query = start(topic=topic, startingOffsets=f"subscription:{NAME}")
    assert query.attempt() == [0, 1, 2, 3, 4]
    cell.unsubscribe(topic, NAME)
    if starting == "timestamp":
        query.restart(startingTimestamp="2100-01-01T00:00:00Z")  # As if a long time had passed.
    else:
        query.restart()
    assert query.trigger() == [0, 1, 2, 3, 4]
    cell.send_one_by_one(topic, numbers(5, 8))
    assert query.drain() == [5, 6, 7]
