# SPDX-License-Identifier: Apache-2.0
"""Random histories of one query on one kind of broker, under an administrator who does the worst: ``CellMachine``.

Invariant: the rows that committed batches delivered are the rows that were sent, each once and in the order of its
partition; or what is missing was told, by DataLossError where ``failOnDataLoss`` is true, else by a warning that names
the partition and, where indexes are known, how many messages. Nothing else is an error, and nothing is told to be
missing while all is there.

Model: for each partition the rows that no committed batch has delivered. What of them is still there is asked of the
broker itself, by a plain reader, whenever it matters: it deletes when it likes. Where nobody can know whether
messages are missing (``unknowable``) an error is no false one. What an administrator does to a subscription is undone
by the checkpoint, or it is a loss.

The one silence that is allowed, where the checkpoint has no index: rows that came, were passed over on the subscription
by somebody, and were deleted, all while the query did not look (``passed_unseen``). Nothing that the broker keeps tells
them from rows that the query has read. Where a broker tells indexes, that can only be before the first row of a
partition; and rows of a partition that the query has not heard of are nothing to it.
"""

from __future__ import annotations

import functools
import itertools
import logging
import re
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, ClassVar, Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from broker_core.base.errors import TopicNotFoundError
from broker_core.client import Client
from broker_core.client.admin import AdminRefusedError
from broker_core.testing.running_broker import RunningBroker
from pulsarish_spark.losses.loss import DataLossError
from tests.apache_pulsar.start import INDEXED, SHORT_LIVED, running
from tests.spark.brokers import TIMEOUT_S, Broker, Kind
from tests.spark.engine import Engine

SUBSCRIPTION: Final = "the-query"
PARTITIONS_MAX: Final = 3
PICK: Final = st.integers(0, 100)

RESTARTED_ONE_IN: Final = 6
"""In so many histories the broker is restarted in one. It takes as long as a hundred other steps."""

_COUNT: Final = re.compile(r": (\d+) messages? lost")
_log = logging.getLogger("pulsarish_spark")


def step(function: Callable[..., None]) -> Callable[..., None]:
    """A rule whose failure ends the history: nothing is checked behind it."""

    @functools.wraps(function)
    def stepped(self: CellMachine, **arguments: Any) -> None:
        self.whole = False
        function(self, **arguments)
        self.whole = True

    return stepped


