# SPDX-License-Identifier: Apache-2.0
"""One Spark task of a read: what travels to an executor, and reading it there.

It carries everything that the executor needs, because Spark gives executors nothing else of the reader on the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from pulsarish_spark.connection import Address, connected
from pulsarish_spark.loss import LossPolicy
from pulsarish_spark.options import ReadOptions
from pulsarish_spark.planning import EntryRange
from pulsarish_spark.spark_worker import freeze_imports

if TYPE_CHECKING:
    import pyarrow as pa


class ReadTask(InputPartition):
    """Ranges that one task reads one after the other, and how."""

    def __init__(
        self, ranges: Sequence[EntryRange], address: Address, columns: tuple[str, ...], policy: LossPolicy
    ) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)
        self.address = address
        self.columns = columns
        self.policy = policy


def make_tasks(planned: Sequence[Sequence[EntryRange]], options: ReadOptions) -> list[ReadTask]:
    """The tasks for ranges that were planned."""
    policy = LossPolicy(options.fail_on_data_loss)
    address = options.address.for_executors()
    return [ReadTask(ranges, address, options.columns, policy) for ranges in planned]


def read_task(task: ReadTask) -> Iterator[pa.RecordBatch]:
    """Read all ranges of ``task``."""
    from pulsarish_spark.range_reader import read_range

    with connected(task.address) as client:
        for wanted in task.ranges:
            yield from read_range(client, wanted, task.columns, task.policy)
    freeze_imports()
