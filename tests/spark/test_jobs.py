# SPDX-License-Identifier: Apache-2.0
"""Batch writes that are exactly once, with a name and without, ended at each point, where there are transactions."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pytest

from broker_core.base.errors import ConfigError, PulsarishError
from broker_core.client import Client
from pulsarish_spark.options import Side, WriteOptions, write_options
from pulsarish_spark.sink import exactly_once
from pulsarish_spark.sink.control_topic import ControlTopic
from pulsarish_spark.sink.decisions import JOB, Batch, Decision
from pulsarish_spark.sink.endings import ExpiredTransactionError, UnknownTransactionError, commit_all
from pulsarish_spark.sink.exactly_once import FencedError, Share
from pulsarish_spark.sink.jobs import Job
from pulsarish_spark.sink.writer import Within, send_within, write_rows
from tests.client.conftest import TRANSACTIONAL, Service, transactional

ROWS: Final = 100


@pytest.fixture(scope="module", params=TRANSACTIONAL)
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The brokers that have transactions."""
    with transactional(request.param, request, tmp_path_factory) as made:
        yield made


@pytest.fixture(autouse=True)
def no_other_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that fails need not wait for Spark to end its other tasks."""
    monkeypatch.setattr("pulsarish_spark.sink.jobs.ENDING_S", 0.0)


@pytest.fixture
def table(service: Service) -> Iterator[Table]:
    """A topic that no other test writes."""
    with Client(service.service_url, operation_timeout_s=30) as client:
        yield Table(client, service.service_url, f"job-{uuid.uuid4().hex[:10]}")


@dataclass
class Table:
    """A topic that jobs write, and what their drivers and tasks do."""

    client: Client
    service_url: str
    topic: str
    timeout_ms: int = 60_000

    def options(self, name: str = "") -> WriteOptions:
        given = {"service.url": self.service_url, "topic": self.topic, "transactionTimeoutMs": str(self.timeout_ms)}
        return write_options(
            given | ({"transactionalId": f"{self.topic}-{name}"} if name else {}), Side.BATCH_WRITE, {}
        )

    def begin(self, name: str = "") -> Job:
        once = self.options(name).once
        assert once is not None
        return Job.begun(self.client, once)

    def write(self, job: Job, tasks: int = 2) -> list[Share]:
        """The rows of a job, by so many tasks."""
        return [self.task(job, task, tasks) for task in range(tasks)]

    def task(self, job: Job, number: int, tasks: int) -> Share:
        rows = pa.record_batch({"value": [str(row) for row in range(number, ROWS, tasks)]})
        within = Within(self.timeout_ms / 1000, job.run, JOB)
        share = send_within(self.client, iter([rows]), self.options(), within, JOB).share
        assert share is not None
        return share

    def append_decision(self, job: Job, shares: Sequence[Share]) -> None:
        """Decide, and commit nothing."""
        assert job.run is not None
        decision = Decision(job.run.name, JOB, tuple(each.txn_id for each in shares), shares[0].lasting_until_ms)
        ControlTopic(self.client, job.run.control).append(decision)

    def rows(self) -> list[str]:
        """All rows of the topic; readers wait for no transaction."""
        with self.client.create_producer(self.topic) as producer:
            last = producer.send("end")
        with self.client.create_reader(self.topic) as reader:
            read = [reader.read_next(30)]
            while read[-1].message_id != last:
                read.append(reader.read_next(30))
        return sorted(value for value in ((each.value or b"").decode() for each in read) if value != "end")


ALL: Final = sorted(map(str, range(ROWS)))

NAMES: Final = pytest.mark.parametrize("name", ["", "load-1"], ids=["unnamed", "named"])


@NAMES
def test_a_job_is_there_when_it_is_committed(table: Table, name: str) -> None:
    """All of it; the transaction of an attempt that the driver was not told of is not, nor does it hold up readers."""
    job = table.begin(name)
    shares = table.write(job)
    table.task(job, 0, 2)
    job.commit(table.client, shares)
    if name:
        assert table.begin(name).is_done
    assert table.rows() == ALL


@NAMES
def test_a_job_that_fails_leaves_nothing(table: Table, name: str) -> None:
    """Its tasks were through, but for one, whose worker was killed amid its rows."""
    job = table.begin(name)
    done, _ = table.write(job)
    job.abort(table.client, [done])
    if name:
        table.begin(name)
    assert table.rows() == []


def test_jobs_without_names_do_not_touch_each_other(table: Table) -> None:
    """Side by side, in one namespace."""
    first, second = table.begin(), table.begin()
    shares = table.write(first)
    second.commit(table.client, table.write(second))
    first.commit(table.client, shares)
    assert table.rows() == sorted(ALL * 2)


@NAMES
def test_a_task_that_fails_leaves_nothing(table: Table, service: Service, name: str) -> None:
    """A refused row ends it: rows before it are sent, and no error tells that they are stored."""
    job = table.begin(name)
    good, bad = pa.record_batch({"value": ["x"] * 20}), pa.record_batch({"value": [bytes(6 * 1024 * 1024)]})
    within = Within(60, job.run, JOB)
    with pytest.raises(PulsarishError) as told:
        write_rows(iter([good, bad]), table.options(name), within)
    assert "stored" not in str(told.value)
    assert table.rows() == []


@NAMES
def test_a_job_that_took_too_long_fails_whole(table: Table, name: str) -> None:
    """The transaction of one task is over when the driver commits: nothing is visible, and the option is named."""
    job = table.begin(name)
    shares = table.write(job)
    table.client.end_transaction(shares[1].txn_id, commit=False)  # As its coordinator does when its time is over.
    expired = "1 of 2 transactions of this write were aborted by their time limit"
    with pytest.raises(ExpiredTransactionError, match=expired) as told:
        job.commit(table.client, shares)
    assert "no row of it is visible" in str(told.value)
    assert "transactionTimeoutMs" in str(told.value)
    job.abort(table.client, shares)
    assert table.rows() == []
    again = table.begin(name)
    again.commit(table.client, table.write(again))
    assert table.rows() == ALL


@NAMES
def test_rows_of_topics_that_keep_nothing_are_refused(table: Table, name: str) -> None:
    """By their column topic, before a row is sent; the option says how they can be written."""
    job = table.begin(name)
    rows = pa.record_batch(
        {"value": ["x", "y"], "topic": [table.topic, f"non-persistent://public/default/{table.topic}"]}
    )
    given = replace(table.options(name), topic="")
    with pytest.raises(ConfigError, match="keeps nothing, so no row is there exactly once") as refused:
        write_rows(iter([rows]), given, Within(60, job.run, JOB))
    assert "at-least-once" in refused.value.hint
    assert table.rows() == []


@NAMES
def test_a_task_that_took_too_long_names_the_option(table: Table, service: Service, name: str) -> None:
    """Its transaction was aborted while it wrote, so there is nothing for the driver to commit.

    An Apache Pulsar takes rows of an aborted transaction now and then. It is the driver that finds out then.
    """
    job = table.begin(name)
    table.timeout_ms = 200

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": ["x"]})
        with table.client.create_producer(table.topic) as producer, table.client.create_reader(table.topic) as reader:
            last = producer.send("behind")
            while reader.read_next(30).message_id != last:  # It is read when the transaction is over.
                pass
        yield pa.record_batch({"value": ["y"]})

    def save() -> None:
        share = write_rows(rows(), table.options(name), Within(0.2, job.run, JOB)).share
        job.commit(table.client, [] if share is None else [share])

    told_to_task = r"of a task of this write was over after 0\.2 s"
    told_to_driver = "1 of 1 transactions of this write were aborted by their time limit"
    expected = told_to_task if service.kind == "pulsarish" else f"{told_to_task}|{told_to_driver}"
    with pytest.raises(ExpiredTransactionError, match=expected) as told:
        save()
    assert "transactionTimeoutMs" in told.value.hint
    assert table.rows() == ["behind"]


def test_a_commit_that_fails_in_part_tells_what_is_visible(table: Table) -> None:
    """A job without a name: one transaction was ended between the question whether it is open and its commit."""
    shares = table.write(table.begin(), 3)
    table.client.end_transaction(shares[1].txn_id, commit=False)
    with pytest.raises(UnknownTransactionError, match="of the 3 transactions of this write 2 are committed"):
        commit_all(table.client, JOB, [each.txn_id for each in shares], 0, assumes_committed=False)


# -- jobs with a name


def before_its_tasks(table: Table) -> None:
    table.begin("a")


def before_the_decision(table: Table) -> None:
    table.write(table.begin("a"))


def after_the_decision(table: Table) -> None:
    job = table.begin("a")
    table.append_decision(job, table.write(job))


def amid_the_commits(table: Table) -> None:
    job = table.begin("a")
    shares = table.write(job)
    table.append_decision(job, shares)
    table.client.end_transaction(shares[0].txn_id, commit=True)


def after_the_commits(table: Table) -> None:
    job = table.begin("a")
    job.commit(table.client, table.write(job))


UNDECIDED: Final = (before_its_tasks, before_the_decision)
DECIDED: Final = (after_the_decision, amid_the_commits, after_the_commits)


@pytest.mark.parametrize("end", [*UNDECIDED, *DECIDED], ids=lambda end: end.__name__)
def test_a_job_of_one_name_is_there_once_wherever_its_driver_ends(
    table: Table, end: Callable[[Table], None], caplog: pytest.LogCaptureFixture
) -> None:
    """The next one writes it, or completes it and says that it writes nothing; a third one writes nothing."""
    end(table)
    again = table.begin("a")
    assert again.is_done is (end in DECIDED)
    assert ("nothing is written" in caplog.text) is again.is_done
    if not again.is_done:
        again.commit(table.client, table.write(again, 3))
    assert table.rows() == ALL
    third = table.begin("a")
    assert third.is_done
    within = Within(60, third.run, JOB)
    assert write_rows(iter([pa.record_batch({"value": ["more"]})]), table.options("a"), within).rows == 0
    third.commit(table.client, [])
    third.abort(table.client, [])
    assert table.rows() == ALL


def test_of_two_jobs_at_once_the_first_to_begin_is_fenced(table: Table) -> None:
    """The fenced job fails, and its rows are not there; also where it goes on when the other one is through."""
    first = table.begin("a")
    shares = table.write(first)
    second = table.begin("a")
    with pytest.raises(FencedError, match="this write was not written by this driver: another one has begun on"):
        first.commit(table.client, shares)
    first.abort(table.client, shares)
    second.commit(table.client, table.write(second))
    assert table.rows() == ALL


def test_jobs_of_other_names_write_more(table: Table) -> None:
    """And one without rows counts too."""
    empty = table.begin("empty")
    empty.commit(table.client, [])
    assert table.begin("empty").is_done
    for name in ("a", "b"):
        job = table.begin(name)
        job.commit(table.client, table.write(job))
    assert table.rows() == sorted(ALL * 2)


def test_a_stream_and_a_job_do_not_share_a_name(table: Table) -> None:
    """Each would take the other's decision for its own, or fence it for ever."""
    after_the_commits(table)
    once = table.options("a").once
    assert once is not None
    run = exactly_once.begin(table.client, once)
    with pytest.raises(PulsarishError, match="has the decisions of a batch write; give another transactionalId"):
        exactly_once.check_batch(run, Batch("3f1c", 0))
    once = table.options("s").once
    assert once is not None
    run = exactly_once.begin(table.client, once)
    exactly_once.decide(table.client, run, Batch("3f1c", 0), [], once)
    with pytest.raises(PulsarishError, match="has the decisions of a stream; give another transactionalId"):
        table.begin("s")
