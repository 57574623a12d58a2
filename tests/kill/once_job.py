# SPDX-License-Identifier: Apache-2.0
"""A stream into the exactly-once sink in processes of its own, without Spark: what ``once_rig`` kills by the hundred.

A driver calls the sink in Spark's order, as Spark does: a writer for each batch is pickled to the tasks, which are in
forked workers and know their batch from Spark's task context; another writer commits. Commit and offset log are files
under Spark's names, and a batch that another driver has noted meanwhile ends this one, as in Spark. A task is tried
four times. The rows of a batch are always the same ones; their order and the number of tasks are the driver's.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StringType, StructField, StructType

import broker_core.client.columnar.entry_writer  # noqa: F401 - imported before a process is forked, which takes seconds
import pulsarish_spark.sink.columns
import pulsarish_spark.sink.targets  # noqa: F401
from pulsarish_spark.losses import loss
from tests.kill.once_points import Watch, WatchedSource, batches_done

ROWS: Final = 60
"""Rows of a batch."""
ARROW_ROWS: Final = 10
"""Rows that a task is handed at a time."""
ATTEMPTS: Final = 4
SCHEMA: Final = StructType([StructField("key", StringType()), StructField("value", StringType())])
LOG: Final = "log"
SUBSCRIPTION: Final = "work"
QUIET_MS: Final = 2_000
pa.table({"value": [""]})  # Arrow imports much when it makes its first table.


Task: TypeAlias = Sequence[str] | tuple[bytes, InputPartition]
"""The rows of a task, or a pickled reader and what the task reads."""


@dataclass(frozen=True, slots=True)
class Job:
    """One driver of a stream. ``until``: batches after which it ends; ``seed``: of the order of rows; ``queue``: the
    topic of which it takes messages until nothing comes, "" where it has rows of its own; ``is_batch``: a batch write,
    of one batch; ``jars``: of Kafka's sink."""

    service_url: str
    topic: str
    tasks: int
    until: int
    seed: int
    watch: Watch
    queue: str = ""
    is_batch: bool = False
    jars: str = ""

    @property
    def folder(self) -> Path:
        """Of this run."""
        return Path(self.watch.folder)

    def sink_options(self) -> dict[str, str]:
        """Options of the sink, as a user gives them."""
        return {
            "service.url": self.service_url,
            "topic": self.topic,
            "deliveryGuarantee": "exactly-once",
            **({"transactionalId": self.topic} if self.queue or self.is_batch else {}),
            **({} if self.is_batch else {"checkpointLocation": self.watch.checkpoint}),
            **self.watch.options(),
        }

    def source_options(self) -> dict[str, str]:
        """Options of the source, as a user gives them: the name of the sink has both decide together."""
        return {
            "service.url": self.service_url,
            "topic": self.queue,
            "subscriptionType": "Shared",
            "subscriptionName": SUBSCRIPTION,
            "queueGuarantee": "lock",
            "maxOffsetsPerTrigger": str(ROWS),
            "availableNowQuietMs": str(QUIET_MS),
            "transactionalId": self.topic,
            **self.watch.options(),
        }


def rows_of(batch: int) -> list[str]:
    """Values of a batch."""
    return [f"{batch}:{row}" for row in range(ROWS)]


def run_job(job: Job) -> None:
    """The driver, to its end."""
    write_output_to(job.folder / LOG)
    workers = Workers(job.tasks)
    if job.queue:
        Queue(job, workers).run()
        return
    if job.is_batch:  # Whether it was done is for the sink to know.
        write_batch(job, workers, 0, shuffled_rows(job, 0))
        return
    for number in range(batches_done(job.watch.checkpoint), job.until):
        write_batch(job, workers, number, shuffled_rows(job, number))


def shuffled_rows(job: Job, number: int) -> list[list[str]]:
    """The rows of a batch by tasks."""
    rows = rows_of(number)
    random.Random(job.seed).shuffle(rows)
    return [rows[task :: job.tasks] for task in range(job.tasks)]


def write_batch(job: Job, workers: Workers, number: int, tasks: Sequence[Task]) -> None:
    """Have a batch written, and note that."""
    source = WatchedSource(job.sink_options())
    writer = (source.writer if job.is_batch else source.streamWriter)(SCHEMA, overwrite=False)
    sent = pickle.dumps(writer)
    query = Path(job.watch.checkpoint).parent.name
    messages = workers.run(sent, query, number, tasks)
    committer = pickle.loads(sent) if job.is_batch else source.streamWriter(SCHEMA, overwrite=False)
    about = () if job.is_batch else (number,)
    if failed := [each for each in messages if isinstance(each, str)]:
        committer.abort([None if isinstance(each, str) else each for each in messages], *about)
        raise RuntimeError(f"a task of batch {number} failed {ATTEMPTS} times, at last with {failed[0]}")
    committer.commit(messages, *about)
    if not job.is_batch:
        note(job.watch.checkpoint, "commits", number, {})


