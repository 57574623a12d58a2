# SPDX-License-Identifier: Apache-2.0
"""Lag out of Spark's progress reports."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any, Final, cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import QueryProgressEvent, QueryTerminatedEvent, StreamingQueryProgress

from broker_core.base.clock import SystemClock
from broker_core.base.errors import ConfigError, PulsarishError
from broker_core.base.names import TopicName
from broker_core.base.positions import Position
from broker_core.client import Bounds, Client
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.progress import Lag, LagFile, LagHistory, LagListener, LagLog, LagProbe, PartitionLag, lag, total
from pulsarish_spark.queue.queue_offset import PartitionBatch, QueueBacklog, QueueOffset
from pulsarish_spark.viewing.counting import EntryCounts, NamedRange
from tests.spark.brokers import Broker, numbers
from tests.spark.conftest import Load, Start
from tests.spark.queries import Collector, drain, eventually

T: Final = "persistent://public/default/t"
UNKNOWN: Final = PartitionLag(None, None)


def probe_of(service_url: str, **more: Any) -> LagProbe:
    """A probe that asks this broker."""
    return LagProbe(**{"service.url": service_url, **more})


class FarAhead(SystemClock):
    """A wall clock in the year 2096."""

    def now_ms(self) -> int:
        return 4_000_000_000_000


def progress(end: Any, latest: Any) -> dict[str, Any]:
    return {"name": "q", "sources": [{"endOffset": end, "latestOffset": latest}]}


def test_lag_is_counted_in_messages_and_entries() -> None:
    """By index where the broker tells, and by entries, which the source has counted where another ledger begins; where
    it has not, nothing is known."""
    end = {T: {"0": "5:3@100", "1": "5:3", "2": "5:3", "3": "5:3@7", "4": "5:3"}}
    latest = {
        T: {"0": "6:3@150", "1": "5:9", "2": "6:0", "3": "5:3@7", "4": "6:0"},
        "behind": {T: {"2": 4}},
    }
    expected = {
        TopicPartition(T, 0): PartitionLag(50, None),
        TopicPartition(T, 1): PartitionLag(None, 6),
        TopicPartition(T, 2): PartitionLag(None, 4),
        TopicPartition(T, 3): PartitionLag(0, 0, 0, 0.0),
        TopicPartition(T, 4): UNKNOWN,
    }
    assert lag(progress(end, latest)) == expected
    assert lag(json.dumps(progress(json.dumps(end), json.dumps(latest)))) == expected


def test_a_query_in_queue_mode_tells_the_backlog_of_its_subscription() -> None:
    """In entries, beside the batch that it has; what the broker did not tell is not known, and zero is zero."""
    end = {"queue": 1, "n": 3, "m": 7, "topics": {T: {"0": {"17": "0-6"}}}}
    latest = {"queue": 1, "behind": {T: {"0": 5, "1": None, "2": 0}}}
    expected = {
        TopicPartition(T, 0): PartitionLag(None, 5),
        TopicPartition(T, 1): PartitionLag(None, None),
        TopicPartition(T, 2): PartitionLag(0, 0, 0, 0.0),
    }
    assert lag(progress(json.dumps(end), json.dumps(latest))) == expected
    assert total(expected) == PartitionLag(None, None, None, None)
    assert lag(progress(end, None)) == lag(progress(end, end)) == {TopicPartition(T, 0): UNKNOWN}


def test_lag_needs_no_import_of_its_own() -> None:
    """``pulsarish_spark.progress.lag`` as the README has it."""
    program = "import pulsarish_spark; print(pulsarish_spark.progress.lag(None))"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout == "{}\n"


def test_a_query_without_a_report_yet_has_no_lag() -> None:
    """Spark's lastProgress is None until the first batch is done."""
    assert lag(None) == {}


def test_other_sources_are_left_out() -> None:
    """A join with another stream has that stream's offsets in the same report."""
    assert lag(progress({"logOffset": 3}, {"logOffset": 5})) == {}
    assert lag(progress("3", "5")) == lag(progress("offset 3", "offset 5")) == lag(progress(None, None)) == {}


@pytest.mark.parametrize(
    ("end", "latest"),
    [
        ({T: {"0": "5:3@7"}}, None),
        ({T: {"0": "5:3@7"}}, {}),
        ({}, {T: {"0": "5:3@7"}}),
        ({T: {"0": "5:3@7"}}, {T: {"0": "5:2@6"}}),
        ({T: {"0": "5:3@7"}}, {T: {"0": "5:3@3"}}),
        ({T: {"0": "5:3@7"}}, {T: {"0": "9:2@2"}}),
    ],
    ids=[
        "a batch that is replayed",
        "an end that could not be asked for",
        "a partition without a place",
        "an end before the place",
        "a topic made anew",
        "a topic made anew further on",
    ],
)
def test_what_two_offsets_do_not_tell_is_not_known(end: Any, latest: Any) -> None:
    """Neither of the partition, nor of all together with one that is known."""
    known = {"persistent://public/default/u": {"0": "5:3@7"}}
    first = lag(progress(end, latest))
    assert first == {TopicPartition(T, 0): UNKNOWN}
    both = {"sources": [*progress(end, latest)["sources"], *progress(known, known)["sources"]]}
    assert total(lag(both)) == total(first) == UNKNOWN
    assert probe_of("pulsar://nobody.invalid:1")(both) == lag(both)


