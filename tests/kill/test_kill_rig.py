# SPDX-License-Identifier: Apache-2.0
"""A short run of the kill rig, and the parts of it that could hide a loss."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from broker_core.testing.history import Message
from tests.kill.shared_state import Phase, SharedState
from tests.kill.workload import decode, encode

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nothing_confirmed_is_lost_over_twenty_kills(tmp_path: Path) -> None:
    """Reliability fault class 1, in small: `make kill` does the same with 500 kills."""
    summary = tmp_path / "summary.json"
    command = [sys.executable, "-m", "tests.kill.rig", "--kills", "20", "--folder", str(tmp_path / "rig")]
    done = subprocess.run(
        [*command, "--json", str(summary)], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(summary.read_text())
    assert found["kills"] == 20
    assert found["verdict"]["receipts"] > 0
    assert found["verdict"]["acked"] > 0


def test_the_content_of_a_message_shows_any_damage() -> None:
    """One changed, missing or additional byte anywhere is seen, in small messages and in large ones."""
    for number in (0, 3, 5, 700):
        content = encode(Message("p", number))
        assert decode(content) == Message("p", number)
        for damaged in (content[:-1], content + b"x", content[:-1] + b"\x00", b"x" + content[1:]):
            assert decode(damaged) != Message("p", number)


def test_shared_state_is_seen_by_another_mapping_of_the_file(tmp_path: Path) -> None:
    """As the load processes see it."""
    rig, load = SharedState(tmp_path / "state"), SharedState(tmp_path / "state")
    rig.incarnation += 1
    rig.phase = Phase.DRAIN_AND_STOP
    load.add_progress(3, 7)
    assert (load.incarnation, load.phase) == (1, Phase.DRAIN_AND_STOP)
    assert (rig.progress(3), rig.total_progress()) == (7, 7)
