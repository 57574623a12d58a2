# SPDX-License-Identifier: Apache-2.0
"""The steps of the exactly-once sink, ended and paused at each point, on each broker with transactions. No session."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pytest

from broker_core.base.errors import PulsarishError
from broker_core.client import Client, Transaction
from pulsarish_spark.options import Side, WriteOptions, write_options
from pulsarish_spark.sink import exactly_once
from pulsarish_spark.sink.control_topic import ControlTopic
from pulsarish_spark.sink.decisions import Batch, Decision
from pulsarish_spark.sink.exactly_once import FencedError, Run, Share, UnknownTransactionError
from pulsarish_spark.sink.writer import send_within
from tests.client.conftest import TRANSACTIONAL, Service, transactional

QUERY: Final = "3f1c"
ROWS: Final = 200


@pytest.fixture(scope="module", params=TRANSACTIONAL)
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The brokers that have transactions."""
    with transactional(request.param, request, tmp_path_factory) as made:
        yield made


@pytest.fixture
def stream(service: Service) -> Iterator[Stream]:
    """A stream that no other test writes."""
    with Client(service.service_url, operation_timeout_s=30) as client:
        yield Stream(client, service.service_url, f"once-{uuid.uuid4().hex[:10]}")


@dataclass
class Stream:
    """A topic that is written exactly once, and what drivers and tasks do for it."""

    client: Client
    service_url: str
    topic: str
    timeout_ms: int = 60_000

    @property
    def options(self) -> WriteOptions:
        given = {"service.url": self.service_url, "topic": self.topic, "deliveryGuarantee": "exactly-once"}
        given |= {"transactionalId": self.topic, "transactionTimeoutMs": str(self.timeout_ms)}
        return write_options(given, Side.STREAM_WRITE, {})

    def begin(self) -> Run:
        once = self.options.once
        assert once is not None
        return exactly_once.begin(self.client, once.control)

    def write(self, run: Run, number: int, tasks: int) -> list[Share]:
        """The rows of batch ``number`` in any order, by so many tasks."""
        rows = [f"{number}:{row}" for row in range(ROWS)]
        random.Random(tasks).shuffle(rows)
        return [self._task(run, number, rows[task::tasks]) for task in range(tasks)]

    def _task(self, run: Run, number: int, rows: Sequence[str]) -> Share:
        batches = iter([pa.record_batch({"value": rows})])
        share = send_within(self.client, batches, self.options, run, Batch(QUERY, number)).share
        assert share is not None
        return share

    def batch(self, number: int, tasks: int = 2) -> None:
        """One micro-batch, as Spark has it written, to its end."""
        run = self.begin()
        if exactly_once.check_batch(run, Batch(QUERY, number)):
            exactly_once.decide(self.client, self.write(run, number, tasks))

    def append_decision(self, shares: Sequence[Share]) -> Decision:
        """Decide, and commit nothing."""
        first = shares[0]
        decision = Decision(
            first.run.name, first.batch, tuple(each.txn_id for each in shares), shares[0].lasting_until_ms
        )
        ControlTopic(self.client, first.run.control).append(decision)
        return decision

    def assert_written_once(self, batches: int) -> None:
        """All rows of the first batches are there, each once, and nothing else; readers wait for no transaction."""
        with self.client.create_producer(self.topic) as producer:
            producer.send("end")
        with self.client.create_reader(self.topic) as reader:
            read: list[str] = []
            while not read or read[-1] != "end":
                read.append((reader.read_next(30).value or b"").decode())
        expected = [f"{number}:{row}" for number in range(batches) for row in range(ROWS)]
        assert sorted(read[:-1]) == sorted(expected)


# -- a driver that ends, and another one that replays the batch


def after_begin(stream: Stream) -> None:
    stream.begin()


def after_the_first_intent(stream: Stream) -> None:
    run = stream.begin()
    exactly_once.intend(stream.client, run, stream.client.new_transaction(60).id)


def amid_a_task(stream: Stream) -> None:
    run = stream.begin()
    txn = stream.client.new_transaction(60)
    exactly_once.intend(stream.client, run, txn.id)
    with stream.client.write_rows(stream.topic, txn=txn) as writer:
        writer.write(pa.record_batch({"value": [f"1:{row}" for row in range(50)]}))


def after_all_tasks(stream: Stream) -> None:
    stream.write(stream.begin(), 1, 2)


def after_the_decision(stream: Stream) -> None:
    stream.append_decision(stream.write(stream.begin(), 1, 2))


def after_the_first_commit(stream: Stream) -> None:
    decision = stream.append_decision(stream.write(stream.begin(), 1, 2))
    stream.client.end_transaction(decision.txn_ids[0], commit=True)


def after_all_commits(stream: Stream) -> None:
    exactly_once.carry_out(stream.client, stream.append_decision(stream.write(stream.begin(), 1, 2)))


ENDS: Final[tuple[Callable[[Stream], None], ...]] = (
    after_begin,
    after_the_first_intent,
    amid_a_task,
    after_all_tasks,
    after_the_decision,
    after_the_first_commit,
    after_all_commits,
)

DECIDED: Final = (after_the_decision, after_the_first_commit, after_all_commits)
"""There the next driver has the batch skipped."""


@pytest.mark.parametrize("end", ENDS, ids=[each.__name__ for each in ENDS])
def test_a_batch_is_there_once_wherever_its_driver_ends(stream: Stream, end: Callable[[Stream], None]) -> None:
    """Replayed by another number of tasks and in another order; another driver may end there as well."""
    stream.batch(0)
    end(stream)
    if end not in DECIDED:
        end(stream)
    stream.batch(1, tasks=3)
    stream.batch(2)
    stream.assert_written_once(3)


# -- a driver that is paused, and goes on when another one has done its batch


