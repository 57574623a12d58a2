# SPDX-License-Identifier: Apache-2.0
"""Batch reads: plan the ranges of all partitions once, bind their outer ends late.

Spark keeps the plan of a DataFrame for life. So ``latest`` stays open in the last piece of each partition and is
looked up when it is read, and an ``earliest`` start takes whatever is first then; only the cuts between pieces are
fixed. A second action on the same DataFrame therefore sees newer messages, as with Spark's Kafka source.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from broker_core.base.errors import ConfigError
from pulsarish_spark.connecting.connection import connected
from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.options import ReadOptions, Side, read_options
from pulsarish_spark.plain_errors import plain_errors, with_plain_errors
from pulsarish_spark.rows.schema import check_user_schema
from pulsarish_spark.stream_reader import task_options
from pulsarish_spark.tasks.planning import EntryRange
from pulsarish_spark.tasks.task import ReadTask, make_tasks, read_task
from pulsarish_spark.workers.spark_worker import SentToWorkers

if TYPE_CHECKING:
    import pyarrow as pa

    from broker_core.client import Client


class PulsarishBatchReader(SentToWorkers, DataSourceReader):
    """The batch source."""

    def __init__(self, raw: Mapping[str, str], schema: StructType) -> None:
        self._options = read_options(raw, Side.BATCH_READ, os.environ)
        check_user_schema(schema, self._options.columns)

    @plain_errors
    def partitions(self) -> list[InputPartition]:
        with connected(self._options.address) as client:
            return [*make_tasks(plan_batch(client, self._options), self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return with_plain_errors(read_task(cast("ReadTask", partition)))


def plan_batch(client: Client, options: ReadOptions) -> list[list[EntryRange]]:
    """The tasks of a batch read, each with its ranges."""
    from pulsarish_spark.places.topics import discover
    from pulsarish_spark.positions.cutting import plan_tasks
    from pulsarish_spark.positions.starting import resolve_end, resolve_start, start_point
    from pulsarish_spark.viewing.broker_view import BrokerView

    view, policy = BrokerView(client), LossPolicy(options.fail_on_data_loss)
    layout = discover(options.selection, client)
    for option, spec in (("startingOffsets", options.starting), ("endingOffsets", options.ending)):
        if spec is not None:
            spec.check_named(option, layout.partitions)
    ranges, is_open = [], {}
    for key, name in layout.names.items():
        end = resolve_end(view, name, key, options, policy)
        start = resolve_start(view, name, key, options, "earliest", policy)
        exact = options.starting_ms is not None or start_point(key, options, "earliest") != "earliest"
        is_open[key] = end is None
        if end is not None and start.key > end.key:
            raise ConfigError(
                f"{key} would be read from {start.text(key.partition)} back to {end.text(key.partition)}",
                hint="swap the starting and the ending option",
            )
        ranges.append(EntryRange(key, name, name != key.topic, start, end or view.latest(name), exact))
    tasks = plan_tasks(view, ranges, task_options(options))
    ends = {whole.key: whole.end for whole in ranges if is_open[whole.key]}
    return [
        [replace(piece, end=None) if piece.end == ends.get(piece.key) else piece for piece in task] for task in tasks
    ]
