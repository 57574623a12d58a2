# SPDX-License-Identifier: Apache-2.0
"""A short run of the schema rig, and bugs of the registry that it finds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kill.schema_liar import LIES

REPOSITORY = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.apart]


def run_rig(folder: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    """One run to its end: exit code, summary, and everything it said."""
    summary = folder / "summary.json"
    command = [sys.executable, "-m", "tests.kill.schema_rig", "--json", str(summary), *options]
    done = subprocess.run(
        [*command, "--folder", str(folder / "run")], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    talk = done.stdout + done.stderr
    assert summary.exists(), talk
    return done.returncode, json.loads(summary.read_text()), talk


def test_schemas_under_kills_keep_their_versions(tmp_path: Path) -> None:
    """10.10, S-STORE-1: no version is lost, changed or given twice; `make schema-kills` does the same 300 times."""
    code, found, talk = run_rig(tmp_path, "--kills", "12")
    assert code == 0, talk
    assert found["kills"] >= 12
    assert found["verdict"]["versions"] > 100


@pytest.mark.parametrize("name", LIES)
def test_a_bug_of_the_registry_is_found_out(tmp_path: Path, name: str) -> None:
    """10.10: by the rule that it breaks."""
    code, found, talk = run_rig(tmp_path, "--kills", "4", "--lie", name)
    assert code == 1, talk
    assert LIES[name][1] in found["verdict"]["broken"], talk
