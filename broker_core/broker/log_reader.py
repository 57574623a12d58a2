# SPDX-License-Identifier: Apache-2.0
"""``LogReader``: how a subscription reads the log, and what happens at an entry that is damaged.

A damaged entry is never delivered. By default the subscription stops in front of it, says so in the log and in its
statistics, and tries again when a consumer comes or after a seek; somebody has to decide. With
``autoSkipNonRecoverableData`` it is acknowledged for this subscription, counted, and reading goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker_core.base.positions import Position
from broker_core.broker.position_set import PositionSet
from broker_core.storage.ledger import StoredEntry, UnreadableEntryError
from broker_core.storage.topic_log import TopicLog

logger = logging.getLogger(__name__)


class LogReader:
    """Reads for one subscription. ``stopped_at``: the damaged entry in front of which it waits, if any."""

    __slots__ = ("_log", "_name", "_skip", "damaged_entries", "stopped_at")

    def __init__(self, log: TopicLog, name: str, skip: Callable[[Position], None] | None) -> None:
        """``skip`` acknowledges an entry for the subscription; None: stop in front of damage."""
        self._log = log
        self._name = name
        self._skip = skip
        self.damaged_entries = 0
        self.stopped_at: Position | None = None

    def read(self, start: Position, entries_max: int, bytes_max: int) -> list[StoredEntry]:
        """Entries from ``start`` on, at least one if there is any that can be read."""
        while self.stopped_at is None:
            try:
                return self._log.read(start, entries_max, bytes_max)
            except UnreadableEntryError as error:
                start = self._damaged(error)
        return []

    def has_more(self, position: Position) -> bool:
        """Whether there may be an entry at or after ``position``; saves a read that finds nothing."""
        return position <= self._log.last_confirmed

    def read_set(
        self, wanted: PositionSet, entries_max: int, bytes_max: int
    ) -> tuple[list[StoredEntry], list[Position]]:
        """The lowest entries of ``wanted``, and those found on the way that cannot be read any more."""
        found: list[StoredEntry] = []
        missing: list[Position] = []
        for run in wanted.runs():
            entry = run.first
            while entry <= run.last:
                room = min(run.last - entry + 1, entries_max - len(found))
                if room <= 0 or bytes_max <= 0:
                    return found, missing
                got = self._read_run(Position(run.ledger, entry), room, bytes_max)
                if not got:
                    missing.append(Position(run.ledger, entry))
                    entry += 1
                    continue
                found += got
                bytes_max -= sum([len(each.body) for each in got])
                entry = got[-1].position.entry + 1
        return found, missing

    def retry_damaged(self) -> None:
        """Try again to read what was damaged."""
        self.stopped_at = None

    def _read_run(self, start: Position, entries_max: int, bytes_max: int) -> list[StoredEntry]:
        """Entries from exactly ``start`` on without a gap; none if ``start`` is gone or damaged."""
        try:
            got = self._log.read(start, entries_max, bytes_max)
        except UnreadableEntryError as error:
            self._damaged(error, stop=False)
            return []
        expected = start.entry
        for count, each in enumerate(got):
            if each.position != (start.ledger, expected):
                return got[:count]
            expected += 1
        return got

    def _damaged(self, error: UnreadableEntryError, *, stop: bool = True) -> Position:
        """Book a damaged entry; returns where to go on. One that was read before holds up nothing behind it."""
        position = error.position
        self.damaged_entries += 1
        if self._skip is not None:
            logger.error("damaged entry skipped subscription=%s position=%s error=%s", self._name, position, error)
            self._skip(position)
        elif not stop:
            logger.error("damaged entry not sent again subscription=%s position=%s", self._name, position)
        else:
            logger.error("stopped at damaged entry subscription=%s position=%s error=%s", self._name, position, error)
            self.stopped_at = position
        return self._log.next_valid(position)
