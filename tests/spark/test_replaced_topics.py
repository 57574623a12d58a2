# SPDX-License-Identifier: Apache-2.0
"""Topics that are not what the checkpoint says: deleted, made anew, on a data directory that was wiped. No session."""

from __future__ import annotations

import logging
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker_core.base.errors import ConfigError, ConsumerBusyError
from pulsarish_spark import embedded_broker
from pulsarish_spark.losses.loss import DataLossError
from tests.spark.brokers import Broker, numbers
from tests.spark.ending import end
from tests.spark.engine import Engine

Start = Callable[..., Engine]


@pytest.fixture
def start(broker: Broker) -> Iterator[Start]:
    """``start(topic=..., option=...)``: a query, stopped at the end."""
    started: list[Engine] = []

    def make(**options: str | int) -> Engine:
        started.append(Engine(broker.service_url, **options))
        return started[-1]

    yield make
    for engine in started:
        engine.stop()


def replace(broker: Broker, topic: str) -> None:
    broker.admin("DELETE", f"persistent/public/default/{topic}?force=true")


def test_a_topic_that_was_deleted_is_a_loss_before_anything_is_sent_to_it(
    start: Start, broker: Broker, topic: str
) -> None:
    """It is not made anew by whoever reads it; one that is made later is read from its beginning."""
    broker.send_one_by_one(topic, numbers(0, 10))
    query = start(topic=topic)
    assert query.trigger() == list(range(10))
    replace(broker, topic)
    with pytest.raises(DataLossError, match=r"to be read on at .*, does not exist any more"):
        query.trigger()
    query.restart(failOnDataLoss="false")
    assert query.drain() == []
    broker.send(topic, numbers(50, 55))
    assert query.drain() == [50, 51, 52, 53, 54]


def test_partitions_that_are_deleted_under_a_running_query_are_a_loss(start: Start, broker: Broker, topic: str) -> None:
    """Before the next look for partitions, too: it was a topic that does not exist, with advice to check the name."""
    broker.create(topic, 2)
    broker.send(topic, numbers(0, 10))
    careful, careless = start(topic=topic), start(topic=topic, failOnDataLoss="false", subscriptionName="careless")
    assert sorted(careful.drain()) == sorted(careless.drain()) == list(range(10))
    broker.admin("DELETE", f"persistent/public/default/{topic}/partitions?force=true")
    with pytest.raises(DataLossError, match=r"\[0\], to be read on at .*, does not exist any more"):
        careful.trigger()
    assert careless.drain() == []
    broker.send(topic, numbers(50, 55))
    assert careless.drain() == [50, 51, 52, 53, 54]


@pytest.mark.parametrize("values", [numbers(100, 103), numbers(100, 110), numbers(100, 150)])
def test_a_topic_that_was_made_anew_is_read_from_its_beginning_or_not_at_all(
    start: Start, broker: Broker, topic: str, values: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """With fewer, as many, and more messages than the old one had. Nobody says that the old ones are still known."""
    broker.send_one_by_one(topic, numbers(0, 10))
    query = start(topic=topic)
    assert query.trigger() == list(range(10))
    replace(broker, topic)
    broker.send_one_by_one(topic, values)
    with pytest.raises(DataLossError, match="it was deleted or replaced"):
        query.trigger()
    query.restart(failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert query.drain() == [int(value) for value in values]
    assert "data loss" in caplog.text
    assert "what comes there is still known" not in caplog.text


def test_limits_hold_in_a_topic_that_was_made_anew(start: Start, broker: Broker, topic: str) -> None:
    """What is new is counted from its beginning, though the old one had read further."""
    broker.send_one_by_one(topic, numbers(0, 10))
    query = start(topic=topic)
    assert query.drain() == list(range(10))
    replace(broker, topic)
    broker.send_one_by_one(topic, numbers(100, 108))
    query.restart(failOnDataLoss="false", maxOffsetsPerTrigger=3)
    assert query.trigger() == [100, 101, 102]
    query.restart(maxOffsetsPerTrigger=1000, maxBytesPerTrigger=1)
    assert query.trigger() == [103]
    assert query.drain() == [104, 105, 106, 107]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_data_directory_that_was_wiped_does_not_pass_for_the_old_one(tmp_path: Path, fail: str) -> None:
    """The new topic has the same ledger and as many entries, but not the same messages: only indexes tell."""
    data = tmp_path / "data"
    first = embedded_broker(data)
    Broker(first.service_url, first.http_url).send("t", numbers(0, 10))
    query = Engine(first.service_url, topic="t")
    assert query.trigger() == list(range(10))
    end(first.pid, signal.SIGTERM)
    shutil.rmtree(data)
    second = embedded_broker(data)
    try:
        Broker(second.service_url, second.http_url).send("t", numbers(100, 105))
        query.restart(failOnDataLoss=fail, **{"service.url": second.service_url})
        if fail == "true":
            with pytest.raises(
                DataLossError, match="restored from an older copy of its data, or the topic was replaced"
            ):
                query.trigger()
        else:
            assert query.drain() == list(range(100, 105))
    finally:
        query.stop()
        end(second.pid, signal.SIGTERM)


def test_partitions_that_are_no_longer_assigned_are_no_loss(start: Start, broker: Broker, topic: str) -> None:
    """They exist, so "it does not exist any more" would send the user looking in the wrong place."""
    broker.create(topic, 2)
    broker.send(topic, numbers(0, 20))
    query = start(assign=f'{{"{topic}":[0,1]}}')
    assert query.drain() == list(range(20))
    query.restart(assign=f'{{"{topic}":[0]}}')
    with pytest.raises(ConfigError, match=rf"the checkpoint was made for topic \S+{topic}\[1\], which is not read now"):
        query.trigger()


def test_a_topic_that_is_no_longer_read_is_left_where_the_user_says_so(
    start: Start, broker: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As Spark's Kafka source does. Its subscription stays, which is said, and goes on when it is read again."""
    broker.send(f"{topic}-a", numbers(0, 10))
    broker.send(f"{topic}-b", numbers(10, 20))
    query = start(topics=f"{topic}-a,{topic}-b", failOnDataLoss="false")
    assert query.drain() == list(range(20))
    broker.send(f"{topic}-b", numbers(20, 30))
    query.restart(topics=f"{topic}-a")
    with caplog.at_level(logging.WARNING):
        assert query.drain() == []
    assert caplog.text.count(f"{topic}-b[0], to be read on at") == 1
    query.restart(topics=f"{topic}-a,{topic}-b")
    assert query.drain() == list(range(20, 30))


def test_the_sides_of_a_join_of_a_stream_with_itself_have_two_subscriptions(
    start: Start, broker: Broker, topic: str
) -> None:
    """Spark reads them as two sources that know nothing of each other. With one name they are refused."""
    broker.send(topic, numbers(0, 5))
    sides = start(topic=topic), start(topic=topic)
    assert [side.drain() for side in sides] == [list(range(5))] * 2
    start(topic=topic, subscriptionName="mine").trigger()
    with pytest.raises(ConsumerBusyError, match="or the other side of a join of this stream with itself"):
        start(topic=topic, subscriptionName="mine").trigger()
