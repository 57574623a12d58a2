# SPDX-License-Identifier: Apache-2.0
"""The command line and a broker of ours with TLS: starting one, and finding it by its data directory."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from broker_core.testing.running_broker import RunningBroker
from tests.cli.conftest import command_line, environment, runner
from tests.server.certificates import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def settings_of(authority: Authority) -> dict[str, object]:
    pair = authority.issue("broker", "127.0.0.1")
    return {
        "brokerServicePortTls": 0,
        "webServicePortTls": 0,
        "tlsCertificateFilePath": pair.certificate,
        "tlsKeyFilePath": pair.key,
    }


def test_serve_takes_ports_with_tls(authority: Authority, tmp_path: Path) -> None:
    """Its line tells all addresses; without plain ports those with TLS stand in their place."""
    assignments = [word for name, value in settings_of(authority).items() for word in ("--set", f"{name}={value}")]
    for ports, schemes in (("0", ["pulsar", "http", "pulsar+ssl", "https"]), ("-1", ["pulsar+ssl", "https"])):
        command = command_line("serve", "--data-dir", str(tmp_path / "data"), "--port", ports, "--http-port", ports)
        with subprocess.Popen(
            [*command, *assignments], stdout=subprocess.PIPE, text=True, env=environment(tmp_path)
        ) as process:
            assert process.stdout is not None
            ready, *urls = process.stdout.readline().split()
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        assert ready == "ready"
        assert [url.partition("://")[0] for url in urls] == schemes


def test_a_taken_port_is_told(authority: Authority, tmp_path: Path) -> None:
    """With the process that has it, and the settings that choose another."""
    with RunningBroker(tmp_path / "other") as other:
        settings = settings_of(authority) | {"brokerServicePortTls": other.port}
        assignments = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        done = runner(tmp_path)("serve", "--data-dir", "data", "--port", "0", "--http-port", "0", *assignments)
        assert done.returncode == 1
        assert f"port {other.port} is taken".encode() in done.stderr
        assert f"process {other.pid} (".encode() in done.stderr or sys.platform != "linux"
        assert b"or of those with TLS by brokerServicePortTls" in done.stderr


def test_commands_find_a_broker_without_plain_ports(authority: Authority, tmp_path: Path) -> None:
    """By its data directory; whom to believe is said by an option or by the environment."""
    with RunningBroker(tmp_path / "data", settings_of(authority), port=-1, http_port=-1) as broker:
        where = ["--data-dir", str(broker.data_dir)]
        trust = ["--tls-trust-certs-file-path", authority.path]
        plain = runner(tmp_path)
        trusting = runner(tmp_path, PULSARISH_CLIENT_TLS_TRUST_CERTS_FILE_PATH=authority.path)
        assert plain("produce", "t", "-m", "hello", *where, *trust).returncode == 0
        assert b"hello" in trusting("consume", "t", "--exit", *where).stdout
        assert b"t" in trusting("topic", "list", *where).stdout
        told = json.loads(trusting("status", *where).stdout)
        refused = plain("topic", "list", *where)
    assert (told["serviceUrl"], told["httpUrl"], told["health"]) == (broker.service_url, broker.http_url, "ok")
    assert refused.returncode == 4
    assert b"is not trusted" in refused.stderr


def test_the_example_of_the_page_runs(tmp_path: Path) -> None:
    """docs/security.md, but with free ports."""
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text("utf-8")
    (made,) = re.findall(r"^openssl .*$", page, re.MULTILINE)
    (settings,) = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    subprocess.run(shlex.split(made), cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "tls.toml").write_text(settings.replace("6651", "0").replace("8443", "0"))
    command = command_line("serve", "--port", "-1", "--http-port", "-1", "--config", "tls.toml")
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tmp_path, env=environment(tmp_path)) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"ready pulsar+ssl://")
        done = runner(tmp_path)("produce", "hello", "-m", "hi", "--tls-trust-certs-file-path", "broker.pem")
        process.send_signal(signal.SIGTERM)
    assert done.returncode == 0, done.stderr
