# SPDX-License-Identifier: Apache-2.0
"""The fixture ``pulsarish_broker`` in the tests of somebody else, who has installed the package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

REPOSITORY: Final = Path(__file__).resolve().parents[2]
PAGE: Final = (REPOSITORY / "docs" / "testing.md").read_text(encoding="utf-8")

TWO_TESTS: Final = """
import pathlib
import urllib.request

def test_one(pulsarish_broker):
    assert pulsarish_broker.service_url.startswith("pulsar://127.0.0.1:")
    with urllib.request.urlopen(pulsarish_broker.http_url + "/admin/v2/brokers/health") as answer:
        assert answer.status == 200
    pathlib.Path("brokers").open("a").write(f"{pulsarish_broker.pid}\\n")

def test_two(pulsarish_broker):
    pathlib.Path("brokers").open("a").write(f"{pulsarish_broker.pid}\\n")
"""


def run_pytest(folder: Path, program: str, *options: str) -> str:
    """Run pytest in ``folder``, where only the entry point of pyproject.toml tells it of the plugin."""
    (folder / "test_theirs.py").write_text(program, encoding="utf-8")
    installed = folder / "site" / "pulsarish-0.dist-info"  # comes before the one of this environment
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: pulsarish\nVersion: 0\n")
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    entries = [f"{name} = {module}" for name, module in project["entry-points"]["pytest11"].items()]
    (installed / "entry_points.txt").write_text("\n".join(["[pytest11]", *entries, ""]))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(installed.parent), str(REPOSITORY)])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("scope", "brokers"), [("function", 2), ("session", 1)])
def test_a_test_gets_a_broker_by_name_and_tests_share_it_where_asked(tmp_path: Path, scope: str, brokers: int) -> None:
    """Each has one of its own; a setting of pytest has them share it."""
    assert "2 passed" in run_pytest(tmp_path, TWO_TESTS, "-o", f"pulsarish_broker_scope={scope}")
    assert len(set((tmp_path / "brokers").read_text().split())) == brokers


def test_tests_without_the_fixture_load_nothing_of_a_broker(tmp_path: Path) -> None:
    """Pytest loads the plugin in every run of every project of the environment."""
    names = "sorted(name for name in sys.modules if name.startswith('broker_core'))"
    said = run_pytest(tmp_path, f"import sys\n\ndef test_it():\n    print({names})\n", "-s")
    assert "['broker_core', 'broker_core.testing', 'broker_core.testing.pytest_plugin']" in said


def test_the_example_of_the_page_passes(tmp_path: Path) -> None:
    """As a reader copies it."""
    found = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    assert "1 passed" in run_pytest(tmp_path, found[1])
