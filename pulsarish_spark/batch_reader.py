# SPDX-License-Identifier: Apache-2.0
"""The batch sources as Spark calls them: of topics, which ``positions.batch_plan`` plans, and of an exported batch.

Owns the form in which Spark carries a task of any source to an executor, and reading it there.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pulsarish_spark.connecting.connection import connected
from pulsarish_spark.options import Side, read_options
from pulsarish_spark.plain_errors import plain_errors, with_plain_errors
from pulsarish_spark.rows.schema import check_user_schema
from pulsarish_spark.rows.typed_values import TypedValues
from pulsarish_spark.tasks.task import ReadTask, make_tasks, read_task
from pulsarish_spark.typed.target_schema import with_typed_values
from pulsarish_spark.workers.spark_worker import SentToWorkers, freeze_imports

if TYPE_CHECKING:
    import pyarrow as pa


def input_partitions(tasks: Iterable[ReadTask]) -> list[InputPartition]:
    """One for each task."""
    return [InputPartition(task) for task in tasks]


def read_partition(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of the task that ``partition`` carries."""
    yield from with_plain_errors(read_task(partition.value))
    freeze_imports()


class PulsarishBatchReader(SentToWorkers, DataSourceReader):
    """The batch source."""

    def __init__(self, raw: Mapping[str, str], schema: StructType, typed: TypedValues | None = None) -> None:
        """``typed``: the target schema, where it was found before."""
        self._options = with_typed_values(replace(read_options(raw, Side.BATCH_READ, os.environ), typed=typed))
        check_user_schema(schema, self._options.columns, self._options.typed)

    @plain_errors
    def partitions(self) -> list[InputPartition]:
        from pulsarish_spark.positions.batch_plan import batch_tasks

        with connected(self._options.address) as client:
            # Where there are no tasks, Spark makes one of its own, which says nothing.
            return input_partitions(batch_tasks(client, self._options) or make_tasks([[]], self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition)


class PulsarishReplayReader(SentToWorkers, DataSourceReader):
    """The batch source of an exported batch: row groups of its file, by number, are shared out over cores."""

    def __init__(self, path: str, schema: StructType) -> None:
        from pulsarish_spark.replaying.export_file import open_export

        self._path = path
        export = open_export(path)
        check_user_schema(schema, export.columns, export.typed)

    @plain_errors
    def partitions(self) -> list[InputPartition]:
        from pulsarish_spark.replaying.export_file import open_export

        groups, tasks = len(open_export(self._path).group_rows), os.cpu_count() or 1
        cuts = [groups * task // tasks for task in range(tasks + 1)]
        shares = [range(low, high) for low, high in itertools.pairwise(cuts) if low < high]
        # Where there are no tasks, Spark makes one of its own, which says nothing.
        return [InputPartition(share) for share in shares or [range(0)]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return with_plain_errors(self._batches(partition.value))

    def _batches(self, groups: Sequence[int]) -> Iterator[pa.RecordBatch]:
        from pulsarish_spark.replaying.export_file import open_export

        if groups:
            yield from open_export(self._path).batches(groups)
