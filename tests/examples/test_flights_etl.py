# SPDX-License-Identifier: Apache-2.0
"""The flights example as a newcomer runs it, and with its kills. It checks itself; here its ends are looked at."""

from __future__ import annotations

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
    done = run_example(tmp_path)
    assert "Hawaiian Airlines Inc." in done.stdout
    assert "check" not in done.stdout
    assert "336,776 cleaned rows equal" in done.stderr
    assert "5,432 daily windows equal" in done.stderr
    assert "check: passed; 0 daily rows had been delivered more than once" in done.stderr
    assert "pulsarish consume" in done.stderr
    assert len(list(tmp_path.glob("*/daily.png"))) == 1


def test_the_job_survives_a_kill_of_the_driver_and_of_the_broker(tmp_path: Path) -> None:
    """Both are killed in the middle of a micro-batch; the same check passes."""
    done = run_example(tmp_path, "--chaos")
    assert "SIGKILL to the Spark driver inside micro-batch" in done.stderr
    assert "SIGKILL to the broker inside micro-batch" in done.stderr
    assert "check: passed" in done.stderr
