# SPDX-License-Identifier: Apache-2.0
"""Finding lost messages while a range is read: does it start, go on and end where it should?

Entry numbers are dense within a ledger, and message indexes are dense in a topic where the broker exposes them. At the
change to a new ledger without indexes the broker is asked whether it knows the last entry read as the last one there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker_core.base.positions import Position
from broker_core.wire.entry import EntryRef
from pulsarish_spark.losses.agreement import follows
from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.losses.lost import lost_gap, lost_tail, lost_topic
from pulsarish_spark.places.entries import behind, offset_of
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.tasks.planning import EntryRange


class Continuity:
    """Watches the entries of one range go by and reports what is missing to the policy.

    ``before`` tells the last entry before a position that the broker knows.
    """

    def __init__(
        self, wanted: EntryRange, end: Offset, policy: LossPolicy, before: Callable[[Position], Position]
    ) -> None:
        self._before = before
        self._key = wanted.key
        self._next = wanted.start._replace(batch=0)
        if wanted.start.message_index >= 0:
            self._next = self._next._replace(message_index=wanted.start.message_index - wanted.start.batch)
        self._end = end
        self._policy = policy
        self._lenient = not wanted.exact

    def check(self, entries: Sequence[EntryRef]) -> None:
        """Take note of the next entries; they are in order, and not empty."""
        first, last = entries[0], entries[-1]
        if last.ledger == first.ledger and last.entry - first.entry == len(entries) - 1:
            self._step(first)
        else:
            for entry in entries:
                self._step(entry)
        self._next = behind(last)

    def finish(self) -> None:
        """All entries before the end have been seen."""
        missing = self._missing_before(self._end)
        if missing and not self._lenient:
            self._policy.report(lost_tail(self._key, self._text(self._next), self._text(self._end), missing))

    def _step(self, entry: EntryRef) -> None:
        wanted, self._next = self._next, behind(entry)
        if self._lenient:
            self._lenient = False
            return
        found = offset_of(entry)
        if wanted.message_index >= 0 and found.message_index >= 0:
            missing = found.message_index - wanted.message_index
            if missing < 0:
                self._policy.report(lost_topic(self._key, self._text(wanted), self._text(found)))
                return
        elif found.position == wanted.position:
            return
        else:
            missing = -1 if entry.entry > 0 or not self._ends_a_ledger(wanted, found) else 0
        if missing:
            self._policy.report(lost_gap(self._key, self._text(wanted), self._text(found), missing))

    def _missing_before(self, end: Offset) -> int:
        """How many messages lie between what was seen and ``end``; -1: some. An entry that ``end`` lies in must be
        seen, though it may have fewer messages than the id of a user says."""
        if min(self._next.message_index, end.message_index) >= 0:
            is_inside = bool(end.batch) and self._next.message_index > end.message_index - end.batch
            return 0 if is_inside else max(end.message_index - self._next.message_index, 0)
        behind_last = end.position.entry + (1 if end.batch else 0)
        if self._next.position.ledger == end.position.ledger:
            return -1 if self._next.position.entry < behind_last else 0
        return -1 if behind_last > 0 or not self._ends_a_ledger(self._next, end) else 0

    def _ends_a_ledger(self, wanted: Offset, found: Offset) -> bool:
        """Whether nothing was ever at ``wanted``, so that the first entry of another ledger may come instead."""
        at = wanted.position
        return at.ledger != found.position.ledger and follows(at, self._before(at))

    def _text(self, offset: Offset) -> str:
        return offset.text(self._key.partition)
