# SPDX-License-Identifier: Apache-2.0
"""From a queue to a topic by one decision, ended at each point, on each broker with transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from broker_core.client import Client
from pulsarish_spark.options import Side, WriteOptions, write_options
from pulsarish_spark.options.guarantee import ExactlyOnce
from pulsarish_spark.sink import exactly_once
from pulsarish_spark.sink.control_topic import CURSOR, ControlTopic
from pulsarish_spark.sink.decisions import Batch, ControlLog, Decision, GivenUp
from pulsarish_spark.sink.exactly_once import FencedError, Run, Share
from pulsarish_spark.sink.inputs import SourceInputs
from pulsarish_spark.sink.writer import Within, send_within
from tests.client.conftest import TRANSACTIONAL, transactional
from tests.client.helpers import assert_nothing_comes
from tests.spark.brokers import Broker, eventually, numbers
from tests.spark.conftest import NAME, Start, restarted
from tests.spark.engine import Engine
from tests.spark.queries import finish

QUERY: Final = "3f1c"
ROWS: Final = 40


@pytest.fixture(scope="module", params=TRANSACTIONAL)
def cell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The brokers that have transactions."""
    with transactional(request.param, request, tmp_path_factory) as made:
        yield Broker(made.service_url, made.http_url, "pulsarish" if made.kind == "pulsarish" else "apache")


@dataclass
class Joint:
    """A query from a queue to a topic, and what its driver and its tasks do. ``share`` makes its source."""

    client: Client
    cell: Broker
    share: Start
    topic: str
    number: int = 0
    """The micro-batch that runs."""
    engine: Engine = field(init=False)

    def __post_init__(self) -> None:
        self.engine = self.new_source()

    def new_source(self, **options: str | int) -> Engine:
        """A query that has no checkpoint."""
        given: dict[str, str | int] = {"topic": self.topic, "queueGuarantee": "lock", "transactionalId": self.topic}
        return self.share(**given | {"maxOffsetsPerTrigger": 1000} | options)

    @property
    def options(self) -> WriteOptions:
        given = {"service.url": self.cell.service_url, "topic": f"{self.topic}-out", "transactionalId": self.topic}
        return write_options(given, Side.STREAM_WRITE, {})

    @property
    def once(self) -> ExactlyOnce:
        once = self.options.once
        assert once is not None
        return once

    def send(self, first: int, end: int) -> None:
        self.cell.send_one_by_one(self.topic, numbers(first, end))

    def read(self) -> list[int]:
        """The rows of the next batch that has some; it is noted, and not done."""
        rows: list[int] = []

        def has_some() -> bool:
            rows.extend(self.engine.attempt() or [])
            if not rows and self.engine._begun is not None:
                self.done()
            return bool(rows)

        eventually(has_some, "a batch comes")
        return rows

    def done(self) -> None:
        """Spark notes that the batch is done."""
        self.engine.end, self.engine._begun = self.engine._begun, None
        self.number += 1

    def begin(self) -> Run:
        return exactly_once.begin(self.client, self.once)

    def write(self, run: Run, rows: Sequence[int]) -> list[Share]:
        """The rows of the batch, by two tasks; none if it is decided."""
        batch = Batch(QUERY, self.number)
        if not exactly_once.check_batch(run, batch):
            return []
        within = Within(60, run)
        halves = [[str(row) for row in rows[task::2]] for task in range(2)]
        written = [
            send_within(self.client, iter([pa.record_batch({"value": half})]), self.options, within, batch)
            for half in halves
        ]
        return [each.share for each in written if each.share is not None]

    def decide(self, run: Run, shares: Sequence[Share]) -> None:
        if shares:
            exactly_once.decide(self.client, run, shares[0].batch, shares, self.once)

    def append_decision(self, run: Run, shares: Sequence[Share]) -> Decision:
        """Decide, and commit nothing."""
        txn_ids = tuple(each.txn_id for each in shares)
        made = Decision(run.name, shares[0].batch, txn_ids, shares[0].lasting_until_ms, run.inputs)
        ControlTopic(self.client, run.control).append(made)
        return made

    def batch(self) -> list[int]:
        """The next batch that has rows, to its end."""
        rows = self.read()
        run = self.begin()
        self.decide(run, self.write(run, rows))
        self.done()
        return rows

    def restart(self) -> None:
        """The processes of the query end, and others go on from its checkpoint."""
        restarted(self.engine)

    def has_decided(self) -> bool:
        """Whether the last decision has the messages of its batch acknowledged."""
        topic = ControlTopic.made(self.client, self.once.control)
        with topic.cursor() as (start, _):
            log: ControlLog = topic.read(start, topic.append(GivenUp("nobody")))
        return log.last is not None and len(log.last.inputs) == 1

    def assert_once(self, rows: Sequence[int]) -> None:
        """These rows are in the target, each once; nothing is left on the subscription, and nobody waits."""
        with self.client.create_producer(f"{self.topic}-out") as producer:
            producer.send("-1")
        with self.client.create_reader(f"{self.topic}-out") as reader:
            read: list[int] = []
            while not read or read[-1] != -1:
                read.append(int(reader.read_next(30).value or b""))
        assert sorted(read[:-1]) == sorted(rows)
        assert self.cell.backlog(self.topic, NAME) == 0


