# SPDX-License-Identifier: Apache-2.0
"""The driver's side of one stream: where it starts, how far the next batch goes, what its tasks are, what is done.

Theory of operation. Spark asks ``initial`` (several times), then for each batch ``latest(start, limit)`` and
``plan(start, end)``, and ``commit(end)`` only when another batch follows. ``start`` of a later call is an end that
Spark has committed, so ``latest`` acknowledges up to it as well: that is what brings the backlog to zero after the
last batch. Offsets are entry boundaries; a batch never tears an entry. Offset texts must not change unless a position
does, or Spark would run empty batches for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from broker_core.base.clock import Clock, SystemClock
from broker_core.base.errors import (
    ConfigError,
    NotAllowedError,
    SubscriptionNotFoundError,
    TopicNotFoundError,
)
from broker_core.client import Client
from pulsarish_spark.admission import admit
from pulsarish_spark.broker_view import BrokerView
from pulsarish_spark.cursors import Cursors
from pulsarish_spark.cutting import plan_tasks
from pulsarish_spark.index_notice import IndexNotice
from pulsarish_spark.loss import LossPolicy, lost_partition
from pulsarish_spark.news import News
from pulsarish_spark.offsets import Offset, Offsets, SourceOffset
from pulsarish_spark.options import ReadOptions
from pulsarish_spark.planning import EntryRange, TaskWish
from pulsarish_spark.resuming import Place, Resuming
from pulsarish_spark.start_spec import OffsetSpec
from pulsarish_spark.starting import resolve_start, start_point
from pulsarish_spark.topics import TopicPartition, discover

DISCOVERY_S: Final = 5.0
"""How often new partitions are looked for."""

NEWS_WAIT_S: Final = 0.1
"""How long ``latest`` waits for a first new message: Spark would ask again at once. No longer, for other sources of the
same query wait meanwhile."""


DELETION_S: Final = 10.0
"""How long a topic may be neither there nor gone: Apache Pulsar deletes it step by step."""

T = TypeVar("T")


logger = logging.getLogger(__name__)


class StreamDriver:
    """State of one running query on the driver. Used by one thread."""

    def __init__(self, options: ReadOptions, client: Client, wish: TaskWish, clock: Clock | None = None) -> None:
        self.options = options
        self._client = client
        self._wish = wish
        self._clock = clock or SystemClock()
        self._view = BrokerView(client)
        self._policy = LossPolicy(options.fail_on_data_loss)
        self._cursors = Cursors(client, options.subscription)
        self._resuming = Resuming(client, self._view, self._cursors, self._policy)
        self._news = News(self._cursors, self._clock)
        self._notice = IndexNotice()
        self._look_for_partitions()
        for topic in self._layout.missing:
            logger.warning("topic %s does not exist; the stream waits for it", topic)
        self._initial: SourceOffset | None = None
        self._planned = False  # Then nothing is first any more, even if it lies where a replayed batch made us begin.
        self._bounded = False
        self._target: Offsets | None = None
        self._newest: Offsets = {}
        self._told_missing: set[TopicPartition] = set()

    # -- what Spark asks, in its order

    def bound_to_now(self) -> None:
        """AvailableNow: read no further than what is there at the first ``latest``."""
        self._bounded = True

    def initial(self) -> SourceOffset:
        """Where a query without a checkpoint starts; the same answer each time."""
        if self._initial is None:
            spec = self.options.starting or OffsetSpec()
            spec.check_named("startingOffsets", self._layout.partitions, self._layout.missing)
            self._initial = SourceOffset(
                {key: self._first_start(key, name) for key, name in self._layout.names.items()}
            )
        return self._initial

    def latest(self, start: SourceOffset, limit: int | None) -> SourceOffset:
        """How far the next batch from ``start`` goes; ``start`` itself if there is nothing new."""
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
                    raise  # What AvailableNow reads is fixed, its partitions too.
                self._look_for_partitions()
            self._cursors.drop_ended()

    def _latest(self, start: SourceOffset, limit: int | None) -> SourceOffset:
        first = self._initial is not None and not self._planned and start == self._initial
        self._refresh_layout()
        places = self._places(start)
        if not first:
            self._start_acks(start.offsets)
        ends = self._ends(places, wait=not first)
        stop = self._stop(places, ends, limit)
        if stop == start.offsets and not first:
            self._cursors.finish_acks()
            return start
        # Its batch begins with the commit of ``start``, which waits for the acks.
        seen = {key: ends[key] for key in stop if ends[key].key > stop[key].key}
        return SourceOffset(stop, start.offsets if first else None, seen)

    def newest(self) -> SourceOffset | None:
        """The ends as last seen, for the progress report."""
        return SourceOffset(self._newest) if self._newest else None

    def plan(self, start: SourceOffset, end: SourceOffset) -> list[list[EntryRange]]:
        """The tasks of the batch between two offsets."""
        return self._beside_deletions(lambda: self._plan(start, end))

    def _plan(self, start: SourceOffset, end: SourceOffset) -> list[list[EntryRange]]:
        self._planned = True
        begin = end.start if end.start is not None else start.offsets
        self._check_partitions(end.offsets)
        ranges = [found for key, to in end.offsets.items() if (found := self._range(key, begin.get(key), to))]
        return plan_tasks(self._view, ranges, self._wish)

    def commit(self, end: SourceOffset) -> None:
        """Spark will never ask for anything before ``end`` again."""
        self._start_acks(end.offsets)
        self._cursors.finish_acks()

    def close(self) -> None:
        """Leave the subscription."""
        self._cursors.close()

    def _first_start(self, key: TopicPartition, name: str) -> Offset:
        """Where one partition starts, with a cursor that is there before, so that nothing behind is deleted."""
        at_end = self.options.starting_ms is None and start_point(key, self.options, "latest") == "latest"
        self._cursors.open(name, "latest" if at_end else "earliest")
        start = resolve_start(self._view, name, key, self.options, "latest", self._policy)
        if not at_end:
            # What comes before a start that is always resolved alike is never needed. ``latest`` is not: asked again
            # after a restart it may lie behind the end of a first batch that was not committed.
            self._cursors.start_acks({name: start})
            self._cursors.finish_acks()
        return start

    # -- partitions that come and go

    def _refresh_layout(self) -> None:
        if self._bounded and self._target is not None:
            return
        if self._layout.missing or self._clock.monotonic() - self._layout_at >= DISCOVERY_S:
            self._look_for_partitions()

    def _look_for_partitions(self) -> None:
        self._layout = discover(self.options.selection, self._client, missing_ok=True)
        self._layout_at = self._clock.monotonic()

    def _places(self, start: SourceOffset) -> dict[TopicPartition, Place]:
        """Where the partitions that exist now are read on; those that are new begin at their first message."""
        self._check_partitions(start.offsets)
        places: dict[TopicPartition, Place] = {}
        for key, name in self._layout.names.items():
            if (at := start.offsets.get(key)) is None:
                self._cursors.open(name)
                at = self._view.earliest(name)
                places[key] = Place(key, name, at, at)
            else:
                places[key] = Place(key, name, at, start.seen.get(key, at))
                self._resuming.hold(places[key])
        return places

    def _check_partitions(self, offsets: Offsets) -> None:
        for key, offset in offsets.items():
            if key in self._layout.names:
                continue
            if not self.options.selection.wants(key):
                what = key.topic if key.topic not in self.options.selection.names else key
                raise ConfigError(
                    f"the checkpoint was made for topic {what}, which is not read now",
                    hint="read the same topics, or use a new checkpoint folder",
                )
            if key not in self._told_missing:
                self._policy.report(lost_partition(key, offset.text(key.partition)))
                self._told_missing.add(key)

    def _start_acks(self, offsets: Offsets) -> None:
        names = self._layout.names
        self._cursors.start_acks({names[key]: offset for key, offset in offsets.items() if key in names})

    # -- how far

    def _ends(self, places: Mapping[TopicPartition, Place], *, wait: bool) -> Offsets:
        """The ends of all partitions, after waiting a moment for news if there are none; never past the target."""
        if self._target is not None:
            return {key: self._target[key] for key in places}
        names = self._layout.names
        if wait and not self._bounded and self._cursors.is_settled:
            expected = {place.name: self._resuming.expected_end(place.name, place.at) for place in places.values()}
            ends = self._news.ends_after(expected, NEWS_WAIT_S)
        else:
            ends = self._news.ends(names.values())
        self._notice.see(ends)
        self._newest = {key: self._known_end(places[key], ends[name]) for key, name in names.items()}
        if self._bounded:
            self._target = self._newest
        return self._newest

    def _known_end(self, place: Place, end: Offset) -> Offset:
        """``end``, or the place itself where the broker shows nothing, or nothing new, behind it."""
        if end.position.ledger == place.at.position.ledger and place.at.is_possible_before(end):
            # The same position keeps its text, whether or not its index is known by now.
            return end if end.key != place.at.key else place.at
        found = self._resuming.find(place, end)
        return end if found.anew or (found.at is not None and found.at.key < end.key) else place.at

    def _stop(self, places: Mapping[TopicPartition, Place], ends: Offsets, limit: int | None) -> Offsets:
        """Where the batch stops: at ``ends``, or before if that would be more than ``limit`` messages."""
        if limit is None:
            return dict(ends)
        begin = {key: self._resuming.start(place) for key, place in places.items()}
        return admit(self._view, self._layout.names, begin, ends, limit)

    def _range(self, key: TopicPartition, begin: Offset | None, end: Offset) -> EntryRange | None:
        """What to read of one partition; None if nothing."""
        name = self._layout.names.get(key)
        if name is None:
            return None
        if begin is None:
            self._cursors.open(name)
            start: Offset | None = self._view.earliest(name)
            exact = False
        else:
            self._resuming.hold(Place(key, name, begin, end))
            start, exact = self._start(Place(key, name, begin, end), end)
        return EntryRange(key, name, name != key.topic, start, end, exact) if start and start.key < end.key else None

    def _start(self, place: Place, end: Offset) -> tuple[Offset | None, bool]:
        """The first message to read before ``end``, and whether just that one must be there."""
        if end.position.ledger != place.at.position.ledger or not place.at.is_possible_before(end):
            found = self._resuming.find(place, end)
            if found.anew:
                return self._view.earliest(place.name), False
            if found.at is None or found.at.position != place.at.position:
                return found.at, True
        if place.at.key == end.key:
            return None, True
        return place.at if end.message_index < 0 else self._view.with_index(place.name, place.at), True
