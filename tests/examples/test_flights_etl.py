# SPDX-License-Identifier: Apache-2.0
"""The flights example as a newcomer runs it, and with its kills. It checks itself; here its ends are looked at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "flights_etl.py"
pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]


def run_example(work: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end; the test fails with its talk if its exit code is not 0."""
    command = [sys.executable, str(EXAMPLE), "--work", str(work), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_the_whole_job_passes_its_own_check(tmp_path: Path) -> None:
    """Data on stdout, talk on stderr, and at the end where the data lies and what to try next."""
    work = tmp_path / "a folder with spaces"
    done = run_example(work)
    assert "Hawaiian Airlines Inc." in done.stdout
    assert "check" not in done.stdout
    assert "336,776 cleaned rows equal" in done.stderr
    assert "5,432 daily windows equal" in done.stderr
    assert "check: passed; 0 daily rows had been delivered more than once" in done.stderr
    assert len(list(work.glob("*/daily.png"))) == 1
    next_command = done.stderr.partition("next, try")[2].splitlines()[0]
    (shown,) = run_as_in_a_shell(f"{next_command} --count 1 --output jsonl").splitlines()
    assert "carrier" in json.loads(shown)["value"]


def run_as_in_a_shell(command: str) -> str:
    """Its output, with the commands of this environment."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(command, shell=True, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_job_survives_a_kill_of_the_driver_and_of_the_broker(tmp_path: Path) -> None:
    """Both are killed in the middle of a micro-batch; the same check passes."""
    done = run_example(tmp_path, "--chaos")
    assert "SIGKILL to the Spark driver inside micro-batch" in done.stderr
    assert "SIGKILL to the broker inside micro-batch" in done.stderr
    assert "check: passed" in done.stderr
