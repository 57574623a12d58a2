# SPDX-License-Identifier: Apache-2.0
"""``Turns``: the time of one event loop, shared by connections, dispatch and HTTP requests.

A turn of the loop has ``TURN_S`` for all of them. Work that comes is done at once while its turn is young; otherwise it
waits. In each turn, workers that wait come first, each once, with an equal part of ``_WAITED_S`` for each kind of work;
time that one kind does not need goes to the next. So a quick client meets no queue, a million tiny requests of one
client are done between those of the others, and a flood of one kind takes no time from another. Knows nothing of what
the work is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from enum import Enum
from math import inf
from typing import Final, Protocol

from broker_core.base.clock import Clock

TURN_S: Final = 0.009
"""How long all workers together work in a turn. Its other work is bounded elsewhere (commits, timers)."""

_WAITED_S: Final = 0.006
"""How much of ``TURN_S`` is for work that had to wait; the rest is for what comes."""

SLICE_S: Final = 0.001
"""How long one worker works at a time where others wait."""

LATE_MAX: Final = 4
"""Workers that come when a turn is over, and may do a little in it all the same (``has_room``)."""


class Kind(Enum):
    """Kinds of work, which have equal parts of the time."""

    INPUT = "input"
    DISPATCH = "dispatch"
    REQUESTS = "requests"


class Worker(Protocol):
    """A connection with input, a busy subscription, a request that takes long."""

    @property
    def kind(self) -> Kind: ...

    def work(self, is_over: Callable[[], bool]) -> bool:
        """Act on what there is until ``is_over``; whether there is more that can be acted on."""

    def set_queued(self, queued: bool) -> None:
        """The worker waits for its turn, or does not any more."""


class Chore:
    """A worker that does ``steps``."""

    def __init__(self, kind: Kind, steps: Iterator[None]) -> None:
        self.kind: Final = kind
        self._steps = steps

    def work(self, is_over: Callable[[], bool]) -> bool:
        return any(is_over() for _ in self._steps)

    def set_queued(self, queued: bool) -> None:
        """Nothing can be put in its way."""


class Turns:
    """Shares the turns of one event loop."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], clock: Clock) -> None:
        self._call_soon = call_soon
        self._monotonic = clock.monotonic
        self._waiting: dict[Kind, OrderedDict[Worker, None]] = {kind: OrderedDict() for kind in Kind}
        self._ends_s = inf
        self._slice_ends_s = 0.0
        self._late = 0
        self._scheduled = False

    def is_over(self) -> bool:
        """Whether this turn has had its time."""
        return self._monotonic() >= self._ends_s

    def has_room(self) -> bool:
        """Whether a worker that comes now, and does little, may do that in this turn; ``LATE_MAX`` may when it is over:
        permits have just come for them, as a rule, and Key_Shared reads entries twice that found none."""
        self._begin()
        if not self.is_over():
            return True
        self._late += 1
        return self._late <= LATE_MAX

    def came(self, worker: Worker) -> None:
        """``worker``, which is not queued, has something to do: it does so now if there is time, or later."""
        self._begin()
        while not self.is_over():
            self._slice_ends_s = min(self._monotonic() + SLICE_S, self._ends_s)
            if not worker.work(self._slice_is_over):
                return
            if any(self._waiting.values()):
                break
        self.later(worker)

    def later(self, worker: Worker) -> None:
        """``worker``, which is not queued, has something to do in a later turn."""
        self._waiting[worker.kind][worker] = None
        worker.set_queued(True)
        self._schedule()

    def forget(self, worker: Worker) -> None:
        """``worker`` has nothing to do any more. Harmless if it is not queued."""
        self._waiting[worker.kind].pop(worker, None)
        worker.set_queued(False)

    def _begin(self) -> None:
        """A turn begins with the first work in it."""
        if self._ends_s == inf:
            self._ends_s = self._monotonic() + TURN_S
            self._late = 0
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._call_soon(self._next)

    def _next(self) -> None:
        """The last turn has ended. Workers that wait go on in this one."""
        self._scheduled = False
        self._ends_s = inf
        busy = [queue for queue in self._waiting.values() if queue]
        if not busy:
            return
        self._begin()
        until_s = self._monotonic() + _WAITED_S
        for left, queue in zip(range(len(busy), 0, -1), busy, strict=True):
            now_s = self._monotonic()
            self._go_through(queue, now_s + (until_s - now_s) / left)

    def _go_through(self, queue: OrderedDict[Worker, None], until_s: float) -> None:
        """Let each worker of a queue work once, one of them at least, until the time is over."""
        for left in range(len(queue), 0, -1):
            if not queue:
                return
            worker, _ = queue.popitem(last=False)
            now_s = self._monotonic()
            self._slice_ends_s = now_s + max((until_s - now_s) / left, SLICE_S)
            more = False
            try:
                more = worker.work(self._slice_is_over)
            finally:
                if more:
                    self.later(worker)
                else:
                    worker.set_queued(False)
            if self._monotonic() >= until_s:
                return

    def _slice_is_over(self) -> bool:
        return self._monotonic() >= self._slice_ends_s
