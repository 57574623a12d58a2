# SPDX-License-Identifier: Apache-2.0
"""Topics with transactions by the official Java client: what the broker gives to nobody is no loss, and nothing waits
for it. No session.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

import pulsarish_spark
from broker_core.base.names import TopicName
from broker_core.base.positions import MessageId, Position
from broker_core.client import Client
from broker_core.testing.running_broker import RunningBroker
from pulsarish_spark.losses.loss import DataLossError
from pulsarish_spark.places.offsets import SourceOffset
from pulsarish_spark.replaying.exporting import export_batch
from tests.behaviour.conftest import java_driver  # noqa: F401 - a fixture
from tests.spark.batches import read_values
from tests.spark.brokers import Broker, Kind, eventually
from tests.spark.conftest import Start, restarted
from tests.spark.engine import Engine
from tests.spark.test_export import checkpoint_of
from tests.spark.transactions import (
    Writing,
    aborted,
    all_kinds,
    committed,
    java_writer,
)

NAME: Final = "reading"


_PULSARS: Final[Mapping[Kind, str]] = {
    "apache": "apache_pulsar_transactions",
    "apache-indexed": "apache_pulsar_indexed_transactions",
}
_KINDS: Final = [pytest.param(f"{kind}-transactions", id=kind, marks=pytest.mark.pulsar) for kind in _PULSARS]
ON_APACHE: Final = pytest.mark.parametrize("cell", _KINDS, indirect=True)


@pytest.fixture(scope="module", params=["pulsarish", *_KINDS])
def cell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The three kinds of brokers; those that can have transactions."""
    for kind, fixture in _PULSARS.items():
        if request.param == f"{kind}-transactions":
            pulsar = request.getfixturevalue(fixture)
            yield Broker(pulsar.service_url, pulsar.http_url, kind)
            return
    with RunningBroker(tmp_path_factory.mktemp("cell") / "data") as running:
        yield Broker(running.service_url, running.http_url)


@pytest.fixture
def writing(request: pytest.FixtureRequest, cell: Broker) -> Writing:
    """``with writing(topic) as writer``: a writer with transactions."""
    driver = request.getfixturevalue("java_driver")
    return lambda topic: java_writer(driver, cell, topic)


