# SPDX-License-Identifier: Apache-2.0
"""The example of a cluster with TLS and a token, at a real Apache Pulsar."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.apache_pulsar.secured import Secured
from tests.examples.notebooks import cluster_variables

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.spark
@pytest.mark.pulsar
def test_all_rows_come_back_and_the_token_is_not_printed(secured: Secured, tmp_path: Path) -> None:
    """As a user runs it, with a role that may produce and consume."""
    variables = cluster_variables(secured, tmp_path)
    command = [sys.executable, "examples/secure_cluster.py"]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=os.environ | variables, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "check: passed, 1000 of 1000 rows came back"
    assert (tmp_path / "token").read_text() not in done.stdout + done.stderr


def test_without_its_variables_it_says_which_are_missing() -> None:
    """Before a Spark is started."""
    command = [sys.executable, "examples/secure_cluster.py"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PULSAR_")}
    environment = kept | {"PULSAR_URL": "pulsar://127.0.0.1:1", "PULSAR_TOPIC": "t"}
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("not set in the environment: PULSAR_CA, PULSAR_TOKEN_FILE;")
    assert "Traceback" not in done.stderr
