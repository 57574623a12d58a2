# SPDX-License-Identifier: Apache-2.0
"""The same job under fire: the Spark driver and the broker are each killed once in the middle of a micro-batch.

The driver runs as a child process in a process group of its own, so that SIGKILL takes its JVM and its Python alike.
A micro-batch is under way while Spark's checkpoint names its offsets but not yet its commit; that is the moment to
strike. The driver is started again with the same arguments. The broker outlives the driver, and when it is killed
itself, the running queries start it again on its data directory. Nothing else is done; the job's own check decides.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from flights.progress import Progress
from pulsarish_spark import embedded_broker

_FIRST_BATCH_TO_HIT: Final = 2
_POLL_S: Final = 0.002


@dataclass(slots=True)
class Driver:
    """The job as a child process. ``checkpoint`` is the one of the query that gets hit."""

    command: list[str]
    checkpoint: Path
    _process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self) -> None:
        """Start it, or start it again: it goes on where its checkpoints are."""
        self._process = subprocess.Popen(self.command, start_new_session=True)

    def wait(self) -> int:
        """Let it end by itself; its exit code."""
        assert self._process is not None
        return self._process.wait()

    def kill(self) -> None:
        """SIGKILL to the whole group: Python and JVM."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def wait_inside_batch(self, first: int) -> int:
        """Return as soon as a micro-batch from number ``first`` on is under way: its number."""
        assert self._process is not None
        while self._process.poll() is None:
            planned = self._newest("offsets")
            if planned >= first and not self.committed(planned):
                return planned
            time.sleep(_POLL_S)
        raise SystemExit(f"the driver ended with code {self._process.returncode} before it could be hit")

    def committed(self, batch: int) -> bool:
        """Whether Spark has noted the end of this micro-batch."""
        return self._newest("commits") >= batch

    def _newest(self, log: str) -> int:
        folder = self.checkpoint / log
        names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
        return max((int(name) for name in names if name.isdecimal()), default=-1)


def run(driver: Driver, broker_directory: Path, progress: Progress) -> int:
    """Run the job to its end with two kills in between; the exit code of the driver that ended by itself."""
    batch = _kill_driver(driver, progress)
    _kill_broker(driver, broker_directory, batch + 1, progress)
    return driver.wait()


def _kill_driver(driver: Driver, progress: Progress) -> int:
    """Kill the driver inside a micro-batch and start it again; the number of that batch."""
    first = _FIRST_BATCH_TO_HIT
    while True:
        driver.start()
        batch = driver.wait_inside_batch(first)
        driver.kill()
        if not driver.committed(batch):
            break
        first = batch + 1  # it was faster than the signal: this kill does not count
    progress.say(f"CHAOS: SIGKILL to the Spark driver inside micro-batch {batch}; starting it again")
    driver.start()
    return batch


def _kill_broker(driver: Driver, directory: Path, first: int, progress: Progress) -> None:
    broker = embedded_broker(directory)
    batch = driver.wait_inside_batch(first)
    os.kill(broker.pid, signal.SIGKILL)
    progress.say(f"CHAOS: SIGKILL to the broker inside micro-batch {batch}; its queries start it again")