class CellMachine(RuleBasedStateMachine):
    """One query on one topic of ``cell``; it can be made inside of ``on`` or ``surroundings``. It has 40 methods: what
    an administrator does, or what must hold, is one."""

    kind: ClassVar[Kind] = "pulsarish"
    cell: ClassVar[Broker]
    client: ClassVar[Client]

    @classmethod
    @contextmanager
    def on(cls, cell: Broker) -> Iterator[None]:
        """Histories inside of the block happen on ``cell``."""
        with Client(cell.service_url) as cls.client:
            cls.cell = cell
            yield

    @classmethod
    @contextmanager
    def shared_broker(cls) -> Iterator[Broker | None]:
        """A broker for histories of several processes; None where each process needs its own, as it restarts it."""
        if cls.kind == "pulsarish":
            yield None
        else:
            with cls._broker() as cell:
                yield cell

    @classmethod
    @contextmanager
    def _broker(cls) -> Iterator[Broker]:
        with tempfile.TemporaryDirectory() as directory, _started(cls.kind, Path(directory)) as cell:
            yield cell

    @classmethod
    @contextmanager
    def surroundings(cls, shared: Broker | None) -> Iterator[None]:
        """A broker, ``shared`` or one of its own, for the length of the block, and the log on for who listens to it."""
        disabled = logging.root.manager.disable
        logging.disable(logging.NOTSET)
        logging.root.addHandler(silent := logging.NullHandler())
        propagate, _log.propagate = _log.propagate, False
        try:
            with nullcontext(shared) if shared else cls._broker() as cell, cls.on(cell):
                yield
        finally:
            _log.propagate = propagate
            logging.root.removeHandler(silent)
            logging.disable(disabled)

    def __init__(self) -> None:
        super().__init__()
        self.whole = True
        self.topic = f"cell-{uuid.uuid4().hex[:10]}"
        self.partitions = 0
        self.exists = False
        self.numbers = itertools.count()
        self.home: dict[int, int] = {}
        """The partition of each row."""
        self.pending: defaultdict[int, list[int]] = defaultdict(list)
        self.unknowable: set[int] = set()
        """Partitions of which the broker cannot tell any more whether messages are missing."""
        self.unsubscribed: set[int] = set()
        """Partitions whose subscription was deleted: where nothing is left to go on at, nobody knows what it kept."""
        self.begun_with: set[int] = set()
        """Partitions of which anything was read: of the others the checkpoint has no message to hold on to."""
        self.unseen: defaultdict[int, set[int]] = defaultdict(set)
        """Rows that came since the query looked last."""
        self.passed_unseen: defaultdict[int, set[int]] = defaultdict(set)
        """Of these, those that somebody passed over on the subscription before the query could see them."""
        self.passed_unheard: defaultdict[int, set[int]] = defaultdict(set)
        """Of these, those in partitions that the query did not know: it begins there where the subscription stands."""
        self.warned: defaultdict[int, list[str]] = defaultdict(list)
        """What was said of each partition since rows of it were last missing, and the query went on."""
        self.warnings = _Warnings()
        self.begun: list[int] | None = None
        self.with_restarts = False
        self.fail = True
        self.failed = False
        self.engine: Engine | None = None

    @initialize(
        partitioned=st.booleans(),
        fail=st.booleans(),
        limit=st.sampled_from([0, 0, 3]),
        with_restarts=st.sampled_from([False] * (RESTARTED_ONE_IN - 1) + [True]),
    )
    @step
    def begin(self, partitioned: bool, fail: bool, limit: int, with_restarts: bool) -> None:
        self.with_restarts = with_restarts
        self.partitions = 2 if partitioned else 0
        self.make_topic()
        self.fail = fail
        options: dict[str, str | int] = {"maxOffsetsPerTrigger": limit} if limit else {}
        self.engine = Engine(
            self.cell.service_url,
            topic=self.topic,
            subscriptionName=SUBSCRIPTION,
            failOnDataLoss=_flag(fail),
            **options,
        )
        self.run_batch()

    def teardown(self) -> None:
        try:
            if self.whole:
                self.finish()
        finally:
            if self.engine is not None:
                self.engine.stop()
            self.warnings.close()
            if self.exists:
                self.cell.delete(self.topic)

    # -- the query

    @rule()
    @step
    def trigger(self) -> None:
        self.run_batch()

    @rule()
    @step
    def die_in_a_batch(self) -> None:
        """Behind its rows and before its commit; the next trigger replays it."""
        self.begun = self.guarded(self.query.attempt)
        self.query.restart()

    @rule(fail=st.booleans())
    @step
    def restart(self, fail: bool) -> None:
        self.fail = fail
        self.query.restart(failOnDataLoss=_flag(fail))

    # -- writers

    @precondition(lambda self: self.exists)
    @rule(where=PICK, count=st.integers(1, 5), together=st.booleans())
    @step
    def send(self, where: int, count: int, together: bool) -> None:
        self.send_to(where % max(self.partitions, 1), count, together=together)

    # -- the administrator

    @precondition(lambda self: self.exists)
    @rule()
    @step
    def unload(self) -> None:
        self.cell.unload(self.topic)

    @precondition(lambda self: self.exists)
    @rule(where=PICK)
    @step
    def trim(self, where: int) -> None:
        self.trim_partition(where % max(self.partitions, 1))

    @precondition(lambda self: self.exists)
    @rule()
    @step
    def unload_and_trim(self) -> None:
        """What was acknowledged, or has no subscription, goes."""
        self.cell.unload(self.topic)
        for partition in range(max(self.partitions, 1)):
            self.trim_partition(partition)

    @precondition(lambda self: self.exists)
    @rule(where=PICK, count=st.integers(1, 4))
    @step
    def skip(self, where: int, count: int) -> None:
        partition = where % max(self.partitions, 1)
        self.pass_over(partition, lambda name: self.cell.skip(name, SUBSCRIPTION, count))

    @precondition(lambda self: self.exists)
    @rule(where=PICK)
    @step
    def skip_all(self, where: int) -> None:
        self.pass_over(where % max(self.partitions, 1), lambda name: self.cell.skip_all(name, SUBSCRIPTION))

    @precondition(lambda self: self.exists)
    @rule(where=PICK)
    @step
    def expire(self, where: int) -> None:
        self.pass_over(where % max(self.partitions, 1), lambda name: self.cell.expire(name, SUBSCRIPTION, 1))

    @precondition(lambda self: self.exists)
    @rule(where=PICK)
    @step
    def rewind(self, where: int) -> None:
        """To the first message that is there."""
        self.tamper(where % max(self.partitions, 1), lambda name: self.cell.rewind(name, SUBSCRIPTION))

    @precondition(lambda self: self.exists)
    @rule(where=PICK)
    @step
    def unsubscribe(self, where: int) -> None:
        partition = where % max(self.partitions, 1)
        self.tamper(partition, lambda name: self.cell.unsubscribe(name, SUBSCRIPTION))
        self.unsubscribed.add(partition)

    @precondition(lambda self: self.exists)
    @rule()
    @step
    def delete(self) -> None:
        self.cell.delete(self.topic)
        self.exists = False
        self.unknowable.update(self.all_partitions)
        for partition in set(self.pending) - self.query.known_partitions:
            self.pending[partition].clear()  # The query has never heard of it.

    @precondition(lambda self: not self.exists)
    @rule()
    @step
    def make_anew(self) -> None:
        self.make_topic()

    @precondition(lambda self: self.exists and 0 < self.partitions < PARTITIONS_MAX)
    @rule()
    @step
    def grow(self) -> None:
        self.partitions += 1
        self.cell.grow(self.topic, self.partitions)

    @precondition(lambda self: self.with_restarts and self.cell.restart is not None)
    @rule()
    @step
    def restart_the_broker(self) -> None:
        assert self.cell.restart is not None
        self.cell.restart()

    # -- what rules are made of

    @property
    def query(self) -> Engine:
        assert self.engine is not None
        return self.engine

    @property
    def all_partitions(self) -> range:
        return range(PARTITIONS_MAX if self.partitions else 1)

    def name(self, partition: int) -> str:
        return f"{self.topic}-partition-{partition}" if self.partitions else self.topic

    def make_topic(self) -> None:
        """Nobody but an administrator makes topics: neither the query nor this machine's readers."""
        assert not self.cell.topic_exists(self.topic), "a topic that was deleted is there again"
        self.cell.create(self.topic, self.partitions)
        self.exists = True

    def send_to(self, partition: int, count: int, *, together: bool) -> None:
        rows = list(itertools.islice(self.numbers, count))
        self.home |= dict.fromkeys(rows, partition)
        options = {} if together else {"batching_max_messages": 1}
        self.cell.send(self.name(partition), [str(row) for row in rows], self.client, **options)
        self.pending[partition] += rows
        self.unseen[partition] |= set(rows)

    def trim_partition(self, partition: int) -> None:
        """What nothing has kept goes unseen, where the query knows of no message before it."""
        if partition not in self.query.known_partitions or partition in self.unsubscribed:
            self.passed_unseen[partition] |= self.unseen[partition]
        self.cell.trim(self.name(partition))

    def tamper(self, partition: int, change: Callable[[str], None]) -> None:
        """Change the subscription, if there is one."""
        with suppress(TopicNotFoundError, AdminRefusedError):
            change(self.name(partition))
        if not self.cell.tells_indexes:
            self.unknowable.add(partition)

    def pass_over(self, partition: int, change: Callable[[str], None]) -> None:
        """Acknowledge rows in the query's name."""
        self.tamper(partition, change)
        self.passed_unseen[partition] |= self.unseen[partition]
        if partition not in self.query.known_partitions:
            self.passed_unheard[partition] |= self.unseen[partition]

    def run_batch(self) -> bool:
        """One batch; whether there was one."""
        rows = self.guarded(self.query.trigger)
        replayed, self.begun = self.begun, None
        if rows is None:
            return False
        if replayed is not None:
            assert set(rows) <= set(replayed), f"the replay of {replayed} is {rows}"
        for partition in self.all_partitions:
            self.take(partition, [row for row in rows if self.home[row] == partition])
        return True

    def guarded(self, run: Callable[[], list[int] | None]) -> list[int] | None:
        """What a batch delivers, None for nothing; what it says is compared with what is there."""
        try:
            rows, loss = run(), None
        except DataLossError as error:
            rows, loss = None, error
        if loss is not None:
            assert self.fail, f"failOnDataLoss is false: {loss}"
            self.failed = True
            self.listen(str(loss))
        if self.begun is None:  # A replay looks at nothing new.
            for partition in self.query.known_partitions:
                self.unseen.pop(partition, None)
        for text in self.warnings.taken():
            for partition in self.listen(text):
                self.warned[partition].append(text)
        return rows

    def listen(self, text: str) -> list[int]:
        """The partitions of which something is said to be missing, which must not be all there."""
        named = [at for at in self.all_partitions if f"{self.topic}[{at}]" in text]
        assert named, f"no partition is named: {text}"
        for partition in named:
            there = f"{self.pending[partition]} of partition {partition} are there"
            assert self.is_excused(partition) or self.missing(partition), f"{there}: {text}"
        return named

    def is_excused(self, partition: int) -> bool:
        """Whether the broker cannot tell that nothing is missing."""
        lost_from_sight = not self.pending[partition] or partition not in self.begun_with
        return partition in self.unknowable or (partition in self.unsubscribed and lost_from_sight)

    def take(self, partition: int, rows: list[int]) -> None:
        """Rows of one partition that a committed batch has delivered."""
        pending = self.pending[partition]
        assert rows == [row for row in pending if row in set(rows)], f"{rows} came where {pending} were to be read"
        if rows:
            end = pending.index(rows[-1]) + 1
            self.settle(partition, [row for row in pending[:end] if row not in rows])
            self.begun_with.add(partition)
            del pending[:end]
            if not pending:
                self.unknowable.discard(partition)

    def settle(self, partition: int, left_out: list[int]) -> None:
        """Rows are missing for good: they are gone, and it was told."""
        if not left_out:
            return
        there = set(left_out) - set(self.missing(partition)) - self.passed_unheard[partition]
        assert not there, f"{sorted(there)} are there and were left out"
        warned = dict.fromkeys(self.warned.pop(partition, []))
        has_index = self.cell.tells_indexes and partition in self.begun_with
        if not (warned or has_index) and set(left_out) <= self.passed_unseen[partition]:
            return  # It looks as if the query itself had read and acknowledged them.
        assert warned, f"{left_out} of partition {partition} are missing, and nothing was said"
        counts = [int(found[1]) for found in map(_COUNT.search, warned) if found]
        if self.cell.tells_indexes and len(counts) == len(warned):
            assert sum(counts) == len(left_out), f"{left_out} of partition {partition} are missing: {list(warned)}"

    def missing(self, partition: int) -> list[int]:
        """Rows that are to be read and not there any more."""
        there = self.rows_there(partition)
        return [row for row in self.pending[partition] if row not in there]

    def finish(self) -> None:
        """One more row for each partition, so that whatever is missing shows; then nothing may be left."""
        if not self.exists:
            self.make_topic()
        self.query.restart()
        for partition in range(max(self.partitions, 1)):
            self.send_to(partition, 1, together=False)
        self.failed = False
        while self.run_batch():
            pass
        if self.failed:
            self.fail = False
            self.query.restart(failOnDataLoss="false")
            while self.run_batch():
                pass
        left = {partition: rows for partition, rows in self.pending.items() if rows}
        assert not left, f"{left} were never delivered"

    def rows_there(self, partition: int) -> set[int]:
        if not self.exists or partition >= max(self.partitions, 1):
            return set()
        found: set[int] = set()
        with self.client.create_reader(f"persistent://public/default/{self.name(partition)}") as reader:
            while reader.has_message_available():
                found.add(int(reader.read_next(TIMEOUT_S).value or b""))
        return found


