# SPDX-License-Identifier: Apache-2.0
"""The stalls of ``make stalls`` strike our functions in every thread, each seldom, and say where."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

STALLS = Path(__file__).parent / "stalls"

PROGRAM = """
import threading
import time

time.sleep = float  # which is at once
def often(): pass
def once(): pass

thread = threading.Thread(target=once, name="other")
thread.start()
thread.join()
for _ in range(7):
    often()
"""


def struck(folder: Path, chance: float, seed: str | None = "7") -> Counter[str]:
    """What strikes a program that lies in ``folder``."""
    program, log = folder / "program.py", folder / "log"
    folder.mkdir()
    program.write_text(PROGRAM)
    env = {name: value for name, value in os.environ.items() if not name.startswith("STALLS_")}
    env |= {"PYTHONPATH": str(STALLS), "STALLS_CHANCE": str(chance), "STALLS_LOG": str(log)}
    if seed is not None:
        env["STALLS_SEED"] = seed
    subprocess.run([sys.executable, program], check=True, env=env, timeout=300)
    told = log.read_text().splitlines() if log.exists() else []
    matches = [re.fullmatch(r".+: (\w+) [\d.]+ s at (\w+ of \w+)", line) for line in told]
    return Counter(f"{match[1]} {match[2]}" for match in matches if match)


def test_the_first_the_second_the_fourth_call_may_be_struck(tmp_path: Path) -> None:
    """And the returns; with certainty here, by chance else. The thread's own functions are not ours."""
    assert struck(tmp_path / "tests", 1.0) == {
        "MainThread call of often": 3,
        "MainThread return of often": 3,
        "other call of once": 1,
        "other return of once": 1,
    }


@pytest.mark.parametrize(
    ("folder", "chance", "seed"), [("tests", 1.0, None), ("tests", 0.0, "7"), ("elsewhere", 1.0, "7")]
)
def test_nothing_else_is_struck(tmp_path: Path, folder: str, chance: float, seed: str | None) -> None:
    """Without a seed, though Python imports the module; without a chance; code that is not ours."""
    assert struck(tmp_path / folder, chance, seed) == {}
