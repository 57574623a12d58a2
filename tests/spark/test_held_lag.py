# SPDX-License-Identifier: Apache-2.0
"""Lag of queries whose topics a transaction holds back, on the brokers that have transactions. No session."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryTerminatedEvent,
    StreamingQueryProgress,
)

from broker_core.base.clock import SystemClock
from broker_core.client import Client
from broker_core.client.held_readers import HeldBack
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire.transactions import shown
from pulsarish_spark import describe
from pulsarish_spark.describing import dry_run
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.progress import Lag, LagFile, LagHistory, LagListener, LagLog, LagProbe, PartitionLag, total
from pulsarish_spark.viewing import held_partitions
from tests.spark.brokers import Broker, eventually
from tests.spark.conftest import Start

T: Final = "persistent://public/default/t"
HOUR_S: Final = 3600
HELD: Final = HeldBack(f"{T}-partition-1", "(0,5)", 75.0)


@pytest.fixture(scope="module", params=["pulsarish", pytest.param("apache", marks=pytest.mark.pulsar)])
def cell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    if request.param == "apache":
        pulsar = request.getfixturevalue("apache_pulsar_transactions")
        yield Broker(pulsar.service_url, pulsar.http_url, "apache")
        return
    with RunningBroker(tmp_path_factory.mktemp("cell") / "data") as running:
        yield Broker(running.service_url, running.http_url)


class AnHourAhead(SystemClock):
    """A wall clock to which a transaction is old, and an answer of the broker too."""

    def now_ms(self) -> int:
        return super().now_ms() + HOUR_S * 1000


def test_a_transaction_is_named_that_holds_a_query_back(
    start: Start, cell: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """9.9.3: of two that are open the one that is waited for, on its partition alone; the query has read all else."""
    monkeypatch.setattr(held_partitions, "LOOK_S", -1)
    cell.create(topic, 2)
    names = [f"persistent://public/default/{topic}-partition-{number}" for number in range(2)]
    options: dict[str, Any] = {"service.url": cell.service_url, "admin.url": cell.http_url}
    probe, early = LagProbe(clock=AnHourAhead(), **options), LagProbe(**options)
    with Client(cell.service_url) as client:
        producer = client.create_producer(names[1])
        with (
            client.new_transaction(timeout_s=2 * HOUR_S) as first,
            client.new_transaction(timeout_s=2 * HOUR_S) as second,
        ):
            producer.send(b"1", txn=first)
            producer.send(b"2", txn=second)
            producer.send(b"3")
            client.create_producer(names[0]).send(b"0")
            query = start(topic=topic, **options)
            assert query.drain() == [0]
            lags = probe(query.progress())
            held = lags[TopicPartition(f"persistent://public/default/{topic}", 1)].held_by
            assert held is not None
            assert held[:2] == (names[1], shown(first.id))
            assert HOUR_S <= held.open_s < HOUR_S + 600
            assert [each.held_by for each in lags.values()] == [None, held]
            assert total(lags).held_by == held
            assert total(early(query.progress())).held_by is None
            assert (
                total(LagProbe(clock=AnHourAhead(), **{"service.url": cell.service_url})(query.progress())).held_by
                is None
            )
            first.commit()
            eventually(lambda: _holder(probe(query.progress())) == shown(second.id), "the second is waited for")
            second.abort()
        eventually(lambda: query.drain() == [1, 3], "the commit shows")
        assert total(probe(query.progress())).held_by is None


def _holder(lag: Lag) -> str | None:
    held = total(lag).held_by
    return None if held is None else held.transaction


def test_a_description_names_it_too(cell: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """9.9.3: who tries a read before running it sees why there is so little in it."""
    cell.create(topic, 0)
    options: dict[str, Any] = {"service.url": cell.service_url, "admin.url": cell.http_url}
    with Client(cell.service_url) as client, client.new_transaction(timeout_s=2 * HOUR_S) as txn:
        client.create_producer(topic).send(b"1", txn=txn)
        monkeypatch.setattr(dry_run, "SystemClock", AnHourAhead)
        for stream in (False, True):
            (note,) = [each for each in describe(topic, stream=stream, **options).notes if "wait for the end" in each]
            assert f"transaction {shown(txn.id)}, open for 3,6" in note
            assert note.endswith(f"pulsarish txn show {shown(txn.id).strip('()')}")
        txn.abort()


# -- reports


def test_each_report_names_the_transaction(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """9.9.3: the log by a warning with the command that tells more, the file by fields, the table by a sentence."""
    lag = {TopicPartition(T, 0): PartitionLag(0, 0, 0, 0.0), TopicPartition(T, 1): PartitionLag(0, 0, held_by=HELD)}
    with caplog.at_level(logging.INFO, logger="pulsarish_spark.progress"):
        LagLog()("q", lag)
    numbers, warning = (record.getMessage() for record in caplog.records)
    assert numbers.startswith("lag query=q messages=0 entries=0 bytes=unknown seconds=unknown expires_s=unknown part")
    assert warning == (
        f"transaction holds the query back query=q topic={HELD.topic} id=(0,5) open_s=75 hint='pulsarish txn show 0,5'"
    )
    LagFile(tmp_path / "lag.json")("q", lag)
    told = json.loads((tmp_path / "lag.json").read_text())["q"]
    fields = {"topic": HELD.topic, "transaction": "(0,5)", "open_s": 75.0, "command": "pulsarish txn show 0,5"}
    assert [each["held_by"] for each in (told["total"], *told["partitions"])] == [fields, None, fields]
    history = LagHistory()
    history("q", lag)
    assert f"<td></td></tr><tr><td>q</td><td>{T}</td><td>1</td>" in history._repr_html_()
    assert f"<td>{HELD}</td>" in history._repr_html_()


def test_the_transaction_that_is_open_for_longest_is_that_of_the_query() -> None:
    """As the age of the whole query is that of its oldest message."""
    older = HELD._replace(transaction="(1,1)", open_s=80.0)
    lags = {TopicPartition(T, n): PartitionLag(0, 0, held_by=held) for n, held in enumerate((HELD, older, None))}
    assert total(lags).held_by == older


def test_an_idle_query_is_told_when_a_transaction_begins_and_ceases_to_hold_it(tmp_path: Path) -> None:
    """A query that is held back has no batches to report: Spark says that it is idle, again and again."""
    query, run = uuid.uuid4(), uuid.uuid4()
    report: dict[str, Any] = {"id": str(query), "runId": str(run), "name": "q", "timestamp": "", "batchId": 3}
    report |= {"batchDuration": 1, "stateOperators": [], "sources": [], "sink": {"description": "", "numOutputRows": 0}}
    held: list[HeldBack | None] = [None]
    told: list[HeldBack | None] = []

    def measure(_: Any) -> Lag:
        return {TopicPartition(T, 1): PartitionLag(0, 0, held_by=held[-1])}

    listener = LagListener(lambda _, lag: told.append(total(lag).held_by if lag else None), measure=measure)
    idle = QueryIdleEvent(query, run, "")
    listener.onQueryIdle(idle)
    assert told == []
    listener.onQueryProgress(QueryProgressEvent(StreamingQueryProgress.fromJson(report)))
    listener.onQueryIdle(idle)
    assert told == [None]
    for held_by in (HELD, HELD._replace(open_s=85.0), None):
        held.append(held_by)
        listener.onQueryIdle(idle)
    assert told == [None, HELD, None]
    listener.onQueryTerminated(QueryTerminatedEvent(query, run, None, None))
    listener.onQueryIdle(idle)
    assert told == [None, HELD, None, None]
