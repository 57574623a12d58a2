# SPDX-License-Identifier: Apache-2.0
"""What the consumers of a query were given and is in no batch yet, and how a batch is chosen from it. Pure.

Each consumer has a line, in the order in which the broker gave. A batch takes from the front of all lines in turns, so
entries of one key, which one consumer gets, stay in order. A message in chunks joins its line with its last chunk, all
chunks together, and until then is in no batch. What a consumer was given is void when its session ends: the broker may
give it to anybody.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from broker_core.base.positions import Position
from broker_core.client import Given, GivenEntry
from pulsarish_spark.places.topics import TopicPartition

TURNS: Final = 4
"""A batch goes so often around all lines: what is taken at a time is small beside the batch, and large beside the cost
of going around."""

Unit: TypeAlias = tuple[GivenEntry, ...]
"""What a batch has whole or not at all: an entry, or the chunks of a message, the last one at the end."""


class Source(NamedTuple):
    """One consumer: the ``number``-th of a partition."""

    key: TopicPartition
    number: int


@dataclass(frozen=True, slots=True)
class Choice:
    """Units in the order in which they were chosen, and the sessions in which their consumers were given them.

    ``repeats``: what another consumer was given too, the one after the other.
    """

    units: list[tuple[Source, Unit]]
    sessions: Mapping[Source, int]
    repeats: list[tuple[Source, Unit]] = field(default_factory=list)

    @property
    def messages(self) -> int:
        return sum(unit[-1].messages for _, unit in self.units)

    def entries(self) -> dict[TopicPartition, list[GivenEntry]]:
        """All entries by partition."""
        found: dict[TopicPartition, list[GivenEntry]] = {}
        for source, unit in self.units:
            found.setdefault(source.key, []).extend(unit)
        return found

    def taken(self) -> dict[Source, int]:
        """Messages by consumer."""
        return dict(_messages_of(self.units + self.repeats))


@dataclass(frozen=True, slots=True)
class Dropped:
    """Units, or single chunks, that were taken off the lines without a batch."""

    units: list[tuple[Source, Unit]]

    def messages(self) -> dict[Source, int]:
        """By consumer: what the broker may give instead."""
        return dict(_messages_of([(source, unit) for source, unit in self.units if _takes_permits(unit)]))

    def positions(self) -> dict[TopicPartition, list[Position]]:
        """Of all entries, by partition."""
        found: dict[TopicPartition, list[Position]] = {}
        for source, unit in self.units:
            found.setdefault(source.key, []).extend(each.position for each in unit)
        return found


class Pile:
    """The lines of all consumers of a query."""

    def __init__(self) -> None:
        self._lines: dict[Source, deque[Unit]] = {}
        self._sessions: dict[Source, int] = {}
        self._chunks: dict[Source, dict[str, list[GivenEntry]]] = {}
        self._first: Source | None = None  # whose entry did not fit into the last batch

    @property
    def sessions(self) -> dict[Source, int]:
        """Of each consumer, the session whose entries are here."""
        return dict(self._sessions)

    @property
    def is_empty(self) -> bool:
        """Whether no batch could be made."""
        return not any(self._lines.values())

    def add(self, source: Source, given: Given) -> bool:
        """What a consumer was given next; whether it is the first of a session, and may have come before."""
        begins = self._sessions.get(source) != given.session
        if begins:
            self._lines[source], self._chunks[source] = deque(), {}
            self._sessions[source] = given.session
        line = self._lines[source]
        for entry in given.entries:
            unit = (entry,) if entry.chunk is None else self._whole(source, entry)
            if unit:
                line.append(unit)
        return begins

    def forget(self, source: Source) -> None:
        """A consumer is gone, and what it was given with it."""
        for lines in (self._lines, self._chunks, self._sessions):
            lines.pop(source, None)

    def choose(self, messages_max: int) -> Choice:
        """Take a batch of at most so many messages off the lines, but at least one unit if there is one."""
        choice = Choice([], self.sessions)
        seen: dict[TopicPartition, set[tuple[object, ...]]] = {}
        messages = 0
        lines = self._in_turn()
        turn = max(1, messages_max // (TURNS * max(len(lines), 1)))
        while lines:
            for source in [*lines]:
                line, known = self._lines[source], seen.setdefault(source.key, set())
                for _ in range(min(turn, len(line))):
                    unit = line[0]
                    messages += unit[-1].messages
                    if messages > messages_max and choice.units:
                        self._first = source
                        return choice
                    line.popleft()
                    place = unit[-1][:2]  # Two consumers may have been given it, one after the other.
                    (choice.repeats if place in known else choice.units).append((source, unit))
                    known.add(place)
                if not line:
                    lines.remove(source)
        self._first = None
        return choice

    def put_back(self, units: list[tuple[Source, Unit]]) -> None:
        """Put what was chosen last back where it was."""
        for source, unit in reversed(units):
            self._lines[source].appendleft(unit)

    def drop(self, is_known: Callable[[TopicPartition, GivenEntry], bool]) -> Dropped:
        """Forget entries that are in a batch already, chunks of messages that are not whole among them."""
        dropped: list[tuple[Source, Unit]] = []
        for source, line in self._lines.items():
            known = [unit for unit in line if is_known(source.key, unit[-1])]
            if known:
                dropped += [(source, unit) for unit in known]
                self._lines[source] = deque(unit for unit in line if not is_known(source.key, unit[-1]))
            for held in self._chunks[source].values():
                dropped += [(source, (each,)) for each in held if is_known(source.key, each)]
                held[:] = [each for each in held if not is_known(source.key, each)]
        return Dropped(dropped)

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


def _takes_permits(unit: Unit) -> bool:
    """Chunks before the last one do not."""
    return unit[-1].chunk is None or unit[-1].messages > 0


def _messages_of(units: list[tuple[Source, Unit]]) -> Counter[Source]:
    counts: Counter[Source] = Counter()
    for source, unit in units:
        counts[source] += max(unit[-1].messages, 1)
    return counts
