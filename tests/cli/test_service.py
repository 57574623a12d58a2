# SPDX-License-Identifier: Apache-2.0
"""A broker as a service: it tells the service manager when it is ready, and the files of conf/service start it."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from configparser import RawConfigParser
from pathlib import Path
from typing import Final

import click
import pytest

from broker_core.cli.main import cli
from broker_core.cli.service_manager import tell_ready
from tests.cli.conftest import command_line, environment

REPOSITORY: Final = Path(__file__).resolve().parents[2]
SERVICE: Final = REPOSITORY / "conf" / "service"


def test_the_service_manager_hears_when_both_ports_are_open(tmp_path: Path) -> None:
    """As systemd does with Type=notify: a datagram, once clients can connect."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        command = command_line("serve", "--data-dir", str(tmp_path / "data"), "--port", "0", "--http-port", "0")
        env = environment(tmp_path, NOTIFY_SOCKET=str(tmp_path / "notify"))
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env) as process:
            try:
                assert manager.recv(100) == b"READY=1"
                assert process.stdout is not None
                service_url = process.stdout.readline().split()[1].decode()
                socket.create_connection(("127.0.0.1", int(service_url.rpartition(":")[2])), 5).close()
            finally:
                process.kill()


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no such sockets here")
def test_a_socket_without_a_file_is_one_too() -> None:
    """Linux has names that begin with a zero byte, written as @."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        try:
            manager.bind("\0pulsarish-test-of-a-service")
        except OSError:
            pytest.skip("the system has no such names")
        manager.settimeout(60)
        tell_ready({"NOTIFY_SOCKET": "@pulsarish-test-of-a-service"})
        assert manager.recv(100) == b"READY=1"


def test_nobody_is_told_where_nobody_waits(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """And a manager that is gone does not keep the broker from serving."""
    tell_ready({})
    assert capsys.readouterr().err == ""
    tell_ready({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    assert "was not told that the broker is ready" in capsys.readouterr().err


def _accepts(words: list[str]) -> None:
    """The command line of ``pulsarish`` is one that click takes."""
    parent = click.Context(cli, **cli.context_settings)  # or the command would know -h no more: it keeps its options
    command = cli.get_command(parent, words[0])
    assert command is not None
    command.make_context(words[0], words[1:], parent=parent)


def test_the_unit_starts_a_broker() -> None:
    """Its command is one of ours, on the directory that systemd makes, and systemd waits for the notice."""
    unit = RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign] # names of systemd have capitals
    unit.read_string((SERVICE / "pulsarish.service").read_text(encoding="utf-8"))
    service = unit["Service"]
    program, *words = service["ExecStart"].split()
    assert program.endswith("/bin/pulsarish")
    assert f"%S/{service['StateDirectory']}" in words
    assert (service["Type"], service["StateDirectoryMode"], service["UMask"]) == ("notify", "0700", "0077")
    _accepts(words)


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """Each of its lines is known to systemd, where that is installed."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd is not installed")
    unit = tmp_path / "pulsarish.service"
    text = (SERVICE / "pulsarish.service").read_text(encoding="utf-8")
    unit.write_text(text.replace("/opt/pulsarish/bin/pulsarish", "/bin/true"), encoding="utf-8")
    done = subprocess.run([analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if unit.name in line]) == (0, [])


def test_the_image_starts_a_broker() -> None:
    """Its commands are ours, and no port and no file of it are another user's."""
    text = (SERVICE / "Containerfile").read_text(encoding="utf-8")
    (start,) = re.findall(r'^CMD \["(\w+)"\]', text, re.MULTILINE)
    (health,) = re.findall(r"^HEALTHCHECK CMD (.*)$", text, re.MULTILINE)
    _accepts([start])
    assert health == '["pulsarish", "status"]'
    assert re.search(r"^USER pulsarish$", text, re.MULTILINE)
