# SPDX-License-Identifier: Apache-2.0
"""The server of planners: a process that has imported what the planner of a stream needs, and forks one for each.

Spark starts a new Python for each stream that it reads, the planner, and each imports pyspark, pyarrow and this source
before it is asked for anything: half a second of processor time. Here a server is forked from the first Python that
Spark starts for sources, and imports all that when the first planner is wanted; later ones are forked from it. What
Spark has started as a planner hands its environment and its open files over, waits, and goes away with the planner.

A planner that was forked is as one that was started, except that a package which ``addPyFile`` sends under the name of
one that is loaded comes too late for it:

- It has the environment, the standard files and the modules of the other, which must be of the same Java, folder and
  user. Only what Spark says to a single process (``PYTHON_...``, ``SPARK_...``) may differ in the environment, because
  a module may have read all else when it was imported. Where more differs, the planner is started as ever.
- It ends when the process ends that Spark knows. The server ends with Spark's Java.
- It is forked from a process without threads. Where the imports have started one, the server ends, and each planner is
  started as ever.

Its environment may hold secrets, and an address of this kind is open to every process with the same network, of other
users and containers too. So a process sends it only to one of its own user and container, and the server believes only
those that Java has started.

Must not know pyspark, nor import anything that costs time: each planner comes by here first. Only for Linux. Sources:
unix(7) of abstract addresses and ``SO_PEERCRED``, pidfd_open(2), namespaces(7), proc(5).
"""

from __future__ import annotations

import gc
import importlib
import importlib.machinery
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

PLANNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
"""The module that a planner of a stream runs."""

PLANNER_NAME: Final = "stream-planner"
"""What ``ps`` shows for one that was forked; its command line is that of the process that the server came from."""

_NEEDED: Final = (PLANNER, "pulsarish_spark.stream_reader", "pulsarish_spark.positions.position_driver")

_WITHOUT_THREADS: Final = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""What keeps numpy and pyarrow from starting threads when they are imported."""

_OF_ONE_PROCESS: Final = ("PYTHON_", "SPARK_")
"""How the variables begin that Spark sets for one process and not for another."""

_ANSWER_S: Final = 3.0
"""How long each side waits for the other to say something that it has ready. Spark waits 10 s for a planner."""

_SIZE: Final = struct.Struct("!I")
_PEER: Final = struct.Struct("3i")  # process, user, group
_SEEN, _READY, _GO = b".", b"?", b"!"
"""The server has the request; the planner is there; the process that asked for it still wants it. So there is never one
planner too many."""


def ask_for_planner() -> bool:
    """Have this process's planner forked, and wait until it has ended; False: there is no server for it."""
    if sys.platform != "linux":
        return False
    java = os.getppid()
    with socket.socket(socket.AF_UNIX) as server:
        server.settimeout(_ANSWER_S)
        try:
            server.connect(_address(java))
            if not _neighbour(server):
                return False
            _send_request(server, _place())
            if server.recv(1) != _SEEN:
                return False
            server.settimeout(None)  # It may have to import everything, which this process would do as slowly.
            if server.recv(1) != _READY:
                return False
            server.sendall(_GO)
        except OSError:
            return False
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where Java has it ignored
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # or Ctrl-C would show where this waits
        with suppress(OSError):
            server.recv(1)
    return True


def start_server(load_pyspark: Callable[[], None]) -> bool:
    """Fork a server for the Java that started this process, unless it has one.

    Returns True in each planner that the server forks, and False in this process.
    """
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        return False
    java = os.getppid()
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(_address(java))
        listening.listen()
        java_ends = os.pidfd_open(java)
    except OSError:  # it has one, or this system cannot do it
        listening.close()
        return False
    if not _is_forked(java):
        listening.close()
        os.close(java_ends)
        return False
    _leave_spark()
    _serve(java, listening, java_ends, load_pyspark)
    return True


# -- in the server


def _serve(java: int, listening: socket.socket, java_ends: int, load_pyspark: Callable[[], None]) -> None:
    """Fork planners until Java ends; returns in each of them."""
    listening.listen()  # once more, so that those who connect are told that it is this process
    settings, is_loaded = _settings(_place()), False
    while True:
        ready, _, _ = select.select([listening.fileno(), java_ends], [], [])
        if java_ends in ready:
            os._exit(0)
        asking, _ = listening.accept()
        with asking:
            place, files = _received_request(asking, java)
            if place and _settings(place) == settings:
                if not is_loaded:
                    _load(load_pyspark)
                    is_loaded = True
                if os.fork() == 0:
                    listening.close()
                    os.close(java_ends)
                    _become_planner(socket.socket(fileno=asking.detach()), place["environment"], files)
                    return
        for each in files:
            os.close(each)


def _is_forked(java: int) -> bool:
    """True in the server; False in what Spark has started, which does its work with or without a server."""
    with suppress(OSError):
        return os.getppid() == java and not _is_left() and os.fork() == 0
    return False


