# SPDX-License-Identifier: Apache-2.0
"""One Spark task of a read: the value that travels to an executor, and reading it there.

It carries everything that the executor needs, because Spark gives executors nothing else of the reader on the driver.
A task has several readings, each of messages of one partition; what names these messages is the reading's business.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pulsarish_spark.connecting.connection import Address, connected
from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.options import ReadOptions
from pulsarish_spark.rows.kept_rows import ALL_ROWS, KeptRows
from pulsarish_spark.rows.schema import TopicColumns
from pulsarish_spark.tasks.chunk_hold import ChunkHold
from pulsarish_spark.tasks.planning import EntryRange, TaskOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from broker_core.client import Client


class PartitionReading(Protocol):
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
    """The messages between two positions, or those of them that ``kept`` wants."""

    range: EntryRange
    kept: KeptRows = ALL_ROWS
    chunk_hold: ChunkHold | None = None
    """Keeps the first chunks of a message whose last one lies behind the range; None: nothing deletes them."""

    @property
    def topic(self) -> str:
        return self.range.key.topic

    def rows(self, client: Client, columns: TopicColumns, policy: LossPolicy) -> Iterator[pa.RecordBatch]:
        from pulsarish_spark.tasks.range_reader import read_range

        return read_range(client, self.range, columns, policy, self.kept, self.chunk_hold)


@dataclass(frozen=True, slots=True)
class ReadTask:
    """The readings of one task, one after the other. ``columns``: of each topic."""

    readings: tuple[PartitionReading, ...]
    address: Address
    columns: Mapping[str, TopicColumns]
    policy: LossPolicy


def task_options(options: ReadOptions) -> TaskOptions:
    """The options of tasks and the cores of this machine. Spark tells a source nothing of its cluster's size."""
    return TaskOptions(os.cpu_count() or 1, key_ranges=options.key_ranges, **options.dividing)


def reading_tasks(planned: Iterable[Sequence[PartitionReading]], options: ReadOptions) -> list[ReadTask]:
    """The tasks for what was planned, one for each sequence of readings."""
    policy = LossPolicy.of(options)
    address = options.address.for_executors()
    return [
        ReadTask(tuple(readings), address, {each.topic: options.columns_of(each.topic) for each in readings}, policy)
        for readings in planned
    ]


def make_tasks(
    planned: Iterable[Sequence[EntryRange]], options: ReadOptions, chunk_holds: Mapping[str, ChunkHold] | None = None
) -> list[ReadTask]:
    """The tasks for ranges that were planned: one for each range of keys, if the options ask for these.

    ``chunk_holds``: by partition, where the query acknowledges what it has read.
    """
    parts = options.kept.split(options.key_ranges) if options.key_ranges else [options.kept]
    holds = chunk_holds or {}
    return reading_tasks(
        ([RangeReading(each, kept, holds.get(each.name)) for each in ranges] for ranges in planned for kept in parts),
        options,
    )


def read_task(task: ReadTask) -> Iterator[pa.RecordBatch]:
    """Read all that ``task`` names."""
    with connected(task.address) as client:
        for reading in task.readings:
            yield from reading.rows(client, task.columns[reading.topic], task.policy)
