# SPDX-License-Identifier: Apache-2.0
"""``pulsarish status``, ``stop`` and ``logs`` of the broker that runs on a data directory."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

from broker_core.base.runtime import EMBEDDED_LOG_FILE
from broker_core.testing.running_broker import RunningBroker
from pulsarish_spark.connecting.connection import embedded_broker
from tests.cli.conftest import Pulsarish, command_line, environment

WAIT_S = 120


def test_the_broker_that_started_itself_is_shown_and_stopped_and_its_log_read(
    lonely: Pulsarish, tmp_path: Path
) -> None:
    """Process, addresses and health while it runs; exit code 5 before and after."""
    where = ("--data-dir", str(tmp_path / "d"))
    assert lonely("status", *where).returncode == 5
    assert lonely("stop", *where).returncode == 5
    info = embedded_broker(tmp_path / "d")
    shown = json.loads(lonely("status", *where).stdout)
    assert (shown["running"], shown["pid"], shown["health"]) == (True, info.pid, "ok")
    assert (shown["serviceUrl"], shown["httpUrl"]) == (info.service_url, info.http_url)
    stopped = lonely("stop", *where)
    assert (stopped.returncode, str(info.pid).encode() in stopped.stderr) == (0, True)
    after = lonely("status", *where)
    assert (after.returncode, json.loads(after.stdout)["running"]) == (5, False)
    log = lonely("logs", *where).stdout
    assert b"broker started" in log
    assert b"broker stop" in log.splitlines()[-1]  # it has let go of the directory, and is about to say so
    assert lonely("logs", *where, "-n", "1").stdout.count(b"\n") == 1


def test_a_log_is_followed_into_its_next_file(tmp_path: Path, interruptible: None) -> None:
    """The broker begins another file when one is full; lines come as they are written."""
    log = tmp_path / EMBEDDED_LOG_FILE
    log.write_text("one\ntwo\n")
    command = command_line("logs", "--data-dir", str(tmp_path), "-n", "1", "--follow")
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(tmp_path)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"two\n"
        with log.open("a") as file:
            file.write("three\x1b[2J\n")
        assert process.stdout.readline() == b"three\\x1b[2J\n"
        log.rename(tmp_path / "embedded.log.1")
        log.write_text("four\n")
        assert process.stdout.readline() == b"four\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 0


def test_a_broker_without_a_log_in_its_directory_is_told(broker: RunningBroker, pulsarish: Pulsarish) -> None:
    """It writes to its stderr."""
    done = pulsarish("logs")
    assert (done.returncode, b"writes to its stderr" in done.stderr) == (1, True)