def _is_left() -> bool:
    """Whether Java, which writes to stdin, has ended; then the parent of this process is one that never ends."""
    stdin = select.poll()
    stdin.register(0, 0)
    return bool(stdin.poll(0))


def _leave_spark() -> None:
    """The server outlives the process that it was forked from, so it holds none of its files and takes no signal for
    its group."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    os.close(nothing)
    _name_process("planner-server")


def _load(load_pyspark: Callable[[], None]) -> None:
    """Import what planners need; where that fails the server ends, and each planner says itself why."""
    os.environ |= _WITHOUT_THREADS
    load_pyspark()
    for module in _NEEDED:
        importlib.import_module(module)
    del sys.modules[PLANNER]  # It runs as the program, of which there may be no copy; what it imports stays.
    if len(os.listdir("/proc/self/task")) > 1:
        os._exit(1)
    signal.signal(signal.SIGCHLD, _wait_for_planners)
    gc.freeze()


def _wait_for_planners(*_signal: object) -> None:
    """Those that have ended, so that their processor time is found in this process's, as with all that Java starts."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _become_planner(asking: socket.socket, environment: dict[str, str], files: list[int]) -> None:
    """Take over from the process at the other end of ``asking``; does not return if that wants it no more."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _name_process(PLANNER_NAME)
    _look_anew_at_folders()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    asking.settimeout(None)  # The other side answers or ends; a limit could run out just when it answers.
    try:
        asking.sendall(_READY)
        is_wanted = asking.recv(1) == _GO
    except OSError:
        is_wanted = False
    if not is_wanted:
        os._exit(0)
    threading.Thread(target=_end_with, args=(asking,), name="planner-ends", daemon=True).start()


def _look_anew_at_folders() -> None:
    """Find modules that came after the server's imports, as a process does that was started.

    Not ``importlib.invalidate_caches``: it reads the list of files in ``pyspark.zip`` again, for a fifth of a second.
    """
    for place, finder in list(sys.path_importer_cache.items()):
        if finder is None or not os.path.isabs(place):
            del sys.path_importer_cache[place]
        elif isinstance(finder, importlib.machinery.FileFinder):
            finder.invalidate_caches()


def _end_with(asking: socket.socket) -> None:
    """What Spark does to the process that it has started happens to this one."""
    with suppress(OSError):
        asking.recv(1)
    os.kill(os.getpid(), signal.SIGTERM)


def _name_process(name: str) -> None:
    with suppress(OSError):
        Path("/proc/self/comm").write_text(name, encoding="ascii")


# -- what both sides agree on


def _address(java: int) -> str:
    """The server's, of the process ``java`` and no later one of the same number. OSError if there is none."""
    return f"\0pulsarish-planners-{os.getuid()}-{java}-{_status(java)[19]}"


def _status(process: int) -> list[str]:
    """What Linux tells of a process, from its state on: its parent comes second, the time of its start 20th."""
    return Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def _place() -> dict[str, Any]:
    """Where this process runs, and with what."""
    return {"python": sys.executable, "folder": os.getcwd(), "environment": dict(os.environ)}


def _settings(place: dict[str, Any]) -> dict[str, Any]:
    """What of that must be the same for a planner and the server that it is forked from."""
    environment = place["environment"].items()
    return {
        **place,
        "environment": {name: value for name, value in environment if not name.startswith(_OF_ONE_PROCESS)},
    }


def _neighbour(connection: socket.socket) -> int:
    """The process at the other end, if that is of this user and container; else 0, or OSError."""
    process, user, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return process if user == os.getuid() and _namespaces(process) == _namespaces("self") else 0


def _namespaces(process: int | str) -> list[int]:
    return [os.stat(f"/proc/{process}/ns/{kind}").st_ino for kind in ("pid", "mnt", "user")]


def _send_request(server: socket.socket, request: dict[str, Any]) -> None:
    body = json.dumps(request).encode()
    socket.send_fds(server, [_SIZE.pack(len(body))], [0, 1, 2])
    server.sendall(body)


def _received_request(asking: socket.socket, java: int) -> tuple[dict[str, Any], list[int]]:
    """The request and the open files that came with it; an empty one if no process that Java has started asks."""
    asking.settimeout(_ANSWER_S)
    files: list[int] = []
    with suppress(OSError):
        if (process := _neighbour(asking)) and int(_status(process)[1]) == java:
            head, files, _, _ = socket.recv_fds(asking, _SIZE.size, 3)
            if len(head) == _SIZE.size and len(files) == 3:
                size = _SIZE.unpack(head)[0]
                with asking.makefile("rb") as stream:
                    body = stream.read(size)
                if len(body) == size:
                    asking.sendall(_SEEN)
                    return json.loads(body), files
    return {}, files
