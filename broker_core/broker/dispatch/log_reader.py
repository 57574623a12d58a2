# SPDX-License-Identifier: Apache-2.0
"""``LogReader``: how a subscription reads the log, and what happens at an entry that is damaged.

A damaged entry is never delivered. By default the subscription stops in front of it, says so in the log and in its
statistics, and tries again when its first consumer comes or after a seek: an administrator has to decide. Once all in
front of it is acknowledged, consumers are sent away, and refused with the name of the entry. To acknowledge the entry
is to leave it behind. With ``autoSkipNonRecoverableData`` it is acknowledged for this subscription, counted, and
reading goes on.

An entry that the disk refuses to read may be whole: it is never skipped, and is tried again every ``TRY_AGAIN_S``.
Where order has to be kept, the entries behind it wait until then (``read_set``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from broker_core.base.clock import TimerHandle, Timers
from broker_core.base.positions import Position
from broker_core.broker.cursors.cursor import EntryLog
from broker_core.broker.positions import PositionSet, Run
from broker_core.storage.ledger import StoredEntry, UnreadableEntryError

logger = logging.getLogger(__name__)

TRY_AGAIN_S: Final = 15.0
"""As long as Pulsar waits after a read that failed (``dispatcherReadFailureBackoffInitialTimeInMs``)."""

_GAP_ENTRIES = 8
"""Unwanted entries that are read along rather than begin another read; from the cache they cost a fifth of one."""

_SPAN_ENTRIES = 4
"""Entries read in one go, for each wanted one."""


@dataclass(slots=True, eq=False, repr=False)
class LogReader:
    """Reads for one subscription, which is called ``name`` in the broker's log. ``stopped_at``: the entry in front of
    which it waits, if any. ``refused``: entries in front of which ``read_set`` stops where order is kept, as the disk
    is not asked for them again yet.

    ``skip`` acknowledges entries of one ledger; None: stop in front of damage. ``again`` is called when reading is
    worth another try, with the entries that ``read_set`` has called missing; ``stopped`` in the turn after it has
    stopped in front of damage.
    """

    log: EntryLog
    name: str
    skip: Callable[[int, Sequence[int]], None] | None
    timers: Timers
    again: Callable[[Sequence[Position]], None]
    stopped: Callable[[], None]
    _timer: TimerHandle | None = field(default=None, init=False)
    _withheld: list[Position] = field(default_factory=list, init=False)
    refused: set[Position] = field(default_factory=set, init=False)
    damaged_entries: int = field(default=0, init=False)
    stopped_at: Position | None = field(default=None, init=False)

    def close(self) -> None:
        """The subscription has ended: try nothing again."""
        self.again = lambda _withheld: None
        self.stopped = lambda: None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def read(self, start: Position, entries_max: int, bytes_max: int) -> list[StoredEntry]:
        """Entries from ``start`` on, at least one if there is any that can be read."""
        while self.stopped_at is None:
            try:
                return self.log.read(start, entries_max, bytes_max)
            except UnreadableEntryError as error:
                start = self._damaged(error)
        return []

    def has_more(self, position: Position) -> bool:
        """Whether there may be an entry at or after ``position``; saves a read that finds nothing."""
        return position <= self.log.readable_end

    def read_set(
        self, wanted: PositionSet, entries_max: int, bytes_max: int, *, in_order: bool = False
    ) -> tuple[list[StoredEntry], list[Position]]:
        """The lowest entries of ``wanted``, and those found on the way that cannot be read any more.

        Wanted entries that lie close together are read in one go with what is between them. What the disk refuses is
        missing, and ``again`` will tell of it; ``in_order``: it stays, and nothing behind it is read before.
        """
        found: list[StoredEntry] = []
        missing: list[Position] = []
        for span in _spans(wanted, entries_max * _SPAN_ENTRIES):
            entry = span.first
            while entry <= span.last:
                room = entries_max - len(found)
                if room <= 0 or bytes_max <= 0:
                    return found[:entries_max], missing
                start = Position(span.ledger, entry)
                if start not in wanted:
                    entry += 1  # behind something unreadable; what is not wanted is not looked at
                    continue
                if in_order and start in self.refused:
                    return found[:entries_max], missing
                run_end = wanted.run_end(start)
                if run_end is None or run_end.entry - entry + 1 < room:
                    room *= _SPAN_ENTRIES
                got = self._read_run(start, min(span.last - entry + 1, room), bytes_max, in_order=in_order)
                if not got and in_order and start in self.refused:
                    return found[:entries_max], missing
                if not got:
                    missing.append(start)
                    entry += 1
                    continue
                picked = [each for each in got if each.position in wanted]
                found += picked
                bytes_max -= sum([len(each.body) for each in picked])
                entry = got[-1].position.entry + 1
        return found[:entries_max], missing

    def begin_anew(self) -> None:
        """Entries that are not acknowledged are read again, by another dispatcher."""
        self._withheld.clear()
        self.refused.clear()
        self.retry_damaged()

    def retry_damaged(self) -> None:
        """Try again to read what was damaged."""
        self.stopped_at = None

    def _read_run(self, start: Position, entries_max: int, bytes_max: int, *, in_order: bool) -> list[StoredEntry]:
        """Entries from exactly ``start`` on without a gap; none if ``start`` is gone, damaged or refused."""
        try:
            got = self.log.read(start, entries_max, bytes_max)
        except UnreadableEntryError as error:
            if error.refused and in_order and error.position == start:
                self.refused.add(start)
                self._refuse(error)
            else:
                self._damaged(error, stop=False)
            return []
        expected = start.entry
        for count, each in enumerate(got):
            if each.position != (start.ledger, expected):
                return got[:count]
            expected += 1
        return got

    def _damaged(self, error: UnreadableEntryError, *, stop: bool = True) -> Position:
        """Book a damaged entry, and those lost with it; returns where to go on.

        ``stop``: not an entry that was read before, which holds up nothing behind it.
        """
        position = error.position
        if error.refused:
            if stop:
                self.stopped_at = position
            else:
                self._withheld.append(position)
            self._refuse(error)
        elif self.skip is not None:
            through = error.through if stop else position
            # Those of a compacted view may go on in another ledger; nobody knows where this one ended.
            last = through.entry if through.ledger == position.ledger else position.entry
            self.damaged_entries += last - position.entry + 1
            logger.error("damaged entry skipped subscription=%s position=%s error=%s", self.name, position, error)
            self.skip(position.ledger, range(position.entry, last + 1))
            return self.log.next_valid(through)
        else:
            self._stop(error, stop=stop)
        return self.log.next_valid(position)

    def _stop(self, error: UnreadableEntryError, *, stop: bool) -> None:
        position = error.position
        self.damaged_entries += 1
        if not stop:
            logger.error("damaged entry not sent again subscription=%s position=%s", self.name, position)
        else:
            logger.error("stopped at damaged entry subscription=%s position=%s error=%s", self.name, position, error)
            self.stopped_at = position
            self.timers.call_later(0, self.stopped)

    def _refuse(self, error: UnreadableEntryError) -> None:
        """Book what the disk refused, and see to it that it is asked again."""
        self.damaged_entries += 1
        logger.error("read refused subscription=%s position=%s error=%s", self.name, error.position, error)
        if self._timer is None:
            self._timer = self.timers.call_later(TRY_AGAIN_S, self._try_again)

    def _try_again(self) -> None:
        self._timer = None
        withheld, self._withheld = self._withheld, []
        self.refused.clear()
        self.retry_damaged()
        self.again(withheld)


def _spans(wanted: PositionSet, entries_max: int) -> Iterator[Run]:
    """The runs of ``wanted`` in order, neighbours joined to about ``entries_max`` entries."""
    span: Run | None = None
    for run in wanted.runs():
        if span is None:
            span = run
        elif (
            run.ledger == span.ledger and run.first - span.last <= _GAP_ENTRIES and span.last - span.first < entries_max
        ):
            span = Run(span.ledger, span.first, run.last)
        else:
            yield span
            span = run
    if span is not None:
        yield span