def test_a_driver_that_was_paused_after_it_began_is_fenced(stream: Stream) -> None:
    """Its tasks write, and it aborts them."""
    stream.batch(0)
    run = stream.begin()
    stream.batch(1, tasks=3)
    shares = stream.write(run, 1, 2)
    with pytest.raises(
        FencedError, match="batch 1 of query 3f1c was not written by this driver: another one has begun"
    ):
        exactly_once.decide(stream.client, shares)
    stream.batch(2)
    stream.assert_written_once(3)


def test_a_driver_that_was_paused_after_its_tasks_is_fenced(stream: Stream) -> None:
    """The other one has aborted its transactions."""
    stream.batch(0)
    shares = stream.write(stream.begin(), 1, 2)
    stream.batch(1, tasks=3)
    with pytest.raises(FencedError):
        exactly_once.decide(stream.client, shares)
    stream.assert_written_once(2)


def test_a_driver_that_was_paused_after_its_decision_may_go_on(stream: Stream) -> None:
    """The other one has carried it out."""
    stream.batch(0)
    decision = stream.append_decision(stream.write(stream.begin(), 1, 2))
    stream.batch(1, tasks=3)
    exactly_once.carry_out(stream.client, decision)
    stream.assert_written_once(2)


def test_a_fenced_driver_cannot_decide_about_the_next_batch_either(stream: Stream) -> None:
    """Until it begins again, which fences the other one."""
    run = stream.begin()
    other = stream.begin()
    with pytest.raises(FencedError):
        exactly_once.decide(stream.client, stream.write(run, 0, 1))
    exactly_once.decide(stream.client, stream.write(other, 0, 1))
    stream.batch(1)
    stream.assert_written_once(2)


def test_intents_that_come_late_are_aborted_by_the_run_after_next(stream: Stream) -> None:
    """A zombie task's transaction does not hold up readers for longer."""
    run = stream.begin()
    stream.batch(0)
    exactly_once.intend(stream.client, run, _open(stream).id)
    stream.batch(1)
    stream.assert_written_once(2)


def _open(stream: Stream) -> Transaction:
    txn = stream.client.new_transaction(600)
    with stream.client.create_producer(stream.topic) as producer:
        producer.send("late", txn=txn)
    return txn


# -- random histories


@pytest.mark.parametrize("seed", range(3))
def test_batches_are_there_once_after_random_ends(stream: Stream, seed: int) -> None:
    """Drivers end and are paused anywhere, one after the other and beside each other."""
    dice = random.Random(seed)
    paused: list[Run | list[Share] | Decision] = []

    def go_on(state: Run | list[Share] | Decision, number: int) -> None:
        try:
            if isinstance(state, Run):
                state = stream.write(state, number, dice.randint(1, 3)) if _wants(state, number) else []
            if isinstance(state, list) and state:
                exactly_once.decide(stream.client, state)
            if isinstance(state, Decision):
                exactly_once.carry_out(stream.client, state)
        except FencedError:
            pass

    for number in range(4):
        for _ in range(dice.randint(0, 3)):
            state: Run | list[Share] | Decision = stream.begin()
            steps = dice.randint(0, 2)
            if steps and isinstance(state, Run) and _wants(state, number):
                state = stream.write(state, number, dice.randint(1, 3))
                if steps == 2:
                    state = stream.append_decision(state)
            paused.append(state)
            if dice.random() < 0.5:
                go_on(paused.pop(dice.randrange(len(paused))), number)
        stream.batch(number, tasks=dice.randint(1, 3))
    for each in paused:
        go_on(each, 3)
    stream.assert_written_once(4)


def _wants(run: Run, number: int) -> bool:
    try:
        return exactly_once.check_batch(run, Batch(QUERY, number))
    except PulsarishError:
        return False


# -- what is told


def test_a_checkpoint_that_was_put_back_is_told(stream: Stream) -> None:
    """Its batches were written before, and later ones too."""
    for number in range(3):
        stream.batch(number)
    with pytest.raises(PulsarishError, match=r"batch 1 of query 3f1c is to be written, and batch 2 was before"):
        stream.batch(1)
    stream.assert_written_once(3)


def test_a_decision_whose_transactions_are_over_is_told(stream: Stream) -> None:
    """Where their time was over before they were committed, nobody knows of an Apache Pulsar what became of them."""
    stream.batch(0)
    stream.timeout_ms = 500
    stream.append_decision(stream.write(stream.begin(), 1, 2))
    _end_by_clock(stream)
    with pytest.raises(UnknownTransactionError, match="its time limit was over before its coordinator was asked"):
        stream.begin()


def _end_by_clock(stream: Stream) -> None:
    """Return when no transaction of the topic is open any more: what is sent now is read."""
    with stream.client.create_producer(stream.topic) as producer:
        last = producer.send("behind")
    with stream.client.create_reader(stream.topic) as reader:
        while reader.read_next(30).message_id != last:
            pass


def test_records_that_nobody_needs_are_let_go(stream: Stream) -> None:
    """The cursor follows the last decision, so that a run reads a few records, however many there were."""
    for number in range(5):
        stream.batch(number)
    run = stream.begin()
    with ControlTopic(stream.client, run.control).cursor() as (start, _):
        assert (start.ledger, start.entry) >= (run.begun_at.ledger, run.begun_at.entry - 4)


def test_a_control_topic_may_have_partitions(stream: Stream, service: Service) -> None:
    """As on brokers that make partitioned topics by themselves: its records are in the first one."""
    once = stream.options.once
    assert once is not None
    service.create_partitioned(once.control, 3)
    stream.batch(0)
    stream.batch(1)
    assert stream.begin().control == f"{once.control}-partition-0"
    stream.assert_written_once(2)
