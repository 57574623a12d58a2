# SPDX-License-Identifier: Apache-2.0
"""``ViewEnds``: where in each partition of a stream the compacted view ends and the log is read (``ViewThenLog``).

Keeps the bounds in step with the checkpoint: those of partitions that are read come from its offsets, those of new ones
are found when their first batch is. Without ``readCompacted`` there is no view, and nothing is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pulsarish_spark.places.offsets import Offset, Offsets, Points
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.positions.resuming import ResumePoint
from pulsarish_spark.tasks.planning import EntryRange
from pulsarish_spark.viewing.broker_view import BrokerView
from pulsarish_spark.viewing.view_then_log import ViewThenLog


@dataclass(frozen=True, slots=True)
class ViewEnds:
    """The ends of the views of one query; ``_log`` None: it reads none."""

    _log: ViewThenLog | None
    _view: BrokerView

    def follow(self, names: Mapping[TopicPartition, str], points: Mapping[TopicPartition, Points]) -> None:
        """Read on as the checkpoint says."""
        if self._log is not None:
            ends = {key: each.view_end and each.view_end.position for key, each in points.items()}
            self._log.set_bounds({name: ends[key] for key, name in names.items() if key in ends})

    def find(self, places: Mapping[TopicPartition, ResumePoint]) -> None:
        """Find the ends for partitions of which nothing was read."""
        if self._log is None:
            return
        new = [place.name for place in places.values() if not self._log.is_bound(place.name)]
        self._log.find_bounds({name: end.position for name, end in self._view.ends_of(new).items()})
        for name in new:
            self._view.forget(name)

    def of(self, place: ResumePoint) -> Offset | None:
        """The end of the view in which a batch begins that reads on at ``place``; None: it begins in the log."""
        if self._log is None or place.at.position >= self._log.bound(place.name):
            return None
        return Offset(self._log.bound(place.name))

    def behind(self, places: Mapping[TopicPartition, ResumePoint], ends: Offsets) -> Offsets:
        """``ends``, or those of the views in which reading goes on, where the log has nothing behind them."""
        found = {key: self.of(place) or ends[key] for key, place in places.items()}
        return {key: max(ends[key], found[key], key=lambda end: end.key) for key in found}

    def counted(self, places: Mapping[TopicPartition, ResumePoint], ends: Offsets) -> Offsets:
        """The ends of what a limited batch may have: a view has fewer messages than their indexes say, so they are
        counted, and what comes behind it waits for the next batch."""
        return {key: self.of(place) or ends[key] for key, place in places.items()}

    def parts(self, whole: EntryRange) -> list[EntryRange]:
        """``whole``, divided into what is read of the view and what of the log."""
        return [whole] if self._log is None else whole.divided(self._log.bound(whole.name))
