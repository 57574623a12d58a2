# SPDX-License-Identifier: Apache-2.0
"""Planners of streams that are forked from a server: on a Spark of few modules, with a process in place of its Java."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import zipfile
import zipimport
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import pytest

from pulsarish_planners import PLANNER, PLANNER_NAME, _address, _look_anew_at_folders
from tests.spark.brokers import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each planner is started as ever")

_REPOSITORY: Final = Path(__file__).resolve().parents[2]
_RUN: Final = "import pulsarish_python; pulsarish_python.main()"
_DAEMON: Final = ("-m", "pyspark.daemon", "pyspark.sql.worker.create_data_source")

_JAVA: Final = """
import json, signal, subprocess, sys
for ignored in (signal.SIGCHLD, signal.SIGINT):  # SIGINT as pyspark has it
    signal.signal(ignored, signal.SIG_IGN)
kept = []
for line in sys.stdin:
    command, environment, out, err = json.loads(line)
    out, err = open(out, "w"), open(err, "w")
    kept.append(subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=out, stderr=err))
    print(kept[-1].pid, flush=True)
"""
"""Starts each command that it is told, as Spark's Java does, and says its number."""

_RUNS_UNTIL_JAVA_ENDS: Final = """
import importlib, json, os, sys
if __name__ == "__main__":
    importlib.import_module(os.environ.get("SPARK_NEEDS", "sys"))
    print(json.dumps([os.getpid(), os.getppid(), sys.argv[1:], os.environ.get("SPARK_GIVEN")]), flush=True)
    print("an error", file=sys.stderr, flush=True)
    sys.stdin.read()
"""

_STARTS_A_THREAD: Final = "import threading, time; threading.Thread(target=threading.Event().wait, daemon=True).start()"
_WAITS: Final = "import os; open(os.environ['SPARK_GATE']).read()"

_IN_THE_NAME_OF: Final = """
import os, sys
os.getppid = lambda: int(sys.argv[1])
import pulsarish_planners
print(pulsarish_planners.ask_for_planner())
"""
"""Asks as if a Java, whose number it is told, had started it."""

_POSES_AS_SERVER: Final = """
import socket, sys
listening = socket.socket(socket.AF_UNIX)
listening.bind(chr(0) + sys.argv[1])
listening.listen()
print("listens", flush=True)
print(len(listening.accept()[0].recv(1000)))
"""
"""Says how many bytes it is sent."""

_CONTAINER: Final = ("unshare", "--user", "--map-root-user", "--pid", "--fork")
"""Runs a command in a container of the same user with the same network."""


@dataclass(frozen=True, slots=True)
class Started:
    """What Java has started, by its number, and the files that it writes to."""

    pid: int
    out: Path
    err: Path

    def said(self) -> list[object]:
        """Number and parent of the process that became the planner, its arguments, and the variable SPARK_GIVEN."""
        eventually(lambda: self.out.read_text().endswith("\n"), "the planner says something")
        eventually(lambda: self.err.read_text().endswith("\n"), "the planner says something on stderr")
        found: list[object] = json.loads(self.out.read_text())
        return found


class Java:
    """Starts the command ``pulsarish-python`` in an environment where only what stands in for Spark is found."""

    def __init__(self, folder: Path, source: str) -> None:
        self.folder = folder
        home = folder / "spark" / "pyspark"
        _write(home / "daemon.py", "import sys\nprint('ready', flush=True)\nsys.stdin.read()")
        _write(home / "sql" / "streaming" / "python_streaming_source_runner.py", _RUNS_UNTIL_JAVA_ENDS)
        _write(folder / "ours" / "pulsarish_spark" / "stream_reader.py", source)
        _write(folder / "ours" / "pulsarish_spark" / "positions" / "position_driver.py", "")
        zipped = home / "python" / "lib" / "pyspark.zip"
        zipped.parent.mkdir(parents=True)
        with zipfile.ZipFile(zipped, "w") as archive:
            archive.write(home / "__init__.py", "pyspark/__init__.py")
        path = [zipped, folder / "ours", folder / "later", _REPOSITORY]
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
        """Of all that it starts."""
        self.process = subprocess.Popen(
            [sys.executable, "-c", _JAVA], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, *arguments: str, run: str = _RUN, **environment: str) -> Started:
        """Start it with ``arguments`` and more in its environment; ``run``: another program."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        number = len([*self.folder.glob("*.out")])
        out, err = self.folder / f"{number}.out", self.folder / f"{number}.err"
        given = {**self.environment, **environment}
        stdin.write(json.dumps([[sys.executable, "-c", run, *arguments], given, str(out), str(err)]) + "\n")
        stdin.flush()
        return Started(int(stdout.readline()), out, err)

    def start_daemon(self, **environment: str) -> Started:
        """The first that Spark starts for any source."""
        daemon = self.start(*_DAEMON, **environment)
        eventually(lambda: daemon.out.exists() and daemon.out.read_text() == "ready\n", "the daemon runs")
        return daemon

    def start_planner(self, **environment: str) -> Started:
        """What Spark starts for each stream."""
        return self.start("-m", PLANNER, **environment)

    def close(self) -> None:
        """Everything that it started ends, for its files are closed."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


