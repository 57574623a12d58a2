# SPDX-License-Identifier: Apache-2.0
"""``maxOffsetsPerTrigger``: where each partition stops so that a batch has no more messages than that.

A batch ends at the boundary of an entry, the last one that keeps within the partition's share; an entry larger than its
share is taken whole, or the query would stand still. Messages are counted by index. Where the broker tells none, the
driver reads the entries of the batch to count them, up to a budget (``counting``). A batch goes on behind what was
counted only so far as it may if all entries there are as large as the largest one that was seen.
"""

from __future__ import annotations

from collections.abc import Mapping

from pulsarish_spark.places.offsets import Offset, Offsets
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.viewing.broker_view import BrokerView
from pulsarish_spark.viewing.counting import EntryCounts, NamedRange
from pulsarish_spark.viewing.entry_profile import Profile
from pulsarish_spark.viewing.limits import share_out


def admit(
    view: BrokerView, names: Mapping[TopicPartition, str], begin: Offsets, end: Offsets, limit: int
) -> dict[TopicPartition, Offset]:
    """The stops of a batch of at most ``limit`` messages in [begin, end)."""
    starts = {
        key: begin[key] if to.message_index < 0 else view.with_index(names[key], begin[key])
        for key, to in end.items()
        if begin[key].key < to.key
    }
    uncounted = {
        key: NamedRange(names[key], start.position, end[key].position)
        for key, start in starts.items()
        if min(start.message_index, end[key].message_index) < 0
    }
    backlogs = {
        key: end[key].message_index - start.message_index for key, start in starts.items() if key not in uncounted
    }
    backlogs |= _estimates(view.counts, uncounted)
    shares = share_out(backlogs, limit)
    # An estimate may be far too low, so each partition is counted against its part of the whole limit.
    rooms = {key: max(shares[key], limit * backlogs[key] // sum(backlogs.values())) for key in uncounted if shares[key]}
    stops = _counted_stops(view.counts, uncounted, rooms)
    for key, start in starts.items():
        if key not in uncounted and shares[key] < backlogs[key]:
            stops[key] = _advance(view, names[key], start, end[key], shares[key])
    return {**end, **stops}


def _advance(view: BrokerView, name: str, start: Offset, end: Offset, share: int) -> Offset:
    """The boundary that is about ``share`` messages behind ``start``, at least one entry, at most ``end``."""
    stop = view.entry_of_index(name, start.message_index + share, start, end)
    if stop.key <= start.key:
        stop = view.behind_entry(name, start.position) or end
    return min(stop, end, key=lambda offset: offset.key)


# -- without indexes


def _estimates(counts: EntryCounts, ranges: Mapping[TopicPartition, NamedRange]) -> dict[TopicPartition, int]:
    """Backlogs in messages, for shares: as many entries as there are, each of a likely size."""
    entries = [counts.entries(range_).entries for range_ in ranges.values()]
    sizes = counts.per_entry([*ranges.values()])
    return {key: round(count * size) for key, count, size in zip(ranges, entries, sizes, strict=True)}


def _counted_stops(
    counts: EntryCounts, ranges: Mapping[TopicPartition, NamedRange], rooms: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Offset]:
    """Where the batch stops in each range that has more than its room. What was counted is kept for the tasks."""
    stops: dict[TopicPartition, Offset] = {}
    admitted: dict[NamedRange, Profile] = {}
    counted = counts.count([(ranges[key], room) for key, room in rooms.items()])
    for (key, room), profile in zip(rooms.items(), counted, strict=True):
        if not profile.entries:
            continue  # Nothing is there any more. The task that reads the range reports that.
        found = profile.within(room)
        if found.entries == profile.entries:
            found += counts.fitting(ranges[key].behind(profile), profile.largest, room - profile.messages)
        rest = ranges[key].behind(found)
        if counts.entries(rest).entries:
            stops[key] = Offset(rest.start)
            admitted[ranges[key]._replace(end=rest.start)] = found
        else:
            admitted[ranges[key]] = found
    counts.keep(admitted)
    return stops
