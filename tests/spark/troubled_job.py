# SPDX-License-Identifier: Apache-2.0
"""A program that saves rows by tasks of which one has trouble, a save for each kind of trouble; prints how each ended.

Its own process: a master that tries tasks again is one for the life of a JVM. Arguments: master, and as JSON options
by topic, which is named after the trouble.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import pulsarish_spark
from broker_core.client import Client

if TYPE_CHECKING:
    import pandas as pd

ROWS = 200
BEFORE_TROUBLE = 50
VALUE_BYTES = 20_000
"""Rows of this size go through the buffers between Python and Spark one by one."""

LATE_S = 60.0


def main(master: str, saves: dict[str, dict[str, str]]) -> None:
    """Save the same rows for each kind of trouble."""
    pulsarish_spark.use_this_python()
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", False)
    builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", 10)  # rows are sent before the trouble
    spark = builder.getOrCreate()
    outcomes = {}
    for topic, options in saves.items():
        kind = topic.rpartition("-")[2]
        trouble = functools.partial(with_trouble, functools.partial(meet, kind, options["service.url"], topic))
        rows = spark.range(0, ROWS, 1, 2).mapInPandas(trouble, "value string")
        try:
            rows.write.format("pulsarish").options(**options).mode("append").save(topic)
            outcomes[topic] = "saved"
        except PySparkException as error:
            outcomes[topic] = str(error)
    spark.stop()
    sys.stdout.write(json.dumps(outcomes) + "\n")


def with_trouble(trouble: Callable[[int], None], batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """The rows as text; the task of the second partition has trouble amid them, as it is told the attempt's number."""
    done = 0
    for batch in batches:
        values = batch["id"].astype(str).str.ljust(VALUE_BYTES)
        yield values.to_frame("value")
        done += len(batch)
        context = TaskContext.get()
        if context is not None and context.partitionId() == 1 and done == BEFORE_TROUBLE:
            trouble(context.attemptNumber())


def meet(kind: str, service_url: str, topic: str, attempt: int) -> None:
    """The trouble; all but one kind are over at the second attempt. ``late``: once rows of its partition are there."""
    if kind == "fails":
        raise ValueError("this task fails always")
    if attempt:
        return
    if kind == "once":
        raise ValueError("this task fails once")
    if kind == "late":
        with Client(service_url) as client, client.create_reader(topic) as reader:
            while int(reader.read_next(LATE_S).value or b"") < ROWS // 2:
                pass
        raise ValueError("this task fails once")
    if kind == "dies":
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
