# SPDX-License-Identifier: Apache-2.0
"""Findings of recovery: values for the log, the health check, statistics and the doctor.

Whatever is found is written to the log at once, so that nothing is lost in silence.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker_core.base.positions import POSITION_EARLIEST, Position

logger = logging.getLogger(__name__)

_LOGGED_MAX: Final = 200
"""A disk that is falling apart must not fill the log; the health check goes on counting."""


LINES_MAX: Final = 1000
"""Damaged places that are remembered one by one; of the others each file has one ``Damage``. A disk that is falling
apart may have millions, at half a KB each."""


class Damage(NamedTuple):
    """Bytes that are not what was written, or not there any more, although they had been durable; of one place, or of
    several ``places`` of one file.

    Attributes:
        path: The file.
        offset: Where the damage begins.
        size: Bytes affected, as far as known; of several places from the first one to the end of the last.
        what: One line for a human: which entries or acknowledgements are hit; of several places of one of them.
        topic: The full name of the topic they are of; empty if they are of several, or of none.
        entries: How many entries cannot be read because of it.
        first, last: The first and the last of them.
    """

    path: str
    offset: int
    size: int
    what: str
    topic: str = ""
    entries: int = 0
    first: Position = POSITION_EARLIEST
    last: Position = POSITION_EARLIEST
    places: int = 1

    def __str__(self) -> str:
        of = f" (topic {self.topic})" if self.topic else ""
        return f"{self.path}: {self.what}{self._others}{of}"

    @property
    def _others(self) -> str:
        if self.places == 1:
            return ""
        entries = f", with it {self.entries} entries from {self.first} to {self.last}" if self.entries else ""
        return f", and {self.places - 1} places more from byte {self.offset} to {self.offset + self.size}{entries}"

    def joined(self, other: Damage) -> Damage:
        """Both together, of the same file."""
        offset, end = min(self.offset, other.offset), max(self.offset + self.size, other.offset + other.size)
        hit = [each for each in (self, other) if each.entries]
        return self._replace(
            offset=offset,
            size=end - offset,
            entries=self.entries + other.entries,
            first=min((each.first for each in hit), default=self.first),
            last=max((each.last for each in hit), default=self.last),
            places=self.places + other.places,
        )


@dataclass(slots=True)
class RecoveryReport:
    """Grows while a store is open: topics are recovered when they are first opened.

    Attributes:
        damages: What was found first, files that are missing or unknown too. Damaged bytes stay where they are, and a
            copy lies in quarantine.
        others: What was found beyond that, by file.
        places: How many damaged places are in both.
    """

    damages: list[Damage] = field(default_factory=list)
    others: dict[str, Damage] = field(default_factory=dict)
    places: int = 0
    _once: set[tuple[str, str]] = field(default_factory=set)

    def note(self, damage: Damage) -> None:
        """Remember what was found, and log it."""
        self.places += damage.places
        if len(self.damages) < LINES_MAX:
            self.damages.append(damage)
        else:
            known = self.others.get(damage.path)
            self.others[damage.path] = damage if known is None else known.joined(damage)
        if self.places <= _LOGGED_MAX:
            logger.error(
                "damage found path=%s offset=%s size=%s topic=%s what=%s",
                damage.path, damage.offset, damage.size, damage.topic or "-", damage.what,
            )  # fmt: skip
        elif self.places == _LOGGED_MAX + 1:
            logger.error(
                "damage found beyond what is logged advice=%s", "the health check and the doctor tell all of it"
            )

    def note_once(self, damage: Damage) -> None:
        """``note``, unless the same was said of the same file before."""
        if (damage.path, damage.what) not in self._once:
            self._once.add((damage.path, damage.what))
            self.note(damage)

    def forget(self, path: str) -> None:
        """Damage that was noted of a whole file does not hold any more."""
        left = [each for each in self.damages if (each.path, each.offset, each.size) != (path, 0, 0)]
        self.places -= len(self.damages) - len(left)
        self.damages = left

    @property
    def all(self) -> list[Damage]:
        """All of it: what was found first, then the rest of each file."""
        return [*self.damages, *self.others.values()]

    def topic_deleted(self, topic: str) -> None:
        """Damage of ``topic`` is not of one that is made under the same name."""
        deleted = f"{topic}, which was deleted"
        self.damages = [each._replace(topic=deleted) if each.topic == topic else each for each in self.damages]
        for path, each in self.others.items():
            if each.topic == topic:
                self.others[path] = each._replace(topic=deleted)
