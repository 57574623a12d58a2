# SPDX-License-Identifier: Apache-2.0
"""A few faults of the exactly-once rig, and bugs of the sink that it finds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kill.once_lies import LIES
from tests.kill.once_play import FORMS, PROTOCOLS, VICTIMS, Kind, Outcome, steps_of
from tests.kill.once_points import STEPS
from tests.kill.once_rig import Wanted, table
from tests.kill.once_verification import Seen, compared

REPOSITORY = Path(__file__).resolve().parents[2]


def run_rig(folder: Path, *options: str) -> tuple[int, list[dict[str, Any]], str]:
    """One run on our broker: exit code, outcomes, and everything it said."""
    outcomes = folder / "outcomes.json"
    command = [sys.executable, "-m", "tests.kill.once_rig", "--only", "pulsarish", "--json", str(outcomes)]
    done = subprocess.run(
        [*command, *options, "--seed", "1", "--folder", str(folder / "run")],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    talk = done.stdout + done.stderr
    assert outcomes.exists(), talk
    return done.returncode, json.loads(outcomes.read_text()), talk


@pytest.mark.slow
@pytest.mark.apart
@pytest.mark.parametrize(
    ("protocol", "victim", "step"),
    [
        ("sink", "paused", "written"),
        ("sink", "twice", "committing"),
        ("sink", "broker", "decided"),
        ("queue", "driver", "committing"),
        ("queue", "paused", "planned"),
        ("job", "driver", "committing"),
    ],
)
def test_rows_are_there_once_after_a_fault(tmp_path: Path, protocol: str, victim: str, step: str) -> None:
    """`make exactly-once-kills` has every step, whole Sparks, and Apache Pulsar."""
    kind = ("--protocol", protocol, "--form", "process", "--victim", victim, "--step", step)
    code, (found,), talk = run_rig(tmp_path, *kind)
    assert code == 0, talk
    assert found["faults"] == 1 + (victim == "twice")


@pytest.mark.slow
@pytest.mark.spark
def test_rows_are_there_once_after_the_kill_of_a_whole_spark(tmp_path: Path) -> None:
    """Where some of the batch is committed and some is not."""
    kind = ("--protocol", "sink", "--form", "spark", "--victim", "driver", "--step", "committing")
    code, _, talk = run_rig(tmp_path, *kind)
    assert code == 0, talk


@pytest.mark.slow
@pytest.mark.apart
@pytest.mark.parametrize(
    ("name", "protocol", "victim", "step"),
    [
        ("written-again", "sink", "driver", "committed"),
        ("decision-forgotten", "sink", "driver", "decided"),
        ("committed-at-once", "sink", "worker", "left"),
        ("locks-given-back", "queue", "driver", "planned"),
    ],
)
def test_a_bug_of_source_or_sink_is_found_out(tmp_path: Path, name: str, protocol: str, victim: str, step: str) -> None:
    """`--lie` has others; a rig that was never seen to complain cannot be trusted."""
    kind = ("--protocol", protocol, "--form", "process", "--victim", victim, "--step", step)
    code, (found,), talk = run_rig(tmp_path, *kind, "--lie", name)
    assert code == 1, talk
    assert found["seen"][LIES[name][1]], talk


@pytest.mark.parametrize(
    ("rows", "seen"),
    [
        (["a", "b", "c"], Seen(0, 0, 0)),
        (["a", "b"], Seen(1, 0, 0)),
        (["a", "b", "b", "c", "c", "c"], Seen(0, 3, 0)),
        (["a", "b", "c", "d"], Seen(0, 0, 1)),
        (["a", "a", "a"], Seen(2, 2, 0)),
    ],
)
def test_a_row_that_is_twice_does_not_make_up_for_one_that_is_lost(rows: list[str], seen: Seen) -> None:
    """Each is counted by itself."""
    assert compared("abc", rows) == seen
    assert seen.holds is (rows == ["a", "b", "c"])
    assert not compared("abc", rows, "readers wait").holds


def test_faults_are_spread_over_all_kinds() -> None:
    """As many on each broker as were asked for; without a number one of each kind."""
    kinds = Wanted(("pulsarish",), PROTOCOLS, FORMS, VICTIMS, STEPS, None, 1).kinds()
    counts = {protocol: sum(len(steps_of(protocol, victim)) for victim in VICTIMS) for protocol in PROTOCOLS}
    assert len(kinds) == len(set(kinds)) == len(FORMS) * (counts["sink"] + counts["queue"]) + counts["job"]
    many = Wanted(("pulsarish",), ("sink",), ("process",), VICTIMS, STEPS, 100, 1).kinds()
    assert len(many) == 100
    assert {many.count(kind) for kind in many} == {2, 3}
    assert Wanted(("apache",), ("sink",), ("spark",), ("worker",), ("left",), None, 1).kinds() == [
        Kind("sink", "spark", "worker", "left")
    ]


def test_one_bad_fault_shows_in_the_table() -> None:
    """Sums would hide it among the good ones of its kind."""
    good = Outcome("pulsarish", "sink", "process", "driver", "left", 1, 1, 0, Seen(0, 0, 0), 1.0)
    bad = Outcome("pulsarish", "sink", "process", "driver", "left", 1, 1, 0, Seen(0, 1, 0), 1.0)
    hung = Outcome("pulsarish", "sink", "process", "driver", "left", 1, 1, 0, Seen(0, 0, 0, "a reader waits"), 1.0)
    assert "NOT" not in "".join(table([good, good]))
    assert "NOT" in "".join(table([good, bad, good]))
    assert "NOT" in "".join(table([good, good, hung]))
