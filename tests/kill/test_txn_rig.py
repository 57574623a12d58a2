# SPDX-License-Identifier: Apache-2.0
"""A short run of the transaction rig, and bugs of the broker that it finds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kill.txn_late import CASES
from tests.kill.txn_liar import LIES

REPOSITORY = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.apart]


def run_rig(folder: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    """One run to its end: exit code, summary, and everything it said."""
    summary = folder / "summary.json"
    command = [sys.executable, "-m", "tests.kill.txn_rig", "--seed", "1", "--json", str(summary), *options]
    done = subprocess.run(
        [*command, "--folder", str(folder / "run")], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    talk = done.stdout + done.stderr
    assert summary.exists(), talk
    return done.returncode, json.loads(summary.read_text()), talk


def test_transactions_under_kills_have_no_anomaly(tmp_path: Path) -> None:
    """`make txn-kills` does the same with 10,000 transactions."""
    code, found, talk = run_rig(tmp_path, "--transactions", "300", "--kills", "3")
    assert code == 0, talk
    assert found["kills"] >= 3
    assert sum(found["verdict"]["transactions"].values()) >= 300
    assert found["verdict"]["acks"] > 0
    assert found["late"].keys() == CASES.keys()


@pytest.mark.parametrize(
    ("name", "transactions"), [("topics-torn", 200), ("late-accepted", 200), ("chunks-shown", 1200)]
)
def test_a_bug_of_the_broker_is_found_out(tmp_path: Path, name: str, transactions: int) -> None:
    """`--lie` has others; a rig that was never seen to complain cannot be trusted. One of some 150 transactions writes
    chunks and is aborted."""
    code, _, talk = run_rig(tmp_path, "--transactions", str(transactions), "--kills", "2", "--lie", name)
    assert code == 1, talk
    assert LIES[name][1] in talk