def _write(module: Path, text: str) -> None:
    """``module`` in a package, which may be a part of others."""
    module.parent.mkdir(parents=True, exist_ok=True)
    module.write_text(text)
    package = module.parent
    while package.name not in ("spark", "ours", "later"):
        (package / "__init__.py").touch()
        package = package.parent


@pytest.fixture
def java(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Java]:
    """A Java; a parameter is the source that the server imports."""
    running = Java(tmp_path, getattr(request, "param", ""))
    yield running
    running.close()


def test_planners_are_forked_from_one_process_that_has_imported_everything(java: Java) -> None:
    """Each is as if it had been started: environment, files and arguments are those of what Spark has started."""
    java.start_daemon(SPARK_GIVEN="to the daemon")
    first, second = java.start_planner(SPARK_GIVEN="one"), java.start_planner()
    pid, server, arguments, given = first.said()
    assert (pid != first.pid, server not in (first.pid, java.process.pid)) == (True, True)
    assert (arguments, given, first.err.read_text()) == ([], "one", "an error\n")
    assert isinstance(pid, int)
    assert psutil.Process(pid).name() == PLANNER_NAME
    assert second.said()[1:] == [server, [], None]


def test_a_planner_ends_with_the_process_that_spark_knows(java: Java) -> None:
    """Spark stops a query by a signal to that."""
    java.start_daemon()
    started = java.start_planner()
    planner = started.said()[0]
    assert isinstance(planner, int)
    os.kill(started.pid, signal.SIGKILL)
    eventually(lambda: not psutil.pid_exists(planner), "the planner has ended")


def test_the_process_that_spark_knows_ends_with_the_planner(java: Java) -> None:
    """A planner that was killed is seen to be gone."""
    java.start_daemon()
    started = java.start_planner()
    planner = started.said()[0]
    assert isinstance(planner, int)
    os.kill(planner, signal.SIGKILL)
    eventually(lambda: not psutil.pid_exists(started.pid), "what Spark has started has ended")


def test_each_of_many_that_come_at_once_gets_a_planner_of_its_own(java: Java) -> None:
    """A job may start all its queries together."""
    java.start_daemon()
    found = [started.said() for started in [java.start_planner(SPARK_GIVEN=str(number)) for number in range(8)]]
    assert [given for _, _, _, given in found] == [str(number) for number in range(8)]
    assert (len({str(pid) for pid, *_ in found}), len({str(server) for _, server, *_ in found})) == (8, 1)


def test_planners_go_on_without_their_server_and_later_ones_are_started_as_ever(java: Java) -> None:
    """A server that was killed costs later queries time and nothing else."""
    java.start_daemon()
    first = java.start_planner()
    planner, server, *_ = first.said()
    assert isinstance(planner, int)
    assert isinstance(server, int)
    os.kill(server, signal.SIGKILL)
    later = java.start_planner()
    assert later.said()[:2] == [later.pid, java.process.pid]
    assert [psutil.Process(pid).is_running() for pid in (first.pid, planner)] == [True, True]


def test_what_java_ignores_stays_ignored_while_a_planner_runs(java: Java) -> None:
    """Ctrl-C in a shell goes to Spark's processes too, and stops none of them."""
    java.start_daemon()
    started = java.start_planner()
    started.said()
    os.kill(started.pid, signal.SIGINT)
    java.start_planner().said()
    assert _ignores_interrupts(started.pid)


def _ignores_interrupts(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.partition("SigIgn:")[2].split()[0], 16) >> (signal.SIGINT - 1) & 1)


def test_the_server_and_its_planners_end_with_java(java: Java) -> None:
    """Nothing of a Spark that was killed is left behind."""
    java.start_daemon()
    pids = [pid for pid in java.start_planner().said()[:2] if isinstance(pid, int)]
    java.process.kill()
    java.process.wait()
    eventually(lambda: not any(map(psutil.pid_exists, pids)), "server and planner have ended")


