# SPDX-License-Identifier: Apache-2.0
"""The entries that the consumers of a query were given and that are in no batch yet; a batch is chosen from them. Pure.

Each consumer has a line, in the order in which the broker gave. A batch takes from the front of all lines in turns, so
entries of one key, which one consumer gets, stay in order. Entries in a row are one thing where that is as good
(``runs``). A message in chunks joins its line with its last chunk, all chunks together, and until then is in no batch.
What a consumer was given is void when its session ends: the broker may give it to anybody.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias, TypeVar

from pyroaring import BitMap

from broker_core.base.clock import Clock
from broker_core.base.positions import Position
from broker_core.client import Given, GivenEntry
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.queue.entry_ids import Entries, EntryOrRun, EntryRun, apart, entries_of_text, folded, ids_of
from pulsarish_spark.queue.queue_offset import QueueOffset

TURNS: Final = 4
"""A batch goes so often around all lines: what is taken at a time is small beside the batch, and large beside the cost
of going around."""

KEPT_S: Final = 300.0
"""A minute to the disk, another one until another broker has taken over, and a reserve beside that."""

K = TypeVar("K")
E = TypeVar("E")

Unit: TypeAlias = tuple[EntryOrRun, ...]
"""Entries that a batch has whole or not at all: one, or the chunks of a message, the last one at the end. Or a run,
which may be cut."""


class Source(NamedTuple):
    """One consumer: the ``number``-th of a partition."""

    key: TopicPartition
    number: int


@dataclass(frozen=True, slots=True)
class Taken:
    """Units that were taken off the lines."""

    units: Sequence[tuple[Source, Unit]]

    def ids(self) -> dict[Source, dict[int, Entries]]:
        """The ids of all entries, by consumer and ledger."""
        return {source: ids_of(entries) for source, entries in _gathered(self.units).items()}


@dataclass(frozen=True, slots=True)
class Choice(Taken):
    """Units in the order in which they were chosen, and the sessions in which their consumers were given them.

    ``repeats``: units that another consumer was given too, the one after the other.
    """

    sessions: Mapping[Source, int]
    repeats: Sequence[tuple[Source, Unit]] = field(default_factory=list)

    @property
    def messages(self) -> int:
        return sum(unit[-1].messages for _, unit in self.units)

    def entries(self) -> dict[TopicPartition, list[EntryOrRun]]:
        """All entries by partition."""
        return _gathered((source.key, unit) for source, unit in self.units)

    def taken(self) -> dict[Source, int]:
        """Messages by consumer."""
        return dict(_messages_of([*self.units, *self.repeats]))

    def whole(self) -> Taken:
        """Entries that were taken, the repeats as well."""
        return Taken([*self.units, *self.repeats])


@dataclass(frozen=True, slots=True)
class Dropped(Taken):
    """Single units, or chunks, that were taken off the lines without a batch."""

    units: Sequence[tuple[Source, tuple[GivenEntry, ...]]]

    def messages(self) -> dict[Source, int]:
        """Messages by consumer: the broker may give it as many others instead."""
        # Chunks before the last one take no permits.
        counted = [(source, unit) for source, unit in self.units if unit[-1].chunk is None or unit[-1].messages > 0]
        return dict(_messages_of(counted))

    def positions(self) -> dict[Source, list[Position]]:
        """The position of each entry, by consumer."""
        return {source: [each.position for each in given] for source, given in _gathered(self.units).items()}


class Unfinished(NamedTuple):
    """A message in chunks of which a consumer has ``chunks``, and not all."""

    source: Source
    session: int
    uuid: str
    chunks: int


class ReceivedBacklog:
    """The lines of all consumers of a query."""

    def __init__(self) -> None:
        self._lines: dict[Source, deque[Unit]] = {}
        self._sessions: dict[Source, int] = {}
        self._chunks: dict[Source, dict[str, list[GivenEntry]]] = {}
        self._first: Source | None = None  # whose entry did not fit into the last batch

    @property
    def sessions(self) -> dict[Source, int]:
        """For each consumer, the session whose entries are here."""
        return dict(self._sessions)

    @property
    def is_empty(self) -> bool:
        """Whether no batch could be made."""
        return not any(self._lines.values())

    @property
    def messages(self) -> int:
        """Messages of all lines."""
        return sum(unit[-1].messages for line in self._lines.values() for unit in line)

    def add(self, source: Source, given: Given) -> bool:
        """Add the next entries of a consumer; whether they are the first of a session, and may have come before."""
        begins = self._sessions.get(source) != given.session
        if begins:
            self._lines[source], self._chunks[source] = deque(), {}
            self._sessions[source] = given.session
        line = self._lines[source]
        for some in folded(given.entries):
            unit = (some,) if isinstance(some, EntryRun) or some.chunk is None else self._whole(source, some)
            if unit:
                line.append(unit)
        return begins

    def forget(self, source: Source) -> None:
        """A consumer is gone, and what it was given with it."""
        for lines in (self._lines, self._chunks, self._sessions):
            lines.pop(source, None)

    def choose(self, messages_max: int) -> Choice:
        """Take a batch of at most so many messages off the lines, but at least one unit if there is one."""
        units, repeats = _without_repeats(self._take(messages_max))
        return Choice(units, self.sessions, repeats)

    def _take(self, messages_max: int) -> list[tuple[Source, Unit]]:
        taken: list[tuple[Source, Unit]] = []
        room = messages_max
        lines = self._in_turn()
        turn = max(1, messages_max // (TURNS * max(len(lines), 1)))
        while lines:
            for source in [*lines]:
                line, left = self._lines[source], turn
                while line and left > 0:
                    if room > 0 or not taken:
                        _cut_first(line, max(1, min(left, room)))
                    unit = line[0]
                    if unit[-1].messages > room and taken:
                        self._first = source
                        return taken
                    taken.append((source, line.popleft()))
                    room -= unit[-1].messages
                    left -= max(unit[-1].messages, 1)
                if not line:
                    lines.remove(source)
        self._first = None
        return taken

    def put_back(self, units: Sequence[tuple[Source, Unit]]) -> None:
        """Put what was chosen last back where it was."""
        for source, unit in reversed(units):
            self._lines[source].appendleft(unit)

    def drop(self, is_known: Callable[[TopicPartition, GivenEntry], bool]) -> Dropped:
        """Forget entries that are in a batch already, chunks of messages that are not whole among them."""
        dropped: list[tuple[Source, tuple[GivenEntry, ...]]] = []
        for source, line in self._lines.items():
            units = list(_apart(line))
            known = [unit for unit in units if is_known(source.key, unit[-1])]
            if known:
                dropped += [(source, unit) for unit in known]
                self._lines[source] = deque(unit for unit in units if not is_known(source.key, unit[-1]))
            for held in self._chunks[source].values():
                dropped += [(source, (each,)) for each in held if is_known(source.key, each)]
                held[:] = [each for each in held if not is_known(source.key, each)]
        return Dropped(dropped)

    def unfinished(self) -> list[Unfinished]:
        """Messages in chunks that wait for their other chunks."""
        return [
            Unfinished(source, self._sessions[source], uuid, len(held))
            for source, messages in self._chunks.items()
            for uuid, held in messages.items()
        ]

    def drop_unfinished(self, messages: Iterable[Unfinished]) -> Dropped:
        """Forget all that came of them."""
        return Dropped(
            [(each.source, (entry,)) for each in messages for entry in self._chunks[each.source].pop(each.uuid)]
        )

    def _in_turn(self) -> list[Source]:
        """Consumers that have something, beginning with the one whose entry had to wait."""
        sources = sorted(source for source, line in self._lines.items() if line)
        at = sources.index(self._first) if self._first in sources else 0
        return sources[at:] + sources[:at]

    def _whole(self, source: Source, entry: GivenEntry) -> Unit:
        """The message that ``entry``, a chunk, completes; empty if it does not."""
        assert entry.chunk is not None
        uuid, _, chunks = entry.chunk
        held = self._chunks[source].setdefault(uuid, [])
        held.append(entry)
        if {each.chunk.chunk_id for each in held if each.chunk is not None} != set(range(chunks)):
            return ()
        del self._chunks[source][uuid]
        return tuple(sorted(held, key=lambda each: each.position))


class Acknowledged:
    """The entries that this process has acknowledged, by ledger: a broker that dies may have forgotten that, and gives
    them again. For one thread.

    Apache Pulsar confirms an acknowledgement before it is on its disk: it writes once a second while others follow, and
    else after a minute (``managedLedgerCursorPositionFlushSeconds``). Entries that were not written when it is killed
    come again from the broker that takes over. A ledger of which nothing was acknowledged for ``KEPT_S`` is forgotten;
    an entry of the others takes a bit or two. Other processes of the query have acknowledged more.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: dict[tuple[TopicPartition, int], BitMap] = {}
        self._last_at: dict[tuple[TopicPartition, int], float] = {}

    def add(self, batch: QueueOffset) -> None:
        """All entries of ``batch`` are acknowledged."""
        now = self._clock.monotonic()
        for key, part in batch.partitions.items():
            for ledger, text in part.ids.items():
                self._entries.setdefault((key, ledger), BitMap()).update(entries_of_text(text))
                self._last_at[key, ledger] = now
        for place in [place for place, at in self._last_at.items() if now - at > KEPT_S]:
            del self._entries[place], self._last_at[place]

    def forget(self, key: TopicPartition) -> None:
        """The log of partition ``key`` is another one: its entries have not been given."""
        for place in [place for place in self._entries if place[0] == key]:
            del self._entries[place], self._last_at[place]

    def has(self, key: TopicPartition, entry: GivenEntry) -> bool:
        """Whether an entry of a partition was acknowledged here."""
        known = self._entries.get((key, entry.ledger))
        return known is not None and entry.entry in known


