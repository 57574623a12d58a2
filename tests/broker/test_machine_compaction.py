# SPDX-License-Identifier: Apache-2.0
"""Random histories of a topic that is compacted, trimmed, crashed and read meanwhile (C1 to C14).

Runs of compaction go a few entries at a time, blocks and pieces of a view have a few entries, so that every border is
met, and a crash comes at any step of a run: amid its passes, between two writes, before and after the switch.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker_core.base.errors import NotAllowedError, ServerError
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.base.turns import Turns
from broker_core.broker.broker import Broker
from broker_core.broker.compaction import run as run_module
from broker_core.broker.compaction.topic_compaction import Status, TopicCompaction
from broker_core.broker.consumer import Consumer
from broker_core.broker.requests import AckId, AckKind, SubscribeRequest
from broker_core.broker.sinks import Delivery
from broker_core.broker.upkeep import trim
from broker_core.storage import view_file
from broker_core.storage.store import Store
from broker_core.testing.sim_disk import POLICIES
from broker_core.wire.heads import SendHead, TxnId
from tests.broker.compacted import batch, chunks, messages_of, single
from tests.broker.compaction_model import Kept, Sent, Sequence, check_chunks, expected_view, sent, start_of, table_of
from tests.broker.transactions.clients import begin, end
from tests.broker.world import EARLIEST, TINY, World

KEYS = st.sampled_from(["a", "b", "c", "-"])
VALUES = st.sampled_from(["", "x", "y"])
MESSAGES = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4)
PICK = st.integers(0, 100)
ENCRYPTION: Final = [{"key": "k", "value": b"x"}]


class StepTurns(Turns):
    """Turns in which each worker does one step."""

    def _slice_is_over(self) -> bool:
        return True


class StepWorld(World):
    """A broker whose turns are as short as can be."""

    def open(self) -> None:
        self.store = Store.open(self.disk, "/data", self.clock, self.settings)
        turns = StepTurns(partial(self.clock.call_later, 0), self.clock)
        self.broker = Broker(self.store, self.clock, self.clock, self.settings, turns=turns)


class Reader:
    """A consumer's client that holds what it is given to what it must be given. It has read the view as it was when it
    came."""

    def __init__(self, machine: CompactionMachine, name: str, *, durable: bool, compacted: bool) -> None:
        self.machine = machine
        self.name = name
        self.durable = durable
        self.compacted = compacted
        self.writable = True
        self.closed = False
        self.sequence: Sequence | None = None
        self.given: list[Position] = []
        self.texts: list[str] = []
        self.passed = POSITION_EARLIEST
        """All up to here is acknowledged."""
        self.consumer: Consumer = None  # type: ignore[assignment] # set right after subscribing

    def deliver(self, deliveries: list[Delivery]) -> None:
        assert not self.closed
        for delivery in deliveries:
            entry = delivery.entry
            self.machine.learn()
            assert self.compacted or entry == self.machine.log[entry.position].entry, "C4"
            if self.sequence is not None:
                newest = self.machine.newest if self.compacted else {}
                self.sequence.check(entry, self.machine.log, self.machine.trimmed, newest)
            self.given.append(entry.position)
            self.texts += [text for text, _ in messages_of(entry)]

    def active_changed(self, active: bool) -> None:
        assert not active or self.durable

    def end_of_topic(self) -> None:
        raise AssertionError("nobody terminates the topic")

    def closed_by_broker(self) -> None:
        self.closed = True


class CompactionMachine(RuleBasedStateMachine):
    """``log``: all entries that were ever durable, in order. ``durable_horizon``: the horizon when all was durable. A
    machine has 42 methods, as an action, or what must hold, is one."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(view_file, "BLOCK_BYTES", 150)
        self.patch.setattr(run_module, "PIECE_BYTES", 400)
        self.patch.setattr(run_module, "_ENTRIES_A_STEP", 2)
        self.patch.setattr(run_module, "_GAP", 2)
        self.world: World = StepWorld(TINY, broker_service_compaction_threshold_in_bytes=1 << 40)
        self.log: dict[Position, Sent] = {}
        self.learned = POSITION_EARLIEST
        self.readers: list[Reader] = []
        self.names = 0
        self.horizon = self.durable_horizon = POSITION_EARLIEST
        self.newest: Kept = {}
        self.acked: set[Position] = set()
        self.durable_made = False
        self.unfinished: dict[str, tuple[str, int]] = {}
        self.transactions: list[TxnId] = []
        self.producer, self.answers = self.world.produce()
        self.sent = 0
        self.settle()

    def teardown(self) -> None:
        try:
            if not self.world.store.commits.error:
                self.settle()
                self.read_all()
        finally:
            self.patch.undo()
            self.world.abandon()
            World.running.remove(self.world)

    # -- the model

    @property
    def compaction(self) -> TopicCompaction:
        return self.world.topic().compaction

    @property
    def trimmed(self) -> Position:
        return self.world.topic().log.trimmed

    def learn(self) -> None:
        """What is durable now."""
        log = self.world.topic().log
        start = log.next_valid(self.learned)
        while start <= log.readable_end and (found := log.read(start, 100, 1 << 20)):
            for entry in found:
                if entry.position not in self.world.topic().buffer.aborted:
                    self.log[entry.position] = sent(entry)
                self.learned = entry.position
            start = log.next_valid(self.learned)

    def view_at(self, horizon: Position) -> Kept:
        return expected_view(each for position, each in self.log.items() if position <= horizon)

    @invariant()
    def the_view_is_right(self) -> None:
        """C1, C6, C9 to C14: whatever has happened, the view is what its horizon says, and nothing else was trimmed."""
        self.learn()
        compaction = self.compaction
        assert compaction.damage is None
        assert self.trimmed <= compaction.horizon, "C6"
        assert compaction.horizon <= self.world.topic().log.readable_end, "C12"
        if compaction.horizon == self.horizon:
            return
        assert compaction.horizon >= self.durable_horizon, "7.4.11: the horizon went back"
        self.horizon = compaction.horizon
        self.newest = self.view_at(self.horizon)
        found: Kept = {}
        start = POSITION_EARLIEST
        while entries := compaction.view.read(start, 3, 1 << 20):
            for entry in entries:
                assert entry.position in self.log, "C12"
                assert entry.messages == self.log[entry.position].entry.messages, "C14"
                found[entry.position] = messages_of(entry)
                start = Position(entry.position.ledger, entry.position.entry + 1)
        in_log = {position: each for position, each in self.log.items() if position <= self.horizon}
        check_chunks([in_log[position] for position in found])
        assert found.keys() >= {position for position, each in in_log.items() if each.encrypted}, "C11"
        assert found == self.newest, "C1"

    def settle(self) -> None:
        self.world.settle()
        self.learn()
        self.the_view_is_right()
        self.durable_horizon = self.horizon
        for reader in [each for each in self.readers if each.closed]:
            self.readers.remove(reader)

    # -- messages

    def send(self, body: bytes, messages: int = 1) -> None:
        self.producer.send(SendHead(0, self.sent, messages), body)
        self.sent += 1

    @rule(messages=st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6))
    def publish(self, messages: list[tuple[str, str]]) -> None:
        for key, value in messages:
            self.send(single(f"{key}={value and value + str(self.sent)}"))

    @rule(messages=MESSAGES, codec=st.sampled_from(["none", "zlib", "lz4"]))
    def publish_batch(self, messages: list[tuple[str, str]], codec: str) -> None:
        texts = [f"{key}={value and value + str(self.sent)}" for key, value in messages]
        self.send(batch(texts, codec), len(texts))

    @rule()
    def publish_encrypted(self) -> None:
        self.send(batch(["a=secret", "b=secret"], encryption_keys=ENCRYPTION, partition_key="a"), 2)

    @rule(key=st.sampled_from("ab"))
    def begin_chunks(self, key: str) -> None:
        """The first chunk of a message of three."""
        self.names += 1
        uuid = f"u{self.names}"
        self.unfinished[uuid] = (key, 1)
        self.send(chunks(key, 3, uuid, 0, 1)[0])

    @precondition(lambda self: self.unfinished)
    @rule(which=PICK)
    def go_on_with_chunks(self, which: int) -> None:
        uuid = list(self.unfinished)[which % len(self.unfinished)]
        key, number = self.unfinished[uuid]
        self.send(chunks(key, 3, uuid, number, number + 1)[0])
        if number == 2:
            del self.unfinished[uuid]
        else:
            self.unfinished[uuid] = (key, number + 1)

    # -- transactions

    @precondition(lambda self: len(self.transactions) < 2)
    @rule()
    def begin_transaction(self) -> None:
        self.transactions.append(begin(self.world))
        self.settle()

    @precondition(lambda self: self.transactions)
    @rule(which=PICK, messages=MESSAGES)
    def publish_in_transaction(self, which: int, messages: list[tuple[str, str]]) -> None:
        """C12: hidden until the end, and behind it all that comes."""
        name = self.transactions[which % len(self.transactions)]
        for key, value in messages:
            body = single(f"{key}={value and value + str(self.sent)}")
            self.producer.send(SendHead(0, self.sent, 1, transaction=name), body)
            self.sent += 1

    @precondition(lambda self: self.transactions)
    @rule(which=PICK, commit=st.booleans())
    def end_transaction(self, which: int, commit: bool) -> None:
        """C12: aborted entries are in no view. One that timed out, or that a crash has lost, has ended before."""
        end(self.world, self.transactions.pop(which % len(self.transactions)), commit=commit)
        self.settle()

    # -- time passes

    @rule()
    def turn(self) -> None:
        """One callback of the loop."""
        self.world.clock.run_one()

    @rule()
    def commit(self) -> None:
        """One group commit, without anything else."""
        self.world.commit_once()

    @rule(steps=st.integers(1, 12))
    def some_work(self, steps: int) -> None:
        for _ in range(steps):
            self.world.clock.run_one()
            self.world.commit_once()
            self.the_view_is_right()

    @rule()
    def settle_down(self) -> None:
        self.settle()

    # -- compaction

    @rule()
    def compact(self) -> None:
        try:
            self.compaction.request()
        except NotAllowedError:
            assert self.compaction.is_running

    @rule()
    def compact_all(self) -> None:
        """C13: a second run changes nothing."""
        self.settle()
        if not self.compaction.is_running:
            self.compaction.request()
            self.settle()
            assert self.compaction.status is not Status.ERROR, "C9"
            number = self.compaction.view.number
            if not any(each.chunk for each in self.log.values()):
                end = self.world.topic().log.readable_end
                assert self.horizon == end or end.entry < 0
                self.compaction.request()
                self.settle()
                assert self.compaction.view.number == number, "C13"

    @rule()
    def trim(self) -> None:
        topic = self.world.topic()
        topic.log.roll()
        trim(topic, retained=False)

    @rule()
    def trim_all(self) -> None:
        self.settle()
        self.trim()
        self.settle()

    # -- the end of runs

    @rule(seed=st.integers(0, 1000), policy=st.sampled_from(POLICIES), luck=st.integers(0, 2))
    def crash(self, seed: int, policy: str, luck: int) -> None:
        if luck:
            return
        self.learn()
        self.world.crash(seed, policy)  # type: ignore[arg-type] # one of POLICIES
        self.begin_again()

    @rule(luck=st.integers(0, 2))
    def restart(self, luck: int) -> None:
        if not luck:
            self.settle()
            self.world.restart()
            self.begin_again()

    @rule(luck=st.integers(0, 2))
    def unload(self, luck: int) -> None:
        """7.4.5: a run ends with an unload, and nothing of it is left."""
        if not luck:
            self.world.broker.unload(self.world.topic().name)
            if self.transactions:  # what they have sent has to be stored first
                self.world.settle()
            self.begin_again()

    def begin_again(self) -> None:
        """Clients and runs are gone; what was durable is there."""
        self.readers.clear()
        self.unfinished.clear()
        self.horizon = POSITION_EARLIEST
        self.newest = {}
        self.producer, self.answers = self.world.produce()
        self.sent = 0
        self.the_view_is_right()
        self.settle()
        self.no_file_is_left()

    def no_file_is_left(self) -> None:
        """C9: files that no topic names are removed at the start."""
        disk, number = self.world.disk, self.compaction.view.number
        there = disk.list_files("/data/compacted") if disk.exists("/data/compacted") else []
        assert there == ([f"1-{number}.view"] if number else []) or self.compaction.is_running, there

    # -- readers

    @precondition(lambda self: len(self.readers) < 4)
    @rule(permits=st.sampled_from([0, 1, 3, 10]), compacted=st.sampled_from([True, True, False]), where=PICK)
    def open_reader(self, permits: int, compacted: bool, where: int) -> None:
        """7.4.7: from the beginning, or from any entry, there or not."""
        self.names += 1
        start = POSITION_EARLIEST
        if where > 50 and self.log:
            start = list(self.log)[where % len(self.log)]
        reader = Reader(self, f"r{self.names}", durable=False, compacted=compacted)
        self.subscribe(reader, start, permits)

    @precondition(lambda self: not any(reader.durable for reader in self.readers))
    @rule(permits=st.sampled_from([0, 1, 3, 10]))
    def open_consumer(self, permits: int) -> None:
        """7.4.7: a durable subscription goes on where it was."""
        reader = Reader(self, "d", durable=True, compacted=True)
        self.subscribe(reader, POSITION_EARLIEST, permits)
        self.durable_made = True

    def subscribe(self, reader: Reader, start: Position, permits: int) -> None:
        request = SubscribeRequest(
            subscription=reader.name,
            durable=reader.durable,
            start=start if start.entry >= 0 else None,
            initial_position=EARLIEST,
            read_compacted=reader.compacted,
        )
        try:
            reader.consumer = self.world.topic().subscribe(request, reader)
        except ServerError as error:
            raise AssertionError(f"refused: {error}") from error
        self.readers.append(reader)
        self.bind(reader, start)
        reader.consumer.flow(permits)

    def bind(self, reader: Reader, start: Position) -> None:
        self.the_view_is_right()
        reader.given, reader.texts = [], []
        if reader.compacted:
            acked = self.acked if reader.durable else set()
            reader.sequence = Sequence(self.horizon, self.newest, start_of(start), acked)
        else:
            reader.sequence = Sequence(POSITION_EARLIEST, {}, max(start_of(start), self.trimmed))
        reader.passed = reader.sequence.at

    def pick(self, which: int) -> Reader:
        return self.readers[which % len(self.readers)]

    @precondition(lambda self: self.readers)
    @rule(which=PICK, permits=st.sampled_from([1, 2, 10]))
    def flow(self, which: int, permits: int) -> None:
        self.pick(which).consumer.flow(permits)

    @precondition(lambda self: self.readers)
    @rule(which=PICK, count=st.integers(1, 4))
    def ack_through(self, which: int, count: int) -> None:
        """7.4.7: a cumulative ack in the view moves the place there."""
        reader = self.pick(which)
        if not reader.given or reader.closed:
            return
        position = reader.given[min(count, len(reader.given)) - 1]
        reader.consumer.ack(AckKind.CUMULATIVE, [AckId(position)])
        reader.passed = max(reader.passed, position)
        if reader.sequence is not None:  # it may stand before, after a redelivery
            reader.sequence.at = max(reader.sequence.at, position)
        if reader.durable:
            self.acked |= {each for each in self.log if each <= position}

    @precondition(lambda self: any(reader.durable for reader in self.readers))
    @rule(which=PICK)
    def ack_one(self, which: int) -> None:
        """7.4.7: acks in the view are ordinary."""
        reader = next(each for each in self.readers if each.durable)
        if reader.given and not reader.closed:
            position = reader.given[which % len(reader.given)]
            reader.consumer.ack(AckKind.INDIVIDUAL, [AckId(position)])
            self.acked.add(position)

    @precondition(lambda self: self.readers)
    @rule(which=PICK)
    def redeliver(self, which: int) -> None:
        """All that is not acknowledged comes again, from the view too."""
        reader = self.pick(which)
        if not reader.closed and reader.sequence is not None:
            reader.sequence.at = reader.passed
            reader.consumer.redeliver()

    @precondition(lambda self: self.readers)
    @rule(which=PICK)
    def close_reader(self, which: int) -> None:
        reader = self.pick(which)
        reader.consumer.close()
        self.readers.remove(reader)

    @precondition(lambda self: self.readers)
    @rule(which=PICK, where=PICK)
    def seek(self, which: int, where: int) -> None:
        """7.4.7: to any entry, in the log, in the view, or in neither."""
        reader = self.pick(which)
        if reader.closed or not reader.compacted:
            return
        position = list(self.log)[where % len(self.log)] if self.log and where > 30 else Position(-1, -1)
        outcomes: list[ServerError | None] = []
        reader.consumer.seek(position, None, outcomes.append)
        self.settle()
        assert outcomes == [None]
        if reader.durable:
            self.acked = {each for each in self.log if each < position}
        again = Reader(self, reader.name, durable=reader.durable, compacted=True)
        self.subscribe(again, position, 3)

    @rule()
    def read_all(self) -> None:
        """C2, C4, C7: a reader from the beginning has the newest values, up to the id that it was told to be last."""
        self.settle()
        for compacted in (True, False):
            self.names += 1
            reader = Reader(self, f"r{self.names}", durable=False, compacted=compacted)
            self.subscribe(reader, POSITION_EARLIEST, 0)
            last = reader.consumer.last_message_id().position
            reader.consumer.flow(100_000)
            self.settle()
            assert reader.sequence is not None
            assert not reader.sequence.rest(self.log, self.trimmed, self.newest if compacted else {})
            assert (reader.given[-1] if reader.given else -1) == (last if last.entry >= 0 else -1), "C7"
            if compacted:
                everything = [text for each in self.log.values() for text, _ in each.messages]
                whole = [each for each in self.log.values() if each.chunk is None]
                if len(whole) == len(self.log):
                    assert table_of(reader.texts) == table_of(everything), "C2"
            reader.consumer.close()
            self.readers.remove(reader)


CompactionMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestCompactionMachine = CompactionMachine.TestCase
