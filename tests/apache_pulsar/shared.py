# SPDX-License-Identifier: Apache-2.0
"""One Apache Pulsar of each kind for all processes of a test run: it starts once, beside the first tests.

Theory of operation. The process that spreads the tests over workers has a ``Host``; it listens at a socket, starts
what a worker asks for first, and ends it when the run ends. Workers have an ``Asking`` with the socket's path. Without
workers the one process uses its ``Host`` directly. Knows nothing of pytest.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import socketserver
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Protocol

from tests.apache_pulsar.secured import ADMIN, prepared, token
from tests.apache_pulsar.start import INDEXED, SHORT_LIVED, TRANSACTIONS, ApachePulsar, UnavailableError, running

SECURED: Final = "apache-secured"
KINDS: Final[Mapping[str, Mapping[str, str]]] = {
    "apache": {},
    "apache-indexed": INDEXED,
    "apache-transactions": TRANSACTIONS,
    "apache-indexed-transactions": INDEXED | TRANSACTIONS,
    SECURED: {},
}
"""Kind -> its settings."""


class Pulsars(Protocol):
    """Where tests get a running Apache Pulsar from."""

    def begin(self, kind: str) -> None:
        """Start it, if it is not there, without waiting for it."""

    def get(self, kind: str) -> ApachePulsar:
        """It, once it is ready; UnavailableError where this machine cannot run one."""


class Host:
    """Starts what is asked for, once, and has it until ``close``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folder = tempfile.mkdtemp(prefix="tests-apache-pulsar-")
        self._starters = ThreadPoolExecutor(len(KINDS))
        self._started: dict[str, Future[ApachePulsar]] = {}
        self._running = contextlib.ExitStack()

    def begin(self, kind: str) -> None:
        self._future(kind)

    def get(self, kind: str) -> ApachePulsar:
        return self._future(kind).result()

    def close(self) -> None:
        """End all of them, also those that are starting."""
        self._starters.shutdown()
        self._running.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _future(self, kind: str) -> Future[ApachePulsar]:
        with self._lock:
            if kind not in self._started:
                self._started[kind] = self._starters.submit(self._start, kind)
            return self._started[kind]

    def _start(self, kind: str) -> ApachePulsar:
        directory = Path(self._folder, kind)
        if kind == SECURED:
            headers = {"Authorization": f"Bearer {token(ADMIN)}"}
            made = running(directory, prepared(directory), SHORT_LIVED, tls=True, headers=headers)
        else:
            made = running(directory, KINDS[kind], SHORT_LIVED)
        pulsar = made.__enter__()
        with self._lock:
            self._running.push(made)
        return pulsar


class Listening:
    """Answers the workers of a test run from a ``Host``, at the Unix socket ``path``."""

    def __init__(self) -> None:
        self._host = Host()
        self._folder = tempfile.TemporaryDirectory(prefix="tests-")
        self.path = os.path.join(self._folder.name, "pulsars")
        host = self._host

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                question = json.loads(self.rfile.readline())
                self.wfile.write(json.dumps(_answer(host, **question)).encode())

        self._server = socketserver.ThreadingUnixStreamServer(self.path, Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the answers, and what was started for them."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._host.close()
        self._folder.cleanup()


def _answer(host: Host, kind: str, wait: bool) -> dict[str, object]:
    host.begin(kind)
    if not wait:
        return {}
    try:
        return {"running": asdict(host.get(kind))}
    except UnavailableError as missing:
        return {"missing": str(missing)}
    except Exception as error:  # noqa: BLE001 - told to whoever asked
        return {"failed": f"{type(error).__name__}: {error}"}


class Asking:
    """Asks the ``Host`` of another process."""

    def __init__(self, path: str) -> None:
        self._path = path

    def begin(self, kind: str) -> None:
        self._ask(kind, wait=False)

    def get(self, kind: str) -> ApachePulsar:
        answer = self._ask(kind, wait=True)
        if "missing" in answer:
            raise UnavailableError(answer["missing"])
        if "failed" in answer:
            raise RuntimeError(answer["failed"])
        return ApachePulsar(**answer["running"])

    def _ask(self, kind: str, *, wait: bool) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(self._path)
            asking.sendall(json.dumps({"kind": kind, "wait": wait}).encode() + b"\n")
            with asking.makefile("rb") as answer:
                said: dict[str, Any] = json.loads(answer.read())
                return said
