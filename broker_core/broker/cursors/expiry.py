# SPDX-License-Identifier: Apache-2.0
"""``Expiry``: passes a subscription over the messages at the head of its backlog that are too old.

An entry is too old when the broker stored it before a given time; the publish time, which a client's clock made, counts
for nothing. The broker's clock may have been set back, so its times may go back and forth too; only the unbroken run of
old entries from the head on is passed over, and every one of them is looked at, never an unexpired one jumped over
(semantics 7.2, I7.2). An entry that is damaged counts as the one after it; where the disk refuses to read, a run ends,
which is told: to the log, and to who asked for it. The look takes turns with everything else the broker does: slices of
``_SLICE_ENTRIES`` and ``_SLICE_BYTES``.
Source: Pulsar docs, "Message retention and expiry - TTL".
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker_core.base.clock import Clock, TimerHandle, Timers
from broker_core.base.errors import PersistenceServerError, ServerError, ServiceNotReadyError
from broker_core.base.positions import Position
from broker_core.broker.consumer import OnDone
from broker_core.broker.cursors.cursor import Cursor
from broker_core.broker.rates import Traffic
from broker_core.storage.ledger import UnreadableEntryError
from broker_core.storage.topic_log import TopicLog

logger = logging.getLogger(__name__)

_SLICE_ENTRIES: Final = 500
"""A few milliseconds of reading, until others have their turn."""

_SLICE_BYTES: Final = 4 * 1024 * 1024


class _Look(NamedTuple):
    """The findings of one slice.

    Attributes:
        old_through: The last of the old entries.
        end: Where the slice ended.
        more: The slice ended before all old ones were seen, and the next one goes on.
        refused: Why the disk ended the slice, if it did.
    """

    old_through: Position | None
    end: Position
    more: bool = False
    refused: UnreadableEntryError | None = None


@dataclass(slots=True, eq=False, repr=False)
class Expiry:
    """At most one run at a time over the backlog of one subscription, which is called ``name`` in the broker's log.

    ``pass_over`` as ``Subscription.pass_over``. ``expired`` counts the entries that were passed over since the topic
    was loaded, the last of them at ``expired_ms`` (0: never).
    """

    cursor: Cursor
    pass_over: Callable[[Position, OnDone | None], None]
    name: str
    log: TopicLog
    clock: Clock
    timers: Timers
    expired: Traffic = field(init=False)
    expired_ms: int = field(default=0, init=False)
    _turn: TimerHandle | None = field(default=None, init=False)
    _before_ms: int = field(default=0, init=False)
    _looked: tuple[Position, Position] | None = field(default=None, init=False)
    _on_done: OnDone | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.expired = Traffic(self.clock)

    @property
    def running(self) -> bool:
        """A run is under way."""
        return self._turn is not None

    def pass_older(self, before_ms: int, *, at_once: bool = False, on_done: OnDone | None = None) -> bool:
        """Pass over what was stored before ``before_ms``; false if a run is under way already.

        With ``at_once`` the first slice is done when this returns, which is all of a short backlog. ``on_done`` hears
        when all of the run is durable, or that it was given up, or ended where the disk refused to read.
        """
        if self.running:
            return False
        self._before_ms = before_ms
        self._on_done = on_done
        if at_once:
            self._step()
        else:
            self._turn = self.timers.call_later(0, self._step)
        return True

    def close(self) -> None:
        """The subscription has ended: give up a run that is under way, and pass over nothing any more."""
        self.pass_over = lambda _position, _on_done: None
        self._looked = None
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            what = "the subscription was closed while messages of it were being expired; some of them may be"
            on_done(ServiceNotReadyError(what, hint="try again"))

    def _step(self) -> None:
        self._turn = None
        cursor = self.cursor
        head = cursor.skip_acked(cursor.first_unacked())
        # What was looked at and cannot be read counts for nothing by itself; but only in front of the same head.
        start = self._looked[1] if self._looked is not None and self._looked[0] == head else head
        look = self._look(start)
        self._looked = (head, look.end) if look.more and look.old_through is None else None
        if look.old_through is not None:
            before = cursor.backlog_entries()
            self.pass_over(look.old_through, None)
            self.expired.messages += before - cursor.backlog_entries()
            self.expired_ms = self.clock.now_ms()
        if look.more:
            self._turn = self.timers.call_later(0, self._step)
        else:
            self._end(look.refused)

    def _end(self, refused: UnreadableEntryError | None) -> None:
        """Nothing is left to look at, or the disk has ``refused`` to show it. What was passed over is durable first."""
        on_done, self._on_done = self._on_done, None
        outcome = None if refused is None else self._ended_by(refused)
        if on_done is not None:
            self.pass_over(self.cursor.mark_delete, lambda error: on_done(error or outcome))

    def _ended_by(self, refused: UnreadableEntryError) -> ServerError:
        logger.error("expiry stopped subscription=%s position=%s error=%s", self.name, refused.position, refused)
        return PersistenceServerError(
            f"messages of {self.name} were expired before {refused.position} only: {refused.message}",
            hint="check the disk and try again; what lies behind it may be too old as well",
        )

    def _look(self, start: Position) -> _Look:
        """At the old entries from ``start`` on, within one slice."""
        last = self.log.readable_end
        old_through: Position | None = None
        looked, left_bytes = 0, _SLICE_BYTES
        while looked < _SLICE_ENTRIES and left_bytes > 0 and start <= last:
            try:
                entries = self.log.read(start, _SLICE_ENTRIES - looked, left_bytes)
            except UnreadableEntryError as error:
                if error.refused:
                    return _Look(old_through, start, refused=error)
                start = self.log.next_valid(error.through)
                looked += 1
                continue
            if not entries:
                break
            for entry in entries:
                if self.cursor.is_acked(entry.position):
                    continue
                if entry.broker_timestamp >= self._before_ms:
                    return _Look(old_through, start)
                old_through = entry.position
            looked += len(entries)
            left_bytes -= sum([len(entry.body) for entry in entries])
            start = self.log.next_valid(entries[-1].position)
        return _Look(old_through, start, (looked >= _SLICE_ENTRIES or left_bytes <= 0) and start <= last)