@pytest.fixture
def joint(cell: Broker, share: Start, topic: str) -> Iterator[Joint]:
    """A query that waits for messages."""
    cell.create(topic, 0)
    with Client(cell.service_url, operation_timeout_s=30) as client:
        made = Joint(client, cell, share, topic)
        assert made.engine.drain() == []
        yield made


def theirs(joint: Joint, *, count: int) -> None:
    """Another consumer gets so many messages, and no more, and gives them back."""
    with joint.client.subscribe(joint.topic, NAME, type="shared") as consumer:
        for _ in range(count):
            consumer.receive(30)
        assert_nothing_comes(consumer)


# -- a driver that ends, and another one that goes on


def after_reading(joint: Joint, rows: Sequence[int]) -> None:
    """Before the run of the batch begins."""


def after_begin(joint: Joint, rows: Sequence[int]) -> None:
    joint.begin()


def after_all_tasks(joint: Joint, rows: Sequence[int]) -> None:
    joint.write(joint.begin(), rows)


def after_the_decision(joint: Joint, rows: Sequence[int]) -> None:
    run = joint.begin()
    joint.append_decision(run, joint.write(run, rows))


def after_the_first_commit(joint: Joint, rows: Sequence[int]) -> None:
    run = joint.begin()
    decision = joint.append_decision(run, joint.write(run, rows))
    joint.client.end_transaction(decision.txn_ids[0], commit=True)


def after_the_commit_of_the_input(joint: Joint, rows: Sequence[int]) -> None:
    run = joint.begin()
    decision = joint.append_decision(run, joint.write(run, rows))
    joint.client.end_transaction(decision.inputs[0].txn_id, commit=True)


def after_all_commits(joint: Joint, rows: Sequence[int]) -> None:
    run = joint.begin()
    joint.decide(run, joint.write(run, rows))


def after_spark_has_noted_it(joint: Joint, rows: Sequence[int]) -> None:
    after_all_commits(joint, rows)
    joint.done()


ENDS: Final[tuple[Callable[[Joint, Sequence[int]], None], ...]] = (
    after_reading,
    after_begin,
    after_all_tasks,
    after_the_decision,
    after_the_first_commit,
    after_the_commit_of_the_input,
    after_all_commits,
    after_spark_has_noted_it,
)


@pytest.mark.parametrize("end", ENDS)
def test_messages_are_processed_once_and_their_rows_are_there_once(
    joint: Joint, end: Callable[[Joint, Sequence[int]], None]
) -> None:
    """Other consumers get no row meanwhile, and a replay reads all rows, though they may be acknowledged."""
    joint.send(0, ROWS)
    first = joint.batch()
    joint.send(ROWS, 2 * ROWS)
    rows = joint.read()
    end(joint, rows)
    joint.engine.stop()
    theirs(joint, count=2 * ROWS - len(first) - len(rows))
    joint.restart()
    if joint.engine._begun is not None:
        assert sorted(joint.read()) == sorted(rows)
        run = joint.begin()
        joint.decide(run, joint.write(run, rows))
        assert joint.has_decided()
        joint.done()
    rest: list[int] = []
    while len(first + rows + rest) < 2 * ROWS:
        rest += joint.batch()
    assert joint.engine.drain() == []
    joint.assert_once(range(2 * ROWS))


def test_a_decision_acknowledges(joint: Joint) -> None:
    """Before Spark has noted that the batch is done, and without the source."""
    joint.send(0, ROWS)
    rows = joint.read()
    after_all_commits(joint, rows)
    assert joint.has_decided()
    eventually(lambda: joint.cell.backlog(joint.topic, NAME) == ROWS - len(rows), "they are acknowledged")


def test_a_batch_that_is_acknowledged_can_be_read_again(joint: Joint) -> None:
    """Its entries are not deleted before it is done."""
    joint.send(0, ROWS)
    rows = joint.read()
    after_all_commits(joint, rows)
    joint.engine.stop()
    joint.cell.unload(joint.topic)
    joint.cell.trim(joint.topic)
    joint.restart()
    assert sorted(joint.read()) == sorted(rows)


def test_a_batch_without_rows_is_acknowledged_when_it_is_done(joint: Joint) -> None:
    """Nothing is decided about it."""
    joint.send(0, ROWS)
    joint.read()
    joint.begin()
    joint.done()
    while joint.engine.trigger() is not None:
        joint.number += 1
    assert joint.cell.backlog(joint.topic, NAME) == 0


