# SPDX-License-Identifier: Apache-2.0
"""A broker for the commands to talk to, and ways to run the commands."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import NamedTuple, Protocol
from unittest.mock import patch

import pytest

from broker_core.cli.main import main
from broker_core.testing.running_broker import RunningBroker


class Done(NamedTuple):
    """What a finished command left."""

    returncode: int
    stdout: bytes
    stderr: bytes


class Pulsarish(Protocol):
    """Runs ``pulsarish`` with these arguments, with pipes for a terminal."""

    def __call__(self, *arguments: str, stdin: bytes = b"", **env: str) -> Done: ...


def command_line(*arguments: str) -> list[str]:
    """The command as the console script runs it."""
    return [sys.executable, "-m", "broker_core", *arguments]


def environment(home: Path, **more: str) -> dict[str, str]:
    """An environment without settings of the user who runs the tests."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PULSARISH_", "XDG_", "NO_COLOR"))
    }
    return {**kept, "HOME": str(home), **more}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One broker for the tests of a file; they use topics of their own."""
    with RunningBroker(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


@pytest.fixture
def pulsarish(broker: RunningBroker, tmp_path: Path) -> Pulsarish:
    """The command, pointed at ``broker`` by its data directory."""
    return runner(tmp_path, PULSARISH_DATA_DIR=str(broker.data_dir))


@pytest.fixture
def lonely(tmp_path: Path) -> Pulsarish:
    """The command in an empty home, where no broker runs."""
    return runner(tmp_path)


def runner(home: Path, **base: str) -> Pulsarish:
    """Run in ``home`` with ``base`` in the environment: the whole command, in this process because that is quicker."""

    def run(*arguments: str, stdin: bytes = b"", **env: str) -> Done:
        streams = [io.TextIOWrapper(io.BytesIO(content), encoding="utf-8") for content in (stdin, b"", b"")]
        with (
            patch.dict(os.environ, environment(home, **base, **env), clear=True),
            patch.multiple(sys, stdin=streams[0], stdout=streams[1], stderr=streams[2]),
            contextlib.chdir(home),
        ):
            code = main(arguments)
        return Done(code, _written(streams[1]), _written(streams[2]))

    return run


def _written(stream: io.TextIOWrapper) -> bytes:
    stream.flush()
    stream.seek(0)
    return bytes(stream.buffer.read())


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of the test's own."""
    name: str = request.node.name
    return "".join(c if c.isalnum() else "-" for c in name)


@contextlib.contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """An HTTP server that answers everything alike; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, code: object = "-", size: object = "-") -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
