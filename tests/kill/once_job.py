# SPDX-License-Identifier: Apache-2.0
"""A stream into the exactly-once sink in processes of its own, without Spark: what ``once_rig`` kills by the hundred.

A driver calls the sink in Spark's order, as Spark does: a writer for each batch is pickled to the tasks, which are in
forked workers and know their batch from Spark's task context; another writer commits. Commit and offset log are files
under Spark's names, and a batch that another driver has noted meanwhile ends this one, as in Spark. A task is tried
four times. The rows of a batch are always the same ones; their order and the number of tasks are the driver's.
"""

from __future__ import annotations

import os
import pickle
import random
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructField, StructType

from pulsarish_spark.losses import loss
from tests.kill.once_points import Watch, WatchedSource, batches_done

ROWS: Final = 60
"""Rows of a batch."""
ARROW_ROWS: Final = 10
"""Rows that a task is handed at a time."""
ATTEMPTS: Final = 4
SCHEMA: Final = StructType([StructField("key", StringType()), StructField("value", StringType())])
LOG: Final = "log"


@dataclass(frozen=True, slots=True)
class Job:
    """One driver of a stream. ``until``: batches after which it ends; ``seed``: of the order of rows."""

    service_url: str
    topic: str
    tasks: int
    until: int
    seed: int
    watch: Watch

    @property
    def folder(self) -> Path:
        """Of this run."""
        return Path(self.watch.folder)

    def sink_options(self) -> dict[str, str]:
        """What a user says of the sink."""
        return {
            "service.url": self.service_url,
            "topic": self.topic,
            "deliveryGuarantee": "exactly-once",
            "checkpointLocation": self.watch.checkpoint,
            **self.watch.options(),
        }


def rows_of(batch: int) -> list[str]:
    """Values of a batch."""
    return [f"{batch}:{row}" for row in range(ROWS)]


def run_job(job: Job) -> None:
    """The driver, to its end."""
    write_output_to(job.folder / LOG)
    workers = Workers(job.tasks)
    for number in range(batches_done(job.watch.checkpoint), job.until):
        _run_batch(job, workers, number)


def _run_batch(job: Job, workers: Workers, number: int) -> None:
    source = WatchedSource(job.sink_options())
    writer = source.streamWriter(SCHEMA, overwrite=False)
    rows = rows_of(number)
    random.Random(job.seed).shuffle(rows)
    tasks = [rows[task :: job.tasks] for task in range(job.tasks)]
    query = Path(job.watch.checkpoint).parent.name
    messages = workers.run(pickle.dumps(writer), query, number, tasks)
    committer = source.streamWriter(SCHEMA, overwrite=False)
    if failed := [each for each in messages if isinstance(each, str)]:
        committer.abort([None if isinstance(each, str) else each for each in messages], number)
        raise RuntimeError(f"a task of batch {number} failed {ATTEMPTS} times, at last with {failed[0]}")
    committer.commit(messages, number)
    note_done(job.watch.checkpoint, number)


def note_done(checkpoint: str, number: int) -> None:
    """The commit log of Spark; FileExistsError if another driver was faster."""
    folder = Path(checkpoint) / "commits"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / str(number)).open("x") as file:
        os.fsync(file.fileno())


class Workers:
    """Processes that run tasks, one for each, and one to spare for each that is killed."""

    def __init__(self, tasks: int) -> None:
        self._pipes: list[Connection] = []
        for _ in range(tasks + 1):
            self._fork()

    def run(self, writer: bytes, query: str, number: int, tasks: Sequence[Sequence[str]]) -> list[Any]:
        """What each task returns, or the text of its last failure."""
        for task, rows in enumerate(tasks):
            self._pipes[task].send((writer, query, number, task, rows))
        return [self._end(task, (writer, query, number, task, rows)) for task, rows in enumerate(tasks)]

    def _end(self, task: int, work: Any) -> Any:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                answer = self._pipes[task].recv()
            except (EOFError, ConnectionResetError):
                self._pipes[task] = self._pipes.pop()
                answer = "its worker ended"
            if not isinstance(answer, str) or attempt == ATTEMPTS:
                return answer
            self._pipes[task].send(work)
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
            writer, query, number, task, rows = pipe.recv()
            pipe.send(_run_task(writer, query, number, task, rows))
    except (EOFError, OSError):
        os._exit(0)


def _run_task(writer: bytes, query: str, number: int, task: int, rows: Sequence[str]) -> Any:
    context = TaskContext._getOrCreate()
    context._localProperties = {loss._QUERY_ID: query, loss._BATCH_ID: str(number)}
    table = pa.table({"key": [f"k{value}" for value in rows], "value": list(rows)})
    try:
        return pickle.loads(writer).write(iter(table.to_batches(ARROW_ROWS)))
    except Exception as failure:  # noqa: BLE001 - it is told to the driver
        traceback.print_exc()
        return f"task {task}: {failure}"


def write_output_to(path: Path) -> None:
    """Of this process and those that it starts."""
    with path.open("ab") as log:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(log.fileno(), stream.fileno())
