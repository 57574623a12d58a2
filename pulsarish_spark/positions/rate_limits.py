# SPDX-License-Identifier: Apache-2.0
"""The limits of a batch: where each partition stops so that it has no more, and whether it waits until there is more.

``maxOffsetsPerTrigger`` and ``maxBytesPerTrigger``: a batch ends at the boundary of an entry, the last one that keeps
within the partition's share of each limit; an entry larger than its share is taken whole, or the query would stand
still. Messages are counted by index. Where the broker tells none, and for bytes, the driver reads the entries of the
batch to count them, up to a budget (``counting``). A batch goes on behind the counted entries only so far as it may if
all entries there are as large as the largest one that was seen.

The share of a partition follows the rule of Spark's Kafka source, so that a job that moves sees the same batches: in
proportion to the backlog, rounded down, but at least one where there is any backlog. A partition of weight 3 counts as
if it had three times its backlog; what it has no backlog for goes to the others.

``minOffsetsPerTrigger`` and ``maxTriggerDelay``: Spark's Python sources have no limit that says so. A driver keeps a
batch back by answering that nothing is new, and is asked again at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from broker_core.base.clock import Clock
from pulsarish_spark.connecting.side_by_side import side_by_side
from pulsarish_spark.options import Amounts
from pulsarish_spark.places.offsets import Offset, Offsets
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.viewing.broker_view import BrokerView, WantedIndex
from pulsarish_spark.viewing.counting import EntryProfile, NamedRange, Unit

HELD_BACK_LOOK_S: Final = 1.0
"""Seconds between looks at the ends while a batch is held back: each is a round trip for each partition."""

K = TypeVar("K")


class Waiting(NamedTuple):
    """The messages between two offsets of each partition. ``uncounted``: ranges whose messages no index tells."""

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
        """The messages of each partition that are there to be read."""
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
        return Waiting(starts, uncounted, messages | self._estimates(uncounted, "messages"))

    # -- each limit

    def _message_stops(self, begin: Offsets, end: Offsets, limit: int) -> dict[TopicPartition, Offset]:
        waiting = self.waiting(begin, end)
        shares = share_out(waiting.messages, limit, self._weights(waiting.messages))
        rooms = self._rooms(waiting.messages, shares, limit)
        uncounted = {key: (range_, rooms[key]) for key, range_ in waiting.uncounted.items() if shares[key]}
        found = self._counted(uncounted, "messages")
        # The profiles of the next batch are kept for the tasks, which are planned next.
        self.view.counts.keep(dict(found.values()))
        stops = {key: Offset(range_.end) for key, (range_, _) in found.items() if range_.end < end[key].position}
        cut = [key for key in waiting.starts if key not in waiting.uncounted and shares[key] < waiting.messages[key]]
        return stops | self._advanced(cut, waiting.starts, end, shares)

    def _advanced(
        self, keys: Sequence[TopicPartition], starts: Offsets, end: Offsets, shares: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Offset]:
        """The boundary that is about its share of messages behind each start, at least one entry, at most the end."""
        wanted = [
            WantedIndex(self.names[key], starts[key].message_index + shares[key], starts[key], end[key]) for key in keys
        ]
        stops: dict[TopicPartition, Offset] = {}
        for key, at in zip(keys, self.view.entries_of_indexes(wanted), strict=True):
            too_short = at.key <= starts[key].key
            stop = self.view.behind_entry(self.names[key], starts[key].position) if too_short else at
            stops[key] = min(stop or end[key], end[key], key=lambda offset: offset.key)
        return stops

    def _byte_stops(self, begin: Offsets, end: Offsets, limit: int) -> dict[TopicPartition, Offset]:
        ranges = {key: self._range(key, begin[key], to) for key, to in end.items() if begin[key].position < to.position}
        sizes = self._estimates(ranges, "bytes")
        shares = share_out(sizes, limit, self._weights(sizes))
        rooms = self._rooms(sizes, shares, limit)
        found = self._counted({key: (range_, rooms[key]) for key, range_ in ranges.items() if shares[key]}, "bytes")
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

    def _estimates(self, ranges: Mapping[TopicPartition, NamedRange], unit: Unit) -> dict[TopicPartition, int]:
        """The size of each range, for shares: the number of its entries, times a likely size."""
        counts = self.view.counts
        entries = [profile.entries for profile in side_by_side(counts.entries, [*ranges.values()])]
        sizes = counts.per_entry([*ranges.values()], unit)
        return {key: round(count * size) for key, count, size in zip(ranges, entries, sizes, strict=True)}

    def _counted(
        self, ranges: Mapping[TopicPartition, tuple[NamedRange, int]], unit: Unit
    ) -> dict[TopicPartition, tuple[NamedRange, EntryProfile]]:
        """The part of each range that has no more than its room, or one entry, and the profile of that part."""
        counts = self.view.counts
        counted = dict(zip(ranges, counts.count([*ranges.values()], unit), strict=True))

        def fitted(key: TopicPartition) -> tuple[NamedRange, EntryProfile]:
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


# -- shares


def share_out(backlogs: Mapping[K, int], limit: int, weights: Mapping[K, int] | None = None) -> dict[K, int]:
    """The part of each partition that a batch of ``limit`` takes. Empty partitions get 0.

    ``weights``: of partitions that have another one than 1.
    """
    if sum(backlogs.values()) <= limit:
        return dict(backlogs)
    weighted = weighted_backlogs(backlogs, weights or {})
    shares: dict[K, int] = {}
    left = limit
    while served := [key for key in _fully_served(backlogs, weighted, left) if key not in shares]:
        shares |= {key: backlogs[key] for key in served}
        left -= sum(backlogs[key] for key in served)
        for key in served:
            weighted[key] = 0
    total = sum(weighted.values())
    for key, backlog in backlogs.items():
        if key not in shares:
            # Integers, because a float's 53 bits would round a backlog times a very large limit.
            shares[key] = min(backlog, max(left * weighted[key] // total, 1)) if backlog else 0
    return {key: shares[key] for key in backlogs}


def weighted_backlogs(backlogs: Mapping[K, int], weights: Mapping[K, int]) -> dict[K, int]:
    """Each backlog times the weight of its partition."""
    return {key: backlog * weights.get(key, 1) for key, backlog in backlogs.items()}


def _fully_served(backlogs: Mapping[K, int], weighted: Mapping[K, int], left: int) -> list[K]:
    """The partitions whose share is at least all that they have."""
    total = sum(weighted.values())
    return [key for key, weight in weighted.items() if weight and left * weight >= backlogs[key] * total]


# -- minima


@dataclass(slots=True, eq=False)
class TriggerDelay:
    """Holds small batches back. Times are those of this process, so the first batch of each start runs at once.

    Used by one thread.
    """

    _amounts: Amounts
    _clock: Clock
    _ran_at: float | None = None
    _waits_until: float | None = None

    def began(self) -> None:
        """A batch runs."""
        self._ran_at, self._waits_until = self._clock.monotonic(), None

    def is_due(self, messages: Callable[[], int]) -> bool:
        """Whether a batch of so many messages runs now."""
        now = self._clock.monotonic()
        least, delay_s_max = self._amounts.messages_min, self._amounts.delay_s_max
        if least is None or self._ran_at is None or now - self._ran_at >= delay_s_max:
            return True
        if messages() >= least:
            return True
        self._waits_until = min(now + HELD_BACK_LOOK_S, self._ran_at + delay_s_max)
        return False

    @property
    def waits(self) -> bool:
        """Whether a batch was found too small a moment ago."""
        return self._waits_until is not None and self._clock.monotonic() < self._waits_until
