# SPDX-License-Identifier: Apache-2.0
"""``maxOffsetsPerTrigger`` and ``maxBytesPerTrigger``: where each partition stops so that a batch has no more.

A batch ends at the boundary of an entry, the last one that keeps within the partition's share of each limit; an entry
larger than its share is taken whole, or the query would stand still. Messages are counted by index. Where the broker
tells none, and for bytes, the driver reads the entries of the batch to count them, up to a budget (``counting``). A
batch goes on behind what was counted only so far as it may if all entries there are as large as the largest one that
was seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pulsarish_spark.connecting.side_by_side import side_by_side
from pulsarish_spark.options import Amounts
from pulsarish_spark.places.offsets import Offset, Offsets
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.viewing.broker_view import BrokerView
from pulsarish_spark.viewing.counting import EntryCounts, NamedRange, Unit
from pulsarish_spark.viewing.entry_profile import Profile
from pulsarish_spark.viewing.index_places import Wanted, entries_of_indexes
from pulsarish_spark.viewing.limits import share_out, weighted_backlogs


class Waiting(NamedTuple):
    """What lies between two offsets of each partition. ``uncounted``: ranges whose messages no index tells."""

    starts: dict[TopicPartition, Offset]
    uncounted: dict[TopicPartition, NamedRange]
    messages: dict[TopicPartition, int]
    """Counted by index, or estimated by the number of entries."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Limits the batches of one query. ``names``: the names of the partitions that exist now."""

    view: BrokerView
    names: Mapping[TopicPartition, str]
    amounts: Amounts = field(default_factory=Amounts)

    def stops(self, begin: Offsets, end: Offsets) -> dict[TopicPartition, Offset]:
        """The stops of a batch in [begin, end) that keeps the limits."""
        stops = dict(end)
        if self.amounts.bytes_max is not None:
            stops |= self._byte_stops(begin, stops, self.amounts.bytes_max)
        if self.amounts.messages_max is not None:
            stops |= self._message_stops(begin, stops, self.amounts.messages_max)
        return stops

    def waiting(self, begin: Offsets, end: Offsets) -> Waiting:
        """What there is to read."""
        # Messages are counted from where each partition stands, and a share of them ends near by.
        self.view.look_at(
            (self.names[key], begin[key].position)
            for key, to in end.items()
            if to.message_index >= 0 and begin[key].key < to.key
        )
        starts = {
            key: begin[key] if to.message_index < 0 else self.view.with_index(self.names[key], begin[key])
            for key, to in end.items()
            if begin[key].key < to.key
        }
        uncounted = {
            key: self._range(key, start, end[key])
            for key, start in starts.items()
            if min(start.message_index, end[key].message_index) < 0
        }
        messages = {
            key: end[key].message_index - start.message_index for key, start in starts.items() if key not in uncounted
        }
        return Waiting(starts, uncounted, messages | _estimates(self.view.counts, uncounted, "messages"))

    # -- each limit

    def _message_stops(self, begin: Offsets, end: Offsets, limit: int) -> dict[TopicPartition, Offset]:
        waiting = self.waiting(begin, end)
        shares = share_out(waiting.messages, limit, self._weights(waiting.messages))
        rooms = self._rooms(waiting.messages, shares, limit)
        uncounted = {key: (range_, rooms[key]) for key, range_ in waiting.uncounted.items() if shares[key]}
        found = _counted(self.view.counts, uncounted, "messages")
        # What was counted of the next batch is kept for the tasks, which are planned next.
        self.view.counts.keep(dict(found.values()))
        stops = {key: Offset(range_.end) for key, (range_, _) in found.items() if range_.end < end[key].position}
        cut = [key for key in waiting.starts if key not in waiting.uncounted and shares[key] < waiting.messages[key]]
        return stops | self._advanced(cut, waiting.starts, end, shares)

    def _advanced(
        self, keys: Sequence[TopicPartition], starts: Offsets, end: Offsets, shares: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Offset]:
        """The boundary that is about its share of messages behind each start, at least one entry, at most the end."""
        wanted = [
            Wanted(self.names[key], starts[key].message_index + shares[key], starts[key], end[key]) for key in keys
        ]
        stops: dict[TopicPartition, Offset] = {}
        for key, at in zip(keys, entries_of_indexes(self.view, wanted), strict=True):
            too_short = at.key <= starts[key].key
            stop = self.view.behind_entry(self.names[key], starts[key].position) if too_short else at
            stops[key] = min(stop or end[key], end[key], key=lambda offset: offset.key)
        return stops

    def _byte_stops(self, begin: Offsets, end: Offsets, limit: int) -> dict[TopicPartition, Offset]:
        ranges = {key: self._range(key, begin[key], to) for key, to in end.items() if begin[key].position < to.position}
        sizes = _estimates(self.view.counts, ranges, "bytes")
        shares = share_out(sizes, limit, self._weights(sizes))
        rooms = self._rooms(sizes, shares, limit)
        found = _counted(
            self.view.counts, {key: (range_, rooms[key]) for key, range_ in ranges.items() if shares[key]}, "bytes"
        )
        cut = {key: range_ for key, (range_, _) in found.items() if range_.end < end[key].position}
        # With an index, so that messages of the next batch are counted by it.
        indexed = {key for key in cut if end[key].message_index >= 0}
        self.view.look_at((cut[key].name, cut[key].end) for key in indexed)
        return {
            key: (self.view.offset_at(range_.name, range_.end) if key in indexed else None) or Offset(range_.end)
            for key, range_ in cut.items()
        }

    def _rooms(
        self, backlogs: Mapping[TopicPartition, int], shares: Mapping[TopicPartition, int], limit: int
    ) -> dict[TopicPartition, int]:
        """An estimate may be far too low, so each partition is counted against its part of the whole limit."""
        weighted = weighted_backlogs(backlogs, self._weights(backlogs))
        total = max(sum(weighted.values()), 1)
        return {key: max(share, limit * weighted[key] // total) for key, share in shares.items()}

    def _weights(self, keys: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        weights = self.amounts.topic_weights
        return {key: weights[key.topic] for key in keys if key.topic in weights}

    def _range(self, key: TopicPartition, start: Offset, end: Offset) -> NamedRange:
        return NamedRange(self.names[key], start.position, end.position)


# -- without indexes


def _estimates(
    counts: EntryCounts, ranges: Mapping[TopicPartition, NamedRange], unit: Unit
) -> dict[TopicPartition, int]:
    """How much there is, for shares: as many entries as there are, each of a likely size."""
    entries = [profile.entries for profile in side_by_side(counts.entries, [*ranges.values()])]
    sizes = counts.per_entry([*ranges.values()], unit)
    return {key: round(count * size) for key, count, size in zip(ranges, entries, sizes, strict=True)}


def _counted(
    counts: EntryCounts, ranges: Mapping[TopicPartition, tuple[NamedRange, int]], unit: Unit
) -> dict[TopicPartition, tuple[NamedRange, Profile]]:
    """The part of each range that has no more than its room, or one entry, and where what lies in it."""
    counted = dict(zip(ranges, counts.count([*ranges.values()], unit), strict=True))

    def fitted(key: TopicPartition) -> tuple[NamedRange, Profile]:
        range_, room = ranges[key]
        profile = counted[key]
        fitting = profile.within(room)
        if fitting.entries == profile.entries:
            fitting += counts.fitting(range_.behind(profile), profile.largest, room - profile.messages, unit)
        rest = range_.behind(fitting)
        has_rest = bool(counts.entries(rest).entries)
        return range_._replace(end=rest.start) if has_rest else range_, fitting

    # Where nothing is there any more, the task that reads the range reports that.
    there = [key for key, profile in counted.items() if profile.entries]
    return dict(zip(there, side_by_side(fitted, there), strict=True))
