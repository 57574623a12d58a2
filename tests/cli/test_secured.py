# SPDX-License-Identifier: Apache-2.0
"""The command line at a real Apache Pulsar with TLS, authentication and authorization."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from click.testing import CliRunner

from broker_core.cli.main import main
from broker_core.cli.produce import produce
from broker_core.cli.target import SECURITY_OPTIONS
from broker_core.client.credentials.security import SECURITY_SETTINGS
from tests.apache_pulsar.secured import Secured, token


def test_the_options_are_those_of_every_client() -> None:
    """But the token itself, which other users of the machine would see."""
    assert set(SECURITY_OPTIONS) == {setting.name for setting in SECURITY_SETTINGS} - {"token"}
    assert "--token-file" in CliRunner().invoke(produce, ["--help"]).output


@pytest.mark.pulsar
def test_commands_say_who_they_are(
    secured: Secured, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By option or by environment, for messages and for the admin REST; refusals are exit code 4 and one line."""
    role, topic = f"role-{uuid.uuid4().hex[:8]}", f"cli-{uuid.uuid4().hex[:8]}"
    secured.grant(role, "produce", "consume")
    (tmp_path / "token").write_text(token(role))
    where = ["--service-url", secured.service_url, "--http-url", secured.http_url]
    trust = ["--tls-trust-certs-file-path", secured.ca]
    who = ["--token-file", str(tmp_path / "token")]
    assert main(["produce", topic, "-m", "hello", *where, *trust, *who]) == 0
    capsys.readouterr()
    assert main(["topic", "list", *where, *trust, *who]) == 0
    assert topic in capsys.readouterr().out
    monkeypatch.setenv("PULSARISH_CLIENT_TLS_TRUST_CERTS_FILE_PATH", secured.ca)
    monkeypatch.setenv("PULSARISH_CLIENT_TOKEN", token(role))
    assert main(["topic", "list", *where]) == 0
    monkeypatch.setenv("PULSARISH_CLIENT_TOKEN", expired := token(role, lives_s=-60))
    assert main(["produce", topic, "-m", "hello", *where]) == 4
    said = capsys.readouterr().err
    assert "it expired at" in said
    assert expired not in said
