# SPDX-License-Identifier: Apache-2.0
"""The driver of queue mode as a state machine, under kills, lost connections, lost acks and a rival: what is promised.

Spark's order of calls, its logs and the broker are models here; driver, backlog and offsets are the real ones.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker_core.base.errors import (
    ConnectionLostError,
    PulsarishError,
    TransactionConflictError,
    TransactionNotFoundError,
)
from broker_core.base.positions import Position
from broker_core.client import Given, GivenEntry
from broker_core.testing.virtual_timers import VirtualTimers
from broker_core.wire.heads import TxnId
from pulsarish_spark.options import Side, read_options
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.queue.entry_ids import Entries
from pulsarish_spark.queue.hold_cursors import HoldCursors
from pulsarish_spark.queue.id_reader import IdReading
from pulsarish_spark.queue.intake import Consumers
from pulsarish_spark.queue.locking import QueueLocks
from pulsarish_spark.queue.queue_driver import QueueDriver
from pulsarish_spark.queue.queue_offset import QueueOffset
from pulsarish_spark.queue.received_backlog import Dropped, ReceivedBacklog, Source

if TYPE_CHECKING:
    from broker_core.client import Client

KEY = TopicPartition("persistent://public/default/t", 0)
SOURCES = (Source(KEY, 0), Source(KEY, 1))
"""The query has two consumers."""

LIMIT = 12

LOCK_S = 600.0
"""The time limit of a lock."""


def messages_of(entry: int) -> int:
    """Of each entry: some are batches, so that those between them lie in rows."""
    return 3 if entry % 5 == 0 else 1


class BrokerModel:
    """Entries of one subscription: free, held by a consumer, or acknowledged."""

    def __init__(self) -> None:
        self.entries = 0
        self.holders: dict[int, Source] = {}
        self.acked: set[int] = set()
        self.forgotten: set[int] = set()
        """What was acknowledged, and was not written when the broker died."""
        self.was_forgotten: set[int] = set()
        """All that others may have been given for that."""
        self.given: Counter[int] = Counter()
        self.opened = 0
        self.in_order: list[int] = []
        """Messages that this process of the query has acknowledged."""
        self.pending: dict[int, TxnId] = {}
        """Messages that open transactions acknowledge."""
        self.transactions: dict[TxnId, float] = {}
        """Open transactions, and when they are aborted."""

    @property
    def confirmed(self) -> set[int]:
        return self.acked | self.forgotten

    @property
    def free(self) -> list[int]:
        taken = self.acked | self.holders.keys() | self.pending.keys()
        return [each for each in range(self.entries) if each not in taken]

    def end(self, txn_id: TxnId, *, commit: bool) -> None:
        """Apache Pulsar does not remember how a transaction ended."""
        if self.transactions.pop(txn_id, None) is None:
            raise TransactionNotFoundError(f"{txn_id} is over")
        held = {entry for entry, holder in self.pending.items() if holder == txn_id}
        self.pending = {entry: holder for entry, holder in self.pending.items() if holder != txn_id}
        if commit:
            self.acked |= held
            self.in_order += sorted(held)

    def end_overdue(self) -> None:
        """The time of some transactions is over."""
        for txn_id in [txn_id for txn_id, until_s in self.transactions.items() if until_s <= CLOCK.now_ms() / 1000]:
            self.end(txn_id, commit=False)


class TransactionModel:
    """A transaction of the process that has opened it."""

    def __init__(self, broker: BrokerModel, txn_id: TxnId) -> None:
        self.id = txn_id
        self._broker = broker
        self._is_mine = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.close()

    def hand_over(self) -> TxnId:
        self._is_mine = False
        return self.id

    def abort(self) -> None:
        self.close()

    def close(self) -> None:
        if self._is_mine:
            self._is_mine = False
            with contextlib.suppress(TransactionNotFoundError):
                self._broker.end(self.id, commit=False)


class ClientModel:
    """The client of a process, as far as transactions are concerned."""

    def __init__(self, broker: BrokerModel) -> None:
        self._broker = broker

    def new_transaction(self, timeout_s: float) -> TransactionModel:
        self._broker.opened += 1
        txn_id = TxnId(0, self._broker.opened)
        self._broker.transactions[txn_id] = CLOCK.now_ms() / 1000 + timeout_s
        return TransactionModel(self._broker, txn_id)

    def end_transaction(self, txn_id: TxnId, *, commit: bool) -> None:
        self._broker.end(txn_id, commit=commit)

    def end_transactions(self, txn_ids: Sequence[TxnId], *, commit: bool) -> list[PulsarishError | None]:
        failures: list[PulsarishError | None] = []
        for txn_id in txn_ids:
            try:
                self.end_transaction(txn_id, commit=commit)
                failures.append(None)
            except TransactionNotFoundError as gone:
                failures.append(gone)
        return failures


class IntakeModel:
    """The consumers of one process of the query."""

    def __init__(self, broker: BrokerModel) -> None:
        self.received = ReceivedBacklog()
        self.consumers = len(SOURCES)
        self.is_open = True
        self._broker = broker
        self._sessions = dict.fromkeys(SOURCES, 1)
        self._given: dict[Source, list[GivenEntry]] = {source: [] for source in SOURCES}
        self._permits = dict.fromkeys(SOURCES, 0)
        self._permitted = 0

    def attach(self, known: QueueOffset) -> None:
        """The consumers are there from the beginning."""

    def backlogs(self) -> dict[TopicPartition, int | None]:
        return {KEY: self._broker.entries - len(self._broker.acked)}

    def sessions(self) -> dict[TopicPartition, tuple[int, ...]]:
        return {KEY: tuple(self._sessions.values())}

    def published(self, entries: Mapping[TopicPartition, Position]) -> dict[TopicPartition, int | None]:
        return {key: at.entry for key, at in entries.items()}

    def ends(self, keys: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        return dict.fromkeys(keys, Position(0, self._broker.entries))

    def mark_deletes(self) -> dict[TopicPartition, Position]:
        return {}

    def names(self) -> dict[TopicPartition, str]:
        return {KEY: KEY.topic}

    def permit(self, messages: int) -> None:
        each = messages // len(SOURCES)
        for source in SOURCES:
            self._permits[source] += each - self._permitted
        self._permitted = each
        self.give()

    def give(self) -> None:
        """The broker gives by turns of a few what it may."""
        for number, entry in enumerate(self._broker.free):
            turn = number // 3
            for source in (SOURCES[turn % 2], SOURCES[(turn + 1) % 2]):
                if self._permits[source] > 0:
                    self._permits[source] -= messages_of(entry)
                    self._broker.holders[entry] = source
                    count = self._broker.given[entry]
                    self._broker.given[entry] += 1
                    self._given[source].append(GivenEntry(0, entry, messages_of(entry), count))
                    break

    def lose(self, source: Source) -> None:
        """A connection is lost, and comes back."""
        for entry in [each for each, holder in self._broker.holders.items() if holder == source]:
            del self._broker.holders[entry]
        self._sessions[source] += 1
        self._given[source] = []
        self._permits[source] = self._permitted

    def collect(self) -> bool:
        begins = False
        for source in SOURCES:
            if self._given[source] or self.received.sessions.get(source) != self._sessions[source]:
                entries, self._given[source] = self._given[source], []
                begins = self.received.add(source, Given(self._sessions[source], entries)) or begins
        return begins

    def wait(self, seconds: float) -> bool:
        CLOCK.sleep(max(seconds, 0.001))  # It counts whole milliseconds.
        return False

    def ack(self, holders: Mapping[Source, Mapping[int, Entries]]) -> None:
        for ledgers in holders.values():
            for entry in ledgers[0].tolist():
                self._broker.in_order.append(entry)
                self._broker.acked.add(entry)
                self._broker.holders.pop(entry, None)

    def ack_within(
        self,
        holders: Mapping[Source, Mapping[int, Entries]],
        sessions: Mapping[Source, int],
        txn: TransactionModel,
    ) -> None:
        """Some may be in the transaction when one is refused. Then the others are given to nobody, as at Apache Pulsar,
        as if the consumer had them still."""
        for source, ledgers in holders.items():
            if sessions[source] != self._sessions[source]:
                raise ConnectionLostError("the session is over")
            if txn.id not in self._broker.transactions:
                raise TransactionNotFoundError(f"{txn.id} is over")
            for entry in ledgers[0].tolist():
                if entry in self._broker.acked or entry in self._broker.pending:
                    raise TransactionConflictError(f"{entry} is taken")
                self._broker.pending[entry] = txn.id
                self._broker.holders.pop(entry, None)

    def release(self, taken: Mapping[Source, int], sessions: Mapping[Source, int]) -> None:
        for source, messages in taken.items():
            if sessions[source] == self._sessions[source]:
                self._permits[source] += messages
        self.give()

    def give_back(self, dropped: Dropped, sessions: Mapping[Source, int]) -> None:
        """There are no messages in chunks."""

    def close(self) -> None:
        for source in SOURCES:
            self.lose(source)


class HoldsModel:
    """The hold cursors of a query: what they keep is told by when they move."""

    def __init__(self) -> None:
        self.moves = 0

    def open(self, names: Mapping[TopicPartition, str]) -> None:
        """Nothing is deleted here."""

    def move(self) -> None:
        self.moves += 1

    def close(self) -> None:
        """It stays."""


CLOCK = VirtualTimers()


class SharedQueryMachine(RuleBasedStateMachine):
    """``guarantee``: of the query."""

    guarantee = "commit"

    def __init__(self) -> None:
        super().__init__()
        self.broker = BrokerModel()
        self.offsets: list[dict[str, Any]] = []
        """Spark's offset log."""
        self.done = 0
        """Batches in Spark's commit log."""
        self.rivals: set[int] = set()
        self.rows: dict[int, set[int]] = {}
        self._start_process()

    def _start_process(self) -> None:
        raw = {"service.url": "pulsar://nowhere:1", "topic": "t", "subscriptionType": "Key_Shared"}
        raw |= {"subscriptionName": "s", "queueGuarantee": self.guarantee}
        options = read_options(raw, Side.STREAM_READ, {})
        assert options.queue is not None
        self.intake = IntakeModel(self.broker)
        holds = HoldsModel() if self.guarantee == "claim" else None
        locks = QueueLocks(cast("Client", ClientModel(self.broker)), LOCK_S, CLOCK)
        self.driver = QueueDriver(
            options, options.queue, cast("Consumers", self.intake), locks, cast("HoldCursors | None", holds), CLOCK
        )
        self.planned = False

    @property
    def start(self) -> dict[str, Any]:
        return self.offsets[self.done - 1] if self.done else self.driver.initial().to_json()

    @property
    def runs(self) -> bool:
        """Whether a batch is noted and not done."""
        return len(self.offsets) > self.done

    def _read(self, document: dict[str, Any]) -> QueueOffset:
        return self.driver.offset(json.loads(json.dumps(document)))

    def _entries(self, number: int) -> set[int]:
        batch = self._read(self.offsets[number]).partitions
        return {position.entry for part in batch.values() for position in part.positions()}

    # -- what Spark does

    @precondition(lambda self: not self.runs)
    @rule(log=st.booleans())
    def next_batch(self, log: bool) -> None:
        """``log`` False: the process is killed before Spark has noted the offset."""
        start = self._read(self.start)
        end = self.driver.latest(start, LIMIT)
        if self.done:
            assert self._entries(self.done - 1) <= self.broker.confirmed
        if end == start:
            return
        assert self.driver.latest(start, LIMIT) == end, "Spark may ask again before it notes the answer"
        assert end.messages <= LIMIT
        if not log:
            self.kill()
            return
        self.offsets.append(end.to_json())
        if self.done:
            self.driver.commit(start)

    @precondition(lambda self: self.runs)
    @rule()
    def plan(self) -> None:
        """The tasks have exactly the entries that are noted, whichever process plans them."""
        end = self._read(self.offsets[-1])
        tasks = self.driver.tasks(self._read(self.start), end)
        found = [
            position.entry
            for task in tasks
            for reading in task.readings
            if isinstance(reading, IdReading)
            for position in reading.batch.positions()
        ]
        assert set(found) == self._entries(len(self.offsets) - 1)
        self.planned = True

    @precondition(lambda self: self.runs and self.planned)
    @rule()
    def finish(self) -> None:
        """The sink has the batch, and Spark notes that."""
        self.done += 1
        self.planned = False

    @rule()
    def whole_batches(self) -> None:
        """Two batches, each from the broker to its end: the first of a process may have no entries."""
        for _ in range(2):
            self.publish(4)
            if not self.runs:
                self.next_batch(log=True)
            if self.runs:
                self.plan()
                self.check()
                self.finish()

    def check(self) -> None:
        """Promises of a queue, amid a rule."""
        self.nothing_is_acknowledged_too_early()
        self.each_entry_is_in_one_batch()
        self.at_most_one_batch_is_noted_and_not_acknowledged()

    # -- what happens to it

    @rule()
    def kill(self) -> None:
        """At any moment between two calls; what it held is free, and the broker has written all acknowledgements."""
        self.broker.acked |= self.broker.forgotten
        self.broker.forgotten.clear()
        self.broker.in_order.clear()
        self.intake.close()
        self._start_process()

    @rule(source=st.sampled_from(SOURCES))
    def lose_connection(self, source: Source) -> None:
        """Its entries go to anybody, to the other consumer of the query too."""
        self.intake.lose(source)
        self.intake.give()

    @rule(acks=st.integers(0, 3 * LIMIT))
    def broker_dies(self, acks: int) -> None:
        """All connections are lost, and so many of the query's last acknowledgements, though they were confirmed."""
        lost = set(self.broker.in_order[-acks:] if acks else ()) - self.rivals
        self.broker.acked -= lost
        self.broker.forgotten |= lost
        self.broker.was_forgotten |= lost
        for source in SOURCES:
            self.intake.lose(source)
        self.intake.give()

    @rule(count=st.integers(1, 8))
    def publish(self, count: int) -> None:
        self.broker.entries += count
        self.intake.give()

    @rule(count=st.integers(1, 3))
    def rival(self, count: int) -> None:
        """Another consumer gets some of what is free, and processes it."""
        for entry in self.broker.free[:count]:
            self.rivals.add(entry)
            self.broker.acked.add(entry)

    # -- what is promised

    @invariant()
    def nothing_is_acknowledged_too_early(self) -> None:
        """With commit and lock what is done, with claim what is noted; the rest by the rival."""
        ours = len(self.offsets) if self.guarantee == "claim" else self.done
        allowed = set().union(*(self._entries(number) for number in range(ours))) if ours else set()
        assert self.broker.acked <= allowed | self.rivals

    @invariant()
    def each_entry_is_in_one_batch(self) -> None:
        counts = Counter(entry for number in range(len(self.offsets)) for entry in self._entries(number))
        assert all(count == 1 for count in counts.values())

    @invariant()
    def at_most_one_batch_is_noted_and_not_acknowledged(self) -> None:
        for number in range(len(self.offsets) - 1):
            assert self._entries(number) <= self.broker.confirmed

    def teardown(self) -> None:
        """Nothing is lost: when all is quiet, every entry was processed."""
        for _ in range(10 * self.broker.entries + 10):
            if not self.runs:
                before = len(self.offsets)
                self.next_batch(log=True)
                if len(self.offsets) == before:
                    break
            self.plan()
            self.check()
            self.finish()
        processed = self.rivals.union(*(self._entries(number) for number in range(self.done)))
        assert processed == set(range(self.broker.entries)) == self.broker.acked