def test_a_part_of_an_entry_is_behind() -> None:
    """A stream may end inside an entry; without indexes it is the last that is counted."""
    assert lag(progress({T: {"0": "5:3"}}, {T: {"0": "5:3:0:2"}})) == {TopicPartition(T, 0): PartitionLag(None, 1)}


def test_a_topic_that_is_read_twice_is_behind_as_the_slower_side() -> None:
    """Each side of a join with itself has a place of its own; unknown is no better than any number."""
    fast, slow, latest = ({T: {"0": f"5:{at}@{at}"}} for at in (9, 2, 10))
    for ends in ((fast, slow), (slow, fast)):
        sides = [{"endOffset": end, "latestOffset": latest} for end in ends]
        assert lag({"sources": sides}) == {TopicPartition(T, 0): PartitionLag(8, 8)}
        replayed = [sides[0], {"endOffset": ends[1], "latestOffset": None}]
        assert lag({"sources": replayed}) == {TopicPartition(T, 0): UNKNOWN}


def test_a_subscription_of_which_others_acknowledge_the_batch_is_not_known() -> None:
    """The broker counts fewer entries than the batch has, so what it counts beside them is not told by subtraction."""
    key = TopicPartition(T, 0)
    batch = QueueOffset(1, 7, {key: PartitionBatch({17: "0-6"})})
    assert QueueBacklog.beside(batch, {key: 9}).entries == {key: 2}
    assert QueueBacklog.beside(batch, {key: 7}).entries == {key: 0}
    assert QueueBacklog.beside(batch, {key: 6}).entries == {key: None}


def test_entries_of_a_ledger_that_is_gone_are_not_counted_as_none() -> None:
    """The end of the partition was deleted after it was asked for; what lies before it is not known then."""

    class Emptied:
        def bounds_at(self, name: str, position: Position) -> Bounds:
            return Bounds(Position(-1, -1), None)

    counts = EntryCounts(cast("Client", Emptied()))
    assert counts.known_entries(NamedRange(T, Position(5, 3), Position(6, 0))) is None
    assert counts.known_entries(NamedRange(T, Position(5, 3), Position(5, 9))) == 6


def test_the_whole_query_is_as_far_behind_as_its_partitions_together() -> None:
    """Sums and the longest time; what is not known of one partition is not known of the sum; zero is known, but not of
    no partition, as before the first batch."""
    keys = [TopicPartition(T, n) for n in range(3)]
    one, two = PartitionLag(5, 1, 100, 2.5), PartitionLag(7, 2, 50, 9.0)
    assert total(dict(zip(keys, (one, two), strict=False))) == PartitionLag(12, 3, 150, 9.0)
    assert total(dict(zip(keys, (one, PartitionLag(None, 4)), strict=False))) == PartitionLag(None, 5)
    assert total({}) == UNKNOWN
    assert not PartitionLag(0, 0).is_behind
    assert PartitionLag(None, None).is_behind