class Queue:
    """A driver whose source is a queue, in Spark's order of calls."""

    def __init__(self, job: Job, workers: Workers) -> None:
        self._job = job
        self._workers = workers
        self._source = WatchedSource(job.source_options())
        self._schema = self._source.schema()
        self._reader = self._source.streamReader(self._schema)
        os.cpu_count = lambda: job.tasks  # Among so many tasks a batch is divided.

    def run(self) -> None:
        """Until nothing comes any more."""
        self._reader.prepareForTriggerAvailableNow()
        number = batches_done(self._job.watch.checkpoint)
        while self._run_batch(number):
            number += 1

    def _run_batch(self, number: int) -> bool:
        """Whether there was one."""
        start = self._noted(number - 1) or self._reader.initialOffset()
        end = self._noted(number)
        if end is None:
            end = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
            if end == start:
                return False
            note(self._job.watch.checkpoint, "offsets", number, end)
            if number:
                self._reader.commit(start)
        reader = pickle.dumps(self._source.streamReader(self._schema))
        planned = self._reader.partitions(start, end)
        write_batch(self._job, self._workers, number, [(reader, each) for each in planned])
        return True

    def _noted(self, number: int) -> Any:
        path = Path(self._job.watch.checkpoint) / "offsets" / str(number)
        return json.loads(path.read_text()) if path.exists() else None


def note(checkpoint: str, log: str, number: int, what: object) -> None:
    """Add to one of Spark's logs; FileExistsError if another driver was faster."""
    folder = Path(checkpoint) / log
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f".{number}-{os.getpid()}"
    with new.open("w") as file:
        json.dump(what, file)
        file.flush()
        os.fsync(file.fileno())
    os.link(new, folder / str(number))


class Workers:
    """Processes that run tasks, one for each, and one to spare for one that is killed."""

    def __init__(self, tasks: int) -> None:
        self._pipes: list[Connection] = []
        for _ in range(tasks + 1):
            self._fork()

    def run(self, writer: bytes, query: str, number: int, tasks: Sequence[Task]) -> list[Any]:
        """The result of each task, or the text of its last failure."""
        work = [(writer, query, number, task) for task in tasks]
        for place, each in enumerate(work):
            self._pipes[place].send(each)
        return [self._end(place, each) for place, each in enumerate(work)]

    def _end(self, place: int, work: Any) -> Any:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                answer = self._pipes[place].recv()
            except (EOFError, ConnectionResetError):
                self._pipes[place] = self._pipes.pop()
                answer = "its worker ended"
            if not isinstance(answer, str) or attempt == ATTEMPTS:
                return answer
            self._pipes[place].send(work)
        raise AssertionError("unreachable")

    def _fork(self) -> None:
        ours, theirs = Pipe()
        if os.fork() == 0:
            for each in (*self._pipes, ours):
                each.close()  # Else nobody would notice the end of the driver.
            _serve(theirs)
        theirs.close()
        self._pipes.append(ours)


def _serve(pipe: Connection) -> None:
    """Run tasks until the driver is gone."""
    try:
        while True:
            pipe.send(_run_task(*pipe.recv()))
    except (EOFError, OSError):
        os._exit(0)


def _run_task(writer: bytes, query: str, number: int, task: Task) -> Any:
    context = TaskContext._getOrCreate()
    context._localProperties = {loss._QUERY_ID: query, loss._BATCH_ID: str(number)}
    try:
        return pickle.loads(writer).write(_rows_of_task(task))
    except Exception as failure:  # noqa: BLE001 - it is told to the driver
        traceback.print_exc()
        return f"{type(failure).__name__}: {failure}"


def _rows_of_task(task: Task) -> Iterator[pa.RecordBatch]:
    """Batches of rows as Spark hands them to the writer."""
    if isinstance(task, tuple):
        reader, partition = task
        tables = [pa.Table.from_batches([each]) for each in pickle.loads(reader).read(partition)]
        table = pa.concat_tables(tables) if tables else pa.table({"key": [], "value": []})
    else:
        table = pa.table({"key": [f"k{value}" for value in task], "value": list(task)})
    yield from table.select(["key", "value"]).to_batches(ARROW_ROWS)


def write_output_to(path: Path) -> None:
    """Of this process and those that it starts."""
    with path.open("ab") as log:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(log.fileno(), stream.fileno())
