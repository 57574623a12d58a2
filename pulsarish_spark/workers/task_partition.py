# SPDX-License-Identifier: Apache-2.0
"""A task in the form in which Spark carries it to an executor, and reading it there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from pulsarish_spark.plain_errors import with_plain_errors
from pulsarish_spark.tasks.task import ReadTask, read_task
from pulsarish_spark.workers.spark_worker import freeze_imports

if TYPE_CHECKING:
    import pyarrow as pa


class TaskPartition(InputPartition):
    """What Spark calls an input partition."""

    def __init__(self, task: ReadTask) -> None:
        super().__init__(None)
        self.task = task


def input_partitions(tasks: Iterable[ReadTask]) -> list[InputPartition]:
    """One for each task."""
    return [TaskPartition(task) for task in tasks]


def read_partition(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of the task that ``partition`` carries."""
    assert isinstance(partition, TaskPartition)
    yield from with_plain_errors(read_task(partition.task))
    freeze_imports()
