# SPDX-License-Identifier: Apache-2.0
"""The steps of the exactly-once sink, ended and paused at each point, on each broker with transactions. No session."""

from __future__ import annotations

import contextlib
import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from broker_core.base.clock import SystemClock
from broker_core.base.errors import PulsarishError, RowsUnconfirmedError
from broker_core.base.settings import Settings
from broker_core.client import Client, Transaction
from broker_core.storage.disk import RealDisk
from broker_core.storage.store import Store
from broker_core.testing.running_broker import RunningBroker
from pulsarish_spark.options import Side, WriteOptions, write_options
from pulsarish_spark.options.guarantee import ExactlyOnce
from pulsarish_spark.sink import exactly_once
from pulsarish_spark.sink.control_topic import CURSOR, ControlTopic
from pulsarish_spark.sink.decisions import Batch, Decision
from pulsarish_spark.sink.endings import ExpiredTransactionError, UnknownTransactionError
from pulsarish_spark.sink.exactly_once import FencedError, Run, Share
from pulsarish_spark.sink.writer import Within, send_within
from tests.apache_pulsar.web import Web
from tests.client.conftest import TRANSACTIONAL, Service, admin_path, transactional

QUERY: Final = "3f1c"
ROWS: Final = 200
TRIES_ON_APACHE: Final = 4
"""Of a task, as often as Spark tries one: an Apache Pulsar that is busy now and then closes a topic's producers, and so
leaves it unknown whether the rows of a task are stored."""


