# SPDX-License-Identifier: Apache-2.0
"""Batch reads without a session: what the driver plans, and what each task reads."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from pulsarish_spark.batch_reader import PulsarishBatchReader
from pulsarish_spark.options import Side, read_options
from pulsarish_spark.rows.schema import spark_schema
from pulsarish_spark.typed.target_schema import with_typed_values
from tests.spark.brokers import Broker


def batch_reader(cell: Broker, topic: str, **options: str | int) -> PulsarishBatchReader:
    """A batch read as Spark would make it; ``topic`` may be several, separated by commas."""
    given = {"service.url": cell.service_url, "topics": topic, **options}
    raw = {name.lower(): str(value) for name, value in given.items()}
    checked = with_typed_values(read_options(raw, Side.BATCH_READ, {}))
    return PulsarishBatchReader(raw, spark_schema(checked.columns, checked.typed), checked.typed)


def read_values(cell: Broker, topic: str, **options: str | int) -> list[int]:
    """The values of a batch read, numbers again, sorted."""
    reader = batch_reader(cell, topic, **options)
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    return sorted(int(value) for batch in batches for value in batch.column("value").to_pylist())


def count_rows(reader: PulsarishBatchReader, task: InputPartition) -> int:
    """How many rows a task has."""
    return sum(batch.num_rows for batch in reader.read(task))
