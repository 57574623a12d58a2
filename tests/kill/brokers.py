# SPDX-License-Identifier: Apache-2.0
"""One broker after the other on the same data directory and ports, each killed or stopped by the rig.

Most start out of the zygote, which saves the imports; a cold start runs the ``pulsarish`` command itself.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from broker_core.testing.running_broker import HeldPort

PULSARISH: Final = str(Path(sys.executable).with_name("pulsarish"))
"""The command line tool of this environment."""

_READY_TIMEOUT_S: Final = 120.0
_END_TIMEOUT_S: Final = 120.0


class BrokerSeries:
    """``start``, ``wait_ready``, then ``kill`` or ``stop``; and again, on ports that are held for them."""

    def __init__(self, data_dir: Path, settings: dict[str, str], liars: tuple[str, ...] = ()) -> None:
        """``liars``: modules that make the brokers misbehave, cold starts excepted."""
        self._data_dir = data_dir
        self._options = [word for item in settings.items() for word in ("--set", "=".join(item))]
        self._log = data_dir.with_name("broker.log").open("ab")
        self._zygote = self._spawn([sys.executable, "-m", "tests.kill.zygote", *liars], stdin=subprocess.PIPE)
        self._cold: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._pidfd = -1
        self._ports = HeldPort(), HeldPort()
        self.service_url = f"pulsar://127.0.0.1:{self._ports[0].number}"
        self.http_url = f"http://127.0.0.1:{self._ports[1].number}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pidfd >= 0:
            self.kill()
        self._zygote.kill()
        self._zygote.wait()
        for each in self._ports:
            each.release()
        self._log.close()

    def start(self, *, cold: bool = False) -> None:
        """Start the next broker; does not wait."""
        port, http_port = (int(url.rpartition(":")[2]) for url in (self.service_url, self.http_url))
        addresses = ["--port", str(port), "--http-port", str(http_port)]
        command = [PULSARISH, "serve", "--open", "--data-dir", str(self._data_dir), *addresses, *self._options]
        if cold:
            self._cold = self._spawn(command)
            self._pid = self._cold.pid
        else:
            assert self._zygote.stdin is not None
            self._zygote.stdin.write(json.dumps(command[1:]).encode() + b"\n")
            self._zygote.stdin.flush()
            self._pid = int(self._read_line("forked").split()[1])
        self._pidfd = os.pidfd_open(self._pid)

    def wait_ready(self) -> None:
        """Wait for the ready line."""
        _, self.service_url, self.http_url = self._read_line("ready").split()

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM; returns when the process is gone."""
        self._end(signal.SIGTERM)

    def _spawn(self, command: list[str], stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=self._log, bufsize=0)

    def _output(self) -> IO[bytes]:
        output = (self._cold or self._zygote).stdout
        assert output is not None
        return output

    def _read_line(self, word: str) -> str:
        """The next line that starts with ``word``; what an early killed broker has left before it is skipped."""
        output, deadline = self._output(), time.monotonic() + _READY_TIMEOUT_S
        while True:
            readable, _, _ = select.select([output], [], [], max(0.0, deadline - time.monotonic()))
            line = output.readline().decode() if readable else ""
            if not line:
                raise RuntimeError(f"no {word!r} line from the broker, see {self._log.name}")
            if line.startswith(word):
                return line

    def _end(self, signal_number: signal.Signals) -> None:
        signal.pidfd_send_signal(self._pidfd, signal_number)
        gone, _, _ = select.select([self._pidfd], [], [], _END_TIMEOUT_S)
        if not gone:
            raise RuntimeError(f"broker {self._pid} did not end within {_END_TIMEOUT_S:.0f} s of {signal_number!r}")
        os.close(self._pidfd)
        self._pidfd = -1
        if self._cold is not None:
            assert self._cold.stdout is not None
            self._cold.wait()
            self._cold.stdout.close()
            self._cold = None


def look_at_log_and_disk(folder: Path) -> list[str]:
    """Failures that the log of a series' brokers, and ``pulsarish doctor`` on what they have left, tell of. ``folder``:
    where the log and the directory ``data`` are."""
    failures = []
    log = (folder / "broker.log").read_text(errors="replace")
    if "Traceback" in log:
        failures.append("the broker failed inside: " + log[log.index("Traceback") :][:2000])
    command = [PULSARISH, "doctor", "--data-dir", str(folder / "data")]
    doctor = subprocess.run(command, capture_output=True, text=True, check=False)
    if doctor.returncode:
        failures.append(f"pulsarish doctor: {doctor.stdout}{doctor.stderr}")
    return failures