@pytest.mark.parametrize("java", [_WAITS], indirect=True)
def test_a_planner_that_was_stopped_before_it_began_does_not_run(java: Java, tmp_path: Path) -> None:
    """Spark takes whatever connects to it for the planner, so there may not be one too many; the server goes on."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    java.start_daemon(SPARK_GATE=str(gate))
    stopped = java.start_planner()
    with gate.open("w"):  # Opened as soon as the server imports what was asked for.
        os.kill(stopped.pid, signal.SIGTERM)
        eventually(lambda: not psutil.pid_exists(stopped.pid), "what Spark has started has ended")
    later = java.start_planner()
    assert later.said()[0] != later.pid
    assert stopped.out.read_text() == ""


@pytest.mark.parametrize("java", [_STARTS_A_THREAD, "import nothing_like_that"], indirect=True)
def test_a_server_that_has_threads_or_cannot_import_ends(java: Java) -> None:
    """A fork of a process with threads may hang; what cannot be imported is told by each planner itself."""
    java.start_daemon()
    started = java.start_planner()
    assert started.said()[:2] == [started.pid, java.process.pid]


@pytest.mark.parametrize("setting", ["PYTHONHASHSEED", "MALLOC_ARENA_MAX"])
def test_a_planner_in_another_environment_is_started_as_ever(java: Java, setting: str) -> None:
    """Python, or a module that was imported, has read its own already and may not look again."""
    java.start_daemon()
    started = java.start_planner(**{setting: "7"})
    assert started.said()[:2] == [started.pid, java.process.pid]


def test_a_planner_without_a_server_is_started_as_ever(java: Java) -> None:
    """As where Spark runs no daemons."""
    started = java.start_planner()
    assert started.said()[:2] == [started.pid, java.process.pid]


def test_planners_are_forked_also_when_the_daemon_is_gone(java: Java) -> None:
    """A session was stopped, and its Java starts the next one."""
    daemon = java.start_daemon()
    os.kill(daemon.pid, signal.SIGKILL)
    eventually(lambda: not psutil.pid_exists(daemon.pid), "the daemon has ended")
    started = java.start_planner()
    assert started.said()[0] != started.pid


def test_a_daemon_whose_java_has_ended_leaves_no_server(java: Java, tmp_path: Path) -> None:
    """Its parent is a process then that never ends, and neither would a server."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    java.start(*_DAEMON, run=f"{_WAITS}; {_RUN}", SPARK_GATE=str(gate))
    java.process.kill()
    java.process.wait()
    gate.open("w").close()
    eventually(lambda: not _has_any(SPARK_GATE=str(gate)), "nothing is left behind")


def _has_any(**environment: str) -> bool:
    """Whether a process runs that was started with that in its environment."""
    found = [each.info["environ"] or {} for each in psutil.process_iter(["environ"])]
    return any(environment.items() <= each.items() for each in found)


def test_folders_are_looked_at_anew_and_archives_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of files in pyspark.zip takes a fifth of a second to read."""
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("module_of_archive.py", "")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "archive.zip"), str(tmp_path / "later")])
    read_again: list[zipimport.zipimporter] = []
    monkeypatch.setattr(zipimport.zipimporter, "invalidate_caches", read_again.append)
    assert importlib.util.find_spec("module_of_archive") is not None
    assert importlib.util.find_spec("module_that_came") is None
    _write(tmp_path / "later" / "module_that_came.py", "")
    _look_anew_at_folders()
    assert importlib.util.find_spec("module_that_came") is not None
    assert read_again == []


def test_a_planner_finds_what_has_come_since_the_server_imported_everything(java: Java, tmp_path: Path) -> None:
    """A folder of modules may be mounted, or filled, while Spark runs."""
    java.start_daemon()
    java.start_planner().said()
    _write(tmp_path / "later" / "module_that_came.py", "")
    assert java.start_planner(SPARK_GIVEN="one", SPARK_NEEDS="module_that_came").said()[3] == "one"


def test_who_was_not_started_by_java_gets_no_planner(java: Java) -> None:
    """What it asks for would run with its environment and on its files, in the place of Spark's processes."""
    java.start_daemon()
    java.start_planner().said()
    command = [sys.executable, "-c", _IN_THE_NAME_OF, str(java.process.pid)]
    stranger = subprocess.run(
        command, env=java.environment, cwd=java.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert (stranger.stdout, stranger.stderr) == ("False\n", "")


def test_another_container_with_the_same_network_is_sent_no_environment(java: Java) -> None:
    """There may be secrets in it."""
    if shutil.which(_CONTAINER[0]) is None or subprocess.run([*_CONTAINER, "true"], capture_output=True).returncode:
        pytest.skip("this system allows no containers")
    command = [*_CONTAINER, sys.executable, "-c", _POSES_AS_SERVER, _address(java.process.pid)[1:]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "listens\n"
        started = java.start_planner()
        assert started.said()[:2] == [started.pid, java.process.pid]
        assert other.stdout.read() == "0\n"
