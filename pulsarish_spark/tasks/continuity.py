# SPDX-License-Identifier: Apache-2.0
"""Finding lost messages while a range is read: does it start, go on and end where it should?

An entry that does not come is a hole or lost by the rule of ``losses.holes``. Where message indexes do not show that
nothing is missing the broker is asked: at the change to a new ledger, and at an end before which nothing came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker_core.base.positions import Position
from broker_core.client import Bounds
from broker_core.wire.entry import EntryRef
from pulsarish_spark.losses.holes import follows, indexes_between, is_another, lost_between
from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.losses.lost import lost_gap, lost_tail, lost_topic
from pulsarish_spark.places.entries import behind, offset_of
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.tasks.planning import EntryRange


class Continuity:
    """Watches the entries of one range go by and reports what is missing to the policy.

    ``around`` tells what lies around a position now. ``holes``: whether the broker may have some.
    """

    def __init__(
        self, wanted: EntryRange, end: Offset, policy: LossPolicy, around: Callable[[Position], Bounds], *, holes: bool
    ) -> None:
        self._around = around
        self._holes = holes
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
        if last.ledger == first.ledger and (self._holes or last.entry - first.entry == len(entries) - 1):
            self._step(first)
        else:
            for entry in entries:
                self._step(entry)
        self._next = behind(last)

    def finish(self) -> None:
        """The last entry before the end has been seen."""
        missing = indexes_between(self._next, self._end)
        if self._lenient or self._next.key >= self._end.key or missing == 0:
            return
        if self._holes and self._has_only_holes():
            return
        self._policy.report(lost_tail(self._key, self._text(self._next), self._text(self._end), missing))

    def _has_only_holes(self) -> bool:
        """Whether nothing comes before the end, in a ledger that is there."""
        at = self._next.position
        around = self._around(at)
        comes_behind = around.first is None or offset_of(around.first).position >= self._end.behind_entry
        return comes_behind and follows(at, around.before)

    def _step(self, entry: EntryRef) -> None:
        wanted, self._next = self._next, behind(entry)
        if self._lenient:
            self._lenient = False
            return
        found = offset_of(entry)
        if is_another(wanted, found):
            self._policy.report(lost_topic(self._key, self._text(wanted), self._text(found)))
        elif missing := lost_between(wanted, found, lambda: self._around(wanted.position).before, holes=self._holes):
            self._policy.report(lost_gap(self._key, self._text(wanted), self._text(found), missing))

    def _text(self, offset: Offset) -> str:
        return offset.text(self._key.partition)
