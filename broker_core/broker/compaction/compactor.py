# SPDX-License-Identifier: Apache-2.0
"""``Compactor``: runs the compactions of a broker, one at a time.

One run holds the keys of its topic in memory, so those of several would add up; and it has one disk to read and write.
A run shares the turns of the loop with requests of administrators, and gets no time while others have work that does
not wait. Source: semantics 7.4.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from broker_core.base.errors import PulsarishError
from broker_core.base.turns import Kind, Turns
from broker_core.broker.compaction.entry_keys import Steps

logger = logging.getLogger(__name__)


class Job:
    """One compaction that was asked for. ``begin`` gives its steps when it is its turn; ``finished`` hears why it has
    failed, or None. ``cancelled``: nobody wants it any more, and ``finished`` is not called."""

    kind: Final = Kind.REQUESTS

    def __init__(self, begin: Callable[[], Steps], finished: Callable[[str | None], None]) -> None:
        self.begin = begin
        self.finished = finished
        self.cancelled = False
        self._steps: Steps | None = None
        self._next: Callable[[], None] = lambda: None
        self._resume: Callable[[], None] = lambda: None

    def start(self, resume: Callable[[], None], next_one: Callable[[], None]) -> None:
        """The job's turn has come. ``resume`` has it work on, ``next_one`` begins the next job."""
        self._resume, self._next = resume, next_one

    def work(self, is_over: Callable[[], bool]) -> bool:
        """Some steps; whether there is more to do now."""
        failure: str | None = None
        try:
            if self._steps is None:
                self._steps = self.begin()
            for wait in () if self.cancelled else self._steps:
                if wait is not None:
                    wait(self._resume)
                    return False
                if is_over():
                    return True
        except PulsarishError as error:
            failure = str(error)
        except Exception as error:  # the root of this task: its topic stays as it was, and says so
            logger.exception("compaction failed")
            failure = f"{type(error).__name__}: {error}"
        self._end(failure)
        return False

    def _end(self, failure: str | None) -> None:
        if self._steps is not None:
            self._steps.close()
        try:
            if not self.cancelled:
                self.finished(failure)
        finally:
            self._next()

    def set_queued(self, queued: bool) -> None:
        """Nothing can be put in its way."""


class Compactor:
    """The queue of jobs."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None

    def add(self, job: Job) -> None:
        """Do ``job`` when those before it are done."""
        self._waiting.append(job)
        if self._running is None:
            self._begin_next()

    def _begin_next(self) -> None:
        self._running = None
        while self._waiting:
            job = self._waiting.popleft()
            if not job.cancelled:
                self._running = job
                job.start(partial(self._turns.later, job), self._begin_next)
                self._turns.later(job)
                return
