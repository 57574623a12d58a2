# SPDX-License-Identifier: Apache-2.0
"""What deleted unread messages is told, and what deleted read ones is not: on every kind of broker. No session.

An administrator deletes a topic or the subscription, skips, resets, unloads and trims, while the query runs and while
it is down. Without indexes of messages, as Apache Pulsar comes, the subscription is what tells.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from broker_core.base.positions import Position
from broker_core.client import Client
from broker_core.client.columnar import durable_subscribing
from broker_core.client.connecting.connection import Connection, ConsumerPort
from broker_core.client.connecting.subscribing import Subscribing, register
from pulsarish_spark.losses.loss import DataLossError
from pulsarish_spark.options import Side, read_options
from pulsarish_spark.positions.batch_plan import plan_batch
from tests.spark.brokers import TIMEOUT_S, Broker, numbers
from tests.spark.conftest import Start
from tests.spark.engine import Engine
from tests.spark.queries import eventually

NAME = "reading"


class HeldSubscribing:
    """Holds every SUBSCRIBE to a durable subscription up, while ``hold`` is in force."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._reached = threading.Event()
        self._free = threading.Event()
        self._free.set()

        async def held(connection: Connection, consumer_id: int, port: ConsumerPort, request: Subscribing) -> None:
            if not self._free.is_set():
                self._reached.set()
                await asyncio.to_thread(self._free.wait, TIMEOUT_S)
            await register(connection, consumer_id, port, request)

        monkeypatch.setattr(durable_subscribing, "register", held)

    def hold(self) -> None:
        self._free.clear()

    def wait(self) -> None:
        """Return when one is held up."""
        assert self._reached.wait(TIMEOUT_S)

    def go_on(self) -> None:
        self._free.set()


def begun(start: Start, cell: Broker, topic: str, read: int, sent: int) -> Engine:
    """A query that has read so many of the messages sent."""
    cell.send_one_by_one(topic, numbers(0, sent))
    query = start(topic=topic, subscriptionName=NAME, maxOffsetsPerTrigger=read)
    assert query.trigger() == list(range(read))
    query.restart(maxOffsetsPerTrigger=1000)
    return query


def assert_told_again_and_again(query: Engine, words: str) -> None:
    """A start that fails leaves nothing behind that lets the next one go on."""
    for _ in range(2):
        with pytest.raises(DataLossError, match=words):
            query.trigger()
        query.restart()


