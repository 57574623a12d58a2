# SPDX-License-Identifier: Apache-2.0
"""``Deadlines``: wakes the coordinators when transactions are due to be aborted. One heap and one timer for all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Final

from broker_core.base.clock import TimerHandle, Timers
from broker_core.wire.heads import TxnId

LOOK_AGAIN_S: Final = 10.0
"""The longest sleep. Timers follow monotonic time; a wall clock that was set is noticed after this long."""

_AT_ONCE_MAX: Final = 100
"""Transactions that are given up in one turn of the loop: after the machine has slept all may be due."""

_STALE_MIN: Final = 1000
"""Deadlines of transactions that are over are thrown away when there are more of them than of others, and so many."""


class Deadlines:
    """Deadlines of transactions that are open, and of some that are over."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        timers: Timers,
        is_open: Callable[[TxnId], bool],
        due: Callable[[TxnId], None],
        set_back: Callable[[int], Iterable[tuple[int, TxnId]]],
    ) -> None:
        """``due`` is called with each transaction that ``is_open`` after its deadline, in the order of deadlines, then
        of ids. ``set_back`` is called when the clock was set back, with the time, and returns all deadlines anew."""
        self._now_ms = now_ms
        self._timers = timers
        self._is_open = is_open
        self._due = due
        self._set_back = set_back
        self._seen_ms = 0
        self._heap: list[tuple[int, TxnId]] = []
        self._over = 0
        self._armed: TimerHandle | None = None
        self._armed_ms = 0

    def add(self, transaction: TxnId, deadline_ms: int) -> None:
        """A transaction is open, and to be given up at that time."""
        heappush(self._heap, (deadline_ms, transaction))
        self._seen_ms = max(self._seen_ms, self._now_ms())
        self._arm()

    def ended(self) -> None:
        """One of them is over before its deadline."""
        self._over += 1
        if self._over > max(_STALE_MIN, len(self._heap) // 2):
            self._heap = [each for each in self._heap if self._is_open(each[1])]
            heapify(self._heap)
            self._over = 0

    def close(self) -> None:
        """Give nothing up any more."""
        self._heap.clear()
        self._disarm()

    def _arm(self) -> None:
        if not self._heap:
            return
        first_ms = self._heap[0][0]
        if self._armed is not None:
            if first_ms >= self._armed_ms:
                return
            self._disarm()
        self._armed_ms = first_ms
        wait_s = max(first_ms - self._now_ms(), 0) / 1000
        self._armed = self._timers.call_later(min(wait_s, LOOK_AGAIN_S), self._fire)

    def _disarm(self) -> None:
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None

    def _fire(self) -> None:
        self._armed = None
        now_ms, left = self._now_ms(), _AT_ONCE_MAX
        if now_ms < self._seen_ms:
            self._heap, self._over = list(self._set_back(now_ms)), 0
            heapify(self._heap)
        self._seen_ms = now_ms
        while left and self._heap and self._heap[0][0] <= now_ms:
            _, transaction = heappop(self._heap)
            if self._is_open(transaction):
                left -= 1
                self._due(transaction)
            else:
                self._over -= 1
        self._arm()
