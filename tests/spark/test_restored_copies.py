# SPDX-License-Identifier: Apache-2.0
"""A broker whose data directory is put back to an older copy: rows that were read are not there, others come.

Owns: that a query with a checkpoint tells it, by positions and in queue mode, on our broker and on a real Apache
Pulsar. Each test starts a broker of its own. No session.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker_core.base.positions import Position
from broker_core.client import Client
from broker_core.testing.running_broker import RunningBroker
from pulsarish_spark.losses.loss import DataLossError
from tests.spark.brokers import Broker, eventually, numbers
from tests.spark.engine import Engine

MODES = {
    "positions": {"subscriptionName": "reading"},
    "queue": {"subscriptionName": "work", "subscriptionType": "Shared", "availableNowQuietMs": "700"},
    "claim": {
        "subscriptionName": "work",
        "subscriptionType": "Shared",
        "availableNowQuietMs": "700",
        "queueGuarantee": "claim",
    },
}


class Restorable:
    """A broker of ours, and a copy of its data directory."""

    def __init__(self, running: RunningBroker) -> None:
        self.running = running
        self.cell = Broker(running.service_url, running.http_url)
        self._copy = running.data_dir.with_name("copy")

    def copy(self) -> None:
        """Stop the broker, copy its data, and start it again."""
        self.running.stop()
        shutil.copytree(self.running.data_dir, self._copy)
        self.running.start()

    def restore(self) -> None:
        """Put the copy in the place of the data."""
        self.running.stop()
        shutil.rmtree(self.running.data_dir)
        shutil.copytree(self._copy, self.running.data_dir)
        self.running.start()


@pytest.fixture
def restorable(tmp_path: Path) -> Iterator[Restorable]:
    with RunningBroker(tmp_path / "data") as running:
        yield Restorable(running)


@pytest.fixture
def begin(restorable: Restorable) -> Iterator[Callable[..., Engine]]:
    started: list[Engine] = []

    def make(**options: str | int) -> Engine:
        started.append(Engine(restorable.cell.service_url, **options))
        started[-1].bound_to_now()
        return started[-1]

    yield make
    for engine in started:
        engine.stop()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("anew", [60, 100, 200])
def test_a_checkpoint_of_the_lost_world_is_told_with_both_places(
    restorable: Restorable, begin: Callable[..., Engine], mode: str, anew: int, caplog: pytest.LogCaptureFixture
) -> None:
    """With fewer, as many and more rows than the copy lacks; without failOnDataLoss each new row is read."""
    cell = restorable.cell
    cell.send_one_by_one("t", numbers(0, 100))
    query = begin(topic="t", **MODES[mode])
    assert query.drain() == list(range(100))
    restorable.copy()
    cell.send_one_by_one("t", numbers(100, 200))
    query.restart()
    query.bound_to_now()
    assert query.drain() == list(range(100, 200))
    query.stop()
    read = cell.end("t")
    restorable.restore()
    cell.send_one_by_one("t", numbers(1000, 1000 + anew))
    end = cell.end("t")
    assert end.ledger > read.ledger
    for _ in range(2):
        query.restart()
        query.bound_to_now()
        with pytest.raises(DataLossError, match="restored from an older copy") as told:
            query.drain()
        last_read = Position(read.ledger, read.entry - 1)
        assert f"{read if mode == 'positions' else last_read}" in told.value.message
        assert f"ends at {end}@{100 + anew}" in told.value.message
    query.restart(failOnDataLoss="false")
    query.bound_to_now()
    with caplog.at_level(logging.WARNING):
        assert query.drain() == list(range(1000, 1000 + anew))
        query.restart()
        query.bound_to_now()
        assert query.drain() == []
    assert caplog.text.count("data loss") == 1
    assert cell.backlog("t", str(MODES[mode]["subscriptionName"])) == 0


@pytest.mark.parametrize("mode", MODES)
def test_a_query_that_runs_while_the_broker_is_restored_tells_it(
    restorable: Restorable, begin: Callable[..., Engine], mode: str
) -> None:
    """Its client comes back by itself, and acknowledges nothing under ids that other rows have now."""
    cell = restorable.cell
    cell.send_one_by_one("t", numbers(0, 100))
    query = begin(topic="t", **MODES[mode])
    assert query.drain() == list(range(100))
    restorable.copy()
    cell.send_one_by_one("t", numbers(100, 200))
    query.restart()
    seen: set[int] = set()

    def has(wanted: range) -> bool:
        seen.update(query.trigger() or [])
        return seen >= set(wanted)

    eventually(lambda: has(range(100, 200)), "all rows are read")
    query.trigger()  # And acknowledged.
    restorable.restore()
    cell.send_one_by_one("t", numbers(1000, 1200))
    with pytest.raises(DataLossError, match="restored from an older copy"):
        eventually(lambda: has(range(1000, 1200)), "the new rows are read")
    query.restart(failOnDataLoss="false")
    eventually(lambda: has(range(1000, 1200)), "the new rows are read")
    assert cell.backlog("t", str(MODES[mode]["subscriptionName"])) <= 200


def test_a_queue_that_others_have_read_on_is_told_too(restorable: Restorable, begin: Callable[..., Engine]) -> None:
    """The subscription stands behind the checkpoint then, as if the entries of it had been read and deleted."""
    cell = restorable.cell
    cell.send_one_by_one("t", numbers(0, 100))
    query = begin(topic="t", **MODES["queue"])
    assert query.drain() == list(range(100))
    restorable.copy()
    cell.send_one_by_one("t", numbers(100, 200))
    query.restart()
    query.bound_to_now()
    assert query.drain() == list(range(100, 200))
    query.stop()
    restorable.restore()
    cell.send_one_by_one("t", numbers(1000, 1200))
    with Client(cell.service_url) as client, client.subscribe("t", "work", type="shared") as other:
        for _ in range(200):
            other.acknowledge(other.receive(timeout_s=60))
    query.restart()
    query.bound_to_now()
    with pytest.raises(DataLossError, match="restored from an older copy"):
        query.drain()


@pytest.mark.parametrize("mode", MODES)
def test_a_broker_that_comes_back_after_its_rows_were_deleted_is_the_same(
    tmp_path: Path, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its subscriptions were acknowledged before anything was deleted, so nothing is told, stopped or killed."""
    with RunningBroker(tmp_path / "data") as running:
        cell = Broker(running.service_url, running.http_url)
        cell.send_one_by_one("t", numbers(0, 100))
        query = Engine(cell.service_url, topic="t", **MODES[mode])
        query.bound_to_now()
        assert query.drain() == list(range(100))
        for number, end in enumerate((running.stop, running.kill)):
            query.restart()  # Which acknowledges the last batch.
            query.bound_to_now()
            assert query.drain() == []
            cell.unload("t")  # Which closes its ledger.
            cell.drop_acknowledged_before("t", 1 << 53)
            end()
            running.start()
            cell.send_one_by_one("t", numbers(1000 * number, 1000 * number + 10))
            query.restart()
            query.bound_to_now()
            assert query.drain() == list(range(1000 * number, 1000 * number + 10))
        query.stop()
    assert "data loss" not in caplog.text


