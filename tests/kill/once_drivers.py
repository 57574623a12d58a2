# SPDX-License-Identifier: Apache-2.0
"""Drivers of a stream as the rig holds them: a process with all that it has started, to be stopped, killed, let go on.

The rig waits until one reaches the step that it watches (``once_points``). A driver is a process that calls the sink as
Spark does (``once_job``); ``once_sparks`` has those that are queries of a Spark.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Collection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final, Protocol

import psutil

from tests.kill.once_job import LOG, Job, run_job
from tests.kill.once_points import GO, REACHED

TIMEOUT_S: Final = 600.0
"""A Spark needs 20 s to its second batch; on a machine that is busy enough it has needed three minutes."""
POLL_S: Final = 0.005

processes: Final = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["tests.kill.once_job", "tests.kill.once_spark"])


class HangingError(Exception):
    """Something that had to happen did not."""


class Driver(Protocol):
    """One driver of a stream, which is running."""

    @property
    def is_running(self) -> bool: ...

    def reached(self) -> int | None:
        """The process that waits at the step; None: the driver has ended without."""

    def go_on(self) -> None:
        """Let it go on from the step."""

    def end(self) -> str:
        """Wait for its end; returns "" if that is in order, or what failed. HangingError if it does not end."""

    def clear_away(self) -> None:
        """Leave nothing of it that runs."""


class Run:
    """The folder of one run: who waits there, and the pipe on which it waits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        os.mkfifo(folder / GO)

    def waiting(self) -> int | None:
        """The process that waits at the step."""
        path = self.folder / REACHED
        return int(path.read_text()) if path.exists() else None

    def go_on(self) -> None:
        """Returns when the process has been told, which may be stopped or dead by then."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):  # Nobody reads there yet.
                os.close(os.open(self.folder / GO, os.O_WRONLY | os.O_NONBLOCK))
                return
            time.sleep(POLL_S)
        raise HangingError(f"nobody waits in {self.folder}")

    def log(self) -> str:
        """The end of what the run has said."""
        path = self.folder / LOG
        return "\n".join(path.read_text(errors="replace").splitlines()[-30:]) if path.exists() else ""


class ProcessDriver:
    """A driver of its own, which may be killed."""

    def __init__(self, job: Job) -> None:
        self._run = Run(job.folder)
        self._process = self._started(job)
        self._stopped: list[psutil.Process] = []
        self._survivor: psutil.Process | None = None

    def _started(self, job: Job) -> ForkServerProcess:
        process = processes.Process(target=run_job, args=(job,))
        process.start()
        return process

    @property
    def is_running(self) -> bool:
        return self._process.is_alive()

    def reached(self) -> int | None:
        wait_until(lambda: self._run.waiting() is not None or not self.is_running, "the driver reaches no step")
        return self._run.waiting()

    def go_on(self) -> None:
        self._run.go_on()

    def stop(self) -> None:
        """SIGSTOP, to every process of it."""
        self._stopped = [*self._tree()]
        self._signal(signal.SIGSTOP)
        self._stopped = [*self._tree()]  # Some may have been born meanwhile.
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def kill(self, but: int | None = None) -> None:
        """SIGKILL, to every process of it, or to all but one. None sees the end of another one."""
        if but is not None:
            self._spare(but)
        self._kill_all_but(() if but is None else (but,))

    def _spare(self, pid: int) -> None:
        self._survivor = psutil.Process(pid)

    def _kill_all_but(self, spared: Collection[int]) -> None:
        ProcessDriver.stop(self)
        for each in self._stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.send_signal(signal.SIGCONT if each.pid in spared else signal.SIGKILL)
        self._process.join(TIMEOUT_S)

    def end(self) -> str:
        self._process.join(TIMEOUT_S)
        if self.is_running:
            raise HangingError(f"the driver does not end:\n{self._run.log()}")
        wait_until(lambda: not self._is_survived(), "a worker does not end")
        code = self._process.exitcode
        return f"exit code {code}:\n{self._run.log()}" if code else ""

    def clear_away(self) -> None:
        if self.is_running:
            self._kill_all_but(())
        if self._is_survived() and self._survivor is not None:
            self._survivor.kill()

    def _is_survived(self) -> bool:
        """Whether a worker is alive that was left over."""
        try:
            return self._survivor is not None and self._survivor.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def _tree(self) -> list[psutil.Process]:
        if not self.is_running or self._process.pid is None:
            return []
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(self._process.pid)
            return [root, *root.children(recursive=True)]
        return []

    def _signal(self, number: signal.Signals) -> None:
        for each in self._stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.send_signal(number)


def wait_until(holds: Callable[[], object], otherwise: str) -> None:
    """Return when ``holds``; HangingError if that takes too long."""
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        if time.monotonic() > deadline:
            raise HangingError(otherwise)
        time.sleep(POLL_S)