def _cut_first(line: deque[Unit], messages: int) -> None:
    """Leave no more messages in the first unit, if it is a run."""
    first = line[0][0]
    if isinstance(first, EntryRun) and first.messages > messages:
        front, rest = first.cut(messages)
        line[0] = (rest,)
        line.appendleft((front,))


def _apart(units: Iterable[Unit]) -> Iterator[tuple[GivenEntry, ...]]:
    """``units`` with each run taken apart into single entries."""
    for unit in units:
        for first in apart(unit[:1]):
            yield (first, *apart(unit[1:]))


def _without_repeats(
    taken: list[tuple[Source, Unit]],
) -> tuple[list[tuple[Source, Unit]], list[tuple[Source, Unit]]]:
    """``taken`` with each entry once, and what was there before: two consumers may have been given it, one after the
    other."""
    if not _has_repeats(taken):
        return taken, []
    seen: dict[TopicPartition, set[tuple[int, int]]] = {}
    kept: list[tuple[Source, Unit]] = []
    repeats: list[tuple[Source, Unit]] = []
    for source, unit in taken:
        known = seen.setdefault(source.key, set())
        for each in _apart([unit]):
            place = each[-1].ledger, each[-1].entry
            (repeats if place in known else kept).append((source, each))
            known.add(place)
    return kept, repeats


def _has_repeats(taken: Iterable[tuple[Source, Unit]]) -> bool:
    """Whether any entry is in it twice."""
    spans: dict[tuple[TopicPartition, int], list[tuple[int, int]]] = {}
    for source, unit in taken:
        last = unit[-1]
        span = (last.first, last.end) if isinstance(last, EntryRun) else (last.entry, last.entry + 1)
        spans.setdefault((source.key, last.ledger), []).append(span)
    return any(later[0] < earlier[1] for found in spans.values() for earlier, later in pairwise(sorted(found)))


def _gathered(units: Iterable[tuple[K, Iterable[E]]]) -> dict[K, list[E]]:
    """All entries of ``units`` by consumer or partition, in their order."""
    found: dict[K, list[E]] = {}
    for owner, unit in units:
        found.setdefault(owner, []).extend(unit)
    return found


def _messages_of(units: Sequence[tuple[Source, Unit]]) -> Counter[Source]:
    counts: Counter[Source] = Counter()
    for source, unit in units:
        counts[source] += max(unit[-1].messages, 1)
    return counts