@pytest.fixture(scope="module", params=TRANSACTIONAL)
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The brokers that have transactions."""
    with transactional(request.param, request, tmp_path_factory) as made:
        yield made


@pytest.fixture
def stream(service: Service) -> Iterator[Stream]:
    """A stream that no other test writes."""
    with Client(service.service_url, operation_timeout_s=30) as client:
        tries = TRIES_ON_APACHE if service.kind == "apache" else 1
        yield Stream(client, service.service_url, f"once-{uuid.uuid4().hex[:10]}", tries=tries)


@dataclass
class Stream:
    """A topic that is written exactly once, and what drivers and tasks do for it."""

    client: Client
    service_url: str
    topic: str
    timeout_ms: int = 60_000
    on_unknown: str = "fail"
    tries: int = 1

    @property
    def options(self) -> WriteOptions:
        given = {"service.url": self.service_url, "topic": self.topic, "deliveryGuarantee": "exactly-once"}
        given |= {"transactionalId": self.topic, "transactionTimeoutMs": str(self.timeout_ms)}
        given |= {"onUnknownTransaction": self.on_unknown}
        return write_options(given, Side.STREAM_WRITE, {})

    @property
    def once(self) -> ExactlyOnce:
        once = self.options.once
        assert once is not None
        return once

    def begin(self) -> Run:
        return exactly_once.begin(self.client, self.once)

    def decide(self, shares: Sequence[Share]) -> None:
        exactly_once.decide(self.client, run_of(shares), shares[0].batch, shares, self.once)

    def give_up(self, shares: Sequence[Share]) -> None:
        exactly_once.give_up(self.client, run_of(shares), shares, self.once)

    def carry_out(self, decision: Decision) -> None:
        exactly_once.carry_out(self.client, ControlTopic(self.client, self.once.control), decision, self.once)

    def write(self, run: Run, number: int, tasks: int) -> list[Share]:
        """The rows of batch ``number`` in any order, by so many tasks."""
        rows = [f"{number}:{row}" for row in range(ROWS)]
        random.Random(tasks).shuffle(rows)
        return [self._task(run, number, rows[task::tasks]) for task in range(tasks)]

    def _task(self, run: Run, number: int, rows: Sequence[str]) -> Share:
        for left in reversed(range(self.tries)):
            batches = iter([pa.record_batch({"value": rows})])
            within = Within(self.timeout_ms / 1000, run)
            try:
                share = send_within(self.client, batches, self.options, within, Batch(QUERY, number)).share
            except RowsUnconfirmedError:
                if not left:
                    raise
            else:
                break
        assert share is not None
        return share

    def batch(self, number: int, tasks: int = 2) -> None:
        """One micro-batch, as Spark has it written, to its end."""
        run = self.begin()
        if exactly_once.check_batch(run, Batch(QUERY, number)):
            self.decide(self.write(run, number, tasks))

    def append_decision(self, shares: Sequence[Share]) -> Decision:
        """Decide, and commit nothing."""
        first = shares[0]
        run, txn_ids = run_of(shares), tuple(each.txn_id for each in shares)
        decision = Decision(run.name, first.batch, txn_ids, first.lasting_until_ms)
        ControlTopic(self.client, run.control).append(decision)
        return decision

    def assert_written_once(self, batches: int, beside: Sequence[str] = ()) -> None:
        """All rows of the first batches are there, each once, and what is ``beside``; readers wait for nothing."""
        with self.client.create_producer(self.topic) as producer:
            producer.send("end")
        with self.client.create_reader(self.topic) as reader:
            read: list[str] = []
            while not read or read[-1] != "end":
                read.append((reader.read_next(30).value or b"").decode())
        expected = [f"{number}:{row}" for number in range(batches) for row in range(ROWS)]
        assert sorted(read[:-1]) == sorted([*expected, *beside])


def run_of(shares: Sequence[Share]) -> Run:
    """The run that has written ``shares``."""
    run = shares[0].run
    assert run is not None
    return run


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
    stream.carry_out(stream.append_decision(stream.write(stream.begin(), 1, 2)))


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
        stream.decide(shares)
    stream.batch(2)
    stream.assert_written_once(3)


def test_a_driver_that_was_paused_after_its_tasks_is_fenced(stream: Stream) -> None:
    """The other one has aborted its transactions."""
    stream.batch(0)
    shares = stream.write(stream.begin(), 1, 2)
    stream.batch(1, tasks=3)
    with pytest.raises(FencedError):
        stream.decide(shares)
    stream.assert_written_once(2)


def test_a_driver_that_was_paused_after_its_decision_may_go_on(stream: Stream) -> None:
    """The other one has carried it out."""
    stream.batch(0)
    decision = stream.append_decision(stream.write(stream.begin(), 1, 2))
    stream.batch(1, tasks=3)
    stream.carry_out(decision)
    stream.assert_written_once(2)


def test_a_fenced_driver_cannot_decide_about_the_next_batch_either(stream: Stream) -> None:
    """Until it begins again, which fences the other one."""
    run = stream.begin()
    other = stream.begin()
    with pytest.raises(FencedError):
        stream.decide(stream.write(run, 0, 1))
    stream.decide(stream.write(other, 0, 1))
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
                stream.decide(state)
            if isinstance(state, Decision):
                stream.carry_out(state)
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
    stream.timeout_ms = 3000
    stream.append_decision(stream.write(stream.begin(), 1, 2))
    _end_by_clock(stream)
    with pytest.raises(UnknownTransactionError, match=r"time limit was over: transactions \(.* 0 are committed"):
        stream.begin()


def test_a_stream_may_go_on_behind_transactions_of_which_nothing_is_known(stream: Stream, service: Service) -> None:
    """5.1: by onUnknownTransaction, as far as nothing is known: our broker knows that they were aborted."""
    stream.timeout_ms, stream.on_unknown = 3000, "assumeCommitted"
    stream.append_decision(stream.write(stream.begin(), 0, 2))
    _end_by_clock(stream)
    stream.timeout_ms = 60_000
    if service.kind == "pulsarish":
        with pytest.raises(UnknownTransactionError, match=r"aborted by the time limit, and the rows lost; of the 2"):
            stream.begin()
    else:
        assert stream.begin().done == Batch(QUERY, 0)


def test_a_stream_goes_on_after_a_pause_in_which_its_coordinators_forgot_its_transactions(tmp_path: Path) -> None:
    """The control topic knows that they were committed: a nightly query is away for a day after each batch."""
    with RunningBroker(tmp_path / "data") as broker:
        with Client(broker.service_url) as client:
            stream = Stream(client, broker.service_url, "nightly")
            shares = stream.write(stream.begin(), 0, 2)
            stream.decide([replace(each, lasting_until_ms=0) for each in shares])  # The limit is over then, too.
        broker.stop()
        with contextlib.closing(Store.open(RealDisk(), str(broker.data_dir), SystemClock(), Settings())) as store:
            store.catalogue.transactions.forget_outcomes(SystemClock().now_ms() + 1)
            store.commits.commit_now()
        broker.start()
        with Client(broker.service_url) as client:
            stream = Stream(client, broker.service_url, "nightly")
            stream.batch(1)
            stream.assert_written_once(2)


def test_a_batch_whose_transactions_are_over_is_not_decided(stream: Stream) -> None:
    """The query fails, and the next start writes the batch again: a decision would have stopped it for good."""
    stream.timeout_ms = 3000
    shares = stream.write(stream.begin(), 0, 2)
    _end_by_clock(stream)
    with pytest.raises(ExpiredTransactionError, match=r"2 of 2 transactions of batch 0 of query 3f1c were aborted by"):
        stream.decide(shares)
    stream.timeout_ms = 60_000
    stream.batch(0)
    stream.assert_written_once(1, beside=["behind"])


def test_a_batch_that_fails_after_its_decision_is_there(stream: Stream) -> None:
    """Spark aborts a batch whose commit has failed, say for a broker that is away: what was decided stands."""
    shares = stream.write(stream.begin(), 0, 2)
    stream.append_decision(shares)
    stream.give_up(shares)
    stream.batch(0)
    stream.assert_written_once(1)


def test_a_run_that_is_given_up_decides_no_more(stream: Stream) -> None:
    """Its decision may be on its way still when Spark gives it up."""
    shares = stream.write(stream.begin(), 0, 2)
    stream.give_up(shares)
    with pytest.raises(FencedError):
        stream.decide(shares)
    stream.batch(0)
    stream.assert_written_once(1)


def test_a_fenced_run_that_is_given_up_fences_nobody(stream: Stream) -> None:
    """Spark gives it up as any batch whose commit failed."""
    shares = stream.write(stream.begin(), 0, 2)
    other = stream.write(stream.begin(), 0, 1)
    stream.give_up(shares)
    stream.decide(other)
    stream.assert_written_once(1)


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
        assert (start.ledger, start.entry) >= (run.begun_at.ledger, run.begun_at.entry - 5)


def test_records_that_a_policy_passed_over_are_read_again(stream: Stream, service: Service) -> None:
    """An expiry of messages moves the cursor over the last decision, which is still stored."""
    stream.batch(0)
    stream.batch(1)
    service.admin("POST", f"{admin_path(stream.once.control)}/subscription/{CURSOR}/skip_all")
    stream.batch(1)
    stream.batch(2)
    stream.assert_written_once(3)


def test_a_decision_that_is_gone_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The sink cannot know then whether a batch was written."""
    with RunningBroker(tmp_path / "data") as broker, Client(broker.service_url) as client:
        stream = Stream(client, broker.service_url, "short-lived")
        begun = stream.begin()
        web, control = Web(broker.http_url), f"/admin/v2/{admin_path(stream.once.control)}"
        web.call("POST", f"{control}/subscription/{CURSOR}/skip_all")
        stream.begin()
        assert "decisions are gone" in caplog.text
        assert begun.control in caplog.text


def test_a_control_topic_that_was_deleted_is_not_taken_for_another_driver(tmp_path: Path) -> None:
    """Nothing of the batch is there, and the query writes it when it is started again."""
    with RunningBroker(tmp_path / "data") as broker, Client(broker.service_url) as client:
        stream = Stream(client, broker.service_url, "forgetful")
        shares = stream.write(stream.begin(), 0, 2)
        Web(broker.http_url).call("DELETE", f"/admin/v2/{admin_path(stream.once.control)}?force=true")
        with pytest.raises(FencedError, match="has no record any more that it had begun; was the topic deleted"):
            stream.decide(shares)
        stream.batch(0)
        stream.assert_written_once(1)


def test_a_control_topic_may_have_partitions(stream: Stream, service: Service) -> None:
    """As on brokers that make partitioned topics by themselves: its records are in the first one."""
    service.create_partitioned(stream.once.control, 3)
    stream.batch(0)
    stream.batch(1)
    assert stream.begin().control == f"{stream.once.control}-partition-0"
    stream.assert_written_once(2)
