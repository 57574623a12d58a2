# SPDX-License-Identifier: Apache-2.0
"""Reading one range of entries on an executor: entries in, Arrow batches of the source's columns out.

The client fetches ahead on its own thread while entries are decoded here. Batches are bounded in rows and in bytes,
because Spark holds a whole one on both sides of the pipe to Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from broker_core.base.errors import PulsarishError
from broker_core.base.positions import Position
from broker_core.wire.entry import EntryRef
from pulsarish_spark.losses.holes import has_holes
from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.losses.lost import lost_end, lost_undecodable
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.rows.columns import ColumnMaker
from pulsarish_spark.rows.kept_rows import ALL_ROWS, KeptRows
from pulsarish_spark.rows.schema import TopicColumns
from pulsarish_spark.tasks.chunk_hold import ChunkHold
from pulsarish_spark.tasks.continuity import Continuity
from pulsarish_spark.tasks.decoding import FETCH_BYTES_MAX, EntryDecoder, grouped, in_slices
from pulsarish_spark.tasks.planning import EntryRange
from pulsarish_spark.viewing.broker_view import BrokerView

if TYPE_CHECKING:
    from broker_core.client import Client


def read_range(
    client: Client,
    wanted: EntryRange,
    columns: TopicColumns,
    policy: LossPolicy,
    kept: KeptRows = ALL_ROWS,
    chunk_hold: ChunkHold | None = None,
) -> Iterator[pa.RecordBatch]:
    """The messages of ``wanted`` in their order, as far as they are to be kept; DataLossError if some are gone and
    ``policy`` fails on that. The chunks of a message that ends behind ``wanted`` are kept by ``chunk_hold``."""
    if wanted.end is None:
        wanted = replace(wanted, end=_end_now(client, wanted))
    start, end = wanted.start, wanted.end
    assert end is not None
    if start.key >= end.key:
        if wanted.exact and end.key < start.key:
            number = wanted.key.partition
            policy.report(lost_end(wanted.key, start.text(number), end.text(number)))
        return
    needed = columns.decoded() | kept.decoded()
    if start.batch or end.batch:
        needed |= {"ledger", "entry", "batch_index"}
    maker = ColumnMaker(wanted.key, columns, partitioned=wanted.partitioned)

    def on_undecodable(entry: EntryRef, failure: PulsarishError) -> None:
        if kept.wants_undecodable(entry):
            policy.report(lost_undecodable(wanted.key, entry, failure))

    holes = has_holes(client.server_version())
    continuity = Continuity(wanted, end, policy, lambda at: client.bounds_at(wanted.name, at), holes=holes)
    with client.read_entries(
        wanted.name,
        start.position,
        end.behind_entry,
        buffer_bytes_max=FETCH_BYTES_MAX,
        messages_expected=_messages_of(wanted),
    ) as fetched:
        decoder = EntryDecoder(client, wanted.name, start.position, policy, needed, on_undecodable)
        for entries in grouped(fetched):
            continuity.check(entries)
            if not (candidates := kept.entries(entries)):
                continue
            for decoded in decoder.decode(candidates):
                inside = kept.of(_inside(decoded, start, end))
                if not inside.num_rows:  # Chunks before the last one are no rows.
                    continue
                yield from in_slices(maker.make(inside))
    continuity.finish()
    if chunk_hold is not None and (unfinished_from := decoder.unfinished_from) is not None:
        chunk_hold.keep_from(client, wanted.name, unfinished_from)


def _end_now(client: Client, wanted: EntryRange) -> Offset:
    """Where a range ends that was left open."""
    view = BrokerView(client)
    end = view.latest(wanted.name, had_messages=wanted.start.position.ledger >= 0)
    if wanted.until_ms is None or end.key <= wanted.start.key:
        return end
    found = view.at_time(wanted.name, wanted.until_ms)
    return end if found is None else max(wanted.start, found, key=lambda offset: offset.key)


def _messages_of(wanted: EntryRange) -> int:
    """How many messages the entries of ``wanted`` hold, 0 where that is not known. A broker that is not told sends some
    MiB beyond the end before it learns that they are not wanted: a tenth of a micro-batch of half a GiB."""
    return wanted.messages + wanted.start.batch if wanted.messages > 0 else 0


def _inside(rows: pa.RecordBatch, start: Offset, end: Offset) -> pa.RecordBatch:
    """Without the members of the first and the last entry that lie outside the range."""
    if start.batch:
        rows = rows.filter(
            pc.invert(pc.and_(_in_entry(rows, start.position), pc.less(rows["batch_index"], start.batch)))
        )
    if end.batch:
        behind = pc.greater_equal(rows["batch_index"], end.batch)
        rows = rows.filter(pc.invert(pc.and_(_in_entry(rows, end.position), behind)))
    return rows


def _in_entry(rows: pa.RecordBatch, position: Position) -> pa.Array:
    return pc.and_(pc.equal(rows["ledger"], position.ledger), pc.equal(rows["entry"], position.entry))