@pytest.mark.parametrize("options", [{}, {"subscriptionType": "Shared", "availableNowQuietMs": "700"}])
def test_another_entry_under_the_id_of_one_that_was_read_is_told(
    start: Callable[..., Engine],
    cell: Broker,
    topic: str,
    options: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """On every kind of broker: the publish time that the checkpoint has is not that of the entry."""
    cell.send_one_by_one(topic, numbers(0, 10))
    query = start(topic=topic, subscriptionName="reading", **options)
    query.bound_to_now()
    assert query.drain() == list(range(10))
    assert query.end is not None
    name = f"persistent://public/default/{topic}"
    query.end["published"][name]["0"] -= 1000
    cell.send_one_by_one(topic, numbers(10, 20))
    query.restart()
    query.bound_to_now()
    with pytest.raises(DataLossError, match=r"was published at .* restored from an older copy"):
        query.drain()
    query.restart(failOnDataLoss="false")
    query.bound_to_now()
    with caplog.at_level(logging.WARNING):
        assert set(query.drain()) >= set(range(10, 20))
        query.restart()
        query.bound_to_now()
        assert query.drain() == []
    assert caplog.text.count("data loss") == 1


@pytest.mark.parametrize("options", [{}, {"subscriptionType": "Shared", "availableNowQuietMs": "700"}])
def test_a_checkpoint_without_publish_times_is_read(
    start: Callable[..., Engine], cell: Broker, topic: str, options: dict[str, str]
) -> None:
    """As older versions have made them."""
    cell.send_one_by_one(topic, numbers(0, 10))
    query = start(topic=topic, subscriptionName="reading", **options)
    query.bound_to_now()
    assert query.drain() == list(range(10))
    assert query.end is not None
    del query.end["published"]
    cell.send_one_by_one(topic, numbers(10, 20))
    query.restart()
    query.bound_to_now()
    assert query.drain() == list(range(10, 20))
