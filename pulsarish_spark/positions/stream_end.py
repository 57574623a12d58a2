# SPDX-License-Identifier: Apache-2.0
"""The end of a stream: no row at or behind the place that ``endingOffsets`` or ``endingTimestamp`` says.

What an option names may not exist yet, so it is looked for in each partition as its end moves, and remembered when it
is found. An id needs no look: positions have an order. A time costs a question to the broker whenever something new
has come, for any message may be as young. A partition of which nothing is said has no end.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from broker_core.base.errors import ConfigError
from broker_core.base.moments import Moment
from pulsarish_spark.options import ReadOptions
from pulsarish_spark.places.offsets import Offset, Offsets
from pulsarish_spark.places.start_spec import AtIndex
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.positions.resuming import ResumePoint
from pulsarish_spark.viewing.broker_view import HOW_TO_GET_INDEXES, BrokerView

logger = logging.getLogger(__name__)


class StreamEnd:
    """The ends of the partitions of one query. Used by one thread."""

    def __init__(self, view: BrokerView, options: ReadOptions) -> None:
        self._view = view
        self._options = options
        self._found: dict[TopicPartition, Offset] = {}
        self._looked: dict[TopicPartition, Offset] = {}
        self._told = False

    def cut(self, places: Mapping[TopicPartition, ResumePoint], ends: Offsets) -> Offsets:
        """``ends`` of partitions that are read on at ``places``, as far as the stream goes."""
        if not self._options.ending.specs:
            return ends
        return {key: self._cut(places[key], end) for key, end in ends.items()}

    def is_reached(self, keys: Iterable[TopicPartition], at: Offsets) -> bool:
        """Whether the stream has nothing behind ``at``, whatever comes."""
        if not self._found:
            return False
        return all(key in self._found and key in at and at[key].key >= self._found[key].key for key in keys)

    def check_order(self, places: Mapping[TopicPartition, ResumePoint]) -> None:
        """ConfigError if a query begins behind its end."""
        for key, place in places.items():
            end = self._found.get(key)
            if end is not None and end.key < place.at.key:
                raise ConfigError(
                    f"{key} would be read from {place.at.text(key.partition)} back to {end.text(key.partition)}",
                    hint="swap the starting and the ending option; without a starting one a stream begins at latest",
                )

    def tell(self) -> None:
        """Say once that the stream has no more rows."""
        if not self._told:
            logger.info("the stream has reached its end partitions=%d effect=%s", len(self._found), "no more rows")
            self._told = True

    def _cut(self, place: ResumePoint, end: Offset) -> Offset:
        found = self._found.get(place.key)
        if found is None and self._looked.get(place.key) != end:
            found = self._find(place, end)
            self._looked[place.key] = end
            if found is not None:
                self._found[place.key] = found
        if found is None or found.key >= end.key:
            return end
        # The same place keeps its text, whether or not its index is known by now.
        return found if found.key > place.at.key else place.at

    def _find(self, place: ResumePoint, end: Offset) -> Offset | None:
        """The end of one partition; None if it is not there yet."""
        said = self._options.ending.said_of(place.key)
        if said is None:
            return None
        if isinstance(said.point, Moment):
            return self._view.at_time(place.name, said.point.published_at(self._options.now_ms))
        if isinstance(said.point, AtIndex):
            return self._at_index(place, said.point.message_index, end)
        assert isinstance(said.point, Offset), said.point  # Options refuse all else.
        return said.point if end.message_index < 0 else self._view.with_index(place.name, said.point)

    def _at_index(self, place: ResumePoint, index: int, end: Offset) -> Offset | None:
        first = self._view.offset_at(place.name, place.at.position)
        if first is None or first.key >= end.key:
            return None  # Nothing is there that could have an index.
        if min(first.message_index, end.message_index) < 0:
            raise ConfigError(
                f"the ending offset of {place.key} is message index {index}, but the broker does not tell indexes",
                hint=f"give an id ledger:entry or a time; {HOW_TO_GET_INDEXES}",
            )
        if index <= first.message_index + place.at.batch:
            return place.at
        return self._view.inside(place.name, index, first, end) if index < end.message_index else None
