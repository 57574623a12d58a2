# SPDX-License-Identifier: Apache-2.0
"""Messages that the application holds without acknowledging them, and for how long: a wheel of buckets, one a tick.

Pure but for one rule about threads: ``taken`` may be called on any, everything else on the event loop's. Invariants: an
entry expires in (T', T' + tick] after its first message was taken, where T' is the timeout rounded up to whole ticks,
and then waits for its backoff; each entry is tracked at most once; time in the receiver queue does not count.
Source: semantics 4.2.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Container, Iterable
from typing import NamedTuple

from broker_core.base.clock import Clock, TimerHandle, Timers
from broker_core.base.positions import Position
from broker_core.client.acks.due_positions import DuePositions
from broker_core.client.settings.policies import RedeliveryBackoff


class Taken(NamedTuple):
    """An entry of which a message was handed to the application."""

    position: Position
    redelivery_count: int


class AckTimeoutTracker:
    """``expired`` is called with entries that must come again. It ticks from ``start`` to ``stop``."""

    def __init__(
        self,
        timeout_s: float,
        tick_s: float,
        backoff: RedeliveryBackoff | None,
        clock: Clock,
        timers: Timers,
        expired: Callable[[list[Position]], None],
        elsewhere: Container[Position] = (),
    ) -> None:
        """``elsewhere``: entries that wait for their redelivery already, and are not to be tracked here."""
        self._elsewhere = elsewhere
        self._tick_s = tick_s
        self._timers = timers
        self._backoff = backoff
        self._expired = expired
        # Noise aside: 0.3 s in ticks of 0.1 s are three.
        self._ticks_to_expiry = math.ceil(round(timeout_s / tick_s, 6)) + 1
        self._ticks = 0
        # The tick with which it expires -> a bucket. Only those that are used are here: a long timeout costs nothing.
        self._wheel: dict[int, dict[Position, int]] = {}
        self._bucket_of: dict[Position, dict[Position, int]] = {}
        self._waiting = DuePositions(1, clock, timers, expired)
        self._arrivals: deque[Taken] = deque()
        self._timer: TimerHandle | None = None

    def __len__(self) -> int:
        self.settle()
        return len(self._bucket_of) + len(self._waiting)

    def start(self) -> None:
        """Begin to tick."""
        if self._timer is None:
            self._timer = self._timers.call_later(self._tick_s, self._tick)

    def stop(self) -> None:
        """No more ticks; nothing expires any more."""
        self.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def taken(self, position: Position, redelivery_count: int) -> None:
        """The application got a message of this entry. On any thread."""
        self._arrivals.append(Taken(position, redelivery_count))

    def settle(self) -> None:
        """Track what was taken since the last look; what is tracked already keeps its time."""
        arrivals = self._arrivals
        if not arrivals:
            return
        newest = self._wheel.setdefault(self._ticks + self._ticks_to_expiry, {})
        while arrivals:
            position, redelivery_count = arrivals.popleft()
            if position not in self._bucket_of and position not in self._waiting and position not in self._elsewhere:
                newest[position] = redelivery_count
                self._bucket_of[position] = newest

    def discard(self, positions: Iterable[Position]) -> None:
        """Entries that were acknowledged, or come again for another reason, expire no more."""
        self.settle()
        for position in positions:
            bucket = self._bucket_of.pop(position, None)
            if bucket is None:
                self._waiting.discard(position)
            else:
                del bucket[position]

    def discard_before(self, position: Position) -> None:
        """Every entry before ``position`` was acknowledged."""
        self.settle()
        self.discard([each for each in self._bucket_of if each < position])
        self._waiting.discard_before(position)

    def clear(self) -> None:
        """Forget all."""
        self._arrivals.clear()
        self._wheel.clear()
        self._bucket_of.clear()
        self._waiting.clear()

    def _tick(self) -> None:
        self._timer = self._timers.call_later(self._tick_s, self._tick)
        self.settle()
        self._ticks += 1
        oldest = self._wheel.pop(self._ticks, {})
        for position in oldest:
            del self._bucket_of[position]
        if self._backoff is not None:
            for position, redelivery_count in oldest.items():
                self._waiting.add(position, self._backoff.delay_s(redelivery_count))
        elif oldest:
            self._expired(list(oldest))
