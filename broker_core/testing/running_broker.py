# SPDX-License-Identifier: Apache-2.0
"""``RunningBroker``: a real broker process for tests, yours and ours: start, stop, kill, start again on the same data.

    with RunningBroker(tmp_path) as broker:
        client = pulsar.Client(broker.service_url)

The ports stay the same over restarts, so connected clients find the broker again. Whatever happens, the process ends
with the ``with`` block.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, ClassVar, Final, Protocol, Self

from broker_core.base.clock import SystemClock
from broker_core.base.errors import OperationTimeoutError, PulsarishError

_START_S: Final = 60.0
_STOP_S: Final = 60.0
"""Both take half a second; a machine that is busy with something else may need a hundred times as long."""


class BrokerExitedError(PulsarishError):
    """The process ended before it was ready; ``str()`` holds what it wrote on stderr."""


class HeldPort:
    """``number``: a port of ``address``, held until ``release``; 0, which is any port, where the system holds none.

    A port that the system chose is free again while its broker is down, and the system gives it to the next who wants
    any, to a broker of another test, say. Linux lets a program listen where another's socket is bound but does not
    listen, if both allow it, and gives such a port to nobody else.
    """

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.number = 0
        self._socket = socket.socket()
        if sys.platform == "linux":
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((address, 0))
            self.number = int(self._socket.getsockname()[1])

    def release(self) -> None:
        """Give the port back; a process that listens there is not disturbed."""
        self._socket.close()


class Process(Protocol):
    """A process that was started, in the words of ``subprocess.Popen``."""

    @property
    def pid(self) -> int: ...
    @property
    def stdout(self) -> IO[bytes] | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def kill(self) -> None: ...


class RunningBroker:
    """One broker process on ``data_dir``. Its URLs are known once it has started; those of ports with TLS are "" if it
    has none, and the others are the same where it has no plain ones.

    Attributes:
        launch: Starts a process, with a pipe for its stdout and a file for its stderr. Who starts hundreds of brokers
            may have a quicker way.
    """

    @staticmethod
    def started_anew(command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        """The usual ``launch``."""
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)

    launch: ClassVar[Callable[[Sequence[str], IO[bytes]], Process]] = started_anew

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, object] | None = None,
        *,
        port: int = 0,
        http_port: int = 0,
        is_open: bool = True,
    ) -> None:
        """``settings`` by their outer names (``maxMessageSize``); port 0 takes a free one, -1 none. Unless ``is_open``,
        and where settings ask for authentication, clients have to say who they are."""
        self.data_dir = data_dir
        given = dict(settings or {})
        self.settings = {"openToLocalUsers": is_open and not given.get("authenticationEnabled"), **given}
        self.port = port
        self.http_port = http_port
        self.service_url = ""
        self.http_url = ""
        self.service_url_tls = ""
        self.http_url_tls = ""
        self._process: Process | None = None
        self._held: list[HeldPort] = []
        self._log_path = data_dir.with_name(data_dir.name + ".stderr")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.kill()
        self._release_ports()

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def stderr(self) -> str:
        """Text that the process has written on stderr, over all its lives."""
        return self._log_path.read_text("utf-8", "replace") if self._log_path.exists() else ""

    def start(self) -> None:
        """Start the process and return when it is ready. BrokerExitedError if it ends instead."""
        self._hold_ports()
        command = [sys.executable, "-m", "broker_core.server", "--data-dir", str(self.data_dir)]
        command += ["--port", str(self.port), "--http-port", str(self.http_port)]
        command += ["--settings", json.dumps(self.settings)]
        with self._log_path.open("ab") as log:
            process = type(self).launch(command, log)
        self._process = process
        ready, *urls = _first_line(process.stdout, _START_S).split() or [""]
        if ready != "ready":
            code = process.wait(_STOP_S)
            self._forget()
            self._release_ports()
            raise BrokerExitedError(f"the broker ended with exit code {code} before it was ready: {self.stderr}")
        self.service_url, self.http_url = urls[:2]
        self.service_url_tls = next((url for url in urls if url.startswith("pulsar+ssl:")), "")
        self.http_url_tls = next((url for url in urls if url.startswith("https:")), "")
        self.port = _port_of(self.service_url) if self.port >= 0 else -1
        self.http_port = _port_of(self.http_url) if self.http_port >= 0 else -1

    def signal(self, number: signal.Signals) -> None:
        """Send a signal and return at once."""
        os.kill(self.pid, number)

    def wait(self, timeout_s: float = _STOP_S) -> int:
        """The exit code, once the process has ended; negative if a signal ended it."""
        code = self._running().wait(timeout_s)
        self._forget()
        return code

    def stop(self) -> int:
        """Stop gracefully; the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """End it as a power cut would: without a chance to do anything."""
        self._running().kill()
        self.wait()

    def restart(self) -> None:
        """Stop gracefully, start again on the same data and ports."""
        self.stop()
        self.start()

    def _hold_ports(self) -> None:
        """Choose the ports that the caller did not choose, and hold them."""
        if not self.port:
            self.port = self._hold_one()
        if not self.http_port:
            self.http_port = self._hold_one()
        for name in ("brokerServicePortTls", "webServicePortTls"):
            if self.settings.get(name) == 0:
                self.settings[name] = self._hold_one()

    def _hold_one(self) -> int:
        every = "0.0.0.0"  # noqa: S104 - compared with a setting
        self._held.append(HeldPort(every if self.settings.get("bindAddress") == every else "127.0.0.1"))
        return self._held[-1].number

    def _release_ports(self) -> None:
        for each in self._held:
            each.release()
        self._held.clear()

    def _running(self) -> Process:
        if self._process is None:
            raise PulsarishError("the broker is not running", hint="call start() first")
        return self._process

    def _forget(self) -> None:
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None


def _port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def _first_line(stream: IO[bytes] | None, timeout_s: float) -> str:
    """One line, or what came before the end of the stream; OperationTimeoutError if neither comes."""
    if stream is None:
        return ""
    clock = SystemClock()
    deadline = clock.monotonic() + timeout_s
    line = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            if not selector.select(max(0.0, deadline - clock.monotonic())):
                raise OperationTimeoutError(f"the broker was not ready after {timeout_s:g} s")
            chunk = os.read(stream.fileno(), 4096)
            if not chunk:
                break
            line += chunk
    return line.decode()
