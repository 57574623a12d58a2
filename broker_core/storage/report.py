# SPDX-License-Identifier: Apache-2.0
"""What recovery found and did: values for the log, the health check, statistics and the doctor.

Whatever is found is written to the log at once, so that nothing is lost in silence.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Final, NamedTuple

logger = logging.getLogger(__name__)

_LOGGED_MAX: Final = 200
"""A disk that is falling apart must not fill the log; the health check goes on counting."""


class Damage(NamedTuple):
    """Bytes that are not what was written, or not there any more, although they had been durable.

    Attributes:
        path: The file.
        offset: Where the damage begins.
        size: Bytes affected, as far as known.
        what: One line for a human: which entries or acknowledgements are hit.
        topic: The full name of the topic they are of; empty if they are of several, or of none.
    """

    path: str
    offset: int
    size: int
    what: str
    topic: str = ""

    def __str__(self) -> str:
        of = f" (topic {self.topic})" if self.topic else ""
        return f"{self.path}: {self.what}{of}"


@dataclass(slots=True)
class RecoveryReport:
    """Grows while a store is open: topics are recovered when they are first opened.

    Attributes:
        damages: All that was found, files that are missing or unknown too. Damaged bytes stay where they are, and a
            copy lies in quarantine.
        entries_damaged: Entries that cannot be read because of it.
        truncated_bytes: Bytes of unconfirmed groups that a crash had torn, and that were dropped.
        ledgers_recovered: Ledgers that had not been closed properly and were scanned.
        files_missing: Files that the catalogue knows but the directory lacks. Their topics are read-only.
        files_unknown: Files in the directory that the catalogue does not know. They are kept, and ignored.
    """

    damages: list[Damage] = field(default_factory=list)
    entries_damaged: int = 0
    truncated_bytes: int = 0
    ledgers_recovered: int = 0
    files_missing: list[str] = field(default_factory=list)
    files_unknown: list[str] = field(default_factory=list)

    def note(self, damage: Damage) -> None:
        """Remember what was found, and log it."""
        self.damages.append(damage)
        if len(self.damages) <= _LOGGED_MAX:
            logger.error(
                "damage found path=%s offset=%s size=%s topic=%s what=%s",
                damage.path, damage.offset, damage.size, damage.topic or "-", damage.what,
            )  # fmt: skip
        elif len(self.damages) == _LOGGED_MAX + 1:
            logger.error(
                "damage found beyond what is logged advice=%s", "the health check and the doctor tell all of it"
            )

    def note_once(self, damage: Damage) -> None:
        """``note``, unless the very same was found before."""
        if damage not in self.damages:
            self.note(damage)

    def forget(self, path: str) -> None:
        """What was noted of a whole file does not hold any more."""
        self.damages = [each for each in self.damages if (each.path, each.offset, each.size) != (path, 0, 0)]

    def topic_deleted(self, topic: str) -> None:
        """What was found of ``topic`` is not of one that is made under the same name."""
        deleted = f"{topic}, which was deleted"
        self.damages = [each._replace(topic=deleted) if each.topic == topic else each for each in self.damages]

    @property
    def clean(self) -> bool:
        """Nothing that an operator should look at. (Torn tails are normal after a crash.)"""
        return not (self.damages or self.files_missing or self.files_unknown)
