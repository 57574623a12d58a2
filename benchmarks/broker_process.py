# SPDX-License-Identifier: Apache-2.0
"""Our broker as a process of its own, started by the documented command, and its admin REST as far as needed here."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_STOP_TIMEOUT_S: Final = 20.0
_HTTP_TIMEOUT_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class BrokerProcess:
    """A running broker: its process id and the two addresses of its ready line."""

    pid: int
    service_url: str
    http_url: str

    def admin(self, method: str, path: str, body: object = None) -> Any:
        """One admin REST call under ``/admin/v2/``; returns the decoded answer, None if it is empty."""
        request = urllib.request.Request(
            f"{self.http_url}/admin/v2/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=_HTTP_TIMEOUT_S) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a partitioned topic in ``public/default``."""
        self.admin("PUT", f"persistent/public/default/{name}/partitions", partitions)


def serve_command(data_dir: Path, *, port: int = 0, http_port: int = 0, options: Sequence[str] = ()) -> list[str]:
    """The command line of a broker on ``data_dir``."""
    program = str(Path(sys.executable).with_name("pulsarish"))
    addresses = ["--port", str(port), "--http-port", str(http_port)]
    return [program, "serve", "--data-dir", str(data_dir), *addresses, *options]


def parse_ready_line(line: str) -> tuple[str, str]:
    """The two addresses of ``ready pulsar://... http://...``."""
    word, service_url, http_url = line.split()
    if word != "ready":
        raise ValueError(f"expected the broker's ready line, got {line!r}")
    return service_url, http_url


@contextlib.contextmanager
def running_broker(data_dir: Path, *options: str) -> Iterator[BrokerProcess]:
    """Run a broker on ``data_dir`` for the length of the block; its talk goes to ``<data_dir>.log``."""
    with data_dir.with_name(data_dir.name + ".log").open("ab") as log:
        command = serve_command(data_dir, options=options)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the broker ended before it was ready, see {log.name}")
        yield BrokerProcess(process.pid, *parse_ready_line(line))
    finally:
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
