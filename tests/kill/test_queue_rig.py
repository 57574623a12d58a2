# SPDX-License-Identifier: Apache-2.0
"""Two kills of the queue rig: where nothing may be twice, and where the rig must not overlook what is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kill.queue_rig import Outcome

REPOSITORY = Path(__file__).resolve().parents[2]


def run_rig(folder: Path, *options: str) -> tuple[int, list[dict[str, Any]], str]:
    """One run: exit code, outcomes, and everything it said."""
    outcomes = folder / "outcomes.json"
    command = [sys.executable, "-m", "tests.kill.queue_rig", "--only", "pulsarish", "--json", str(outcomes), *options]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    talk = done.stdout + done.stderr
    assert outcomes.exists(), talk
    return done.returncode, json.loads(outcomes.read_text()), talk


@pytest.mark.slow
@pytest.mark.apart
def test_a_claimed_batch_is_processed_once_over_a_kill(tmp_path: Path) -> None:
    """`make queue-kills` kills at every other step too, and on Apache Pulsar."""
    code, (found,), talk = run_rig(tmp_path, "--guarantee", "claim", "--step", "sunk")
    assert code == 0, talk
    assert (found["lost"], found["twice"], found["repeated"]) == (0, 0, 0)
    assert found["rival"] > 0


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        ({}, True),
        ({"lost": 1}, False),
        ({"repeated": 1}, False),
        ({"replays_differ": 1}, False),
        ({"twice": 200}, True),
        ({"twice": 201}, False),
        ({"twice": 1, "guarantee": "claim"}, False),
        ({"twice": 1, "step": "given"}, False),
    ],
)
def test_what_the_table_does_not_promise_fails(change: dict[str, Any], holds: bool) -> None:
    """The rig passes nothing that docs/queues.md excludes."""
    values: dict[str, Any] = dict.fromkeys(("lost", "twice", "repeated", "replays_differ", "rival"), 0)
    values |= {"broker": "pulsarish", "guarantee": "commit", "step": "sunk"}
    assert Outcome(**values | change).holds is holds
