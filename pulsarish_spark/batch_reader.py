# SPDX-License-Identifier: Apache-2.0
"""What Spark calls for a batch read. How it is planned is in ``positions.batch_plan``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pulsarish_spark.connecting.connection import connected
from pulsarish_spark.options import Side, read_options
from pulsarish_spark.plain_errors import plain_errors
from pulsarish_spark.rows.schema import check_user_schema
from pulsarish_spark.tasks.task import make_tasks
from pulsarish_spark.workers.spark_worker import SentToWorkers
from pulsarish_spark.workers.task_partition import input_partitions, read_partition

if TYPE_CHECKING:
    import pyarrow as pa


class PulsarishBatchReader(SentToWorkers, DataSourceReader):
    """The batch source."""

    def __init__(self, raw: Mapping[str, str], schema: StructType) -> None:
        self._options = read_options(raw, Side.BATCH_READ, os.environ)
        check_user_schema(schema, self._options.columns)

    @plain_errors
    def partitions(self) -> list[InputPartition]:
        from pulsarish_spark.positions.batch_plan import batch_tasks

        with connected(self._options.address) as client:
            # Where there are no tasks, Spark makes one of its own, which says nothing.
            return input_partitions(batch_tasks(client, self._options) or make_tasks([[]], self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition)
