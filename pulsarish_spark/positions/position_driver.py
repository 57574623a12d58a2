# SPDX-License-Identifier: Apache-2.0
"""A stream that goes by positions: where it starts, how far the next batch goes, what its tasks are, what is done.

Theory of operation. Spark asks ``initial`` (several times), then for each batch ``latest(start, limit)`` and
``tasks(start, end)``, and ``commit(end)`` only when another batch follows. ``start`` of a later call is an end that
Spark has committed, so ``latest`` acknowledges up to it as well: that is what brings the backlog to zero after the
last batch. The end of the first batch is noted at once and names the subscription, which is made right before: what is
given up earlier leaves nothing on the broker, and what is started again finds its own. Offsets are entry boundaries; a
batch never tears an entry. Offset texts must not change unless a position does, or Spark would run empty batches for
ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from broker_core.base.clock import BlockingClock, SystemClock
from broker_core.base.errors import (
    NotAllowedError,
    SubscriptionNotFoundError,
    TopicNotFoundError,
)
from broker_core.base.positions import Position
from broker_core.client import Client
from broker_core.client.spark_marks import generated_name
from pulsarish_spark.connecting.side_by_side import side_by_side
from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.options import ReadOptions
from pulsarish_spark.places.offsets import Offset, Offsets, Points, SourceOffset
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.positions.bounds import FirstStart, StreamEnd
from pulsarish_spark.positions.cursors import ChunkHolds, Cursors, chunk_holds
from pulsarish_spark.positions.end_watch import EndWatch
from pulsarish_spark.positions.expiry_watch import ExpiryWatch
from pulsarish_spark.positions.partition_changes import PartitionChanges
from pulsarish_spark.positions.rate_limits import Admission, TriggerDelay
from pulsarish_spark.positions.resuming import ResumePoint, Resuming
from pulsarish_spark.positions.view_ends import ViewEnds
from pulsarish_spark.tasks.planning import EntryRange, plan_tasks
from pulsarish_spark.tasks.task import ReadTask, make_tasks, task_options
from pulsarish_spark.viewing.broker_view import BrokerView, IndexNotice
from pulsarish_spark.viewing.counting import NamedRange
from pulsarish_spark.viewing.layout import FollowedLayout
from pulsarish_spark.viewing.view_then_log import Horizons, ViewThenLog

ARRIVAL_WAIT_S: Final = 0.1
"""Seconds that ``latest`` waits for a first new message: Spark would ask again at once. No longer, for other sources of
the same query wait meanwhile."""

DELETION_S: Final = 10.0
"""Seconds in which a topic may be neither there nor gone: Apache Pulsar deletes it step by step."""

T = TypeVar("T")


class PositionDriver:
    """The ``StreamDriver`` of a query whose batches are ranges between two positions of each partition."""

    def __init__(
        self,
        options: ReadOptions,
        client: Client,
        clock: BlockingClock | None = None,
        view_client: Client | None = None,
    ) -> None:
        """``view_client``: one that reads compacted topics as such, where the query does."""
        self.options = options
        self._client = client
        self._clock = clock or SystemClock()
        compacted: ViewThenLog | None = None
        if view_client is not None:
            compacted = ViewThenLog(client, view_client, Horizons(options.address, self._clock))
        self._view = BrokerView(client, compacted)
        self._view_ends = ViewEnds(compacted, self._view)
        policy = LossPolicy.of(options)
        subscription = options.subscription or generated_name(options.subscription_prefix)
        self._cursors = Cursors(client, subscription, self._clock, is_new_name=not options.subscription)
        start_policy = replace(policy, compacted=options.compacted)
        self._first_start = FirstStart(self._view, self._cursors, options, start_policy)
        self._resuming = Resuming(client, self._view, self._cursors, policy, compacted)
        self._end_watch = EndWatch(self._cursors, self._clock)
        self._stream_end = StreamEnd(self._view, options)
        self._holds = ChunkHolds(client, self._clock)
        self._expiry = ExpiryWatch(client, options.address, self._clock)
        self._delay = TriggerDelay(options.amounts, self._clock)
        self._notice = IndexNotice()
        self._layout = FollowedLayout(options.selection, client, self._clock, options.discovery_s)
        self._changes = PartitionChanges(
            options.selection, start_policy, self._layout, self._view, self._cursors, self._first_start, self._resuming
        )
        self._initial: SourceOffset | None = None
        self._planned = False  # Then nothing is first any more, even if it lies where a replayed batch made us begin.
        self._checked_ending = False
        self._bounded = False
        self._target: Offsets | None = None
        self._newest: Offsets = {}
        self._behind: dict[TopicPartition, int] = {}
        self._idle_at: SourceOffset | None = None  # where the last look has found nothing new

    # -- what Spark asks, in its order

    def offset(self, document: Mapping[str, Any]) -> SourceOffset:
        """Read an offset that Spark has noted."""
        return SourceOffset.from_json(document)

    def bound_to_now(self) -> None:
        """AvailableNow: read no further than what is there at the first ``latest``."""
        self._bounded = True

    def initial(self) -> SourceOffset:
        """The start of a query without a checkpoint; the same answer each time."""
        if self._initial is None:
            for bound in (self.options.starting, self.options.ending):
                bound.check_named(self._layout.names, self._layout.awaited)
            found = self._first_start.find(self._layout.names)
            self._initial = self._offset({key: Points(at) for key, at in found.items()})
        return self._initial

    def latest(self, start: SourceOffset, limit: int | None) -> SourceOffset:
        """The end of the next batch from ``start``; ``start`` itself if there is nothing new."""
        return self._beside_deletions(lambda: self._latest(start, limit))

    def _beside_deletions(self, attempt: Callable[[], T]) -> T:
        """The result of ``attempt``, made again where a topic or a subscription was deleted under it."""
        deadline = self._clock.monotonic() + DELETION_S
        while True:
            try:
                return attempt()
            except SubscriptionNotFoundError:
                if self._clock.monotonic() > deadline:
                    raise
            except (TopicNotFoundError, NotAllowedError):
                # A partition went since the last look: it is not found, or, where its topic is not partitioned any
                # more, may not be made. What that means is decided by those that there are now.
                if self._target is not None or self._clock.monotonic() > deadline:
                    raise
                self._layout.look()
            self._cursors.drop_ended()

    def _latest(self, start: SourceOffset, limit: int | None) -> SourceOffset:
        if self._stays_idle(start):
            return start
        self._idle_at = None
        if self._target is None and self._layout.is_due():  # AvailableNow reads a fixed set of partitions.
            self._layout.look()
        if not self._planned and start == self._initial:
            return self._first_end(start, limit)
        self._adopt(start)
        self._check_ending(start)
        self._view_ends.follow(self._layout.names, start.points)
        places, ends = self._look(start)
        self._expiry.look(places, ends)
        stop = self._stop(places, ends, limit)
        self._note_lag(stop, ends)
        moved = [key for key, place in places.items() if key in start.points and place.at != start.points[key].at]
        is_idle = stop == start.offsets and not moved
        if is_idle:
            self._cursors.finish_acks()
        self._look_at_holds(start, is_idle=is_idle and ends == start.offsets, is_over=is_idle and self._bounded)
        if is_idle:
            self._idle_at = start
            return start
        self._delay.began()
        # Its batch begins with the commit of ``start``, which waits for the acks.
        points = self._points(stop, ends, places, start)
        begun = {*moved, *(places.keys() - start.points.keys())}
        added = {key: points[key]._replace(start=places[key].at) for key in begun}
        return self._offset(points | added)

    def _look(self, start: SourceOffset) -> tuple[Mapping[TopicPartition, ResumePoint], Offsets]:
        """The places where partitions are read on, and their ends, in logs that are known to be the same."""
        while True:
            places = self._changes.places(start)
            self._view_ends.find(places)
            self._start_acks(start)
            ends = self._ends(places)
            if all(self._resuming.is_held(place.name) for place in places.values() if place.key in start.points):
                return places, ends

    def _offset(self, points: Mapping[TopicPartition, Points], *, ends_first: bool = False) -> SourceOffset:
        return SourceOffset(points, self._cursors.subscription, self.options.selection.pattern, ends_first)

    def _stays_idle(self, start: SourceOffset) -> bool:
        """Whether what was found of ``start`` last still holds: of many partitions it takes long to find it again."""
        if start != self._idle_at or self._bounded or self._layout.is_due():
            return False
        is_over = self._stream_end.is_reached(self._layout.names, start.offsets)
        if is_over:
            self._stream_end.tell()
        if is_over or self._delay.waits:
            self._clock.sleep(ARRIVAL_WAIT_S)
            return True
        if not self._end_watch.stays_quiet(self._layout.names.values(), ARRIVAL_WAIT_S):
            return False
        self._look_at_holds(start, is_idle=True)
        return True

    def _first_end(self, start: SourceOffset, limit: int | None) -> SourceOffset:
        """The end of the first batch, perhaps an empty one, which is noted with the start and the subscription."""
        self._first_start.check()
        names = self._layout.names
        new = [key for key in names if key not in start.points]
        edges = self._view.edges_of([names[key] for key in new])
        begin = start.offsets | {key: edges[names[key]].first for key in new}
        places = {key: ResumePoint(key, name, begin[key], begin[key]) for key, name in names.items()}
        had_messages = {place.name for place in places.values() if place.at.position.ledger >= 0}
        found = self._view.latest_of(names.values(), had_messages)
        shown = {key: max(found[place.name], place.at, key=lambda end: end.key) for key, place in places.items()}
        self._view_ends.find(places)
        ends = self._note_ends(places, self._view_ends.behind(places, shown))
        self._stream_end.check_order(places)
        stop = self._stop(places, ends, limit)
        self._note_lag(stop, ends)
        self._cursors.open_all(names.values(), makes=set(names.values()) - had_messages)
        self._resuming.begin(names.values())
        self._start_acks(SourceOffset.of({key: place.at for key, place in places.items()}))
        self._cursors.finish_acks()
        self._delay.began()
        noted = self._points(stop, ends, places, start)
        points = {key: points._replace(start=places[key].at) for key, points in noted.items()}
        return self._offset(points, ends_first=True)

    def _check_ending(self, start: SourceOffset) -> None:
        """ConfigError if an end is named, perhaps since the last run, of what is not read. What the checkpoint has may
        have been deleted."""
        if not self._checked_ending:
            known = self._layout.names.keys() | start.points.keys()
            self.options.ending.check_named(known, lambda topics: self._layout.awaited(topics) - start.topics)
            self._checked_ending = True

    def _adopt(self, noted: SourceOffset) -> None:
        """Go on with the subscription of an offset that Spark has noted, unless the user names another."""
        name = self.options.subscription or noted.subscription or self._cursors.subscription
        self._resuming.former = noted.subscription if noted.subscription != name else ""
        if name != self._cursors.subscription:
            self._cursors.rename(name)

    def newest(self) -> SourceOffset | None:
        """The ends as last seen, for the progress report."""
        if not self._newest:
            return None
        return SourceOffset({key: Points(end, behind=self._behind.get(key)) for key, end in self._newest.items()})

    def tasks(self, start: SourceOffset, end: SourceOffset) -> list[ReadTask]:
        """The tasks of the batch between two offsets."""
        planned = self._beside_deletions(lambda: self._plan(start, end))
        return make_tasks(planned, self.options, chunk_holds(self._cursors.subscription, planned))

    def _plan(self, start: SourceOffset, end: SourceOffset) -> list[list[EntryRange]]:
        self._planned = True
        self._adopt(end)
        self._view_ends.follow(self._layout.names, end.points)
        begin = end.starts_from(start)
        self._changes.check_gone({key: begin.get(key, at) for key, at in end.offsets.items()})
        known = start.points
        ranges = side_by_side(
            lambda key: self._range(key, begin.get(key), end.offsets[key], known.get(key)), [*end.offsets]
        )
        found = [part for each in ranges if each is not None for part in self._view_ends.parts(each)]
        return plan_tasks(self._view, found, task_options(self.options))

    def commit(self, end: SourceOffset) -> None:
        """Spark will never ask for anything before ``end`` again."""
        self._adopt(end)
        self._start_acks(end)
        self._cursors.finish_acks()

    def close(self) -> None:
        """Leave the subscription."""
        self._cursors.close()

    # -- how far

    def _start_acks(self, read: SourceOffset) -> None:
        """Everything before an offset is read, but for a log that is another one now."""
        names = self._layout.names
        places = [
            ResumePoint(key, names[key], points.at, points.at, points.published_ms)
            for key, points in read.points.items()
            if key in names
        ]
        self._cursors.start_acks({place.name: self._resuming.moved(place).at for place in places})

    def _look_at_holds(self, start: SourceOffset, *, is_idle: bool, is_over: bool = False) -> None:
        if self._holds.is_due or is_over:
            names = self._layout.names
            acked = {names[key]: offset for key, offset in start.offsets.items() if key in names}
            self._holds.look(self._cursors.subscription, acked, is_idle=is_idle, is_over=is_over)

    def _ends(self, places: Mapping[TopicPartition, ResumePoint]) -> Offsets:
        """The ends of all partitions, after waiting a moment for news if there are none; never past the target."""
        if self._target is not None:
            return {key: self._target[key] for key in places}
        names = self._layout.names
        if not self._bounded and self._cursors.is_settled:
            expected = {place.name: self._resuming.expected_end(place.name, place.at) for place in places.values()}
            ends = self._end_watch.ends_after(expected, ARRIVAL_WAIT_S)
        else:
            ends = self._end_watch.ends(names.values())
        unknown = [key for key, name in names.items() if not self._resuming.knows(places[key], ends[name])]

        def known(key: TopicPartition) -> Offset:
            return self._resuming.known_end(places[key], ends[names[key]], self._end_watch.mark_delete(names[key]))

        side_by_side(known, unknown)
        return self._note_ends(places, {key: known(key) for key in names})

    def _note_ends(self, places: Mapping[TopicPartition, ResumePoint], ends: Offsets) -> Offsets:
        """``ends``, as far as the stream goes; they are what there is to know of the end."""
        self._notice.see({self._layout.names[key]: end for key, end in ends.items()})
        self._newest = self._stream_end.cut(places, ends)
        if self._bounded:
            self._target = self._newest
        return self._newest

    def _note_lag(self, stop: Offsets, ends: Offsets) -> None:
        """Count the entries that the next batch leaves, where ``progress`` cannot see it: over the end of a ledger,
        without indexes. Admission has asked for the length of these ledgers already."""
        left = {
            key: NamedRange(self._layout.names[key], at.position, ends[key].position)
            for key, at in stop.items()
            if 0 <= at.position.ledger < ends[key].position.ledger
            and min(at.message_index, ends[key].message_index) < 0
        }
        found = side_by_side(self._view.counts.known_entries, [*left.values()])
        self._behind = {key: entries for key, entries in zip(left, found, strict=True) if entries is not None}

    def _points(
        self, stop: Offsets, ends: Offsets, places: Mapping[TopicPartition, ResumePoint], start: SourceOffset
    ) -> dict[TopicPartition, Points]:
        """The points of a batch that stops at ``stop`` in partitions that end at ``ends``."""
        stays = {key for key, points in start.points.items() if stop.get(key) == points.at == places[key].at}
        read = [key for key, at in stop.items() if key not in stays and at.position.entry > 0]
        before = [Position(stop[key].position.ledger, stop[key].position.entry - 1) for key in read]
        asked = [(places[key].name, at) for key, at in zip(read, before, strict=True)]
        published = dict(zip(read, self._client.published_at(asked), strict=True))
        published |= {key: start.points[key].published_ms for key in stays}
        return {
            key: Points(
                at,
                seen=ends[key] if ends[key].key > at.key else None,
                published_ms=published.get(key),
                view_end=self._view_ends.of(places[key]),
            )
            for key, at in stop.items()
        }

    def _stop(self, places: Mapping[TopicPartition, ResumePoint], ends: Offsets, limit: int | None) -> Offsets:
        """The stops of the batch: ``ends``, or before if that would be too much, or its start if it is too little."""
        if limit is None:  # Otherwise it is what the options say, and they may say more.
            return dict(ends)
        begin = {key: self._resuming.start(place) for key, place in places.items()}
        ends = self._view_ends.counted(places, ends)
        admission = Admission(self._view, self._layout.names, self.options.amounts)
        comes_more = not self._bounded and not self._stream_end.is_reached(ends, ends)
        if comes_more and not self._delay.is_due(lambda: sum(admission.waiting(begin, ends).messages.values())):
            return {key: place.at for key, place in places.items()}
        return admission.stops(begin, ends)

    def _range(self, key: TopicPartition, begin: Offset | None, end: Offset, known: Points | None) -> EntryRange | None:
        """The range to read of one partition, if any. ``known``: what the offset before the batch says of it."""
        name = self._layout.names.get(key)
        if name is None:
            return None
        if begin is None:
            start: Offset | None = self._changes.beginning(name)
            exact = False
        else:
            published_ms = known.published_ms if known is not None and known.at == begin else None
            place = self._resuming.hold(ResumePoint(key, name, begin, end, published_ms))
            start, exact = self._resuming.first_to_read(place, end)
        return EntryRange(key, name, name != key.topic, start, end, exact) if start and start.key < end.key else None
