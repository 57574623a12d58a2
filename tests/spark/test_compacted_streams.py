# SPDX-License-Identifier: Apache-2.0
"""Streams of compacted topics: first the compacted view, then every message, whatever compaction and trimming do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from broker_core.base.errors import ConfigError
from pulsarish_spark import read_arrow
from pulsarish_spark.losses.loss import DataLossError
from pulsarish_spark.options import Side
from tests.spark.brokers import Broker, eventually
from tests.spark.engine import Engine
from tests.spark.test_compacted_reads import FIRST, Messages, compact, send
from tests.spark.test_options import reading


class Query(Engine):
    """A query whose batches are texts of keys and values; a deletion has no value."""

    def rows(self, *, fails: bool = False) -> list[str] | None:
        """One batch; None if nothing is new. ``fails``: it is not committed, and the next call replays it."""
        tasks = self.plan()
        if tasks is None:
            return None
        found = [
            f"{row['key'].decode() if row['key'] else '-'}={(row['value'] or b'').decode()}"
            for task in tasks
            for batch in self._reader.read(task)
            for row in batch.to_pylist()
        ]
        if not fails:
            self.end, self._begun = self._begun, None
        return found

    def all_rows(self) -> list[str]:
        """Batches until nothing is new."""
        found: list[str] = []
        while (some := self.rows()) is not None:
            found += some
        return found


Begin = Callable[..., Query]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """``begin(broker, topic, option=...)``: a compacted stream, stopped at the end."""
    queries: list[Query] = []

    def make(broker: Broker, topic: str, *, has_admin: bool = True, **options: str | int) -> Query:
        given: dict[str, str | int] = {"readCompacted": "true", "columns": "key,value", "topic": topic, **options}
        queries.append(Query(broker.service_url, **given, **({"admin.url": broker.http_url} if has_admin else {})))
        return queries[-1]

    yield make
    for query in queries:
        query.stop()


@pytest.mark.parametrize("batching", [False, True])
@pytest.mark.parametrize("has_admin", [True, False])
def test_a_stream_reads_the_view_and_then_every_message(
    cell: Broker, topic: str, begin: Begin, batching: bool, has_admin: bool
) -> None:
    """7.4.14: on each broker, whether or not it tells how far the topic is compacted; a restart changes nothing."""
    send(cell, topic, [*FIRST], batching=batching)
    compact(cell, topic)
    query = begin(cell, topic, has_admin=has_admin)
    assert query.rows(fails=True) == ["a=2", "c=1"]
    query.restart()
    assert query.rows() == ["a=2", "c=1"]
    assert query.rows() is None
    send(cell, topic, [("d", "1"), ("a", None), ("d", "2")], batching=batching)
    compact(cell, topic)
    assert query.all_rows() == ["d=1", "a=", "d=2"]
    query.restart()
    assert query.rows() is None
    assert begin(cell, topic).all_rows() == ["c=1", "d=2"]


def test_compaction_between_batches_hides_no_deletion(cell: Broker, topic: str, begin: Begin) -> None:
    """7.4.14: the view has fewer rows by then, and each that it lacks has a later message behind its end."""
    send(cell, topic, [("a", "1"), ("b", "1"), ("c", "1"), ("c", "2"), ("d", "1")])
    compact(cell, topic)
    send(cell, topic, [("e", "1"), (None, "x")])
    query = begin(cell, topic, maxOffsetsPerTrigger=2)
    assert query.rows() == ["a=1", "b=1"]
    send(cell, topic, [("a", None), ("d", "3")])
    compact(cell, topic)
    assert query.rows(fails=True) == ["c=2"]
    query.restart()
    assert query.rows() == ["c=2"]
    assert query.all_rows() == ["e=1", "-=x", "a=", "d=3"]


def test_available_now_reads_view_and_log(cell: Broker, topic: str, begin: Begin) -> None:
    """7.4.14: up to what was there when it began."""
    send(cell, topic, [*FIRST])
    compact(cell, topic)
    send(cell, topic, [("d", "1")])
    query = begin(cell, topic)
    query.bound_to_now()
    assert query.rows() == ["a=2", "c=1", "d=1"]
    send(cell, topic, [("e", "1")])
    assert query.rows() is None
    query.restart()
    assert query.rows() == ["e=1"]


def ids_of(broker: Broker, topic: str) -> list[str]:
    """The ids of all messages that the log has."""
    found: list[dict[str, Any]] = (
        read_arrow(topic, columns="message_id", **{"service.url": broker.service_url}).read_all().to_pylist()
    )
    return [row["message_id"] for row in found]


def test_a_stream_of_a_view_begins_and_ends_where_it_is_told(cell: Broker, topic: str, begin: Begin) -> None:
    """7.4.14: at a message that was left out comes the next one; an end may lie in the view."""
    send(cell, topic, [*FIRST])
    ids = ids_of(cell, topic)
    compact(cell, topic)
    send(cell, topic, [("d", "1")])

    def place(number: int) -> str:
        return json.dumps({topic: {"0": ids[number]}})

    assert begin(cell, topic, startingOffsets=place(1)).all_rows() == ["a=2", "c=1", "d=1"]
    assert begin(cell, topic, startingOffsets=place(3)).all_rows() == ["c=1", "d=1"]
    assert begin(cell, topic, endingOffsets=place(3)).all_rows() == ["a=2"]
    assert begin(cell, topic, startingOffsets="latest").all_rows() == []


def test_several_partitions_have_borders_of_their_own(cell: Broker, topic: str, begin: Begin) -> None:
    """7.4.14: one is compacted, one is not, and one has nothing; another comes later."""
    cell.create(topic, 3)
    for number in (0, 1):
        send(cell, f"{topic}-partition-{number}", [*FIRST])
    compact(cell, f"{topic}-partition-0")
    query = begin(cell, topic, partitionDiscoveryIntervalMs=1)
    assert sorted(query.all_rows()) == sorted(["a=2", "c=1", "a=1", "b=1", "a=2", "c=1", "b="])
    send(cell, f"{topic}-partition-2", [("d", "1")])
    cell.grow(topic, 4)
    send(cell, f"{topic}-partition-3", [*FIRST])
    compact(cell, f"{topic}-partition-3")
    query.restart()
    assert sorted(query.all_rows()) == ["a=2", "c=1", "d=1"]


def test_spark_runs_it(cell: Broker, spark: SparkSession, topic: str, tmp_path: Path) -> None:
    """7.4.14: tasks go to workers, and a query goes on from its checkpoint."""
    send(cell, topic, [*FIRST])
    compact(cell, topic)

    def run() -> list[tuple[bytes, bytes | None]]:
        options = {"service.url": cell.service_url, "readCompacted": "true", "startingOffsets": "earliest"}
        rows = spark.readStream.format("pulsarish").options(**options).load(topic).select("key", "value")
        query = (
            rows.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "rows"))
        )
        query.awaitTermination(120)
        found = spark.read.parquet(str(tmp_path / "rows")).collect()
        return sorted((bytes(row.key), row.value and bytes(row.value)) for row in found)

    assert run() == [(b"a", b"2"), (b"c", b"1")]
    send(cell, topic, [("d", "1")])
    compact(cell, topic)
    assert run() == [(b"a", b"2"), (b"c", b"1"), (b"d", b"1")]


def test_the_view_is_read_where_the_log_has_lost_it_on_each_broker(cell: Broker, topic: str, begin: Begin) -> None:
    """7.4.14: acknowledgements of what the log has not got are none that a broker refuses."""
    cell.create(topic, 0)
    cell.subscribe(topic, "done")
    send(cell, topic, [*FIRST])
    compact(cell, topic)
    cell.skip_all(topic, "done")
    cell.unload(topic)
    send(cell, topic, [("d", "1")])
    cell.drop_acknowledged(topic)
    query = begin(cell, topic, maxOffsetsPerTrigger=1)
    assert query.all_rows() == ["a=2", "c=1", "d=1"]
    send(cell, topic, [("a", None)])
    compact(cell, topic)
    query.restart()
    assert query.all_rows() == ["a="]


def numbered(count: int, first: int = 0) -> Messages:
    return [(f"k{number % 7}", str(number)) for number in range(first, first + count)]


def are_gone(broker: Broker, topic: str) -> None:
    broker.trim(topic)
    eventually(lambda: len(broker.ledgers(topic)) < 3, "the ledgers of what is compacted are deleted")


@pytest.mark.parametrize("limit", [None, 2])
def test_a_view_whose_ledgers_are_deleted_is_read(
    trimming: Broker, topic: str, begin: Begin, limit: int | None
) -> None:
    """7.4.14: with nothing behind it, too, and in small batches; there is no loss."""
    send(trimming, topic, numbered(100))
    compact(trimming, topic)
    are_gone(trimming, topic)
    query = begin(trimming, topic, **({} if limit is None else {"maxOffsetsPerTrigger": limit}))
    assert query.all_rows() == [f"k{number % 7}={number}" for number in range(93, 100)]
    send(trimming, topic, numbered(30, 100))
    compact(trimming, topic)
    are_gone(trimming, topic)
    assert query.all_rows() == [f"k{number % 7}={number}" for number in range(100, 130)]


def newest(rows: list[str]) -> dict[str, str]:
    """The last value of each key."""
    return dict(row.split("=") for row in rows)


def test_what_a_newer_view_stands_for_is_no_loss(trimming: Broker, topic: str, begin: Begin) -> None:
    """7.4.14: the subscription was deleted while the query was down; what is kept of the messages comes, then all."""
    send(trimming, topic, numbered(20))
    query = begin(trimming, topic)
    assert len(query.all_rows()) == 20
    query.stop()
    (name,) = [each for each in trimming.subscriptions(topic) if each != "__compaction"]
    trimming.unsubscribe(topic, name)
    send(trimming, topic, [*numbered(60, 20), ("k1", None)])
    compact(trimming, topic)
    are_gone(trimming, topic)
    send(trimming, topic, [("new", "1"), ("new", "2")])
    query.restart()
    rows = query.rows(fails=True)
    assert rows is not None
    assert "k0=21" not in rows, "its ledger is deleted"
    assert rows[-2:] == ["new=1", "new=2"]
    kept = {f"k{number % 7}": str(number) for number in range(73, 80) if number % 7 != 1}
    assert {key: value for key, value in newest(rows).items() if value} == kept | {"new": "2"}
    query.restart()
    assert query.rows() == rows


def test_what_no_view_stands_for_is_lost(trimming: Broker, topic: str, begin: Begin) -> None:
    """7.4.14: without compaction the same is a loss."""
    send(trimming, topic, numbered(20))
    query = begin(trimming, topic)
    assert len(query.all_rows()) == 20
    query.stop()
    for name in trimming.subscriptions(topic):
        trimming.unsubscribe(topic, name)
    send(trimming, topic, numbered(60, 20))
    are_gone(trimming, topic)
    query.restart()
    with pytest.raises(DataLossError):
        query.rows()


def test_a_query_that_shares_its_subscription_is_refused() -> None:
    """7.4.7: brokers give the view to one consumer."""
    with pytest.raises(ConfigError, match="does not work with subscriptionType"):
        reading(Side.STREAM_READ, topic="t", readCompacted="true", subscriptionType="Shared", subscriptionName="s")
