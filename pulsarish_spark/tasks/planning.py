# SPDX-License-Identifier: Apache-2.0
"""From ranges to Spark tasks: into how many pieces a range is cut, and which task reads which piece.

The rules of ``minPartitions`` and ``maxRecordsPerPartition`` are those of Spark's Kafka source. Without them the work
decides: short ranges share a task, long ones are cut until every core has a piece. A range is cut into whole entries,
by message indexes or, where a broker tells none, by what was counted; ``plan_tasks`` alone asks the broker.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from broker_core.base.positions import Position
from pulsarish_spark.connecting.side_by_side import side_by_side
from pulsarish_spark.losses.holes import indexes_between
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.viewing.broker_view import BrokerView, WantedIndex
from pulsarish_spark.viewing.counting import EntryProfile, NamedRange, part_bounds

PIECE_MESSAGES_MIN: Final = 50_000
"""Fewer messages than this are not worth a task of their own: a task costs about 10 ms, and these are read in that."""

RANGE_MESSAGES: Final = 7_000
"""Opening a range takes as long as reading so many messages: thousands of short ones are worth a task for each core."""


@dataclass(frozen=True, slots=True)
class EntryRange:
    """The messages of one partition from ``start`` up to ``end`` (exclusive). It travels to the executors.

    ``name`` is what the broker calls the partition. ``end`` None: up to the last message when it is read, or to the
    first one then that was published at or after ``until_ms``.
    ``exact``: the message at ``start`` must be there, else data is lost; not where the start is whatever is first when
    it is read. ``about``: how many messages it holds, as far as the driver could find out; -1 where it did not try.
    ``of_view``: the compacted view is read, and what it lacks is no loss.
    """

    key: TopicPartition
    name: str
    partitioned: bool
    start: Offset
    end: Offset | None
    exact: bool = True
    about: int = -1
    until_ms: int | None = None
    of_view: bool = False

    @property
    def messages(self) -> int:
        """Messages of the range by index; -1 where the indexes are not known."""
        return -1 if self.end is None else indexes_between(self.start, self.end)

    @property
    def size(self) -> int:
        """Messages of the range, known or estimated; -1 where neither is."""
        return self.messages if self.messages >= 0 else self.about

    def divided(self, bound: Position) -> list[EntryRange]:
        """The part before ``bound``, of the view, and the one behind it; its first message may have come later."""
        assert self.end is not None
        if self.start.position >= bound:
            return [self]
        middle = min(self.end, Offset(bound), key=lambda offset: offset.key)
        rest = replace(self, start=middle, exact=False)
        parts = [replace(self, end=middle, exact=False, of_view=True), rest]
        return [part for part in parts if part.end is not None and part.start.key < part.end.key]

    def cut(self, at: Sequence[Offset]) -> list[EntryRange]:
        """The messages of this range as consecutive ranges; ``at`` is sorted. Empty ranges are left out.

        The messages at the cuts were there a moment ago, whatever may be missing before the first of them: so their
        ranges are exact.
        """
        inside = [
            offset for offset in at if self.start.key < offset.key and (self.end is None or offset.key < self.end.key)
        ]
        starts, ends = [self.start, *inside], [*inside, self.end]
        about = -1 if inside else self.about
        pieces = [
            replace(self, start=start, end=end, exact=self.exact or start is not self.start, about=about)
            for start, end in zip(starts, ends, strict=True)
        ]
        return [piece for piece in pieces if piece.end is None or piece.start.key < piece.end.key]


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """The options of tasks. ``cores``: how many tasks run at a time, as far as the driver knows.

    ``key_ranges``: so many tasks read each range, so it is not cut besides.
    """

    cores: int
    min_partitions: int | None = None
    input_partitions: int | None = None
    max_records: int | None = None
    key_ranges: int | None = None

    def pieces(self, messages: Sequence[int]) -> list[int]:
        """Into how many pieces to cut ranges of so many messages (-1: not known, not cut)."""
        counts = [max(1, math.ceil(m / self.max_records)) if self.max_records and m > 0 else 1 for m in messages]
        total = sum(m for m in messages if m > 0)
        if self.min_partitions is not None:
            wanted, piece_min = self.min_partitions, 1
        elif self.input_partitions is None:
            wanted, piece_min = self.cores, PIECE_MESSAGES_MIN
        else:
            return counts
        if sum(counts) >= wanted or total == 0:
            return counts
        return [
            max(count, min(round(wanted * m / total), m // piece_min)) if m > 0 else count
            for count, m in zip(counts, messages, strict=True)
        ]

    def tasks(self, ranges: Sequence[EntryRange], pieces: Sequence[EntryRange]) -> list[list[EntryRange]]:
        """Give each of ``pieces`` (``ranges`` after cutting) to a task."""
        if not pieces:
            return []
        if len(pieces) > len(ranges) or self.min_partitions is not None or self.max_records is not None:
            return [[piece] for piece in pieces]
        if self.input_partitions is not None:
            return by_failover_owner(pieces, self.input_partitions)
        if any(piece.size < 0 for piece in pieces):
            return [[piece] for piece in pieces]
        tasks = max(1, min(self._worth(pieces), len(pieces)))
        return [[*pieces[task::tasks]] for task in range(tasks)]  # In turns: plain topics are all partition 0.

    def _worth(self, pieces: Sequence[EntryRange]) -> int:
        """Tasks that pay for themselves."""
        messages = sum(piece.size for piece in pieces)
        opening = math.ceil((messages + RANGE_MESSAGES * len(pieces)) / PIECE_MESSAGES_MIN)
        return max(math.ceil(messages / PIECE_MESSAGES_MIN), min(opening, self.cores))


def plan_tasks(view: BrokerView, ranges: Sequence[EntryRange], wanted: TaskOptions) -> list[list[EntryRange]]:
    """The tasks that read ``ranges``, each of which has an end."""
    if wanted.key_ranges is not None:
        return [[whole] for whole in ranges]
    uncounted = [whole for whole in ranges if whole.messages < 0]
    found = view.counts.profiles([_named(whole) for whole in uncounted], exact=wanted.max_records is not None)
    profiles = dict(zip(uncounted, found, strict=True))
    sized = [replace(whole, about=profiles[whole].messages) if whole in profiles else whole for whole in ranges]
    counts = wanted.pieces([whole.size for whole in sized])
    cuts = zip(sized, counts, map(profiles.get, ranges), strict=True)
    # Where there are thousands, nearly all stay whole; they wait for no thread.
    divided = iter(side_by_side(lambda each: _cut(view, *each), [each for each in cuts if each[1] > 1]))
    pieces = [next(divided) if count > 1 else [whole] for whole, count in zip(sized, counts, strict=True)]
    return wanted.tasks(sized, [piece for some in pieces for piece in some])


def _cut(view: BrokerView, whole: EntryRange, pieces: int, profile: EntryProfile | None) -> list[EntryRange]:
    """Cut a range into about so many pieces; ``profile`` None: by its indexes."""
    if whole.end is None:
        return [whole]
    if profile is not None:
        return whole.cut([Offset(position) for position in profile.cuts(pieces)])
    first, bounds = whole.start.message_index, part_bounds(whole.messages, pieces)
    return whole.cut(
        view.entries_of_indexes([WantedIndex(whole.name, first + at, whole.start, whole.end) for at in bounds[1:-1]])
    )


def _named(whole: EntryRange) -> NamedRange:
    end = whole.start.position if whole.end is None else whole.end.behind_entry
    return NamedRange(whole.name, whole.start.position, end)


def by_failover_owner(pieces: Iterable[EntryRange], consumers: int) -> list[list[EntryRange]]:
    """Give each piece to a task by the rule by which a broker picks the active one of Failover consumers of equal
    priority (semantics 2.3.2). Tasks without a piece are left out."""
    owned: dict[int, list[EntryRange]] = {}
    for piece in pieces:
        owned.setdefault(piece.key.partition % consumers, []).append(piece)
    return [owned[owner] for owner in sorted(owned)]