def test_the_broker_is_asked_for_the_age_and_the_size_of_what_is_unread(start: Start, cell: Broker, topic: str) -> None:
    """Of partitions that are behind; where all was read nothing is asked and both are zero."""
    cell.send_one_by_one(topic, numbers(0, 10))
    query = start(topic=topic, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    query.trigger()
    probe = probe_of(cell.service_url, clock=FarAhead())
    (behind,) = probe(query.progress()).values()
    assert behind.entries == 6
    assert behind.messages == (6 if cell.tells_indexes else None)
    assert behind.bytes is not None
    assert 6 * 20 < behind.bytes < 6 * 200
    assert behind.seconds is not None
    assert behind.seconds > 1_000_000_000
    query.drain()
    assert [*probe(query.progress()).values()] == [PartitionLag(0, 0, 0, 0.0)]


def test_a_topic_that_is_made_anew_is_asked_as_what_it_is_now(cell: Broker, topic: str) -> None:
    """Of one that is gone what the report says is known; the probe outlives both."""
    full = str(TopicName.parse(topic))
    report = progress({full: {"0": "0:0@0"}}, {full: {"0": "0:5@5"}})
    key, probe = TopicPartition(full, 0), probe_of(cell.service_url)
    assert probe(report) == {key: PartitionLag(5, 5)}
    cell.create(topic, 1)
    cell.send(f"{full}-partition-0", numbers(0, 5))
    assert probe(report)[key].seconds is not None


def test_a_probe_takes_only_options_that_say_which_broker() -> None:
    """What is of a reader has no meaning here."""
    with pytest.raises(ConfigError, match="option columns does not say which broker"):
        LagProbe(columns="key")


@pytest.mark.spark
def test_a_listener_tells_the_log_a_file_and_a_history(
    spark: SparkSession, stream: Load, broker: Broker, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After each micro-batch of a real query, which leaves the file when it ends."""
    broker.send_one_by_one(topic, numbers(0, 12))
    seen: list[tuple[str, PartitionLag | None]] = []
    file, history = tmp_path / "lag.json", LagHistory()

    def keep(query: str, found: Lag | None, /) -> None:
        behind = None if found is None else total(found)
        seen.append((query, behind))
        if found:
            assert json.loads(file.read_text())[query]["total"]["messages"] == (behind.messages if behind else None)

    probe = probe_of(broker.service_url)
    listener = LagListener(LagFile(file), LagLog(), history, keep, measure=probe)
    spark.streams.addListener(listener)
    try:
        with caplog.at_level("INFO", logger="pulsarish_spark.progress"):
            drain(stream(topic, maxOffsetsPerTrigger=4), tmp_path / "c", Collector())
            eventually(lambda: bool(seen) and seen[-1][1] is None, "the listener knows that the query has ended")
    finally:
        spark.streams.removeListener(listener)
    counts = [behind.messages for _, behind in seen if behind is not None]
    assert counts[:3] == [8, 4, 0]
    assert json.loads(file.read_text()) == {}
    assert "messages=8 entries=8 bytes=" in caplog.text
    (axes,) = history.plot().axes
    assert [*axes.get_lines()[0].get_ydata()][:3] == [8, 4, 0]


def test_a_query_that_began_before_its_listener_leaves_the_file_too(tmp_path: Path) -> None:
    """A listener hears of no start then; an ended query would stand there with its last lag for good."""
    query, run = uuid.uuid4(), uuid.uuid4()
    report: dict[str, Any] = {"id": str(query), "runId": str(run), "name": None, "timestamp": "", "batchId": 3}
    report |= {"batchDuration": 1, "stateOperators": [], "sources": [], "sink": {"description": "", "numOutputRows": 0}}
    file, history = tmp_path / "lag.json", LagHistory()
    listener = LagListener(LagFile(file), history, measure=lambda _: {TopicPartition(T, 0): PartitionLag(5, 1)})
    listener.onQueryProgress(QueryProgressEvent(StreamingQueryProgress.fromJson(report)))
    assert [*json.loads(file.read_text())] == [str(query)]
    listener.onQueryTerminated(QueryTerminatedEvent(query, run, None, None))
    assert json.loads(file.read_text()) == {}
    assert history.rows() == []


def test_a_table_shows_what_is_not_known_as_such() -> None:
    """And zero as zero."""
    history = LagHistory()
    history("a & b", {TopicPartition(T, 0): PartitionLag(0, None, 0, 0.0)})
    (row,) = history.rows()
    assert row["messages"] == 0
    assert row["entries"] is None
    assert f"<td>a &amp; b</td><td>{T}</td><td>0</td><td>0</td><td>?</td><td>0</td><td>0</td>" in history._repr_html_()
    history("a & b", None)
    assert history.rows() == []


def test_a_file_and_a_chart_show_what_is_not_known_as_such(tmp_path: Path) -> None:
    """Null, and a gap in the line of what is known more often; of nothing the legend says so."""
    pytest.importorskip("matplotlib")
    file, history = LagFile(tmp_path / "lag.json"), LagHistory()
    key = TopicPartition(T, 0)
    for messages in (5, None, 3):
        history("counted", {key: PartitionLag(messages, None)})
    for entries in (0, 2, None):
        history("in entries", {key: PartitionLag(entries or None, entries)})
    file("begins", {})
    history("begins", {})
    assert json.loads((tmp_path / "lag.json").read_text())["begins"]["total"] == UNKNOWN._asdict()
    (axes,) = history.plot().axes
    drawn = {line.get_label(): [None if math.isnan(y) else y for y in line.get_ydata()] for line in axes.get_lines()}
    assert drawn == {"counted": [5, None, 3], "in entries (entries)": [0, 2, None], "begins (not known)": [None]}


def test_a_report_that_cannot_write_takes_nothing_from_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a full disk; the log says so."""
    seen: list[str] = []
    listener = LagListener(LagFile(tmp_path / "missing" / "lag.json"), lambda query, _: seen.append(query))
    listener._tell("q", {})
    assert seen == ["q"]
    assert "lag was not reported query=q error=" in caplog.text


def test_a_broker_that_does_not_answer_takes_nothing_from_the_lag_of_the_report(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log says that it is not known whole; a bug of ours is not swallowed."""

    def fails(progress: Any) -> Lag:
        raise PulsarishError("nobody answers")

    listener = LagListener(measure=fails)
    text = json.dumps(progress({T: {"0": "5:3@100"}}, {T: {"0": "6:3@150"}}))
    assert listener._measured(text) == {TopicPartition(T, 0): PartitionLag(50, None)}
    assert "nobody answers" in caplog.text
