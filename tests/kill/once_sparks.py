# SPDX-License-Identifier: Apache-2.0
"""Sparks as the rig holds them: one whose queries are all at their steps when it is killed, and one that stays.

A Spark is dear, so that one is killed for several drivers at once: each is a query with a topic and a checkpoint of its
own, and plays that share one act together.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from tests.kill.once_drivers import TIMEOUT_S, HangingError, ProcessDriver, Run, processes, wait_until
from tests.kill.once_job import LOG, Job
from tests.kill.once_spark import run_query, run_spark, serve_spark


class SparkGroup:
    """A Spark of ``size`` drivers, and the next one when it is gone."""

    def __init__(self, size: int) -> None:
        self._barrier = threading.Barrier(size)
        self._jobs: list[Job] = []
        self._process: ForkServerProcess | None = None
        self.spared: set[int] = set()

    def together(self, action: Callable[[], None]) -> None:
        """Have one of the drivers do something for all of them."""
        try:
            if self._barrier.wait(TIMEOUT_S) == 0:
                action()
            self._barrier.wait(TIMEOUT_S)
        except threading.BrokenBarrierError as failure:
            raise HangingError("another driver of this Spark did not come so far") from failure

    def started(self, job: Job) -> ForkServerProcess:
        """The Spark that runs ``job``."""
        self._jobs.append(job)
        self.together(self._start)
        assert self._process is not None
        return self._process

    def _start(self) -> None:
        self._process = processes.Process(target=run_spark, args=(tuple(self._jobs),))
        self._process.start()
        self._jobs.clear()
        self.spared.clear()

    def leave(self) -> None:
        """A play is through, or has failed, which ends the waiting of others."""
        self._barrier.abort()


class SparkDriver(ProcessDriver):
    """One query of such a Spark."""

    def __init__(self, group: SparkGroup, job: Job) -> None:
        self._group = group
        super().__init__(job)

    def _started(self, job: Job) -> ForkServerProcess:
        return self._group.started(job)

    def stop(self) -> None:
        self._group.together(super().stop)

    def resume(self) -> None:
        self._group.together(lambda: None)
        self._signal(signal.SIGCONT)  # One of them has the list.

    def kill(self, but: int | None = None) -> None:
        if but is not None:
            self._group.spared.add(but)
            self._spare(but)
        self._group.together(lambda: self._kill_all_but(self._group.spared))


class SparkSession:
    """A Spark that stays."""

    def __init__(self, folder: Path, jars: str = "") -> None:
        folder.mkdir(parents=True)
        self.log = folder / LOG
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = processes.Process(target=serve_spark, args=(theirs, self.log, jars))
        self._process.start()
        theirs.close()
        self._sending = threading.Lock()
        self._count = 0
        self._answers: dict[int, Any] = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def submit(self, work: Callable[[Any, Job], Any], job: Job) -> int:
        """Have something done there; returns a number to ask for what came of it."""
        with self._sending:
            self._count += 1
            self._pipe.send((self._count, work, job))
            return self._count

    def is_done(self, number: int) -> bool:
        return number in self._answers

    def answer(self, number: int) -> Any:
        """The result of job ``number``, when it is done."""
        wait_until(lambda: self.is_done(number), f"Spark does not come to an end, see {self.log}")
        return self._answers[number]

    def _listen(self) -> None:
        while True:
            try:
                number, answer = self._pipe.recv()
            except (EOFError, OSError):
                return
            self._answers[number] = answer

    def close(self) -> None:
        """End it, with all that it has started."""
        self._process.terminate()
        self._process.join(TIMEOUT_S)
        self._process.kill()
        self._pipe.close()


class SessionDriver:
    """A query of a Spark that stays."""

    def __init__(self, session: SparkSession, job: Job) -> None:
        self._run = Run(job.folder)
        self._session = session
        self._number = session.submit(run_query, job)

    @property
    def is_running(self) -> bool:
        return not self._session.is_done(self._number)

    def reached(self) -> int | None:
        wait_until(lambda: self._run.waiting() is not None or not self.is_running, "the driver reaches no step")
        return self._run.waiting()

    def go_on(self) -> None:
        self._run.go_on()

    def end(self) -> str:
        return str(self._session.answer(self._number))

    def clear_away(self) -> None:
        """Its Spark stays; HangingError if the query does not end."""
        if self.is_running and self._run.waiting() is not None:
            self.go_on()
        self.end()
