# SPDX-License-Identifier: Apache-2.0
"""``pulsarish serve``: the line that programs wait for, the settings it takes, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker_core.base.runtime import RUNTIME_FILE
from broker_core.cli.exits import Exit
from broker_core.client import Client
from broker_core.server.process import EXIT_DISK_FAILED
from broker_core.testing.running_broker import RunningBroker
from tests.cli.conftest import Pulsarish, command_line, environment

ANY_PORTS = ("--port", "0", "--http-port", "0")


@contextmanager
def _serving(home: Path, *arguments: str, **env: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A started broker and its first line."""
    with subprocess.Popen(
        command_line("serve", *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(home, **env)
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().decode()
        finally:
            process.kill()


def _rest(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    return process.communicate(timeout=120)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_line_when_ready_and_exit_code_0_when_stopped(tmp_path: Path, number: signal.Signals) -> None:
    """The interface that programs rely on: exactly one line on stdout, both ports open, SIGTERM ends it with 0."""
    with _serving(tmp_path, "--data-dir", str(tmp_path / "d"), *ANY_PORTS) as (process, ready):
        found = re.fullmatch(r"ready pulsar://127\.0\.0\.1:(\d+) http://127\.0\.0\.1:(\d+)\n", ready)
        assert found
        for port in found.groups():
            socket.create_connection(("127.0.0.1", int(port)), 5).close()
        info = json.loads((tmp_path / "d" / RUNTIME_FILE).read_bytes())
        assert (info["pid"], ready.split()[1:]) == (process.pid, [info["service_url"], info["http_url"]])
        process.send_signal(number)
        out, log = _rest(process)
        assert (out, process.returncode) == (b"", 0)
        assert [line.split()[2:4] for line in log.splitlines()] == [[b"broker", b"started"]] + [
            [b"broker", word] for word in (b"stops", b"stopped")
        ]
    assert not (tmp_path / "d" / RUNTIME_FILE).exists()


def test_the_commands_find_the_broker_of_the_default_directory(tmp_path: Path, lonely: Pulsarish) -> None:
    """No option anywhere: serve and the others agree on the directory in the user's home."""
    with _serving(tmp_path, *ANY_PORTS):
        assert (tmp_path / ".local" / "share" / "pulsarish" / RUNTIME_FILE).exists()
        assert lonely("produce", "hello", "-m", "hi").returncode == 0
        assert lonely("consume", "hello", "--exit", "-o", "raw").stdout == b"hi\n"


def test_a_setting_reaches_the_broker_whatever_its_source(tmp_path: Path, lonely: Pulsarish) -> None:
    """--set, a file and the environment: a message above maxMessageSize is refused in each case."""
    file = tmp_path / "broker.toml"
    file.write_text("maxMessageSize = 2048\n")
    sources: list[tuple[tuple[str, ...], dict[str, str]]] = [
        (("--set", "maxMessageSize=2048"), {}),
        (("--config", str(file)), {}),
        ((), {"PULSARISH_MAX_MESSAGE_SIZE": "2048"}),
    ]
    for arguments, env in sources:
        with _serving(tmp_path, *arguments, *ANY_PORTS, **env) as (_, ready):
            done = lonely("produce", "big", "-m", "x" * 3000, "--url", ready.split()[1])
            assert (done.returncode, b"maxMessageSize of 2048" in done.stderr) == (2, True), arguments


def test_a_wrong_setting_stops_the_start(lonely: Pulsarish) -> None:
    """Exit code 2, with the nearest name; nothing on stdout."""
    done = lonely("serve", "--set", "maxMesageSize=1", *ANY_PORTS)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().splitlines() == [
        'error: setting "maxMesageSize" is unknown (from --set)',
        'did you mean "maxMessageSize"?',
    ]


def test_two_brokers_never_share_a_directory(tmp_path: Path, lonely: Pulsarish) -> None:
    """The second one names the process that holds the directory."""
    with _serving(tmp_path, *ANY_PORTS) as (process, _):
        done = lonely("serve", *ANY_PORTS)
        assert (done.returncode, done.stdout) == (1, b"")
        assert str(process.pid).encode() in done.stderr


@pytest.mark.parametrize("which", [("--port", "--http-port"), ("--http-port", "--port")])
def test_a_port_that_is_taken_is_named_with_the_process_that_has_it(
    tmp_path: Path, lonely: Pulsarish, which: tuple[str, str]
) -> None:
    """Exit code 1 and what to do, no trace of the code; before a data directory is made."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = lonely("serve", which[0], str(port), which[1], "0", "--data-dir", str(tmp_path / "data"))
    assert (done.returncode, done.stdout) == (1, b"")
    assert not (tmp_path / "data").exists()
    if sys.platform == "linux":
        assert f"process {os.getpid()} (".encode() in done.stderr
    assert str(port).encode() in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"--port 0" in done.stderr


def test_one_port_cannot_be_both(lonely: Pulsarish) -> None:
    """Exit code 2: nothing says ready for what nobody listens to."""
    done = lonely("serve", "--port", "7777", "--http-port", "7777")
    assert (done.returncode, done.stdout, b"both 7777" in done.stderr) == (2, b"", True)


@pytest.mark.parametrize(
    ("spoil", "code", "words"),
    [
        ("rm catalogue*", 7, "catalogue is missing"),
        ("truncate -s 5000 catalogue*", 7, "catalogue is damaged"),
        ("for f in catalogue*; do head -c 20000 /dev/zero > $f; done", 7, "catalogue is damaged"),
        ("rm FORMAT", 7, "its FORMAT file is damaged or missing"),
        (": > FORMAT", 7, "its FORMAT file is damaged or missing"),
        ("sed -i s/4/1/ FORMAT", 7, "has data of format 1, this broker reads formats 2 to 4"),
        ("mkdir x; mv * x 2>/dev/null", 7, "is no data directory of this broker: it has x"),
    ],
)
def test_a_directory_that_cannot_be_used_is_left_alone(
    data_dir: Path, tmp_path: Path, lonely: Pulsarish, spoil: str, code: int, words: str
) -> None:
    """Serve says what is wrong in one go and changes nothing; doctor, where it can look, says that none can start."""
    subprocess.run(["bash", "-c", spoil], cwd=data_dir, check=False)
    before = {path.name: path.read_bytes() for path in data_dir.iterdir() if path.is_file() and path.name != "LOCK"}
    with _serving(tmp_path, "--data-dir", str(data_dir), *ANY_PORTS) as (process, ready):
        assert ready == ""
        said = _rest(process)[1].decode()
        assert (process.returncode, words in said.replace("\n", ": ")) == (code, True), said
    assert {path.name: path.read_bytes() for path in data_dir.iterdir() if path.name in before} == before
    if (data_dir / "FORMAT").exists():
        done = lonely("doctor", "--data-dir", str(data_dir))
        assert b"the broker does not start on it" in done.stderr or words.encode() in done.stderr


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Left by a broker that had a topic and stopped in good order."""
    directory = tmp_path / "d"
    with RunningBroker(directory) as broker:
        with Client(broker.service_url) as client, client.create_producer("t") as producer:
            producer.send("x")
        broker.stop()
    return directory


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path, lonely: Pulsarish) -> None:
    """Exit code 1, and which part of the path is in the way."""
    (tmp_path / "file").touch()
    done = lonely("serve", "--data-dir", "file/below", *ANY_PORTS)
    assert (done.returncode, b"file/below cannot be made" in done.stderr) == (1, True)


def test_it_stops_by_itself_when_nobody_uses_it(tmp_path: Path) -> None:
    """--idle-stop in seconds; exit code 0."""
    with _serving(tmp_path, *ANY_PORTS, "--idle-stop", "1") as (process, ready):
        assert ready
        assert process.wait(120) == 0


def test_the_exit_code_for_a_failed_disk_is_the_brokers() -> None:
    """The broker process ends itself; the documented number is the one it uses."""
    assert int(Exit.DISK_FAILED) == EXIT_DISK_FAILED
