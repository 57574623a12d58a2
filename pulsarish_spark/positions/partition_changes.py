# SPDX-License-Identifier: Apache-2.0
"""Partitions that come and go: where a stream reads on in those that there are now, and what it means that one is gone.

Owns what was found and told of each, so that it is asked and told once. Knows nothing of how far a batch goes.
Invariants: a partition that came after the checkpoint is read from its first message, or else those before are a loss;
one that is gone is a loss too, or a mistake where the user does not read it any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from broker_core.base.errors import ConfigError
from broker_core.base.positions import Position
from pulsarish_spark.connecting.side_by_side import side_by_side
from pulsarish_spark.losses.holes import indexes_between, lost_of_topic
from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.losses.lost import Loss, left_partition, lost_added, lost_beginning, lost_partition
from pulsarish_spark.places.offsets import Offset, Offsets, Points, SourceOffset
from pulsarish_spark.places.topics import Selection, TopicPartition
from pulsarish_spark.positions.bounds import FirstStart
from pulsarish_spark.positions.cursors import Cursors
from pulsarish_spark.positions.resuming import ResumePoint, Resuming
from pulsarish_spark.viewing.broker_view import BrokerView
from pulsarish_spark.viewing.layout import FollowedLayout


@dataclass(slots=True, eq=False)
class PartitionChanges:
    """Follows the partitions of one query, which are those of ``layout``."""

    _selection: Selection
    _policy: LossPolicy
    _layout: FollowedLayout
    _view: BrokerView
    _cursors: Cursors
    _first_start: FirstStart
    _resuming: Resuming
    _told_missing: set[TopicPartition] = field(default_factory=set)
    _checked_beginnings: set[TopicPartition] = field(default_factory=set)
    _unread: dict[str, Offset | None] = field(default_factory=dict)

    def places(self, start: SourceOffset) -> dict[TopicPartition, ResumePoint]:
        """The places where partitions that exist now are read on; new ones begin at their first message."""
        self.check_gone(start.offsets)
        names = self._layout.names
        added = [key for key in names if key not in start.points]
        new = dict(zip(added, side_by_side(lambda key: self.beginning(names[key]), added), strict=True))
        side_by_side(lambda key: self._check_beginning(key, new[key], start), added)
        places: dict[TopicPartition, ResumePoint] = {}
        for key, name in names.items():
            points = start.points.get(key) or Points(new[key])
            places[key] = ResumePoint(key, name, points.at, points.seen or points.at, points.published_ms)
        unheld = [place for key, place in places.items() if key not in new and not self._resuming.is_held(place.name)]
        side_by_side(self._resuming.hold, unheld)
        return {key: self._resuming.moved(place) for key, place in places.items()}

    def beginning(self, name: str) -> Offset:
        """The start of a partition that came after the checkpoint: its first message, or the first unacknowledged."""
        if not self._cursors.is_open(name):
            self._unread[name] = self._first_start.position(name)
            self._cursors.open(name, makes_partition=True)
        return self._unread.get(name) or self._view.earliest(name)

    def check_gone(self, offsets: Offsets) -> None:
        """Tell of each partition of ``offsets`` that is not there; ConfigError if the user does not read it now."""
        for key, offset in offsets.items():
            if key in self._layout.names:
                continue
            if self._policy.fail and not self._selection.wants(key):
                what = key if self._selection.wants_some_of(key.topic) else key.topic
                raise ConfigError(
                    f"the checkpoint was made for topic {what}, which is not read now",
                    hint="read the same topics, use a new checkpoint folder, or leave it from now on: "
                    '.option("failOnDataLoss", "false")',
                )
            if key not in self._told_missing:
                at = offset.text(key.partition)
                gone = self._selection.wants(key)
                self._report(lost_partition(key, at) if gone else left_partition(key, at, self._cursors.subscription))
                self._told_missing.add(key)

    def _check_beginning(self, key: TopicPartition, at: Offset, start: SourceOffset) -> None:
        """A partition that came after the checkpoint, to one of its topics or to the same pattern, has only messages
        that this query has to read: those before ``at`` that are gone, or that somebody has passed over, are lost.
        Apache Pulsar deletes what comes before there is a subscription. Where the user reads more topics than before,
        they may be as old as they like."""
        is_of_topic = key.topic in start.topics and self._selection.reads_all_of(key.topic)
        was_added = is_of_topic or (bool(self._selection.patterns) and start.pattern == self._selection.pattern)
        if not was_added or key in self._checked_beginnings:
            return
        name = self._layout.names[key]
        found, first = self._view.with_index(name, at), self._view.earliest(name)
        if found.key == first.key and (lost := lost_of_topic(found)) > 0:
            self._report(lost_beginning(key, found.text(key.partition), lost))
        elif (passed := self._passed_over(key, name, first)) is not None:
            self._report(self._lost_added(key, first, found, passed))
        self._checked_beginnings.add(key)

    def _passed_over(self, key: TopicPartition, name: str, first: Offset) -> Position | None:
        """The mark-delete position of an added partition's subscription, if this query has not put it there; None: it
        is new, stands at its beginning, or behind holes there, or this query has read of the partition before it was
        gone for a while."""
        if self._unread.get(name) is None or key in self._told_missing:
            return None
        mark_delete = self._cursors.handle(name).mark_delete()
        if mark_delete is None or mark_delete.entry < 0:
            return None
        is_in_holes = mark_delete.ledger == first.position.ledger and mark_delete < first.position
        return None if is_in_holes else mark_delete

    def _lost_added(self, key: TopicPartition, first: Offset, at: Offset, passed: Position) -> Loss:
        start = at.text(key.partition)
        is_there = first.key < at.key
        messages = indexes_between(first, at) if is_there else -1
        shown = first.text(key.partition) if is_there else ""
        return lost_added(key, shown, start, self._cursors.subscription, str(passed), messages)

    def _report(self, loss: Loss) -> None:
        self._policy.report(loss, self._cursors.subscription)
