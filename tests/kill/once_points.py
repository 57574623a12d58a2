# SPDX-License-Identifier: Apache-2.0
"""Steps of a micro-batch that is written exactly once, and the stop of a process at one of them.

``WatchedSource`` is the product's format with a watch, which travels in options to each process of a query: to the
planner, to the tasks, to the process that commits. The product has no hooks for that; its calls are wrapped in the
processes of the rig alone. The first process that reaches the step of the batch says so in the folder of its run and
waits there, until the rig kills it or lets it go on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from pyspark.sql.datasource import InputPartition, WriterCommitMessage
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from broker_core.base.errors import PulsarishError
from broker_core.base.positions import Position
from broker_core.client import Client
from broker_core.wire.heads import TxnId
from pulsarish_spark.sink.control_topic import ControlTopic
from pulsarish_spark.sink.decisions import Begun, Decision, Intent, Record
from pulsarish_spark.sink.writer import PulsarishBatchWriter, PulsarishStreamWriter
from pulsarish_spark.source import PulsarishSource
from pulsarish_spark.stream_reader import PulsarishStreamReader
from tests.kill.once_lies import lie

if TYPE_CHECKING:
    import pyarrow as pa

Step = Literal[
    "given",
    "noted",
    "planned",
    "begun",
    "started",
    "intended",
    "writing",
    "left",
    "written",
    "decided",
    "committing",
    "committed",
    "logged",
]
STEPS: Final[tuple[Step, ...]] = get_args(Step)
SOURCE_STEPS: Final[tuple[Step, ...]] = ("given", "noted", "planned")
"""Steps of a source that is a queue."""
TASK_STEPS: Final[tuple[Step, ...]] = ("started", "intended", "writing", "left")
"""Steps that a worker reaches; the driver reaches the others."""
DECIDED: Final[tuple[Step, ...]] = ("decided", "committing", "committed", "logged")
"""After these a batch is not written again."""
SETTLING: Final = "settling"
"""A driver has ended one transaction of an earlier one. Only a second driver comes there."""
NEVER: Final = "never"

WORDS: Final[dict[str, str]] = {
    "given": "the batch is locked, Spark has not noted it",
    "noted": "Spark has noted the batch",
    "planned": "its tasks are planned",
    "begun": "the batch has begun",
    "started": "a task has begun",
    "intended": "a task has told of its transaction",
    "writing": "a task has written a part of its rows",
    "left": "a task has written all of its rows",
    "written": "all tasks are done",
    "decided": "the batch is decided",
    "committing": "some of its transactions are committed",
    "committed": "all are committed, Spark has not noted it",
    "logged": "Spark has noted that the batch is done",
}

FORMAT: Final = "pulsarish-watched"
REACHED: Final = "reached"
GO: Final = "go"
_PREFIX: Final = "rig."


@dataclass(frozen=True, slots=True)
class Watch:
    """The stop at ``step`` of ``batch``. ``folder``: of the run; ``checkpoint``: tells which batch is running."""

    folder: str
    checkpoint: str
    step: str = NEVER
    batch: int = 0
    lie: str = ""
    ends: int = 1
    """Transactions that are ended before "committing" and "settling"."""

    def options(self) -> dict[str, str]:
        """Options of Spark that say so."""
        return {_PREFIX + each.name: str(getattr(self, each.name)) for each in fields(self)}

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Watch:
        """The watch that ``options`` carry."""
        given = {each.name: options[_PREFIX + each.name] for each in fields(cls)}
        numbers = int(given.pop("batch")), int(given.pop("ends"))
        return cls(**given, batch=numbers[0], ends=numbers[1])


def batches_done(checkpoint: str) -> int:
    """Batches that the commit log of a checkpoint has; so the number of the one that runs."""
    try:
        return 1 + max((int(name) for name in os.listdir(Path(checkpoint) / "commits") if name.isdecimal()), default=-1)
    except FileNotFoundError:
        return 0


# -- the watch of this process

_watch: Watch | None = None
_ends_are_commits = False
"""Whether this process has decided about its batch, and not begun the next one."""
_ends = 0
"""Transactions that it has ended since."""


def watch(new: Watch) -> None:
    """Have this process work for a query with that watch from now on."""
    global _watch
    if _watch is None:
        _wrap()
        lie(new.lie)
    _watch = new


def reach(step: str) -> None:
    """Wait here if the rig wants that."""
    asked = _watch
    if asked is None or asked.step != step:
        return
    if batches_done(asked.checkpoint) != asked.batch + (step == "logged"):
        return
    folder = Path(asked.folder)
    mine = folder / f"{REACHED}-{os.getpid()}-{threading.get_ident()}"
    mine.write_text(str(os.getpid()))
    try:
        os.link(mine, folder / REACHED)  # The first one that comes here.
    except FileExistsError:
        return
    (folder / GO).read_bytes()  # A pipe: returns when the rig has opened and closed it.


def _wrap() -> None:
    append, end = ControlTopic.append, Client.end_transactions

    def appended(self: ControlTopic, record: Record) -> Position:
        global _ends_are_commits, _ends
        if isinstance(record, Begun):
            reach("logged")
        position = append(self, record)
        _ends_are_commits, _ends = isinstance(record, Decision), 0
        steps: tuple[tuple[type[Record], str], ...] = ((Begun, "begun"), (Intent, "intended"), (Decision, "decided"))
        for kind, step in steps:
            if isinstance(record, kind):
                reach(step)
        return position

    def ended(self: Client, txn_ids: Sequence[TxnId], *, commit: bool) -> list[PulsarishError | None]:
        global _ends
        outcomes = []
        for txn_id in txn_ids:  # One by one, so that some are not ended yet when one is.
            outcomes += end(self, [txn_id], commit=commit)
            _ends += 1
            if _watch is not None and _ends >= _watch.ends:
                reach("committing" if _ends_are_commits else SETTLING)
        return outcomes

    names: tuple[tuple[Any, str, object], ...] = (
        (ControlTopic, "append", appended),
        (Client, "end_transactions", ended),
    )
    for owner, name, value in names:
        setattr(owner, name, value)


class WatchedWriter(PulsarishStreamWriter):
    """The stream sink that users have, with a watch."""

    watch: Watch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        watch(self.watch)
        message = super().write(_noticed(iterator))
        reach("left")
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        reach("written")
        super().commit(messages, batchId)
        reach("committed")


class WatchedJob(PulsarishBatchWriter):
    """The batch sink that users have, with a watch."""

    watch: Watch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        watch(self.watch)
        message = super().write(_noticed(iterator))
        reach("left")
        return message

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        reach("written")
        super().commit(messages)
        reach("committed")


def _noticed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """``batches``, of which the sink has written one when it asks for the next."""
    reach("started")
    for batch in batches:
        yield batch
        reach("writing")


class WatchedReader(PulsarishStreamReader):
    """The stream source that users have, with a watch."""

    watch: Watch

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        reach("logged")
        end = super().latestOffset(start, limit)
        if end != start:
            reach("given")
        return end

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        reach("noted")
        planned = super().partitions(start, end)
        reach("planned")
        return planned


class WatchedSource(PulsarishSource):
    """The format ``pulsarish`` with a watch."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__({name: value for name, value in options.items() if not name.startswith(_PREFIX)})
        self._watch = Watch.of(options)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> PulsarishStreamWriter:  # noqa: N802 - Spark's name
        watch(self._watch)
        made = super().streamWriter(schema, overwrite)
        made.__class__ = WatchedWriter
        made.__dict__["watch"] = self._watch
        return made

    def writer(self, schema: StructType, overwrite: bool) -> PulsarishBatchWriter:
        watch(self._watch)
        made = super().writer(schema, overwrite)
        made.__class__ = WatchedJob
        made.__dict__["watch"] = self._watch
        return made

    def streamReader(self, schema: StructType) -> PulsarishStreamReader:  # noqa: N802 - Spark's name
        watch(self._watch)
        made = super().streamReader(schema)
        made.__class__ = WatchedReader
        made.__dict__["watch"] = self._watch
        return made
