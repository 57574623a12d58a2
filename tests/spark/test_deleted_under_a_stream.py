# SPDX-License-Identifier: Apache-2.0
"""Messages that expire, are truncated, or go with their topic, under a stream: on every kind of broker. No session.

Owns: what happens while a query runs or reads. What a restarted query finds is ``test_agreement_of_brokers``'s.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import pytest

from broker_core.base.errors import PulsarishError
from broker_core.base.names import TopicName
from pulsarish_spark.losses.loss import DataLossError
from tests.spark.brokers import Broker, eventually, numbers
from tests.spark.conftest import Start

NAME = "reading"
OLD_S = 1
"""So old messages expire. The least that Apache Pulsar takes."""

DIGITS = 4000
"""Of each number in a topic that is too long to be read in one go."""


def expire(cell: Broker, topic: str) -> None:
    """As the time to live of the messages does."""

    def is_written() -> bool:
        """An Apache Pulsar that unloads the topic before that forgets it."""
        with cell.control() as api:
            cursor = api.internal_stats(TopicName.parse(topic), 0)["cursors"][NAME]
        return bool(cursor["state"] == "Open")

    sent_at = time.time()
    eventually(lambda: time.time() - sent_at > 2 * OLD_S, "the messages are old enough")
    cell.expire(topic, NAME, OLD_S)
    eventually(lambda: cell.backlog(topic, NAME) == 0 and is_written(), f"all messages of {topic} have expired")


def truncate(cell: Broker, topic: str) -> None:
    cell.admin("DELETE", f"persistent/public/default/{topic}/truncate")


@pytest.mark.parametrize("delete", [expire, truncate])
@pytest.mark.parametrize("runs", [True, False])
def test_what_expires_or_is_truncated_is_told(
    start: Start,
    cell: Broker,
    topic: str,
    delete: Callable[[Broker, str], None],
    runs: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Five of ten messages were read; the others are gone, and three more have come."""
    cell.send_one_by_one(topic, numbers(0, 10))
    query = start(topic=topic, subscriptionName=NAME, maxOffsetsPerTrigger=5)
    assert query.trigger() == [0, 1, 2, 3, 4]
    if not runs:
        query.stop()
    delete(cell, topic)
    cell.unload(topic)
    cell.send_one_by_one(topic, numbers(10, 13))
    cell.drop_acknowledged(topic)
    if not runs:
        query.restart()
    words = "5 messages lost" if cell.tells_indexes else "at least 5 entries lost"
    with pytest.raises(DataLossError, match=words):
        query.trigger()
    query.restart(failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert query.drain() == [10, 11, 12]
    assert words in caplog.text


def test_a_topic_that_is_deleted_while_a_task_reads_is_no_end_of_its_rows(
    start: Start, cell: Broker, topic: str
) -> None:
    """It delivers all rows of its range, or fails and names the topic, which nobody makes anew; who tries again is
    told that it is gone."""
    sent = [str(number).zfill(DIGITS) for number in range(3000)]
    cell.send(topic, sent, batching_max_messages=10)
    query = start(topic=topic, subscriptionName=NAME)
    tasks = query.plan()
    assert tasks
    values = query.values(tasks)
    rows = [next(values)]
    cell.delete(topic)
    told = ""
    try:
        rows += values
    except PulsarishError as error:
        told = str(error)
    assert topic in told or rows == list(range(3000))
    with pytest.raises(PulsarishError, match=topic):
        query.trigger()
    assert not cell.topic_exists(topic)
    query.restart()
    with pytest.raises(DataLossError, match=rf"{topic}\[0\].* does not exist any more"):
        query.trigger()


def test_rows_of_a_topic_made_anew_do_not_fill_up_the_range_of_a_task(start: Start, cell: Broker, topic: str) -> None:
    """Deleted and made anew between the plan of a batch and its reading: other rows are no answer."""
    cell.send_one_by_one(topic, numbers(0, 10))
    query = start(topic=topic, subscriptionName=NAME)

    tasks = query.plan()
    assert tasks
    cell.delete(topic)
    cell.send_one_by_one(topic, numbers(100, 120))
    with pytest.raises(DataLossError, match=rf"{topic}\[0\]"):
        list(query.values(tasks))
    with pytest.raises(DataLossError, match=rf"{topic}\[0\]"):
        query.trigger()
    query.restart(failOnDataLoss="false")
    assert query.drain() == list(range(100, 120))
