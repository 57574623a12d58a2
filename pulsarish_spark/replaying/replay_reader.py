# SPDX-License-Identifier: Apache-2.0
"""What Spark calls for an exported batch: ``spark.read`` with ``replayFile``. Row groups are shared out over cores."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pulsarish_spark.plain_errors import plain_errors, with_plain_errors
from pulsarish_spark.replaying.export_file import open_export
from pulsarish_spark.rows.schema import check_user_schema, spark_schema
from pulsarish_spark.workers.spark_worker import SentToWorkers

if TYPE_CHECKING:
    import pyarrow as pa


class RowGroups(InputPartition):
    """The row groups that one task reads, by number."""

    def __init__(self, groups: Sequence[int]) -> None:
        super().__init__(None)
        self.groups = tuple(groups)


def replay_schema(path: str) -> StructType:
    """The schema of the exported rows; UsageError if there is no such file."""
    return spark_schema(open_export(path).columns)


class PulsarishReplayReader(SentToWorkers, DataSourceReader):
    """The batch source of a file."""

    def __init__(self, path: str, schema: StructType) -> None:
        self._path = path
        check_user_schema(schema, open_export(path).columns)

    @plain_errors
    def partitions(self) -> list[InputPartition]:
        groups, tasks = len(open_export(self._path).group_rows), os.cpu_count() or 1
        cuts = [groups * task // tasks for task in range(tasks + 1)]
        shares = [range(low, high) for low, high in itertools.pairwise(cuts) if low < high]
        # Where there are no tasks, Spark makes one of its own, which says nothing.
        return [RowGroups(share) for share in shares or [range(0)]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RowGroups)
        return with_plain_errors(self._batches(partition.groups))

    def _batches(self, groups: Sequence[int]) -> Iterator[pa.RecordBatch]:
        if groups:
            yield from open_export(self._path).batches(groups)
