# SPDX-License-Identifier: Apache-2.0
"""Secrets show nowhere: a real Spark says all it can, and everything that it has said and kept is searched."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.apache_pulsar.secured import BASIC_PASSWORD, BASIC_USER, Secured, token
from tests.client.oauth2_issuer import running_issuer

REPOSITORY: Final = Path(__file__).resolve().parents[2]
CLIENT_SECRET: Final = "the-secret-of-the-client"

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.pulsar]


class Given(NamedTuple):
    """How a job authenticates, and what of that must show nowhere."""

    options: Mapping[str, str]
    secrets: tuple[str, ...]


@contextmanager
def given(way: str, role: str, folder: Path) -> Iterator[Given]:
    """``way`` of saying who ``role`` is."""
    secret = token(role)
    match way:
        case "token":
            yield Given({"token": secret}, (secret,))
        case "params":
            yield Given({"authPluginClassName": "token", "authParams": f"token:{secret}"}, (secret,))
        case "basic":
            params = json.dumps({"userId": BASIC_USER, "password": BASIC_PASSWORD})
            yield Given({"authPluginClassName": "basic", "authParams": params}, (BASIC_PASSWORD,))
        case _:
            with running_issuer() as issuer:
                issuer.make = lambda: {"access_token": secret}
                params = json.dumps(
                    {"issuerUrl": issuer.url, "clientId": "spark", "clientSecret": CLIENT_SECRET, "audience": "pulsar"}
                )
                yield Given({"authPluginClassName": "oauth2", "authParams": params}, (secret, CLIENT_SECRET))


@pytest.mark.parametrize("way", ["token", "params", "basic", "oauth2"])
def test_a_secret_is_in_no_log_no_plan_no_checkpoint_and_no_error(secured: Secured, tmp_path: Path, way: str) -> None:
    """The event log, all log lines down to DEBUG, explained plans, progress, errors, and all files that are kept."""
    role = BASIC_USER if way == "basic" else f"role-{uuid.uuid4().hex[:8]}"
    secured.grant(role, "produce", "consume")
    (tmp_path / "events").mkdir()
    topic, forbidden = f"secret-{uuid.uuid4().hex[:8]}", "persistent://pulsar/system/not-for-you"
    with given(way, role, tmp_path) as job:
        options = {"service.url": secured.service_url, "tlsTrustCertsFilePath": secured.ca, **job.options}
        command = [sys.executable, "-m", "tests.spark.secret_job", str(tmp_path), topic, forbidden]
        done = subprocess.run(
            command, input=json.dumps(options), capture_output=True, text=True, cwd=REPOSITORY, timeout=600, check=False
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("refused: ") == 4
    kept = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert any(b"SparkListenerSQLExecutionStart" in content for content in kept.values())
    assert " DEBUG " in done.stderr
    assert any(name.startswith("checkpoint/offsets/") for name in kept)
    said = {"stdout": done.stdout.encode(), "stderr": done.stderr.encode(), **kept}
    assert {"stdout", "stderr"} <= {
        place.partition(":")[0] for place in found_in(said, (topic,))
    }  # what is there is found
    assert found_in(said, job.secrets) == []


def found_in(said: Mapping[str, bytes], secrets: tuple[str, ...]) -> list[str]:
    """Where one of ``secrets`` is, as it is or in base64, with what stands around it."""
    forms = [form for secret in secrets for form in (secret.encode(), base64.b64encode(secret.encode()).rstrip(b"="))]
    return [
        f"{name}: {content[max(0, at - 150) : at + 20]!r}"
        for name, content in said.items()
        for form in forms
        if (at := content.find(form)) >= 0
    ]
