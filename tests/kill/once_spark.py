# SPDX-License-Identifier: Apache-2.0
"""The same stream under a whole Spark, which copies a queue, or files, one in a batch.

``run_spark`` stands in for ``once_job.run_job``: a Spark of some drivers, each a query. ``serve_spark`` is a session
that stays for drivers that are not killed themselves, which replay, and whose workers and broker are killed.
"""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from scripts.archive_spark_classes import spark_options
from tests.kill.once_job import ARROW_ROWS, LOG, Job, write_output_to
from tests.kill.once_kafka_sink import into_kafka
from tests.kill.once_points import FORMAT, WatchedSource

REPOSITORY: Final = Path(__file__).resolve().parents[2]
CORES: Final = 16
"""Tasks that wait at their steps take one each."""
INPUT: Final = "input"
"""The folder that is copied, beside the checkpoint. A source that keeps drivers apart would leave the sink no work."""


def run_spark(jobs: Sequence[Job]) -> None:
    """Drivers side by side: a Spark that copies what is there, and ends."""
    write_output_to(jobs[0].folder / LOG)
    session = new_session(jobs[0].jars)
    with ThreadPoolExecutor(len(jobs)) as pool:
        list(pool.map(lambda job: _outcome(session, run_query, job), jobs))
    session.stop()


def serve_spark(pipe: Connection, log: Path, jars: str) -> None:
    """Work that is asked for, side by side, in one Spark. Each answer is what came of it, or the failure."""
    write_output_to(log)
    session = new_session(jars)
    sending = threading.Lock()

    def answer(number: int, work: Callable[[Any, Job], Any], job: Job) -> None:
        found = _outcome(session, work, job)
        with sending:
            pipe.send((number, found))

    while True:
        threading.Thread(target=answer, args=pipe.recv(), daemon=True).start()


def _outcome(session: Any, work: Callable[[Any, Job], Any], job: Job) -> Any:
    session.createDataFrame([], "nothing int")  # Makes the session the active one of this thread.
    try:
        return work(session, job)
    except Exception as failure:  # noqa: BLE001 - it is told to the rig
        traceback.print_exc()
        return str(failure) or repr(failure)


def run_query(session: Any, job: Job) -> str:
    """Copy what is there, in tasks and an order that are the driver's."""
    if job.queue:
        frame = session.readStream.format(FORMAT).options(**job.source_options()).load()
    else:
        folder = Path(job.watch.checkpoint).with_name(INPUT)
        frame = session.readStream.option("maxFilesPerTrigger", 1).text(str(folder))
    rows = frame.selectExpr("value AS key", "value", f"hash(value, {job.seed}) AS place")
    spread = rows.repartition(job.tasks, "place").drop("place")
    writer = into_kafka(spread, job) if job.jars else spread.writeStream.format(FORMAT).options(**job.sink_options())
    writer.trigger(availableNow=True).start().awaitTermination()
    return ""


def feed(checkpoint: str, batch: int, rows: Sequence[str]) -> None:
    """Have these rows copied too."""
    path = Path(checkpoint).with_name(INPUT) / f"batch-{batch}"
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}")
    new.write_text("\n".join(rows))
    new.rename(path)


def new_session(jars: str) -> Any:
    """A small Spark that tries a task four times."""
    from pyspark.sql import SparkSession

    import pulsarish_spark

    os.environ |= {"PYTHONPATH": str(REPOSITORY), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SUBMIT_OPTS": spark_options()}
    pulsarish_spark.use_this_python()
    builder: Any = SparkSession.builder.master(f"local[{CORES},4]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "512m").config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", str(ARROW_ROWS))
    if jars:
        builder = builder.config("spark.jars", jars)
    session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.dataSource.register(WatchedSource)
    return session
