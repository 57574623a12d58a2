# SPDX-License-Identifier: Apache-2.0
"""A short run of the kill rig, and the parts of it that could hide a loss."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kill.history import Message
from tests.kill.load import ROLES
from tests.kill.shared_state import Phase, SharedState
from tests.kill.workload import decode, encode

REPOSITORY = Path(__file__).resolve().parents[2]


def run_rig(folder: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    """One run to its end: exit code, summary, and everything it said."""
    command = [sys.executable, "-m", "tests.kill.rig", *options]
    summary = folder / "summary.json"
    done = subprocess.run(
        [*command, "--json", str(summary)], cwd=REPOSITORY, env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    talk = done.stdout + done.stderr
    assert summary.exists(), talk
    return done.returncode, json.loads(summary.read_text()), talk


@pytest.mark.slow
@pytest.mark.apart
def test_nothing_confirmed_is_lost_over_twenty_kills(tmp_path: Path) -> None:
    """`make kill` does the same with 500 kills."""
    code, found, talk = run_rig(tmp_path, "--kills", "20")
    assert code == 0, talk
    assert found["kills"] == 20
    assert found["verdict"]["receipts"] > 0
    assert found["verdict"]["acked"] > 0
    assert not list(tmp_path.glob("kill-rig-*"))


@pytest.mark.slow
@pytest.mark.apart
def test_a_broker_that_confirms_before_it_writes_is_found_out(tmp_path: Path) -> None:
    """The silence of a rig that was never seen to complain cannot be trusted."""
    options = ("--kills", "8", "--seed", "7", "--liar", "tests.kill.liar", "--no-calm")
    code, found, talk = run_rig(tmp_path, *options)
    assert code == 1, talk
    assert found["verdict"]["broken"].get("R1", 0) > 0, talk
    [folder] = tmp_path.glob("kill-rig-*")
    assert f"everything is kept in {folder}\n" in talk
    assert f"once more: make kill KILL_ARGS='{' '.join(options)}'\n" in talk
    assert {"data", "broker.log", *(f"{role}.json" for role in ROLES)} <= {each.name for each in folder.iterdir()}


@pytest.mark.slow
@pytest.mark.apart
def test_every_broken_promise_about_delivery_is_found_out(tmp_path: Path) -> None:
    """Each rule about delivery is broken once on purpose, and the rig names it."""
    code, found, talk = run_rig(tmp_path, "--kills", "8", "--liar", "tests.kill.delivery_liar")
    assert code == 1, talk
    assert {"K1", "K2", "D1", "D2", "U1", "U2", "L1", "L2", "L3", "L4"} <= found["verdict"]["broken"].keys(), talk
    assert any("large: R3" in text for text in found["verdict"]["violations"]), talk


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
