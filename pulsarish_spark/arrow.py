# SPDX-License-Identifier: Apache-2.0
"""The batch source without Spark: the same options and the same rows as Arrow batches, in one process.

Needs no ``pyspark``. What reads Arrow reads this: pandas, Polars and DuckDB take the reader as it is.
"""

from __future__ import annotations

import itertools
import os

import pyarrow as pa

from pulsarish_spark.connecting.connection import connected
from pulsarish_spark.options import Side, option_texts, read_options
from pulsarish_spark.positions.batch_plan import batch_tasks
from pulsarish_spark.rows.schema import TopicColumns
from pulsarish_spark.tasks.task import read_task


def read_arrow(topic: str | None = None, /, **options: object) -> pa.RecordBatchReader:
    """The rows that ``spark.read.format("pulsarish")`` gives for the same options, in the order of each partition.

        reader = read_arrow("flights", columns="key,value", startingOffsets="earliest")
        reader.read_all()                          # a pyarrow.Table
        read_arrow("flights").read_pandas()        # a pandas.DataFrame
        polars.from_arrow(read_arrow("flights"))   # a polars.DataFrame
        duckdb.sql("select count(*) from reader")  # a query over the variable ``reader``

    ``topic`` may be left out where an option says what to read; options whose names have a dot are given with ``**``,
    as ``**{"service.url": "pulsar://host:6650"}``. Options are checked and the read is planned before this returns;
    rows are fetched while batches are taken, so memory holds some MiB of them, and each reader can be read once. Where
    no end is given, it is the end that the topic has when its last part is read.

    Raises ConfigError for options that are wrong, TopicNotFoundError, and, while batches are taken, DataLossError
    where messages are gone and ``failOnDataLoss`` is not false. Source: Arrow's C stream interface.
    """
    checked = read_options(option_texts(topic, options), Side.BATCH_READ, os.environ)
    with connected(checked.address) as client:
        tasks = batch_tasks(client, checked)
    batches = itertools.chain.from_iterable(map(read_task, tasks))
    return pa.RecordBatchReader.from_batches(TopicColumns(checked.columns).arrow_schema(), batches)
