# SPDX-License-Identifier: Apache-2.0
"""``Standalone``: a Spark standalone cluster from the installed pyspark: a master beside the driver, and two workers.

Owns their processes, on which machines they are, and which worker runs a task. A killed worker takes its executors with
it, as a lost machine does.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyspark

from pulsarish_spark import use_this_python
from tests.spark.queries import eventually

SPARK_CLASS: Final = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
WORKERS: Final = 2
JOB_S_MAX: Final = 500


class Machine(NamedTuple):
    """A machine: its address, and the beginning of each command that runs there."""

    address: str = "127.0.0.1"
    command: tuple[str, ...] = ()


HERE: Final = Machine()


@dataclass(frozen=True, slots=True)
class Standalone:
    """A running one. ``master``: what a session is made with. ``driver``: the machine of drivers, and of the master."""

    driver: Machine
    master: str
    folder: Path
    workers: list[subprocess.Popen[bytes]]

    def executors(self, number: int) -> list[Path]:
        """The folders of the executors that a worker has started."""
        return list((self.folder / f"work-{number}").glob("app-*/*"))

    def run(self, program: str, *arguments: str) -> Any:
        """What a driver, a program of this folder, prints as JSON; the master is its first argument."""
        return outcome(self.start(program, *arguments))

    def start(self, program: str, *arguments: str) -> subprocess.Popen[str]:
        """The same, without waiting for it: ``outcome`` does."""
        script = str(Path(__file__).with_name(program))
        command = [*self.driver.command, sys.executable, script, self.master, *arguments]
        environment = os.environ | {"SPARK_LOCAL_IP": self.driver.address}
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)

    def kill_worker_at_work(self, job: subprocess.Popen[str]) -> None:
        """Kill one of which an executor has left a file ``held``, once there is one, with all that it has started.

        AssertionError with what ``job`` said if that ends before.
        """

        def held() -> list[int]:
            return [
                number
                for number in range(WORKERS)
                if any((executor / "held").exists() for executor in self.executors(number))
            ]

        eventually(lambda: bool(held()) or job.poll() is not None, "a task is held up")
        assert job.poll() is None, outcome(job)
        victim = self.workers[held()[0]]
        os.killpg(victim.pid, signal.SIGKILL)
        victim.wait()


def outcome(job: subprocess.Popen[str]) -> Any:
    """The last line that a job prints, as JSON; AssertionError with what it said if it fails."""
    try:
        said, errors = job.communicate(timeout=JOB_S_MAX)
    finally:
        job.kill()
    assert job.returncode == 0, errors[-3000:]
    return json.loads(said.splitlines()[-1])


def rows_over_a_killed_worker(
    folder: Path,
    options: Mapping[str, str],
    count: int,
    meanwhile: Callable[[], None],
    machines: Sequence[Machine] = (HERE,) * (1 + WORKERS),
) -> Any:
    """What a stream delivers, each row as often as it does, and how it failed if it did.

    A worker is killed while a task of its executor has rows and waits; ``meanwhile`` sends the rest of ``count`` rows.
    """
    with running_standalone(folder, machines) as standalone:
        job = standalone.start("held_stream_job.py", json.dumps(options), str(folder), str(count))
        try:
            standalone.kill_worker_at_work(job)
            meanwhile()
        finally:
            (folder / "go-on").touch()
        return outcome(job)


@contextlib.contextmanager
def running_standalone(folder: Path, machines: Sequence[Machine] = (HERE,) * (1 + WORKERS)) -> Iterator[Standalone]:
    """Run one in ``folder``, on ``machines``: the driver's, and one for each worker."""
    driver, *others = machines
    with contextlib.ExitStack() as cluster:
        log = folder / "master.log"
        cluster.enter_context(_daemon("master.Master", log, driver, "--port", "0", "--webui-port", "0"))
        master = _found(log, r"Starting Spark master at (spark://\S+)")
        workers = [cluster.enter_context(_worker(folder, *each, master)) for each in enumerate(others)]
        for number in range(WORKERS):
            _found(folder / f"worker-{number}.log", r"(Successfully registered with master)")
        yield Standalone(driver, master, folder, workers)


def _worker(
    folder: Path, number: int, machine: Machine, master: str
) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    size = ["--cores", "1", "--memory", "600m", "--webui-port", "0"]
    work = ["--work-dir", str(folder / f"work-{number}")]
    return _daemon("worker.Worker", folder / f"worker-{number}.log", machine, *size, *work, master)


@contextlib.contextmanager
def _daemon(name: str, log: Path, machine: Machine, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """One of Spark's own processes, for the length of the block; what it starts is of its process group."""
    environment = os.environ | {"SPARK_LOCAL_IP": machine.address, "SPARK_DAEMON_MEMORY": "300m"}
    environment["SPARK_DAEMON_JAVA_OPTS"] = os.environ["SPARK_SUBMIT_OPTS"]
    use_this_python(environment)
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*machine.command, SPARK_CLASS, f"org.apache.spark.deploy.{name}", "--host", machine.address, *arguments],
            stdout=out,
            stderr=out,
            env=environment,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(120)


def _found(log: Path, pattern: str) -> str:
    """The first group of ``pattern`` once it is in the log."""
    eventually(lambda: re.search(pattern, log.read_text()) is not None, f"{log.name} says {pattern}")
    match = re.search(pattern, log.read_text())
    assert match is not None
    return match[1]