@contextmanager
def nothing_told(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing is said of losses, or of a subscription that somebody has moved."""
    with caplog.at_level(logging.WARNING):
        yield
    assert "data loss" not in caplog.text
    assert "stands after" not in caplog.text


def rests_behind_all(query: Engine, cell: Broker, topic: str) -> bool:
    """Whether an idle query has noted that the broker has passed over all that there is behind its place."""
    assert query.drain() == []
    with cell.control() as api:
        last = MessageId.parse(api.internal_stats(TopicName.parse(topic), 0)["lastConfirmedEntry"]).position
    assert query.end is not None
    (place,) = SourceOffset.from_json(query.end).offsets.values()
    return place.position == Position(last.ledger, last.entry + 1)


# -- what is read


@pytest.mark.parametrize(
    "options", [{}, {"maxRecordsPerPartition": 3}, {"minPartitions": 4}], ids=["whole", "by rows", "by tasks"]
)
def test_a_batch_read_has_what_was_committed(
    cell: Broker, writing: Writing, topic: str, options: dict[str, int]
) -> None:
    """Holes at both ends of the topic, between messages, and at the cuts between tasks."""
    with writing(topic) as writer:
        wanted = all_kinds(writer)
        assert read_values(cell, topic, **options) == wanted
        cell.unload(topic)
        writer.send(10)
        aborted(writer, -6)
    assert read_values(cell, topic, **options) == [*wanted, 10]
    arrow = pulsarish_spark.read_arrow(topic, **{"service.url": cell.service_url, **options})
    assert sorted(int(value) for value in arrow.read_all()["value"].to_pylist()) == [*wanted, 10]


@pytest.mark.parametrize("options", [{}, {"maxOffsetsPerTrigger": 2}, {"maxBytesPerTrigger": 60}], ids=str)
@pytest.mark.parametrize("bounded", [False, True], ids=["on and on", "AvailableNow"])
def test_a_stream_has_what_was_committed(
    start: Start,
    cell: Broker,
    writing: Writing,
    topic: str,
    options: dict[str, int],
    bounded: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In batches of any size, over restarts and a change of ledgers, with nothing said of its subscription."""
    with writing(topic) as writer, nothing_told(caplog):
        wanted = all_kinds(writer)
        query = start(topic=topic, **options)
        if bounded:
            query.bound_to_now()
        assert query.drain() == wanted
        restarted(query) if bounded else query.restart()
        assert query.drain() == []
        cell.unload(topic)
        aborted(writer, -6)
        committed(writer, 10, 11)
        restarted(query) if bounded else query.restart()
        assert query.drain() == [10, 11]


def test_a_query_in_queue_mode_has_what_was_committed(
    share: Start, cell: Broker, writing: Writing, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The entries of its batches have gaps, and end before a marker."""
    with writing(topic) as writer, nothing_told(caplog):
        wanted = all_kinds(writer)
        query = share(topic=topic)
        assert query.drain() == wanted
        aborted(writer, -6)
        committed(writer, 10)
        assert restarted(query).drain() == [10]


def test_ids_of_holes_are_places_to_begin_and_to_end(cell: Broker, writing: Writing, topic: str) -> None:
    """Every entry of the topic, and the place behind the last one, as a start and as an end."""
    with writing(topic) as writer:
        wanted = all_kinds(writer)
    (ledger,) = cell.ledgers(topic)
    with Client(cell.service_url) as client:
        last = client.last_entry(topic).position.entry

    def read(**options: str) -> list[int]:
        return read_values(
            cell, topic, **{name: f'{{"{topic}":{{"0":"{ledger}:{at}"}}}}' for name, at in options.items()}
        )

    for entry in range(last + 2):
        before, behind = read(endingOffsets=str(entry)), read(startingOffsets=str(entry))
        assert sorted([*before, *behind]) == wanted


def test_a_batch_with_holes_is_exported(
    start: Start, cell: Broker, writing: Writing, topic: str, tmp_path: Path
) -> None:
    """What the query has read."""
    with writing(topic) as writer:
        wanted = all_kinds(writer)
    query = start(topic=topic)
    assert query.drain() == wanted
    options: dict[str, Any] = {"service.url": cell.service_url}
    exported = export_batch(checkpoint_of(tmp_path, [query.end]), tmp_path / "batch.parquet", batch=0, **options)
    assert exported.rows == len(wanted)


def test_a_topic_of_nothing_but_holes_is_empty(
    start: Start, cell: Broker, writing: Writing, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A stream that begins with it reads what comes behind them."""
    with writing(topic) as writer, nothing_told(caplog):
        aborted(writer, -1, -2)
        assert read_values(cell, topic) == []
        early, late = start(topic=topic), start(topic=topic, startingOffsets="latest")
        assert early.drain() == late.drain() == []
        committed(writer, 0)
        assert early.drain() == late.drain() == [0]


# -- open transactions


@ON_APACHE
@pytest.mark.parametrize("sent_before", [0, 2])
def test_an_open_transaction_is_not_passed_over(
    start: Start, cell: Broker, writing: Writing, topic: str, sent_before: int, caplog: pytest.LogCaptureFixture
) -> None:
    """What it has sent, and what came behind it, is read when it has ended; by a query that ran meanwhile, by one that
    did not, and by those that began while it was open, the one at the latest message among them."""
    with writing(topic) as writer, nothing_told(caplog):
        before = list(range(sent_before))
        writer.send(*before)
        running, stopped = (start(topic=topic) for _ in range(2))
        assert running.drain() == stopped.drain() == before
        first, second = writer.begin(), writer.begin()
        writer.send(10, within=first)
        writer.send(-1, within=second)
        writer.send(11)
        later, latest = start(topic=topic), start(topic=topic, startingOffsets="latest")
        assert running.drain() == latest.drain() == []
        assert later.drain() == before
        assert read_values(cell, topic) == before
        writer.abort(second)
        assert running.drain() == later.drain() == latest.drain() == []
        writer.commit(first)
        # A commit is confirmed before the broker of the topic lets readers see it.
        eventually(lambda: read_values(cell, topic) == [*before, 10, 11], "the commit shows")
        stopped.restart()
        for query in (running, stopped, later, latest):
            assert query.drain() == [10, 11]


@ON_APACHE
def test_an_open_transaction_that_somebody_has_skipped_is_read_all_the_same(
    start: Start, cell: Broker, writing: Writing, topic: str
) -> None:
    """The subscription stands behind what is to come, as if it were holes; the checkpoint does not."""
    with writing(topic) as writer:
        writer.send(0)
        query = start(topic=topic, subscriptionName=NAME)
        assert query.drain() == [0]
        transaction = writer.begin()
        writer.send(1, 2, within=transaction)
        cell.skip_all(topic, NAME)
        assert query.drain() == []
        query.restart()
        assert query.drain() == []
        writer.commit(transaction)
        eventually(lambda: read_values(cell, topic)[-2:] == [1, 2], "the commit shows")
        assert query.drain() == [1, 2]


# -- ledgers that go


@ON_APACHE
@pytest.mark.parametrize("restarts", [False, True], ids=["running", "restarted"])
def test_holes_that_are_deleted_behind_a_query_are_no_loss(
    start: Start,
    cell: Broker,
    writing: Writing,
    topic: str,
    restarts: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The broker acknowledges them for the query's subscription, and deletes the ledger that they end. An idle query
    notes that: with indexes, and where nothing comes, they would look like messages that somebody has skipped."""
    with writing(topic) as writer, nothing_told(caplog):
        wanted = all_kinds(writer)
        query = start(topic=topic, subscriptionName=NAME)
        assert query.drain() == wanted
        eventually(lambda: rests_behind_all(query, cell, topic), "the query has passed over the last marker")
        cell.unload(topic)
        if restarts:
            query.restart()
        assert query.drain() == []
        aborted(writer, -6)
        assert query.drain() == []
        committed(writer, 10)
        eventually(lambda: read_values(cell, topic)[-1:] == [10], "the commit shows")
        assert query.drain() == [10]


@ON_APACHE
def test_what_was_skipped_of_transactions_and_deleted_is_told(
    start: Start, cell: Broker, writing: Writing, topic: str
) -> None:
    """That topics have holes hides no loss."""
    with writing(topic) as writer:
        committed(writer, 0, 1)
        query = start(topic=topic, subscriptionName=NAME)
        assert query.drain() == [0, 1]
        eventually(lambda: rests_behind_all(query, cell, topic), "the query has passed over the last marker")
        query.restart()
        committed(writer, 2, 3)
        cell.skip_all(topic, NAME)
        cell.unload(topic)
        for _ in range(2):
            with pytest.raises(DataLossError, match=r"messages up to .* deleted: at least 3 entries lost"):
                query.trigger()
            query.restart()
