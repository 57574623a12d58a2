# SPDX-License-Identifier: Apache-2.0
"""The same stream under a whole Spark, which copies files, one in a batch: one that is killed, or one that stays.

``run_spark`` stands in for ``once_job.run_job``: a Spark of its own for each driver. ``serve_spark`` is a session that
stays for drivers that are not killed themselves, which replay, and whose workers and broker are killed.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from scripts.archive_spark_classes import spark_options
from tests.kill.once_job import ARROW_ROWS, LOG, Job, write_output_to
from tests.kill.once_points import FORMAT, WatchedSource

REPOSITORY: Final = Path(__file__).resolve().parents[2]
CORES: Final = 3
INPUT: Final = "input"
"""The folder that is copied, beside the checkpoint. A source that keeps drivers apart would leave the sink no work."""


def run_spark(job: Job) -> None:
    """One driver: a Spark that copies what is there, and ends."""
    write_output_to(job.folder / LOG)
    session = new_session()
    run_query(session, job)
    session.stop()


def serve_spark(pipe: Connection, log: Path) -> None:
    """Drivers one after the other, in one Spark. Each answer is how the query has failed, or ""."""
    write_output_to(log)
    session = new_session()
    pipe.send("")
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            session.stop()
            return
        try:
            run_query(session, job)
        except Exception as failure:  # noqa: BLE001 - it is told to the rig
            traceback.print_exc()
            pipe.send(str(failure) or repr(failure))
        else:
            pipe.send("")


def run_query(session: Any, job: Job) -> None:
    """Copy what is there, in tasks and an order that are the driver's."""
    folder = Path(job.watch.checkpoint).with_name(INPUT)
    frame = session.readStream.option("maxFilesPerTrigger", 1).text(str(folder))
    rows = frame.selectExpr("value AS key", "value", f"hash(value, {job.seed}) AS place")
    spread = rows.repartition(job.tasks, "place").drop("place")
    writer = spread.writeStream.format(FORMAT).options(**job.sink_options())
    writer.trigger(availableNow=True).start().awaitTermination()


def feed(checkpoint: str, batch: int, rows: Sequence[str]) -> None:
    """Have these rows copied too."""
    path = Path(checkpoint).with_name(INPUT) / f"batch-{batch}"
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}")
    new.write_text("\n".join(rows))
    new.rename(path)


def new_session() -> Any:
    """A small Spark that tries a task four times."""
    from pyspark.sql import SparkSession

    import pulsarish_spark

    os.environ |= {"PYTHONPATH": str(REPOSITORY), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SUBMIT_OPTS": spark_options()}
    pulsarish_spark.use_this_python()
    builder: Any = SparkSession.builder.master(f"local[{CORES},4]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "512m").config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", str(ARROW_ROWS))
    session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.dataSource.register(WatchedSource)
    return session
