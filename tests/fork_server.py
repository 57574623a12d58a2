# SPDX-License-Identifier: Apache-2.0
"""Starts the brokers of tests by a fork of a process that has imported everything: a tenth of a start's processor time.

The suite starts hundreds of brokers, and each would import the same modules for half a second. ``ForkServer.launch``
takes the place of ``RunningBroker.launch``. What a broker gets from whoever starts it (environment, working directory,
umask, where it writes) travels with the request, so that a forked broker is as one that was started anew; from there on
it runs the very code of ``python -m broker_core.server``.

A request is a line of JSON and three open files: stdout, stderr, and a pipe to which the exit code is written when the
broker has ended, for only its parent is told that.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, Any, Final

REPOSITORY: Final = Path(__file__).resolve().parents[1]
MODULE: Final = "broker_core.server"
_REQUEST_BYTES_MAX: Final = 1 << 20


class ForkedBroker:
    """What ``RunningBroker`` needs to know of a process that it has started."""

    def __init__(self, pid: int, stdout: IO[bytes], ended: IO[bytes]) -> None:
        self.pid = pid
        self.stdout: IO[bytes] | None = stdout
        self._ended = ended
        self._code: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """As that of ``Popen``."""
        if self._code is None:
            readable, _, _ = select.select([self._ended], [], [], timeout)
            if not readable:
                raise subprocess.TimeoutExpired(f"broker {self.pid}", timeout or 0)
            with self._ended:
                self._code = int(self._ended.read())
        return self._code

    def kill(self) -> None:
        if self._code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class ForkServer:
    """The process, from the first launch on; ends with ``close``, or with this process."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None
        self._one_at_a_time = threading.Lock()

    def launch(self, command: Sequence[str], log: IO[bytes]) -> ForkedBroker:
        """Do what ``command``, a Python that runs a broker, says; its stderr goes to ``log``."""
        assert list(command[:3]) == [sys.executable, "-m", MODULE]
        out_end, out = os.pipe()
        ended_end, ended = os.pipe()
        request = {
            "arguments": list(command[3:]),
            "environment": dict(os.environ),
            "directory": os.getcwd(),
            "umask": _umask(),
        }
        with self._one_at_a_time:
            requests = self._requests or self._start()
            socket.send_fds(requests, [json.dumps(request).encode()], [out, log.fileno(), ended])
            pid = int(requests.recv(_REQUEST_BYTES_MAX))
        os.close(out)
        os.close(ended)
        return ForkedBroker(pid, os.fdopen(out_end, "rb"), os.fdopen(ended_end, "rb"))

    def close(self) -> None:
        """End the server. Brokers that run are left alone, as they would be without it."""
        if self._requests is not None and self._server is not None:
            self._requests.close()
            self._server.wait()
            self._requests = self._server = None

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _REQUEST_BYTES_MAX)
        with closing(theirs):
            command = [sys.executable, "-m", "tests.fork_server", str(theirs.fileno())]
            self._server = subprocess.Popen(
                command, cwd=REPOSITORY, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
            )
        self._requests = ours
        return ours


def _umask() -> int:
    """The umask, which can only be asked by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


# -- in the server's process


def serve(number: int) -> None:
    """Fork a broker for each request that comes through the socket ``number``, until its other end is closed."""
    requests = socket.socket(fileno=number)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    ends: dict[int, int] = {}
    importlib.import_module(f"{MODULE}.__main__")
    gc.freeze()
    while True:
        readable, _, _ = select.select([number, woken], [], [])
        if woken in readable:
            os.read(woken, 1024)
            _tell_ends(ends)
        if number in readable:
            data, files, _, _ = socket.recv_fds(requests, _REQUEST_BYTES_MAX, 3)
            if not data:
                return
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                _become_a_broker(json.loads(data), files, [requests.detach(), woken, wake, *ends.values()])
            ends[pid] = files.pop()
            for each in files:
                os.close(each)
            requests.send(str(pid).encode())


def _tell_ends(ends: dict[int, int]) -> None:
    while ends:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        end = ends.pop(pid)
        with suppress(BrokenPipeError):  # nobody wants to know any more
            os.write(end, str(os.waitstatus_to_exitcode(status)).encode())
        os.close(end)


def _become_a_broker(request: dict[str, Any], files: list[int], others: list[int]) -> None:
    """In the child: does not return. Signals are as in a process that was started anew."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for target, number in zip((1, 2), files, strict=False):
        os.dup2(number, target)
    for number in (*files, *others):
        os.close(number)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.umask(request["umask"])
    os.chdir(request["directory"])
    sys.argv = [MODULE, *request["arguments"]]
    code = 1
    try:
        code = importlib.import_module(f"{MODULE}.__main__").main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - as an interpreter does it at its end
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
