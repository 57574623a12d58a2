# SPDX-License-Identifier: Apache-2.0
"""Two kills of the queue rig: where nothing may be twice, and where the rig must not overlook what is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kill.queue_query import STEPS
from tests.kill.queue_rig import BROKERS, GUARANTEES, Outcome, Wanted, table

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


@pytest.mark.slow
@pytest.mark.apart
def test_a_locked_batch_is_processed_once_over_a_kill(tmp_path: Path) -> None:
    """Where ``claim`` cannot hold it."""
    code, (found,), talk = run_rig(tmp_path, "--guarantee", "lock", "--step", "noted")
    assert code == 0, talk
    assert (found["lost"], found["twice"], found["repeated"]) == (0, 0, 0)
    assert found["rival"] > 0


@pytest.mark.slow
@pytest.mark.spark
def test_a_claimed_batch_is_processed_once_over_the_kill_of_a_whole_spark(tmp_path: Path) -> None:
    """Where the most could go wrong: acknowledged on the broker, and no task has read it. `make queue-kills` has the
    other steps."""
    code, (found,), talk = run_rig(tmp_path, "--spark", "--guarantee", "claim", "--step", "planned")
    assert code == 0, talk
    assert (found["killed"], found["lost"], found["twice"], found["repeated"]) == ("spark", 0, 0, 0)
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
        ({"twice": 1, "guarantee": "lock", "step": "noted"}, False),
    ],
)
def test_what_the_table_does_not_promise_fails(change: dict[str, Any], holds: bool) -> None:
    """The rig passes nothing that docs/queues.md excludes."""
    values: dict[str, Any] = dict.fromkeys(("lost", "twice", "repeated", "replays_differ", "rival"), 0)
    values |= {"killed": "source", "broker": "pulsarish", "guarantee": "commit", "step": "sunk"}
    assert Outcome(**values | change).holds is holds


def test_kills_are_spread_over_brokers_guarantees_and_steps() -> None:
    """As many in all as were asked for, and of no kind two more than of another; without a number one of each."""
    wanted = Wanted("source", BROKERS, GUARANTEES, STEPS, 39)
    kinds = [(broker, *kind) for broker in BROKERS for kind in wanted.on(broker)]
    assert len(kinds) == 39
    counts = [
        kinds.count((broker, guarantee, step)) for broker in BROKERS for guarantee in GUARANTEES for step in STEPS
    ]
    assert set(counts) == {1, 2}
    assert len(Wanted("source", BROKERS, GUARANTEES, STEPS, None).on("apache")) == len(GUARANTEES) * len(STEPS)


def test_one_bad_kill_shows_in_the_table() -> None:
    """Sums would hide it among the good ones of its kind."""
    numbers = dict.fromkeys(("lost", "twice", "repeated", "replays_differ", "rival"), 0)
    good = Outcome("source", "pulsarish", "claim", "sunk", **numbers)
    bad = Outcome("source", "pulsarish", "claim", "sunk", **numbers | {"twice": 1})
    assert "NOT" not in "".join(table([good, good]))
    assert "NOT" in "".join(table([good, bad, good]))