def test_the_next_batch_has_its_own_input(joint: Joint) -> None:
    """Not that of a batch without rows before it, which is over."""
    joint.send(0, ROWS)
    seen = joint.read()
    joint.begin()
    joint.done()
    written: list[int] = []
    joint.send(ROWS, 2 * ROWS)
    while len(seen + written) < 2 * ROWS:
        written += joint.batch()
        assert joint.has_decided()
    assert joint.engine.drain() == []
    joint.assert_once(written)


def test_messages_of_a_checkpoint_that_was_deleted_come_again_at_once(joint: Joint) -> None:
    """If nothing was decided about them."""
    joint.send(0, ROWS)
    rows = joint.read()
    after_all_tasks(joint, rows)
    joint.engine.stop()
    joint.engine, joint.number = joint.new_source(), 0
    seen: list[int] = []
    while len(seen) < ROWS:
        seen += joint.batch()
    assert joint.engine.drain() == []
    joint.assert_once(range(ROWS))


def test_a_driver_that_goes_on_while_another_one_has_begun_decides_nothing(joint: Joint) -> None:
    """The source of the other one is enough."""
    joint.send(0, ROWS)
    rows = joint.read()
    run = joint.begin()
    shares = joint.write(run, rows)
    joint.restart()
    assert sorted(joint.read()) == sorted(rows)
    with pytest.raises(FencedError):
        joint.decide(run, shares)
    joint.batch()
    rest: list[int] = []
    while len(rows + rest) < ROWS:
        rest += joint.batch()
    assert joint.engine.drain() == []
    joint.assert_once(range(ROWS))


def test_a_sink_that_decides_elsewhere_is_told(joint: Joint, caplog: pytest.LogCaptureFixture) -> None:
    """The source works as without a sink."""
    joint.send(0, ROWS)
    rows = joint.read()
    joint.done()
    joint.send(ROWS, 2 * ROWS)
    while len(rows) < 2 * ROWS:
        rows += joint.read()
        joint.done()
    assert joint.engine.drain() == []
    assert "no sink decides with the source" in caplog.text
    assert joint.cell.backlog(joint.topic, NAME) == 0


def test_two_sources_are_acknowledged_by_one_decision(joint: Joint) -> None:
    """Each has an input of its own."""
    sources = [SourceInputs(joint.client, joint.once.control, name) for name in ("first", "second")]
    for source in sources:
        source.begin(None)
    transactions = [joint.client.new_transaction(60).hand_over() for _ in sources]
    for source, txn_id in zip(sources, transactions, strict=True):
        source.note(txn_id, 2**53)
    run = joint.begin()
    assert [each.txn_id for each in run.inputs] == transactions
    joint.decide(run, joint.write(run, [1, 2]))
    over = [each for each in joint.client.check_transactions(transactions) if each is not None]
    assert len(over) == len(transactions)


# -- under Spark


class Piping:
    """A Spark query from a queue to a topic."""

    def __init__(self, spark: SparkSession, cell: Broker, topic: str, checkpoint: Path) -> None:
        self.spark, self.cell, self.topic, self.checkpoint = spark, cell, topic, checkpoint

    def run(self) -> None:
        """Process all that is there."""
        given = {"subscriptionType": "Shared", "subscriptionName": NAME, "queueGuarantee": "lock"}
        given |= {"startingOffsets": "earliest"} if not self.checkpoint.exists() else {}
        given |= {"transactionalId": self.topic, "maxOffsetsPerTrigger": "60", "availableNowQuietMs": "3000"}
        frame: DataFrame = self.spark.readStream.format("pulsarish").options(**given, **self._url).load(self.topic)
        writer = frame.select("key", "value").writeStream.format("pulsarish").options(**self._url)
        writer = writer.option("transactionalId", self.topic).option("checkpointLocation", str(self.checkpoint))
        finish(writer.trigger(availableNow=True).start(f"{self.topic}-out"))

    @property
    def _url(self) -> dict[str, str]:
        return {"service.url": self.cell.service_url}

    def forget_last_commit(self) -> None:
        """Have Spark run the last batch again, as if it had been killed right behind the decision."""
        commits = self.checkpoint / "commits"
        last = max(int(each.name) for each in commits.iterdir() if each.name.isdecimal())
        for each in (commits / str(last), commits / f".{last}.crc"):
            each.unlink(missing_ok=True)


@pytest.mark.spark
def test_spark_pipes_each_message_once_over_a_restart_behind_the_decision(
    spark: SparkSession, joint: Joint, tmp_path: Path
) -> None:
    """Spark plans what is read before it plans what is written, so each decision has its input."""
    joint.engine.stop()
    piping = Piping(spark, joint.cell, joint.topic, tmp_path / "checkpoint")
    joint.send(0, 200)
    piping.run()
    assert joint.has_decided()
    piping.forget_last_commit()
    joint.send(200, 300)
    piping.run()
    assert joint.has_decided()
    assert CURSOR in joint.cell.subscriptions(joint.once.control.rpartition("/")[2])
    joint.assert_once(range(300))
