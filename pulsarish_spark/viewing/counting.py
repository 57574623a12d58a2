# SPDX-License-Identifier: Apache-2.0
"""Counts of ranges that no index tells: bytes on any broker, messages on one without indexes.

How many entries a range has, holes among them, is known exactly: within a ledger they are numbered, and a broker tells
where one ended. How many messages or bytes these hold only the entries say. So they are read, and dropped: all of them
up to a budget, so that a limit is kept to within one entry; of what lies beyond it, samples. What was counted of a
batch's messages is kept for cutting it. Must not know partitions' shares or tasks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, Literal, NamedTuple, TypeAlias

from broker_core.base.positions import POSITION_LATEST, Position
from broker_core.client import Counted, Span
from pulsarish_spark.viewing.view_then_log import Log

COUNT_BYTES_MAX: Final = 64 * 1024 * 1024
COUNT_ENTRIES_MAX: Final = 20_000
"""Bytes and entries that are read to count for one trigger, over all partitions: the work of half a second."""

SAMPLES: Final = 8
SAMPLE_ENTRIES: Final = 16
SAMPLE_BYTES_MAX: Final = 1024 * 1024
"""A range is judged by so many places, spread evenly, with so many entries each; by fewer where ranges are many."""

SAMPLES_MAX: Final = 256
"""Places at a time, over all ranges; at least one of each."""

SHORT_ENTRIES: Final = 100
"""A range of fewer entries is not sampled: it is read in the time that this takes."""

Unit: TypeAlias = Literal["messages", "bytes"]

_MESSAGES_MAX: Final = 2**62
_LEDGER_END: Final = 2**62
"""No ledger has so many entries."""


class Stretch(NamedTuple):
    """Entries of one ledger that follow each other, and how many messages one of them has on average."""

    first: Position
    entries: int
    per_entry: float = 1.0


@dataclass(frozen=True, slots=True)
class EntryProfile:
    """The stretches of a range, in order: messages or bytes that are counted or estimated. It speaks of messages."""

    stretches: tuple[Stretch, ...]

    @classmethod
    def counted(cls, positions: Sequence[Position], sums: Sequence[int]) -> EntryProfile:
        """The profile of entries that were counted; ``sums`` as in ``Counted``. Equal neighbours are one stretch."""
        found: list[Stretch] = []
        before = 0
        for position, total in zip(positions, sums, strict=True):
            size, before = total - before, total
            last = found[-1] if found else None
            if last is not None and last.per_entry == size and position == _behind(last):
                found[-1] = last._replace(entries=last.entries + 1)
            else:
                found.append(Stretch(position, 1, size))
        return cls(tuple(found))

    @property
    def entries(self) -> int:
        return sum(each.entries for each in self.stretches)

    @property
    def messages(self) -> int:
        return round(sum(each.entries * each.per_entry for each in self.stretches))

    @property
    def largest(self) -> float:
        """Messages of an entry at most, on average of its stretch."""
        return max((each.per_entry for each in self.stretches), default=1.0)

    def __add__(self, other: EntryProfile) -> EntryProfile:
        return EntryProfile(self.stretches + other.stretches)

    def entry(self, number: int) -> Position:
        """The position of the entry with this number, counted from 0; there must be one."""
        for each in self.stretches:
            if number < each.entries:
                return Position(each.first.ledger, each.first.entry + number)
            number -= each.entries
        raise IndexError(number)

    def first_entries(self, count: int) -> EntryProfile:
        """The first so many entries."""
        return EntryProfile(tuple(_split(self.stretches, [0, count])[0])) if count else EntryProfile(())

    def within(self, messages: int) -> EntryProfile:
        """The first entries that have no more than so many messages together; one entry in any case."""
        found: list[Stretch] = []
        left = float(messages)
        for each in self.stretches:
            fitting = min(int(left / each.per_entry), each.entries)
            if fitting:
                found.append(each._replace(entries=fitting))
            if fitting < each.entries:
                break
            left -= fitting * each.per_entry
        return EntryProfile(tuple(found)) if found else self.first_entries(1)

    def sampled(self, per_entry: Sequence[float]) -> EntryProfile:
        """The profile of these entries by samples: one part for each sample, all of about equal length, with the size
        that was sampled."""
        bounds = part_bounds(self.entries, len(per_entry))
        parts = _split(self.stretches, bounds)
        return EntryProfile(
            tuple(each._replace(per_entry=size) for part, size in zip(parts, per_entry, strict=True) for each in part)
        )

    def cuts(self, pieces: int) -> list[Position]:
        """The entries at which to cut into so many pieces with nearly equal numbers of messages."""
        sizes = [each.entries * each.per_entry for each in self.stretches]
        ends = list(accumulate(sizes))
        if not ends:
            return []
        found = []
        for piece in range(1, pieces):
            target = ends[-1] * piece / pieces
            at = bisect_left(ends, target)
            each = self.stretches[at]
            inside = int((target - (ends[at] - sizes[at])) / each.per_entry)
            found.append(Position(each.first.ledger, each.first.entry + min(inside, each.entries - 1)))
        return found


class NamedRange(NamedTuple):
    """A range of one partition, by what the broker calls it."""

    name: str
    start: Position
    end: Position

    def behind(self, profile: EntryProfile) -> NamedRange:
        """The rest of the range behind its first entries."""
        if not profile.stretches:
            return self
        last = profile.stretches[-1]
        return self._replace(start=Position(last.first.ledger, last.first.entry + last.entries))


class _ClosedLedger(NamedTuple):
    """A ledger that is not written any more: how many entries it has, and the first one behind it."""

    entries: int
    behind: Position


class EntryCounts:
    """Counts of the entries of all partitions of one query."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._closed: dict[tuple[str, int], _ClosedLedger] = {}
        self._known: dict[NamedRange, EntryProfile] = {}
        self._per_entry: dict[tuple[str, Unit], float] = {}

    def forget(self, name: str) -> None:
        """The log of partition ``name`` is another one."""
        self._closed = {place: found for place, found in self._closed.items() if place[0] != name}
        self._known = {range_: found for range_, found in self._known.items() if range_.name != name}

    # -- entries

    def entries(self, range_: NamedRange) -> EntryProfile:
        """All entries of a range, as if each had one message."""
        return self._entries(range_)[0]

    def known_entries(self, range_: NamedRange) -> int | None:
        """Entries of a range; None: not known, as its end is not there any more."""
        found, at = self._entries(range_)
        return found.entries if at <= range_.end else None

    def _entries(self, range_: NamedRange) -> tuple[EntryProfile, Position]:
        """Entries, and the place up to which they were followed: in the ledger of the end, or beyond if it is gone."""
        found: list[Stretch] = []
        at = range_.start
        while at.ledger < range_.end.ledger:
            ledger = self._closed_ledger(range_.name, at.ledger)
            if at.entry < ledger.entries:
                found.append(Stretch(at, ledger.entries - at.entry))
            at = ledger.behind
        if at < range_.end:
            found.append(Stretch(at, range_.end.entry - at.entry))
        return EntryProfile(tuple(found)), at

    def _closed_ledger(self, name: str, ledger: int) -> _ClosedLedger:
        known = self._closed.get((name, ledger))
        if known is None:
            before, first = self._log.bounds_at(name, Position(ledger, _LEDGER_END))
            if first is None:  # The end of the range was deleted meanwhile. The task that reads it reports that.
                return _ClosedLedger(0, POSITION_LATEST)
            entries = before.entry + 1 if before.ledger == ledger else 0
            known = self._closed[name, ledger] = _ClosedLedger(entries, Position(first.ledger, first.entry))
        return known

    # -- messages and bytes

    def per_entry(self, ranges: Sequence[NamedRange], unit: Unit = "messages") -> list[float]:
        """Likely size of an entry of each range: that of the entries that were counted last, or of a sample."""
        new = [range_ for range_ in ranges if (range_.name, unit) not in self._per_entry]
        spans = [Span(*range_, _MESSAGES_MAX, SAMPLE_ENTRIES, SAMPLE_BYTES_MAX) for range_ in new]
        for range_, counted in zip(new, self._log.count_entries(spans), strict=True):
            self._learn(range_.name, counted)
        return [self._per_entry.get((range_.name, unit), 1.0) for range_ in ranges]

    def count(self, ranges: Sequence[tuple[NamedRange, int]], unit: Unit = "messages") -> list[EntryProfile]:
        """The first entries of each range, up to the one that reaches so much, or the budget."""
        entries_max, bytes_max = (
            max(budget // max(len(ranges), 1), 1) for budget in (COUNT_ENTRIES_MAX, COUNT_BYTES_MAX)
        )
        spans = [
            Span(*range_, most, entries_max, bytes_max)
            if unit == "messages"
            else Span(*range_, _MESSAGES_MAX, entries_max, min(most, bytes_max))
            for range_, most in ranges
        ]
        found = self._log.count_entries(spans)
        for (range_, _), counted in zip(ranges, found, strict=True):
            self._learn(range_.name, counted)
        return [EntryProfile.counted(counted.positions, _sums(counted, unit)) for counted in found]

    def fitting(self, range_: NamedRange, largest: float, room: int, unit: Unit = "messages") -> EntryProfile:
        """The first entries of a range that have no more than ``room`` if none has more than ``largest``, or than the
        largest of a sample."""
        entries = self.entries(range_)
        fitting = entries.first_entries(min(entries.entries, int(room / largest)))
        if not fitting.entries:
            return fitting
        samples = self._log.count_entries(_sample_spans(range_, fitting, SAMPLES))
        seen = [largest, *(size for counted in samples for size in _sizes(counted, unit))]
        fitting = fitting.first_entries(min(fitting.entries, int(room / max(seen))))
        return fitting.sampled([sum(seen) / len(seen)])

    def profiles(self, ranges: Sequence[NamedRange], *, exact: bool) -> list[EntryProfile]:
        """The profiles of whole ranges. ``exact``: by counting as far as the budget goes, else by samples."""
        unknown = [range_ for range_ in ranges if range_ not in self._known]
        counted = (
            self.count([(range_, _MESSAGES_MAX) for range_ in unknown]) if exact else [EntryProfile(())] * len(unknown)
        )
        rests = [range_.behind(profile) for range_, profile in zip(unknown, counted, strict=True)]
        sampled = self._sampled(rests)
        found = {range_: first + rest for range_, first, rest in zip(unknown, counted, sampled, strict=True)}
        return [self._known.get(range_) or found[range_] for range_ in ranges]

    def keep(self, known: Mapping[NamedRange, EntryProfile]) -> None:
        """Remember what was counted of the next batch, and of nothing else: its tasks are planned next."""
        self._known = dict(known)

    def _sampled(self, ranges: Sequence[NamedRange]) -> list[EntryProfile]:
        entries = [self.entries(range_) for range_ in ranges]
        places = max(min(SAMPLES, SAMPLES_MAX // max(len(ranges), 1)), 1)
        spans = [_sample_spans(range_, profile, places) for range_, profile in zip(ranges, entries, strict=True)]
        samples = iter(self._log.count_entries([span for each in spans for span in each]))
        found = []
        for range_, profile, asked in zip(ranges, entries, spans, strict=True):
            sizes = [_average(next(samples), "messages") for _ in asked]
            if sizes:
                self._per_entry[range_.name, "messages"] = sum(sizes) / len(sizes)
            found.append(profile.sampled(sizes or [self._per_entry.get((range_.name, "messages"), 1.0)]))
        return found

    def _learn(self, name: str, counted: Counted) -> None:
        if counted.sums:
            self._per_entry[name, "messages"] = _average(counted, "messages")
            self._per_entry[name, "bytes"] = _average(counted, "bytes")


def _sample_spans(range_: NamedRange, entries: EntryProfile, count: int) -> list[Span]:
    """Places in a range, spread evenly; none in a short one."""
    if entries.entries < SHORT_ENTRIES:
        return []
    places = [entries.entry(at) for at in part_bounds(entries.entries, count)[:-1]]
    return [Span(range_.name, at, range_.end, _MESSAGES_MAX, SAMPLE_ENTRIES, SAMPLE_BYTES_MAX) for at in places]


def _sums(counted: Counted, unit: Unit) -> Sequence[int]:
    return counted.sums if unit == "messages" else counted.byte_sums


def _sizes(counted: Counted, unit: Unit) -> list[int]:
    return [total - before for before, total in pairwise([0, *_sums(counted, unit)])]


def _average(counted: Counted, unit: Unit) -> float:
    return _sums(counted, unit)[-1] / len(counted.sums) if counted.sums else 1.0


def part_bounds(entries: int, parts: int) -> list[int]:
    """Bounds of parts of nearly equal length."""
    return [entries * part // parts for part in range(parts + 1)]


def _behind(stretch: Stretch) -> Position:
    return Position(stretch.first.ledger, stretch.first.entry + stretch.entries)


def _split(stretches: Iterable[Stretch], bounds: Sequence[int]) -> list[list[Stretch]]:
    """The stretches between each two neighbouring ``bounds``, which are numbers of entries."""
    parts: list[list[Stretch]] = [[] for _ in bounds[1:]]
    passed = 0
    for each in stretches:
        for part, low, high in zip(parts, bounds, bounds[1:], strict=False):
            start, end = max(low - passed, 0), min(high - passed, each.entries)
            if start < end:
                first = Position(each.first.ledger, each.first.entry + start)
                part.append(each._replace(first=first, entries=end - start))
        passed += each.entries
    return parts
