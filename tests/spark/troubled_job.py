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
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import pulsarish_spark

if TYPE_CHECKING:
    import pandas as pd

ROWS = 200
BEFORE_TROUBLE = 50
VALUE_BYTES = 20_000
"""Rows of this size go through the buffers between Python and Spark one by one."""


def main(master: str, saves: dict[str, dict[str, str]]) -> None:
    """Save the same rows for each kind of trouble."""
    pulsarish_spark.use_this_python()
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", False)
    builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", 10)  # rows are sent before the trouble
    spark = builder.getOrCreate()
    outcomes = {}
    for topic, options in saves.items():
        trouble = functools.partial(with_trouble, topic.rpartition("-")[2])
        rows = spark.range(0, ROWS, 1, 2).mapInPandas(trouble, "value string")
        try:
            rows.write.format("pulsarish").options(**options).mode("append").save(topic)
            outcomes[topic] = "saved"
        except PySparkException as error:
            outcomes[topic] = str(error)
    spark.stop()
    sys.stdout.write(json.dumps(outcomes) + "\n")


def with_trouble(kind: str, batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """The rows as text; the task of the second partition has trouble amid them."""
    done = 0
    for batch in batches:
        values = batch["id"].astype(str).str.ljust(VALUE_BYTES)
        yield values.to_frame("value")
        done += len(batch)
        context = TaskContext.get()
        if context is not None and context.partitionId() == 1 and done == BEFORE_TROUBLE:
            meet(kind, context.attemptNumber())


def meet(kind: str, attempt: int) -> None:
    """The trouble; all but one kind are over at the second attempt."""
    if kind == "fails":
        raise ValueError("this task fails always")
    if attempt:
        return
    if kind == "once":
        raise ValueError("this task fails once")
    if kind == "dies":
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