class PulsarishCell(CellMachine):
    """On our broker, which is restarted too."""


class ApacheCell(CellMachine):
    """On an Apache Pulsar as it comes."""

    kind = "apache"


class ApacheIndexedCell(CellMachine):
    """On an Apache Pulsar that tells clients message indexes."""

    kind = "apache-indexed"


CELL_MACHINES: Final = {each.kind: each for each in (PulsarishCell, ApacheCell, ApacheIndexedCell)}
for _machine in CELL_MACHINES.values():
    _machine.TestCase.settings = settings(max_examples=6, stateful_step_count=15, deadline=None, derandomize=True)


@contextmanager
def _started(kind: Kind, directory: Path) -> Iterator[Broker]:
    if kind == "pulsarish":
        with RunningBroker(directory / "data") as ours:
            yield Broker(ours.service_url, ours.http_url, kind, ours.restart)
    else:
        with running(directory / "pulsar", INDEXED if kind == "apache-indexed" else {}, SHORT_LIVED) as theirs:
            yield Broker(theirs.service_url, theirs.http_url, kind)


class _Warnings(logging.Handler):
    """What the source says to the log while a machine lives."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._texts: list[str] = []
        _log.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if (text := record.getMessage()).startswith("data loss what="):
            self._texts.append(text)

    def taken(self) -> list[str]:
        texts, self._texts = self._texts, []
        return texts

    def close(self) -> None:
        _log.removeHandler(self)
        super().close()


def _flag(value: bool) -> str:
    return str(value).lower()