class ClaimingQueryMachine(SharedQueryMachine):
    """The same with acknowledgement before the tasks."""

    guarantee = "claim"

    @invariant()
    def a_planned_batch_is_acknowledged(self) -> None:
        """So nobody else is given it."""
        if self.planned:
            assert self._entries(len(self.offsets) - 1) <= self.broker.confirmed


class LockingQueryMachine(SharedQueryMachine):
    """The same with acknowledgement in a transaction, before the batch is noted.

    A query is away for less than half of the time limit, or for longer (``is_late``), and then others may get what is
    noted.
    """

    guarantee = "lock"

    def __init__(self) -> None:
        super().__init__()
        self.is_late = False
        self.known: set[int] = set()
        """Acknowledged, by others, when the query held it."""

    def sleep(self, seconds: float) -> None:
        """For longer than a minute: a broker has written all acknowledgements by then, and cannot forget them."""
        CLOCK.sleep(seconds)
        self.broker.in_order.clear()
        self.broker.end_overdue()

    @precondition(lambda self: not self.runs and not self.broker.forgotten)
    @rule()
    def time_passes(self) -> None:
        """A batch that runs, and one that was away before, are not longer than a lock lasts; then Spark asks again."""
        self.sleep(LOCK_S / 4)
        self.next_batch(log=True)

    @precondition(lambda self: self.runs and not self.broker.forgotten)
    @rule()
    def time_limit(self) -> None:
        """The batch that is noted is away for too long. By then a broker has told all that it had forgotten."""
        self.sleep(LOCK_S + 1)
        self.is_late = True
        self.intake.give()

    @precondition(lambda self: self.intake.received is not None and bool(self.broker.holders))
    @rule()
    def acknowledged_by_another(self) -> None:
        """An entry that the query has been given and has not locked."""
        entry = min(self.broker.holders)
        del self.broker.holders[entry]
        self.rivals.add(entry)
        self.broker.acked.add(entry)

    @invariant()
    def a_noted_batch_is_nobody_elses(self) -> None:
        """While its lock lasts."""
        if not self.is_late:
            noted = set().union(*(self._entries(number) for number in range(len(self.offsets))))
            assert not noted & self.rivals - self.broker.was_forgotten
            if self.runs:
                assert self._entries(len(self.offsets) - 1) <= self.broker.pending.keys()

    def check(self) -> None:
        super().check()
        self.a_noted_batch_is_nobody_elses()

    def teardown(self) -> None:
        super().teardown()
        assert not self.broker.pending


TestSharedQuery = SharedQueryMachine.TestCase
TestSharedQuery.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestClaimingQuery = ClaimingQueryMachine.TestCase
TestClaimingQuery.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestLockingQuery = LockingQueryMachine.TestCase
TestLockingQuery.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("machine", [SharedQueryMachine, ClaimingQueryMachine, LockingQueryMachine])
def test_what_a_killed_broker_has_forgotten_is_acknowledged_again(
    machine: type[SharedQueryMachine], caplog: pytest.LogCaptureFixture
) -> None:
    """It gives entries of several batches again, none of them is in another batch, and a warning tells of them."""
    query = machine()
    for _ in range(4):
        query.publish(LIMIT // 3)
        query.next_batch(log=True)
        query.plan()
        query.finish()
    query.broker_dies(acks=2 * LIMIT)
    assert query.broker.forgotten
    query.publish(1)
    query.teardown()
    query.each_entry_is_in_one_batch()
    assert "acknowledged entries came again and were dropped" in caplog.text
