# SPDX-License-Identifier: Apache-2.0
"""The plan of a batch read: the ranges of all partitions, cut into tasks, their outer ends bound late.

Spark keeps the plan of a DataFrame for life. So ``latest`` stays open in the last piece of each partition and is
looked up when it is read, and an ``earliest`` start takes whatever is first then; only the cuts between pieces are
fixed. A second action on the same DataFrame therefore sees newer messages, as with Spark's Kafka source; but none that
is published at or after a time where it ends, though that was yet to come when it was planned.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from pulsarish_spark.connecting.side_by_side import side_by_side
from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.options import ReadOptions
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.positions.bounds import check_order, ending_ms, resolve_end, resolve_start
from pulsarish_spark.tasks.planning import EntryRange, plan_tasks
from pulsarish_spark.tasks.task import ReadTask, make_tasks, task_options
from pulsarish_spark.viewing.broker_view import BrokerView
from pulsarish_spark.viewing.layout import LEFT_OUT, Layout, discover

if TYPE_CHECKING:
    from broker_core.client import Client

logger = logging.getLogger(__name__)


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
