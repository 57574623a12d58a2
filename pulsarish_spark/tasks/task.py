# SPDX-License-Identifier: Apache-2.0
"""One Spark task of a read: the value that travels to an executor, and reading it there.

It carries everything that the executor needs, because Spark gives executors nothing else of the reader on the driver.
A task has several readings, each of messages of one partition; what names these messages is the reading's business.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from broker_core.base.clock import SystemClock
from broker_core.base.errors import ConsumerBusyError, PulsarishError
from broker_core.base.positions import Position
from broker_core.client.spark_marks import SparkMark
from pulsarish_spark.connecting.connection import Address, connected
from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.options import ReadOptions
from pulsarish_spark.rows.kept_rows import ALL_ROWS, KeptRows
from pulsarish_spark.rows.schema import TopicColumns
from pulsarish_spark.tasks.planning import EntryRange, TaskOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from broker_core.client import Client

logger = logging.getLogger(__name__)


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
class ChunkHold:
    """The chunk hold of one query on one partition: a durable subscription that keeps the first chunks of a message
    that ends behind a batch. It travels to the executors.

    A query by positions acknowledges each batch, and the driver, which does that, sees no entries. So only a task knows
    that a batch ends between two chunks, and it makes the chunk hold before the batch is done, hence before the driver
    acknowledges it. From then on the driver moves the hold (``positions.cursors``); a hold that is there is never
    moved here. A topic whose batches never end between two chunks has none.

    ``batch_start``: where the batch begins in the partition. Several tasks may share the batch, and the one that makes
    the hold does not know what the others need; all that they need lies behind this, or is held already.
    """

    name: str
    batch_start: Position

    def keep_from(self, client: Client, topic: str, first: Position) -> None:
        """Keep what lies at ``first`` and behind it, unless something is kept already.

        That it cannot be kept is no failure of the batch, which is read: it is logged, and a loss that comes of it is
        told by the batch that needs the chunks.
        """
        try:
            if not client.has_subscription(topic, self.name):
                self._make(client, topic, min(first, self.batch_start))
        except ConsumerBusyError:
            return  # Another task of the batch makes it.
        except PulsarishError as error:
            logger.warning(
                "chunks of an unfinished message are not kept topic=%s from=%s error=%s", topic, first, error
            )

    def _make(self, client: Client, topic: str, start: Position) -> None:
        mark = SparkMark.of_this_process("chunks", SystemClock().now_ms()).properties()
        client.open_cursor(topic, self.name, _placed(client, topic, start), subscription_properties=mark).close()


def _placed(client: Client, topic: str, start: Position) -> Position:
    """``start`` as a subscription can begin there: behind an entry, which the first one of a ledger is not."""
    if start.entry > 0:
        return start
    before = client.bounds_at(topic, start).before
    return Position(before.ledger, before.entry + 1)


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

        hold = self.chunk_hold
        keep_from = None if hold is None else partial(hold.keep_from, client, self.range.name)
        return read_range(client, self.range, columns, policy, self.kept, keep_from)


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

    def reading(range_: EntryRange, kept: KeptRows) -> RangeReading:
        return RangeReading(range_, kept, None if range_.of_view else holds.get(range_.name))

    return reading_tasks(([reading(each, kept) for each in ranges] for ranges in planned for kept in parts), options)


def read_task(task: ReadTask) -> Iterator[pa.RecordBatch]:
    """Read all that ``task`` names."""
    with connected(task.address) as client:
        for reading in task.readings:
            yield from reading.rows(client, task.columns[reading.topic], task.policy)