def goes_on_with(query: Engine, wanted: list[int], words: str, caplog: pytest.LogCaptureFixture) -> None:
    """Without failOnDataLoss the same is said, once, and reading goes on with what is there."""
    query.restart(failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert query.drain() == wanted
        query.restart()
        assert query.drain() == []
    told = [record.getMessage() for record in caplog.records if "data loss" in record.getMessage()]
    assert len(told) == 1
    assert words in told[0]


@pytest.mark.parametrize("anew", [3, 20, 30])
@pytest.mark.parametrize("read", [10, 20])
def test_a_topic_that_was_made_anew_is_not_read_as_the_old_one(
    start: Start, cell: Broker, topic: str, anew: int, read: int, caplog: pytest.LogCaptureFixture
) -> None:
    """With fewer, as many and more messages than the old one, of which half or all had been read."""
    query = begun(start, cell, topic, read, 20)
    cell.delete(topic)
    cell.send_one_by_one(topic, numbers(100, 100 + anew))
    assert_told_again_and_again(query, "should go on")
    goes_on_with(query, list(range(100, 100 + anew)), "should go on", caplog)


def test_a_deleted_subscription_is_told_where_unread_messages_went_with_it(
    start: Start, cell: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing kept them; the rows behind them would pass for the next ones."""
    query = begun(start, cell, topic, 5, 20)
    cell.unsubscribe(topic, NAME)
    cell.subscribe(topic, "other", "latest")
    cell.unload(topic)
    cell.send_one_by_one(topic, numbers(20, 30))
    cell.drop_acknowledged(topic)
    assert_told_again_and_again(query, "should go on at .*lost")
    goes_on_with(
        query, list(range(20, 30)), "15 messages lost" if cell.tells_indexes else "at least 15 entries", caplog
    )


def test_a_deleted_subscription_under_a_query_is_told_where_messages_went(
    start: Start, cell: Broker, topic: str
) -> None:
    """The query has read everything when it is deleted, so only the subscription tells; a client would make it anew."""
    query = begun(start, cell, topic, 20, 20)
    assert query.trigger() is None
    cell.unsubscribe(topic, NAME)
    cell.subscribe(topic, "other", "latest")
    cell.send_one_by_one(topic, numbers(20, 25))
    cell.unload(topic)
    cell.skip_all(topic, "other")
    cell.send_one_by_one(topic, numbers(25, 30))
    cell.drop_acknowledged(topic)
    assert_told_again_and_again(query, "5 messages lost" if cell.tells_indexes else f'"{NAME}", .*was deleted')


@pytest.mark.parametrize("deleted", ["opening", "reopening", "before"])
def test_what_goes_while_a_subscription_is_opened_is_told(
    start: Start, cell: Broker, topic: str, deleted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was there when that was asked, or nothing was lost yet; the SUBSCRIBE behind that makes it anew."""
    held = HeldSubscribing(monkeypatch)
    query = begun(start, cell, topic, 5, 5)
    assert query.trigger() is None
    if deleted != "reopening":
        query.restart()
    cell.send_one_by_one(topic, numbers(5, 8))
    cell.subscribe(topic, "other", "latest")
    if deleted == "before":
        cell.unsubscribe(topic, NAME)
    with ThreadPoolExecutor(1) as thread:
        held.hold()
        if deleted == "reopening":
            cell.unload(topic)
        batch = thread.submit(query.trigger)
        held.wait()
        if deleted != "before":
            cell.unsubscribe(topic, NAME)
        cell.unload(topic)
        cell.send_one_by_one(topic, numbers(8, 10))
        cell.drop_acknowledged(topic)
        held.go_on()
        words = "3 messages lost" if cell.tells_indexes else f'"{NAME}", .*was deleted'
        with pytest.raises(DataLossError, match=words):
            batch.result()
    query.restart()
    assert_told_again_and_again(query, words)


def test_a_deleted_subscription_without_loss_is_made_anew_with_a_warning(
    start: Start, cell: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Under the running query and while it is down. It stands where reading goes on."""
    query = begun(start, cell, topic, 5, 20)
    cell.unsubscribe(topic, NAME)
    with caplog.at_level(logging.WARNING):
        assert query.drain() == list(range(5, 20))
        cell.unsubscribe(topic, NAME)
        assert query.drain() == []
        cell.send_one_by_one(topic, numbers(20, 30))
        assert query.drain() == list(range(20, 30))
    assert caplog.text.count("was deleted; it is made anew") == 2
    assert cell.backlog(topic, NAME) == 0


def test_what_was_skipped_and_deleted_is_told(
    start: Start, cell: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The subscription is still there; nothing comes behind the gap yet, and then something does."""
    query = begun(start, cell, topic, 6, 10)
    cell.skip_all(topic, NAME)
    cell.unload(topic)
    cell.send_one_by_one(topic, numbers(10, 13))
    cell.drop_acknowledged(topic)
    assert_told_again_and_again(query, "4 messages lost" if cell.tells_indexes else "at least 4 entries lost")
    goes_on_with(query, [10, 11, 12], "4 messages lost" if cell.tells_indexes else "at least 4 entries lost", caplog)


def test_what_came_and_was_skipped_while_it_was_down(start: Start, cell: Broker, topic: str) -> None:
    """It has never seen these messages. Apache Pulsar deletes them when the topic is loaded again."""
    query = begun(start, cell, topic, 6, 6)
    cell.send_one_by_one(topic, numbers(6, 10))
    cell.skip_all(topic, NAME)
    cell.unload(topic)
    if cell.kind == "pulsarish":  # nothing is deleted there before something comes behind it
        assert query.drain() == [6, 7, 8, 9]
    else:
        assert_told_again_and_again(query, "up to .* deleted: at least 4 entries lost")


def test_rows_of_a_begun_batch_that_went_are_told(
    start: Start, cell: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The batch is replayed. They were the first of the topic; the next message behind them does not stand for them."""
    cell.create(topic, 0)
    query = start(topic=topic, subscriptionName=NAME)
    query.drain()
    cell.send_one_by_one(topic, numbers(0, 3))
    assert query.attempt() == [0, 1, 2]
    query.restart()
    cell.skip_all(topic, NAME)
    cell.unload(topic)
    cell.send_one_by_one(topic, numbers(3, 5))
    cell.drop_acknowledged(topic)
    words = "should go on" if cell.kind == "pulsarish" else "nothing between"
    assert_told_again_and_again(query, words)
    goes_on_with(query, [3, 4], words, caplog)


def test_what_was_skipped_and_is_still_there_is_read(
    start: Start, cell: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The checkpoint is the truth. That the subscription keeps nothing of it any more is said."""
    query = begun(start, cell, topic, 6, 10)
    cell.skip_all(topic, NAME)
    with caplog.at_level(logging.WARNING):
        assert query.drain() == [6, 7, 8, 9]
    assert "stands after" in caplog.text


def test_a_reset_backwards_loses_and_repeats_nothing(start: Start, cell: Broker, topic: str) -> None:
    """While the query runs, which is disconnected by it, and while it is down."""
    query = begun(start, cell, topic, 10, 10)
    first = cell.ledgers(topic)[0]
    cell.reset(topic, NAME, Position(first, 2))
    cell.send_one_by_one(topic, numbers(10, 12))
    assert query.drain() == [10, 11]
    cell.reset(topic, NAME, Position(first, 2))
    cell.send_one_by_one(topic, numbers(12, 15))
    assert query.drain() == [12, 13, 14]


def test_a_reset_under_an_idle_query_is_undone(start: Start, cell: Broker, topic: str) -> None:
    """As what Apache Pulsar forgets of acknowledgements that it has confirmed: else nothing is ever deleted."""
    query = begun(start, cell, topic, 10, 10)
    assert query.trigger() is None
    cell.rewind(topic, NAME)

    def is_acknowledged() -> bool:
        assert query.trigger() is None
        return cell.backlog(topic, NAME) == 0

    eventually(is_acknowledged, "the query has acknowledged what it has read")


@pytest.mark.parametrize("partitions", [0, 2])
def test_nothing_is_new_in_an_unloaded_topic(start: Start, cell: Broker, topic: str, partitions: int) -> None:
    """Apache Pulsar deletes what was acknowledged, and shows no last message then. Running and restarted, twice."""
    cell.create(topic, partitions)
    cell.send(topic, numbers(0, 10))
    query = start(topic=topic)
    assert query.drain() == list(range(10))
    for turn in range(2):
        cell.unload(topic)
        assert query.drain() == []
        query.restart()
        assert query.drain() == []
        cell.unload(topic)
        query.restart()
        assert query.drain() == []
        cell.send(topic, numbers(10 * turn + 10, 10 * turn + 20))
        assert query.drain() == list(range(10 * turn + 10, 10 * turn + 20))


def test_a_batch_read_from_an_id_that_was_deleted_is_told(cell: Broker, start: Start, topic: str) -> None:
    """Where Apache Pulsar shows no message any more, the id lay "behind the end -1:0"."""
    cell.send_one_by_one(topic, numbers(0, 10))
    assert start(topic=topic).drain() == list(range(10))
    ledger = cell.ledgers(topic)[0]
    cell.unload(topic)
    raw = {"service.url": cell.service_url, "topic": topic, "startingOffsets": f'{{"{topic}":{{"0":"{ledger}:3"}}}}'}
    options = read_options(raw, Side.BATCH_READ, {})
    with Client(cell.service_url) as client:
        if cell.kind == "pulsarish":  # It deletes when something comes behind.
            cell.send(topic, numbers(10, 11))
            cell.drop_acknowledged(topic)
        eventually(lambda: ledger not in cell.ledgers(topic), f"ledger {ledger} of {topic} is gone")
        with pytest.raises(DataLossError, match=rf"is {ledger}:3, but the first message still there is "):
            plan_batch(client, options)
