# SPDX-License-Identifier: Apache-2.0
"""Reading one range of entries on an executor: entries in, Arrow batches of the source's columns out.

The client fetches ahead on its own thread while entries are decoded here. Batches are bounded in rows and in bytes,
because Spark holds a whole one on both sides of the pipe to Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from broker_core.base.errors import PulsarishError
from broker_core.base.positions import Position
from broker_core.client import Bounds
from broker_core.wire.entry import EntryRef
from pulsarish_spark.losses.holes import follows, indexes_between, is_another, lost_between
from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.losses.lost import lost_end, lost_gap, lost_tail, lost_topic, lost_undecodable
from pulsarish_spark.places.entries import behind, offset_of
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.rows.kept_rows import ALL_ROWS, KeptRows
from pulsarish_spark.rows.schema import TopicColumns
from pulsarish_spark.tasks.decoding import FETCH_BYTES_MAX, EntryDecoder, grouped, in_slices
from pulsarish_spark.tasks.planning import EntryRange
from pulsarish_spark.tasks.row_makers import maker_of
from pulsarish_spark.viewing.broker_view import BrokerView

if TYPE_CHECKING:
    from broker_core.client import Client


def read_range(
    client: Client,
    wanted: EntryRange,
    columns: TopicColumns,
    policy: LossPolicy,
    kept: KeptRows = ALL_ROWS,
    keep_from: Callable[[Position], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The messages of ``wanted`` in their order, as far as they are to be kept; DataLossError if some are gone and
    ``policy`` fails on that. ``keep_from`` keeps the chunks of a message that ends behind ``wanted``."""
    if wanted.end is None:
        wanted = replace(wanted, end=_end_now(client, wanted))
    start, end = wanted.start, wanted.end
    assert end is not None
    policy = replace(policy, compacted=policy.compacted or wanted.of_view)
    if start.key >= end.key:
        if wanted.exact and end.key < start.key:
            number = wanted.key.partition
            policy.report(lost_end(wanted.key, start.text(number), end.text(number)))
        return
    needed = columns.decoded() | kept.decoded()
    if start.batch or end.batch:
        needed |= {"ledger", "entry", "batch_index"}
    maker = maker_of(client, wanted.key, wanted.name, columns)

    def on_undecodable(entry: EntryRef, failure: PulsarishError) -> None:
        if kept.wants_undecodable(entry):
            policy.report(lost_undecodable(wanted.key, entry, failure))

    continuity = Continuity(wanted, end, policy, lambda at: client.bounds_at(wanted.name, at))
    with client.read_entries(
        wanted.name,
        start.position,
        end.behind_entry,
        buffer_bytes_max=FETCH_BYTES_MAX,
        messages_expected=_messages_of(wanted),
        read_compacted=wanted.of_view,
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
    if keep_from is not None and (unfinished_from := decoder.unfinished_from) is not None:
        keep_from(unfinished_from)


def _end_now(client: Client, wanted: EntryRange) -> Offset:
    """The end of a range that was left open."""
    view = BrokerView(client)
    end = view.latest(wanted.name, had_messages=wanted.start.position.ledger >= 0)
    if wanted.until_ms is None or end.key <= wanted.start.key:
        return end
    found = view.at_time(wanted.name, wanted.until_ms)
    return end if found is None else max(wanted.start, found, key=lambda offset: offset.key)


def _messages_of(wanted: EntryRange) -> int:
    """Messages in the entries of ``wanted``, 0 where that is not known. A broker that is not told sends some
    MiB beyond the end before it learns that they are not wanted: a tenth of a micro-batch of half a GiB."""
    return wanted.messages + wanted.start.batch if wanted.messages > 0 else 0


def _inside(rows: pa.RecordBatch, start: Offset, end: Offset) -> pa.RecordBatch:
    """Rows without the members of the first and the last entry that lie outside the range."""
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


class Continuity:
    """Watches the entries of one range go by and reports lost messages to the policy: does the range start, go on and
    end where it should?

    An entry that does not come is a hole or lost by the rule of ``losses.holes``. Where message indexes do not show
    that nothing is missing the broker is asked: at the change to a new ledger, and at an end before which nothing came.

    ``around`` tells what lies around a position now.
    """

    def __init__(
        self, wanted: EntryRange, end: Offset, policy: LossPolicy, around: Callable[[Position], Bounds]
    ) -> None:
        self._around = around
        self._key = wanted.key
        position, index, batch = wanted.start
        self._next = Offset(position, index - batch if index >= 0 else -1)
        self._end = end
        self._policy = policy
        self._lenient = not wanted.exact

    def check(self, entries: Sequence[EntryRef]) -> None:
        """Take note of the next entries; they are in order, and not empty."""
        first, last = entries[0], entries[-1]
        if last.ledger == first.ledger:
            self._step(first)
        else:
            for entry in entries:
                self._step(entry)
        self._next = behind(last)

    def finish(self) -> None:
        """The last entry before the end has been seen."""
        missing = indexes_between(self._next, self._end)
        if self._lenient or self._next.key >= self._end.key or missing == 0:
            return
        if self._has_only_holes():
            return
        self._policy.report(lost_tail(self._key, self._text(self._next), self._text(self._end), missing))

    def _has_only_holes(self) -> bool:
        """Whether nothing comes before the end, in a ledger that is there."""
        at = self._next.position
        around = self._around(at)
        comes_behind = around.first is None or offset_of(around.first).position >= self._end.behind_entry
        return comes_behind and follows(at, around.before)

    def _step(self, entry: EntryRef) -> None:
        wanted, self._next = self._next, behind(entry)
        if self._lenient:
            self._lenient = False
            return
        found = offset_of(entry)
        if is_another(wanted, found):
            self._policy.report(lost_topic(self._key, self._text(wanted), self._text(found)))
        elif missing := lost_between(wanted, found, lambda: self._around(wanted.position).before):
            self._policy.report(lost_gap(self._key, self._text(wanted), self._text(found), missing))

    def _text(self, offset: Offset) -> str:
        return offset.text(self._key.partition)
