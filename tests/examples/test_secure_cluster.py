# SPDX-License-Identifier: Apache-2.0
"""The example of a cluster with TLS and a token, at a real Apache Pulsar."""

import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.apache_pulsar.secured import Secured, token

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.spark
@pytest.mark.pulsar
def test_all_rows_come_back_and_the_token_is_not_printed(secured: Secured, tmp_path: Path) -> None:
    """As a user runs it, with a role that may produce and consume."""
    role, topic = f"role-{uuid.uuid4().hex[:8]}", f"secure-{uuid.uuid4().hex[:8]}"
    secured.grant(role, "produce", "consume")
    (tmp_path / "token").write_text(token(role))
    command = [
        sys.executable, "examples/secure_cluster.py", secured.service_url, "--ca", secured.ca,
        "--token-file", str(tmp_path / "token"), "--topic", topic,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "1000 of 1000 rows came back\n"), done.stderr
    assert token(role) not in done.stderr
