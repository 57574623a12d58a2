# SPDX-License-Identifier: Apache-2.0
"""The plan of a batch read: the ranges of all partitions, cut into tasks, their outer ends bound late.

Spark keeps the plan of a DataFrame for life. So ``latest`` stays open in the last piece of each partition and is
looked up when it is read, and an ``earliest`` start takes whatever is first then; only the cuts between pieces are
fixed. A second action on the same DataFrame therefore sees newer messages, as with Spark's Kafka source; but none that
is published at or after a time where it ends, though that was yet to come when it was planned.

``read_arrow`` is the same read without Spark, in one process: it needs no ``pyspark``.
"""

from __future__ import annotations

import itertools
import logging
import os
from dataclasses import replace

import pyarrow as pa

from broker_core.client import Client
from pulsarish_spark.connecting.connection import connected
from pulsarish_spark.connecting.side_by_side import side_by_side
from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.options import ReadOptions, Side, option_texts, read_options
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.positions.bounds import check_order, ending_ms, resolve_end, resolve_start
from pulsarish_spark.rows.schema import TopicColumns
from pulsarish_spark.tasks.planning import EntryRange, plan_tasks
from pulsarish_spark.tasks.task import ReadTask, make_tasks, read_task, task_options
from pulsarish_spark.typed.target_schema import with_typed_values
from pulsarish_spark.viewing.broker_view import BrokerView
from pulsarish_spark.viewing.layout import LEFT_OUT, Layout, discover

logger = logging.getLogger(__name__)


def read_arrow(topic: str | None = None, /, **options: object) -> pa.RecordBatchReader:
    """The rows that ``spark.read.format("pulsarish")`` gives for the same options, in the order of each partition.

        reader = read_arrow("flights", columns="key,value", startingOffsets="earliest")
        reader.read_all()                          # a pyarrow.Table
        read_arrow("flights").read_pandas()        # a pandas.DataFrame
        polars.from_arrow(read_arrow("flights"))   # a polars.DataFrame
        duckdb.sql("select count(*) from reader")  # a query over the variable ``reader``

    ``topic`` may be left out where an option says what to read; options whose names have a dot are given with ``**``,
    as ``**{"service.url": "pulsar://host:6650"}``. Options are checked and the read is planned before this returns;
    rows are fetched while batches are taken, so memory holds some MiB of them, and each reader can be read once. Where
    no end is given, it is the end that the topic has when its last part is read.

    Raises ConfigError for options that are wrong, TopicNotFoundError, and, while batches are taken, DataLossError
    where messages are gone and ``failOnDataLoss`` is not false. Source: Arrow's C stream interface.
    """
    checked = read_options(option_texts(topic, options), Side.BATCH_READ, os.environ)
    with connected(checked.address) as client:
        checked = with_typed_values(checked, client)
        tasks = batch_tasks(client, checked)
    batches = itertools.chain.from_iterable(map(read_task, tasks))
    return pa.RecordBatchReader.from_batches(TopicColumns(checked.columns, typed=checked.typed).arrow_schema(), batches)


def batch_tasks(client: Client, options: ReadOptions) -> list[ReadTask]:
    """The tasks of a batch read."""
    LossPolicy.of(options).prepare()
    return make_tasks(plan_batch(client, options), options)


def plan_batch(client: Client, options: ReadOptions) -> list[list[EntryRange]]:
    """The tasks of a batch read, each with its ranges."""
    view = BrokerView(client)
    layout = discover(options.selection, client)
    _tell(layout, options.selection.pattern)
    found = whole_ranges(view, options, layout)
    tasks = plan_tasks(view, [whole for whole, _ in found], task_options(options))
    ends = {whole.key: whole.end for whole, is_open in found if is_open}
    return [
        [replace(piece, end=None) if piece.end == ends.get(piece.key) else piece for piece in task] for task in tasks
    ]


def whole_ranges(view: BrokerView, options: ReadOptions, layout: Layout) -> list[tuple[EntryRange, bool]]:
    """The range to read of each partition, not cut, and whether its end is looked up when it is read."""
    options.starting.check_named(layout.names)
    options.ending.check_named(layout.names)
    starts, ends = _said(view, options, layout)
    names = layout.names
    edges = view.edges_of([name for key, name in names.items() if key not in starts])
    # Behind the starts: one of them may be at a message that came a moment ago.
    last = view.ends_of([name for key, name in names.items() if key in starts and key not in ends])
    last |= {name: both.end for name, both in edges.items()}
    found = []
    for key, name in names.items():
        start = starts[key] if key in starts else edges[name].first
        end = ends[key] if key in ends else max(start, last[name], key=lambda offset: offset.key)
        check_order(key, start, end)
        # Where nothing has ever been, the first message may come behind the plan, wherever it lies.
        exact = key in starts and start.position.ledger >= 0
        until_ms = None if key in ends else ending_ms(key, options)
        found.append((EntryRange(key, name, name != key.topic, start, end, exact, until_ms=until_ms), key not in ends))
    return found


def _said(
    view: BrokerView, options: ReadOptions, layout: Layout
) -> tuple[dict[TopicPartition, Offset], dict[TopicPartition, Offset]]:
    """The starts and the ends that the options say and that are not the first message, or the last one of a moment."""
    policy, names = LossPolicy.of(options), layout.names
    starting = [key for key in names if (said := options.starting.said_of(key)) and said.point != "earliest"]
    ending = [key for key in names if options.ending.said_of(key) is not None]
    starts = side_by_side(lambda key: resolve_start(view, names[key], key, options, "earliest", policy), starting)
    ends = side_by_side(lambda key: resolve_end(view, names[key], key, options, policy), ending)
    found = {key: end for key, end in zip(ending, ends, strict=True) if end is not None}
    return dict(zip(starting, starts, strict=True)), found


def _tell(layout: Layout, pattern: str) -> None:
    if not layout.names:
        logger.warning("nothing is read as no topic matches pattern=%s", pattern)
    for name in layout.left_out:
        logger.warning("partition left out topic=%s reason=%s", name, LEFT_OUT)
