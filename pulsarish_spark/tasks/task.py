# SPDX-License-Identifier: Apache-2.0
"""One Spark task of a read: what travels to an executor, and reading it there.

It carries everything that the executor needs, because Spark gives executors nothing else of the reader on the driver.
A task has several readings, each of messages of one partition; what names these messages is the reading's business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyspark.sql.datasource import InputPartition

from pulsarish_spark.connecting.connection import Address, connected
from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.options import ReadOptions
from pulsarish_spark.rows.schema import TopicColumns
from pulsarish_spark.tasks.planning import EntryRange
from pulsarish_spark.workers.spark_worker import freeze_imports

if TYPE_CHECKING:
    import pyarrow as pa

    from broker_core.client import Client


class Reading(Protocol):
    """Messages of one partition that a task reads. It travels to an executor, so it holds no connection."""

    @property
    def topic(self) -> str:
        """The full name of the topic, without the partition."""
        ...

    def rows(self, client: Client, columns: TopicColumns, policy: LossPolicy) -> Iterator[pa.RecordBatch]:
        """The messages in their order; DataLossError if some are gone and ``policy`` fails on that."""
        ...


@dataclass(frozen=True, slots=True)
class RangeReading:
    """All messages between two positions."""

    range: EntryRange

    @property
    def topic(self) -> str:
        return self.range.key.topic

    def rows(self, client: Client, columns: TopicColumns, policy: LossPolicy) -> Iterator[pa.RecordBatch]:
        from pulsarish_spark.tasks.range_reader import read_range

        return read_range(client, self.range, columns, policy)


class ReadTask(InputPartition):
    """What one task reads, one reading after the other, and how. ``columns``: of each topic."""

    def __init__(
        self, readings: Sequence[Reading], address: Address, columns: Mapping[str, TopicColumns], policy: LossPolicy
    ) -> None:
        super().__init__(None)
        self.readings = tuple(readings)
        self.address = address
        self.columns = columns
        self.policy = policy


def make_tasks(planned: Sequence[Sequence[EntryRange]], options: ReadOptions) -> list[ReadTask]:
    """The tasks for ranges that were planned."""
    policy = LossPolicy(options.fail_on_data_loss)
    address = options.address.for_executors()
    columns = TopicColumns(options.columns)
    tasks: list[ReadTask] = []
    for ranges in planned:
        readings = [RangeReading(range_) for range_ in ranges]
        tasks.append(ReadTask(readings, address, {each.topic: columns for each in readings}, policy))
    return tasks


def read_task(task: ReadTask) -> Iterator[pa.RecordBatch]:
    """Read all that ``task`` names."""
    with connected(task.address) as client:
        for reading in task.readings:
            yield from reading.rows(client, task.columns[reading.topic], task.policy)
    freeze_imports()
