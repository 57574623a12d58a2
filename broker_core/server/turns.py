# SPDX-License-Identifier: Apache-2.0
"""Whose input is acted on when: everybody in turn, and never so long at a stretch that others wait for it.

A turn of the event loop has ``TURN_S`` for what clients have sent, and of that each connection a few slices of
``SLICE_S``. Who has more than that is not read any more and goes to the end of a queue, which is gone through in rounds
in the turns that follow. So a quick client meets no queue, and a million tiny requests of one client are done between
those of the others. Knows nothing of what the work is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from broker_core.base.clock import Clock

TURN_S: Final = 0.006
"""How long a turn works on the input of all clients. Its other work is bounded elsewhere: dispatch
(``broker.dispatch.passes``), commits."""

_QUEUE_S: Final = 0.004
"""How much of ``TURN_S`` is for connections that had to wait; the rest is for those with new input."""

SLICE_S: Final = 0.001
"""How long one connection works at a time. One that sends as fast as it can gets several slices in a turn if no other
wants one."""


class Worker(Protocol):
    """A connection with input."""

    def work(self, is_over: Callable[[], bool]) -> bool:
        """Act on what there is until ``is_over``; whether there is more that can be acted on."""
        ...

    def set_queued(self, queued: bool) -> None:
        """It waits for its turn, or does not any more: what is to be read meanwhile is left where it is."""
        ...


class _Chore:
    """A worker that is not a connection."""

    __slots__ = ("_steps",)

    def __init__(self, steps: Iterator[None]) -> None:
        self._steps = steps

    def work(self, is_over: Callable[[], bool]) -> bool:
        return any(is_over() for _ in self._steps)

    def set_queued(self, queued: bool) -> None:
        """Nothing can be put in its way."""


class Turns:
    """Shares the turns of one event loop among its connections."""

    __slots__ = ("_call_soon", "_monotonic", "_queue", "_scheduled", "_slice_ends_s", "_turn_ends_s")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], clock: Clock) -> None:
        self._call_soon = call_soon
        self._monotonic = clock.monotonic
        self._queue: deque[Worker] = deque()
        self._turn_ends_s: float | None = None
        self._slice_ends_s = 0.0
        self._scheduled = False

    @property
    def turn_is_over(self) -> bool:
        """Whether this turn has had its time."""
        return self._turn_ends_s is not None and self._monotonic() >= self._turn_ends_s

    def came(self, worker: Worker) -> None:
        """``worker``, which is not queued, has read something: it acts on it now if there is time, or later."""
        now_s = self._monotonic()
        if self._turn_ends_s is None:
            self._turn_ends_s = now_s + TURN_S
            self._schedule()
        while now_s < self._turn_ends_s:
            self._slice_ends_s = min(now_s + SLICE_S, self._turn_ends_s)
            if not worker.work(self._is_over):
                return
            if self._queue:
                break
            now_s = self._monotonic()
        self.later(worker)

    def do(self, steps: Iterator[None]) -> None:
        """Do ``steps``, for which no client waits: now as far as there is time, the rest in later turns."""
        self.came(_Chore(steps))

    def later(self, worker: Worker) -> None:
        """``worker``, which is not queued, has something to do."""
        self._queue.append(worker)
        worker.set_queued(True)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._call_soon(self._next)

    def _next(self) -> None:
        """A turn begins, or the last one has ended and nothing is left of it."""
        self._scheduled = False
        self._turn_ends_s = None
        if not self._queue:
            return
        now_s = self._monotonic()
        self._turn_ends_s = now_s + TURN_S
        until_s = now_s + _QUEUE_S
        self._schedule()
        while self._queue and now_s < until_s:
            worker = self._queue.popleft()
            self._slice_ends_s = min(now_s + SLICE_S, until_s)
            if worker.work(self._is_over):
                self._queue.append(worker)
            else:
                worker.set_queued(False)
            now_s = self._monotonic()

    def _is_over(self) -> bool:
        return self._monotonic() >= self._slice_ends_s
